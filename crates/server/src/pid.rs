//! `pid`: the file with the process id, written when the process serves.
//!
//! ```text
//! write ──► at its path ──set_aside──► path.oldbin ──put_back──► at its path ──► removed
//! ```
//!
//! While another process takes over, the file stands aside under a second name, as in nginx, so
//! that both processes can be found.
//!
//! The file is written under a name of its own and then renamed. What stands at its path and is no
//! regular file, such as `/dev/null`, is written to and never replaced, and so is a file in a
//! folder that is not ours.
//!
//! Invariants:
//! 1. A file that names another process is never removed.
//! 2. Whoever finds the path finds the whole id in it.
//! 3. Nobody but the owner of the file can write to it: what stands in it is sent signals by root.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use millpond_system::log::error::os_error;
use millpond_system::root_helper::{self, PidStep};

/// The suffix of the file's name while another process takes over.
const ASIDE: &str = ".oldbin";

/// The mode of the pid file: everybody may read it, under any umask (nginx: 0644).
const MODE: u32 = 0o644;

/// A pid file that cannot be used; in nginx's words.
#[derive(Debug, thiserror::Error)]
#[error("{call}() \"{}\" failed ({})", path.display(), os_error(source))]
pub struct PidError {
    call: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl PidError {
    /// The reason.
    pub fn into_source(self) -> io::Error {
        self.source
    }
}

/// The owner of the pid file of this process.
#[derive(Debug)]
pub enum PidHolder {
    /// The process itself.
    Process(PidFile),
    /// The root helper of the process, since the process became its user; the file is root's.
    RootHelper(PathBuf),
}

impl PidHolder {
    /// Lets the root helper write the file.
    pub fn write_by_helper(path: &Path) -> Result<PidHolder, PidError> {
        by_helper(PidStep::Write, path)?;
        Ok(PidHolder::RootHelper(path.to_owned()))
    }

    /// Renames the file as [`PidFile::set_aside`] does.
    pub fn set_aside(&mut self) -> Result<(), PidError> {
        match self {
            PidHolder::Process(file) => file.set_aside(),
            PidHolder::RootHelper(path) => by_helper(PidStep::Aside, path),
        }
    }

    /// Renames the file back as [`PidFile::put_back`] does.
    pub fn put_back(&mut self) -> Result<(), PidError> {
        match self {
            PidHolder::Process(file) => file.put_back(),
            PidHolder::RootHelper(path) => by_helper(PidStep::Back, path),
        }
    }

    /// Moves the file as [`PidFile::move_to`] does.
    pub fn move_to(&mut self, to: &Path) -> Result<(), PidError> {
        match self {
            PidHolder::Process(file) => file.move_to(to),
            PidHolder::RootHelper(path) if path == to => Ok(()),
            PidHolder::RootHelper(path) => {
                by_helper(PidStep::Move, to)?;
                *path = to.to_owned();
                Ok(())
            }
        }
    }

    /// Removes the file as [`PidFile::remove`] does; the helper ends with that.
    pub fn remove(self) {
        match self {
            PidHolder::Process(file) => file.remove(),
            PidHolder::RootHelper(_) => root_helper::finish(),
        }
    }
}

fn by_helper(step: PidStep, path: &Path) -> Result<(), PidError> {
    root_helper::pid(step).map_err(|source| PidError {
        call: match step {
            PidStep::Write | PidStep::Move => "open",
            PidStep::Aside | PidStep::Back => "rename",
        },
        path: path.to_owned(),
        source,
    })
}

/// The file with the id of a process.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// The process.
    id: u32,
    is_aside: bool,
    /// Open, so that a process that has changed to its user can still empty it.
    file: File,
}

impl PidFile {
    /// Writes the file with the id of this process.
    pub fn write(path: &Path) -> Result<PidFile, PidError> {
        PidFile::write_for(path, std::process::id())
    }

    /// Writes the file with the id of a process.
    pub fn write_for(path: &Path, id: u32) -> Result<PidFile, PidError> {
        let text = format!("{id}\n");
        let is_special = fs::metadata(path).is_ok_and(|found| {
            let kind = found.file_type();
            kind.is_char_device() || kind.is_fifo()
        });
        let written = if is_special {
            write_special(path, &text)
        } else {
            replace(path, &text).or_else(|error| match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    write_over(path, &text)
                }
                _ => Err(error),
            })
        };
        let file = written.map_err(|source| PidError {
            call: "open",
            path: path.to_owned(),
            source,
        })?;
        Ok(PidFile {
            path: path.to_owned(),
            id,
            is_aside: false,
            file,
        })
    }

    /// Makes room for the file of a process that takes over.
    pub fn set_aside(&mut self) -> Result<(), PidError> {
        rename(&self.path, &aside(&self.path))?;
        self.is_aside = true;
        Ok(())
    }

    /// Gives the file its name again, in place of what the other process left there.
    pub fn put_back(&mut self) -> Result<(), PidError> {
        if self.is_aside {
            rename(&aside(&self.path), &self.path)?;
            self.is_aside = false;
        }
        Ok(())
    }

    /// Goes to another path, if it is another one.
    pub fn move_to(&mut self, path: &Path) -> Result<(), PidError> {
        if self.path == path || self.is_aside {
            return Ok(());
        }
        let old = std::mem::replace(self, PidFile::write_for(path, self.id)?);
        old.remove();
        Ok(())
    }

    /// Removes the file, unless it has become another process's.
    pub fn remove(self) {
        let path = if self.is_aside {
            aside(&self.path)
        } else {
            self.path
        };
        let is_regular = fs::metadata(&path).is_ok_and(|found| found.is_file());
        // INVARIANT 1.
        let is_ours = is_regular
            && fs::read_to_string(&path).is_ok_and(|text| text.trim().parse() == Ok(self.id));
        if is_ours {
            // In a folder that is not ours an empty file has to do. Somebody who removed it first
            // did what is wanted.
            let _ = fs::remove_file(&path).or_else(|_| self.file.set_len(0));
        }
    }
}

/// Writes a new file and puts it in the place of what is there. A link is replaced, not followed:
/// root does not write where somebody else's link points.
fn replace(path: &Path, text: &str) -> io::Result<File> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    // A process with our id that was killed here may have left one.
    let _ = fs::remove_file(&beside);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&beside)?;
    let written = file
        .write_all(text.as_bytes())
        // INVARIANT 3.
        .and_then(|()| file.set_permissions(Permissions::from_mode(MODE)))
        // INVARIANT 2.
        .and_then(|()| fs::rename(&beside, path));
    if let Err(error) = written {
        // The first error says what is wrong.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    Ok(file)
}

/// Writes over a file that is there, in a folder where nothing can be made or renamed.
fn write_over(path: &Path, text: &str) -> io::Result<File> {
    let file = OpenOptions::new().write(true).open(path)?;
    // INVARIANT 2: the old id is overwritten before the rest of it is cut off.
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)?;
    // INVARIANT 3, where the file is ours.
    let _ = file.set_permissions(Permissions::from_mode(MODE));
    Ok(file)
}

/// Writes to a device or a pipe.
fn write_special(path: &Path, text: &str) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ASIDE);
    name.into()
}

fn rename(from: &Path, to: &Path) -> Result<(), PidError> {
    fs::rename(from, to).map_err(|source| PidError {
        call: "rename",
        path: from.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_steps_aside_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("x"), dir.path().join("x.oldbin"));
        let mut file = PidFile::write(&path).unwrap();
        file.set_aside().unwrap();
        assert!(old.exists() && !path.exists());
        fs::write(&path, "1\n").unwrap();
        file.put_back().unwrap();
        assert!(!old.exists());
        file.set_aside().unwrap();
        fs::write(&path, "1\n").unwrap();
        file.remove();
        assert!(!old.exists() && path.exists());
    }

    #[test]
    fn file_of_another_process_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let file = PidFile::write(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        file.remove();
        assert!(path.exists());
    }

    #[test]
    fn link_is_replaced_and_what_it_points_to_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("x"), dir.path().join("target"));
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        PidFile::write(&path).unwrap().remove();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert!(fs::symlink_metadata(&path).is_err());
        let names = fs::read_dir(dir.path()).unwrap();
        assert_eq!(names.count(), 1, "nothing else is left");
    }

    #[test]
    fn file_in_a_folder_of_others_is_written_over_and_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "123456789123456789\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let text = format!("{}\n", std::process::id());
        write_over(&path, &text).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
    }

    #[test]
    fn device_is_written_to_and_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        PidFile::write(&path).unwrap().remove();
        let found = fs::symlink_metadata(&path).unwrap();
        assert!(found.file_type().is_symlink());
    }
}
