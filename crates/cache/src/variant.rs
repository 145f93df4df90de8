//! Variants: answers of one key that differ by the request fields that their Vary names.
//!
//! The first answer of a key is stored under the key itself. Its head remembers its Vary, what the
//! request said in those fields, and a random seed. A request that says something else looks under
//! a second key, made of the first, the seed and what it says, and stores there. (nginx does the
//! same, without a seed; RFC 9111 §4.1 leaves the mechanism open.)
//!
//! 1. A variant is found only by a request that says the same, compared whole and not by a hash.
//! 2. When the first entry is gone, or was one for all, its successor has a new seed: variants that
//!    were stored before are never found again. So what removes the first entry removes all.
//! 3. A variant that is found marks the first entry used, which therefore lives as long.

use bytes::Bytes;
use millpond_semantics::vary::{Spelling, variant_material};
use millpond_store::{Key, Keys};

/// Properties that all variants of a key have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Siblings {
    /// Names of the fields that the variants differ in.
    pub vary: Bytes,
    /// Seed that the variants' keys are made with.
    pub seed: u64,
}

/// Key that an answer is stored under, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariantKey {
    /// The key in the store.
    pub key: Key,
    /// The seed of the entry that was found there or under the first key; zero without one.
    pub seed: u64,
}

impl VariantKey {
    /// The key of a first answer.
    pub fn first(key: Key) -> VariantKey {
        VariantKey { key, seed: 0 }
    }

    /// The key of a variant other than the first, by the seed and what a request says.
    pub fn of(keys: &Keys, primary: &Key, (seed, variant): (u64, &[u8])) -> VariantKey {
        let mut text = Vec::with_capacity(24 + variant.len());
        text.extend_from_slice(&primary.0);
        text.extend_from_slice(&seed.to_le_bytes());
        text.extend_from_slice(variant);
        let key = keys.of_part(&text);
        VariantKey { key, seed }
    }
}

/// The fields of a request, by which variants are selected.
#[derive(Clone, Copy)]
pub struct RequestFields<'r> {
    /// The values of a field, found by its name in any case.
    pub lookup: &'r dyn Fn(&[u8]) -> Vec<&'r [u8]>,
    /// Spellings that count as the same.
    pub spelling: Spelling,
}

impl RequestFields<'_> {
    /// Values of the fields that `vary` names, as the request has them.
    pub fn variant(&self, vary: &[u8]) -> Bytes {
        let mut material = Vec::with_capacity(64);
        variant_material(vary, self.spelling, self.lookup, &mut material);
        Bytes::from(material)
    }
}
