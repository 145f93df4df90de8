//! `client_body_temp_path`, `proxy_temp_path`: folders of temporary files, and the files in them.
//!
//! A file has a number for its name. With levels it stands in subfolders that are named after the
//! last digits of the number, as in nginx:
//!
//! ```text
//! client_body_temp_path /data/t;        /data/t/0000000123
//! client_body_temp_path /data/t 1 2;    /data/t/3/12/0000000123
//! ```
//!
//! Invariants:
//! 1. A file goes with its [`TempFile`], unless it was told to stay or moved to its place.
//! 2. Nobody but this program's user may read a file, until [`TempFile::move_to`] is told
//!    otherwise.
//! 3. Files that others left behind are never opened.
//!
//! It does not clean up after a crash: what was left behind stays.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_conf::value::{ArgError, Args, FromArgs, WordError};
use millpond_store::make_private_folder;
use rustix::fs::{Access, OFlags};
use rustix::io::Errno;

use crate::log::error::os_error;
use crate::reserve::RESERVE;

/// Taken names that are passed over before a new file is given up (arbitrary).
const TAKEN_NAMES_MAX: u32 = 10_000;
/// The default of `client_body_temp_path`.
const BODIES_DEFAULT: &str = "client_body_temp";
/// Digits of a file's name.
const DIGITS: usize = 10;
/// Levels of subfolders.
const LEVELS: usize = 3;

/// A folder of temporary files, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempFolder {
    path: PathBuf,
    /// Number of digits in the name of each level of subfolders.
    levels: Vec<usize>,
}

impl FromArgs for TempFolder {
    const SYNTAX: &'static str = "path [level1 [level2 [level3]]]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(1)?;
        let Some((path, rest)) = words.split_first().filter(|(_, rest)| rest.len() <= LEVELS)
        else {
            return Err(ArgError::Count);
        };
        if path.text.contains('\0') {
            return Err(WordError::Invalid.at(0));
        }
        let mut levels = Vec::with_capacity(rest.len());
        for (index, word) in rest.iter().enumerate() {
            let level = word.text.parse().ok().filter(|level| *level > 0);
            levels.push(level.ok_or_else(|| WordError::Invalid.at(index + 1))?);
            // The digits of all levels are digits of one name.
            if levels
                .iter()
                .fold(0, |sum: usize, it| sum.saturating_add(*it))
                > DIGITS
            {
                return Err(WordError::Invalid.at(index + 1));
            }
        }
        Ok(TempFolder {
            path: args.cx.prefix.join(&path.text),
            levels,
        })
    }
}

impl TempFolder {
    /// Path of the file with a number.
    fn file_path(&self, number: u64) -> PathBuf {
        let name = format!("{:0DIGITS$}", number % 10_u64.pow(DIGITS as u32));
        let mut path = self.path.clone();
        let mut end = name.len();
        for level in &self.levels {
            let start = end.saturating_sub(*level);
            path.push(name.get(start..end).unwrap_or_default());
            end = start;
        }
        path.push(name);
        path
    }
}

/// Folders of temporary files that a configuration needs.
#[derive(Debug, Default)]
pub struct TempFolders(BTreeMap<PathBuf, Origin>);

/// Origin of the choice of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The operator's, by this directive.
    Named(&'static str),
    /// A default, which may never be needed.
    Default,
}

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{call}() \"{}\" failed ({}), a folder of \"{directive}\"", path.display(), os_error(source))]
pub struct FolderError {
    call: &'static str,
    path: PathBuf,
    directive: &'static str,
    source: io::Error,
}

impl TempFolders {
    /// Notes the folder of bodies of requests; the default is made only when it is needed.
    pub fn note_bodies(&mut self, folder: &TempFolder, prefix: &Path) {
        let is_default = folder.path == prefix.join(BODIES_DEFAULT);
        let origin = if is_default {
            Origin::Default
        } else {
            Origin::Named("client_body_temp_path")
        };
        self.0.insert(folder.path.clone(), origin);
    }

    /// Notes the folder of answers that are kept as files.
    pub fn note_answers(&mut self, folder: &TempFolder) {
        let origin = Origin::Named("proxy_temp_path");
        self.0.insert(folder.path.clone(), origin);
    }

    /// Notes the folder of an issuer of certificates.
    pub fn note_state(&mut self, folder: &Path) {
        let origin = Origin::Named("state_path");
        self.0.insert(folder.to_owned(), origin);
    }

    /// The folders.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.keys()
    }

    /// Folders that the operator has named.
    pub fn named(&self) -> impl Iterator<Item = PathBuf> {
        let named = self
            .0
            .iter()
            .filter(|(_, origin)| **origin != Origin::Default);
        named.map(|(path, _)| path.clone())
    }

    /// Makes them, before the process changes to the user whose they will be.
    pub fn make(&self) -> Result<(), FolderError> {
        self.try_each("mkdir", make_private_folder)
    }

    /// Looks whether this process can make files in them.
    pub fn check(&self) -> Result<(), FolderError> {
        self.try_each("open", |path| {
            // One that is not there is made when it is needed, in a folder that is.
            let there = path.ancestors().find(|path| !is_missing_at(path));
            let wanted = Access::WRITE_OK | Access::EXEC_OK;
            Ok(rustix::fs::access(there.unwrap_or(path), wanted)?)
        })
    }

    fn try_each(
        &self,
        call: &'static str,
        each: impl Fn(&Path) -> io::Result<()>,
    ) -> Result<(), FolderError> {
        for (path, origin) in &self.0 {
            let (Err(source), Origin::Named(directive)) = (each(path), *origin) else {
                continue;
            };
            return Err(FolderError {
                call,
                path: path.clone(),
                directive,
                source,
            });
        }
        Ok(())
    }
}

fn is_missing_at(path: &Path) -> bool {
    matches!(rustix::fs::stat(path), Err(Errno::NOENT))
}

/// A temporary file.
#[derive(Debug)]
pub struct TempFile {
    /// The file, open for reading and writing.
    pub file: Arc<File>,
    path: PathBuf,
    stays: bool,
}

impl TempFile {
    /// Makes a file in a folder, and the folder when it is missing.
    pub fn create(folder: &TempFolder) -> io::Result<TempFile> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        // INVARIANT 3. Bounded: other files are passed over, not fought with for ever.
        for _ in 0..TAKEN_NAMES_MAX {
            let path = folder.file_path(NUMBER.fetch_add(1, Ordering::Relaxed));
            match RESERVE.with_room(|| open_new(&path), Errno::from_io_error) {
                Ok(file) => {
                    return Ok(TempFile {
                        file: Arc::new(file),
                        path,
                        stays: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("no free name for a temporary file"))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the name away; the file lives as long as it is open.
    pub fn unlink(&mut self) -> io::Result<()> {
        std::fs::remove_file(&self.path)?;
        self.stays = true;
        Ok(())
    }

    /// Lets the file stay.
    pub fn keep(&mut self) {
        self.stays = true;
    }

    /// Gives the file to whom `mode` says and moves it to its place, in one step for whoever looks
    /// at that. Folders that are missing are made, to be entered by whom `mode` lets read.
    pub fn move_to(mut self, to: &Path, mode: u32) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(mode))?;
        let mut moved = std::fs::rename(&self.path, to);
        if moved.as_ref().is_err_and(is_missing)
            && let Some(folder) = to.parent()
        {
            let folder_mode = mode | ((mode & 0o444) >> 2);
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(folder_mode).create(folder)?;
            moved = std::fs::rename(&self.path, to);
        }
        match moved {
            Ok(()) => {
                self.stays = true;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => self.copy_to(to),
            Err(error) => Err(error),
        }
    }

    /// Copies the file to a name beside its place on another disk, and moves the copy there.
    fn copy_to(&self, to: &Path) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed) % 10_u64.pow(DIGITS as u32);
        let mut beside = to.as_os_str().to_owned();
        beside.push(format!(".{number:0DIGITS$}"));
        let copied = std::fs::copy(&self.path, &beside)
            .and_then(|_| File::options().write(true).open(&beside))
            .and_then(|copy| copy.set_modified(self.file.metadata()?.modified()?))
            .and_then(|()| std::fs::rename(&beside, to));
        if copied.is_err() {
            // The first error says what is wrong.
            let _ = std::fs::remove_file(&beside);
        }
        copied
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.stays {
            // Somebody who removed it first did what is wanted.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Opens a file that must not be there yet.
fn open_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // INVARIANT 2.
    options.read(true).write(true).create_new(true).mode(0o600);
    let opened = match options.open(path) {
        Err(error) if is_missing(&error) => {
            if let Some(folder) = path.parent() {
                let mut builder = DirBuilder::new();
                builder.recursive(true).mode(0o700).create(folder)?;
            }
            options.open(path)
        }
        opened => opened,
    };
    // Sending the file waits for no journal that its time of access would be written to.
    opened.inspect(|file| {
        let _ = rustix::fs::fcntl_setfl(file, OFlags::NOATIME);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{ParseContext, Span, Word};
    use std::io::Write;

    fn read(text: &str) -> Result<TempFolder, ArgError> {
        let word = |text: &str| Word {
            text: text.to_string(),
            span: Span::NONE,
            quoted: false,
        };
        let words: Vec<Word> = text.split_whitespace().map(word).collect();
        TempFolder::from_args(&mut Args {
            name: &word("client_body_temp_path"),
            words: &words,
            body: None,
            cx: &mut ParseContext::new("/prefix", "/conf"),
        })
    }

    #[test]
    fn names_stand_in_subfolders_of_their_last_digits() {
        for (text, path) in [
            ("t", "/prefix/t/0000012345"),
            ("/t 1", "/t/5/0000012345"),
            ("/t 1 2", "/t/5/34/0000012345"),
            ("/t 1 2 3", "/t/5/34/012/0000012345"),
            ("/t 10", "/t/0000012345/0000012345"),
        ] {
            let folder = read(text).unwrap();
            assert_eq!(folder.file_path(12345), Path::new(path), "{text}");
        }
        for text in ["", "/t 0", "/t x", "/t 11", "/t 5 6", "/t 1 1 1 1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_goes_with_its_owner_unless_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let folder = read(&format!("{}/t 1 2", dir.path().display())).unwrap();
        let file = TempFile::create(&folder).unwrap();
        let path = file.path().to_owned();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
        let mut file = TempFile::create(&folder).unwrap();
        let path = file.path().to_owned();
        file.keep();
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn a_moved_file_has_its_mode_and_new_folders_can_be_entered() {
        let dir = tempfile::tempdir().unwrap();
        let folder = read(&format!("{}/t", dir.path().display())).unwrap();
        let to = dir.path().join("a/b/file");
        for text in ["one", "another"] {
            let file = TempFile::create(&folder).unwrap();
            (&*file.file).write_all(text.as_bytes()).unwrap();
            let from = file.path().to_owned();
            file.move_to(&to, 0o640).unwrap();
            assert!(!from.exists());
            assert_eq!(std::fs::read_to_string(&to).unwrap(), text);
        }
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&to), 0o640);
        assert_eq!(mode(&dir.path().join("a/b")) & 0o700, 0o700);
    }
}
