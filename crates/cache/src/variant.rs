//! Variants: answers of one key that differ by the request fields that their Vary names.
//!
//! The first answer of a key is stored under the key itself. Its head remembers its Vary and a hash
//! of the values of those fields. A request with other values looks under a second key, made of the
//! first and its own hash, and stores there. (nginx does the same; RFC 9111 §4.1 leaves the
//! mechanism open.)

use millpond_semantics::vary::variant_material;
use millpond_store::Key;

/// The hash of a variant; zero when there is no Vary.
pub type VariantHash = [u8; 16];

/// The values of a request's field, found by its name in any case.
pub type FieldLookup<'v> = &'v dyn Fn(&[u8]) -> Vec<&'v [u8]>;

/// The hash of the values that the fields in `vary` have in a request.
pub fn hash(primary: &Key, vary: &[u8], field: FieldLookup<'_>) -> VariantHash {
    let mut material = Vec::with_capacity(64);
    material.extend_from_slice(&primary.0);
    variant_material(vary, field, |part: &[u8]| material.extend_from_slice(part));
    Key::of(&material).0
}

/// The key that a variant other than the first is stored under.
pub fn key(variant: &VariantHash) -> Key {
    Key(*variant)
}
