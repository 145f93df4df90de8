//! Bytes of an answer that wait for its client, as the reader of the upstream sees them.
//!
//! An answer that is not stored is in memory for its one client only. The writer notes how much of
//! it the client has not taken yet ([`Backlog::set`]); the body reads on into what it has of memory
//! already, and takes more only when nothing waits. So one read is held for a client that stalls,
//! and the upstream is slowed down by its own socket.
//!
//! ```text
//! upstream ──read, at most `most`──► inbox ──pieces, same memory──► writer ──► client
//!              ▲                                                      │
//!              └───────── new memory only when it is 0 ◄── backlog ◄──┘
//! ```
//!
//! Invariants:
//! 1. What is read of such an answer is in one allocation of at most [`Bound::most`] bytes, as far
//!    as whoever takes its pieces lets them go; a filter that keeps some has its own bound.
//! 2. A body that waits for its client is polled again when the client has taken something: the
//!    writer does so after each write.
//!
//! A body that nobody's writer reads (a subrequest's, one that is stored) has no backlog.

use std::cell::Cell;
use std::rc::Rc;

use millpond_conf::{Buffers, ByteSize};

/// The least that is read at once: what is read with a head may be as much, and less would cost
/// many calls (an eighth of what is read where nothing bounds it).
const LEAST: usize = 16 * 1024;

/// Bytes of one answer that wait for its client.
#[derive(Clone, Debug, Default)]
pub struct Backlog(Rc<Cell<usize>>);

impl Backlog {
    /// Notes how many there are.
    pub fn set(&self, bytes: usize) {
        self.0.set(bytes);
    }

    /// True when the client has taken everything.
    pub fn is_empty(&self) -> bool {
        self.0.get() == 0
    }
}

/// The memory of an answer for one client.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Bytes that may be held.
    pub most: usize,
    /// Bytes that the client has not taken.
    pub backlog: Backlog,
}

impl Bound {
    /// That of an answer that is read ahead of its client: all buffers, and the one of the head.
    pub fn read_ahead(buffers: Buffers, head_size: ByteSize) -> Self {
        let count = buffers.count as usize;
        let body = count.saturating_mul(buffers.size.as_usize());
        Self::new(body.saturating_add(head_size.as_usize()))
    }

    /// That of an answer that is passed on as it comes: the buffer of the head.
    pub fn passed_on(head_size: ByteSize) -> Self {
        Self::new(head_size.as_usize())
    }

    fn new(most: usize) -> Self {
        Bound {
            most: most.max(LEAST),
            backlog: Backlog::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_buffers_are_the_bound_and_no_less_than_a_read() {
        let table = [(0, LEAST), (LEAST, LEAST), (40_000, 40_000)];
        for (size, most) in table {
            let bound = Bound::passed_on(ByteSize(size as u64));
            assert_eq!(bound.most, most, "{size}");
            assert!(bound.backlog.is_empty());
        }
    }
}
