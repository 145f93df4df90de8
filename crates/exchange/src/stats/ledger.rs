//! `cache_site_counters`: the counters of sites in a file, so that they outlive the process.
//!
//! ```text
//! header (4096) │ chunk 0 │ chunk 1 │ …     each for 64 sites:
//!                 64 names (256 each) │ 16 shards × 64 rows (256 each)
//! ```
//!
//! | part | bytes |
//! |---|---|
//! | header | magic `mp-sites`, version (u32), shards (u32), cells (u32), name of the ledger (16; it
//! goes on in the file that takes this one's place), zeros |
//! | name | length (u8), then so many bytes; length 0: no site has this number |
//! | row | 32 numbers (u64) |
//!
//! Numbers are little endian. Rows are sums since the file was made. A thread writes the blocks of
//! rows that changed, `PAUSE` after the first change: so much is lost when the process is killed,
//! and what the kernel has not written when power fails.
//!
//! 1. One process at a time has the file: it is locked. A process that comes while another still
//!    has it counts in memory, and adds the file's rows once it has the lock.
//! 2. A name is in the file before any row of its site. When numbers were taken back, another file
//!    is begun and put in its place, so that no row ever stands beside another's name.
//! 3. A file that is not understood is renamed and begun anew. One that cannot be written costs
//!    nothing but its content: that is told once, and tried again.
//! 4. While a disk of a cache on the same file system is given up, the file is closed, so that the
//!    file system can be unmounted. What is counted meanwhile is written when the disk is back.

use std::collections::HashSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use millpond_conf::{Contexts, OffOr, Statement};
use millpond_fleet::tally::LedgerId;
use millpond_system::log::error::{self, Level};
use millpond_system::root_helper;
use millpond_system::{chance, clock};
use rustix::fs::FlockOperation;

use super::place::{Place, SHARDS};
use super::site::{CELLS, SITES_MAX, Sites};
use super::site_names::Claim;
use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;
use crate::settings::Conf;
use crate::settings::declared::Declared;

/// Between a change and its writing (arbitrary: short for bills, long for a disk).
const PAUSE: Duration = Duration::from_millis(100);
/// Between two tries to have the file, and two looks at the disks.
const RETRY: Duration = Duration::from_secs(1);
/// Time for which the end of the process waits for the last rows to be written, and the pause
/// between two looks (arbitrary: a disk that takes so long for some kilobytes stands still).
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
const CLOSE_PAUSE: Duration = Duration::from_millis(5);

const MAGIC: &[u8; 8] = b"mp-sites";
const VERSION: u32 = 1;
const HEADER: u64 = 4096;
const CHUNK_SITES: usize = 64;
const NAME: usize = 256;
const ROW_LEN: usize = CELLS * 8;
const BLOCK: usize = CHUNK_SITES * ROW_LEN;
const CHUNK: u64 = (CHUNK_SITES * NAME + SHARDS * BLOCK) as u64;

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "cache_site_counters",
    contexts: Contexts::HTTP,
    syntax: "path | off",
    is_block: false,
    pass: Pass::First,
    doc: "The file in which the counters of sites outlive the process. Without the directive it \
          stands beside the directory of the first cache zone: `/var/cache/a.sites` for \
          `/var/cache/a`. The file of the start counts until the process ends. While a \
          disk of a zone on the same file system is given up, the file is closed, so that it can be unmounted.",
    apply: cache_site_counters,
}];

fn cache_site_counters(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let [word] = statement.args.as_slice() else {
        let message = "invalid number of arguments in \"cache_site_counters\" directive";
        return builder.error(statement.span, message);
    };
    if builder.of::<Declared>().site_counters.is_some() {
        let message = "\"cache_site_counters\" directive is duplicate";
        return builder.error(statement.span, message);
    }
    let place = match word.text.as_str() {
        "off" => OffOr::Off,
        path => OffOr::On(builder.cx.prefix.join(path)),
    };
    builder.of::<Declared>().site_counters = Some(place);
}

/// The disks that a ledger may stand beside, now and later, and how they are.
pub trait Disks: fmt::Debug + Send + Sync {
    /// The folders of all of them.
    fn paths(&self) -> Vec<PathBuf>;

    /// The folders of those that are given up.
    fn failed(&self) -> HashSet<PathBuf>;
}

/// The ledger of a process.
#[derive(Debug, Default)]
pub struct LedgerKeeper(Mutex<Option<Ledger>>);

impl LedgerKeeper {
    /// Keeps the counters where a configuration says, unless they are kept already; beside disks
    /// that may be given up.
    pub fn keep(&self, conf: &Conf, sites: &Arc<Sites>, disks: Box<dyn Disks>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = place(conf).filter(|_| kept.is_none()) else {
            return;
        };
        match Ledger::keep(path, Arc::clone(sites), disks) {
            Ok(ledger) => *kept = Some(ledger),
            Err(error) => {
                let message = format_args!("counters of sites are not kept: {error}");
                error::process(Level::Warn, message);
            }
        }
    }

    /// Writes what is not written yet and lets the file go.
    pub fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Path of a configuration's counters.
pub fn place(conf: &Conf) -> Option<PathBuf> {
    match &conf.declared.site_counters {
        Some(OffOr::On(path)) => Some(path.clone()),
        Some(OffOr::Off) => None,
        None => {
            let first = conf.declared.zones.first()?;
            Some(with_ending(&first.path, ".sites"))
        }
    }
}

/// Writes the counters of sites to a file, until it is dropped.
#[derive(Debug)]
pub struct Ledger {
    thread: Option<JoinHandle<()>>,
    must_stop: Arc<AtomicBool>,
}

impl Ledger {
    /// Reads the file, or makes it, and begins to keep it. Its rows are in `sites` when this
    /// returns, unless another process has it.
    pub fn keep(path: PathBuf, sites: Arc<Sites>, disks: Box<dyn Disks>) -> io::Result<Self> {
        let must_stop = Arc::new(AtomicBool::new(false));
        let mut keeper = Keeper {
            path,
            sites,
            disks,
            beside: Vec::new(),
            file: None,
            has_rows: false,
            id: new_id(),
            turn: 0,
            is_told: false,
        };
        keeper.open();
        let stop = Arc::clone(&must_stop);
        let thread = std::thread::Builder::new()
            .name("site ledger".to_string())
            .spawn(move || keeper.run(&stop))?;
        Ok(Ledger {
            thread: Some(thread),
            must_stop,
        })
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.must_stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.thread().unpark();
        let deadline = clock::instant() + CLOSE_PATIENCE;
        while !thread.is_finished() && clock::instant() < deadline {
            std::thread::park_timeout(CLOSE_PAUSE);
        }
    }
}

/// State of the thread that keeps the ledger.
struct Keeper {
    path: PathBuf,
    sites: Arc<Sites>,
    disks: Box<dyn Disks>,
    /// Disks on the file system that the file was on when it was opened last.
    beside: Vec<PathBuf>,
    file: Option<File>,
    /// True if the rows of the file were counted already: the file was ours before.
    has_rows: bool,
    /// Name of the ledger; that of a file whose rows were counted.
    id: LedgerId,
    /// The turn of the numbers that the file has.
    turn: usize,
    is_told: bool,
}

impl Keeper {
    fn run(mut self, must_stop: &AtomicBool) {
        self.sites.set_writer(Some(std::thread::current()));
        while !must_stop.load(Ordering::Acquire) {
            if self.is_given_up() {
                // INVARIANT 4.
                self.file = None;
                std::thread::park_timeout(RETRY);
                continue;
            }
            if self.file.is_none() {
                std::thread::park_timeout(RETRY);
                self.open();
                continue;
            }
            if self.sites.may_sleep() {
                std::thread::park_timeout(RETRY);
            }
            // Counts of the meantime are written together.
            if !must_stop.load(Ordering::Acquire) {
                std::thread::park_timeout(PAUSE);
            }
            self.write();
        }
        self.sites.set_writer(None);
        // The disk may be back, and the next try not due yet.
        if self.file.is_none() && !self.is_given_up() {
            self.open();
        }
        self.write();
    }

    /// INVARIANT 1. Reads the file and begins another one in its place, since numbers may have been
    /// given out before.
    fn open(&mut self) {
        let taken = take(&self.path).and_then(|taken| match taken {
            Taken::ByOther => Ok(None),
            Taken::Missing => self.begin().map(Some),
            Taken::File(_) if self.has_rows => self.begin().map(Some),
            Taken::File(old) => {
                match read_all(&old) {
                    // Once: if no file can be begun now, the next try finds the same rows.
                    Ok(chunks) => {
                        add_all(&chunks, &self.sites);
                        self.id = id_of(&old)?.unwrap_or(self.id);
                        self.has_rows = true;
                    }
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        self.set_aside()?;
                    }
                    Err(error) => return Err(error),
                }
                self.begin().map(Some)
            }
        });
        match taken {
            Ok(file) => {
                self.has_rows |= file.is_some();
                if file.is_some() {
                    self.sites.set_ledger(self.id);
                }
                self.beside = file
                    .iter()
                    .flat_map(|file| self.disks_beside(file))
                    .collect();
                self.file = file;
            }
            Err(error) => self.tell(&error),
        }
    }

    /// The disks of caches on the file system of a file.
    fn disks_beside(&self, file: &File) -> Vec<PathBuf> {
        let device = |found: io::Result<std::fs::Metadata>| found.map(|found| found.dev()).ok();
        let own = device(file.metadata());
        let mut disks = self.disks.paths();
        disks.retain(|disk| own.is_some() && device(std::fs::metadata(disk)) == own);
        disks
    }

    fn is_given_up(&self) -> bool {
        let failed = self.disks.failed();
        self.beside.iter().any(|disk| failed.contains(disk))
    }

    /// Writes all counters to a new file and puts it in the old one's place, locked.
    fn begin(&mut self) -> io::Result<File> {
        let new = with_ending(&self.path, ".new");
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new);
        let file = root_helper::unless_refused(opened, root_helper::begin_counters)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all_at(&header(), 0)?;
        file.write_all_at(&self.id, header().len() as u64)?;
        let (turn, pieces) = {
            let _layout = self.sites.layout();
            self.sites.rewrite();
            (self.sites.turn(), changed(&self.sites))
        };
        write_all(&file, &pieces)?;
        let placed = std::fs::rename(&new, &self.path);
        root_helper::unless_refused(placed, root_helper::place_counters)?;
        self.turn = turn;
        Ok(file)
    }

    fn set_aside(&mut self) -> io::Result<()> {
        let aside = with_ending(&self.path, ".set-aside");
        let renamed = std::fs::rename(&self.path, &aside);
        root_helper::unless_refused(renamed, root_helper::set_aside_counters)?;
        let (path, aside) = (self.path.display(), aside.display());
        let message =
            format_args!("\"{path}\" is no ledger of sites, and was renamed to \"{aside}\"");
        error::process(Level::Error, message);
        Ok(())
    }

    /// Writes what changed; after an error all of it is written once the file is there again.
    fn write(&mut self) {
        let Some(file) = &self.file else { return };
        let pieces = {
            let _layout = self.sites.layout();
            let is_same = self.sites.turn() == self.turn;
            is_same.then(|| changed(&self.sites))
        };
        let wrote = match pieces {
            Some(pieces) => write_all(file, &pieces),
            // INVARIANT 2.
            None => self.begin().map(|file| self.file = Some(file)),
        };
        match wrote {
            Ok(()) => self.is_told = false,
            Err(error) => {
                self.sites.rewrite();
                self.tell(&error);
                std::thread::park_timeout(RETRY);
            }
        }
    }

    /// INVARIANT 3.
    fn tell(&mut self, failure: &io::Error) {
        if !std::mem::replace(&mut self.is_told, true) {
            let (path, reason) = (self.path.display(), error::os_error(failure));
            let message = format_args!(
                "counters of sites cannot be kept in \"{path}\" ({reason}); \
                 \"cache_site_counters\" names another place"
            );
            error::process(Level::Warn, message);
        }
    }
}

/// State of the place where the ledger is to be.
enum Taken {
    /// A file, which is ours now.
    File(File),
    /// A file that another process keeps.
    ByOther,
    /// Nothing.
    Missing,
}

fn take(path: &Path) -> io::Result<Taken> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Taken::Missing),
        Err(error) => return Err(error),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Taken::ByOther),
        Err(error) => return Err(error.into()),
    }
    // Another one may have been put in its place before it was locked.
    let same = |now: std::fs::Metadata| -> io::Result<bool> {
        let ours = file.metadata()?;
        Ok(ours.dev() == now.dev() && ours.ino() == now.ino())
    };
    match std::fs::metadata(path).and_then(same) {
        Ok(true) => Ok(Taken::File(file)),
        _ => Ok(Taken::ByOther),
    }
}

/// The sites of a chunk of a file, as bytes.
struct Chunk {
    names: Vec<u8>,
    /// Rows of each shard.
    blocks: Vec<Vec<u8>>,
}

/// Reads a file to its end, so that nothing of one that cannot be read whole is counted.
fn read_all(file: &File) -> io::Result<Vec<Chunk>> {
    let length = file.metadata()?.len();
    if length < HEADER || read(file, 0, header().len())? != header() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // The last chunk may end with its last block that was written.
    let chunks = (length - HEADER).div_ceil(CHUNK);
    let chunks = usize::try_from(chunks).unwrap_or(usize::MAX);
    let read_chunk = |chunk| {
        let names = read(file, chunk_at(chunk), CHUNK_SITES * NAME)?;
        let blocks = (0..SHARDS).map(|number| read(file, block_at(chunk, number), BLOCK));
        let blocks = blocks.collect::<io::Result<_>>()?;
        Ok(Chunk { names, blocks })
    };
    (0..chunks.min(SITES_MAX / CHUNK_SITES))
        .map(read_chunk)
        .collect()
}

/// Adds the rows of a file to what was counted.
fn add_all(chunks: &[Chunk], sites: &Sites) {
    // Numbers are not taken back until their rows are added.
    let _layout = sites.layout();
    for chunk in chunks {
        let names = chunk.names.as_chunks::<NAME>().0.iter();
        // The reason for a name is not known here: a name that somebody made up goes first when
        // numbers lack.
        let ids: Vec<_> = names
            .map(|name| {
                name_of(name)
                    .map(|name| sites.enter(Place::shared(0).shard()).id(name, Claim::Kept))
            })
            .collect();
        for (number, block) in chunk.blocks.iter().enumerate() {
            // Not to what a worker has for itself, which may count already.
            let Some(shard) = sites.shards().get(Place::shared(number).shard()) else {
                continue;
            };
            for (id, values) in ids.iter().zip(block.as_chunks::<ROW_LEN>().0) {
                let values = values.as_chunks::<8>().0.iter();
                let values: Vec<u64> = values.map(|value| u64::from_le_bytes(*value)).collect();
                if values.iter().all(|value| *value == 0) {
                    continue;
                }
                if let Some(row) = id.and_then(|id| shard.row(id)) {
                    row.add_all(values.into_iter());
                }
            }
        }
    }
}

/// Bytes, and where they belong in the file.
type Piece = (u64, Vec<u8>);

/// Pieces that the file does not have as they are; names come first (INVARIANT 2). Nothing is
/// waited for.
fn changed(sites: &Sites) -> Vec<Piece> {
    let unwritten = sites.unwritten().into_iter();
    let mut pieces: Vec<Piece> = unwritten.map(|(index, name)| named(index, &name)).collect();
    let chunks = sites.names().len().div_ceil(CHUNK_SITES);
    for (number, shard) in sites.shards().iter().enumerate() {
        if !shard.is_dirty.swap(false, Ordering::SeqCst) {
            continue;
        }
        for chunk in 0..chunks {
            let rows = chunk * CHUNK_SITES..(chunk + 1) * CHUNK_SITES;
            if rows.clone().all(|index| shard.find(index).is_none()) {
                continue;
            }
            let mut block = Vec::with_capacity(BLOCK);
            for index in rows {
                match shard.find(index) {
                    // Number by number, which is less work than byte by byte.
                    Some(row) => row
                        .cells()
                        .for_each(|value| block.extend_from_slice(&value.to_le_bytes())),
                    None => block.resize(block.len() + ROW_LEN, 0),
                }
            }
            pieces.push((block_at(chunk, number), block));
        }
    }
    pieces
}

/// The slot of a name.
fn named(index: usize, name: &[u8]) -> Piece {
    let mut slot = vec![0; NAME];
    // A name is at most 255 bytes long.
    let len = name.len().min(NAME - 1);
    if let Some((first, rest)) = slot.split_first_mut() {
        *first = len as u8;
        for (to, from) in rest.iter_mut().zip(name.iter().take(len)) {
            *to = *from;
        }
    }
    let at = chunk_at(index / CHUNK_SITES) + (index % CHUNK_SITES * NAME) as u64;
    (at, slot)
}

fn write_all(file: &File, pieces: &[Piece]) -> io::Result<()> {
    pieces
        .iter()
        .try_for_each(|(at, bytes)| file.write_all_at(bytes, *at))
}

fn header() -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    for number in [VERSION, SHARDS as u32, CELLS as u32] {
        header.extend(number.to_le_bytes());
    }
    header
}

fn new_id() -> LedgerId {
    let mut id = LedgerId::default();
    let words = [chance::word(), chance::word()].map(u64::to_le_bytes);
    id.copy_from_slice(words.as_flattened());
    id
}

/// The name in the header of a file; none if the file was made before ledgers had names.
fn id_of(file: &File) -> io::Result<Option<LedgerId>> {
    let bytes = read(file, header().len() as u64, size_of::<LedgerId>())?;
    let id = LedgerId::try_from(bytes).unwrap_or_default();
    Ok(Some(id).filter(|id| *id != LedgerId::default()))
}

fn chunk_at(chunk: usize) -> u64 {
    HEADER + chunk as u64 * CHUNK
}

fn block_at(chunk: usize, shard: usize) -> u64 {
    chunk_at(chunk) + (CHUNK_SITES * NAME + shard * BLOCK) as u64
}

/// The name in a slot; none if the number was not given.
fn name_of(slot: &[u8; NAME]) -> Option<&[u8]> {
    let (len, name) = slot.split_first()?;
    name.get(..usize::from(*len))
        .filter(|name| !name.is_empty())
}

/// Reads so many bytes; zeros where the file ends.
fn read(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::Shares;
    use crate::stats::Label;
    use crate::stats::site::Answered;
    use millpond_fleet::tally::Source;

    #[derive(Debug)]
    struct NoDisks;

    impl Disks for NoDisks {
        fn paths(&self) -> Vec<PathBuf> {
            Vec::new()
        }

        fn failed(&self) -> HashSet<PathBuf> {
            HashSet::new()
        }
    }

    fn no_disks() -> Box<dyn Disks> {
        Box::new(NoDisks)
    }

    fn count(sites: &Sites, worker: usize, name: &[u8], bytes: u64) {
        let answer = Answered {
            label: Label::of(Some("HIT")),
            bytes,
            shares: Shares::default(),
        };
        let place = Place::shared(worker);
        let counting = sites.enter(place.shard());
        counting.answered(place, counting.id(name, Claim::Kept), &answer);
    }

    fn bytes(sites: &Sites, name: &[u8]) -> u64 {
        let found = sites
            .snapshot()
            .into_iter()
            .find(|(known, _)| known == name);
        found.map_or(0, |(_, count)| count.total().bytes)
    }

    #[test]
    fn counters_outlive_their_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("z.sites");
        for round in 1..=3 {
            let sites = Arc::new(Sites::default());
            let ledger = Ledger::keep(path.clone(), Arc::clone(&sites), no_disks()).unwrap();
            for number in 0..200 {
                // In another order each time.
                let number = (number * round) % 211;
                let name = format!("site {number}");
                count(&sites, usize::from(number as u8), name.as_bytes(), 1);
            }
            count(&sites, 3, b"one", 10);
            assert_eq!(bytes(&sites, b"one"), 10 * round);
            drop(ledger);
        }
        let sites = Arc::new(Sites::default());
        let _ledger = Ledger::keep(path, Arc::clone(&sites), no_disks()).unwrap();
        assert_eq!(bytes(&sites, b"one"), 30);
        let all: u64 = sites
            .snapshot()
            .iter()
            .map(|(_, count)| count.total().bytes)
            .sum();
        assert_eq!(all, 630);
    }

    fn name_of_ledger(path: &Path) -> LedgerId {
        let sites = Arc::new(Sites::default());
        let _ledger = Ledger::keep(path.to_owned(), Arc::clone(&sites), no_disks()).unwrap();
        sites.tally().unwrap().ledger
    }

    #[test]
    fn ledger_keeps_its_name_as_long_as_its_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("z.sites");
        let first = name_of_ledger(&path);
        assert_eq!(name_of_ledger(&path), first);
        std::fs::remove_file(&path).unwrap();
        let second = name_of_ledger(&path);
        assert_ne!(second, first);
        // One that was made before ledgers had names gets one, and keeps it.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0; 16], header().len() as u64).unwrap();
        let third = name_of_ledger(&path);
        assert_ne!(third, second);
        assert_eq!(name_of_ledger(&path), third);
        // Without the rows of the file there is nothing to tell.
        let has_it = Ledger::keep(path.clone(), Arc::default(), no_disks()).unwrap();
        let sites = Arc::new(Sites::default());
        let _waiting = Ledger::keep(path, Arc::clone(&sites), no_disks()).unwrap();
        assert_eq!(sites.tally(), None);
        drop(has_it);
    }

    /// While no file can be begun in the place of the one that there is, that is read each time it
    /// is tried, and counts once.
    #[test]
    fn rows_are_added_once_however_often_the_file_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("z.sites");
        let before = Arc::new(Sites::default());
        let ledger = Ledger::keep(path.clone(), Arc::clone(&before), no_disks()).unwrap();
        count(&before, 0, b"a", 7);
        drop(ledger);
        let in_the_way = with_ending(&path, ".new");
        std::fs::create_dir(&in_the_way).unwrap();
        let mut keeper = Keeper {
            path,
            sites: Arc::default(),
            disks: no_disks(),
            beside: Vec::new(),
            file: None,
            has_rows: false,
            id: new_id(),
            turn: 0,
            is_told: true,
        };
        for _ in 0..3 {
            keeper.open();
            assert!(keeper.file.is_none());
        }
        assert_eq!(bytes(&keeper.sites, b"a"), 7);
        std::fs::remove_dir(&in_the_way).unwrap();
        keeper.open();
        assert!(keeper.file.is_some());
        assert_eq!(bytes(&keeper.sites, b"a"), 7);
    }

    #[test]
    fn who_comes_while_another_has_the_file_adds_to_it_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("z.sites");
        let (old, new) = (Arc::new(Sites::default()), Arc::new(Sites::default()));
        let first = Ledger::keep(path.clone(), Arc::clone(&old), no_disks()).unwrap();
        let second = Ledger::keep(path.clone(), Arc::clone(&new), no_disks()).unwrap();
        count(&new, 0, b"b", 1);
        count(&old, 0, b"a", 2);
        count(&old, 0, b"b", 4);
        drop(first);
        while bytes(&new, b"b") < 5 {
            std::thread::yield_now();
        }
        drop(second);
        let sites = Arc::new(Sites::default());
        let _ledger = Ledger::keep(path, Arc::clone(&sites), no_disks()).unwrap();
        assert_eq!((bytes(&sites, b"a"), bytes(&sites, b"b")), (2, 5));
    }

    #[test]
    fn a_file_of_somebody_else_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("z.sites");
        for content in [&b""[..], b"mp-sites", &[0xff; 10_000]] {
            std::fs::write(&path, content).unwrap();
            let sites = Arc::new(Sites::default());
            drop(Ledger::keep(path.clone(), sites, no_disks()).unwrap());
            let aside = std::fs::read(with_ending(&path, ".set-aside")).unwrap();
            assert_eq!(aside, content);
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_costs_nothing_else() {
        let path = Path::new("/proc/nowhere/z.sites").to_path_buf();
        let sites = Arc::new(Sites::default());
        let ledger = Ledger::keep(path, Arc::clone(&sites), no_disks()).unwrap();
        count(&sites, 0, b"a", 1);
        assert_eq!(bytes(&sites, b"a"), 1);
        drop(ledger);
    }
}
