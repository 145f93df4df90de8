//! Changes to what sites hold that are added up first.
//!
//! Loading a segment changes thousands of entries, and others see the sum of all of them.

use super::{Sum, sum_of};
use crate::index::Slot;

/// Changes that are added up before others see them.
#[derive(Default)]
pub(crate) struct Batch {
    /// Sums by number.
    pub(super) sums: Vec<Sum>,
}

impl Batch {
    /// An entry is in the index.
    pub(crate) fn came(&mut self, slot: &Slot) {
        self.add(slot, sum_of(slot));
    }

    /// An entry that was found in the log made way for a newer one.
    pub(crate) fn left(&mut self, slot: &Slot) {
        self.add(slot, sum_of(slot).map(u64::wrapping_neg));
    }

    fn add(&mut self, slot: &Slot, sum: Sum) {
        let number = usize::from(slot.account().number());
        if number >= self.sums.len() {
            self.sums.resize(number + 1, [0; 4]);
        }
        if let Some(row) = self.sums.get_mut(number) {
            for (to, from) in row.iter_mut().zip(sum) {
                *to = to.wrapping_add(from);
            }
        }
    }
}
