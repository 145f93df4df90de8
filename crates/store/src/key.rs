//! The identity of an entry in a zone: 128 bits, made of a text under a secret of the zone.
//!
//! Texts of keys come from clients. With a hash that everybody can compute, whoever chooses a part
//! of a text finds in no time another with the same key, or thousands that stand in one place of
//! every table. So keys are made by a pseudorandom function, under a secret that is drawn when the
//! zone is made and kept in its superblock: nobody who does not have it can tell what meets what.
//!
//! It is SipHash-1-3 with 128 bits, as the standard library's maps use it with 64: of the keyed
//! functions that are believed to be pseudorandom it is the cheapest for texts of fifty to a
//! hundred bytes (19 to 30 ns; SipHash-2-4 takes 32 to 52, keyed BLAKE3 65 to 105, XXH3, which is
//! none, 4 to 7). Rounds are spared, and not bits: keys are seen in logs at most, by the operator.
//!
//! Two texts with one key would be one entry; with 128 bits and ten million entries the chance of
//! that is below 10^-24. Whoever knows the texts compares them nevertheless: it costs little, and
//! then nothing depends on the secret but speed.
//!
//! 1. Texts and parts of entries have functions of their own: no text has the key of a part.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

/// The name of an entry within its zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// A key for tests and benchmarks, whose texts nobody else chooses: that of no secret.
    pub fn of(bytes: &[u8]) -> Self {
        hash(&SipHasher13::new(), bytes)
    }

    /// The key's first eight bytes and its last eight.
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

    /// Sixty-four well mixed bits, also of keys that were not made by [`Keys`].
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

/// The secret that a zone's keys are made with. It is drawn once and never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The maker of a zone's keys.
#[derive(Clone, Copy)]
pub struct Keys {
    texts: SipHasher13,
    parts: SipHasher13,
}

impl Keys {
    /// Keys under a secret.
    pub(crate) fn new(secret: Secret) -> Self {
        let texts = SipHasher13::new_with_key(&secret.0);
        // INVARIANT 1. Whoever had this one would not have the other.
        let Key(derived) = hash(&texts, b"the secret of parts");
        let parts = SipHasher13::new_with_key(&derived);
        Self { texts, parts }
    }

    /// Keys that only a test may use, since everybody can make them.
    pub fn for_tests() -> Self {
        Self::new(Secret([0; 16]))
    }

    /// The key of the entry with this text.
    #[inline]
    pub fn of(&self, text: &[u8]) -> Key {
        hash(&self.texts, text)
    }

    /// The key of what belongs to an entry, such as a slice of its body, by what names it.
    #[inline]
    pub fn of_part(&self, name: &[u8]) -> Key {
        hash(&self.parts, name)
    }

    /// Key as of [`Keys::of_part`], where the name is in two pieces, of which the first is always
    /// as long.
    pub fn of_parts(&self, name: [&[u8]; 2]) -> Key {
        let mut hasher = self.parts;
        name.iter().for_each(|piece| hasher.write(piece));
        Key(hasher.finish128().as_bytes())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

#[inline]
fn hash(hasher: &SipHasher13, bytes: &[u8]) -> Key {
    Key(hasher.hash(bytes).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_equal_keys() {
        let keys = Keys::new(Secret([1; 16]));
        assert_eq!(keys.of(b"/a"), keys.of(b"/a"));
        assert_ne!(keys.of(b"/a"), keys.of(b"/b"));
    }

    /// Knowledge that somebody gains of one zone says nothing of another.
    #[test]
    fn another_secret_makes_other_keys() {
        let zones = [[1; 16], [2; 16]].map(|secret| Keys::new(Secret(secret)));
        let [one, other] = zones;
        assert_ne!(one.of(b"/a"), other.of(b"/a"));
        assert_ne!(one.of_part(b"/a"), other.of_part(b"/a"));
    }

    #[test]
    fn name_in_two_pieces_has_the_key_of_the_whole() {
        let keys = Keys::new(Secret([1; 16]));
        let name: Vec<u8> = (0..40).collect();
        let pieces = name.split_at(16);
        assert_eq!(keys.of_parts([pieces.0, pieces.1]), keys.of_part(&name));
    }

    /// INVARIANT 1.
    #[test]
    fn no_text_has_the_key_of_a_part() {
        let keys = Keys::new(Secret([1; 16]));
        assert_ne!(keys.of(b"/a"), keys.of_part(b"/a"));
    }

    /// The vectors of SipHash-1-3-128 that its reference implementation gives for the secret
    /// 00 01 … 0f and the texts 00 01 …, so that stores can be read by whoever has the format.
    #[test]
    fn keys_are_those_of_the_documented_function() {
        let secret: [u8; 16] = std::array::from_fn(|at| at as u8);
        let keys = Keys::new(Secret(secret));
        assert_eq!(keys.of(b"").to_string(), "e77ebcb22788a5befd62db6add303001");
        let text: Vec<u8> = (0..15).collect();
        assert_eq!(
            keys.of(&text).to_string(),
            "c17e5505b2bd526c2921cdec1e7e0109"
        );
    }

    #[test]
    fn key_prints_as_32_hexadecimal_digits() {
        let key = Key([0xab; 16]);
        assert_eq!(key.to_string(), "ab".repeat(16));
    }

    #[test]
    fn secrets_are_not_printed() {
        let secret = Secret([0xab; 16]);
        let printed = format!("{secret:?} {:?}", Keys::new(secret));
        assert_eq!(printed, "Secret Keys");
    }
}
