//! `keepalive`, `keepalive_requests`, `keepalive_streams`, `keepalive_time`, `keepalive_timeout` of
//! an upstream: idle connections.
//!
//! Each worker keeps its own, most recently used first. A connection that the peer has closed, or
//! on which it has said something unasked, is dropped when it would be used, and within a second
//! when nobody uses it ([`tend`]); so is one that is idle for too long.
//!
//! What a peer says unasked would be read as the answer to the next request, which may be
//! anybody's. So the kernel is asked just before a request goes out, not only the event loop: what
//! came since the loop was last asked, often while another request's answer was being sent, is
//! known to the kernel alone. That is one call, `recv` with `MSG_PEEK`, for each request on a kept
//! connection. Of what is still on its way then nobody can know that it is no answer; so a peer
//! that was found to speak unasked has none of its connections used twice for a minute.
//!
//! Invariants:
//! 1. A worker keeps at most `connections` idle ones of a group; the least recently used goes
//!    first.
//! 2. A request goes out on a kept connection only if the kernel said just now that it lives and
//!    that nothing came on it.
//! 3. A reload closes all that are idle then; one whose request ends later is closed when it has
//!    been idle for too long, like any other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::BytesMut;
use hashbrown::HashMap;
use millpond_conf::Statement;
use millpond_conf::value::parse_duration;
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::{self, Level};
use millpond_system::transport::Transport;
use tokio::sync::Notify;

use super::connect::{Connection, Way};
use super::group::Group;
use super::http2::line::Line;
use super::http2::lines::Lines;
use super::http2::session::{self, Session};
use super::peer::Peer;
use super::send::HEAD_READ;
use millpond_exchange::settings::Location;
use millpond_exchange::worker::Worker;
use millpond_exchange::worker::parts::Kept;
use millpond_exchange::worker::parts::Part;
use millpond_exchange::worker::parts::Place;

/// Time between two looks at idle connections: so long an origin that closed one waits for our end
/// of it at most. (Arbitrary: short beside any `keepalive_timeout`, and nothing beside requests.)
const LOOK: Duration = Duration::from_secs(1);

/// Bytes that an idle connection keeps to receive into: those of a head. What a long body came in
/// goes back.
const INBOX_MAX: usize = HEAD_READ;

/// Scope of the locations that may use an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Only the location that opened the connection, which has settings of that location, such as
    /// the local address.
    Local,
    /// All.
    All,
}

/// Limits of a group's idle connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveLimits {
    /// Idle connections that each worker keeps.
    pub connections: usize,
    /// Scope of the locations that may use a connection.
    pub sharing: Sharing,
    /// Requests of one connection.
    pub requests: u32,
    /// Requests that a connection of HTTP/2 carries at once.
    pub streams: u32,
    /// Age of a connection.
    pub time: Duration,
    /// Idle time.
    pub timeout: Duration,
}

/// nginx 1.31: 32 connections for each worker and upstream, unless the block says otherwise.
impl Default for KeepAliveLimits {
    fn default() -> Self {
        KeepAliveLimits {
            connections: 32,
            sharing: Sharing::Local,
            requests: 1000,
            streams: 1,
            time: Duration::from_secs(3600),
            timeout: Duration::from_secs(60),
        }
    }
}

impl KeepAliveLimits {
    /// Reads one of the `keepalive…` lines.
    pub fn apply(&mut self, line: &Statement) -> Result<(), String> {
        let name = line.name.text.as_str();
        let count = format!("invalid number of arguments in \"{name}\" directive");
        let (value, more) = line.args.split_first().ok_or_else(|| count.clone())?;
        let takes_more = name == "keepalive" && matches!(more, [word] if word.text == "local");
        if !more.is_empty() && !takes_more {
            return Err(count);
        }
        let invalid = || format!("invalid value \"{}\" in \"{name}\" directive", value.text);
        // nginx: numbers have 63 bits.
        let number = || match value.text.parse::<u64>() {
            Ok(number) if i64::try_from(number).is_ok() && !value.text.starts_with('+') => {
                Ok(u32::try_from(number).unwrap_or(u32::MAX))
            }
            _ => Err(invalid()),
        };
        let time = || parse_duration(&value.text).ok_or_else(invalid);
        match name {
            "keepalive" => {
                self.connections = number()? as usize;
                self.sharing = if takes_more {
                    Sharing::Local
                } else {
                    Sharing::All
                };
            }
            "keepalive_requests" => self.requests = number()?,
            "keepalive_streams" => self.streams = streams(&value.text).ok_or_else(invalid)?,
            "keepalive_time" => self.time = time()?,
            "keepalive_timeout" => self.timeout = time()?,
            _ => return Err(format!("unknown directive \"{name}\"")),
        }
        Ok(())
    }
}

/// Most requests that a connection may be let carry at once (arbitrary: each may hold 256 KiB).
const STREAMS_MOST: u32 = 1024;

fn streams(text: &str) -> Option<u32> {
    let streams = text.parse().ok()?;
    (1..=STREAMS_MOST).contains(&streams).then_some(streams)
}

/// Idle connections of one worker, and those that several requests share.
#[derive(Default)]
pub struct IdlePeers {
    /// Connections that several requests share, idle or not.
    pub(super) lines: Lines,
    groups: RefCell<HashMap<usize, VecDeque<Idle>>>,
    /// Signal to [`tend`] that there is an idle connection again.
    filled: Notify,
}

/// A connection that counts among the idle ones of its group for as long as it is here.
struct Idle(Option<Box<Connection>>);

impl Idle {
    fn new(connection: Box<Connection>) -> Idle {
        connection.group.idle.fetch_add(1, Relaxed);
        Idle(Some(connection))
    }

    /// True while somebody may use it.
    fn is_useful(&mut self, now: Instant) -> bool {
        let Some(connection) = self.0.as_deref_mut() else {
            return false;
        };
        let has_heard = connection.socket.has_heard();
        if connection.http2.is_some() {
            return now < connection.idle_until && (!has_heard || session::hear(connection));
        }
        if has_heard && matches!(news(&connection.socket), News::Unasked) {
            note_unasked(connection, now);
        }
        now < connection.idle_until && !has_heard
    }

    fn into_connection(mut self) -> Option<Box<Connection>> {
        let connection = self.0.take()?;
        connection.group.idle.fetch_sub(1, Relaxed);
        Some(connection)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.group.idle.fetch_sub(1, Relaxed);
        }
    }
}

impl Kept for IdlePeers {
    fn make_room(&self) -> bool {
        self.close_oldest()
    }
}

impl Part for IdlePeers {
    const PLACE: Place = Place::Peers;
}

impl IdlePeers {
    /// A live idle connection to a peer that a request of this location may use, which is to come
    /// from this address; it is `now`.
    pub fn take(
        &self,
        (group, peer): (&Arc<Group>, &Arc<Peer>),
        (location, way): (&Arc<Location>, Way<'_>),
        now: Instant,
    ) -> Option<Box<Connection>> {
        let is_usable = |connection: &Connection| {
            connection.peer.address == peer.address
                && connection.source == way.source
                && connection.encryption.as_ref() == way.encryption
                && connection.http2.is_some() == way.is_http2
                && (group.keep_alive.sharing == Sharing::All
                    || connection.location == Arc::as_ptr(location) as usize)
        };
        let mut groups = self.groups.borrow_mut();
        let idle = groups.get_mut(&id(group))?;
        let mut connection = take_live(idle, is_usable, now)?;
        // After its name was resolved again, the same address may be another peer.
        connection.peer = Arc::clone(peer);
        Some(connection)
    }

    /// Keeps a connection that may serve another request; it is `now`.
    pub fn put(&self, mut connection: Box<Connection>, now: Instant) {
        let limits = connection.group.keep_alive;
        let is_spent = connection.requests >= limits.requests
            || now >= connection.young_until
            || !connection.peer.is_trusted(now);
        // nginx: a host that no block declares has no idle connections of HTTP/2.
        let is_passing = connection.http2.is_some() && connection.group.is_implicit;
        // Who has a certificate for each request wants it to be looked at, unless told otherwise.
        let by = connection.encryption.as_ref();
        let is_single = by.is_some_and(|by| by.certificate.is_some());
        let is_for_one = is_single && limits.sharing == Sharing::Local;
        if limits.connections == 0 || is_spent || is_passing || is_for_one {
            return;
        }
        connection.idle_until = end_of(now, limits.timeout);
        if let Some(session) = &mut connection.http2 {
            session.rest();
        }
        if connection.inbox.capacity() > INBOX_MAX {
            connection.inbox = BytesMut::new();
        }
        let mut groups = self.groups.borrow_mut();
        if groups.is_empty() {
            self.filled.notify_one();
        }
        let idle = groups.entry(id(&connection.group)).or_default();
        idle.push_front(Idle::new(connection));
        idle.truncate(limits.connections);
    }

    /// Closes all idle connections, when the worker ends or its configuration goes.
    pub fn clear(&self) {
        self.lines.clear();
        self.groups.borrow_mut().clear();
    }

    /// Closes the one of each group that was not used for the longest; false if there is none.
    pub fn close_oldest(&self) -> bool {
        let mut groups = self.groups.borrow_mut();
        let closed = groups.values_mut().filter_map(VecDeque::pop_back).count();
        groups.retain(|_, idle| !idle.is_empty());
        self.lines.close_oldest() || closed > 0
    }

    /// Closes idle ones that several requests shared, if there are too many beside this one.
    /// INVARIANT 1.
    pub(super) fn trim_lines(&self, line: &Line) {
        if line.may_be_closed() {
            let group = line.group();
            let others = self
                .groups
                .borrow()
                .get(&id(group))
                .map_or(0, VecDeque::len);
            self.lines.trim(group, others);
        }
    }

    /// Closes those that nobody can use any more; true while there are others.
    fn sift(&self, now: Instant) -> bool {
        let mut groups = self.groups.borrow_mut();
        groups.retain(|_, idle| {
            idle.retain_mut(|idle| idle.is_useful(now));
            !idle.is_empty()
        });
        !groups.is_empty()
    }
}

/// The first usable one that lives; those before it that do not are closed. It is `now`.
fn take_live(
    idle: &mut VecDeque<Idle>,
    is_usable: impl Fn(&Connection) -> bool,
    now: Instant,
) -> Option<Box<Connection>> {
    let is_usable = |idle: &Idle| idle.0.as_deref().is_some_and(&is_usable);
    while let Some(at) = idle.iter().position(is_usable) {
        let mut connection = idle.remove(at)?.into_connection()?;
        let is_over = |session: &Session| !session.may_carry_another();
        if now >= connection.idle_until || connection.http2.as_deref().is_some_and(is_over) {
            continue;
        }
        // INVARIANT 2.
        match news(&connection.socket) {
            News::None if connection.peer.is_trusted(now) => return Some(connection),
            // Frames name their streams: none is an answer to what is asked next.
            News::Unasked if connection.http2.is_some() => {
                if session::hear(&mut connection) {
                    return Some(connection);
                }
            }
            News::None | News::End => {}
            News::Unasked => note_unasked(&connection, now),
        }
    }
    None
}

/// News of the kernel about an idle connection.
pub(super) enum News {
    /// Nothing, and the peer is there.
    None,
    /// The end, or what comes right before it.
    End,
    /// Bytes.
    Unasked,
}

pub(super) fn news(socket: &Transport) -> News {
    let mut begin = [0; b"HTTP/1.1 408".len()];
    match socket.peek(&mut begin) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => News::None,
        Err(_) | Ok([]) => News::End,
        // RFC 9110 §15.5.9: a server may say so before it closes an idle connection.
        Ok(b"HTTP/1.1 408" | b"HTTP/1.0 408") => News::End,
        Ok(_) => News::Unasked,
    }
}

/// A peer said something on this connection that it was not asked.
pub(super) fn note_unasked(connection: &Connection, now: Instant) {
    if connection.peer.spoke_unasked(now) {
        let name = &connection.peer.name;
        let message = format_args!(
            "upstream {name} sent data that was not asked for on a kept connection; none of its \
             connections is used twice for a minute"
        );
        error::process(Level::Error, message);
    }
}

/// Closes all idle connections of a worker.
pub fn clear(worker: &Worker) {
    worker.of::<IdlePeers>().clear();
}

/// Closes the idle connections of a worker that nobody can use any more, for as long as it runs.
pub async fn tend(worker: Rc<Worker>) {
    let peers = worker.of::<IdlePeers>();
    loop {
        peers.filled.notified().await;
        clock::pause(LOOK).await;
        while peers.sift(clock::instant()) {
            clock::pause(LOOK).await;
        }
    }
}

/// End of a time that begins now; a time that no clock reaches ends in a year.
pub(super) fn end_of(now: Instant, time: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    now.checked_add(time).unwrap_or(now + YEAR)
}

/// A group is itself only while somebody holds it; its connections do.
fn id(group: &Arc<Group>) -> usize {
    Arc::as_ptr(group) as usize
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::super::balance::Method;
    use super::super::peer::PeerSettings;
    use super::*;
    use millpond_system::address::Address;
    use millpond_system::timer::Timer;

    fn peer() -> Arc<Peer> {
        let address = Address::Unix("p".into());
        Arc::new(Peer::new(address, PeerSettings::new("p"), None))
    }

    /// An idle connection to a peer, and its other end.
    fn idle(now: Instant, peer: &Arc<Peer>) -> (Idle, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let group = Group::new("g".to_string(), Vec::new(), Method::RoundRobin);
        let connection = Connection {
            socket: Transport::Plain(millpond_system::socket::Socket::new(ours.into()).unwrap()),
            inbox: BytesMut::new(),
            timer: Timer::new(),
            group: Arc::new(group),
            peer: Arc::clone(peer),
            source: None,
            location: 0,
            seat: None,
            encryption: None,
            http2: None,
            requests: 1,
            young_until: end_of(now, Duration::MAX),
            idle_until: end_of(now, Duration::MAX),
        };
        (Idle::new(Box::new(connection)), theirs)
    }

    /// The event loop does not run between what the peer does and the look at it.
    #[tokio::test]
    async fn connection_on_which_something_came_unheard_is_not_taken() {
        let now = clock::instant();
        let (silent, _other_end) = idle(now, &peer());
        let (mut talking, closed) = (idle(now, &peer()), idle(now, &peer()));
        talking.1.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        drop(closed.1);
        let fd = silent.0.as_ref().unwrap().socket.raw();
        let mut all = VecDeque::from([talking.0, closed.0, silent]);
        let taken = take_live(&mut all, |_| true, now).unwrap();
        assert_eq!(taken.socket.raw(), fd);
        assert!(all.is_empty());
    }

    #[tokio::test]
    async fn peer_that_spoke_unasked_is_asked_on_new_connections_for_a_minute() {
        let now = clock::instant();
        // The peer was made after `now`.
        let later = now + Duration::from_secs(61);
        for (said, is_trusted) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], false),
            (b"x", false),
            // An origin that closes an idle connection.
            (b"HTTP/1.1 408 Request Timeout\r\n", true),
            (b"", true),
        ] {
            let peer = peer();
            let (mut talking, silent) = (idle(now, &peer), idle(now, &peer));
            talking.1.write_all(said).unwrap();
            drop(talking.1);
            let mut all = VecDeque::from([talking.0, silent.0]);
            let taken = take_live(&mut all, |_| true, now);
            assert_eq!(taken.is_some(), is_trusted, "{said:?}");
            assert_eq!(peer.is_trusted(now), is_trusted, "{said:?}");
            assert!(peer.is_trusted(later));
            let peers = IdlePeers::default();
            peers.put(idle(now, &peer).0.into_connection().unwrap(), now);
            assert_eq!(peers.groups.borrow().len(), usize::from(is_trusted));
        }
    }

    /// A frame about a connection as a whole.
    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let head = [0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 0];
        [&head, payload].concat()
    }

    /// RFC 9113 §6.7, §6.8: frames have numbers, so that none is taken for an answer.
    #[tokio::test]
    async fn idle_peer_of_http2_may_speak_until_it_goes_away() {
        let now = clock::instant();
        let settings = frame(4, &[]);
        let ping = [settings.clone(), frame(6, &[7; 8])].concat();
        let farewell = [settings.clone(), frame(7, &[0; 8])].concat();
        let nonsense = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        for (said, is_useful) in [
            (settings, true),
            (ping, true),
            (farewell, false),
            (nonsense, false),
        ] {
            let peer = peer();
            let (mut idle, mut theirs) = idle(now, &peer);
            let connection = idle.0.as_mut().unwrap();
            connection.http2 = Some(Box::default());
            theirs.write_all(&said).unwrap();
            std::future::poll_fn(|cx| connection.socket.poll_readable(cx))
                .await
                .unwrap();
            assert_eq!(idle.is_useful(now), is_useful, "{said:?}");
            assert!(peer.is_trusted(now));
            let mut all = VecDeque::from([idle]);
            let taken = take_live(&mut all, |_| true, now);
            assert_eq!(taken.is_some(), is_useful, "{said:?}");
        }
    }

    #[test]
    fn a_time_that_no_clock_reaches_has_an_end() {
        let now = clock::instant();
        let second = Duration::from_secs(1);
        assert_eq!(end_of(now, second), now + second);
        assert!(end_of(now, Duration::MAX) > now + second);
    }

    #[tokio::test]
    async fn the_one_that_was_not_used_for_the_longest_makes_room_in_each_group() {
        let now = clock::instant();
        let peer = peer();
        let peers = IdlePeers::default();
        let mut others = Vec::new();
        let mut put = |group: Option<&Arc<Group>>| {
            let (idle, other) = idle(now, &peer);
            let mut connection = idle.into_connection().unwrap();
            if let Some(group) = group {
                connection.group = Arc::clone(group);
            }
            let group = Arc::clone(&connection.group);
            let descriptor = connection.socket.raw();
            peers.put(connection, now);
            others.push(other);
            (group, descriptor)
        };
        let (group, _) = put(None);
        let (_, newest) = put(Some(&group));
        let (alone, _) = put(None);
        assert!(peers.close_oldest());
        assert_eq!((group.idle.load(Relaxed), alone.idle.load(Relaxed)), (1, 0));
        let left = |peers: &IdlePeers| -> Vec<_> {
            let groups = peers.groups.borrow();
            let idle = groups.values().flatten();
            let left = idle.filter_map(|idle| idle.0.as_deref());
            left.map(|it| it.socket.raw()).collect()
        };
        assert_eq!(left(&peers), [newest]);
        assert!(peers.close_oldest());
        assert!(!peers.close_oldest());
    }
}
