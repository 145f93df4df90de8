//! Homes of the keys of a shard, also while its table grows or shrinks.
//!
//! The home of a key is the part of all positions that its bits are of all bits, so that keys stand
//! in the order of their bits, however many positions there are. A table therefore changes its
//! number of positions in steps: a *frontier* goes through all bits, and what is on one side of it
//! stands as it did before, what is on the other as it will. Both sides are next to each other in
//! one place; nothing is there twice.
//!
//! ```text
//!   grows     ├─── low positions ───┤frontier├────── high positions ──────┤    it goes down
//!   shrinks   ├── low positions ──┤frontier├──────── high positions ──────┤    it goes up
//! ```
//!
//! 1. `low <= high`, so homes on the low side are before those on the high side, and a home is
//!    never before that of a key with smaller bits.
//! 2. What stands no further than [`REACH`] from its home has a position below
//!    [`Layout::positions`]: there is no way round from the last position to the first.

/// Distance from its home at which a key is not put into a cell any more. Keys are random: in a
/// table that is 85 % full one in 10^17 would stand as far, and at 91 %, while one that is late to
/// grow does so, one in 10^10 (the tail of a queue with one server that is as busy).
pub(super) const REACH: usize = 128;

/// Homes of a shard's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The number of homes that counts for keys before the frontier.
    pub(super) low: usize,
    /// The number that counts for others.
    pub(super) high: usize,
    /// The least bits of the keys on the high side.
    pub(super) frontier: u64,
}

impl Layout {
    /// One number of homes for all keys.
    pub(super) fn even(homes: usize) -> Self {
        Self {
            low: homes,
            high: homes,
            frontier: 0,
        }
    }

    /// Positions that may be taken, a few behind the last home among them.
    #[inline]
    pub(super) fn positions(&self) -> usize {
        match self.high {
            0 => 0,
            homes => homes + REACH,
        }
    }

    /// The home that bits would have on the low side.
    pub(super) fn low_home(&self, bits: u64) -> usize {
        // Less than the number of homes.
        ((u128::from(bits) * self.low as u128) >> 64) as usize
    }

    /// The home of bits.
    #[inline]
    pub(super) fn home(&self, bits: u64) -> usize {
        let homes = if bits < self.frontier {
            self.low
        } else {
            self.high
        };
        // Less than the number of homes.
        ((u128::from(bits) * homes as u128) >> 64) as usize
    }
}

/// The least bits whose home is `home`, if there are `homes`; the most bits that there are, for a
/// home behind the last.
pub(super) fn first_bits(home: usize, homes: usize) -> u64 {
    let first = ((home as u128) << 64).div_ceil((homes as u128).max(1));
    u64::try_from(first).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bits_are_those_before_which_the_home_is_another() {
        for homes in [1, 2, 8, 10, 999, 52_000] {
            let even = Layout::even(homes);
            for home in [0, 1, homes / 3, homes / 2, homes - 1] {
                let first = first_bits(home.min(homes - 1), homes);
                assert_eq!(even.home(first), home.min(homes - 1), "{home} of {homes}");
                let before = first.checked_sub(1).map(|bits| even.home(bits));
                assert_eq!(
                    before,
                    home.min(homes - 1).checked_sub(1),
                    "{home} of {homes}"
                );
            }
            assert_eq!(first_bits(homes, homes), u64::MAX);
            assert_eq!(even.home(u64::MAX), homes - 1);
        }
        assert_eq!(Layout::even(0).positions(), 0);
    }

    /// INVARIANT 1, for frontiers anywhere.
    #[test]
    fn homes_never_fall() {
        let bits = |at: u64| at << 56 | 0x1234;
        for frontier in [0, bits(1), bits(100), bits(255), u64::MAX] {
            let (low, high) = (1000, 1125);
            let layout = Layout {
                low,
                high,
                frontier,
            };
            let homes: Vec<usize> = (0..256).map(|at| layout.home(bits(at))).collect();
            assert!(homes.is_sorted(), "{homes:?}");
            assert!(homes.iter().all(|home| *home + REACH < layout.positions()));
        }
    }
}
