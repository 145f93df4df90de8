//! The identity of an entry in a zone: 128 bits of a hash, made by whoever knows what a request is.
//!
//! The zone never sees the text that was hashed. Two texts with one hash would be one entry; with
//! 128 bits and ten million entries the chance of that is below 10^-24, and whoever cannot accept
//! it keeps the text in the head and compares.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

/// The name of an entry within its zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// The key of a text, by XXH3 with 128 bits.
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes).to_le_bytes())
    }

    /// Its first eight bytes and its last eight.
    #[inline]
    pub(crate) fn halves(&self) -> (u64, u64) {
        let all = u128::from_le_bytes(self.0);
        (all as u64, (all >> 64) as u64)
    }

    /// The key of these halves.
    #[inline]
    pub(crate) fn from_halves(low: u64, high: u64) -> Self {
        Self((u128::from(low) | u128::from(high) << 64).to_le_bytes())
    }

    /// Sixty-four well mixed bits, also of keys that were not made by [`Key::of`].
    #[inline]
    pub(crate) fn mixed(&self) -> u64 {
        let (low, high) = self.halves();
        let folded = low ^ high.rotate_left(32);
        // The multiplier is 2^64 divided by the golden ratio; it spreads neighbours apart.
        let spread = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        spread ^ (spread >> 29)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_equal_keys() {
        assert_eq!(Key::of(b"/a"), Key::of(b"/a"));
        assert_ne!(Key::of(b"/a"), Key::of(b"/b"));
    }

    #[test]
    fn key_prints_as_32_hexadecimal_digits() {
        let key = Key([0xab; 16]);
        assert_eq!(key.to_string(), "ab".repeat(16));
    }
}
