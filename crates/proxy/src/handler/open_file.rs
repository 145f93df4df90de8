//! Opening and testing files by the paths that requests name, and how a failure is answered and logged.
//!
//! A file is opened once and asked through its descriptor, so that what is sent is what was looked at. Opening never
//! waits, also when the path names a pipe.
//!
//! Sources: nginx ngx_open_cached_file, and its callers for the log's words.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::failure::Failure;
use crate::log::error::{self, Level};
use crate::request::Request;

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A device, a pipe, a socket.
    Other,
}

/// An open file and what is known of it.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The file.
    pub file: Arc<File>,
    /// What it is.
    pub kind: Kind,
    /// Its size in bytes.
    pub len: u64,
    /// When it was last modified, seconds since 1970.
    pub modified: i64,
}

/// Why a path could not be opened or tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The call that failed.
    pub call: &'static str,
    /// Why.
    pub errno: Errno,
}

/// Opens a path for reading.
pub fn open(path: &[u8]) -> Result<OpenFile, PathError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| PathError {
        call: "open()",
        errno,
    })?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| PathError {
        call: "fstat()",
        errno,
    })?;
    Ok(OpenFile {
        file: Arc::new(File::from(file)),
        kind: kind(&stat),
        len: u64::try_from(stat.st_size).unwrap_or_default(),
        modified: stat.st_mtime,
    })
}

/// Asks what a path names, without opening it.
pub fn test(path: &[u8]) -> Result<Kind, PathError> {
    let stat = rustix::fs::statat(CWD, path, AtFlags::empty());
    stat.map(|stat| kind(&stat)).map_err(|errno| PathError {
        call: "stat()",
        errno,
    })
}

fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    }
}

impl PathError {
    /// True when there is no such file.
    pub fn is_missing(&self) -> bool {
        // A path with a zero byte in it is no name of a file either.
        matches!(
            self.errno,
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL
        )
    }

    /// True when access is denied.
    pub fn is_denied(&self) -> bool {
        matches!(self.errno, Errno::ACCESS | Errno::LOOP | Errno::MLINK)
    }

    /// The failure of the request whose file this was; logs it.
    pub fn fail(&self, req: &Request, path: &[u8]) -> Failure {
        let (level, status) = if self.is_missing() {
            (Level::Error, 404)
        } else if self.is_denied() {
            (Level::Error, 403)
        } else {
            (Level::Crit, 500)
        };
        if status != 404 || req.location.settings.static_files.log_not_found {
            self.log(req, level, path);
        }
        Failure::Status(status)
    }

    /// Logs the failed call.
    pub fn log(&self, req: &Request, level: Level, path: &[u8]) {
        let (call, path, reason) = (self.call, String::from_utf8_lossy(path), self.reason());
        error::write(
            req,
            level,
            format_args!("{call} \"{path}\" failed {reason}"),
        );
    }

    /// Number and text of the error, as nginx writes them: `(2: No such file or directory)`.
    pub fn reason(&self) -> String {
        format!("({})", error::os_error(&self.errno.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let dir = env!("CARGO_MANIFEST_DIR");
        let manifest = format!("{dir}/Cargo.toml");
        assert_eq!(test(dir.as_bytes()), Ok(Kind::Directory));
        assert_eq!(test(manifest.as_bytes()), Ok(Kind::File));
        assert_eq!(test(b"/dev/null"), Ok(Kind::Other));
        let file = open(manifest.as_bytes()).unwrap();
        assert_eq!(file.kind, Kind::File);
        assert!(file.len > 0 && file.modified > 0);
        assert_eq!(open(dir.as_bytes()).unwrap().kind, Kind::Directory);
    }

    #[test]
    fn missing_files_are_told_from_denied_ones() {
        let dir = env!("CARGO_MANIFEST_DIR");
        for path in [
            format!("{dir}/nothing"),
            format!("{dir}/Cargo.toml/x"),
            "a\0b".into(),
        ] {
            let error = open(path.as_bytes()).unwrap_err();
            assert!(error.is_missing() && !error.is_denied(), "{path}");
        }
        let error = PathError {
            call: "open()",
            errno: Errno::NOENT,
        };
        assert_eq!(error.reason(), "(2: No such file or directory)");
    }
}
