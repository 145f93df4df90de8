//! The place where a book writes its rules down.
//!
//! A zone has it in its journal, on its disks. A model of a fleet has one in memory that fails when
//! it is told to, and runs the same book on it.

use std::sync::Arc;

use bytes::Bytes;
use millpond_store::{JournalError, Zone};

/// Records that outlive the process.
pub trait Notes {
    /// Appends records, all or none. They are durable when this returns.
    fn note_all(&self, records: &[Bytes]) -> Result<(), JournalError>;
    /// Puts records in the place of all that there are. They are durable when this returns; after
    /// an error the old ones, or both, are there.
    fn rewrite_journal(&self, records: &[Bytes]) -> Result<(), JournalError>;
}

impl Notes for Zone {
    fn note_all(&self, records: &[Bytes]) -> Result<(), JournalError> {
        Zone::note_all(self, records)
    }

    fn rewrite_journal(&self, records: &[Bytes]) -> Result<(), JournalError> {
        Zone::rewrite_journal(self, records)
    }
}

impl<N: Notes> Notes for Arc<N> {
    fn note_all(&self, records: &[Bytes]) -> Result<(), JournalError> {
        N::note_all(self, records)
    }

    fn rewrite_journal(&self, records: &[Bytes]) -> Result<(), JournalError> {
        N::rewrite_journal(self, records)
    }
}
