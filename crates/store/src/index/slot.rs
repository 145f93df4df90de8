//! An index entry: forty bytes that say where a record stands, how large it is, and its use.
//!
//! A [`Slot`] is a copy; the table holds [`Cell`]s, whose use can be noted through a shared
//! reference. Both have the same fields:
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
//! 1. Flags other than `UNSAVED` change only with the table locked for writing, so that
//!    a use that is noted meanwhile cannot bring an older one back.
//! 2. A use that is noted is saved: `UNSAVED` is set after it, and taken away before it is read.
//! 3. Two uses at one time may count as one.

use std::sync::atomic::{AtomicU32, Ordering};

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
/// It is a part of another entry.
const SLICE: u32 = 1 << 6;
/// One use.
const ONE_USE: u32 = 1 << 16;

const _: () = assert!(size_of::<Slot>() == 40 && size_of::<Cell>() == 40);
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

    /// What says that records of the key before `place` do not count.
    pub(crate) fn grave(key: Key, place: Place) -> Self {
        let mut slot = Self::new(key, place, 0, u32::MAX);
        slot.state = GRAVE;
        slot
    }

    /// Where the entry's record stands.
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

    /// Whose the entry is.
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

    /// With this many uses.
    pub(crate) fn with_hits(mut self, hits: u16) -> Self {
        self.state = (self.state & 0xffff) | u32::from(hits) << 16;
        self
    }

    /// Marks that its use is in the file of uses as it is.
    pub(crate) fn saved(mut self) -> Self {
        self.state &= !UNSAVED;
        self
    }

    /// Whether the slices' checksums must be compared before use.
    pub(crate) fn is_unverified(&self) -> bool {
        self.state & UNVERIFIED != 0
    }

    /// Whether the record is not on the disk yet.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.state & IN_FLIGHT != 0
    }

    /// Whether the body is in slices.
    pub(crate) fn is_sliced(&self) -> bool {
        self.state & SLICED != 0
    }

    /// How often it was used; 65535 stands for more, too. Halved when it is written again.
    pub(crate) fn hits(&self) -> u16 {
        // The upper half of 32 bits.
        (self.state >> 16) as u16
    }

    /// Whether it only says that older records do not count.
    pub(crate) fn is_grave(&self) -> bool {
        self.state & GRAVE != 0
    }

    /// Whether its record stands behind that of `other` in the log.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        let order = |slot: &Self| (slot.segment, slot.extent & UNIT_MASK);
        order(self) > order(other)
    }
}

/// An index entry as the table holds it.
#[derive(Debug)]
pub(crate) struct Cell {
    key: Key,
    extent: u64,
    segment: u32,
    body_low: u32,
    used: AtomicU32,
    state: AtomicU32,
}

impl Cell {
    /// An empty slot.
    pub(crate) const fn empty() -> Self {
        Self {
            key: Key([0; 16]),
            extent: 0,
            segment: 0,
            body_low: 0,
            used: AtomicU32::new(0),
            state: AtomicU32::new(0),
        }
    }

    /// The entry's name.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Whether nothing is here, not even a grave.
    pub(crate) fn is_empty(&self) -> bool {
        self.segment == 0
    }

    /// A copy.
    pub(crate) fn slot(&self) -> Slot {
        Slot {
            key: self.key,
            extent: self.extent,
            segment: self.segment,
            body_low: self.body_low,
            used: self.used.load(Ordering::Relaxed),
            state: self.state.load(Ordering::Relaxed),
        }
    }

    /// Notes a use at `now`.
    pub(crate) fn touch(&self, now: u32) {
        // Writes that change nothing would take the line away from other cores.
        if self.used.load(Ordering::Relaxed) < now {
            self.used.store(now, Ordering::Relaxed);
        }
        let state = self.state.load(Ordering::Relaxed);
        let more = state.checked_add(ONE_USE).unwrap_or(state) | UNSAVED;
        if more != state {
            // INVARIANT 2.
            self.state.store(more, Ordering::Release);
        }
    }

    /// A copy of what must be saved, which from now on counts as saved; none if it is already.
    pub(crate) fn take_unsaved(&self) -> Option<Slot> {
        let is_due = |state: u32| state & (UNSAVED | GRAVE) == UNSAVED;
        if self.is_empty() || !is_due(self.state.load(Ordering::Relaxed)) {
            return None;
        }
        // INVARIANT 2.
        self.state.fetch_and(!UNSAVED, Ordering::AcqRel);
        Some(self.slot())
    }

    /// Notes that the record is on the disk.
    pub(crate) fn land(&mut self) {
        *self.state.get_mut() &= !IN_FLIGHT;
    }

    /// Notes that the slices have their checksums.
    pub(crate) fn verified(&mut self) {
        *self.state.get_mut() &= !UNVERIFIED;
    }
}

impl From<Slot> for Cell {
    fn from(slot: Slot) -> Self {
        Self {
            key: slot.key,
            extent: slot.extent,
            segment: slot.segment,
            body_low: slot.body_low,
            used: AtomicU32::new(slot.used),
            state: AtomicU32::new(slot.state),
        }
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
        let mut cell = Cell::from(Slot::new(Key([1; 16]), PLACE, 0, 7).with_hits(u16::MAX - 1));
        cell.land();
        cell.touch(9);
        cell.touch(8);
        cell.touch(8);
        let slot = cell.slot();
        assert_eq!((slot.hits(), slot.used), (u16::MAX, 9));
    }

    #[test]
    fn what_changed_is_taken_once() {
        let cell = Cell::from(Slot::new(Key([1; 16]), PLACE, 0, 7));
        assert_eq!(cell.take_unsaved().map(|slot| slot.used), Some(7));
        assert!(cell.take_unsaved().is_none());
        cell.touch(9);
        assert_eq!(cell.take_unsaved().map(|slot| slot.used), Some(9));
        assert!(
            Cell::from(Slot::grave(Key([1; 16]), PLACE))
                .take_unsaved()
                .is_none()
        );
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
