//! A disk that can lose its power, and a process that can be killed, for tests.
//!
//! Files are real. What was written and not synced is remembered with what stood there before, so
//! that it can be taken back:
//!
//! - **A power failure** ([`PowerIo::cut`], then [`PowerIo::lose`]) leaves of each page that was
//!   not synced what was durable, what was written last, or a mixture by sectors of both and of
//!   what was written in between; each page for itself, so writes are lost, torn and reordered. Of
//!   the names in a directory that were not synced (created, renamed, unlinked) the first few
//!   operations survive, none, or all: journaling file systems keep their order. A file whose name
//!   survived and that was never synced may be empty.
//! - **A kill** ([`PowerIo::cut`] alone) lets nothing happen any more, but for the first sectors
//!   of one write.
//! - **Errors** come at the operations that the test says. A sync of a file that fails so has lost
//!   what was not synced: of each page the durable content is back, at once or, for those that stay
//!   in the page cache for a while, at one of the next syncs of anything; no later sync of the file
//!   makes them durable, unless the page was written again.
//!
//! 1. After the cut nothing is written, created, renamed or removed through this disk.
//! 2. What a sync has answered without an error is never taken back.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::io::{DirEntry, DiskIo, File, RealIo};
use crate::lock::lock;

/// Bytes that a device or a page cache writes at a time.
const PAGE: u64 = 4096;
/// Bytes that a device writes wholly or not at all.
const SECTOR: usize = 512;
/// Contents of one page that may come back, besides the durable one.
const MAX_VERSIONS: usize = 3;

/// A file system whose unsynced writes can be lost.
#[derive(Debug)]
pub struct PowerIo {
    real: RealIo,
    state: Mutex<State>,
    /// Other devices, by the directories that are on them.
    disks: Vec<(PathBuf, Arc<PowerIo>)>,
}

#[derive(Debug)]
struct State {
    random: u64,
    /// Directory in which removed files wait until their removal is durable.
    graves: PathBuf,
    buried: u64,
    is_cut: bool,
    /// True if part of one more write reaches the file.
    has_gasp: bool,
    /// Unsynced writes, by inode.
    files: HashMap<u64, Unsynced>,
    /// Operations on names that were not synced, in order.
    names: Vec<NameOp>,
    /// Pages that no sync brings to the device any more: their file, which of its pages, and what
    /// is durable.
    stale: Vec<(File, u64, Vec<u8>)>,
    /// True if a page of a sync that failed was lost.
    has_lied: bool,
    /// Writes, syncs and operations on names so far.
    operations: u64,
    failing: Option<(Range<u64>, i32)>,
    injected: u64,
    syncs: u64,
}

#[derive(Debug)]
struct Unsynced {
    file: File,
    /// The length of a file that was never synced is lost with its contents.
    has_length: bool,
    /// The durable content of each page first, then others that may be there.
    pages: BTreeMap<u64, Vec<Vec<u8>>>,
}

#[derive(Debug)]
enum NameOp {
    Created(PathBuf),
    Unlinked {
        path: PathBuf,
        grave: PathBuf,
    },
    Renamed {
        from: PathBuf,
        to: PathBuf,
        /// File that had the name `to` before.
        grave: Option<PathBuf>,
    },
}

impl NameOp {
    fn is_in(&self, dir: &Path) -> bool {
        let (Self::Created(path) | Self::Unlinked { path, .. } | Self::Renamed { to: path, .. }) =
            self;
        path.parent() == Some(dir)
    }

    fn grave(&self) -> Option<&Path> {
        match self {
            Self::Created(_) => None,
            Self::Unlinked { grave, .. } => Some(grave),
            Self::Renamed { grave, .. } => grave.as_deref(),
        }
    }

    fn undo(&self) -> io::Result<()> {
        match self {
            Self::Created(path) => RealIo.unlink(path),
            Self::Unlinked { path, grave } => RealIo.rename(grave, path),
            Self::Renamed { from, to, grave } => {
                RealIo.rename(to, from)?;
                grave.iter().try_for_each(|grave| RealIo.rename(grave, to))
            }
        }
    }
}

impl State {
    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    /// Counts an operation that changes something; it may be one that is to fail.
    fn begin(&mut self) -> io::Result<()> {
        if self.is_cut {
            // What comes after the first error answers it: a dead process would not.
            self.has_gasp = false;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.operations += 1;
        match &self.failing {
            Some((range, errno)) if range.contains(&self.operations) => {
                self.injected += 1;
                Err(io::Error::from_raw_os_error(*errno))
            }
            _ => Ok(()),
        }
    }

    /// Loses the pages that a failed sync of a file was to write.
    fn lose_pages(&mut self, file: &File) -> io::Result<()> {
        let Some(unsynced) = self.files.get_mut(&file.metadata()?.ino()) else {
            return Ok(());
        };
        let pages = std::mem::take(&mut unsynced.pages);
        for (page, versions) in pages {
            let Some(durable) = versions.into_iter().next() else {
                continue;
            };
            self.stale.push((another(file)?, page, durable));
        }
        self.drop_stale(2)
    }

    /// Takes the durable bytes of those pages of a stretch that no sync was to bring to the device.
    fn take_stale(&mut self, inode: u64, range: &Range<u64>) -> io::Result<BTreeMap<u64, Vec<u8>>> {
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let mut taken = BTreeMap::new();
        for (file, page, durable) in std::mem::take(&mut self.stale) {
            if pages.contains(&page) && file.metadata()?.ino() == inode {
                drop(taken.insert(page, durable));
            } else {
                self.stale.push((file, page, durable));
            }
        }
        Ok(taken)
    }

    /// The page cache lets one in so many of the pages go that were never written.
    fn drop_stale(&mut self, share: u64) -> io::Result<()> {
        for (file, page, durable) in std::mem::take(&mut self.stale) {
            match self.below(share) {
                0 => {
                    self.has_lied = true;
                    file.write_all_at(&durable, page * PAGE)?;
                }
                _ => self.stale.push((file, page, durable)),
            }
        }
        Ok(())
    }

    fn grave(&mut self) -> PathBuf {
        self.buried += 1;
        self.graves.join(self.buried.to_string())
    }

    /// Remembers what stands where something is about to be written.
    fn remember(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        let inode = file.metadata()?.ino();
        let rewritten = self.take_stale(inode, &range)?;
        let unsynced = match self.files.entry(inode) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(Unsynced {
                file: another(file)?,
                has_length: true,
                pages: BTreeMap::new(),
            }),
        };
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            let versions = unsynced.pages.entry(page).or_default();
            // A page that is written again is written back again, with all that stands on it.
            versions.extend(
                rewritten
                    .get(&page)
                    .filter(|_| versions.is_empty())
                    .cloned(),
            );
            if versions.len() <= MAX_VERSIONS {
                versions.push(read_page(file, page)?);
            }
        }
        Ok(())
    }

    /// Writes a part that a process which is killed meanwhile may have written.
    fn gasp(&mut self, real: &RealIo, file: &File, write: (&[Bytes], u64)) -> io::Result<()> {
        let (bufs, offset) = write;
        let whole = bufs.concat();
        let end = self.below(whole.len() as u64 + 1) as usize;
        // The kernel looks whether its caller is to die between pages, not within a sector.
        let cut = (offset + end as u64) / SECTOR as u64 * SECTOR as u64;
        let end = if end == whole.len() {
            end
        } else {
            cut.saturating_sub(offset) as usize
        };
        let part = Bytes::copy_from_slice(whole.get(..end).unwrap_or_default());
        self.remember(file, offset..offset + part.len() as u64)?;
        real.write_at(file, &[part], offset)
    }

    /// Content of a page after a power failure.
    fn surviving(&mut self, versions: &[Vec<u8>], newest: &[u8]) -> Vec<u8> {
        let durable = versions.first().map_or(newest, Vec::as_slice);
        match self.below(5) {
            0 | 1 => durable.to_vec(),
            2 | 3 => newest.to_vec(),
            _ => {
                let mut mixture = Vec::with_capacity(newest.len());
                for start in (0..newest.len()).step_by(SECTOR) {
                    let chosen = self.below(versions.len() as u64 + 1) as usize;
                    let from = versions.get(chosen).map_or(newest, Vec::as_slice);
                    let sector = from.get(start..newest.len().min(start + SECTOR));
                    mixture.extend_from_slice(sector.unwrap_or_default());
                }
                mixture
            }
        }
    }
}

impl PowerIo {
    /// A disk that chooses by `seed` what survives, and keeps removed files in `graves`, a
    /// directory of the same file system.
    pub fn new(seed: u64, graves: impl Into<PathBuf>) -> Self {
        Self {
            real: RealIo,
            state: Mutex::new(State {
                random: seed,
                graves: graves.into(),
                buried: 0,
                is_cut: false,
                has_gasp: false,
                files: HashMap::new(),
                names: Vec::new(),
                stale: Vec::new(),
                has_lied: false,
                operations: 0,
                failing: None,
                injected: 0,
                syncs: 0,
            }),
            disks: Vec::new(),
        }
    }

    /// Adds other devices, each with a power supply of its own, for these directories.
    #[must_use]
    pub fn with_disks(mut self, disks: Vec<(PathBuf, Arc<Self>)>) -> Self {
        self.disks = disks;
        self
    }

    /// INVARIANT 1. From now on nothing happens to the files, except that a part of one write may
    /// still be made; so all users of this disk have to end before another one begins.
    pub fn cut(&self) {
        let mut state = lock(&self.state);
        state.is_cut = true;
        state.has_gasp = state.below(2) == 0;
    }

    /// Takes back what a power failure takes: after [`PowerIo::cut`], when nobody uses the files
    /// any more.
    pub fn lose(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.drop_stale(1)?;
        let mut files: Vec<(u64, Unsynced)> = state.files.drain().collect();
        // So that one seed is one run.
        files.sort_unstable_by_key(|(inode, _)| *inode);
        for (_, unsynced) in files {
            if !unsynced.has_length && state.below(2) == 0 {
                unsynced.file.set_len(0)?;
                continue;
            }
            for (page, versions) in &unsynced.pages {
                let newest = read_page(&unsynced.file, *page)?;
                let left = state.surviving(versions, &newest);
                unsynced.file.write_all_at(&left, page * PAGE)?;
            }
        }
        let names = std::mem::take(&mut state.names);
        let survivors = state.below(names.len() as u64 + 1) as usize;
        let lost = names.get(survivors..).unwrap_or_default();
        lost.iter().rev().try_for_each(NameOp::undo)
    }

    /// Takes over what was not synced by a process that was killed: its pages and names are still
    /// those of this machine, and may be lost later.
    pub fn inherit(&self, dead: &Self) {
        let mut from = lock(&dead.state);
        let (files, names) = (
            std::mem::take(&mut from.files),
            std::mem::take(&mut from.names),
        );
        let stale = std::mem::take(&mut from.stale);
        let (buried, has_lied) = (from.buried, from.has_lied);
        drop(from);
        let mut state = lock(&self.state);
        (state.stale, state.has_lied) = (stale, has_lied);
        (state.files, state.names) = (files, names);
        state.buried = buried;
    }

    /// Lets the operations that change something fail: so many after now, and so many.
    pub fn fail(&self, operations: Range<u64>, errno: i32) {
        let mut state = lock(&self.state);
        let now = state.operations + 1;
        state.failing = Some((now + operations.start..now + operations.end, errno));
    }

    /// True if pages of a sync that failed were lost, or will be: maybe long after it, and under
    /// another process, which no sync has told of it. So nobody can promise that what they held is
    /// there; only that nothing wrong is.
    pub fn has_lied(&self) -> bool {
        let state = lock(&self.state);
        state.has_lied || !state.stale.is_empty()
    }

    /// Number of operations that have failed because the test said so.
    pub fn injected(&self) -> u64 {
        lock(&self.state).injected
    }

    /// Number of syncs of files.
    pub fn syncs(&self) -> u64 {
        lock(&self.state).syncs
    }
}

/// Lets go what removed files were kept for.
fn forget(names: &[NameOp]) -> io::Result<()> {
    let mut graves = names.iter().filter_map(NameOp::grave);
    graves.try_for_each(|grave| RealIo.unlink(grave))
}

/// The file, opened once more: a copy of the handle would share its lock.
fn another(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).write(true).open(path)
}

/// Bytes of a page, cut off at the end of the file.
fn read_page(file: &File, page: u64) -> io::Result<Vec<u8>> {
    let start = page * PAGE;
    let len = file.metadata()?.len().saturating_sub(start).min(PAGE);
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

impl DiskIo for PowerIo {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.real.make_dir(dir)?;
        self.real.make_dir(&lock(&self.state).graves)
    }

    fn for_disk(&self, dir: &Path) -> Option<Arc<dyn DiskIo>> {
        let (_, disk) = self.disks.iter().find(|(own, _)| own == dir)?;
        Some(Arc::<Self>::clone(disk))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.real.list(dir)
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<File> {
        let mut state = lock(&self.state);
        state.begin()?;
        let file = self.real.create(path, len)?;
        let unsynced = Unsynced {
            file: another(&file)?,
            has_length: false,
            pages: BTreeMap::new(),
        };
        state.files.insert(file.metadata()?.ino(), unsynced);
        state.names.push(NameOp::Created(path.to_path_buf()));
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.real.open(path)
    }

    fn lock(&self, file: &File) -> io::Result<bool> {
        self.real.lock(file)
    }

    fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.real.read_at(file, buf, offset)
    }

    fn forget(&self, file: &File, stretch: Range<u64>) {
        let mut state = lock(&self.state);
        let taken = file
            .metadata()
            .and_then(|meta| state.take_stale(meta.ino(), &stretch));
        for (page, durable) in taken.into_iter().flatten() {
            state.has_lied = true;
            // What cannot be written here is as it was; it is a hint.
            let _ = file.write_all_at(&durable, page * PAGE);
        }
    }

    fn write_at(&self, file: &File, bufs: &[Bytes], offset: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let has_gasp = state.has_gasp;
        if let Err(error) = state.begin() {
            if has_gasp {
                state.gasp(&self.real, file, (bufs, offset))?;
            }
            return Err(error);
        }
        let size: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        state.remember(file, offset..offset + size)?;
        self.real.write_at(file, bufs, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let mut state = lock(&self.state);
        if let Err(error) = state.begin() {
            if !state.is_cut {
                state.lose_pages(file)?;
            }
            return Err(error);
        }
        state.drop_stale(4)?;
        state.files.remove(&file.metadata()?.ino());
        state.syncs += 1;
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.begin()?;
        let grave = state.grave();
        self.real.rename(path, &grave)?;
        let path = path.to_path_buf();
        state.names.push(NameOp::Unlinked { path, grave });
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.begin()?;
        let mut grave = None;
        if to.exists() {
            let path = state.grave();
            self.real.rename(to, &path)?;
            grave = Some(path);
        }
        self.real.rename(from, to)?;
        state.names.push(NameOp::Renamed {
            from: from.to_path_buf(),
            to: to.to_path_buf(),
            grave,
        });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.begin()?;
        let names = std::mem::take(&mut state.names);
        let (synced, others) = names.into_iter().partition(|name| name.is_in(dir));
        let synced: Vec<NameOp> = synced;
        state.names = others;
        forget(&synced)
    }

    fn sync_all(&self, _: &Path) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.begin()?;
        state.files.clear();
        let names = std::mem::take(&mut state.names);
        forget(&names)
    }

    fn available(&self, dir: &Path) -> io::Result<u64> {
        self.real.available(dir)
    }

    fn random(&self) -> [u8; 16] {
        let mut state = lock(&self.state);
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            *byte = state.below(256) as u8;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        home: tempfile::TempDir,
        io: PowerIo,
    }

    impl Bench {
        fn new(seed: u64) -> Self {
            let home = tempfile::tempdir().expect("directory");
            let io = PowerIo::new(seed, home.path().join("graves"));
            io.make_dir(&home.path().join("zone")).expect("made");
            Self { home, io }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.home.path().join("zone").join(name)
        }

        fn create(&self, name: &str) -> File {
            let file = self.io.create(&self.path(name), 3 * PAGE);
            file.expect("created")
        }

        fn sync(&self, file: &File) {
            self.io.sync(file).expect("synced");
            let dir = self.path("").clone();
            self.io.sync_dir(dir.as_path()).expect("synced");
        }

        fn write(&self, file: &File, byte: u8) {
            let page = Bytes::from(vec![byte; PAGE as usize]);
            let bufs = [page.clone(), page.clone(), page];
            self.io.write_at(file, &bufs, 0).expect("written");
        }

        /// The power fails; which bytes stand at the beginning of each page.
        fn fail(&self, name: &str) -> Option<Vec<u8>> {
            self.io.cut();
            self.io.lose().expect("lost");
            let bytes = std::fs::read(self.path(name)).ok()?;
            Some(bytes.chunks(SECTOR).map(|sector| sector[0]).collect())
        }
    }

    #[test]
    fn what_was_synced_is_never_lost() {
        for seed in 0..20 {
            let bench = Bench::new(seed);
            let file = bench.create("a");
            bench.write(&file, 1);
            bench.sync(&file);
            assert_eq!(bench.fail("a"), Some(vec![1; 24]), "{seed}");
        }
    }

    #[test]
    fn what_was_not_synced_is_lost_torn_and_reordered() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let bench = Bench::new(seed);
            let file = bench.create("a");
            bench.sync(&file);
            bench.write(&file, 1);
            bench.write(&file, 2);
            let left = bench.fail("a").expect("its name was synced");
            for page in left.chunks(8) {
                seen.insert(match page {
                    [0, 0, 0, 0, 0, 0, 0, 0] => "lost",
                    [2, 2, 2, 2, 2, 2, 2, 2] => "kept",
                    _ if page.contains(&1) => "mixed with what was written between",
                    _ => "torn",
                });
            }
            let (first, last) = (left[0], left[16]);
            if first == 0 && last == 2 {
                seen.insert("reordered");
            }
        }
        assert_eq!(seen.len(), 5, "{seen:?}");
    }

    #[test]
    fn names_that_were_not_synced_are_lost_from_some_point_on() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..60 {
            let bench = Bench::new(seed);
            let file = bench.create("a");
            bench.write(&file, 1);
            bench.sync(&file);
            bench
                .io
                .rename(&bench.path("a"), &bench.path("b"))
                .expect("renamed");
            let other = bench.create("a");
            bench.io.sync(&other).expect("synced");
            bench.io.unlink(&bench.path("b")).expect("unlinked");
            bench.fail("a");
            let first = |name| Some(std::fs::read(bench.path(name)).ok()?[0]);
            seen.insert((first("a"), first("b")));
        }
        let expected = [
            (None, Some(1)),
            (Some(0), None),
            (Some(0), Some(1)),
            (Some(1), None),
        ];
        assert!(seen.iter().eq(&expected), "{seen:?}");
    }

    #[test]
    fn sync_that_fails_loses_what_it_was_to_write_and_the_next_one_proves_nothing() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let bench = Bench::new(seed);
            let file = bench.create("a");
            bench.sync(&file);
            bench.write(&file, 1);
            bench.io.fail(0..1, 5);
            assert!(bench.io.sync(&file).is_err());
            let here = std::fs::read(bench.path("a")).expect("read");
            seen.insert((here[0], here[PAGE as usize]));
            bench.sync(&file);
            assert_eq!(bench.fail("a"), Some(vec![0; 24]), "{seed}");
        }
        assert_eq!(seen.len(), 4, "each page for itself: {seen:?}");
    }

    #[test]
    fn errors_come_where_the_test_says() {
        let bench = Bench::new(1);
        let file = bench.create("a");
        bench.io.fail(1..3, 28);
        bench.write(&file, 1);
        let error = bench.io.sync(&file).expect_err("the second one fails");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(bench.io.unlink(&bench.path("a")).is_err());
        assert!(bench.io.unlink(&bench.path("a")).is_ok());
        assert_eq!(bench.io.injected(), 2);
    }
}
