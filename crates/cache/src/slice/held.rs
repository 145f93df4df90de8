//! Bytes of a body in slices that the store has, for who copies them elsewhere.
//!
//! A slice counts only if its record says that it is of this body: keys are hashes. What the index
//! promises may be gone when it is read, and then there is none of it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use millpond_store::{Region, Zone};

use crate::head::SliceSet;

/// True if the store has all slices of a body, as far as its index knows.
pub fn is_whole(store: &Zone, set: &SliceSet) -> bool {
    let peeks = store.peeks();
    (0..set.count()).all(|index| peeks.is_there(&set.key(store.keys(), index)))
}

/// The bytes of a part of a body; none unless the store has all of them. Waits for the disk.
pub fn read(store: &Zone, set: &SliceSet, part: Range<u64>) -> Option<Bytes> {
    let mut out = BytesMut::with_capacity(usize::try_from(part.end.checked_sub(part.start)?).ok()?);
    let mut at = part.start;
    while at < part.end {
        let index = set.index_of(at);
        let span = set.span(index);
        let entry = store.find(&set.key(store.keys(), index))?;
        let is_ours = set.is_record(entry.head(), index) && entry.len() == span.end - span.start;
        if !is_ours || span.is_empty() {
            return None;
        }
        let end = span.end.min(part.end);
        append(&mut out, entry.regions(at - span.start..end - span.start))?;
        at = end;
    }
    Some(out.freeze())
}

/// Appends bytes of the store; none if they cannot be read. Waits for the disk.
pub fn append(out: &mut BytesMut, regions: impl IntoIterator<Item = Region>) -> Option<()> {
    for region in regions {
        match region {
            Region::Memory(bytes) => out.extend_from_slice(&bytes),
            Region::File { file, offset, len } => {
                let from = out.len();
                out.resize(from + usize::try_from(len).ok()?, 0);
                file.read_exact_at(out.get_mut(from..)?, offset).ok()?;
            }
        }
    }
    Some(())
}
