//! An index entry: forty bytes that say where a record stands, how large it is, and its use.
//!
//! A [`Slot`] is a copy; the table holds [`Cell`]s: five words that are read and changed one by
//! one, through shared references. Both have the same fields:
//!
//! | field | bits | meaning |
//! |---|---|---|
//! | key | 128 | the entry's name |
//! | extent | 22 + 22 + 8 + 12 | offset and size of the record in units of 16 bytes; body length / 2^32; number of the site |
//! | segment | 32 | number of the segment; 0: an empty slot |
//! | body_low | 32 | body length modulo 2^32 |
//! | used | 32 | seconds since 1970 of the last use |
//! | state | 16 + 16 | uses, up to 65535; flags |
//!
//! 1. Flags other than `UNSAVED` change only with the table locked for writing; a use that is
//!    noted meanwhile, without a lock, brings no older one back.
//! 2. A use that is noted is saved: `UNSAVED` is set after it, and taken away before it is read.
//! 3. Two uses at one time may count as one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::segment::Place;
use crate::key::Key;
use crate::site::{Account, Role, SITES_MAX};

/// Units of offsets and sizes.
const UNIT: u32 = crate::disk::format::ALIGN;
/// Bits of an offset or size: segments are at most 2^26 bytes long.
const UNIT_BITS: u32 = 22;
const UNIT_MASK: u64 = (1 << UNIT_BITS) - 1;
/// Longer bodies, of a tebibyte and more, count as this long. The record knows better.
const LEN_BITS: u32 = 40;
const LEN_MAX: u64 = (1 << LEN_BITS) - 1;
const LEN_AT: u32 = 2 * UNIT_BITS;
const LEN_MASK: u64 = (1 << (LEN_BITS - 32)) - 1;
const SITE_AT: u32 = LEN_AT + LEN_BITS - 32;

/// The record is not on the disk yet.
const IN_FLIGHT: u32 = 1 << 1;
/// The slices' checksums must be compared before use.
const UNVERIFIED: u32 = 1 << 2;
/// The body is in slices.
const SLICED: u32 = 1 << 3;
/// Last use and uses are not in the file of uses.
const UNSAVED: u32 = 1 << 4;
/// Nothing is there: older records of the key do not count.
const GRAVE: u32 = 1 << 5;
/// Bit of a slot whose entry is a part of another entry.
const SLICE: u32 = 1 << 6;
/// One use.
const ONE_USE: u32 = 1 << 16;
/// Attempts to note a use. Arbitrary: it fails when another use is noted meanwhile.
const TOUCHES: usize = 4;

const _: () = assert!(size_of::<Slot>() == 40 && size_of::<Words>() == 40);
const _: () = assert!(SITES_MAX == 1 << (u64::BITS - SITE_AT));

/// A copy of an index entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The entry's name.
    pub(crate) key: Key,
    extent: u64,
    segment: u32,
    body_low: u32,
    /// Seconds since 1970 of the last use.
    pub(crate) used: u32,
    state: u32,
}

impl Slot {
    /// A slot for an entry at `place`.
    pub(crate) fn new(key: Key, place: Place, body_len: u64, used: u32) -> Self {
        let len = body_len.min(LEN_MAX);
        let offset = u64::from(place.offset / UNIT) & UNIT_MASK;
        let size = u64::from(place.size / UNIT) & UNIT_MASK;
        Self {
            key,
            extent: offset | size << UNIT_BITS | (len >> 32) << LEN_AT,
            segment: place.segment,
            // The high half is in `extent`.
            body_low: len as u32,
            used,
            state: UNSAVED,
        }
    }

    /// Slot which says that records of the key before `place` do not count.
    pub(crate) fn grave(key: Key, place: Place) -> Self {
        let mut slot = Self::new(key, place, 0, u32::MAX);
        slot.state = GRAVE;
        slot
    }

    /// Place of the entry's record.
    pub(crate) fn place(&self) -> Place {
        // Both are masked to 22 bits.
        Place {
            segment: self.segment,
            offset: (self.extent & UNIT_MASK) as u32 * UNIT,
            size: (self.extent >> UNIT_BITS & UNIT_MASK) as u32 * UNIT,
        }
    }

    /// Length of the body.
    pub(crate) fn body_len(&self) -> u64 {
        u64::from(self.body_low) | (self.extent >> LEN_AT & LEN_MASK) << 32
    }

    /// Bytes of the disk that the entry takes: its record, and its body where that is in slices.
    pub(crate) fn disk_size(&self) -> u64 {
        let body = if self.is_sliced() { self.body_len() } else { 0 };
        u64::from(self.place().size) + body
    }

    /// Says whose the entry is.
    pub(crate) fn charged_to(mut self, account: Account) -> Self {
        self.extent = self.extent & ((1 << SITE_AT) - 1) | u64::from(account.number()) << SITE_AT;
        self.state &= !SLICE;
        if account.is_slice() {
            self.state |= SLICE;
        }
        self
    }

    /// Site and role that the entry is charged to.
    pub(crate) fn account(&self) -> Account {
        let role = match self.state & SLICE {
            0 => Role::Entry,
            _ => Role::Slice,
        };
        // Twelve bits are left.
        Account::new((self.extent >> SITE_AT) as u16, role)
    }

    /// Marks that the record is not on the disk yet.
    pub(crate) fn in_flight(mut self) -> Self {
        self.state |= IN_FLIGHT;
        self
    }

    /// Marks that the body is in slices.
    pub(crate) fn sliced(mut self) -> Self {
        self.state |= SLICED;
        self
    }

    /// Marks that the slices' checksums must be compared before use.
    pub(crate) fn unverified(mut self) -> Self {
        self.state |= UNVERIFIED;
        self
    }

    /// Slot with this many uses.
    pub(crate) fn with_hits(mut self, hits: u16) -> Self {
        self.state = (self.state & 0xffff) | u32::from(hits) << 16;
        self
    }

    /// Slot whose use is in the file of uses as it is.
    pub(crate) fn saved(mut self) -> Self {
        self.state &= !UNSAVED;
        self
    }

    /// True if the slices' checksums must be compared before use.
    pub(crate) fn is_unverified(&self) -> bool {
        self.state & UNVERIFIED != 0
    }

    /// True if the record is not on the disk yet.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.state & IN_FLIGHT != 0
    }

    /// True if the body is in slices.
    pub(crate) fn is_sliced(&self) -> bool {
        self.state & SLICED != 0
    }

    /// Number of uses; 65535 stands for more, too. Halved when it is written again.
    pub(crate) fn hits(&self) -> u16 {
        // The upper half of 32 bits.
        (self.state >> 16) as u16
    }

    /// True if the slot only says that older records do not count.
    pub(crate) fn is_grave(&self) -> bool {
        self.state & GRAVE != 0
    }

    /// True if the slot is of an entry that was used since `oldest` and stands in the segment
    /// `from` or behind it.
    #[inline]
    pub(crate) fn is_shown(&self, oldest: u32, from: u32) -> bool {
        self.used >= oldest && !self.is_grave() && self.segment >= from
    }

    /// True if the slot's record stands behind that of `other` in the log.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        let order = |slot: &Self| (slot.segment, slot.extent & UNIT_MASK);
        order(self) > order(other)
    }
}

/// The words of a [`Cell`]: the key's halves, the extent, segment and low body length, use and
/// state.
pub(crate) type Words = [AtomicU64; 5];

/// An index entry as the table holds it. The words may be read while someone changes them; then
/// they may belong to two entries, and who reads them has to find that out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a>(pub(crate) &'a Words);

impl Cell<'_> {
    /// The entry's name.
    #[inline]
    pub(crate) fn key(&self) -> Key {
        let [low, high, ..] = self.0;
        Key::from_halves(low.load(Ordering::Relaxed), high.load(Ordering::Relaxed))
    }

    /// The first half of the name.
    #[inline]
    pub(crate) fn low(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    /// True if nothing is here, not even a grave.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // The low half is the segment.
        self.0[3].load(Ordering::Relaxed) as u32 == 0
    }

    /// A copy.
    #[inline]
    pub(crate) fn slot(&self) -> Slot {
        let [_, _, extent, position, usage] = self.0;
        let position = position.load(Ordering::Relaxed);
        let usage = usage.load(Ordering::Relaxed);
        // Each is made of two halves.
        Slot {
            key: self.key(),
            extent: extent.load(Ordering::Relaxed),
            segment: position as u32,
            body_low: (position >> 32) as u32,
            used: usage as u32,
            state: (usage >> 32) as u32,
        }
    }

    /// Time when the entry was last used; none if it is a grave.
    #[inline]
    pub(crate) fn last_used(&self) -> Option<u32> {
        let [.., usage] = self.0;
        let usage = usage.load(Ordering::Relaxed);
        // Two halves: time and state.
        let is_grave = (usage >> 32) as u32 & GRAVE != 0;
        (!is_grave).then_some(usage as u32)
    }

    /// Puts a slot here; by whoever has the table for writing.
    pub(crate) fn put(&self, slot: &Slot) {
        let [low, high, extent, position, usage] = self.0;
        let key = slot.key.halves();
        low.store(key.0, Ordering::Relaxed);
        high.store(key.1, Ordering::Relaxed);
        extent.store(slot.extent, Ordering::Relaxed);
        let halves = |low, high| u64::from(low) | u64::from(high) << 32;
        position.store(halves(slot.segment, slot.body_low), Ordering::Relaxed);
        usage.store(halves(slot.used, slot.state), Ordering::Relaxed);
    }

    /// Takes away what is here; by whoever has the table for writing.
    pub(crate) fn clear(&self) {
        self.0[3].store(0, Ordering::Relaxed);
    }

    /// Notes a use at `now`. If the cell has got another slot meanwhile, the use may count for
    /// that.
    pub(crate) fn touch(&self, now: u32) {
        let [.., usage] = self.0;
        let noted = |word: u64| {
            // The lower half.
            let used = (word as u32).max(now);
            let state = (word >> 32) as u32;
            let more = state.checked_add(ONE_USE).unwrap_or(state) | UNSAVED;
            let new = u64::from(used) | u64::from(more) << 32;
            // Writes that change nothing would take the line away from other cores.
            (new != word).then_some(new)
        };
        // INVARIANTS 1 and 2: what others changed meanwhile stays, and comes before it.
        let mut word = usage.load(Ordering::Relaxed);
        for _ in 0..TOUCHES {
            let Some(new) = noted(word) else {
                return;
            };
            match usage.compare_exchange(word, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => word = other,
            }
        }
    }

    /// A copy of what must be saved, which from now on counts as saved; none if it is already.
    pub(crate) fn take_unsaved(&self) -> Option<Slot> {
        let [.., usage] = self.0;
        let is_due = |word: u64| (word >> 32) as u32 & (UNSAVED | GRAVE) == UNSAVED;
        if self.is_empty() || !is_due(usage.load(Ordering::Relaxed)) {
            return None;
        }
        // INVARIANT 2.
        self.take_flag(UNSAVED);
        Some(self.slot())
    }

    /// Notes that the record is on the disk; by whoever has the table for writing.
    pub(crate) fn land(&self) {
        self.take_flag(IN_FLIGHT);
    }

    /// Notes that the slices have their checksums; by whoever has the table for writing.
    pub(crate) fn verified(&self) {
        self.take_flag(UNVERIFIED);
    }

    fn take_flag(&self, flag: u32) {
        let [.., usage] = self.0;
        usage.fetch_and(!(u64::from(flag) << 32), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place {
        segment: 9,
        offset: (1 << 26) - 16,
        size: (1 << 26) - 16,
    };

    #[test]
    fn slot_keeps_place_and_length_beside_its_flags() {
        for len in [
            0,
            1,
            u64::from(u32::MAX),
            1 << 32,
            80 << 30,
            LEN_MAX,
            LEN_MAX + 1,
        ] {
            let slot = Slot::new(Key([1; 16]), PLACE, len, 7).with_hits(500);
            let len = len.min(LEN_MAX);
            let account = Account::new(SITES_MAX as u16 - 1, Role::Slice);
            let slot = slot.charged_to(Account::new(1, Role::Entry));
            let slot = slot.sliced().in_flight().unverified().charged_to(account);
            assert_eq!((slot.place(), slot.account()), (PLACE, account));
            assert_eq!(slot.disk_size(), len + u64::from(PLACE.size));
            assert_eq!((slot.body_len(), slot.hits(), slot.used), (len, 500, 7));
            assert!(slot.is_sliced() && slot.is_in_flight() && slot.is_unverified());
            assert!(!slot.is_grave());
        }
    }

    #[test]
    fn uses_are_counted_until_the_count_is_full() {
        let words = Words::default();
        let cell = Cell(&words);
        let slot = Slot::new(Key([1; 16]), PLACE, 0, 7).in_flight();
        cell.put(&slot.with_hits(u16::MAX - 1));
        cell.land();
        cell.touch(9);
        cell.touch(8);
        cell.touch(8);
        let slot = cell.slot();
        assert_eq!((slot.hits(), slot.used), (u16::MAX, 9));
        assert!(!slot.is_in_flight() && slot.place() == PLACE && slot.key == Key([1; 16]));
    }

    #[test]
    fn what_changed_is_taken_once() {
        let words = Words::default();
        let cell = Cell(&words);
        assert!(cell.is_empty());
        cell.put(&Slot::new(Key([1; 16]), PLACE, 0, 7));
        assert_eq!(cell.take_unsaved().map(|slot| slot.used), Some(7));
        assert!(cell.take_unsaved().is_none());
        cell.touch(9);
        assert_eq!(cell.take_unsaved().map(|slot| slot.used), Some(9));
        cell.put(&Slot::grave(Key([1; 16]), PLACE));
        assert!(cell.take_unsaved().is_none());
    }

    #[test]
    fn the_later_record_is_newer() {
        let at = |segment, offset| {
            Slot::new(
                Key([1; 16]),
                Place {
                    segment,
                    offset,
                    size: 96,
                },
                0,
                0,
            )
        };
        assert!(at(2, 64).is_newer_than(&at(1, 640)));
        assert!(at(1, 640).is_newer_than(&at(1, 64)));
        assert!(!at(1, 64).is_newer_than(&at(1, 64)));
    }
}
