//! `proxy_cache_path … tier=`: what is missing in a zone is looked for in its second tier before
//! the origin is asked.
//!
//! ```text
//! miss ─► the node owns the key, or nobody does ─► tier ─┬─ a copy: as an answer of the origin
//!                                                        │  that came when it was stored
//!                                                        └─ none: the origin is asked
//! ```
//!
//! How copies are kept and judged is the matter of `millpond_tier`.
//!
//! 1. The position is read after the lead of the fill began, and what this node has removed alone
//!    is not looked for, as with owners (`peers/ask.rs`).
//! 2. Tags are those of the copy: what it is purged by is not made anew of another request.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use millpond_cache::variant::RequestFields;
use millpond_cache::verdict::is_usable;
use millpond_fleet::Fleets;
use millpond_fleet::node::now_ms;
use millpond_semantics::range::{content_range, first_range};
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_system::clock;
use millpond_tier::counts::Read;
use millpond_tier::read::{Found, Incoming, Part, Question};
use millpond_tier::tiers::Plan;
use millpond_tier::{Tier, Tiers};
use millpond_wire::header::{Field, Fields, Known};
use millpond_wire::http1::response::ResponseHead;
use millpond_wire::http1::{Method, Version};

use super::peers::ask::Given;
use super::zones::Zones;
use super::{stored_head, vary_as, zones};
use crate::request::Request;
use crate::upstream::ask::Ask;
use crate::upstream::by_rfc;
use crate::upstream::exchange::Fetched;
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::upstream::receive::{BodyContext, UpstreamBody};
use millpond_exchange::settings::Conf;
use millpond_exchange::trace::TierWord;

/// A note of a request: the tags of the copy that answers it.
pub(super) struct CopyTags(pub(super) Bytes);

/// A note of a request: the text of the cache key of which nothing is stored here.
pub(super) struct Missing(pub(super) Bytes);

/// True if a zone of a configuration has a tier.
pub(super) fn is_used(conf: &Conf) -> bool {
    conf.declared.zones.iter().any(|zone| zone.tier.is_some())
}

/// The copy that answers a request in place of the origin; none if the origin is to be asked.
pub(super) async fn ask(req: &mut Request, target: &PassTarget, ask: &Ask) -> Option<Given> {
    let text = &req.notes.get::<Missing>()?.0.clone();
    if req.method != Method::Get && !ask.is_get_for_head {
        return None;
    }
    let part = match &ask.range {
        Some(range) => Some(Part {
            range: first_range(range)?,
            if_range: ask.if_range.clone(),
        }),
        None => None,
    };
    let location = Arc::clone(&req.location);
    let cache = zones::of_location(&location, target.protocol)?;
    let zone = cache.zone_for(req).ok()??.into_arc();
    if !zone.copies.has_keeper() {
        return None;
    }
    let guests = &req.worker().shared.guests;
    let tier = guests.of::<Tiers>().of_zone(&zone.name)?;
    let node = guests.of::<Fleets>().of_zone(&zone.name)?;
    let rules = by_rfc::rules(req, target);
    if rules.asked().is_some_and(|asked| asked.no_cache) {
        return None;
    }
    // INVARIANT 1.
    let own = zone.purges.position_to_ask(text, now_ms())?;
    let found = {
        let req = &*req;
        let fields = RequestFields {
            lookup: &|name| vary_as::values(req, name),
            spelling: rules.spelling(),
        };
        let question = Question {
            text,
            variant: &|vary| fields.variant(vary),
            own,
            now_s: clock::now_ms().div_euclid(1000),
            may_resume: location.settings.pass(target.protocol).range.resume,
            part,
        };
        let found = tier.reader().find(&node, &question).await;
        // The request may ask for something newer.
        let stale = &cache.policies.stale;
        let fits = |found: &Found| is_usable(&found.stored, question.now_s, stale, &rules);
        found.and_then(|found| fits(&found).then_some(found).ok_or(Read::Miss))
    };
    req.upstream.borrow_mut().tier = match &found {
        Ok(_) => Some(TierWord::Hit),
        Err(Read::Miss | Read::Purged) => Some(TierWord::Miss),
        Err(Read::Fault | Read::Hit) => Some(TierWord::Fault),
        Err(Read::Skipped) => None,
    };
    Some(given(req, (found.ok()?, tier)))
}

fn given(req: &mut Request, (found, tier): (Found, Arc<Tier>)) -> Given {
    let Found {
        stored,
        total,
        part,
        body,
    } = found;
    let mut fields = Fields::with_capacity(stored.field_count() + 4);
    for (name, value) in stored.fields() {
        fields.push(stored_head::stored_field(&stored, name, value));
    }
    let length = part.as_ref().map_or(total, |part| part.end - part.start);
    let status_line = if let Some(part) = &part {
        let text = content_range(part.start, part.end, total);
        let value = Bytes::copy_from_slice(text.as_bytes());
        fields.push(Field::known(Known::ContentRange, value));
        Bytes::new()
    } else {
        stored.status_text().unwrap_or_default()
    };
    if req.conf.uses_upstream_fields || !req.is_clients_own() {
        req.upstream.borrow_mut().fields = Some(Rc::new(fields.clone()));
    }
    // INVARIANT 2.
    req.notes.put(CopyTags(stored.tags.clone()));
    let context = BodyContext {
        trace: Rc::clone(&req.upstream),
        started: clock::instant(),
        generation: Rc::clone(req.generation()),
        timeout: tier.path().timeout,
        log: None,
    };
    let body = Copied { body, _tier: tier };
    let fetched = Fetched {
        head: ResponseHead {
            version: Version::Http11,
            status: if part.is_some() { 206 } else { stored.status },
            status_line,
            fields,
            head_len: 0,
        },
        length: Some(length),
        body: UpstreamBody::brought(Body::stream(body), length, context),
    };
    Given {
        fetched: Box::new(fetched),
        fresh_left: Some(stored.valid_until.saturating_sub(stored.stored_at)),
        is_left_to_owner: false,
        stored_at: Some(stored.stored_at),
    }
}

/// The body of a copy, whose tier is there as long as it is read.
struct Copied {
    body: Incoming,
    _tier: Arc<Tier>,
}

impl BodyStream for Copied {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let next = self.body.poll_next(cx);
        next.map(|next| {
            next.map(|slice| match slice {
                Ok(bytes) => Ok(Piece::Memory(bytes)),
                Err(_) => Err(BodyError::UpstreamTruncated),
            })
        })
    }
}

/// The tiers of a configuration whose zones are open.
pub fn plan(conf: &Conf) -> Plan {
    let declared = conf.declared.zones.iter();
    let tiers = declared.filter_map(|declared| {
        let zone = conf.parts.of::<Zones>().get(declared.name.as_bytes())?;
        Some((declared.tier.clone()?, Arc::clone(zone)))
    });
    tiers.collect()
}
