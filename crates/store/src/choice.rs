//! Choice of what a full zone takes and keeps: what comes must be worth more than what leaves.
//!
//! ```text
//!   asked for, not there ──► history: how often before? ─┬─ worth more than what leaves ─► stored
//!              ▲                                         └─ not: a tenth on trial ───────► stored
//!              └── uses ── left, not written again ◄── oldest segment ──► written again, by worth
//! ```
//!
//! The worth of a byte of an entry is its uses for each byte, where each use saves a request to the
//! origin, which counts as much as [`REQUEST`] bytes, and the bytes of the body. So of short
//! entries those stay that are used most for their bytes, and long ones are weighed by their uses
//! alone. A use counts less the longer ago the last one is ([`Pace::faded`]).
//!
//! Each turn of `rewrite` notes what the bytes were worth that left without being written again.
//! That is the bar: what comes was asked for before, and its bytes are worth as much. Uses of what
//! is not in the zone are counted over two turns of the history, uses of an entry since it was
//! written. So that both mean the same, the bar is lower by what an entry had more time for.
//!
//! A log lets go in turn, so what is in use and finds no room in the credit of `rewrite` leaves all
//! the same, and is fetched again. How much that is follows from how fast the log turns, and so
//! from how much is taken: the bar is what makes a round long.
//!
//! 1. Whatever was asked for [`MOST_USES`] times is taken, however high the bar is.
//! 2. A key that was never asked for before is taken only on trial.
//!
//! Only misses and turns come here: no hit pays for it. A zone that takes everything has no
//! history.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;

use crate::history::{History, MOST_USES};
use crate::key::Key;
use crate::lock::lock;

/// Bytes that a request to the origin counts as. Measured: see `docs/eviction.md`; a quarter
/// gains little by bytes, and loses three hundredths of the requests where sizes differ most.
const REQUEST: u64 = 64 << 10;
/// Turns of the history that the uses of a key are counted for: they are halved after each.
const COUNTED_TURNS: f64 = 2.0;
/// A use counts for half when this part of a round of the log has gone by since the last one.
/// Measured: without it popularity that changes costs four hundredths of the bytes; an eighth costs
/// six of the requests where nothing changes.
const HALF_AFTER: f64 = 0.25;
/// Times that what comes must be worth what leaves. Measured: without a margin the zone takes more
/// than it gains by, and where it is small beside what is asked for it may not find out of that.
const MARGIN: f64 = 1.5;
/// Turns that the bar and the pace are means of. Arbitrary.
const TURNS: f64 = 8.0;
/// Share of the bytes stored on trial (one in so many) that was not asked for before, in a full
/// zone. Measured: see `docs/eviction.md`; half loses as much to a scan as it gains when popularity
/// changes.
const TRIAL_SHARE: u64 = 10;
/// Bytes that an entry of unknown length counts. Arbitrary: most bodies of unknown length are
/// pages.
const UNKNOWN_LEN: u64 = 64 << 10;
/// Bytes that an entry takes beside its body: an ordinary head, its header and its row.
const HEAD: u64 = 512;
/// Bounds of what is saved up for entries that were not asked for before: one part in so many of
/// the zone, and so many bytes; an entry that is larger is never stored on trial. Arbitrary.
const CREDIT_SHARE: u64 = 16;
const MOST_CREDIT: u64 = 64 << 20;

/// The choice of a full zone.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Keys that were asked for, if that decides what is stored.
    history: ArcSwapOption<History>,
    /// Bytes of what was not asked for before that may be stored.
    trial_credit: AtomicU64,
    /// The most that these may be; 0 where it has no share.
    most_credit: AtomicU64,
    /// Least worth of a byte that comes, as the bits of a number.
    bar: AtomicU64,
    pace: Mutex<Pace>,
}

/// Kinds of entries that a full zone takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// All.
    Everything,
    /// Entries that were asked for often enough before.
    AskedFor,
    /// The same, and a tenth of others.
    AskedForAndTrial,
}

/// Time that a round of the log takes: from an entry's writing to its leaving.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Seconds of a round.
    round_s: f64,
    /// Turns of the history in a round.
    round_turns: f64,
    /// Second of the last turn; 0: none yet.
    last_s: u32,
    /// Keys that were noted until then.
    noted: u64,
}

/// Something that left, or would.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lost {
    /// Worth of a byte, for each byte.
    pub(crate) worth: f64,
    /// Bytes.
    pub(crate) bytes: u64,
}

/// A zone at a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Segments of the log.
    pub(crate) segments: u64,
    /// Entries of the zone.
    pub(crate) entries: u64,
}

/// Worth of a byte of an entry of so many bytes.
pub(crate) fn worth(uses: f64, bytes: u64) -> f64 {
    uses * (1.0 + REQUEST as f64 / bytes.max(1) as f64)
}

/// Bytes that an entry with a body of this length takes.
fn cost(expected_len: Option<u64>) -> u64 {
    expected_len.unwrap_or(UNKNOWN_LEN).saturating_add(HEAD)
}

impl Choice {
    /// The choice of a zone that takes everything.
    pub(crate) fn new() -> Self {
        Self {
            history: ArcSwapOption::empty(),
            trial_credit: AtomicU64::new(0),
            most_credit: AtomicU64::new(0),
            bar: AtomicU64::new(0),
            pace: Mutex::default(),
        }
    }

    /// Makes a zone of `limit` bytes take this; what it remembers stays, while it chooses.
    pub(crate) fn set(&self, limit: u64, taking: Taking) {
        let most_credit = match taking {
            Taking::AskedForAndTrial => (limit / CREDIT_SHARE).min(MOST_CREDIT),
            Taking::Everything | Taking::AskedFor => 0,
        };
        self.most_credit.store(most_credit, Ordering::Relaxed);
        self.trial_credit.fetch_min(most_credit, Ordering::Relaxed);
        let has_history = self.history.load().is_some();
        if taking == Taking::Everything {
            self.history.store(None);
        } else if !has_history {
            self.history.store(Some(Arc::new(History::new(limit))));
        }
    }

    /// True if a full zone of so many entries takes something that is not there; notes that it is
    /// asked for.
    pub(crate) fn takes(&self, key: &Key, len: Option<u64>, entries: &dyn Fn() -> u64) -> bool {
        let history = self.history.load();
        let Some(history) = history.as_ref() else {
            return true;
        };
        let uses = history.note(key, entries);
        let bar = f64::from_bits(self.bar.load(Ordering::Relaxed));
        // INVARIANT 1.
        let is_worth_it = uses >= MOST_USES || worth(uses.into(), cost(len)) >= bar * MARGIN;
        if uses > 0 && is_worth_it {
            self.earn(len);
            return true;
        }
        self.pay(len)
    }

    /// Notes that something is stored that was asked for before: it pays for what was not.
    pub(crate) fn earn(&self, expected_len: Option<u64>) {
        let earned = cost(expected_len) / (TRIAL_SHARE - 1);
        let most = self.most_credit.load(Ordering::Relaxed);
        let add = |credit: u64| Some(credit.saturating_add(earned).min(most));
        // Always changed: the closure gives a value.
        let _ = self
            .trial_credit
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// True if there is credit for something that is stored on trial, which it costs.
    fn pay(&self, expected_len: Option<u64>) -> bool {
        let cost = cost(expected_len);
        let pay = |credit: u64| credit.checked_sub(cost);
        let credit = &self.trial_credit;
        credit
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay)
            .is_ok()
    }

    /// Uses of a key before it came into the zone, as far as they are remembered.
    pub(crate) fn uses_before(&self, key: &Key) -> u8 {
        let history = self.history.load();
        let uses = history.as_ref().map_or(0, |history| history.uses(key));
        // The last one brought it in.
        uses.saturating_sub(1)
    }

    /// Remembers the uses of an entry that leaves.
    pub(crate) fn remember(&self, key: &Key, uses: f64) {
        if let Some(history) = self.history.load().as_ref() {
            // A cast saturates.
            history.note_left(key, (uses as u8).min(MOST_USES));
        }
    }

    /// The pace as of the last turn.
    pub(crate) fn pace(&self) -> Pace {
        *lock(&self.pace)
    }

    /// Notes what left in a turn, for what comes to be measured by.
    pub(crate) fn note_turn(&self, lost: Lost, now_s: u32, zone: Extent) {
        let noted = self.history.load().as_ref().map(|history| history.noted());
        let pace = {
            let mut pace = lock(&self.pace);
            pace.turn(now_s, noted.unwrap_or(0), zone);
            *pace
        };
        let leaving = lost.worth / lost.bytes.max(1) as f64 * pace.share_counted();
        let bar = f64::from_bits(self.bar.load(Ordering::Relaxed));
        self.bar
            .store(mean(bar, leaving).to_bits(), Ordering::Relaxed);
    }

    /// Bytes of memory of the history of what was asked for.
    pub(crate) fn memory(&self) -> u64 {
        let history = self.history.load();
        history.as_ref().map_or(0, |history| history.memory())
    }
}

/// A mean of the last turns, after one more.
fn mean(before: f64, now: f64) -> f64 {
    before + (now - before) / TURNS
}

impl Pace {
    fn turn(&mut self, now_s: u32, noted: u64, zone: Extent) {
        let segments = zone.segments as f64;
        let passed = f64::from(now_s.saturating_sub(self.last_s));
        // A history that is new has noted less.
        let keys = noted.saturating_sub(self.noted) as f64;
        if self.last_s != 0 {
            self.round_s = mean(self.round_s, passed * segments);
            let turns = keys / History::turn_of(zone.entries) as f64;
            self.round_turns = mean(self.round_turns, turns * segments);
        }
        (self.last_s, self.noted) = (now_s, noted);
    }

    /// Part of an entry's time in the zone that the history counts uses for.
    fn share_counted(&self) -> f64 {
        (COUNTED_TURNS / self.round_turns.max(COUNTED_TURNS)).min(1.0)
    }

    /// Uses, less those that count no more when the last one was so many seconds ago.
    pub(crate) fn faded(&self, uses: f64, idle_s: u32) -> f64 {
        uses / (1.0 + f64::from(idle_s) / (HALF_AFTER * self.round_s).max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: Extent = Extent {
        segments: 64,
        entries: 1000,
    };

    fn key(number: u64) -> Key {
        Key::of(&number.to_le_bytes())
    }

    fn choosy() -> Choice {
        let choice = Choice::new();
        choice.set(1 << 30, Taking::AskedFor);
        choice
    }

    /// Number of requests until something is taken.
    fn requests(choice: &Choice, number: u64, len: u64) -> u64 {
        let takes = |_: &u64| choice.takes(&key(number), Some(len), &|| ZONE.entries);
        (1..).find(takes).expect("endless")
    }

    /// Turns in which bytes left that belonged to entries of a length, used so many times.
    fn leave(choice: &Choice, uses: f64, len: u64) {
        for second in 1..100 {
            let worth = worth(uses, len) * len as f64;
            let lost = Lost { worth, bytes: len };
            choice.note_turn(lost, second, ZONE);
        }
    }

    #[test]
    fn the_second_request_is_enough_while_nothing_that_leaves_was_used() {
        let choice = choosy();
        assert_eq!(requests(&choice, 1, 10_000), 2);
        leave(&choice, 0.0, 10_000);
        assert_eq!(requests(&choice, 2, 10_000), 2);
    }

    #[test]
    fn what_comes_must_be_worth_more_than_what_leaves() {
        let choice = choosy();
        leave(&choice, 4.0, 10_000);
        // Six uses before, for four of what leaves.
        assert_eq!(requests(&choice, 1, 10_000), 1 + 4 * 3 / 2 + 1);
        // A short one is worth that sooner, a long one later.
        assert_eq!(requests(&choice, 2, 1_000), 3);
        assert!(requests(&choice, 3, 100_000) > 20);
        leave(&choice, 0.0, 10_000);
        assert_eq!(requests(&choice, 4, 10_000), 2);
    }

    /// INVARIANT 1.
    #[test]
    fn what_is_asked_for_often_is_taken_however_high_the_bar() {
        let choice = choosy();
        leave(&choice, 255.0, 500);
        assert_eq!(requests(&choice, 1, 1 << 30), u64::from(MOST_USES) + 1);
    }

    #[test]
    fn what_left_is_taken_back_by_the_uses_that_it_had() {
        let choice = choosy();
        leave(&choice, 4.0, 10_000);
        // The first note begins the first turn.
        assert!(!choice.takes(&key(0), Some(10_000), &|| 1000));
        choice.remember(&key(1), 7.5);
        choice.remember(&key(2), 2.0);
        assert_eq!(requests(&choice, 1, 10_000), 1);
        assert!(requests(&choice, 2, 10_000) > 1);
        assert_eq!(choice.uses_before(&key(1)), 7);
    }

    #[test]
    fn the_bar_is_lower_where_entries_had_more_time() {
        let (short, long) = (choosy(), choosy());
        for second in 1..100 {
            let lost = Lost {
                worth: 40.0,
                bytes: 1,
            };
            short.note_turn(lost, second, ZONE);
            // Eight turns of the history in a round of the log: four times what it counts.
            for number in 0..8 * History::turn_of(ZONE.entries) / ZONE.segments {
                long.takes(&key(1 << 32 | number), Some(1 << 30), &|| ZONE.entries);
            }
            long.note_turn(lost, second, ZONE);
        }
        let bar = |choice: &Choice| f64::from_bits(choice.bar.load(Ordering::Relaxed));
        assert!((bar(&short) - 40.0).abs() < 0.1, "{}", bar(&short));
        assert!((bar(&long) - 10.0).abs() < 0.5, "{}", bar(&long));
    }

    #[test]
    fn a_use_counts_less_with_the_time_since() {
        let choice = choosy();
        leave(&choice, 1.0, 1000);
        // A turn a second, so a round of the log in as many seconds as it has segments.
        let pace = choice.pace();
        let quarter = ZONE.segments as u32 / 4;
        assert!((pace.faded(8.0, 0) - 8.0).abs() < 0.01);
        assert!((pace.faded(8.0, quarter) - 4.0).abs() < 0.01);
        assert!((pace.faded(8.0, 3 * quarter) - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_ninth_of_what_is_stored_pays_for_what_is_on_trial() {
        let choice = Choice::new();
        choice.set(1 << 30, Taking::AskedForAndTrial);
        assert!(!choice.takes(&key(0), Some(10_000), &|| 1000));
        for number in 1..=TRIAL_SHARE {
            choice.earn(Some(10_000));
            let is_taken = choice.takes(&key(number), Some(10_000), &|| 1000);
            assert_eq!(is_taken, number == TRIAL_SHARE - 1, "{number}");
        }
    }

    #[test]
    fn a_zone_that_takes_everything_remembers_nothing() {
        let choice = choosy();
        assert!(!choice.takes(&key(1), Some(1), &|| 1000) && choice.memory() > 0);
        choice.set(1 << 30, Taking::Everything);
        leave(&choice, 200.0, 100);
        assert!(choice.takes(&key(2), Some(1), &|| 1000));
        assert_eq!(choice.memory(), 0);
    }
}
