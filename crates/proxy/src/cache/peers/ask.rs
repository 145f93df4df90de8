//! Asking the owner of a key in place of the origin.
//!
//! ```text
//! is_due ─► owner of the key ─► request, signed ─┬─ head ───────────► Given: used, and stored from
//!                                                │                    the second time on
//!                                                └─ no sign of life, ► Failed: the origin is
//!                                                   failed, refused    asked
//! ```
//!
//! 1. The position is read after the lead of the fill began, so that every purge with a serial up
//!    to the lead's is behind it.
//! 2. What this node has removed by itself is not asked of others.
//! 3. A sign of life (102) ends the time for one; from then on the owner has the time that an
//!    upstream has.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::extent::ExtentNumber;
use millpond_cache::purge::position::Position;
use millpond_cache::status::CacheStatus;
use millpond_cache::zone::CacheZone;
use millpond_fleet::follower::MEMBERS_MAX;
use millpond_fleet::node::{Node, now_ms};
use millpond_fleet::peers::{Owner, PeerResult};
use millpond_fleet::{Fleets, owner};
use millpond_semantics::proxy_status::ProxyError;
use millpond_system::address::Address;
use millpond_system::clock;
use millpond_system::log::error::Level;
use millpond_wire::header::Known;
use millpond_wire::http1::{Method, Version, encode};

use super::LocationPeers;
use super::field::{self, Asked, NAME, Target, Told};
use crate::cache::{pass, zones};
use crate::log::request_error;
use crate::request::Request;
use crate::upstream::ask::{Ask, PeerAsk};
use crate::upstream::balance;
use crate::upstream::encryption::Encryption;
use crate::upstream::exchange::{self, Fetched};
use crate::upstream::group::Group;
use crate::upstream::http::is_hop_by_hop;
use crate::upstream::keepalive::Sharing;
use crate::upstream::pass::{PassTarget, Resolved};
use crate::upstream::peer::{Peer, PeerSettings};
use crate::upstream::request::{OutBody, OutFraming, Prepared, is_condition};
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::failure::Failure;

/// An owner's answer.
pub(in crate::cache) struct Given {
    pub(in crate::cache) fetched: Box<Fetched>,
    /// Seconds for which it is fresh yet, where the owner has stored it.
    pub(in crate::cache) fresh_left: Option<i64>,
    /// True if there is no copy here yet, and is to be none.
    pub(in crate::cache) is_left_to_owner: bool,
    /// Time when it was stored, where it is a copy that lay elsewhere; seconds since 1970.
    pub(in crate::cache) stored_at: Option<i64>,
}

/// Outcome of asking.
pub(in crate::cache) enum Answered {
    /// The owner's answer.
    Given(Box<Given>),
    /// Nobody was asked: this node owns the key, or nobody does.
    Unasked,
    /// The owner has given no answer that can be used.
    Failed,
}

/// Groups of the peers, one for each address, so that connections to them are kept.
#[derive(Debug, Default)]
struct PeerGroups(Mutex<HashMap<SocketAddr, Arc<Group>>>);

impl PeerGroups {
    fn of(&self, address: SocketAddr) -> Arc<Group> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nodes that went; those that are there are found again.
        if groups.len() >= MEMBERS_MAX {
            groups.clear();
        }
        let group = groups.entry(address).or_insert_with(|| group(address));
        Arc::clone(group)
    }
}

fn group(address: SocketAddr) -> Arc<Group> {
    let name = address.to_string();
    let peer = Peer::new(Address::Inet(address), PeerSettings::new(&name), None);
    let mut group = Group::new(name, vec![peer], balance::Method::RoundRobin);
    group.keep_alive.sharing = Sharing::All;
    group.is_implicit = true;
    group.is_counted = false;
    Arc::new(group)
}

/// True if an owner may be asked in place of the origin, as far as that is seen at once.
pub(in crate::cache) fn is_due(req: &Request, target: &PassTarget, ask: &Ask) -> bool {
    let cache = zones::of_location(&req.location, target.protocol);
    cache.is_some_and(|cache| cache.peers.is_some()) && is_for_owner(req, ask)
}

/// True for what an owner would make the same of: a request as the client wrote it, for the whole
/// or for slices of one extent.
fn is_for_owner(req: &Request, ask: &Ask) -> bool {
    let is_get = match req.method {
        Method::Get => true,
        Method::Head => ask.is_get_for_head,
        _ => false,
    };
    let is_redirected = req.is_internal && !req.is_background;
    ask.is_for_cache
        // A range of a body that breaks off is the origin's.
        && (ask.range.is_none() || ask.extent.is_some())
        // What the client is for its own node may be something else for another one.
        && ask.label != Some(CacheStatus::Bypass)
        && is_get
        && !req.is_subrequest()
        && !is_redirected
        && matches!(req.body, RequestBody::None)
}

/// A question that has found its owner.
struct Question {
    node: Arc<Node>,
    peers: Arc<LocationPeers>,
    name: Arc<str>,
    address: SocketAddr,
    /// The position that the answer must have.
    position: Position,
    field: Bytes,
    /// Number of the key.
    key: u64,
    /// Encryption of the connection, where nodes show each other certificates.
    encryption: Option<Encryption>,
}

/// Asks the owner of the key, if that is another node.
pub(in crate::cache) async fn ask(req: &mut Request, target: &PassTarget, ask: &Ask) -> Answered {
    let Some(mut question) = question(req, target, ask) else {
        return Answered::Unasked;
    };
    let node = &question.node;
    if let Some(certificates) = question.peers.certificates.of(node.conf().name()) {
        let parties = (&**node, &*question.name);
        question.encryption = certificates.encryption(req, parties, clock::now_ms());
        if question.encryption.is_none() {
            question.node.peers().count(PeerResult::Failed);
            return Answered::Failed;
        }
    }
    let (outcome, result) = match talk(req, target, (&question, ask)).await {
        None => (None, PeerResult::Slow),
        Some(Err(failure)) => {
            tell(req, &question, &failure);
            (None, PeerResult::Failed)
        }
        Some(Ok(mut fetched)) => match Told::take(&mut fetched.head.fields) {
            // INVARIANT 5 of decision 17.
            Some(told) if told.position.covers(&question.position) => {
                (Some((fetched, told)), PeerResult::Answered)
            }
            _ => (None, PeerResult::Refused),
        },
    };
    let peers = question.node.peers();
    peers.count(result);
    let Some((fetched, told)) = outcome else {
        return Answered::Failed;
    };
    // A body in slices is read through its entry, so that there is one.
    let is_first = ask.extent.is_none()
        && ask.label == Some(CacheStatus::Miss)
        && !peers.was_asked(question.key);
    Answered::Given(Box::new(Given {
        fetched,
        fresh_left: told.fresh,
        is_left_to_owner: is_first,
        stored_at: None,
    }))
}

fn question(req: &mut Request, target: &PassTarget, ask: &Ask) -> Option<Question> {
    let location = Arc::clone(&req.location);
    let cache = zones::of_location(&location, target.protocol)?;
    let peers = Arc::clone(cache.peers.as_ref()?);
    let zone = cache.zone_for(req).ok()??.into_arc();
    let node = req
        .worker()
        .shared
        .guests
        .of::<Fleets>()
        .of_zone(&zone.name)?;
    // All slices are one entry.
    let slice_range = req.slice_range.take();
    let text = pass::key(req, target);
    req.slice_range = slice_range;
    let text = text.ok()?;
    // INVARIANTS 1 and 2.
    let position = zone.purges.position_to_ask(&text, now_ms())?;
    let key = owner::key_of_extent(
        zone.name.as_bytes(),
        &text,
        ask.extent.map_or(0, ExtentNumber::get),
    );
    let owner = node.peers().owner(key, peers.rule.choice(), now_ms());
    let Owner::Peer { name, address } = owner else {
        return None;
    };
    let asked = Asked {
        zone: zone.name.clone().into_bytes(),
        key: field::digest(&text),
        position,
        from: node.conf().log.node.clone().into_bytes(),
        extent: ask.extent.map(ExtentNumber::get),
        gone: gone(&zone, &text, ask),
    };
    let host = host(req);
    let target = Target {
        method: b"GET",
        host: &host,
        uri: req.unparsed_uri(),
    };
    let now_s = clock::now_ms().div_euclid(1000);
    let field = asked.sign(node.peers().secret()?, &target, now_s)?;
    Some(Question {
        peers,
        name,
        address,
        position,
        field,
        key,
        node,
        encryption: None,
    })
}

/// Digest of the version that was found to be gone, where a head is asked for.
fn gone(zone: &CacheZone, text: &[u8], ask: &Ask) -> Option<[u8; field::DIGEST_LEN]> {
    if ask.extent.is_none() || ask.if_range.is_some() {
        return None;
    }
    let mark = zone.mark(&zone.keys().of(text), text);
    let validator = zone.slices.gone().of(&mark)?;
    Some(field::digest(&validator))
}

/// The authority that the client named.
pub(super) fn host(req: &Request) -> Bytes {
    match req.field(Known::Host) {
        Some(host) => Bytes::copy_from_slice(host),
        None => match req.host_port {
            Some(port) => [&req.host, &b":"[..], port.to_string().as_bytes()]
                .concat()
                .into(),
            None => req.host.clone(),
        },
    }
}

/// Talks to the owner; none if it gives no sign of life.
async fn talk(
    req: &mut Request,
    target: &PassTarget,
    (question, ask): (&Question, &Ask),
) -> Option<Result<Box<Fetched>, Failure>> {
    let peer = Rc::new(PeerAsk {
        field: question.field.clone(),
        encryption: question.encryption.clone(),
        encode,
        is_alive: Cell::new(false),
    });
    let ask = Ask {
        peer: Some(Rc::clone(&peer)),
        ..ask.clone()
    };
    let group = req
        .worker()
        .shared
        .guests
        .of::<PeerGroups>()
        .of(question.address);
    // `$proxy_host` stays that of the origin.
    let noted = req.upstream.borrow().host.clone();
    let host = noted.or_else(|| target.fixed().map(|fixed| Arc::clone(&fixed.host)));
    let to = PassTarget::of_peer(Resolved {
        host: host.unwrap_or_else(|| Arc::from(group.name.as_str())),
        port: req.upstream.borrow().port,
        group,
        path: None,
        is_encrypted: false,
    });
    let begun = req.upstream.borrow().attempts.len();
    let asking = Arc::clone(&question.peers.asking);
    let location = std::mem::replace(&mut req.location, asking);
    let fetching = exchange::fetch(req, &to, &ask);
    let outcome = hedged(fetching, (&peer, question.peers.rule.hedge)).await;
    req.location = location;
    let mut trace = req.upstream.borrow_mut();
    for attempt in trace.attempts.iter_mut().skip(begun) {
        attempt.node = Some(Arc::clone(&question.name));
    }
    outcome
}

/// INVARIANT 3.
async fn hedged<T>(
    fetching: impl Future<Output = T>,
    (peer, hedge): (&PeerAsk, Duration),
) -> Option<T> {
    let mut fetching = std::pin::pin!(fetching);
    let mut over = std::pin::pin!(clock::pause(hedge));
    let mut is_over = false;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(outcome) = fetching.as_mut().poll(cx) {
            return Poll::Ready(Some(outcome));
        }
        is_over = is_over || over.as_mut().poll(cx).is_ready();
        if is_over && !peer.is_alive.get() {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await
}

fn tell(req: &Request, question: &Question, failure: &Failure) {
    let (why, level) = match failure {
        // It is not going to be better by itself.
        Failure::Upstream(failure) if failure.error == ProxyError::TlsCertificate => {
            (failure.message.as_str(), Level::Error)
        }
        Failure::Upstream(failure) => (failure.message.as_str(), Level::Info),
        _ => ("the exchange failed", Level::Info),
    };
    let name = &question.name;
    let message = format_args!("node \"{name}\", which owns the key, was not reached: {why}");
    request_error::write(req, level, message);
}

/// Encodes a request to a peer: the client's own, with the field.
fn encode(req: &Request, peer: &PeerAsk, ask: &Ask) -> Prepared {
    let worker = Rc::clone(req.worker());
    let head = worker.upstream_heads.write(|head| {
        encode::write_request_line(head, b"GET", req.unparsed_uri(), Version::Http11);
        encode::write_known(head, Known::Host, &host(req));
        encode::write_field(head, NAME.as_bytes(), &peer.field);
        for (known, value) in [
            (Known::IfModifiedSince, &ask.if_modified_since),
            (Known::IfNoneMatch, &ask.if_none_match),
        ] {
            if let Some(value) = value {
                encode::write_known(head, known, value);
            }
        }
        for (known, value) in ask.range_fields() {
            encode::write_known(head, known, value);
        }
        for it in req.head.fields() {
            let is_left_out = is_hop_by_hop(it.known)
                || is_condition(it.known)
                || it.name.eq_ignore_ascii_case(NAME.as_bytes());
            if !is_left_out {
                encode::write_read_field(head, it.name, it.value);
            }
        }
        encode::end_head(head);
    });
    Prepared {
        head,
        body: OutBody::None,
        framing: OutFraming::Plain,
        method: Method::Get,
        encryption: None,
    }
}
