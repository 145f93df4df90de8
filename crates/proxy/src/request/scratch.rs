//! Memory in which values are put together, and values that were made a moment ago.
//!
//! 1. A buffer that is lent is empty, and may be lent again before it comes back.

use std::cell::{Cell, RefCell};

use bytes::Bytes;

/// Capacity up to which the buffer of evaluations is kept (arbitrary: longer values are rare).
const SCRATCH_KEPT: usize = 4096;

thread_local! {
    /// Memory in which values are put together before they are copied out in one piece of the right
    /// size.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Returns what `write` writes, in one piece of the right size.
pub fn put_together(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    with_scratch(|scratch| {
        write(scratch);
        Bytes::copy_from_slice(scratch)
    })
}

/// Short values that were evaluated last: the same few come again and again.
const RECENT_VALUES: usize = 32;
/// Bytes of a value that is kept at most.
const RECENT_LEN: usize = 32;

thread_local! {
    static RECENT: RefCell<[Bytes; RECENT_VALUES]> =
        const { RefCell::new([const { Bytes::new() }; RECENT_VALUES]) };
}

/// The value as bytes of their own, or those of the same value that was made before.
pub(crate) fn kept_or_copied(value: &[u8]) -> Bytes {
    let (Some(first), Some(last)) = (value.first(), value.last()) else {
        return Bytes::new();
    };
    if value.len() > RECENT_LEN {
        return Bytes::copy_from_slice(value);
    }
    let sum = value.len() * 7 + usize::from(*first) + usize::from(*last) * 3;
    RECENT.with_borrow_mut(|recent| {
        // The remainder is below the number of places.
        let place = &mut recent[sum % RECENT_VALUES];
        if place.as_ref() != value {
            *place = Bytes::copy_from_slice(value);
        }
        place.clone()
    })
}

/// Lends an empty buffer.
pub fn with_scratch<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    // Taken, not borrowed: a value may be made from others.
    let mut scratch = SCRATCH.take();
    let value = work(&mut scratch);
    if scratch.capacity() <= SCRATCH_KEPT {
        scratch.clear();
        SCRATCH.with(|it| it.set(scratch));
    }
    value
}
