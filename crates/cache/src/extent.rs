//! Extents: parts of a body that may each belong to another node of a fleet.
//!
//! ```text
//!   body     ├──0──┼──1──┼──2──┼──3──┼──4──┼──5──┼──6──┤   slices
//!            ├────── extent 0 ───┼────── extent 1 ─────┤
//! ```
//!
//! 1. No slice lies in two extents: an extent is as many whole slices as fit into its length, and
//!    one at least.
//! 2. The same length of extents and of slices makes the same extents everywhere.
//! 3. Numbers begin anew behind `NUMBERS` extents (4 TiB of 64 MiB each), which then have owners in
//!    common.

use std::num::NonZeroU16;
use std::ops::Range;

/// Extents with numbers of their own.
const NUMBERS: u64 = u16::MAX as u64;

/// The number of an extent, in two bytes, also where there may be none: futures carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentNumber(NonZeroU16);

impl ExtentNumber {
    /// The first extent's.
    pub const FIRST: ExtentNumber = ExtentNumber(NonZeroU16::MIN);

    /// The number of an extent that so many stand before. INVARIANT 3.
    fn behind(count: u64) -> ExtentNumber {
        // Less than `NUMBERS`.
        ExtentNumber(NonZeroU16::MIN.saturating_add((count % NUMBERS) as u16))
    }

    /// The number, from 0 on.
    pub fn get(self) -> u32 {
        u32::from(self.0.get()) - 1
    }
}

/// The way in which bodies are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// The most bytes of an extent.
    len: u64,
}

impl Extents {
    /// Extents of this length at most.
    pub fn of(len: u64) -> Extents {
        Extents { len }
    }

    /// Bytes of an extent of a body with slices of `size`. INVARIANT 1.
    fn len_for(self, size: u64) -> u64 {
        let size = size.max(1);
        (self.len / size).max(1).saturating_mul(size)
    }

    /// Number of the extent that has a byte.
    pub fn number(self, size: u64, at: u64) -> ExtentNumber {
        ExtentNumber::behind(at / self.len_for(size))
    }

    /// The first byte behind the extent that has a byte.
    pub fn end(self, size: u64, at: u64) -> u64 {
        let len = self.len_for(size);
        (at / len).saturating_add(1).saturating_mul(len)
    }

    /// True if an extent has all bytes of a range.
    pub fn has(self, size: u64, number: u32, range: &Range<u64>) -> bool {
        self.number(size, range.start).get() == number && range.end <= self.end(size, range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_may_be_missing_take_no_more_room() {
        assert_eq!(size_of::<Option<ExtentNumber>>(), size_of::<u16>());
        assert_eq!(ExtentNumber::FIRST.get(), 0);
        for (count, number) in [(0, 0), (1, 1), (65_534, 65_534), (65_535, 0), (65_536, 1)] {
            assert_eq!(ExtentNumber::behind(count).get(), number);
        }
    }

    #[test]
    fn extents_are_of_whole_slices() {
        // Length of extents and slices, a byte, and the number and the end of its extent.
        let cases = [
            (64, 16, 0, 0, 64),
            (64, 16, 63, 0, 64),
            (64, 16, 64, 1, 128),
            (64, 10, 59, 0, 60),
            (64, 10, 60, 1, 120),
            (64, 100, 99, 0, 100),
            (64, 100, 100, 1, 200),
            (64, 0, 64, 1, 128),
            (64, 16, 64 * NUMBERS + 5, 0, 64 * NUMBERS + 64),
            (u64::MAX, 1, u64::MAX, 1, u64::MAX),
        ];
        for (len, size, at, number, end) in cases {
            let extents = Extents::of(len);
            let found = (extents.number(size, at).get(), extents.end(size, at));
            assert_eq!(found, (number, end), "{len} {size} {at}");
        }
    }

    #[test]
    fn ranges_lie_in_one_extent_or_in_several() {
        let extents = Extents::of(64);
        for (range, number, expected) in [
            (0..64, 0, true),
            (0..0, 0, true),
            (0..65, 0, false),
            (64..65, 1, true),
            (64..65, 0, false),
            (60..70, 0, false),
        ] {
            assert_eq!(extents.has(16, number, &range), expected, "{range:?}");
        }
    }
}
