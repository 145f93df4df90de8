//! The name of what is remembered of a key.
//!
//! Two texts may have one key: not by chance, and not by design of a client (the key is made with
//! a secret), but nothing is to depend on that. An entry has its text in its head, which is
//! compared. What is remembered beside entries (that answers may not be stored, that an origin
//! fails, how often there was a miss) is small and of many keys, so instead of the text it is named
//! by a second key, made of both. So no text is given what was learnt of another.

use millpond_store::{Key, Keys};

/// Name for a key and its text together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyMark(Key);

impl KeyMark {
    /// The name for what is remembered of a key, of the first answer or of another variant, whose
    /// cache key has this text.
    pub fn of(keys: &Keys, key: &Key, text: &[u8]) -> KeyMark {
        KeyMark(keys.of_parts([&key.0, text]))
    }

    /// Key that tables have for the mark.
    pub(crate) fn key(&self) -> &Key {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_one_key_have_marks_of_their_own() {
        let keys = Keys::for_tests();
        let key = Key([7; 16]);
        let mark = |text: &[u8]| KeyMark::of(&keys, &key, text);
        assert_eq!(mark(b"/a"), mark(b"/a"));
        assert_ne!(mark(b"/a"), mark(b"/b"));
        assert_ne!(mark(b"/a"), KeyMark::of(&keys, &Key([8; 16]), b"/a"));
    }
}
