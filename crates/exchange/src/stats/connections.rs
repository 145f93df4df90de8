//! Counters of connections, for `stub_status`, `$connections_*` and the API.
//!
//! Every worker counts on a shard of its own. A connection stays on its worker, so that what goes
//! up on a shard goes down there.

use std::sync::atomic::{AtomicU64, Ordering};

use millpond_wire::http2::{FLOODS, Flood};
use millpond_wire::http3;

/// Shards; more workers than that share some, which is right but slower.
const SHARDS: usize = 16;

/// Counters of all workers.
#[derive(Debug, Default)]
pub struct ConnectionCounters {
    shards: [ConnectionShard; SHARDS],
    numbers: AtomicU64,
}

/// One worker's counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ConnectionShard {
    /// Accepted since the start.
    pub accepted: AtomicU64,
    /// Handled since the start; the others were dropped.
    pub handled: AtomicU64,
    /// Requests since the start.
    pub requests: AtomicU64,
    /// Open now.
    pub active: AtomicU64,
    /// Open and reading a head.
    pub reading: AtomicU64,
    /// Open and answering.
    pub writing: AtomicU64,
    /// Open and quiet for so long that they have no task.
    pub quiet: AtomicU64,
    /// Closed to make room for others, since the start.
    pub displaced: AtomicU64,
    /// Counts of events since the start, by [`Happened`].
    pub happened: [AtomicU64; HAPPENED],
    /// Connections of HTTP/2 that were ended for a flood since the start, by its kind.
    pub floods: [AtomicU64; FLOODS],
    /// Connections of HTTP/3 that were ended for a flood since the start, by its kind.
    pub quic_floods: [AtomicU64; http3::FLOODS],
}

/// An event of a connection that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A handshake of TLSv1.2, with a new session.
    New12,
    /// A handshake of TLSv1.2, with a session that was there.
    Resumed12,
    /// A handshake of TLSv1.3, with a new session.
    New13,
    /// A handshake of TLSv1.3, with a session that was there.
    Resumed13,
    /// A handshake that led to no encrypted connection.
    HandshakeFailed,
    /// A connection that speaks HTTP/2.
    Http2,
    /// A connection that speaks HTTP/3.
    Http3,
    /// A stream of HTTP/2 that the client has reset.
    ResetByClient,
    /// A stream of HTTP/2 that was reset for a fault of the client.
    ResetForFault,
    /// A connection of HTTP/2 whose client was told that it ends in peace.
    GoAway,
    /// A connection of HTTP/2 that was ended for a fault of the client.
    GoAwayForFault,
    /// A connection of HTTP/2 that was ended because its client made work for nothing.
    GoAwayForFlood,
    /// A head of HTTP/2 whose rest did not come in time.
    SlowHead,
    /// A stream of HTTP/2 that was reset since no more of its request's body came.
    SlowBody,
    /// A stream of HTTP/2 that was reset since its client let no more of the answer come.
    SlowAnswer,
    /// A connection of HTTP/2 that was closed since its client read nothing.
    SlowReader,
}

/// The count of such events.
pub const HAPPENED: usize = 16;

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCount {
    /// Accepted since the start.
    pub accepted: u64,
    /// Handled since the start.
    pub handled: u64,
    /// Requests since the start.
    pub requests: u64,
    /// Open now.
    pub active: u64,
    /// Open and reading a head.
    pub reading: u64,
    /// Open and answering.
    pub writing: u64,
    /// Open and quiet for so long that they have no task.
    pub quiet: u64,
    /// Closed to make room for others, since the start.
    pub displaced: u64,
    /// Counts of events since the start, by [`Happened`].
    pub happened: [u64; HAPPENED],
    /// Connections of HTTP/2 that were ended for a flood since the start, by its kind.
    pub floods: [u64; FLOODS],
    /// Connections of HTTP/3 that were ended for a flood since the start, by its kind.
    pub quic_floods: [u64; http3::FLOODS],
}

impl ConnectionShard {
    /// Counts an event.
    pub fn count(&self, event: Happened) {
        if let Some(count) = self.happened.get(event as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a connection of HTTP/3 that was ended for a flood.
    pub fn count_quic_flood(&self, flood: http3::Flood) {
        self.count(Happened::GoAwayForFlood);
        if let Some(count) = self.quic_floods.get(flood as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a connection of HTTP/2 that was ended for a flood.
    pub fn count_flood(&self, flood: Flood) {
        self.count(Happened::GoAwayForFlood);
        if let Some(count) = self.floods.get(flood as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl ConnectionCounters {
    /// The shard of a worker.
    pub fn shard(&self, worker: usize) -> &ConnectionShard {
        // INVARIANT: the remainder is below the number of shards.
        &self.shards[worker % SHARDS]
    }

    /// Counts a connection of a worker; its number, from 1.
    pub fn accept(&self, worker: usize) -> u64 {
        let shard = self.shard(worker);
        shard.accepted.fetch_add(1, Ordering::Relaxed);
        shard.handled.fetch_add(1, Ordering::Relaxed);
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a connection of a worker that was closed at once.
    pub fn refuse(&self, worker: usize) {
        self.shard(worker).accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Sums the shards. Each number is read for itself.
    pub fn snapshot(&self) -> ConnectionCount {
        ConnectionCount::sum(&self.shards)
    }

    /// Counts of one worker's shard.
    pub fn of_worker(&self, worker: usize) -> ConnectionCount {
        ConnectionCount::sum(std::slice::from_ref(self.shard(worker)))
    }
}

/// One more in a gauge, for as long as it lives.
pub struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    /// Counts one.
    pub fn new(gauge: &'a AtomicU64) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Counted(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionCount {
    fn sum(shards: &[ConnectionShard]) -> Self {
        let sum = |of: fn(&ConnectionShard) -> &AtomicU64| {
            let shards = shards.iter();
            shards.fold(0_u64, |sum, shard| {
                sum.wrapping_add(of(shard).load(Ordering::Relaxed))
            })
        };
        ConnectionCount {
            handled: sum(|shard| &shard.handled),
            accepted: sum(|shard| &shard.accepted),
            requests: sum(|shard| &shard.requests),
            active: sum(|shard| &shard.active),
            reading: sum(|shard| &shard.reading),
            writing: sum(|shard| &shard.writing),
            quiet: sum(|shard| &shard.quiet),
            displaced: sum(|shard| &shard.displaced),
            happened: sum_all(shards, |shard| &shard.happened),
            floods: sum_all(shards, |shard| &shard.floods),
            quic_floods: sum_all(shards, |shard| &shard.quic_floods),
        }
    }

    /// Open connections without a request.
    pub fn waiting(&self) -> u64 {
        self.active.saturating_sub(self.current())
    }

    /// Requests that are being read or answered.
    pub fn current(&self) -> u64 {
        self.reading.saturating_add(self.writing)
    }

    /// Counts that came after an earlier count; what is open is open.
    pub fn since(&self, base: &ConnectionCount) -> ConnectionCount {
        ConnectionCount {
            accepted: self.accepted.saturating_sub(base.accepted),
            handled: self.handled.saturating_sub(base.handled),
            requests: self.requests.saturating_sub(base.requests),
            displaced: self.displaced.saturating_sub(base.displaced),
            happened: all_since(&self.happened, &base.happened),
            floods: all_since(&self.floods, &base.floods),
            quic_floods: all_since(&self.quic_floods, &base.quic_floods),
            ..*self
        }
    }

    /// The count of an event since the start.
    pub fn count_of(&self, event: Happened) -> u64 {
        self.happened.get(event as usize).copied().unwrap_or(0)
    }

    /// The count of connections of HTTP/3 that were ended for a kind of flood since the start.
    pub fn count_of_quic_flood(&self, flood: http3::Flood) -> u64 {
        self.quic_floods.get(flood as usize).copied().unwrap_or(0)
    }

    /// The count of connections of HTTP/2 that were ended for a kind of flood since the start.
    pub fn count_of_flood(&self, flood: Flood) -> u64 {
        self.floods.get(flood as usize).copied().unwrap_or(0)
    }

    /// Connections that were not handled.
    pub fn dropped(&self) -> u64 {
        self.accepted.saturating_sub(self.handled)
    }
}

/// Sums counts of several events.
fn sum_all<const N: usize>(
    shards: &[ConnectionShard],
    of: fn(&ConnectionShard) -> &[AtomicU64; N],
) -> [u64; N] {
    let mut all = [0_u64; N];
    for shard in shards {
        for (sum, count) in all.iter_mut().zip(of(shard)) {
            *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
        }
    }
    all
}

/// Counts of several events that came after earlier counts.
fn all_since<const N: usize>(now: &[u64; N], base: &[u64; N]) -> [u64; N] {
    let mut all = *now;
    for (count, before) in all.iter_mut().zip(base) {
        *count = count.saturating_sub(*before);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_count_is_summed() {
        let counters = ConnectionCounters::default();
        assert_eq!((counters.accept(0), counters.accept(3)), (1, 2));
        for (worker, is_reading) in [(0, true), (3, false), (3, false)] {
            let shard = counters.shard(worker);
            shard.active.fetch_add(1, Ordering::Relaxed);
            if is_reading {
                shard.reading.fetch_add(1, Ordering::Relaxed);
            }
        }
        counters.shard(0).count_flood(Flood::Pings);
        let base = counters.snapshot();
        counters.shard(3).count_flood(Flood::Pings);
        counters.shard(3).count(Happened::GoAway);
        let count = counters.snapshot();
        let events = |count: &ConnectionCount| {
            let of = |event| count.count_of(event);
            let floods = count.count_of_flood(Flood::Pings);
            (floods, of(Happened::GoAwayForFlood), of(Happened::GoAway))
        };
        assert_eq!(events(&count), (2, 2, 1));
        assert_eq!(events(&count.since(&base)), (1, 1, 1));
        assert_eq!((count.accepted, count.dropped()), (2, 0));
        assert_eq!((count.active, count.waiting(), count.current()), (3, 2, 1));
    }
}
