//! `cache_site_counters`: the counters of sites in a file, so that they outlive the process.
//!
//! ```text
//! header (4096) │ chunk 0 │ chunk 1 │ …     each for 64 sites:
//!                 64 names (256 each) │ 16 shards × 64 rows (256 each)
//! ```
//!
//! | part | bytes |
//! |---|---|
//! | header | magic `mp-sites`, version (u32), shards (u32), cells (u32), zeros |
//! | name | length (u8), then so many bytes; length 0: no site has this number yet |
//! | row | 32 numbers (u64) |
//!
//! Numbers are little endian. Rows are sums since the file was made. A thread writes the blocks of
//! rows that changed, `PAUSE` after the first change: so much is lost when the process is killed,
//! and what the kernel has not written when power fails.
//!
//! 1. One process at a time has the file: it is locked. A process that comes while another still
//!    has it counts in memory, and adds the file's rows once it has the lock.
//! 2. A name is in the file before any row of its site.
//! 3. A file that is not understood is renamed and begun anew. One that cannot be written costs
//!    nothing but its content: that is told once, and tried again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use millpond_conf::{Contexts, OffOr, Statement};
use rustix::fs::FlockOperation;

use super::place::{Place, SHARDS};
use super::site::{CELLS, SITES_MAX, Sites};
use crate::log::error::{self, Level};
use crate::scope::Conf;
use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;

/// Between a change and its writing (arbitrary: short for bills, long for a disk).
const PAUSE: Duration = Duration::from_millis(100);
/// Between two tries to have the file.
const RETRY: Duration = Duration::from_secs(1);

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
          `/var/cache/a`. The file of the start counts until the process ends.",
    apply: cache_site_counters,
}];

fn cache_site_counters(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let [word] = statement.args.as_slice() else {
        let message = "invalid number of arguments in \"cache_site_counters\" directive";
        return builder.error(statement.span, message);
    };
    if builder.declared.site_counters.is_some() {
        let message = "\"cache_site_counters\" directive is duplicate";
        return builder.error(statement.span, message);
    }
    let place = match word.text.as_str() {
        "off" => OffOr::Off,
        path => OffOr::On(builder.cx.prefix.join(path)),
    };
    builder.declared.site_counters = Some(place);
}

/// The ledger of a process.
#[derive(Debug, Default)]
pub struct LedgerKeeper(Mutex<Option<Ledger>>);

impl LedgerKeeper {
    /// Keeps the counters where a configuration says, unless they are kept already.
    pub fn keep(&self, conf: &Conf, sites: &Arc<Sites>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = place(conf).filter(|_| kept.is_none()) else {
            return;
        };
        match Ledger::keep(path, Arc::clone(sites)) {
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

/// Where a configuration has its counters.
fn place(conf: &Conf) -> Option<PathBuf> {
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
    pub fn keep(path: PathBuf, sites: Arc<Sites>) -> io::Result<Self> {
        let must_stop = Arc::new(AtomicBool::new(false));
        let mut keeper = Keeper {
            path,
            sites,
            file: None,
            names: 0,
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
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked has nothing left to write.
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Keeper {
    path: PathBuf,
    sites: Arc<Sites>,
    file: Option<File>,
    /// Names that are in the file.
    names: usize,
    is_told: bool,
}

impl Keeper {
    fn run(mut self, must_stop: &AtomicBool) {
        self.sites.set_writer(Some(std::thread::current()));
        while !must_stop.load(Ordering::Acquire) {
            if self.file.is_none() {
                std::thread::park_timeout(RETRY);
                self.open();
                continue;
            }
            if self.sites.may_sleep() {
                std::thread::park();
            }
            // What is counted meanwhile is written together.
            if !must_stop.load(Ordering::Acquire) {
                std::thread::park_timeout(PAUSE);
            }
            self.write();
        }
        self.sites.set_writer(None);
        self.write();
    }

    /// INVARIANT 1. Reads the file and begins another one in its place, since numbers may have been
    /// given out before.
    fn open(&mut self) {
        let taken = take(&self.path).and_then(|taken| match taken {
            Taken::ByOther => Ok(None),
            Taken::Missing => self.begin().map(Some),
            Taken::File(old) => {
                match read_all(&old, &self.sites) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        self.set_aside()?;
                    }
                    Err(error) => return Err(error),
                }
                self.begin().map(Some)
            }
        });
        match taken {
            Ok(file) => self.file = file,
            Err(error) => self.tell(&error),
        }
    }

    /// Writes all counters to a new file and puts it in the old one's place, locked.
    fn begin(&mut self) -> io::Result<File> {
        let new = with_ending(&self.path, ".new");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all_at(&header(), 0)?;
        self.names = 0;
        write_names(&file, &self.sites, &mut self.names)?;
        for shard in self.sites.shards() {
            shard.is_dirty.store(true, Ordering::Release);
        }
        write_rows(&file, &self.sites)?;
        std::fs::rename(&new, &self.path)?;
        Ok(file)
    }

    fn set_aside(&mut self) -> io::Result<()> {
        let aside = with_ending(&self.path, ".set-aside");
        std::fs::rename(&self.path, &aside)?;
        let (path, aside) = (self.path.display(), aside.display());
        let message =
            format_args!("\"{path}\" is no ledger of sites, and was renamed to \"{aside}\"");
        error::process(Level::Error, message);
        Ok(())
    }

    /// Writes what changed; after an error all of it is written once the file is there again.
    fn write(&mut self) {
        let Some(file) = &self.file else { return };
        let wrote = write_names(file, &self.sites, &mut self.names)
            .and_then(|()| write_rows(file, &self.sites));
        match wrote {
            Ok(()) => self.is_told = false,
            Err(error) => {
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

/// What stands where the ledger is to be.
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

/// Adds the rows of a file to what was counted.
fn read_all(file: &File, sites: &Sites) -> io::Result<()> {
    let length = file.metadata()?.len();
    if length < HEADER || read(file, 0, header().len())? != header() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // The last chunk may end with its last block that was written.
    let chunks = (length - HEADER).div_ceil(CHUNK);
    let chunks = usize::try_from(chunks).unwrap_or(usize::MAX);
    for chunk in 0..chunks.min(SITES_MAX / CHUNK_SITES) {
        let names = read(file, chunk_at(chunk), CHUNK_SITES * NAME)?;
        let names = names.as_chunks::<NAME>().0.iter();
        let ids: Vec<_> = names
            .map(|name| name_of(name).map(|name| sites.id(name)))
            .collect();
        for number in 0..SHARDS {
            let block = read(file, block_at(chunk, number), BLOCK)?;
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
    Ok(())
}

/// INVARIANT 2: writes the names that are not in the file yet.
fn write_names(file: &File, sites: &Sites, written: &mut usize) -> io::Result<()> {
    let names = sites.names();
    for (index, name) in names.iter().enumerate().skip(*written) {
        let mut slot = [0; NAME];
        let len = name.len().min(NAME - 1);
        let (first, rest) = slot.split_at_mut(1);
        // A name is at most 255 bytes long.
        first[0] = len as u8;
        for (to, from) in rest.iter_mut().zip(name.iter().take(len)) {
            *to = *from;
        }
        let at = chunk_at(index / CHUNK_SITES) + (index % CHUNK_SITES * NAME) as u64;
        file.write_all_at(&slot, at)?;
        *written = index + 1;
    }
    Ok(())
}

/// Writes the blocks of workers that counted something since the last time.
fn write_rows(file: &File, sites: &Sites) -> io::Result<()> {
    let chunks = sites.names().len().div_ceil(CHUNK_SITES);
    let mut block = Vec::with_capacity(BLOCK);
    for (number, shard) in sites.shards().iter().enumerate() {
        if !shard.is_dirty.swap(false, Ordering::SeqCst) {
            continue;
        }
        for chunk in 0..chunks {
            let rows = chunk * CHUNK_SITES..(chunk + 1) * CHUNK_SITES;
            if rows.clone().all(|index| shard.find(index).is_none()) {
                continue;
            }
            block.clear();
            for index in rows {
                match shard.find(index) {
                    // Number by number, which is less work than byte by byte.
                    Some(row) => row
                        .cells()
                        .for_each(|value| block.extend_from_slice(&value.to_le_bytes())),
                    None => block.resize(block.len() + ROW_LEN, 0),
                }
            }
            if let Err(error) = file.write_all_at(&block, block_at(chunk, number)) {
                shard.is_dirty.store(true, Ordering::Release);
                return Err(error);
            }
        }
    }
    Ok(())
}

fn header() -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    for number in [VERSION, SHARDS as u32, CELLS as u32] {
        header.extend(number.to_le_bytes());
    }
    header
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
    use crate::cache::provenance::Shares;
    use crate::stats::Label;
    use crate::stats::site::Answered;

    fn count(sites: &Sites, worker: usize, name: &[u8], bytes: u64) {
        let answer = Answered {
            label: Label::of(Some("HIT")),
            bytes,
            shares: Shares::default(),
        };
        sites.answered(Place::shared(worker), sites.id(name), &answer);
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
            let ledger = Ledger::keep(path.clone(), Arc::clone(&sites)).unwrap();
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
        let _ledger = Ledger::keep(path, Arc::clone(&sites)).unwrap();
        assert_eq!(bytes(&sites, b"one"), 30);
        let all: u64 = sites
            .snapshot()
            .iter()
            .map(|(_, count)| count.total().bytes)
            .sum();
        assert_eq!(all, 630);
    }

    #[test]
    fn who_comes_while_another_has_the_file_adds_to_it_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("z.sites");
        let (old, new) = (Arc::new(Sites::default()), Arc::new(Sites::default()));
        let first = Ledger::keep(path.clone(), Arc::clone(&old)).unwrap();
        let second = Ledger::keep(path.clone(), Arc::clone(&new)).unwrap();
        count(&new, 0, b"b", 1);
        count(&old, 0, b"a", 2);
        count(&old, 0, b"b", 4);
        drop(first);
        while bytes(&new, b"b") < 5 {
            std::thread::yield_now();
        }
        drop(second);
        let sites = Arc::new(Sites::default());
        let _ledger = Ledger::keep(path, Arc::clone(&sites)).unwrap();
        assert_eq!((bytes(&sites, b"a"), bytes(&sites, b"b")), (2, 5));
    }

    #[test]
    fn a_file_of_somebody_else_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("z.sites");
        for content in [&b""[..], b"mp-sites", &[0xff; 10_000]] {
            std::fs::write(&path, content).unwrap();
            let sites = Arc::new(Sites::default());
            drop(Ledger::keep(path.clone(), sites).unwrap());
            let aside = std::fs::read(with_ending(&path, ".set-aside")).unwrap();
            assert_eq!(aside, content);
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_costs_nothing_else() {
        let path = Path::new("/proc/nowhere/z.sites").to_path_buf();
        let sites = Arc::new(Sites::default());
        let ledger = Ledger::keep(path, Arc::clone(&sites)).unwrap();
        count(&sites, 0, b"a", 1);
        assert_eq!(bytes(&sites, b"a"), 1);
        drop(ledger);
    }
}
