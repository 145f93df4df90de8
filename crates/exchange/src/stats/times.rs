//! Times of answers and of exchanges with origins, as histograms.
//!
//! ```text
//! answer sent    ─► by cache status: to the first byte, to the end; by its status code
//! exchange over  ─► by reason: to the connection, to the head, to the end; and how it ended
//! ```
//!
//! Every worker counts on a shard of its own, which no other core writes; readers sum them. The
//! buckets are fixed, so that what is counted on several machines can be added.
//!
//! Invariants:
//! 1. Counting takes no lock and reads no clock; it allocates only the first time that a worker
//!    counts something.
//! 2. An exchange counts under one result; only one whose head came counts a time to the head and
//!    to the end.
//!
//! What is answered to requests that this server makes for itself is no answer here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::place::{Place, SHARDS};
use super::responses::{ResponseCells, ResponseCount};
use super::{Label, STATUSES};
use crate::trace::{Attempt, Why};

/// Upper bounds of the buckets, microseconds, inclusive: hits take some tens of them, origins on
/// the other side of the earth some hundred thousands. (1, 2.5, 5 to a power of ten, as most
/// programs have them.)
pub const BOUNDS_US: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The bucket of the least time of so many bits: a time is in it, or in one of the next two.
const FIRST_BUCKETS: [u8; u64::BITS as usize + 1] = build_first_buckets();

const fn build_first_buckets() -> [u8; u64::BITS as usize + 1] {
    let mut first = [0; u64::BITS as usize + 1];
    let mut bits = 1;
    while bits < first.len() {
        let least = 1 << (bits - 1);
        let mut bucket = 0;
        while bucket < BOUNDS_US.len() && BOUNDS_US[bucket] < least {
            bucket += 1;
        }
        first[bits] = bucket as u8;
        bits += 1;
    }
    first
}

/// The bucket of a time.
fn bucket_of(time: u64) -> usize {
    let bits = (u64::BITS - time.leading_zeros()) as usize;
    // There is one for each number of bits.
    let mut bucket = usize::from(FIRST_BUCKETS[bits]);
    while BOUNDS_US.get(bucket).is_some_and(|bound| *bound < time) {
        bucket += 1;
    }
    bucket
}

/// Ends of exchanges, as labels say them: the class of the answer's status, or why there is none.
pub const RESULTS: [&str; 9] = [
    "1xx",
    "2xx",
    "3xx",
    "4xx",
    "5xx",
    "timeout",
    "error",
    "abandoned",
    "no_peer",
];
const TIMEOUT: usize = 5;
const ERROR: usize = 6;
const ABANDONED: usize = 7;
const NO_PEER: usize = 8;

/// The buckets, and one for what is above all bounds.
const BUCKETS: usize = BOUNDS_US.len() + 1;
const REASONS: usize = Why::ALL.len();

/// The histograms of all workers.
#[derive(Debug, Default)]
pub struct Times {
    shards: [OnceLock<Box<Shard>>; SHARDS],
}

/// One worker's histograms.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    first_byte: [Cells; STATUSES.len()],
    answer: [Cells; STATUSES.len()],
    connect: [Cells; REASONS],
    header: [Cells; REASONS],
    response: [Cells; REASONS],
    results: [[AtomicU64; RESULTS.len()]; REASONS],
    responses: ResponseCells,
}

/// One histogram of one worker.
#[derive(Debug, Default)]
struct Cells {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of times that fell into each bucket: above the bound before and up to its own; the
    /// last is for those above all bounds.
    pub buckets: [u64; BUCKETS],
    /// The sum of all, microseconds.
    pub sum_us: u64,
}

/// An answer that was sent, or whose client was gone, and how long that took.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Cache status of the answer.
    pub label: Label,
    /// Status code of the answer.
    pub status: u16,
    /// The time from the request's head to the answer's.
    pub first_byte: Duration,
    /// The time from the first byte of the request to the last of the answer; what goes out with
    /// its head at once has gone when that is written.
    pub whole: Duration,
}

/// Times of the answers with one cache status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerTimes {
    /// From the request's head to the answer's.
    pub first_byte: Histogram,
    /// From the first byte of the request to the last of the answer.
    pub answer: Histogram,
}

/// Times of the exchanges that were made for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeTimes {
    /// To a connection.
    pub connect: Histogram,
    /// To the answer's head.
    pub header: Histogram,
    /// To its end.
    pub response: Histogram,
    /// Numbers of exchanges by their end, in the order of [`RESULTS`].
    pub results: [u64; RESULTS.len()],
}

/// Numbers of exchanges by their end, as far as it matters whether origins work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// With an answer below 500.
    pub answered: u64,
    /// With an answer from 500 on.
    pub refused: u64,
    /// Without an answer: a timeout, an error, or no peer that could be asked.
    pub failed: u64,
    /// Given up here.
    pub abandoned: u64,
}

impl Cells {
    fn record(&self, place: Place, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get(bucket_of(time)) {
            place.add(bucket, 1);
            place.add(&self.sum_us, time);
        }
    }

    fn add_to(&self, histogram: &mut Histogram) {
        for (sum, bucket) in histogram.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Relaxed);
        }
        histogram.sum_us = histogram.sum_us.wrapping_add(self.sum_us.load(Relaxed));
    }
}

impl Histogram {
    /// Number of times in the histogram.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Histogram) {
        for (sum, bucket) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += bucket;
        }
        self.sum_us = self.sum_us.wrapping_add(other.sum_us);
    }

    /// The time that a part of all times (0 to 1) do not exceed, by the bounds of the buckets and a
    /// straight line between them; none without times, and the last bound for those above it.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let wanted = self.count() as f64 * part;
        let (mut below, mut lower) = (0_u64, 0_u64);
        for (bound, count) in BOUNDS_US.iter().zip(self.buckets) {
            if count > 0 && (below + count) as f64 >= wanted {
                let share = (wanted - below as f64) / count as f64;
                let more = (bound - lower) as f64 * share.clamp(0.0, 1.0);
                return Some(Duration::from_micros(lower + more as u64));
            }
            (below, lower) = (below + count, *bound);
        }
        (self.count() > 0).then(|| Duration::from_micros(lower))
    }
}

impl Times {
    /// Counts an answer to a client.
    pub fn answered(&self, place: Place, answer: &Timed) {
        let Some(shard) = self.shard(place.shard()) else {
            return;
        };
        let index = answer.label.index();
        let (first_byte, whole) = (answer.first_byte, answer.whole);
        for (cells, time) in [(&shard.first_byte, first_byte), (&shard.answer, whole)] {
            if let Some(cells) = cells.get(index) {
                cells.record(place, time);
            }
        }
        shard.responses.record_at(place, answer.status);
    }

    /// Counts an exchange with an origin that is over.
    pub fn exchanged(&self, worker: usize, attempt: &Attempt) {
        let Some(shard) = self.shard(worker) else {
            return;
        };
        let why = attempt.why;
        shard.count(why, result(attempt));
        // Whoever asks for whom: these are not counters of answers.
        let place = Place::shared(worker);
        let of = |cells: &[Cells; REASONS], time: Option<Duration>| {
            if let (Some(cells), Some(time)) = (cells.get(why.index()), time) {
                cells.record(place, time);
            }
        };
        of(&shard.connect, attempt.connect);
        // INVARIANT 2. What follows a switch of protocols is no answer.
        if attempt.header.is_some() {
            of(&shard.header, attempt.header);
            of(
                &shard.response,
                attempt.response.filter(|_| attempt.status != 101),
            );
        }
    }

    /// Counts that there was no peer to ask.
    pub fn found_no_peer(&self, worker: usize, why: Why) {
        if let Some(shard) = self.shard(worker) {
            shard.count(why, NO_PEER);
        }
    }

    /// Numbers of exchanges by their end, for whatever reason they were made.
    pub fn ends(&self) -> Ends {
        let mut ends = Ends::default();
        for times in self.exchanges() {
            let [
                one,
                two,
                three,
                four,
                five,
                timeout,
                error,
                abandoned,
                no_peer,
            ] = times.results;
            ends.answered += one + two + three + four;
            ends.refused += five;
            ends.failed += timeout + error + no_peer;
            ends.abandoned += abandoned;
        }
        ends
    }

    /// Times of answers, in the order of [`STATUSES`].
    pub fn answers(&self) -> [AnswerTimes; STATUSES.len()] {
        let mut all = [AnswerTimes::default(); STATUSES.len()];
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            for (sum, cells) in all.iter_mut().zip(&shard.first_byte) {
                cells.add_to(&mut sum.first_byte);
            }
            for (sum, cells) in all.iter_mut().zip(&shard.answer) {
                cells.add_to(&mut sum.answer);
            }
        }
        all
    }

    /// Answers by status code.
    pub fn responses(&self) -> ResponseCount {
        let mut count = ResponseCount::default();
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            shard.responses.add_to(&mut count);
        }
        count
    }

    /// Times of exchanges, in the order of [`Why::ALL`].
    pub fn exchanges(&self) -> [ExchangeTimes; REASONS] {
        let mut all = [ExchangeTimes::default(); REASONS];
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            let results = all.iter_mut().zip(&shard.results);
            for (sum, result) in results.flat_map(|(sum, it)| sum.results.iter_mut().zip(it)) {
                *sum += result.load(Relaxed);
            }
            for (sum, cells) in all.iter_mut().zip(&shard.connect) {
                cells.add_to(&mut sum.connect);
            }
            for (sum, cells) in all.iter_mut().zip(&shard.header) {
                cells.add_to(&mut sum.header);
            }
            for (sum, cells) in all.iter_mut().zip(&shard.response) {
                cells.add_to(&mut sum.response);
            }
        }
        all
    }

    fn shard(&self, worker: usize) -> Option<&Shard> {
        let shard = self.shards.get(worker % SHARDS)?;
        Some(shard.get_or_init(Box::default))
    }
}

impl Shard {
    fn count(&self, why: Why, result: usize) {
        let results = self.results.get(why.index());
        if let Some(cell) = results.and_then(|results| results.get(result)) {
            cell.fetch_add(1, Relaxed);
        }
    }
}

/// The place of an exchange's result among [`RESULTS`].
fn result(attempt: &Attempt) -> usize {
    match (attempt.header, attempt.status) {
        (Some(_), 100..=499) => usize::from(attempt.status / 100 - 1),
        (Some(_), _) => 4,
        (None, 504) => TIMEOUT,
        (None, 0) => ABANDONED,
        (None, _) => ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_pass() {
        let edges = BOUNDS_US
            .iter()
            .flat_map(|bound| [bound - 1, *bound, bound + 1]);
        let powers = (0..u64::BITS).flat_map(|bits| [(1 << bits) - 1, 1 << bits]);
        for time in edges.chain(powers).chain([u64::MAX]) {
            let expected = BOUNDS_US.partition_point(|bound| *bound < time);
            assert_eq!(bucket_of(time), expected, "{time}");
        }
    }

    fn timed(status: &str, first_byte: Duration, whole: Duration) -> Timed {
        Timed {
            label: Label::of(Some(status)),
            status: 200,
            first_byte,
            whole,
        }
    }

    #[test]
    fn a_time_falls_into_the_first_bucket_that_has_room_for_it() {
        for (micros, bucket) in [
            (0, 0),
            (100, 0),
            (101, 1),
            (1_000, 3),
            (60_000_000, 17),
            (60_000_001, 18),
            (u64::MAX, 18),
        ] {
            let cells = Cells::default();
            cells.record(Place::shared(0), Duration::from_micros(micros));
            let mut histogram = Histogram::default();
            cells.add_to(&mut histogram);
            assert_eq!(histogram.buckets[bucket], 1, "{micros}");
            assert_eq!((histogram.count(), histogram.sum_us), (1, micros));
        }
    }

    #[test]
    fn answers_of_all_workers_are_summed_by_status() {
        let times = Times::default();
        times.answered(Place::shared(0), &timed("HIT", MS, 2 * MS));
        times.answered(Place::shared(17), &timed("HIT", MS, 3 * MS));
        times.answered(Place::shared(2), &timed("MISS", 10 * MS, 20 * MS));
        assert_eq!(times.responses().codes.get(&200), Some(&3));
        let answers = times.answers();
        assert_eq!(answers[0].first_byte.count(), 2);
        assert_eq!(answers[0].answer.sum_us, 5_000);
        assert_eq!(answers[1].answer.sum_us, 20_000);
        assert_eq!(answers[2], AnswerTimes::default());
    }

    #[test]
    fn an_exchange_counts_under_its_reason_and_one_result() {
        let attempt = |why, status, header: Option<Duration>| Attempt {
            why,
            status,
            connect: Some(MS),
            header,
            response: Some(30 * MS),
            ..Attempt::default()
        };
        let times = Times::default();
        for (attempt, result) in [
            (attempt(Why::Miss, 200, Some(MS)), "2xx"),
            (attempt(Why::Miss, 101, Some(MS)), "1xx"),
            (attempt(Why::Miss, 503, Some(MS)), "5xx"),
            (attempt(Why::Miss, 999, Some(MS)), "5xx"),
            (attempt(Why::Miss, 504, None), "timeout"),
            (attempt(Why::Miss, 502, None), "error"),
            (attempt(Why::Miss, 0, None), "abandoned"),
        ] {
            let before = times.exchanges()[Why::Miss.index()];
            times.exchanged(0, &attempt);
            let after = times.exchanges()[Why::Miss.index()];
            let place = RESULTS.iter().position(|it| *it == result).unwrap();
            assert_eq!(after.results[place], before.results[place] + 1, "{result}");
        }
        times.found_no_peer(1, Why::Slice);
        let exchanges = times.exchanges();
        let miss = exchanges[Why::Miss.index()];
        assert_eq!(miss.results.iter().sum::<u64>(), 7);
        assert_eq!((miss.connect.count(), miss.header.count()), (7, 4));
        assert_eq!(miss.response.count(), 3);
        assert_eq!(exchanges[Why::Slice.index()].results[NO_PEER], 1);
    }

    #[test]
    fn a_quantile_lies_in_the_bucket_that_has_it() {
        let times = Times::default();
        for _ in 0..90 {
            times.answered(Place::shared(0), &timed("HIT", MS, MS));
        }
        for _ in 0..10 {
            times.answered(
                Place::shared(0),
                &timed("HIT", MS, Duration::from_secs(120)),
            );
        }
        let answer = times.answers()[0].answer;
        let median = answer.quantile(0.5).unwrap();
        assert!(median > MS / 2 && median <= MS, "{median:?}");
        assert_eq!(answer.quantile(0.99), Some(Duration::from_secs(60)));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
