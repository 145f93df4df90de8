//! `pid`: the file with the process id, written when the process serves.
//!
//! ```text
//! write ──► at its path ──set_aside──► path.oldbin ──put_back──► at its path ──► removed
//! ```
//!
//! While another process takes over, the file stands aside under a second name, as in nginx, so
//! that both processes can be found.
//!
//! Invariants:
//! 1. A file that names another process is never removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::log::error::os_error;

/// What a name gets behind it while another process takes over.
const ASIDE: &str = ".oldbin";

/// A pid file that cannot be used; in nginx's words.
#[derive(Debug, thiserror::Error)]
#[error("{call}() \"{}\" failed ({})", path.display(), os_error(source))]
pub struct PidError {
    call: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The file with our process id.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    is_aside: bool,
}

impl PidFile {
    /// Writes it.
    pub fn write(path: &Path) -> Result<PidFile, PidError> {
        let text = format!("{}\n", std::process::id());
        fs::write(path, text).map_err(|source| PidError {
            call: "open",
            path: path.to_owned(),
            source,
        })?;
        Ok(PidFile {
            path: path.to_owned(),
            is_aside: false,
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
        let old = std::mem::replace(self, PidFile::write(path)?);
        old.remove();
        Ok(())
    }

    /// Removes it, unless it has become another process's.
    pub fn remove(self) {
        let path = match self.is_aside {
            true => aside(&self.path),
            false => self.path,
        };
        // INVARIANT 1.
        let is_ours = fs::read_to_string(&path)
            .is_ok_and(|text| text.trim().parse() == Ok(std::process::id()));
        if is_ours {
            // In a folder that is not ours an empty file has to do. Somebody who removed it first
            // did what is wanted.
            let _ = fs::remove_file(&path).or_else(|_| fs::write(&path, ""));
        }
    }
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
}
