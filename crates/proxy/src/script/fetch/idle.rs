//! Idle connections of scripts to other servers.
//!
//! 1. A location keeps at most `js_fetch_keepalive` of them on a worker; the oldest goes first.
//! 2. One on which something was heard, or whose time is over, carries nothing any more.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use millpond_exchange::worker::Worker;
use millpond_exchange::worker::parts::{Kept, Part, Place};
use millpond_system::clock::{self, Instant};

use super::client::Link;
use crate::tls::origins::Origin;

/// The time between two looks at idle connections (arbitrary: as at those of upstreams).
const LOOK: Duration = Duration::from_secs(1);

/// The place that a connection leads to, and who may use it.
pub(super) struct Key {
    /// The location that opened it. A number: it is compared only.
    pub(super) location: usize,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) origin: Option<Arc<Origin>>,
}

impl Key {
    fn is_of(&self, other: &Key) -> bool {
        let is_same_origin = match (&self.origin, &other.origin) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, None) => true,
            _ => false,
        };
        is_same_origin
            && (self.location, self.port) == (other.location, other.port)
            && self.host == other.host
    }
}

struct Idle {
    key: Key,
    link: Link,
    until: Instant,
}

impl Idle {
    fn is_useful(&self, now: Instant) -> bool {
        now < self.until && !self.link.transport.has_heard()
    }
}

/// The idle connections of a worker, the oldest first.
#[derive(Default)]
pub struct IdleFetches {
    links: RefCell<Vec<Idle>>,
    is_tended: Cell<bool>,
}

impl Kept for IdleFetches {
    fn make_room(&self) -> bool {
        let mut links = self.links.borrow_mut();
        if links.is_empty() {
            return false;
        }
        drop(links.remove(0));
        true
    }
}

impl Part for IdleFetches {
    const PLACE: Place = Place::Fetches;
}

impl IdleFetches {
    /// The connection to a place that was used last.
    pub(super) fn take(&self, key: &Key) -> Option<Link> {
        let now = clock::instant();
        let mut links = self.links.borrow_mut();
        links.retain(|idle| idle.is_useful(now));
        let place = links.iter().rposition(|idle| idle.key.is_of(key))?;
        Some(links.remove(place).link)
    }

    /// Keeps a connection.
    pub(super) fn put(
        &self,
        worker: &Rc<Worker>,
        (key, most): (&Key, u32),
        (link, until): (Link, Instant),
    ) {
        let mut links = self.links.borrow_mut();
        let is_own = |idle: &&Idle| idle.key.location == key.location;
        if links.iter().filter(is_own).count() >= most as usize
            && let Some(oldest) = links.iter().position(|idle| is_own(&idle))
        {
            drop(links.remove(oldest));
        }
        let key = Key {
            host: key.host.clone(),
            origin: key.origin.clone(),
            ..*key
        };
        links.push(Idle { key, link, until });
        drop(links);
        if !self.is_tended.replace(true) {
            let worker = Rc::downgrade(worker);
            tokio::task::spawn_local(async move {
                loop {
                    clock::pause(LOOK).await;
                    let Some(worker) = worker.upgrade() else {
                        return;
                    };
                    if !worker.of::<IdleFetches>().look() {
                        return;
                    }
                }
            });
        }
    }

    /// Closes what is of no use; false once nothing is left.
    fn look(&self) -> bool {
        let now = clock::instant();
        let mut links = self.links.borrow_mut();
        links.retain(|idle| idle.is_useful(now));
        self.is_tended.set(!links.is_empty());
        !links.is_empty()
    }
}
