//! `r.cache`: what a script asks of the cache of its request's location, or of a zone by its name.
//!
//! 1. A look-up counts nothing and marks nothing as used; it waits for no disk.
//! 2. A purge is one like any other: durable, told to the fleet, and in the error log.

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::catalogue;
use millpond_cache::tag;
use millpond_cache::variant::RequestFields;
use millpond_cache::zone::{CacheZone, LookedUp};
use millpond_exchange::failure::Failure;
use millpond_script::{Cached, Purge, Reply};

use crate::cache::pass;
use crate::cache::purge::{self, Order};
use crate::cache::zones::{self, Zones};
use crate::content::ContentHandler;
use crate::request::Request;
use crate::upstream::by_rfc;
use crate::upstream::pass::PassTarget;

/// The cache of a request.
struct Own {
    target: Arc<PassTarget>,
    zone: Arc<CacheZone>,
}

impl Own {
    /// The cache of the request's location; none where it has none.
    fn of(req: &mut Request) -> Option<Own> {
        let location = Arc::clone(&req.location);
        let target = PassTarget::of(location.parts.get::<ContentHandler>()?)?;
        let cache = zones::of_location(&location, target.protocol)?;
        let zone = cache.zone_for(req).ok()??.into_arc();
        Some(Own {
            target: Arc::clone(target),
            zone,
        })
    }
}

/// The key of a request; none where its location has no cache.
pub(super) fn key(req: &mut Request) -> Result<Option<Bytes>, String> {
    let Some(own) = Own::of(req) else {
        return Ok(None);
    };
    let key = pass::key(req, &own.target);
    key.map(Some).map_err(|failure| why(&failure))
}

/// The entry under a key, or under that of the request.
pub(super) fn look_up(
    req: &mut Request,
    key: Option<Bytes>,
    zone: Option<&str>,
) -> Result<Option<Cached>, String> {
    let own = Own::of(req);
    let zone = zone_of(req, own.as_ref(), zone)?;
    let text = match (key, &own) {
        (Some(key), _) => key,
        (None, Some(own)) => pass::key(req, &own.target).map_err(|failure| why(&failure))?,
        (None, None) => return Ok(None),
    };
    let rules = own.as_ref().map(|own| by_rfc::rules(req, &own.target));
    let fields = RequestFields {
        lookup: &|name| req.head.find_all(name).collect(),
        spelling: rules.unwrap_or_default().spelling(),
    };
    let LookedUp::Found(found) = zone.look_up(&zone.primary(text), &fields) else {
        return Ok(None);
    };
    let (now, head) = (req.now_s(), &found.head);
    let glance = zone.store.glance(&found.key);
    let given = tag::given(&head.tags);
    Ok(Some(Cached {
        status: head.status,
        age: head.age(now),
        ttl: head.valid_until.saturating_sub(now),
        size: found.body_len(),
        hits: glance.map_or(0, |glance| catalogue::hits(&glance.summary())),
        tags: given.map(Bytes::copy_from_slice).collect(),
    }))
}

fn zone_of(req: &Request, own: Option<&Own>, name: Option<&str>) -> Result<Arc<CacheZone>, String> {
    match (name, own) {
        (Some(name), _) => {
            let zone = req.conf.parts.of::<Zones>().get(name.as_bytes()).cloned();
            zone.ok_or_else(|| format!("cache \"{name}\" not found"))
        }
        (None, Some(own)) => Ok(Arc::clone(&own.zone)),
        (None, None) => Err("there is no cache here: a zone must be named".to_string()),
    }
}

/// Purges, and waits until that is in force.
pub(super) async fn purge(mut req: Box<Request>, asked: Purge) -> Reply {
    match purged(&mut req, &asked).await {
        Ok(was_there) => Reply::Purged(was_there),
        Err(why) => Reply::Failed(why),
    }
}

async fn purged(req: &mut Request, asked: &Purge) -> Result<bool, String> {
    let own = Own::of(req);
    let zone = zone_of(req, own.as_ref(), asked.zone.as_deref())?;
    let what = match (&asked.what, &own) {
        (Some(what), _) => what.clone(),
        (None, Some(own)) => pass::key(req, &own.target).map_err(|failure| why(&failure))?,
        (None, None) => return Err("there is no key here: it must be named".to_string()),
    };
    let is_of_tags = asked.kind == "tag";
    let field = |name: &[u8]| -> Vec<Bytes> {
        match name {
            b"surrogate-key" if is_of_tags => vec![what.clone()],
            b"purge-type" if !is_of_tags => vec![Bytes::from(asked.kind)],
            b"purge-soft" if asked.is_soft => vec![Bytes::from_static(b"1")],
            _ => Vec::new(),
        }
    };
    let order = Order::named(what.clone(), &field).map_err(|refused| refused.to_string())?;
    let outcome = purge::by_order(req, &zone, &Arc::new(order)).await;
    outcome.map_err(|failure| why(&failure))
}

fn why(failure: &Failure) -> String {
    failure.to_string()
}
