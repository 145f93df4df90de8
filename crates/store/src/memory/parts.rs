//! A map of entries in parts.
//!
//! A hash table that grows moves all it has. One part is a small share of the entries, so whoever
//! adds one waits for no more than the move of that share.

use hashbrown::HashMap;

use super::Kept;
use crate::key::Key;

/// Parts of a shard. With ten million entries in memory a part has ten thousand, which move in a
/// third of a millisecond.
const PARTS: usize = 64;

/// Entries by their keys.
#[derive(Debug)]
pub(super) struct Parts {
    parts: Box<[HashMap<Key, Kept>]>,
    len: usize,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| HashMap::new()).collect(),
            len: 0,
        }
    }
}

impl Parts {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains_key(&self, key: &Key) -> bool {
        self.part(key).contains_key(key)
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Kept> {
        self.part(key).get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Kept> {
        self.part_mut(key).get_mut(key)
    }

    /// Adds an entry, of whose key there is none.
    pub(super) fn insert(&mut self, key: Key, kept: Kept) {
        let replaced = self.part_mut(&key).insert(key, kept);
        self.len += usize::from(replaced.is_none());
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Kept> {
        let removed = self.part_mut(key).remove(key)?;
        self.len -= 1;
        Some(removed)
    }

    /// The lowest bits chose the shard.
    fn number(key: &Key) -> usize {
        (key.mixed() >> 4) as usize % PARTS
    }

    fn part(&self, key: &Key) -> &HashMap<Key, Kept> {
        // The remainder is below the number of parts, the length of the boxed slice.
        &self.parts[Self::number(key)]
    }

    fn part_mut(&mut self, key: &Key) -> &mut HashMap<Key, Kept> {
        // As above.
        &mut self.parts[Self::number(key)]
    }
}
