//! Counters of upstream peers: what each was asked and answered, how fast, and how it failed.
//!
//! Exchanges are counted by workers on rows of their own; failures are seldom and are counted where
//! all see them. A reload passes the counters on to the same server of the group of the same name.
//!
//! Invariants:
//! 1. An exchange is counted once, when it is over; one that had no answer counts as a request
//!    without a response.
//! 2. A peer is down from the failure that makes it rest until it answers again or is forgiven.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::responses::{ResponseCells, ResponseCount};

/// Rows of a peer; workers beyond that share some, which is right but slower.
const SHARDS: usize = 16;
/// A new time's share in an average is one in so many (nginx's: 5 %).
const NEW_SHARE: u64 = 20;

/// Counters of a peer.
#[derive(Debug, Default)]
pub struct PeerTally {
    rows: [OnceLock<Box<PeerRow>>; SHARDS],
    fails: AtomicU64,
    unavailable: AtomicU64,
    /// Since when it rests, milliseconds since 1970; 0 while it does not.
    down_since_ms: AtomicI64,
    /// For how long it rested before.
    down_ms: AtomicU64,
    /// Counts at the moment when the counters were begun anew.
    base: Mutex<Option<Box<PeerCount>>>,
}

/// Counters of one worker.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PeerRow {
    requests: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    selected_ms: AtomicI64,
    header: Times,
    response: Times,
    responses: ResponseCells,
}

/// Times of answers.
#[derive(Debug, Default)]
struct Times {
    count: AtomicU64,
    sum_us: AtomicU64,
    average_us: AtomicU64,
}

/// An exchange that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerExchange {
    /// Begin of the exchange, milliseconds since 1970.
    pub started_ms: i64,
    /// Status of its answer, if there was one.
    pub status: Option<u16>,
    /// Bytes that the peer was sent.
    pub sent: u64,
    /// Bytes that it sent.
    pub received: u64,
    /// The time to the answer's head.
    pub header: Option<Duration>,
    /// The time to its end.
    pub response: Option<Duration>,
}

/// Counts of one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCount {
    /// Exchanges.
    pub requests: u64,
    /// Answers by status.
    pub responses: ResponseCount,
    /// Bytes that it was sent.
    pub sent: u64,
    /// Bytes that came from it.
    pub received: u64,
    /// Failed tries.
    pub fails: u64,
    /// Number of times that the peer rested after failures.
    pub unavailable: u64,
    /// For how long, what runs included.
    pub downtime: Duration,
    /// Since when it rests, milliseconds since 1970.
    pub down_since_ms: Option<i64>,
    /// Time when the peer was last asked, milliseconds since 1970.
    pub selected_ms: Option<i64>,
    /// Times to heads.
    pub header_time: TimeCount,
    /// Times to ends.
    pub response_time: TimeCount,
}

/// Times of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeCount {
    /// Number of times.
    pub count: u64,
    /// Sum of the times.
    pub sum: Duration,
    /// A moving average of the last ones.
    pub average: Duration,
}

impl Times {
    fn record(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let count = self.count.fetch_add(1, Relaxed);
        self.sum_us.fetch_add(time, Relaxed);
        let average = self.average_us.load(Relaxed);
        let mixed = match count {
            0 => time,
            _ => average - average / NEW_SHARE + time / NEW_SHARE,
        };
        self.average_us.store(mixed, Relaxed);
    }

    /// Averages weigh as much as what they are of.
    fn add_to(&self, sum: &mut TimeCount) {
        let (count, before) = (self.count.load(Relaxed), sum.count);
        let all = before + count;
        if all == 0 {
            return;
        }
        let average = u128::from(self.average_us.load(Relaxed)) * u128::from(count)
            + sum.average.as_micros() * u128::from(before);
        let average = u64::try_from(average / u128::from(all)).unwrap_or(u64::MAX);
        sum.count = all;
        sum.sum += Duration::from_micros(self.sum_us.load(Relaxed));
        sum.average = Duration::from_micros(average);
    }
}

impl PeerTally {
    /// Counts an exchange of a worker.
    pub fn exchanged(&self, worker: usize, exchange: &PeerExchange) {
        let Some(row) = self.rows.get(worker % SHARDS) else {
            return;
        };
        let row = row.get_or_init(Box::default);
        row.requests.fetch_add(1, Relaxed);
        row.sent.fetch_add(exchange.sent, Relaxed);
        row.received.fetch_add(exchange.received, Relaxed);
        row.selected_ms.fetch_max(exchange.started_ms, Relaxed);
        if let Some(status) = exchange.status {
            row.responses.record(status);
        }
        if let Some(time) = exchange.header {
            row.header.record(time);
        }
        if let Some(time) = exchange.response.filter(|_| exchange.status.is_some()) {
            row.response.record(time);
        }
    }

    /// Counts a failed try.
    pub fn failed(&self) {
        self.fails.fetch_add(1, Relaxed);
    }

    /// Notes that the peer rests from now on, unless it did already.
    pub fn rests(&self, now_ms: i64) {
        let began = self
            .down_since_ms
            .compare_exchange(0, now_ms, Relaxed, Relaxed);
        if began.is_ok() {
            self.unavailable.fetch_add(1, Relaxed);
        }
    }

    /// Notes that the peer answers again, or that its failures are forgotten.
    pub fn is_back(&self, now_ms: impl FnOnce() -> i64) {
        // The usual case writes nothing.
        if self.down_since_ms.load(Relaxed) == 0 {
            return;
        }
        let since = self.down_since_ms.swap(0, Relaxed);
        if since != 0 {
            self.down_ms.fetch_add(span(since, now_ms()), Relaxed);
        }
    }

    /// Begins anew for who asks [`Self::since_reset`].
    pub fn reset(&self, now_ms: i64) {
        let count = Box::new(self.snapshot(now_ms));
        *self.base.lock().unwrap_or_else(PoisonError::into_inner) = Some(count);
    }

    /// Counts since the counters were begun anew, or at all.
    pub fn since_reset(&self, now_ms: i64) -> PeerCount {
        let base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.snapshot(now_ms);
        match &*base {
            Some(base) => count.since(base),
            None => count,
        }
    }

    /// Sums the rows.
    pub fn snapshot(&self, now_ms: i64) -> PeerCount {
        let since = Some(self.down_since_ms.load(Relaxed)).filter(|since| *since != 0);
        let down = since.map_or(0, |since| span(since, now_ms));
        let mut count = PeerCount {
            fails: self.fails.load(Relaxed),
            unavailable: self.unavailable.load(Relaxed),
            downtime: Duration::from_millis(self.down_ms.load(Relaxed) + down),
            down_since_ms: since,
            ..PeerCount::default()
        };
        for row in self.rows.iter().filter_map(OnceLock::get) {
            row.responses.add_to(&mut count.responses);
            count.requests += row.requests.load(Relaxed);
            count.sent += row.sent.load(Relaxed);
            count.received += row.received.load(Relaxed);
            row.header.add_to(&mut count.header_time);
            row.response.add_to(&mut count.response_time);
            let selected = Some(row.selected_ms.load(Relaxed)).filter(|ms| *ms != 0);
            count.selected_ms = count.selected_ms.max(selected);
        }
        count
    }
}

impl PeerCount {
    /// Counts that came after an earlier count; when it was last asked, and averages, are as they
    /// are.
    fn since(self, base: &PeerCount) -> PeerCount {
        let times = |count: TimeCount, base: TimeCount| TimeCount {
            count: count.count.saturating_sub(base.count),
            sum: count.sum.saturating_sub(base.sum),
            average: count.average,
        };
        PeerCount {
            requests: self.requests.saturating_sub(base.requests),
            responses: self.responses.since(&base.responses),
            sent: self.sent.saturating_sub(base.sent),
            received: self.received.saturating_sub(base.received),
            fails: self.fails.saturating_sub(base.fails),
            unavailable: self.unavailable.saturating_sub(base.unavailable),
            downtime: self.downtime.saturating_sub(base.downtime),
            header_time: times(self.header_time, base.header_time),
            response_time: times(self.response_time, base.response_time),
            ..self
        }
    }
}

fn span(since_ms: i64, until_ms: i64) -> u64 {
    u64::try_from(until_ms.saturating_sub(since_ms)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_of_all_workers_are_summed() {
        let tally = PeerTally::default();
        let exchange = PeerExchange {
            started_ms: 5,
            status: Some(200),
            sent: 10,
            received: 100,
            header: Some(Duration::from_millis(2)),
            response: Some(Duration::from_millis(4)),
        };
        tally.exchanged(0, &exchange);
        let slow = PeerExchange {
            started_ms: 7,
            header: Some(Duration::from_millis(4)),
            ..exchange
        };
        tally.exchanged(1, &slow);
        let failed = PeerExchange {
            sent: 1,
            response: Some(Duration::from_secs(9)),
            ..PeerExchange::default()
        };
        tally.exchanged(17, &failed);
        let count = tally.snapshot(0);
        assert_eq!((count.requests, count.responses.total()), (3, 2));
        assert_eq!((count.sent, count.received), (21, 200));
        assert_eq!(count.selected_ms, Some(7));
        assert_eq!(count.header_time.average, Duration::from_millis(3));
        assert_eq!(count.header_time.sum, Duration::from_millis(6));
        assert_eq!(count.response_time.count, 2);
    }

    #[test]
    fn a_peer_is_down_until_it_is_back() {
        let tally = PeerTally::default();
        tally.is_back(|| 50);
        tally.rests(100);
        tally.rests(150);
        let count = tally.snapshot(180);
        assert_eq!((count.unavailable, count.down_since_ms), (1, Some(100)));
        assert_eq!(count.downtime, Duration::from_millis(80));
        tally.is_back(|| 200);
        tally.rests(300);
        tally.is_back(|| 310);
        let count = tally.snapshot(400);
        assert_eq!((count.unavailable, count.down_since_ms), (2, None));
        assert_eq!(count.downtime, Duration::from_millis(110));
    }
}
