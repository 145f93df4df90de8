//! Truth about a body: computed, or as another answer gave it.

use std::sync::Arc;

use crate::content::{Content, Whence, Wrong};

/// Bytes that a body must have.
#[derive(Clone, Debug)]
pub(super) enum Truth {
    /// Content of the built-in origin.
    Computed(Content),
    /// Bytes that were read whole before.
    Given(Arc<Vec<u8>>),
}

impl Truth {
    /// Length of the whole body.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Computed(content) => content.len(),
            Self::Given(body) => body.len() as u64,
        }
    }

    /// Compares bytes that stand at `offset`; the first that is wrong is told.
    fn check(&self, offset: u64, got: &[u8]) -> Result<(), Wrong> {
        let body = match self {
            Self::Computed(content) => return content.check(offset, got),
            Self::Given(body) => body,
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let right = body.get(start..).unwrap_or_default();
        let same = right
            .iter()
            .zip(got)
            .take_while(|(right, got)| right == got);
        let first = same.count();
        let Some(rest) = got.get(first..).filter(|rest| !rest.is_empty()) else {
            return Ok(());
        };
        let whence = if rest.iter().take(64).all(|byte| *byte == 0) {
            Whence::Zeros
        } else {
            Whence::Nowhere
        };
        Err(Wrong {
            at: offset + first as u64,
            whence,
        })
    }
}

/// The piece of a body that must come.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) truth: Truth,
    pub(super) start: u64,
    /// Offset behind the last byte.
    pub(super) end: u64,
}

impl Piece {
    /// Length of the piece.
    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Compares bytes that come after `read` others.
    pub(super) fn check(&self, read: u64, got: &[u8]) -> Result<(), Wrong> {
        self.truth.check(self.start + read, got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_differ_from_the_given_ones_are_told_with_their_place() {
        let truth = Truth::Given(Arc::new(b"0123456789".to_vec()));
        for (offset, got, at) in [
            (0, "0123456789", None),
            (4, "456", None),
            (4, "", None),
            (4, "46", Some(5)),
            (8, "89a", Some(10)),
            (20, "a", Some(20)),
        ] {
            let wrong = truth.check(offset, got.as_bytes()).err();
            assert_eq!(wrong.map(|wrong| wrong.at), at, "{offset} {got}");
        }
    }
}
