//! `worker_connections`: how many connections a worker has, to clients and to upstreams.
//!
//! ```text
//! accepted, opened ──room?──► Seat ──dropped with its connection──► free
//!                      │ no: the longest idle are closed, and it is asked again
//!                      └ still no: refused; or waits, if it is descriptors that lack
//! ```
//!
//! Each worker has as many as the directive says, or its share of the descriptors that the process
//! may have if those are fewer: what caches, logs and files need is kept back. Of these a part is
//! for upstreams only, so that a request that is there can be answered, and a part for clients
//! only, so that fills do not take all. Since an upstream has a part of its own, a request that is
//! there gets its connection some time, and clients that wait for a place get one.
//!
//! Who goes first is decided by [`order`]: clients that wait for nothing of ours, the longest idle
//! first; then those that have sent a part of a head. Connections to upstreams that are kept for
//! later go between the two (`Worker::close_idle`).
//!
//! Invariants:
//! 1. A worker never has more connections than [`Quota::most`].
//! 2. A connection whose request is being answered is not closed.
//! 3. The registry is looked through only when there is a shortage: a request costs two notes of
//!    what its connection waits for.
//!
//! Sources: nginx ngx_get_connection, ngx_drain_connections, ngx_reusable_connection;
//! ngx_event_accept (EMFILE leaves clients in the queue).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{self, Instant};
use crate::log::error::{self, Level};

/// The fewest connections of a worker: below this, a part for each side would be all.
const LEAST: usize = 4;
/// One in so many is for upstreams only (arbitrarily; nginx keeps none back).
const UPSTREAM_SHARE: usize = 8;
/// One in so many is for clients only (arbitrarily).
const CLIENT_SHARE: usize = 4;
/// nginx: idle connections are closed once no more than one in so many is free.
const TIGHT_SHARE: usize = 16;
/// nginx: at once, one in so many of the idle ones is closed, …
const CLOSED_SHARE: usize = 8;
/// … and at most so many.
const CLOSED_MOST: usize = 32;
/// nginx: a shortage is told of once a second.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Number of times that room is made for one connection before it is refused: those that are closed
/// may turn out to have a request by then.
pub const ROUNDS: u32 = 4;
/// Longest wait for a place before idle connections are looked for again (arbitrarily).
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Age of an idle connection below which its request may be on its way (arbitrarily). It is closed
/// all the same where others would be refused instead of waiting.
const FRESH: Duration = Duration::from_millis(100);

/// Settings of the number of connections.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(events)]
pub struct ConnectionPolicy {
    /// The largest number of connections of a worker thread, those to upstreams among them. Near
    /// the limit idle connections of clients are closed, the longest idle first, then idle ones to
    /// upstreams, then those whose client has sent a part of a request's head; what is being
    /// answered is not closed. The same is done when the process has no descriptor left. When there
    /// is nothing to close, a new client is closed at once, and a request that needs an upstream is
    /// answered with 500. Where it is descriptors that are too few, clients wait in the queue of
    /// the listening socket, and requests for up to `proxy_connect_timeout`.
    ///
    /// # Differs from nginx
    ///
    /// Listening sockets do not count. An eighth of the number is for upstreams only, and a quarter
    /// for clients only. A worker has no more than its share of the open files that the process may
    /// have (`worker_rlimit_nofile`), less a quarter for segments of caches and what is set aside
    /// for logs and disks. Less than 4 is 4.
    #[directive(name = "worker_connections", default = "512")]
    pub connections: u32,
}

/// Side of the server on which a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A client's.
    Client,
    /// One to an upstream.
    Upstream,
}

/// Event that a client's connection waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// A request, or the end of the connection.
    Idle(Instant),
    /// The rest of a head.
    Head(Instant),
    /// An answer.
    #[default]
    Answer,
}

impl Waiting {
    /// True if a client has waited for less than since an instant.
    fn is_since(self, instant: Instant) -> bool {
        match self {
            Waiting::Idle(at) | Waiting::Head(at) => at > instant,
            Waiting::Answer => false,
        }
    }
}

/// The connections of one worker.
#[derive(Debug)]
pub struct Quota {
    most: Cell<usize>,
    /// True if more are configured than the descriptors of the process allow.
    is_cut: Cell<bool>,
    /// Wakes who waits for a place.
    freed: Notify,
    clients: Cell<usize>,
    upstreams: Cell<usize>,
    told: Cell<Option<Instant>>,
}

/// A connection that counts for as long as it lives.
#[derive(Debug)]
pub struct Seat {
    quota: Rc<Quota>,
    side: Side,
}

impl Default for Quota {
    /// No limit: none was said yet.
    fn default() -> Self {
        Quota {
            most: Cell::new(usize::MAX),
            is_cut: Cell::default(),
            freed: Notify::new(),
            clients: Cell::default(),
            upstreams: Cell::default(),
            told: Cell::default(),
        }
    }
}

impl Quota {
    /// Sets how many connections there may be, of those that are configured. Those that are there
    /// stay.
    pub fn set_most(&self, most: usize, configured: usize) {
        self.most.set(most.max(LEAST));
        self.is_cut.set(most < configured);
    }

    /// True if more connections are configured than the process has descriptors for: who finds no
    /// place waits for one.
    pub fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// The instant since which an idle connection is spared, where others wait for a place.
    pub fn fresh(&self) -> Option<Instant> {
        let since = self
            .is_cut
            .get()
            .then(|| clock::instant().checked_sub(FRESH));
        since.flatten()
    }

    /// Waits until a connection has ended, or until it is time to look for idle ones again.
    pub async fn freed(&self) {
        clock::within(LOOK_EVERY, self.freed.notified()).await;
    }

    /// Number of connections that there may be.
    pub fn most(&self) -> usize {
        self.most.get()
    }

    /// A place for one more connection, if there is one.
    pub fn take(self: &Rc<Self>, side: Side) -> Option<Seat> {
        let most = self.most.get();
        let (count, kept_back) = match side {
            Side::Client => (&self.clients, (most / UPSTREAM_SHARE).max(1)),
            Side::Upstream => (&self.upstreams, (most / CLIENT_SHARE).max(1)),
        };
        let open = self.clients.get() + self.upstreams.get();
        if open >= most || count.get() >= most - kept_back {
            return None;
        }
        count.set(count.get() + 1);
        Some(Seat {
            quota: Rc::clone(self),
            side,
        })
    }

    /// True when so little is free that idle connections are to be closed.
    pub fn is_tight(&self) -> bool {
        let most = self.most.get();
        let open = self.clients.get() + self.upstreams.get();
        let of_all = most.saturating_sub(open);
        let of_clients = (most - (most / UPSTREAM_SHARE).max(1)).saturating_sub(self.clients.get());
        of_all.min(of_clients) <= most / TIGHT_SHARE
    }

    /// Says that connections wait for a descriptor, unless something was just said.
    pub fn tell_of_waiting(&self, now: Instant) {
        if self.is_time_to_tell(now) {
            let most = self.most.get();
            let message =
                format_args!("too few open files for more than {most} connections, others wait");
            error::process(Level::Alert, message);
        }
    }

    fn is_time_to_tell(&self, now: Instant) -> bool {
        let is_due = self.told.get().is_none_or(|at| now >= at + TELL_EVERY);
        if is_due {
            self.told.set(Some(now));
        }
        is_due
    }

    /// Says that idle connections are closed, unless that was just said.
    pub fn tell(&self, why: Shortage, now: Instant) {
        if !self.is_time_to_tell(now) {
            return;
        }
        let message = match why {
            Shortage::Connections => {
                let most = self.most.get();
                format!("{most} worker_connections are not enough, reusing connections")
            }
            Shortage::Descriptors => "too few open files, reusing connections".to_string(),
        };
        error::process(Level::Warn, format_args!("{message}"));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let count = match self.side {
            Side::Client => &self.quota.clients,
            Side::Upstream => &self.quota.upstreams,
        };
        count.set(count.get().saturating_sub(1));
        // Nobody waits where the configured number is allowed.
        if self.quota.is_cut.get() {
            self.quota.freed.notify_waiters();
        }
    }
}

/// Resource that there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// `worker_connections`.
    Connections,
    /// Descriptors of the process, or of the machine.
    Descriptors,
}

/// Connections that are closed together, in the order in which they go: a part of those that are
/// idle and not `fresh`, or else of those that send a head.
pub fn order<T>(mut waiting: Vec<(Waiting, T)>, fresh: Option<Instant>) -> Vec<T> {
    if let Some(fresh) = fresh {
        waiting.retain(|(waiting, _)| !waiting.is_since(fresh));
    }
    waiting.sort_by_key(|(waiting, _)| *waiting);
    let idle = waiting.partition_point(|(it, _)| matches!(it, Waiting::Idle(_)));
    let closable = waiting.partition_point(|(it, _)| *it < Waiting::Answer);
    let of = if idle > 0 { idle } else { closable };
    let count = (of / CLOSED_SHARE).clamp(1, CLOSED_MOST).min(of);
    waiting.truncate(count);
    waiting.into_iter().map(|(_, which)| which).collect()
}

/// Number of connections that each of so many workers may have: what is wanted, or its share of the
/// descriptors that are for connections.
pub fn share(wanted: u32, workers: usize, descriptors: Option<u64>) -> usize {
    let wanted = wanted as usize;
    let Some(descriptors) = descriptors else {
        return wanted;
    };
    let each = descriptors / workers.max(1) as u64;
    wanted.min(usize::try_from(each).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn taken(quota: &Rc<Quota>, side: Side) -> Vec<Seat> {
        std::iter::from_fn(|| quota.take(side)).collect()
    }

    #[test]
    fn each_side_leaves_some_to_the_other() {
        // The limit, and how many clients and upstreams there are at most.
        for (most, clients, upstreams) in [(0, 3, 3), (20, 18, 15), (512, 448, 384)] {
            let quota = Rc::new(Quota::default());
            quota.set_most(most, most);
            let seats = taken(&quota, Side::Client);
            assert_eq!(seats.len(), clients, "{most}");
            let others = taken(&quota, Side::Upstream);
            assert_eq!(seats.len() + others.len(), most.max(LEAST), "{most}");
            drop((seats, others));
            let seats = taken(&quota, Side::Upstream);
            assert_eq!(seats.len(), upstreams, "{most}");
            let others = taken(&quota, Side::Client);
            assert_eq!(seats.len() + others.len(), most.max(LEAST), "{most}");
        }
    }

    #[test]
    fn a_sixteenth_is_left_when_idle_ones_begin_to_go() {
        let quota = Rc::new(Quota::default());
        assert!(!quota.is_tight());
        quota.set_most(160, 160);
        let mut seats = Vec::new();
        while !quota.is_tight() {
            seats.extend(quota.take(Side::Client));
        }
        assert_eq!(seats.len(), 130, "140 are for clients");
        seats.extend((0..15).filter_map(|_| quota.take(Side::Upstream)));
        drop(seats.split_off(120));
        assert!(!quota.is_tight());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_go_first_and_begun_heads_only_after_all_of_them() {
        let start = clock::instant();
        let at = |seconds| start + Duration::from_secs(seconds);
        let idle = |seconds| Waiting::Idle(at(seconds));
        let head = |seconds| Waiting::Head(at(seconds));
        let answer = Waiting::Answer;
        assert_eq!(
            order(vec![(answer, 0), (answer, 1)], None),
            Vec::<i32>::new()
        );
        assert_eq!(
            order(vec![(head(0), 0), (idle(2), 1), (idle(1), 2)], None),
            [2]
        );
        assert_eq!(
            order(vec![(head(3), 0), (head(2), 1), (answer, 2)], None),
            [1]
        );
        let spared = vec![(head(2), 0), (idle(2), 1), (idle(1), 2), (answer, 3)];
        assert_eq!(order(spared, Some(at(1))), [2]);
        let many: Vec<_> = (0..80).map(|it| (idle(80 - it), it)).collect();
        assert_eq!(order(many, None), Vec::from_iter((70..80).rev()));
        let more: Vec<_> = (0..1000).map(|it| (idle(it), it)).collect();
        assert_eq!(order(more, None).len(), CLOSED_MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_place_is_woken_by_the_end_of_a_connection() {
        let quota = Rc::new(Quota::default());
        quota.set_most(8, 512);
        assert!(quota.is_cut());
        let mut seats = taken(&quota, Side::Client);
        let start = clock::instant();
        let wait = async {
            quota.freed().await;
            (clock::instant() - start, quota.take(Side::Client).is_some())
        };
        let end = async { drop(seats.pop()) };
        let ((waited, has_seat), ()) = tokio::join!(wait, end);
        assert_eq!((waited, has_seat), (Duration::ZERO, true));
        quota.freed().await;
        assert!(clock::instant() - start >= LOOK_EVERY);
        quota.set_most(8, 8);
        assert!(!quota.is_cut());
    }

    #[test]
    fn descriptors_are_shared_by_the_workers() {
        for (wanted, workers, descriptors, each) in [
            (512, 1, None, 512),
            (512, 1, Some(690), 512),
            (4000, 2, Some(690), 345),
            (512, 2, Some(0), 0),
        ] {
            assert_eq!(share(wanted, workers, descriptors), each, "{wanted}");
        }
    }
}
