//! Log files: one open file for each path, shared by all that write to it.
//!
//! A configuration names a path, and [`LogFile::at`] gives the one [`LogFile`] of that path, opened
//! or not. The files are opened ([`open_all`]) when a configuration is about to be used, and opened
//! again ([`reopen_all`]) when a signal says that they were renamed.
//!
//! Who logs never waits for a file. How that is done depends on what the file is:
//!
//! | file | a line is |
//! |---|---|
//! | regular, on a local disk | written at once, or by [`turn`](super::turn) |
//! | FIFO, pipe, terminal, device | written at once if there is room, else left to `queue` |
//! | on a network or in user space | left to `queue` |
//!
//! Invariants:
//! 1. Two live `LogFile`s never have the same path.
//! 2. A line is one `write` to a descriptor opened with O_APPEND, so lines of several threads and
//!    processes do not mix.
//! 3. Building a configuration opens nothing; a refused configuration leaves no open file behind.
//! 4. What cannot be written is lost, counted and told ([`loss`](super::loss)): it never stops a
//!    request.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustix::fs::OFlags;

use super::error::{self, Level};
use super::loss::{Loss, Why};
use super::queue::{self, Queue};
use crate::root_helper;

/// The live log files. A process-wide table, because a reload must find the files of the
/// configuration before it.
static FILES: Mutex<Vec<Weak<LogFile>>> = Mutex::new(Vec::new());

/// The standard error stream; one, since it has one queue.
static STDERR: LazyLock<Arc<LogFile>> = LazyLock::new(|| {
    let file = LogFile::new(None, (Wanted::ByDefault, MODE));
    // The file has no path that could be missing.
    let _ = file.reopen();
    Arc::new(file)
});

/// Permission bits of a new log file (nginx: NGX_FILE_DEFAULT_ACCESS).
pub const MODE: u32 = 0o644;

/// Permission bits of a new log file whose lines are secrets.
const SECRET_MODE: u32 = 0o600;

/// Numbers of file systems whose files may block for as long as another machine or process likes:
/// NFS, SMB (three kinds), CIFS, FUSE, Ceph, 9P, AFS, Coda, NCP.
const SLOW_FILE_SYSTEMS: [i64; 11] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x00c3_6400,
    0x0102_1997,
    0x5346_414f,
    0x7375_7245,
    0x564c,
    0x6b41_4653,
];

/// A file that lines are appended to, or the standard error stream.
#[derive(Debug)]
pub struct LogFile {
    /// `None` for the standard error stream.
    path: Option<PathBuf>,
    /// Reason why the file is a log, which says whether the operator asked for it.
    wanted: Wanted,
    /// Permission bits if the file is made.
    mode: u32,
    file: ArcSwapOption<Opened>,
    /// True if the open file answers at once.
    is_direct: AtomicBool,
    queue: Queue,
    loss: Arc<Loss>,
}

/// An open file, and how it is written to.
#[derive(Debug)]
struct Opened {
    file: Arc<File>,
    way: Way,
}

/// Way in which a file is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The file answers at once.
    Direct,
    /// The file says when it has no room.
    NonBlocking,
    /// The file may block, and a poll tells whether a short write would: a stream that other
    /// processes share, so that it cannot be made non-blocking.
    Polled,
    /// The file may block.
    Queued,
}

/// The reason why a file is a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// The file is named; not to have it is an error.
    ByName,
    /// The file is a default; not to have it is a warning.
    ByDefault,
}

/// A log file that could not be opened; in nginx's words.
#[derive(Debug, thiserror::Error)]
#[error("open() \"{}\" failed ({})", path.display(), crate::log::error::os_error(source))]
pub struct OpenError {
    /// Path of the file.
    pub path: PathBuf,
    /// The reason.
    pub source: io::Error,
}

impl LogFile {
    /// The file of a path; not opened yet if nobody has it open.
    pub fn at(path: &Path) -> Arc<LogFile> {
        LogFile::find(path, (Wanted::ByName, MODE))
    }

    /// The file of a path whose lines are secrets: if it is made, only its owner can read it.
    pub fn secret(path: &Path) -> Arc<LogFile> {
        LogFile::find(path, (Wanted::ByName, SECRET_MODE))
    }

    /// The file of a path that no configuration names: there need not be one.
    pub fn optional(path: &Path) -> Arc<LogFile> {
        LogFile::find(path, (Wanted::ByDefault, MODE))
    }

    fn new(path: Option<&Path>, (wanted, mode): (Wanted, u32)) -> LogFile {
        LogFile {
            path: path.map(Path::to_owned),
            wanted,
            mode,
            file: ArcSwapOption::empty(),
            is_direct: AtomicBool::new(false),
            queue: Queue::default(),
            loss: Arc::default(),
        }
    }

    fn find(path: &Path, kind: (Wanted, u32)) -> Arc<LogFile> {
        let mut files = table();
        files.retain(|file| file.strong_count() > 0);
        let known = files.iter().filter_map(Weak::upgrade);
        if let Some(file) = known
            .into_iter()
            .find(|file| file.path.as_deref() == Some(path))
        {
            return file;
        }
        let file = Arc::new(LogFile::new(Some(path), kind));
        files.push(Arc::downgrade(&file));
        file
    }

    /// The standard error stream.
    pub fn stderr() -> Arc<LogFile> {
        Arc::clone(&STDERR)
    }

    /// True for the standard error stream.
    pub fn is_stderr(&self) -> bool {
        self.path.is_none()
    }

    /// True if the file is open and answers at once, so that many lines may be written as one.
    pub fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::Relaxed)
    }

    /// The path; none for the standard error stream.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Appends `lines` lines, at once or as soon as the file takes them; never waits for that.
    pub fn write(&self, bytes: &[u8], lines: u64) {
        let opened = self.file.load();
        let Some(opened) = opened.as_deref() else {
            // A default that is not there is nobody's loss.
            if self.wanted == Wanted::ByName {
                self.lost(lines, &io::ErrorKind::NotFound.into());
            }
            return;
        };
        if opened.way == Way::Queued || self.queue.is_busy() {
            return self.enqueue(opened, bytes, lines);
        }
        if opened.way == Way::Polled && !opened.has_room() {
            return self.enqueue(opened, bytes, lines);
        }
        let mut file: &File = &opened.file;
        match file.write(bytes) {
            Ok(written) if written >= bytes.len() => {}
            Ok(_) if opened.way == Way::Direct => {
                self.lost(lines, &io::ErrorKind::StorageFull.into());
            }
            Ok(written) => {
                self.enqueue(opened, bytes.get(written..).unwrap_or_default(), lines);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.enqueue(opened, bytes, lines);
            }
            Err(error) => self.lost(lines, &error),
        }
    }

    fn enqueue(&self, opened: &Opened, bytes: &[u8], lines: u64) {
        let refused = || -> queue::Refused {
            let (path, loss) = (self.shown().to_owned(), Arc::clone(&self.loss));
            Box::new(move |lines, failure| {
                let what = queue::write_failed(&path, failure);
                loss.note(Why::File, Level::Alert, lines, format_args!("{what}"));
            })
        };
        if let Err(full) = self.queue.push(&opened.file, bytes, lines, refused) {
            let path = self.shown().display();
            let what = format_args!("write() to \"{path}\" is late ({full})");
            self.loss.note(Why::Queue, Level::Alert, lines, what);
        }
    }

    fn lost(&self, lines: u64, failure: &io::Error) {
        let what = queue::write_failed(self.shown(), failure);
        self.loss
            .note(Why::File, Level::Alert, lines, format_args!("{what}"));
    }

    fn shown(&self) -> &Path {
        self.path().unwrap_or(Path::new("stderr"))
    }

    /// Opens the file unless it is open.
    pub fn open(&self) -> Result<(), OpenError> {
        if self.file.load().is_some() {
            Ok(())
        } else {
            self.reopen()
        }
    }

    /// Opens the file again; the old one stays in use when that fails.
    pub fn reopen(&self) -> Result<(), OpenError> {
        let Some(path) = &self.path else {
            // The stream may be another file than before; without one nothing is written.
            let fd = io::stderr().as_fd().try_clone_to_owned().ok();
            let opened = fd.map(|fd| Arc::new(Opened::new(File::from(fd))));
            self.file.store(opened);
            return Ok(());
        };
        let own = append_to(path, self.mode);
        let opened = root_helper::unless_refused(own, || root_helper::open_log(path));
        match opened {
            Ok(file) => {
                let opened = Opened::new(file);
                let is_direct = opened.way == Way::Direct;
                self.file.store(Some(Arc::new(opened)));
                self.is_direct.store(is_direct, Ordering::Relaxed);
                Ok(())
            }
            Err(source) => Err(OpenError {
                path: path.clone(),
                source,
            }),
        }
    }
}

impl Opened {
    fn new(file: File) -> Opened {
        Opened {
            way: way_of(&file),
            file: Arc::new(file),
        }
    }

    /// True if a line can be written without waiting.
    fn has_room(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut polled = [PollFd::new(&self.file, PollFlags::OUT)];
        let count = poll(&mut polled, Some(&Timespec::default()));
        count.is_ok_and(|count| count > 0)
    }
}

/// Way in which a file is written to; a file of which nothing can be told counts as slow.
fn way_of(file: &File) -> Way {
    let Ok(meta) = file.metadata() else {
        return Way::Queued;
    };
    let kind = meta.file_type();
    if kind.is_file() {
        let system = rustix::fs::fstatfs(file).map(|system| system.f_type);
        return match system {
            Ok(number) if !SLOW_FILE_SYSTEMS.contains(&(number & 0xffff_ffff)) => Way::Direct,
            _ => Way::Queued,
        };
    }
    let is_stream = kind.is_fifo() || kind.is_char_device() || kind.is_socket();
    let flags = rustix::fs::fcntl_getfl(file).unwrap_or(OFlags::empty());
    match (is_stream, flags.contains(OFlags::NONBLOCK)) {
        (true, true) => Way::NonBlocking,
        (true, false) => Way::Polled,
        (false, _) => Way::Queued,
    }
}

/// Opens a file for appending, creating it with permission bits `mode`. Streams are opened so that
/// they never block, and a FIFO need not have a reader yet.
pub fn append_to(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .append(true)
        .create(true)
        .mode(mode)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    match options.open(path) {
        // A FIFO that is open for reading, too, waits for its reader instead of refusing lines.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
            options.read(true).create(false).open(path)
        }
        opened => opened,
    }
}

/// Opens all files that a configuration named and that are not open. Failures are logged; false
/// when one matters.
pub fn open_all() -> bool {
    is_good(LogFile::open)
}

/// Opens all files again, after they were renamed. Failures are logged; false when one matters.
pub fn reopen_all() -> bool {
    is_good(LogFile::reopen)
}

/// The paths of all files, each with the permission bits that a new file gets.
pub fn paths() -> Vec<(PathBuf, u32)> {
    let live = live();
    let of = |file: &Arc<LogFile>| Some((file.path.clone()?, file.mode));
    live.iter().filter_map(of).collect()
}

fn is_good(open: fn(&LogFile) -> Result<(), OpenError>) -> bool {
    let mut is_good = true;
    for file in live() {
        let Err(failure) = open(&file) else { continue };
        match file.wanted {
            Wanted::ByName => {
                is_good = false;
                error::process(Level::Emerg, format_args!("{failure}"));
            }
            Wanted::ByDefault => error::process(Level::Notice, format_args!("{failure}")),
        }
    }
    is_good
}

/// Waits until the queues of all files are written, each for at most `most`.
pub fn drain_all(most: Duration) {
    for file in live().iter().chain([&*STDERR]) {
        file.queue.drain(most);
    }
}

fn live() -> Vec<Arc<LogFile>> {
    table().iter().filter_map(Weak::upgrade).collect()
}

fn table() -> MutexGuard<'static, Vec<Weak<LogFile>>> {
    // The table is right after any panic: it is changed by single calls only.
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::loss;
    use super::*;

    #[test]
    fn path_has_one_file_while_it_is_in_use() {
        let path = Path::new("/nonexistent/one.log");
        let first = LogFile::at(path);
        assert!(Arc::ptr_eq(&first, &LogFile::at(path)));
        assert!(!Arc::ptr_eq(
            &first,
            &LogFile::at(Path::new("/nonexistent/two.log"))
        ));
        let lost = loss::lost().file;
        first.write(b"x\n", 1);
        assert!(loss::lost().file > lost);
        let error = first.open().unwrap_err().to_string();
        let expected = "open() \"/nonexistent/one.log\" failed (2: No such file or directory)";
        assert_eq!(error, expected);
    }
}
