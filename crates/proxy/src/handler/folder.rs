//! Reading folders: what is in them, for lists and for choosing from.
//!
//! Entries whose names begin with a dot are left out. Links are followed; one that leads nowhere is
//! told as it is itself.
//!
//! Invariant: a list has at most `MOST_ENTRIES`; a larger folder is an error, never a part of it.
//!
//! Sources: nginx ngx_http_autoindex_handler, ngx_http_random_index_handler.

use millpond_system::log::error::Level;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::content::open_file::{Kind, PathError};
use crate::log::request_error;
use crate::request::Request;
use millpond_exchange::failure::Failure;

/// Entries of one folder that are read (arbitrary: more is nothing that a person looks at, and
/// takes a worker too long).
const MOST_ENTRIES: usize = 100_000;

/// The thing that a folder has under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name of the entry.
    pub name: Vec<u8>,
    /// The kind of the entry.
    pub kind: Kind,
    /// The size of the file in bytes.
    pub len: u64,
    /// The time of the last change, seconds since 1970.
    pub modified: i64,
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: Dir,
    /// The path of the folder, with a slash at the path's end.
    path: Vec<u8>,
}

/// Opens a folder; what fails is logged.
pub(crate) fn open(req: &Request, path: &[u8]) -> Result<Folder, Failure> {
    let bare = path.strip_suffix(b"/").filter(|bare| !bare.is_empty());
    let bare = bare.unwrap_or(path);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(bare, flags, Mode::empty()).and_then(Dir::new);
    match opened {
        Ok(dir) => {
            let mut path = bare.to_vec();
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            Ok(Folder { dir, path })
        }
        Err(errno) => Err(path_error("opendir()", errno).fail(req, bare)),
    }
}

impl Folder {
    /// Reads all entries of the folder, in no order.
    pub(crate) fn read(self, req: &Request) -> Result<Vec<Entry>, Failure> {
        let mut entries = Vec::new();
        let mut path = self.path;
        let folder_len = path.len();
        for found in self.dir {
            let found = found.map_err(|errno| broken(req, "readdir()", errno, &path))?;
            let name = found.file_name().to_bytes();
            if name.first() == Some(&b'.') {
                continue;
            }
            if entries.len() >= MOST_ENTRIES {
                let path = String::from_utf8_lossy(&path).into_owned();
                let message = format!("\"{path}\" has more than {MOST_ENTRIES} entries");
                return Err(Failure::Internal(message));
            }
            path.extend_from_slice(name);
            entries.extend(look(req, &path)?.map(|stat| entry(name, &stat)));
            path.truncate(folder_len);
        }
        Ok(entries)
    }
}

/// Looks for what is under a path, unless it may not be known.
fn look(req: &Request, path: &[u8]) -> Result<Option<Stat>, Failure> {
    match rustix::fs::statat(CWD, path, AtFlags::empty()) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::LOOP) => look_at_link(req, path),
        Err(errno @ Errno::ACCESS) => {
            path_error("stat()", errno).log(req, Level::Crit, path);
            Ok(None)
        }
        Err(errno) => Err(broken(req, "stat()", errno, path)),
    }
}

fn look_at_link(req: &Request, path: &[u8]) -> Result<Option<Stat>, Failure> {
    match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        // It went between the two calls.
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(broken(req, "lstat()", errno, path)),
    }
}

fn entry(name: &[u8], stat: &Stat) -> Entry {
    Entry {
        name: name.to_vec(),
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            _ => Kind::Other,
        },
        len: u64::try_from(stat.st_size).unwrap_or_default(),
        modified: stat.st_mtime,
    }
}

fn path_error(call: &'static str, errno: Errno) -> PathError {
    PathError { call, errno }
}

/// Logs the error that stops the reading of a folder, and makes the failure of it.
fn broken(req: &Request, call: &'static str, errno: Errno, path: &[u8]) -> Failure {
    let reason = path_error(call, errno).reason();
    let path = String::from_utf8_lossy(path);
    request_error::write(
        req,
        Level::Crit,
        format_args!("{call} \"{path}\" failed {reason}"),
    );
    Failure::Status(500)
}
