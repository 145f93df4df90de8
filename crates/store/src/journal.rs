//! The journal: small records that must outlive everything, durable before they are acknowledged.
//!
//! ```text
//!   note ──► appended, synced ──► acknowledged
//!     └ no room, or a write went wrong ──► rewrite: a new file, synced, renamed over the old one
//! ```
//!
//! Notes that come together are one record, with one checksum: a torn write has all of them or
//! none, so that it is known from damage. Who notes from many threads gathers what waits while
//! something is being synced.
//!
//! The zone's users keep in it what must not be forgotten (purges); the zone does not know what the
//! records mean. The file is there from the beginning, so that there is room for a purge when the
//! disk is full, unless the zone is tiny; and once it was there, a zone without it has lost it. Its
//! space is counted against `max_size` and made by evicting segments where need be.
//!
//! 1. When [`Volume::note`] or [`Volume::rewrite_journal`] has returned without an error, the
//!    records are on the device, the file's name included.
//! 2. A record that was acknowledged is never lost silently: damage that is no torn tail is told
//!    ([`Journal::is_damaged`]), and so is a file that is not understood.
//! 3. After a write that went wrong nothing more is appended: the next record goes into a new file.
//! 4. A zone that is marked as closed has no torn tail: what stands there then is damage.
//! 5. Only who has the journal's lock touches its new file, also one that was left behind.
//!
//! 6. A journal that was lost is not begun anew but with all the records that its user has: without
//!    them, the next start would find nothing amiss.
//!
//! A zone whose limit allows no files keeps nothing over a restart, so it needs no journal either.

use std::io;
use std::path::PathBuf;

use bytes::Bytes;

use crate::disk::format::{
    JOURNAL_HEADER, JOURNAL_RECORD, JOURNAL_VERSION, JournalHeader, JournalRecord, Shutdown,
    aligned, payload_sum,
};
use crate::disk::io::File;
use crate::disk::segment::{Plan, file_cost};
use crate::disk::{JOURNAL_NAME, JOURNAL_NEW_NAME};
use crate::health::Tried;
use crate::lock::{lock, read};
use crate::recover::StoreError;
use crate::volume::{Event, Inner, Volume};

/// Length of a new file, if the zone is large enough. Arbitrary: a few hundred records.
const USUAL_SIZE: u64 = 64 << 10;
/// The longest file. Arbitrary; users fold what they note before it is that long.
const MAX_SIZE: u64 = 16 << 20;
/// The shortest file.
const MIN_SIZE: u64 = 4096;
/// The journal may take one part in so many of the zone, or the shortest file.
const SHARE: u64 = 16;

/// Segments that go for a journal for which the file system has no room: a file system may give
/// freed space late, and a small segment may be less than it needs.
const MAX_EVICTED: u32 = 8;

/// The reason why something was not noted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The zone is closed, or its directory is lent.
    #[error("zone is closed")]
    Closed,
    /// The journal has no room behind the last record, or there is no file: rewrite the journal.
    #[error("journal has no room")]
    NoRoom,
    /// The records do not fit the largest file: make fewer of them.
    #[error("records of {size} bytes do not fit a journal of at most {limit}")]
    TooLarge {
        /// Bytes that the records need.
        size: u64,
        /// Bytes that there may be.
        limit: u64,
    },
    /// The disk refused something.
    #[error("journal cannot be written")]
    Disk(#[from] io::Error),
}

/// Content of the journal when the zone was opened.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// Records of the journal, oldest first.
    pub records: Vec<Bytes>,
    /// True if there may have been others.
    pub is_damaged: bool,
    /// Time when the journal was read, milliseconds since 1970.
    pub read_ms: u64,
}

/// The open file.
#[derive(Debug, Default)]
pub(crate) struct JournalFile {
    file: Option<File>,
    size: u32,
    /// Offset for the next record; `size` when nothing is appended any more.
    tail: u32,
    /// Offset of the first bytes that are no record: one that was torn, or that the disk refused.
    torn: Option<u32>,
    /// True if the file's name is on the device, as far as is known.
    is_named: bool,
    /// Bytes that are counted for a new file that could neither be written nor removed.
    left: u64,
    /// True if there was a journal that is gone, or set aside, and none since.
    is_lost: bool,
    /// Content of the journal at the start.
    found: Journal,
}

impl Volume {
    /// Takes the content that the journal had when the zone was opened, or taken back; to be asked
    /// for once.
    pub(crate) fn take_journal(&self) -> Journal {
        let inner = &self.inner;
        let mut found = std::mem::take(&mut lock(&inner.journal).found);
        found.read_ms = inner.clock.now();
        found
    }

    /// Appends records, all or none. They are durable when this returns; waits for the disk.
    pub(crate) fn note_all(&self, records: &[Bytes]) -> Result<(), JournalError> {
        let inner = &self.inner;
        let _open = read(&inner.slow_close_lock);
        if inner.is_closed() {
            return Err(JournalError::Closed);
        }
        inner.note_all(records)
    }

    /// Puts records in the place of all that the journal holds. They are durable when this returns;
    /// after an error the old ones, or both, are there. Waits for the disk.
    pub(crate) fn rewrite_journal(&self, records: &[Bytes]) -> Result<(), JournalError> {
        let inner = &self.inner;
        let _open = read(&inner.slow_close_lock);
        if inner.is_closed() {
            return Err(JournalError::Closed);
        }
        inner.rewrite_journal(records)
    }
}

impl JournalFile {
    /// True if nothing is known to be in the journal, nor to have been.
    pub(crate) fn is_bare(&self) -> bool {
        let is_empty = self.file.is_none() || self.tail == JOURNAL_HEADER;
        is_empty && !self.found.is_damaged
    }

    /// True if there is a file, or was one.
    pub(crate) fn is_there(&self) -> bool {
        self.file.is_some() || self.is_lost
    }
}

impl Inner {
    /// Reads what the file holds now. `None` if that is not all it held.
    pub(crate) fn journal_records(&self) -> Option<Vec<Bytes>> {
        let journal = lock(&self.journal);
        if journal.found.is_damaged {
            return None;
        }
        let Some(file) = &journal.file else {
            return Some(Vec::new());
        };
        let mut bytes = vec![0; journal.size as usize];
        self.disk.io.read_at(file, &mut bytes, 0).ok()?;
        let scanned = scan(&Bytes::from(bytes), self.disk.seed);
        (!scanned.has_hole).then_some(scanned.records)
    }

    fn note_all(&self, records: &[Bytes]) -> Result<(), JournalError> {
        if !lock(&self.disk.log).plan.has_superblock() {
            return Ok(());
        }
        let mut journal = lock(&self.journal);
        let Some(file) = &journal.file else {
            return Err(JournalError::NoRoom);
        };
        let (payload, count) = join(records);
        let (tail, size) = (journal.tail, record_size(&payload));
        if size > u64::from(journal.size - tail) {
            return Err(JournalError::NoRoom);
        }
        if !journal.is_named {
            // INVARIANT 1, for a file whose name a dead process may have given it only just.
            let named = self.disk.io.sync_dir(&self.disk.dir);
            named.map_err(|error| self.refused(error))?;
        }
        let bytes = Bytes::from(encode_record((&payload, count), tail, self.disk.seed));
        let wrote = self.disk.io.write_at(file, &[bytes], u64::from(tail));
        let synced = wrote.and_then(|()| self.disk.io.sync(file));
        if let Err(error) = synced {
            // INVARIANT 3.
            journal.torn.get_or_insert(tail);
            journal.tail = journal.size;
            return Err(self.refused(error));
        }
        journal.is_named = true;
        // It fits the file, so it fits 32 bits.
        journal.tail = tail + size as u32;
        Ok(())
    }

    fn rewrite_journal(&self, records: &[Bytes]) -> Result<(), JournalError> {
        let plan = lock(&self.disk.log).plan;
        if !plan.has_superblock() {
            return Ok(());
        }
        let is_first = {
            let mut journal = lock(&self.journal);
            let was_there = journal.is_there();
            let size = journal_size(records, &plan)?;
            self.replace_journal(&mut journal, (records, size))
                .map_err(|error| self.refused(error))?;
            !was_there
        };
        if is_first && let Err(error) = self.list_journal() {
            self.report(&Event::WriteFailed(error.to_string()));
        }
        Ok(())
    }

    /// Makes the file of a zone that has none. A disk that does not take it is asked again for the
    /// first record.
    pub(crate) fn found_journal(&self) -> Result<(), StoreError> {
        let plan = lock(&self.disk.log).plan;
        let is_tiny = plan.limit.is_some_and(|limit| limit < SHARE * MIN_SIZE);
        if !plan.has_superblock() || is_tiny || !self.disk.io.may_change() {
            return Ok(());
        }
        {
            let mut journal = lock(&self.journal);
            // INVARIANT 6.
            if journal.is_there() {
                return Ok(());
            }
            let Ok(size) = journal_size(&[], &plan) else {
                return Ok(());
            };
            if self.replace_journal(&mut journal, (&[], size)).is_err() {
                return Ok(());
            }
        }
        self.list_journal()
    }

    /// Puts a file with some records in the place of the one that there is.
    fn replace_journal(
        &self,
        journal: &mut JournalFile,
        (records, size): (&[Bytes], u32),
    ) -> io::Result<()> {
        // INVARIANT 5.
        self.clear_new_journal(journal)?;
        let mut tries = MAX_EVICTED;
        let (file, tail) = loop {
            self.make_file_room(file_cost(size))?;
            let error = match self.write_journal(records, size) {
                Ok(written) => break written,
                Err(error) => error,
            };
            journal.left = file_cost(size);
            // It is tried again by whoever writes the next one.
            let is_clear = self.clear_new_journal(journal).is_ok();
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            if !is_full || !is_clear || tries == 0 || !self.evict_for_journal() {
                return Err(error);
            }
            tries -= 1;
        };
        let old = std::mem::replace(&mut journal.size, size);
        (journal.tail, journal.torn, journal.is_lost) = (tail, None, false);
        if journal.file.replace(file).is_some() {
            lock(&self.disk.log).discharge_kept(file_cost(old));
        }
        // INVARIANT 1: without its name the file is not there.
        let named = self.disk.io.sync_dir(&self.disk.dir);
        journal.is_named = named.is_ok();
        if named.is_err() {
            // INVARIANT 3.
            journal.tail = journal.size;
        }
        named
    }

    /// Writes a whole file and gives it its name. The file, and where the next record goes.
    fn write_journal(&self, records: &[Bytes], size: u32) -> io::Result<(File, u32)> {
        let (io, path) = (&self.disk.io, self.new_journal_path());
        let file = io.create(&path, u64::from(size))?;
        let header = JournalHeader {
            version: JOURNAL_VERSION,
            size,
            created_ms: self.clock.now(),
        };
        let mut bytes = header.encode(&self.disk.uuid, self.disk.seed);
        for record in records {
            let encoded = encode_record((record, 0), bytes.len() as u32, self.disk.seed);
            bytes.extend_from_slice(&encoded);
        }
        let tail = bytes.len() as u32;
        io.write_at(&file, &[Bytes::from(bytes)], 0)?;
        io.sync(&file)?;
        io.rename(&path, &self.disk.dir.join(JOURNAL_NAME))?;
        Ok((file, tail))
    }

    fn new_journal_path(&self) -> PathBuf {
        self.disk.dir.join(JOURNAL_NEW_NAME)
    }

    /// Removes what is left of an attempt to write a file; until it is gone, it counts.
    fn clear_new_journal(&self, journal: &mut JournalFile) -> io::Result<()> {
        match self.disk.io.unlink(&self.new_journal_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                let left = std::mem::take(&mut journal.left);
                lock(&self.disk.log).discharge_kept(left);
                Ok(())
            }
        }
    }

    fn refused(&self, error: io::Error) -> JournalError {
        self.health.met(&error, Tried::Create);
        self.counters.write_failed();
        self.report(&Event::WriteFailed(error.to_string()));
        JournalError::Disk(error)
    }

    /// Reads the journal at the start. `None` if it is not understood; an error is the disk's.
    pub(crate) fn load_journal(&self, len: u64, shutdown: Shutdown) -> io::Result<Option<()>> {
        let path = self.disk.dir.join(JOURNAL_NAME);
        let file = self.disk.io.open(&path)?;
        if len > MAX_SIZE {
            return Ok(None);
        }
        let mut bytes = vec![0; len as usize];
        match self.disk.io.read_at(&file, &mut bytes, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            // A disk that does not read says nothing of what is on it.
            Err(error) => return Err(error),
        }
        let header = JournalHeader::decode(&bytes, &self.disk.uuid, self.disk.seed);
        let Some(header) = header.filter(|header| u64::from(header.size) == len) else {
            return Ok(None);
        };
        let scanned = scan(&Bytes::from(bytes), self.disk.seed);
        // A torn tail was never acknowledged, unless there was nobody to tear it.
        let is_torn = scanned.has_rest && shutdown == Shutdown::Unclean;
        let mut journal = JournalFile {
            file: Some(file),
            size: header.size,
            tail: scanned.tail,
            torn: is_torn.then_some(scanned.tail),
            is_named: false,
            left: 0,
            is_lost: false,
            found: Journal {
                records: scanned.records,
                is_damaged: scanned.has_hole || (scanned.has_rest && !is_torn),
                read_ms: 0,
            },
        };
        // An older version goes on as a new file: its readers know no records of several notes.
        let is_older = header.version < JOURNAL_VERSION;
        if scanned.has_rest || scanned.has_hole || is_older {
            journal.tail = journal.size;
        }
        let mut log = lock(&self.disk.log);
        log.file_bytes += file_cost(header.size);
        log.journal_bytes += file_cost(header.size);
        drop(log);
        *lock(&self.journal) = journal;
        Ok(Some(()))
    }

    /// There was a journal, and it cannot be read.
    pub(crate) fn lost_journal(&self) {
        let mut journal = lock(&self.journal);
        (journal.found.is_damaged, journal.is_lost) = (true, true);
    }

    /// Wipes a torn tail out; false if one stays. INVARIANT 4.
    pub(crate) fn settle_journal(&self) -> bool {
        let mut journal = lock(&self.journal);
        let (Some(file), Some(torn)) = (&journal.file, journal.torn) else {
            return true;
        };
        let zeros = Bytes::from(vec![0; journal.size.saturating_sub(torn) as usize]);
        let wrote = self.disk.io.write_at(file, &[zeros], u64::from(torn));
        match wrote.and_then(|()| self.disk.io.sync(file)) {
            Ok(()) => journal.torn = None,
            Err(error) => self.report(&Event::WriteFailed(error.to_string())),
        }
        journal.torn.is_none()
    }

    /// Lets the file go.
    pub(crate) fn close_journal(&self) {
        lock(&self.journal).file = None;
    }
}

/// The length of a file for some records.
fn journal_size(records: &[Bytes], plan: &Plan) -> Result<u32, JournalError> {
    let needed: u64 = records.iter().map(record_size).sum();
    let needed = needed + u64::from(JOURNAL_HEADER);
    let most = plan.limit.map_or(MAX_SIZE, |limit| limit / SHARE);
    let most = (most.clamp(MIN_SIZE, MAX_SIZE) / MIN_SIZE) * MIN_SIZE;
    if needed > most {
        let (size, limit) = (needed, most);
        return Err(JournalError::TooLarge { size, limit });
    }
    // Twice the need, so that not every record means another file; at most `most`: 16 MiB.
    let size = (needed * 2).next_multiple_of(MIN_SIZE);
    Ok(size.max(USUAL_SIZE).min(most) as u32)
}

/// Content of a file behind its header.
struct Scanned {
    records: Vec<Bytes>,
    /// Offset behind the last record.
    tail: u32,
    /// True if something else stands between two records.
    has_hole: bool,
    /// True if something else stands behind the last one.
    has_rest: bool,
}

fn scan(bytes: &Bytes, seed: u64) -> Scanned {
    let mut scanned = Scanned {
        records: Vec::new(),
        tail: JOURNAL_HEADER,
        has_hole: false,
        has_rest: false,
    };
    let mut position = JOURNAL_HEADER as usize;
    while let Some(rest) = bytes.get(position..).filter(|rest| !rest.is_empty()) {
        let record = JournalRecord::decode(rest, seed, position as u32);
        let start = position + JOURNAL_RECORD as usize;
        let payload = record.and_then(|record| {
            let payload = bytes.get(start..start.checked_add(record.len as usize)?)?;
            let is_whole = payload_sum(payload) == record.payload_sum;
            is_whole.then(|| (bytes.slice_ref(payload), record.count))
        });
        match payload {
            Some((payload, count)) => {
                position += record_size(&payload) as usize;
                scanned.has_hole |= std::mem::take(&mut scanned.has_rest);
                match split(&payload, count) {
                    Some(notes) => scanned.records.extend(notes),
                    None => scanned.has_hole = true,
                }
                scanned.tail = position as u32;
            }
            None => {
                let step = rest.get(..16).unwrap_or(rest);
                scanned.has_rest |= step.iter().any(|byte| *byte != 0);
                position += step.len();
            }
        }
    }
    scanned
}

/// The payload of a record with these notes, and the count that says so.
fn join(notes: &[Bytes]) -> (Bytes, u32) {
    if let [note] = notes {
        return (note.clone(), 0);
    }
    let mut payload = Vec::new();
    for note in notes {
        // What is longer than that fits no journal.
        payload.extend_from_slice(&(note.len() as u32).to_le_bytes());
        payload.extend_from_slice(note);
    }
    (payload.into(), notes.len() as u32)
}

/// The notes of a payload; none if they are not what they should be.
fn split(payload: &Bytes, count: u32) -> Option<Vec<Bytes>> {
    if count == 0 {
        return Some(vec![payload.clone()]);
    }
    let (mut rest, mut notes) = (payload.clone(), Vec::new());
    for _ in 0..count {
        let len = u32::from_le_bytes(*rest.first_chunk()?) as usize;
        let end = len.checked_add(4).filter(|end| *end <= rest.len())?;
        notes.push(rest.split_to(end).slice(4..));
    }
    rest.is_empty().then_some(notes)
}

/// Bytes that a record takes in the file.
fn record_size(payload: &Bytes) -> u64 {
    aligned(u64::from(JOURNAL_RECORD) + payload.len() as u64)
}

fn encode_record((payload, count): (&Bytes, u32), offset: u32, seed: u64) -> Vec<u8> {
    let record = JournalRecord {
        count,
        len: payload.len() as u32,
        payload_sum: payload_sum(payload),
    };
    let mut bytes = record.encode(offset, seed);
    bytes.extend_from_slice(payload);
    bytes.resize(record_size(payload) as usize, 0);
    bytes
}
