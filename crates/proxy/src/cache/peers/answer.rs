//! The owner's side: a request of a peer is answered from the cache, or by a fill.
//!
//! ```text
//! field ─► signature ─► zone and key ─► certificate ─► position ─► the cache, as ─► answer, with
//!            │ 403        │ 421           │ 403          │ 503        for a client    the field
//!                                                                   102 if it is to wait
//! ```
//!
//! 1. Nothing is looked up before the position that was asked for is reached.
//! 2. An answer without the field is one of this server's own (a refusal, a failure): who asked
//!    does not use it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use millpond_cache::zone::CacheZone;
use millpond_fleet::Fleets;
use millpond_fleet::node::{Node, now_ms};
use millpond_fleet::owner;
use millpond_fleet::peers::{Owner, PeerResult};
use millpond_system::clock;
use millpond_wire::header::{Field, Fields};

use super::LocationPeers;
use super::ask::host;
use super::field::{self, Asked, NAME, Target, Told};
use super::part::{OTHER_VERSION, OfPeer};
use crate::cache::zones::ZoneOf;
use crate::cache::{pass, slice, zones};
use crate::phase::{Begun, Flow};
use crate::request::Request;
use crate::upstream::pass::PassTarget;
use millpond_exchange::failure::Failure;
use millpond_exchange::response::Response;

/// Time for which an asked node waits until it has as much of the log as who asks: less than who
/// asks waits for a sign of life.
const REACH_WITHIN: Duration = Duration::from_millis(100);

/// The status of a request that is not signed, or shows no certificate, as it must.
const UNSIGNED: u16 = 403;
/// The status where zone or key are others than who asks means (RFC 9110 §15.5.20).
const MISDIRECTED: u16 = 421;
/// The status where the log was not taken far enough.
const BEHIND: u16 = 503;

/// True for a request that says it comes from a peer.
pub(in crate::cache) fn is_asked(req: &Request) -> bool {
    req.head.find(NAME.as_bytes()).is_some()
}

/// Answers a peer.
pub(in crate::cache) fn begin<'a>(
    req: &'a mut Request,
    target: &Arc<PassTarget>,
    (peers, zone): (&Arc<LocationPeers>, ZoneOf<'_>),
) -> Begun<'a> {
    let (target, peers, zone) = (Arc::clone(target), Arc::clone(peers), zone.into_arc());
    Begun::waits(req, async move |req| {
        run(req, (&target, &peers), &zone).await
    })
}

async fn run(
    req: &mut Request,
    (target, peers): (&Arc<PassTarget>, &LocationPeers),
    zone: &CacheZone,
) -> Result<Flow, Failure> {
    let fleets = req.worker().shared.guests.of::<Fleets>();
    let Some(node) = fleets.of_zone(&zone.name) else {
        return Err(Failure::Status(MISDIRECTED));
    };
    let checked = check(req, target, (&node, zone)).and_then(|(asked, key)| {
        if asked.extent.is_some() && peers.extents.is_none() {
            return Err(Failure::Status(MISDIRECTED));
        }
        if peers.certificates.admit(req, &node, &asked.from) {
            Ok((asked, key))
        } else {
            Err(Failure::Status(UNSIGNED))
        }
    });
    let (asked, key) = checked.inspect_err(|_| {
        node.peers().count(PeerResult::Rejected);
    })?;
    // INVARIANT 1.
    let reached = node.reach(&zone.name, asked.position, REACH_WITHIN).await;
    let Some(position) = reached else {
        node.peers().count(PeerResult::Behind);
        return Err(Failure::Status(BEHIND));
    };
    req.limits.held.push(Box::new(node.peers().begin()));
    // INVARIANT 4 of the module.
    req.location = match node.peers().owner(key, peers.rule.choice(), now_ms()) {
        Owner::Own => Arc::clone(&peers.answering),
        Owner::Peer { .. } if slice::slicing(req, target).is_some() => {
            node.peers().count(PeerResult::Rejected);
            return Err(Failure::Status(MISDIRECTED));
        }
        Owner::Peer { .. } => Arc::clone(&peers.answering_alone),
    };
    req.notes.put(OfPeer {
        extents: peers.extents,
        number: asked.extent,
        gone: asked.gone,
    });
    let mut response = match answer(req, target, asked.extent).await {
        Ok(Flow::Respond(response)) => response,
        // Who asks has to know that it is its version that is gone.
        Err(Failure::Status(OTHER_VERSION)) => Box::new(Response::empty(OTHER_VERSION)),
        Ok(_) => return Err(Failure::Status(MISDIRECTED)),
        Err(failure) => return Err(failure),
    };
    let fresh = req.upstream.borrow().freshness.map(|it| it.ttl);
    let told = Told { position, fresh };
    field::remove(&mut response.fields);
    let name = bytes::Bytes::from_static(NAME.as_bytes());
    response.fields.push(Field::new(name, told.value()));
    node.peers().count(PeerResult::Served);
    Ok(Flow::Respond(response))
}

/// Reads what is asked, with the number of the key, and checks that it is a peer who asks, and for
/// what is stored here.
fn check(
    req: &mut Request,
    target: &PassTarget,
    (node, zone): (&Node, &CacheZone),
) -> Result<(Asked, u64), Failure> {
    let secret = node.peers().secret();
    let value = req.head.find(NAME.as_bytes()).unwrap_or_default();
    let host = host(req);
    let signed = Target {
        method: req.method.name().unwrap_or_default().as_bytes(),
        host: &host,
        uri: req.unparsed_uri(),
    };
    let now_s = clock::now_ms().div_euclid(1000);
    let verified = secret.and_then(|secret| Asked::verify(value, secret, &signed, now_s));
    let asked = verified.ok_or(Failure::Status(UNSIGNED))?;
    let text = pass::key(req, target)?;
    let is_same = asked.key == field::digest(&text) && asked.zone == zone.name.as_bytes();
    // Who has the address of another one asks itself, and would wait for itself.
    let is_own = asked.from == node.conf().log.node.as_bytes();
    if is_same && !is_own {
        let key = owner::key_of_extent(&asked.zone, &text, asked.extent.unwrap_or(0));
        Ok((asked, key))
    } else {
        Err(Failure::Status(MISDIRECTED))
    }
}

/// The answer as the twin of the location makes it; who asks hears at once if it takes time.
async fn answer(
    req: &mut Request,
    target: &Arc<PassTarget>,
    extent: Option<u32>,
) -> Result<Flow, Failure> {
    let client = Rc::clone(&req.client);
    let twin = Arc::clone(&req.location);
    let zone = match zones::of_location(&twin, target.protocol) {
        Some(cache) => cache.zone_for(req)?.map(|zone| (cache, zone)),
        None => None,
    };
    let Some((cache, zone)) = zone else {
        return Err(Failure::Status(MISDIRECTED));
    };
    let timeout = twin.settings.send.timeout;
    if extent.is_some() {
        client.inform(102, &Fields::new(), timeout).await;
        return pass::run_for_peer(req, target, cache, zone.into_arc()).await;
    }
    match pass::begin(req, (&twin, target), cache, zone)? {
        Begun::Done(flow) => Ok(flow),
        Begun::Waits(rest) => {
            client.inform(102, &Fields::new(), timeout).await;
            rest.await
        }
    }
}
