//! Log files: one open file for each path, shared by all that write to it.
//!
//! A configuration names a path, and [`LogFile::at`] gives the one [`LogFile`] of that path, opened
//! or not. The files are opened ([`open_all`]) when a configuration is about to be used, and opened
//! again ([`reopen_all`]) when a signal says that they were renamed.
//!
//! Invariants:
//! 1. Two live `LogFile`s never have the same path.
//! 2. A line is one `write` to a descriptor opened with O_APPEND, so lines of several threads and
//!    processes do not mix.
//! 3. Building a configuration opens nothing; a refused configuration leaves no open file behind.
//! 4. What cannot be written is lost: a full disk never stops a request.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;

use super::error::{self, Level};

/// The live log files. A process-wide table, because a reload must find the files of the
/// configuration before it.
static FILES: Mutex<Vec<Weak<LogFile>>> = Mutex::new(Vec::new());

/// Permission bits of a new log file (nginx: NGX_FILE_DEFAULT_ACCESS).
const MODE: u32 = 0o644;

/// A file that lines are appended to, or the standard error stream.
#[derive(Debug)]
pub struct LogFile {
    /// `None` for the standard error stream.
    path: Option<PathBuf>,
    /// Whether the operator asked for it.
    wanted: Wanted,
    file: ArcSwapOption<File>,
}

/// Why a file is a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// It is named; not to have it is an error.
    ByName,
    /// It is a default; not to have it is a warning.
    ByDefault,
}

/// A log file that could not be opened; in nginx's words.
#[derive(Debug, thiserror::Error)]
#[error("open() \"{}\" failed ({})", path.display(), crate::log::error::os_error(source))]
pub struct OpenError {
    /// Which one.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl LogFile {
    /// The file of a path; not opened yet if nobody has it open.
    pub fn at(path: &Path) -> Arc<LogFile> {
        LogFile::find(path, Wanted::ByName)
    }

    /// The file of a path that no configuration names: there need not be one.
    pub fn optional(path: &Path) -> Arc<LogFile> {
        LogFile::find(path, Wanted::ByDefault)
    }

    fn find(path: &Path, wanted: Wanted) -> Arc<LogFile> {
        let mut files = table();
        files.retain(|file| file.strong_count() > 0);
        let known = files.iter().filter_map(Weak::upgrade);
        if let Some(file) = known
            .into_iter()
            .find(|file| file.path.as_deref() == Some(path))
        {
            return file;
        }
        let file = Arc::new(LogFile {
            path: Some(path.to_owned()),
            wanted,
            file: ArcSwapOption::empty(),
        });
        files.push(Arc::downgrade(&file));
        file
    }

    /// The standard error stream.
    pub fn stderr() -> Arc<LogFile> {
        Arc::new(LogFile {
            path: None,
            wanted: Wanted::ByName,
            file: ArcSwapOption::empty(),
        })
    }

    /// True for the standard error stream.
    pub fn is_stderr(&self) -> bool {
        self.path.is_none()
    }

    /// The path; none for the standard error stream.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Appends bytes, which end with a line's end; the error is the caller's to report, elsewhere.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        if self.is_stderr() {
            return io::stderr().write_all(bytes);
        }
        let file = self.file.load();
        let Some(file) = file.as_deref() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut file: &File = file;
        let written = file.write(bytes)?;
        if written < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// Opens the file unless it is open.
    pub fn open(&self) -> Result<(), OpenError> {
        match self.file.load().is_some() {
            true => Ok(()),
            false => self.reopen(),
        }
    }

    /// Opens the file again; the old one stays in use when that fails.
    pub fn reopen(&self) -> Result<(), OpenError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        match append_to(path) {
            Ok(file) => {
                self.file.store(Some(Arc::new(file)));
                Ok(())
            }
            Err(source) => Err(OpenError {
                path: path.clone(),
                source,
            }),
        }
    }
}

/// Opens a file for appending, creating it.
pub fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        .open(path)
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

/// The paths of all files.
pub fn paths() -> Vec<PathBuf> {
    let live = live();
    live.iter().filter_map(|file| file.path.clone()).collect()
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

fn live() -> Vec<Arc<LogFile>> {
    table().iter().filter_map(Weak::upgrade).collect()
}

fn table() -> MutexGuard<'static, Vec<Weak<LogFile>>> {
    // The table is right after any panic: it is changed by single calls only.
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
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
        assert!(first.write(b"x\n").is_err());
        let error = first.open().unwrap_err().to_string();
        let expected = "open() \"/nonexistent/one.log\" failed (2: No such file or directory)";
        assert_eq!(error, expected);
    }
}
