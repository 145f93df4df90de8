//! A queue of names, some of them of entries that have left.
//!
//! Names stand in pieces of at most [`PIECE`], so that no change of the queue moves more than that.
//! A name that means nothing any more is taken out when its turn comes, or by [`Names::tidy`],
//! which goes through the queue a piece at a time.
//!
//! 1. No piece is empty.

use std::collections::VecDeque;

use crate::key::Key;

/// Names of a piece: what is looked up at a time, some ten microseconds.
const PIECE: usize = 256;

/// The name of an entry, and the serial number that tells it from others of its key.
pub(super) type Name = (Key, u32);

/// Names, the oldest in front.
#[derive(Debug, Default)]
pub(super) struct Names {
    pieces: VecDeque<VecDeque<Name>>,
    len: usize,
    /// The piece that is tidied next.
    hand: usize,
}

impl Names {
    /// Number of names.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// False if there is one.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the youngest.
    pub(super) fn push_back(&mut self, name: Name) {
        self.len += 1;
        match self.pieces.back_mut().filter(|piece| piece.len() < PIECE) {
            Some(piece) => piece.push_back(name),
            None => self.pieces.push_back(VecDeque::from([name])),
        }
    }

    /// Takes the oldest.
    pub(super) fn pop_front(&mut self) -> Option<Name> {
        let piece = self.pieces.front_mut()?;
        let name = piece.pop_front()?;
        if piece.is_empty() {
            self.pieces.pop_front();
            self.hand = self.hand.saturating_sub(1);
        }
        self.len -= 1;
        Some(name)
    }

    /// Keeps of the next piece what is current; with as many calls as there are pieces, of all.
    pub(super) fn tidy(&mut self, is_current: impl Fn(&Name) -> bool) {
        if self.hand >= self.pieces.len() {
            self.hand = 0;
        }
        let Some(piece) = self.pieces.get_mut(self.hand) else {
            return;
        };
        let before = piece.len();
        piece.retain(|name| is_current(name));
        self.len -= before - piece.len();
        self.join_with_next();
    }

    /// Joins small pieces, so that they do not add up, and goes on to the next piece.
    fn join_with_next(&mut self) {
        let len = |at: usize| self.pieces.get(at).map_or(PIECE, VecDeque::len);
        if len(self.hand) + len(self.hand + 1) <= PIECE {
            // The next is not tidied yet, so the hand stays before it.
            let rest = self.pieces.remove(self.hand + 1).unwrap_or_default();
            if let Some(piece) = self.pieces.get_mut(self.hand) {
                piece.extend(rest);
            }
        } else if len(self.hand) == 0 {
            self.pieces.remove(self.hand);
        } else {
            self.hand += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u32) -> Name {
        (Key::of(&number.to_le_bytes()), number)
    }

    fn drain(names: &mut Names) -> Vec<u32> {
        std::iter::from_fn(|| names.pop_front())
            .map(|name| name.1)
            .collect()
    }

    #[test]
    fn names_leave_in_the_order_in_which_they_came() {
        let mut names = Names::default();
        (0..2_000).for_each(|number| names.push_back(name(number)));
        assert_eq!(names.len(), 2_000);
        assert_eq!(drain(&mut names), (0..2_000).collect::<Vec<_>>());
        assert!(names.is_empty() && names.pieces.is_empty());
    }

    /// However many of the names mean nothing, and whatever comes and goes meanwhile.
    #[test]
    fn tidying_keeps_what_is_current_in_its_order() {
        for kept in [0, 1, 2, 5, 100, 300] {
            let is_current = |name: &Name| kept != 0 && name.1.is_multiple_of(kept);
            let mut names = Names::default();
            (0..5_000).for_each(|number| names.push_back(name(number)));
            let mut popped = Vec::new();
            for more in 5_000..5_100 {
                names.tidy(is_current);
                names.push_back(name(more));
                popped.extend(names.pop_front().map(|name| name.1));
                assert!(names.pieces.iter().all(|piece| !piece.is_empty()));
                assert!(names.pieces.iter().all(|piece| piece.len() <= PIECE));
            }
            let left = names.pieces.iter().map(VecDeque::len).sum::<usize>();
            assert_eq!(names.len(), left);
            popped.extend(drain(&mut names));
            assert!(popped.is_sorted(), "{kept}");
            let current = (0..5_100).filter(|number| is_current(&name(*number)));
            popped.retain(|number| is_current(&name(*number)));
            assert_eq!(popped, current.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_round_takes_out_all_that_mean_nothing_and_leaves_few_pieces() {
        let mut names = Names::default();
        (0..100_000).for_each(|number| names.push_back(name(number)));
        let pieces = names.pieces.len();
        for _ in 0..2 * pieces {
            names.tidy(|name| name.1.is_multiple_of(50));
        }
        assert_eq!(names.len(), 2_000);
        assert!(
            names.pieces.len() <= 2 * 2_000 / PIECE + 2,
            "{}",
            names.pieces.len()
        );
    }
}
