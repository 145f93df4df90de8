//! Files that were not understood, or are not to be used any more: they are renamed, and go when
//! their space is needed.
//!
//! 1. No byte of them is changed, and no name that is taken is given again.
//! 2. The superblock is renamed last: if the process ends before, the next one begins anew with the
//!    rest.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

use hashbrown::HashSet;

use super::{Opening, StoreError};
use crate::disk::{JOURNAL_NAME, SET_ASIDE, SUPERBLOCK_NAME, segment_number};
use crate::volume::Event;

/// Attempts to find a name for a file to be set aside.
const MAX_SET_ASIDE: u32 = 10_000;

/// Events about files that are set aside: one for each, or one by whoever asks for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reporting {
    Each,
    Together,
}

impl Opening {
    /// Sets a store aside whose keys were made without a secret. What it holds could be used, but
    /// then whoever knows how the keys are made could push entries out, or slow the zone down.
    pub(super) fn set_unkeyed_aside(&self) -> Result<(), StoreError> {
        let files = self.set_aside_all(Reporting::Together)?;
        (self.events)(&Event::Unkeyed {
            dir: self.dir.display().to_string(),
            files,
        });
        Ok(())
    }

    /// INVARIANT 3, for a superblock that is not understood and all that belongs to it; how many
    /// files that were. The superblock goes last, so that an end half-way changes nothing.
    pub(super) fn set_aside_all(&self, reporting: Reporting) -> Result<usize, StoreError> {
        let listed = self.list()?;
        let taken: HashSet<&OsStr> = listed.iter().map(|entry| entry.name.as_ref()).collect();
        let names = || listed.iter().filter_map(|entry| entry.name.to_str());
        let is_segment = |name: &&str| segment_number(name).is_some();
        // What a journal says of entries that are not used is of no use either.
        let is_journal = |name: &&str| *name == JOURNAL_NAME && reporting == Reporting::Together;
        let others = names().filter(|name| is_segment(name) || is_journal(name));
        let last = names().filter(|name| *name == SUPERBLOCK_NAME);
        let mut count = 0;
        for name in others.chain(last) {
            self.set_aside_as(name, &taken, reporting)?;
            count += 1;
        }
        Ok(count)
    }

    pub(super) fn set_aside(&self, name: &str) -> Result<PathBuf, StoreError> {
        let listed = self.list()?;
        let taken = listed.iter().map(|entry| entry.name.as_ref()).collect();
        self.set_aside_as(name, &taken, Reporting::Each)
    }

    /// Gives a file a name that is not among those that are taken.
    fn set_aside_as(
        &self,
        name: &str,
        taken: &HashSet<&OsStr>,
        reporting: Reporting,
    ) -> Result<PathBuf, StoreError> {
        let from = self.dir.join(name);
        let free = (1..MAX_SET_ASIDE)
            .map(|number| format!("{name}{SET_ASIDE}{number}"))
            .find(|name| !taken.contains(OsStr::new(name)));
        let full = || StoreError::io("set aside", &from, io::ErrorKind::AlreadyExists.into());
        let to = self.dir.join(free.ok_or_else(full)?);
        let renamed = self.io.rename(&from, &to);
        renamed.map_err(|error| StoreError::io("rename", &from, error))?;
        if reporting == Reporting::Each {
            (self.events)(&Event::SetAside {
                from: from.display().to_string(),
                to: to.display().to_string(),
            });
        }
        Ok(to)
    }
}
