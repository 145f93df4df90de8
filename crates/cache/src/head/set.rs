//! Numbering of a body's slices: the slice that holds a byte, and the key under which the store has
//! it.
//!
//! The head of a slice's record says whose it is, for whoever looks at the zone from outside:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | version | 130: no head of an answer begins with it |
//! | 1 | 16 | owner | key of the entry |
//! | 17 | 16 | generation | |
//! | 33 | 8 | index | which slice, little-endian |
//! | 41 | | site | the name of the entry's site |
//!
//! Version 129 has no site.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use millpond_store::{Key, Keys};

use crate::head::SliceSet;

const RECORD_VERSION: u8 = 130;
const NAMELESS_VERSION: u8 = 129;
const INDEX_AT: usize = 33;
const SITE_AT: usize = 41;

impl SliceSet {
    /// Number of slices that the body has.
    pub fn count(&self) -> u64 {
        self.total.div_ceil(self.size.max(1))
    }

    /// The slice that holds a byte.
    pub fn index_of(&self, position: u64) -> u64 {
        // A size is never 0 (`StoredHead::decode`, `Slicing`).
        position.checked_div(self.size).unwrap_or(0)
    }

    /// The bytes of a slice; empty behind the end of the body.
    pub fn span(&self, index: u64) -> Range<u64> {
        let start = index.saturating_mul(self.size).min(self.total);
        start..start.saturating_add(self.size).min(self.total)
    }

    /// End of the slice that holds the byte before `end`.
    pub fn round_up(&self, end: u64) -> u64 {
        match end.checked_sub(1) {
            Some(last) => self.span(self.index_of(last)).end,
            None => 0,
        }
    }

    /// The key of a slice.
    pub fn key(&self, keys: &Keys, index: u64) -> Key {
        let mut material = [0; 24];
        material[..16].copy_from_slice(&self.generation);
        material[16..].copy_from_slice(&index.to_le_bytes());
        keys.of_part(&material)
    }

    /// True if the head of a record is that of this body's slice, whatever key it was found under.
    pub(crate) fn is_record(&self, head: &[u8], index: u64) -> bool {
        let index_at = head.get(INDEX_AT..SITE_AT);
        generation(head) == Some(self.generation) && index_at == Some(&index.to_le_bytes()[..])
    }

    /// The head of a slice's record, for an entry and its site.
    pub fn record_head(&self, (owner, site): (&Key, &[u8]), index: u64) -> Bytes {
        let mut head = BytesMut::with_capacity(SITE_AT + site.len());
        head.put_u8(RECORD_VERSION);
        head.put_slice(&owner.0);
        head.put_slice(&self.generation);
        head.put_u64_le(index);
        head.put_slice(site);
        head.freeze()
    }
}

/// The entry that a slice's record belongs to; `None` for the head of an answer.
pub(crate) fn owner(record_head: &[u8]) -> Option<Key> {
    site(record_head)?;
    Some(Key(*record_head.get(1..)?.first_chunk()?))
}

/// The generation that a slice's record belongs to; `None` for the head of an answer.
pub(crate) fn generation(record_head: &[u8]) -> Option<[u8; 16]> {
    site(record_head)?;
    record_head.get(17..)?.first_chunk().copied()
}

/// The site of the entry that a slice's record belongs to, empty if it names none; `None` for the
/// head of an answer.
pub(crate) fn site(record_head: &[u8]) -> Option<&[u8]> {
    let site = record_head.get(SITE_AT..)?;
    match record_head.first() {
        Some(&RECORD_VERSION) => Some(site),
        Some(&NAMELESS_VERSION) if site.is_empty() => Some(site),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(total: u64, size: u64) -> SliceSet {
        SliceSet {
            generation: [1; 16],
            total,
            size,
        }
    }

    #[test]
    fn slices_cover_a_body_without_gap_or_overlap() {
        for (total, size) in [
            (0, 4),
            (1, 4),
            (4, 4),
            (10, 4),
            (12, 4),
            (7, 1),
            (u64::MAX, 9),
        ] {
            let set = set(total, size);
            let mut at = 0;
            for index in 0..4 {
                let span = set.span(index);
                assert_eq!(span.start, at, "{total} {size} {index}");
                assert!(span.end <= total);
                for position in span.clone() {
                    assert_eq!(set.index_of(position), index);
                    assert_eq!(set.round_up(position + 1), span.end);
                }
                at = span.end;
            }
        }
        assert!(set(10, 4).span(u64::MAX).is_empty());
    }

    #[test]
    fn the_record_of_a_slice_names_its_entry() {
        let key = Key::of(b"entry");
        let head = set(10, 4).record_head((&key, b"one"), 2);
        assert_eq!((owner(&head), site(&head)), (Some(key), Some(&b"one"[..])));
        assert_eq!(generation(&head), Some([1; 16]));
        assert!(set(10, 4).is_record(&head, 2) && !set(10, 4).is_record(&head, 1));
        let other = SliceSet {
            generation: [2; 16],
            ..set(10, 4)
        };
        assert!(!other.is_record(&head, 2) && !set(10, 4).is_record(b"", 2));
        assert_eq!((owner(&head[..40]), site(&head[..40])), (None, None));
        let mut nameless = head[..SITE_AT].to_vec();
        nameless[0] = NAMELESS_VERSION;
        assert_eq!(
            (owner(&nameless), site(&nameless)),
            (Some(key), Some(&b""[..]))
        );
        assert_eq!(owner(b""), None);
        assert_eq!(owner(&[3; 41]), None);
        let keys = Keys::for_tests();
        assert_ne!(set(10, 4).key(&keys, 1), set(10, 4).key(&keys, 2));
    }
}
