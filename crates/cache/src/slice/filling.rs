//! One slice while it arrives: what the store has of it, and what is only in memory.
//!
//! ```text
//!   0 ........... view ......      from ........ from + memory ...... len
//!   written to the store     gap   in memory only
//! ```
//!
//! A slice that is filled from its start goes to the store as it arrives, and is read through the
//! view of its writer. One that is begun further on waits in memory for its beginning.
//!
//! 1. What was readable stays readable as long as the slice lives.
//! 2. Memory is at most the slice.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use millpond_store::{Region, View};

/// A slice that arrives.
#[derive(Debug)]
pub struct Filling {
    /// Range of the slice in the body.
    span: Range<u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    view: Option<View>,
    /// Offset in the slice at which the bytes in memory begin.
    from: u64,
    memory: Vec<Bytes>,
    memory_len: u64,
}

impl Filling {
    /// A slice at `span` of the body, whose bytes come from `start` on.
    pub fn new(span: Range<u64>, start: u64) -> Self {
        let state = State {
            from: start.saturating_sub(span.start),
            ..State::default()
        };
        Filling {
            span,
            state: Mutex::new(state),
        }
    }

    /// Range of the slice in the body.
    pub fn span(&self) -> &Range<u64> {
        &self.span
    }

    /// Bytes come through this view, from the start of the slice on.
    pub fn set_view(&self, view: View) {
        self.state().view = Some(view);
    }

    /// Adds bytes to those in memory.
    pub fn push(&self, bytes: Bytes) {
        let mut state = self.state();
        state.memory_len += bytes.len() as u64;
        state.memory.push(bytes);
    }

    /// The bytes in memory, in order, to be written behind the others.
    pub fn memory(&self) -> Vec<Bytes> {
        self.state().memory.clone()
    }

    /// Offset in the body at which the bytes in memory begin.
    pub fn memory_start(&self) -> u64 {
        self.span.start + self.state().from
    }

    /// Offset in the body at which the bytes in memory end.
    pub fn memory_end(&self) -> u64 {
        let state = self.state();
        self.span.start + state.from + state.memory_len
    }

    /// Regions of a range of the body that can be read, from its start on; nothing if its first
    /// byte is not there.
    pub fn regions(&self, range: Range<u64>) -> Vec<Region> {
        let state = self.state();
        if range.start < self.span.start || range.start >= self.span.end {
            return Vec::new();
        }
        let from = range.start - self.span.start;
        let to = range.end.min(self.span.end) - self.span.start;
        if let Some(view) = &state.view
            && from < view.len()
        {
            return view.regions(from..to.min(view.len()));
        }
        state.memory_regions(from..to)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn memory_regions(&self, range: Range<u64>) -> Vec<Region> {
        let mut regions = Vec::new();
        if range.start < self.from {
            return regions;
        }
        let mut at = self.from;
        for bytes in &self.memory {
            let end = at + bytes.len() as u64;
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from < to {
                // Both lie within these bytes, whose length is a `usize`.
                let part = bytes.slice((from - at) as usize..(to - at) as usize);
                regions.push(Region::Memory(part));
            }
            at = end;
        }
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(filling: &Filling, range: Range<u64>) -> String {
        let regions = filling
            .regions(range)
            .into_iter()
            .map(|region| match region {
                Region::Memory(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                Region::File { .. } => panic!("nothing was written"),
            });
        regions.collect()
    }

    #[test]
    fn bytes_in_memory_are_read_from_where_they_begin() {
        let filling = Filling::new(100..110, 104);
        assert_eq!(text(&filling, 104..110), "");
        filling.push(Bytes::from_static(b"45"));
        filling.push(Bytes::from_static(b"678"));
        assert_eq!(text(&filling, 104..110), "45678");
        assert_eq!(text(&filling, 105..107), "56");
        assert_eq!(text(&filling, 107..300), "78");
        assert_eq!(text(&filling, 103..110), "");
        assert_eq!(text(&filling, 109..110), "");
        assert_eq!(text(&filling, 90..110), "");
        assert_eq!((filling.memory_start(), filling.memory_end()), (104, 109));
    }
}
