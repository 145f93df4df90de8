//! Positions in the log of a fleet: up to where a zone has taken the purges of all nodes.
//!
//! A position is noted in the record of the rules that were taken up to it, so that rule and
//! position cannot part in a crash. Where it is lost, purges are taken again: too much is purged,
//! never too little.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 16 | log | name of the log, which no other log has |
//! | 16 | 8 | sequence | the last entry that was taken |
//! | 24 | 8 | at | when the log got it, by the log's clock, in milliseconds since the epoch |

use bytes::{BufMut, BytesMut};

/// Bytes of a position in a record.
pub(crate) const LEN: usize = 32;

/// Place in the log of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Name of the log: one that is made anew has another.
    pub log: [u8; 16],
    /// Sequence of the last entry that was taken; 0 for none.
    pub sequence: u64,
    /// Time of that entry, or of an earlier one, by the clock of the log, milliseconds since 1970:
    /// up to then nothing can be missing. No node's clock has a say in it.
    pub at_ms: u64,
}

impl Position {
    /// True for one of the same log that stands there, or behind it.
    pub fn covers(&self, other: &Position) -> bool {
        self.log == other.log && self.sequence >= other.sequence
    }

    pub(crate) fn put(&self, out: &mut BytesMut) {
        out.put_slice(&self.log);
        out.put_u64_le(self.sequence);
        out.put_u64_le(self.at_ms);
    }

    pub(crate) fn read(bytes: &[u8; LEN]) -> Option<Position> {
        let (log, rest) = bytes.split_first_chunk::<16>()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        Some(Position {
            log: *log,
            sequence: u64::from_le_bytes(*sequence),
            at_ms: u64::from_le_bytes(rest.try_into().ok()?),
        })
    }
}
