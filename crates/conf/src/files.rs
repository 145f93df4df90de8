//! Source of the files of a configuration: the disk, or what another process read there.
//!
//! A process that may not read its configuration any more gets what one read that may: all files,
//! and all folders that patterns were looked up in ([`Seen`]), so that both read the same.
//!
//! What was seen is written down entry by entry:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 1 | kind | `F` a file, `E` one that cannot be read, `D` a folder, `P` something that is there |
//! | 4 | path length | little endian, as the other |
//! | 8 | content length | |
//! | | path | |
//! | | content | bytes; the error; names, each with a zero behind it; nothing |
//!
//! It is valid if and only if the last entry ends where the bytes do.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::load;

/// Source of files.
#[derive(Clone, Debug, Default)]
pub enum Files {
    /// Files are read on disk.
    #[default]
    Disk,
    /// Files are read on disk, and what is read is noted.
    Noted(Arc<Mutex<Seen>>),
    /// Files are not read: another process has read them.
    Seen(Arc<Seen>),
    /// Files that are held in memory stand before those of another source.
    Over(Arc<Seen>, Box<Files>),
}

/// Files and folders that were read of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    files: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
    folders: BTreeMap<PathBuf, Vec<String>>,
    present: BTreeSet<PathBuf>,
}

impl Files {
    /// The whole file, or nginx's message about why not.
    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        match self {
            Files::Disk => load::read_file(path),
            Files::Noted(seen) => {
                let read = load::read_file(path);
                lock(seen).files.insert(path.to_owned(), read.clone());
                read
            }
            Files::Seen(seen) => match seen.files.get(path) {
                Some(read) => read.clone(),
                None => Err(format!("open() \"{}\" was not read", path.display())),
            },
            Files::Over(held, below) => match held.files.get(path) {
                Some(read) => read.clone(),
                None => below.read(path),
            },
        }
    }

    /// The bytes of a file that a directive names, read by `read` unless another process has; what
    /// that one could not read is tried again.
    pub fn read_with(
        &self,
        path: &Path,
        read: impl FnOnce(&Path) -> io::Result<Arc<[u8]>>,
    ) -> io::Result<Arc<[u8]>> {
        match self {
            Files::Disk => read(path),
            Files::Noted(seen) => {
                let bytes = read(path)?;
                lock(seen).files.insert(path.to_owned(), Ok(bytes.to_vec()));
                Ok(bytes)
            }
            Files::Seen(seen) => match seen.files.get(path) {
                Some(Ok(bytes)) => Ok(bytes.as_slice().into()),
                _ => read(path),
            },
            Files::Over(held, below) => match held.files.get(path) {
                Some(Ok(bytes)) => Ok(bytes.as_slice().into()),
                _ => below.read_with(path, read),
            },
        }
    }

    /// The names in a directory, sorted by their bytes; none if it cannot be read.
    pub(crate) fn names_in(&self, dir: &Path) -> Vec<String> {
        match self {
            Files::Disk => load::names_in(dir),
            Files::Noted(seen) => {
                let names = load::names_in(dir);
                lock(seen).folders.insert(dir.to_owned(), names.clone());
                names
            }
            Files::Seen(seen) => seen.folders.get(dir).cloned().unwrap_or_default(),
            Files::Over(held, below) => match held.folders.get(dir) {
                Some(names) => names.clone(),
                None => below.names_in(dir),
            },
        }
    }

    /// True if something has this path.
    pub(crate) fn exists(&self, path: &Path) -> bool {
        match self {
            Files::Disk => load::exists(path),
            Files::Noted(seen) => {
                let is_there = load::exists(path);
                if is_there {
                    lock(seen).present.insert(path.to_owned());
                }
                is_there
            }
            Files::Seen(seen) => seen.present.contains(path),
            Files::Over(held, below) => held.present.contains(path) || below.exists(path),
        }
    }
}

impl Seen {
    /// Notes a file, and the folders that its path has.
    pub fn note(&mut self, path: PathBuf, content: Vec<u8>) {
        for (folder, below) in path.ancestors().skip(1).zip(path.ancestors()) {
            let Some(name) = below.file_name().and_then(OsStr::to_str) else {
                continue;
            };
            let names = self.folders.entry(folder.to_owned()).or_default();
            if let Err(at) = names.binary_search_by(|known| known.as_str().cmp(name)) {
                names.insert(at, name.to_owned());
            }
            self.present.insert(below.to_owned());
        }
        self.files.insert(path, Ok(content));
    }

    /// Bytes of what was read, for another process.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (path, read) in &self.files {
            match read {
                Ok(content) => put(&mut bytes, b'F', path, content),
                Err(message) => put(&mut bytes, b'E', path, message.as_bytes()),
            }
        }
        for (path, names) in &self.folders {
            let names: String = names.iter().map(|name| format!("{name}\0")).collect();
            put(&mut bytes, b'D', path, names.as_bytes());
        }
        for path in &self.present {
            put(&mut bytes, b'P', path, &[]);
        }
        bytes
    }

    /// Reads what was written down; none if it is not valid.
    pub fn decode(mut bytes: &[u8]) -> Option<Seen> {
        let mut seen = Seen::default();
        while let Some((kind, rest)) = bytes.split_first() {
            let (path_len, rest) = rest.split_first_chunk()?;
            let (len, rest) = rest.split_first_chunk()?;
            let path_len = usize::try_from(u32::from_le_bytes(*path_len)).ok()?;
            let (path, rest) = rest.split_at_checked(path_len)?;
            let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
            let (content, rest) = rest.split_at_checked(len)?;
            let path = PathBuf::from(OsStr::from_bytes(path));
            let text = || String::from_utf8(content.to_vec()).ok();
            match kind {
                b'F' => drop(seen.files.insert(path, Ok(content.to_vec()))),
                b'E' => drop(seen.files.insert(path, Err(text()?))),
                b'D' => {
                    let names = text()?;
                    let names = names.split_terminator('\0').map(str::to_owned);
                    seen.folders.insert(path, names.collect());
                }
                b'P' => drop(seen.present.insert(path)),
                _ => return None,
            }
            bytes = rest;
        }
        Some(seen)
    }
}

fn put(bytes: &mut Vec<u8>, kind: u8, path: &Path, content: &[u8]) {
    let path = path.as_os_str().as_bytes();
    // The kernel takes no path of such a length.
    let path_len = u32::try_from(path.len()).unwrap_or(u32::MAX);
    bytes.push(kind);
    bytes.extend(path_len.to_le_bytes());
    bytes.extend((content.len() as u64).to_le_bytes());
    bytes.extend(path);
    bytes.extend(content);
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // It is right after any panic: each change is one call.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Diagnostics, LoadOptions, load};
    use std::fs;

    #[test]
    fn what_one_has_read_another_reads_without_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("conf.d")).unwrap();
        fs::write(
            path("main.conf"),
            "a; include conf.d/*.conf; include x/no*.conf; include y;",
        )
        .unwrap();
        fs::write(path("conf.d/2.conf"), b"c \xff;").unwrap();
        fs::write(path("conf.d/1.conf"), "b { include ../main.conf; }").unwrap();
        let read = |files: Files| {
            let mut diagnostics = Diagnostics::new();
            let options = LoadOptions {
                files,
                ..LoadOptions::default()
            };
            let tree = load(&path("main.conf"), &options, &mut diagnostics);
            let told: Vec<String> = diagnostics.iter().map(|it| it.message.clone()).collect();
            (format!("{:?}", tree.statements), told)
        };
        let noted = Arc::new(Mutex::new(Seen::default()));
        let first = read(Files::Noted(Arc::clone(&noted)));
        assert_eq!(first, read(Files::Disk));
        assert!(
            first.1.iter().any(|told| told.contains("y\" failed (2:")),
            "{:?}",
            first.1
        );
        let seen = Seen::decode(&lock(&noted).encode()).unwrap();
        assert_eq!(seen, *lock(&noted));
        fs::remove_dir_all(dir.path()).unwrap();
        assert_eq!(read(Files::Seen(Arc::new(seen))), first);
    }

    #[test]
    fn bytes_that_are_cut_off_are_not_valid() {
        let mut seen = Seen::default();
        seen.files.insert("/a".into(), Ok(b"abc".to_vec()));
        seen.files.insert("/e".into(), Err("failed".to_string()));
        seen.folders
            .insert("/d".into(), vec!["x".into(), "y".into()]);
        seen.present.insert("/p".into());
        let bytes = seen.encode();
        assert_eq!(Seen::decode(&bytes).as_ref(), Some(&seen));
        let whole = (0..bytes.len()).filter(|end| Seen::decode(&bytes[..*end]).is_some());
        // Between two entries it ends well.
        assert_eq!(whole.count(), 4);
        assert_eq!(Seen::decode(b"X\0\0\0\0\0\0\0\0\0\0\0\0"), None);
    }
}
