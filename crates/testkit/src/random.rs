//! Random numbers that follow from a seed, and numbers of the environment: what makes one run of a
//! test another one, or a longer one.

/// A generator of random numbers (splitmix64); the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number, smaller than `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// A part of `0..total` that is not empty; `total` is at least 2.
    pub fn part_of(&mut self, total: u64) -> std::ops::Range<u64> {
        let start = self.below(total - 1);
        start..start + 1 + self.below(total - start)
    }
}

/// The number in the variable `name` of the environment, or `default`.
pub fn number_from_env(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}
