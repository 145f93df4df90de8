//! The way of a request that its location passes on: refused, a purge, answered through the cache,
//! or by the upstream alone.
//!
//! Targets, and the exchanges with them, stand in `upstream`; the way through the cache in
//! `cache/pass.rs`.

mod slice;

use std::sync::Arc;

use bytes::Bytes;

use millpond_cache::reason::Note;
use millpond_cache::slice::SliceSize;
use millpond_semantics::cache_status::Forward;
use millpond_wire::header::Known;
use millpond_wire::http1::Method;

use crate::cache::status_header::{self, Told};
use crate::cache::{self, content_key, post, uncached, zones};
use crate::content;
use crate::phase::{Begun, Flow};
use crate::request::Request;
use crate::upstream::pass::{PassTarget, may_cache, note_host};
use crate::upstream::{by_rfc, cdn_loop, max_forwards, memcached};
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::response::Response;
use millpond_exchange::settings::Location;

/// Answers from the upstream, through the cache where there is one; a hit at once.
pub(crate) fn begin<'a>(
    req: &'a mut Request,
    location: &Location,
    target: &Arc<PassTarget>,
) -> Result<Begun<'a>, Failure> {
    if target.protocol == Protocol::Memcached {
        return memcached::begin(req, target);
    }
    by_rfc::take_in(req, target);
    cdn_loop::check(req, target.protocol)?;
    if let Some(response) = max_forwards::answer(req, target.protocol) {
        return content::respond(req, Box::new(response)).map(Begun::Done);
    }
    if req.conf.uses_proxy_host {
        note_host(req, target);
    }
    if cache::purge::is_due(req, target.protocol) {
        let target = Arc::clone(target);
        return Ok(Begun::waits(req, |req| purge_or_run(req, target)));
    }
    run(req, location, target)
}

/// Takes a request for a purge as that, and any other as it is.
async fn purge_or_run(req: &mut Request, target: Arc<PassTarget>) -> Result<Flow, Failure> {
    match cache::purge::take(req, &target).await? {
        Some(response) => content::respond(req, Box::new(response)),
        None => match run(req, &Arc::clone(&req.location), &target)? {
            Begun::Done(flow) => Ok(flow),
            Begun::Waits(rest) => rest.await,
        },
    }
}

fn run<'a>(
    req: &'a mut Request,
    location: &Location,
    target: &Arc<PassTarget>,
) -> Result<Begun<'a>, Failure> {
    let cache = zones::of_location(location, target.protocol);
    if let Some(cache) = cache
        && may_cache(req, target.protocol)
        && let Some(zone) = cache.zone_for(req)?
    {
        return cache::pass::begin(req, (location, target), cache, zone);
    }
    let target = Arc::clone(target);
    if let Some(kind) = content_key::kind(req, target.protocol)
        && let Some(cache) = cache
        && let Some(zone) = cache.zone_for(req)?
    {
        let of = (zone.into_arc(), kind);
        return Ok(content_key::begin(req, &target, cache, of));
    }
    if post::is_one(req, &target)
        && let Some(cache) = cache
        && let Some(zone) = cache.zone_for(req)?
    {
        note_unasked(req, Forward::Method);
        let (cache, zone) = (cache.clone(), zone.into_arc());
        return Ok(Begun::waits(req, async move |req| {
            let response = cache::post::run(req, &target, &cache, zone).await?;
            content::respond(req, response)
        }));
    }
    Ok(Begun::waits(req, async move |req| {
        let response = run_uncached(req, &target).await?;
        content::respond(req, response)
    }))
}

/// Answers from the upstream what no cache is asked for.
async fn run_uncached(
    req: &mut Request,
    target: &Arc<PassTarget>,
) -> Result<Box<Response>, Failure> {
    if target.protocol == Protocol::Tunnel && req.method != Method::Connect {
        let only = Bytes::from_static(b"CONNECT");
        req.answer_fields.set(Known::Allow, only);
        return Err(Failure::Status(405));
    }
    let location = Arc::clone(&req.location);
    let tries_before = status_header::tries(req);
    let has_cache = zones::of_location(&location, target.protocol).is_some();
    if has_cache {
        let why = if may_cache(req, target.protocol) {
            Forward::Bypass
        } else {
            Forward::Method
        };
        note_unasked(req, why);
    }
    if let SliceSize::Bytes(size) = location.settings.slice.size
        && matches!(req.method, Method::Get | Method::Head)
        && req.conf.uses_slices
    {
        return Box::pin(slice::run(req, target, size)).await;
    }
    let mut response = uncached::fetch(req, target).await?;
    if has_cache {
        let told = Told {
            tries_before,
            ..Told::default()
        };
        status_header::tell(req, target, &mut response, &told);
    }
    Ok(response)
}

/// Notes why the cache is not asked.
fn note_unasked(req: &Request, why: Forward) {
    let mut trace = req.upstream.borrow_mut();
    trace.account.note(Note::Forwarded(why));
}
