//! Purges as requests: who may, what is asked for, the answer, and a line for the record.
//!
//! The cache itself is in `millpond_cache::purge`. A purge waits for the disk, because it is
//! durable before it is answered, so it runs beside the worker.
//!
//! - [`location`]: locations that do nothing but purge; the directive is read in
//!   `cache_settings/purge.rs`
//! - `order`: what a request asks for
//! - [`reach`]: the way to all nodes of a fleet
//! - `answer`: what it is told
//! - `sweep`: when purged entries are removed
//!
//! Answers:
//!
//! | | NGINX Plus's form | the module's forms |
//! |---|---|---|
//! | a key that had an entry, or a purge of many | 204 | 200 with a page |
//! | a key without an entry | 404 | 404 |
//! | not from this address | | 403 |
//! | beyond its own key, host and site, and not allowed | 403 | 403 |
//! | not understood | 400 | 400 |
//! | cannot be written down | 500, or 503 while the zone changes hands | the same |
//!
//! A purge in a zone with a fleet is answered as one of many, or with 503 if it holds here only.
//!
//! With `Accept: application/json` the answer is JSON, with 200 in place of 204. A dry run is
//! always answered with 200.
//!
//! 1. Whatever the answer is, a purge leaves one line in the error log.

mod answer;
pub mod location;
mod order;
pub mod reach;
pub(crate) mod sweep;

use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::purge::{Mode, Target};
use millpond_cache::upkeep::Purged;
use millpond_cache::zone::CacheZone;
use millpond_fleet::Fleets;
use millpond_fleet::node::Reach;
use millpond_store::JournalError;
use millpond_system::log::error::Level;

pub use self::answer::Outcome;
use self::answer::Style;
pub use self::order::Order;
use self::order::{Own, Refused};
use super::no_vary_search;
use super::pass::key;
use crate::cache::zones;
use crate::cache::zones::Zones;
use crate::cache_settings::purge::{Form, PurgeLocation, Scope, Wider};
use crate::log::request_error;
use crate::request::Request;
use crate::site;
use crate::upstream::pass::PassTarget;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::response::Response;

/// The longest part of a key in a log line; a line has room for little more.
const LOGGED_LEN_MAX: usize = 1024;

/// A purge that the configuration allows.
#[derive(Clone, Debug)]
struct Allowed {
    scope: Scope,
    wider: Vec<Wider>,
    style: Style,
}

/// Purges, if the request is one and there is a cache to purge.
pub async fn take(
    req: &mut Request,
    target: &Arc<PassTarget>,
) -> Result<Option<Response>, Failure> {
    let location = Arc::clone(&req.location);
    let Some(cache) = zones::of_location(&location, target.protocol) else {
        return Ok(None);
    };
    let Some(allowed) = allowed(req, target.protocol)? else {
        return Ok(None);
    };
    let Some(zone) = cache.zone_for(req)? else {
        return Ok(None);
    };
    let (zone, text) = (zone.into_arc(), key(req, target)?);
    let other = no_vary_search::other_key(req, target, &zone)?;
    let Some(other) = other else {
        return purge(req, zone, text, allowed).await.map(Some);
    };
    // The entry is under one of them, or there is one under each.
    let by_itself = purge(req, Arc::clone(&zone), text, allowed.clone()).await;
    let equivalent = purge(req, zone, other, allowed).await;
    match by_itself {
        Err(Failure::Status(404)) => equivalent.map(Some),
        Ok(response) if response.status >= 400 => equivalent.map(Some),
        other => {
            let response = other?;
            match equivalent {
                Err(Failure::Status(404)) | Ok(_) => Ok(Some(response)),
                Err(failure) => Err(failure),
            }
        }
    }
}

/// True if the location may have purges at all: one comparison for most.
pub fn is_due(req: &Request, protocol: Protocol) -> bool {
    let policy = &req.location.settings.pass(protocol).purge;
    !matches!(policy.form.value, Form::Off | Form::Location(_)) && req.is_clients_own()
}

/// Purges for a location that does nothing else.
pub async fn run_location(
    req: &mut Request,
    location: &PurgeLocation,
) -> Result<Response, Failure> {
    let Some(zone) = req
        .conf
        .parts
        .of::<Zones>()
        .get(location.zone.as_bytes())
        .cloned()
    else {
        let message = format!("cache \"{}\" not found", location.zone);
        return Err(Failure::Internal(message));
    };
    let text = req.eval(&location.key);
    let allowed = Allowed {
        scope: Scope::Key,
        wider: location.wider.clone(),
        style: Style::Module,
    };
    purge(req, zone, text, allowed).await
}

/// Permission of the request, if it is a purge by the words of the directive.
fn allowed(req: &mut Request, protocol: Protocol) -> Result<Option<Allowed>, Failure> {
    let location = Arc::clone(&req.location);
    match &location.settings.pass(protocol).purge.form.value {
        Form::Off | Form::Location(_) => Ok(None),
        Form::When(by) => {
            let is_purge = by.values.iter().any(|value| req.is_true(value));
            Ok(is_purge.then_some(Allowed {
                scope: Scope::Key,
                wider: by.wider.clone(),
                style: Style::Plus,
            }))
        }
        Form::Method(by) if by.method != req.head.method_bytes() => Ok(None),
        Form::Method(by) if !by.allows(&req.client.remote.borrow()) => {
            let message = format_args!("cache purge forbidden by rule");
            request_error::write(req, Level::Error, message);
            Err(Failure::Status(403))
        }
        Form::Method(by) => Ok(Some(Allowed {
            scope: by.scope,
            wider: by.wider.clone(),
            style: Style::Module,
        })),
    }
}

/// Result of a purge beside the worker.
type Done = Result<Outcome, JournalError>;

async fn purge(
    req: &mut Request,
    zone: Arc<CacheZone>,
    text: Bytes,
    allowed: Allowed,
) -> Result<Response, Failure> {
    let own = Own {
        key: text,
        scope: allowed.scope,
        host: host(req),
        site: site::of(req),
        wider: allowed.wider,
    };
    let head = std::rc::Rc::clone(&req.head);
    let field = |name: &[u8]| head.find_all(name).map(Bytes::copy_from_slice).collect();
    let order = match Order::read(own, &field) {
        Ok(order) => Arc::new(order),
        Err(why) => {
            request_error::write(
                req,
                Level::Error,
                format_args!("cache purge refused: {why}"),
            );
            let status = match why {
                Refused::Unclear(_) => 400,
                Refused::TooWide(_) => 403,
            };
            return Err(Failure::Status(status));
        }
    };
    let (done, reach) = obey(req, &zone, &order).await?;
    match done {
        Ok(outcome) => {
            let ended = answer::Ended {
                zone: &zone.name,
                order: &order,
                outcome,
                reach: reach.as_ref(),
            };
            answer::of(req, ended, allowed.style)
        }
        Err(JournalError::Closed) => Err(Failure::Status(503)),
        Err(_) => Err(Failure::Status(500)),
    }
}

/// Purges what a target says, by the word of an origin; one that fails is in the log.
pub(super) async fn by_origin(
    req: &Request,
    zone: &Arc<CacheZone>,
    target: Target,
) -> Result<(), Failure> {
    let order = Arc::new(Order::of(target, Mode::Hard));
    obey(req, zone, &order).await.map(drop)
}

/// Purges by the word of the configuration's own code; true unless nothing was there.
pub async fn by_order(
    req: &Request,
    zone: &Arc<CacheZone>,
    order: &Arc<Order>,
) -> Result<bool, Failure> {
    let (done, _) = obey(req, zone, order).await?;
    match done {
        Ok(Outcome::Purged { was_there, .. }) => Ok(was_there != Some(false)),
        Ok(Outcome::Counted(count)) => Ok(count > 0),
        Err(error) => Err(Failure::Internal(error.to_string())),
    }
}

/// Carries an order out beside the worker, hands it on to the fleet, and logs it.
async fn obey(
    req: &Request,
    zone: &Arc<CacheZone>,
    order: &Arc<Order>,
) -> Result<(Done, Option<Reach>), Failure> {
    let now_ms = u64::try_from(millpond_system::clock::now_ms()).unwrap_or(0);
    let (job_zone, job_order) = (Arc::clone(zone), Arc::clone(order));
    let job = move || carry_out(&job_zone, &job_order, now_ms);
    let done = tokio::task::spawn_blocking(job).await;
    let here: Done = done.map_err(|_| Failure::Internal("a cache purge panicked".to_string()))?;
    let reach = match &here {
        Ok(outcome) => {
            let fleets = req.worker().shared.guests.of::<Fleets>();
            reach::spread(&fleets, zone, (order, *outcome)).await
        }
        Err(_) => None,
    };
    let everywhere = here.map(|outcome| reach::of_all(outcome, reach.as_ref()));
    log(req, zone, (order, &everywhere), reach.as_ref());
    Ok((everywhere, reach))
}

/// The host of a request, as entries have it.
pub fn host(req: &Request) -> Bytes {
    req.host_or_name().clone()
}

/// Purges, or counts.
pub fn carry_out(zone: &CacheZone, order: &Order, now_ms: u64) -> Done {
    if order.is_dry_run {
        // Nothing is told to stop while the request is there.
        let count = zone.count_purged(&order.target, &|| false).unwrap_or(0);
        return Ok(Outcome::Counted(count));
    }
    let Purged { serial, was_there } = zone.purge(&order.target, order.mode, now_ms)?;
    Ok(Outcome::Purged { serial, was_there })
}

/// INVARIANT 1.
fn log(req: &Request, zone: &CacheZone, (order, done): (&Order, &Done), reach: Option<&Reach>) {
    let (level, message) = record(zone, (order, done), reach);
    request_error::write(req, level, format_args!("{message}"));
}

/// The line for the record.
pub fn record(
    zone: &CacheZone,
    (order, done): (&Order, &Done),
    reach: Option<&Reach>,
) -> (Level, String) {
    let what = order.what();
    let what = String::from_utf8_lossy(what.get(..LOGGED_LEN_MAX).unwrap_or(&what)).into_owned();
    let (mode, kind, zone) = (order.mode_word(), order.kind(), &zone.name);
    let purge = format!("cache purge, {mode}, {kind} \"{what}\" in zone \"{zone}\"");
    match done {
        Ok(Outcome::Counted(count)) => {
            let message = format!("{purge}: dry run, {count} entries");
            (Level::Notice, message)
        }
        Ok(Outcome::Purged { serial, was_there }) => {
            let count = match was_there {
                Some(true) => "1 entry",
                Some(false) => "no entry",
                None => "entries counted when swept",
            };
            let message = format!("{purge}: number {serial}, {count}");
            match reach {
                None => (Level::Notice, message),
                Some(Reach::Local(why)) => {
                    (Level::Warn, format!("{message}, on this node only: {why}"))
                }
                Some(reach) => (Level::Notice, format!("{message}, {}", reach.word())),
            }
        }
        Err(error) => {
            let cause = std::error::Error::source(error);
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            let message = format!("{purge} failed: {error}{cause}");
            (Level::Error, message)
        }
    }
}
