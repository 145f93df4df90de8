//! The source of what is drawn: xorshift64*, from a seed.
//!
//! It need not be good, only always the same: no library is used, as a new version of one might
//! draw otherwise.

/// Generator of what is drawn.
pub struct Random(u64);

impl Random {
    /// Draws that follow from a seed, which must not be zero.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count.max(1)).unwrap_or(1);
        usize::try_from(self.next() % count).unwrap_or(0)
    }

    /// One of `all`.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let index = self.below(all.len());
        &all[index]
    }

    /// One of some texts.
    pub fn word<'a>(&mut self, all: &[&'a str]) -> &'a str {
        let index = self.below(all.len());
        all[index]
    }

    /// True in so many of a hundred draws.
    pub fn happens(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Several of `all`, as often as it comes; at least `min`, at most `max`.
    pub fn several<T: Clone>(&mut self, all: &[T], min: usize, max: usize) -> Vec<T> {
        let count = min + self.below(max - min + 1);
        (0..count).map(|_| self.pick(all).clone()).collect()
    }
}
