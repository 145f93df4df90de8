//! The journal of a zone: each disk has a copy of it.
//!
//! A record is acknowledged when every disk in use has it, or has been given up. At the start the
//! records of all disks are taken together; a disk that comes back gets what the others have, and
//! they get what it has, before its entries can be found.
//!
//! 1. A record that was acknowledged is on each disk that is in use, unless the disk fails.
//! 2. What cannot be read of one copy is told only if no other disk has a whole one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hashbrown::HashSet;

use super::Zone;
use crate::journal::{Journal, JournalError};
use crate::lock::read;
use crate::volume::Volume;

impl Zone {
    /// Takes the content that the journal had when the zone was opened, or taken back; to be asked
    /// for once.
    pub fn take_journal(&self) -> Journal {
        let live = self.live.load_full();
        let mut found: Vec<Journal> = live.volumes.iter().map(|it| it.take_journal()).collect();
        if found.len() == 1 {
            return found.swap_remove(0);
        }
        let mut all = Journal {
            read_ms: self.clock.now(),
            ..Journal::default()
        };
        let mut known = HashSet::new();
        for journal in &found {
            let unknown = journal
                .records
                .iter()
                .filter(|record| known.insert(*record));
            all.records.extend(unknown.cloned());
        }
        // INVARIANT 2. A disk without records may have none because it is new.
        let is_whole = |journal: &Journal| !journal.is_damaged && !journal.records.is_empty();
        let is_damaged = found.iter().any(|journal| journal.is_damaged);
        all.is_damaged = is_damaged && !found.iter().any(is_whole);
        all
    }

    /// Appends a record. It is durable when this returns; waits for the disks.
    pub fn note(&self, record: &Bytes) -> Result<(), JournalError> {
        self.note_all(std::slice::from_ref(record))
    }

    /// Appends records, all or none on each disk, for the price of one. They are durable when this
    /// returns; waits for the disks.
    pub fn note_all(&self, records: &[Bytes]) -> Result<(), JournalError> {
        if records.is_empty() {
            return Ok(());
        }
        self.on_journals(|volume| volume.note_all(records))
    }

    /// Puts records in the place of all that the journal holds. They are durable when this returns;
    /// after an error the old ones, or both, are there. Waits for the disks.
    pub fn rewrite_journal(&self, records: &[Bytes]) -> Result<(), JournalError> {
        self.on_journals(|volume| volume.rewrite_journal(records))
    }

    /// INVARIANT 1.
    fn on_journals(
        &self,
        change: impl Fn(&Volume) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let _noting = read(&self.noting);
        self.noted.fetch_add(1, Ordering::AcqRel);
        let live = self.live.load_full();
        if let [volume] = live.volumes.as_slice() {
            return change(volume);
        }
        let mut has_it = false;
        let mut refused = Vec::new();
        for volume in &live.volumes {
            match change(volume) {
                Ok(()) => has_it = true,
                Err(error @ JournalError::Disk(_)) => refused.push((volume, error)),
                // The caller makes it fit, on all disks.
                Err(error) => return Err(error),
            }
        }
        match (has_it, refused.pop()) {
            (true, last) => {
                for (volume, error) in last.into_iter().chain(refused) {
                    volume.inner.health.fail(&error.to_string());
                }
                Ok(())
            }
            (false, Some((_, error))) => Err(error),
            (false, None) => Err(JournalError::Disk(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Gives each disk the records of all. The caller lets nobody note anything meanwhile.
    pub(super) fn even_journals(&self, volumes: &[Arc<Volume>]) {
        if volumes.len() < 2 {
            return;
        }
        let read = volumes.iter().map(|volume| volume.inner.journal_records());
        let held: Vec<_> = read.collect();
        let mut all: Vec<Bytes> = Vec::new();
        let mut known = HashSet::new();
        for record in held.iter().flatten().flatten() {
            if known.insert(record) {
                all.push(record.clone());
            }
        }
        // Damage stays where it is, for the next start to see, unless a whole copy is at hand.
        let has_whole = held.iter().flatten().any(|records| !records.is_empty());
        for (volume, records) in volumes.iter().zip(&held) {
            let is_even = records
                .as_ref()
                .is_some_and(|records| records.len() == all.len());
            let may_write = records.is_some() || has_whole;
            if is_even || all.is_empty() || !may_write {
                continue;
            }
            if let Err(error) = volume.rewrite_journal(&all) {
                volume.inner.health.fail(&error.to_string());
            }
        }
    }
}
