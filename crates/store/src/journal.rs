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
//! records mean. The file is there from the first record on. Its space is counted against
//! `max_size` and made by evicting segments where need be.
//!
//! 1. When [`Volume::note`] or [`Volume::rewrite_journal`] has returned without an error, the
//!    records are on the device, the file's name included.
//! 2. A record that was acknowledged is never lost silently: damage that is no torn tail is told
//!    ([`Journal::is_damaged`]), and so is a file that is not understood.
//! 3. After a write that went wrong nothing more is appended: the next record goes into a new file.
//! 4. A zone that is marked as closed has no torn tail: what stands there then is damage.
//! 5. Only who has the journal's lock touches its new file, also one that was left behind.
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
use crate::disk::segment::file_cost;
use crate::disk::{JOURNAL_NAME, JOURNAL_NEW_NAME};
use crate::health::Tried;
use crate::lock::{lock, read};
use crate::volume::{Event, Inner, Volume};

/// Length of a new file, if the zone is large enough. Arbitrary: a few hundred records.
const USUAL_SIZE: u64 = 64 << 10;
/// The longest file. Arbitrary; users fold what they note before it is that long.
const MAX_SIZE: u64 = 16 << 20;
/// The shortest file.
const MIN_SIZE: u64 = 4096;
/// The journal may take one part in so many of the zone, or the shortest file.
const SHARE: u64 = 16;

/// Why something was not noted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The zone is closed, or its directory is lent.
    #[error("zone is closed")]
    Closed,
    /// There is no room behind the last record, or no file: rewrite the journal.
    #[error("journal has no room")]
    NoRoom,
    /// So many records do not fit the largest file: make fewer of them.
    #[error("records of {size} bytes do not fit a journal of at most {limit}")]
    TooLarge {
        /// What they need.
        size: u64,
        /// What there may be.
        limit: u64,
    },
    /// The disk refused something.
    #[error("journal cannot be written")]
    Disk(#[from] io::Error),
}

/// What the journal held when the zone was opened.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// Its records, oldest first.
    pub records: Vec<Bytes>,
    /// Whether there may have been others.
    pub is_damaged: bool,
    /// When it was read, milliseconds since 1970.
    pub read_ms: u64,
}

/// The open file.
#[derive(Debug, Default)]
pub(crate) struct JournalFile {
    file: Option<File>,
    size: u32,
    /// Where the next record goes; `size` when nothing is appended any more.
    tail: u32,
    /// Where what is no record begins: one that was torn, or that the disk refused.
    torn: Option<u32>,
    /// Whether its name is on the device, as far as is known.
    is_named: bool,
    /// What counts for a new file that could neither be written nor removed.
    left: u64,
    /// What was there at the start.
    found: Journal,
}

impl Volume {
    /// What the journal held when the zone was opened, or taken back; to be asked for once.
    pub(crate) fn take_journal(&self) -> Journal {
        let inner = &self.inner;
        let mut found = std::mem::take(&mut lock(&inner.journal).found);
        found.read_ms = inner.clock.now();
        found
    }

    /// Appends records, all or none. They are durable when this returns; waits for the disk.
    pub(crate) fn note_all(&self, records: &[Bytes]) -> Result<(), JournalError> {
        let inner = &self.inner;
        let _open = read(&inner.yard);
        if inner.is_closed() {
            return Err(JournalError::Closed);
        }
        inner.note_all(records)
    }

    /// Puts records in the place of all that the journal holds. They are durable when this returns;
    /// after an error the old ones, or both, are there. Waits for the disk.
    pub(crate) fn rewrite_journal(&self, records: &[Bytes]) -> Result<(), JournalError> {
        let inner = &self.inner;
        let _open = read(&inner.yard);
        if inner.is_closed() {
            return Err(JournalError::Closed);
        }
        inner.rewrite_journal(records)
    }
}

impl JournalFile {
    /// Whether there is no file, nor was one.
    pub(crate) fn is_bare(&self) -> bool {
        self.file.is_none() && !self.found.is_damaged
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
        let limit = lock(&self.disk.log).plan;
        if !limit.has_superblock() {
            return Ok(());
        }
        let mut journal = lock(&self.journal);
        let needed: u64 = records.iter().map(record_size).sum();
        let needed = needed + u64::from(JOURNAL_HEADER);
        let most = limit.limit.map_or(MAX_SIZE, |limit| limit / SHARE);
        let most = (most.clamp(MIN_SIZE, MAX_SIZE) / MIN_SIZE) * MIN_SIZE;
        if needed > most {
            let (size, limit) = (needed, most);
            return Err(JournalError::TooLarge { size, limit });
        }
        // INVARIANT 5.
        self.clear_new_journal(&mut journal)?;
        // Twice the need, so that not every record means another file; at most `most`: 16 MiB.
        let size = (needed * 2).next_multiple_of(MIN_SIZE);
        let size = size.max(USUAL_SIZE).min(most) as u32;
        self.make_file_room(file_cost(size))?;
        match self.write_journal(records, size) {
            Ok((file, tail)) => {
                let old = std::mem::replace(&mut journal.size, size);
                (journal.tail, journal.torn) = (tail, None);
                if journal.file.replace(file).is_some() {
                    lock(&self.disk.log).discharge_kept(file_cost(old));
                }
            }
            Err(error) => {
                journal.left = file_cost(size);
                // It is tried again by who writes the next one.
                let _ = self.clear_new_journal(&mut journal);
                return Err(self.refused(error));
            }
        }
        // INVARIANT 1: without its name the file is not there.
        let named = self.disk.io.sync_dir(&self.disk.dir);
        journal.is_named = named.is_ok();
        named.map_err(|error| {
            // INVARIANT 3.
            journal.tail = journal.size;
            self.refused(error)
        })
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
    fn clear_new_journal(&self, journal: &mut JournalFile) -> Result<(), JournalError> {
        match self.disk.io.unlink(&self.new_journal_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.refused(error)),
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
        lock(&self.journal).found.is_damaged = true;
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

/// What a file holds behind its header.
struct Scanned {
    records: Vec<Bytes>,
    /// Behind the last record.
    tail: u32,
    /// Whether something else stands between two records.
    has_hole: bool,
    /// Whether something else stands behind the last one.
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
