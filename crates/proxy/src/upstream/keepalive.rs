//! `keepalive`, `keepalive_requests`, `keepalive_time`, `keepalive_timeout` of an upstream: idle
//! connections.
//!
//! Each worker keeps its own, most recently used first. A connection that the peer has closed, or
//! on which it has said something unasked, is dropped when it would be used, and within a second
//! when nobody uses it ([`tend`]); so is one that is idle for too long.
//!
//! Invariants:
//! 1. A worker keeps at most `connections` idle ones of a group; the least recently used goes
//!    first.
//! 2. What is not sent again when its connection turns out dead goes out on one of which the kernel
//!    said just now that it lives. The rest costs no call: what the event loop knows will do.
//! 3. A reload closes all that are idle then; one whose request ends later is closed when it has
//!    been idle for too long, like any other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hashbrown::HashMap;
use millpond_conf::Statement;
use millpond_conf::value::parse_duration;
use tokio::sync::Notify;

use super::connect::{Connection, Source};
use super::group::Group;
use super::peer::Peer;
use crate::clock::{self, Instant};
use crate::scope::Location;
use crate::worker::Worker;

/// How often idle connections are looked at: so long an origin that closed one waits for our end
/// of it at most. (Arbitrary: short beside any `keepalive_timeout`, and nothing beside requests.)
const LOOK: Duration = Duration::from_secs(1);

/// Which locations may use an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Those that opened it only: its settings, such as the local address, are theirs.
    Local,
    /// All.
    All,
}

/// Limits of a group's idle connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveLimits {
    /// Idle connections that each worker keeps.
    pub connections: usize,
    /// Which locations may use a connection.
    pub sharing: Sharing,
    /// Requests of one connection.
    pub requests: u32,
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
        let number = || value.text.parse::<u32>().map_err(|_| invalid());
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
            "keepalive_time" => self.time = time()?,
            "keepalive_timeout" => self.timeout = time()?,
            _ => return Err(format!("unknown directive \"{name}\"")),
        }
        Ok(())
    }
}

/// How it is found out whether an idle connection is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The event loop has heard nothing of it.
    Quiet,
    /// The kernel is asked.
    Asked,
}

/// Idle connections of one worker.
#[derive(Default)]
pub struct IdlePeers {
    groups: RefCell<HashMap<usize, VecDeque<Idle>>>,
    /// Tells [`tend`] that there is something again.
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
    fn is_useful(&self, now: Instant) -> bool {
        self.0
            .as_deref()
            .is_some_and(|connection| now < connection.idle_until && !connection.socket.has_heard())
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

impl IdlePeers {
    /// A live idle connection to a peer that a request of this location may use, which is to come
    /// from this address; it is `now`.
    pub fn take(
        &self,
        (group, peer): (&Arc<Group>, &Arc<Peer>),
        (location, source): (&Arc<Location>, Option<Source>),
        proof: Proof,
        now: Instant,
    ) -> Option<Box<Connection>> {
        let is_usable = |connection: &Connection| {
            connection.peer.address == peer.address
                && connection.source == source
                && (group.keep_alive.sharing == Sharing::All
                    || connection.location == Arc::as_ptr(location) as usize)
        };
        let mut groups = self.groups.borrow_mut();
        let idle = groups.get_mut(&id(group))?;
        let is_usable = |idle: &Idle| idle.0.as_deref().is_some_and(is_usable);
        while let Some(at) = idle.iter().position(is_usable) {
            let mut connection = idle.remove(at)?.into_connection()?;
            let is_young = now < connection.idle_until;
            let has_news = match proof {
                Proof::Quiet => connection.socket.has_heard(),
                Proof::Asked => connection.socket.has_news(),
            };
            if is_young && !has_news {
                // The same address may be another peer after its name was resolved again.
                connection.peer = Arc::clone(peer);
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection that may serve another request; it is `now`.
    pub fn put(&self, mut connection: Box<Connection>, now: Instant) {
        let limits = connection.group.keep_alive;
        let is_spent = connection.requests >= limits.requests || now >= connection.young_until;
        if limits.connections == 0 || is_spent {
            return;
        }
        connection.idle_until = end_of(now, limits.timeout);
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
        self.groups.borrow_mut().clear();
    }

    /// Closes those that nobody can use any more; true while there are others.
    fn sift(&self, now: Instant) -> bool {
        let mut groups = self.groups.borrow_mut();
        groups.retain(|_, idle| {
            idle.retain(|idle| idle.is_useful(now));
            !idle.is_empty()
        });
        !groups.is_empty()
    }
}

/// Closes the idle connections of a worker that nobody can use any more, for as long as it runs.
pub async fn tend(worker: Rc<Worker>) {
    loop {
        worker.idle_peers.filled.notified().await;
        clock::pause(LOOK).await;
        while worker.idle_peers.sift(clock::instant()) {
            clock::pause(LOOK).await;
        }
    }
}

/// When a time that begins now is over; a time that no clock reaches ends in a year.
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
    use super::*;
    use crate::clock;

    #[test]
    fn a_time_that_no_clock_reaches_has_an_end() {
        let now = clock::instant();
        let second = Duration::from_secs(1);
        assert_eq!(end_of(now, second), now + second);
        assert!(end_of(now, Duration::MAX) > now + second);
    }
}
