//! Memory of what has ended, for the next of its kind.
//!
//! A request that waits for nothing has ended before another begins on its worker, which takes its
//! memory over. Of those that wait for an upstream many run at once, and as many end one after
//! the other.
//!
//! 1. Of a kind no more than `SPARES_MAX` are kept.
//! 2. The owner of a kind empties what is kept: it holds nothing of what ended.

use std::cell::RefCell;

/// Most that are kept of a kind (arbitrary: requests that wait at once on a busy worker; with less
/// than a kilobyte each it is little memory).
const SPARES_MAX: usize = 64;

/// Emptied memory that the next of its kind takes instead of allocating.
#[derive(Debug)]
pub struct Spares<T>(RefCell<Vec<T>>);

impl<T> Spares<T> {
    /// An empty store.
    #[must_use]
    pub const fn new() -> Self {
        Spares(RefCell::new(Vec::new()))
    }

    /// The one that was kept last.
    pub fn take(&self) -> Option<T> {
        self.0.borrow_mut().pop()
    }

    /// Keeps one more, unless there are enough.
    pub fn keep(&self, spare: T) {
        let mut spares = self.0.borrow_mut();
        if spares.len() < SPARES_MAX {
            spares.push(spare);
        }
    }
}

impl<T> Default for Spares<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_last_is_taken_first_and_not_too_many_are_kept() {
        let spares = Spares::new();
        assert_eq!(spares.take(), None);
        (0..SPARES_MAX + 2).for_each(|spare| spares.keep(spare));
        for spare in (0..SPARES_MAX).rev() {
            assert_eq!(spares.take(), Some(spare));
        }
        assert_eq!(spares.take(), None);
    }
}
