//! `open_log_file_cache`: access logs whose path has variables, and the descriptors kept for them.
//!
//! Without the directive such a file is opened for each line. With it each worker keeps the files
//! that are used often: a file stays open from its `min_uses`th use within `inactive` on, and after
//! `valid` its name is opened again, because it may have been renamed.
//!
//! Invariants:
//! 1. A cache has at most `max` entries, open or not; the least recently used one makes place.
//! 2. A path that cannot be opened is not remembered as open.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millpond_conf::value::parse_duration;
use millpond_conf::{ArgError, Args, FromArgs};

use super::file;
use crate::clock::{self, Instant};

/// The parameters of `open_log_file_cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedFiles {
    /// Id of the cache; each directive has one of its own.
    id: u64,
    max: usize,
    inactive: Duration,
    valid: Duration,
    min_uses: u32,
}

impl FromArgs for NamedFiles {
    const SYNTAX: &'static str = "max=number [inactive=time] [min_uses=number] [valid=time]";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let mut files = NamedFiles {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            max: 0,
            inactive: Duration::from_secs(10),
            valid: Duration::from_secs(60),
            min_uses: 1,
        };
        for (index, word) in args.at_least(1)?.iter().enumerate() {
            let time = |value| parse_duration(value);
            let number = |value: &str| value.parse().ok().filter(|number| *number > 0);
            let known = match word.text.split_once('=') {
                Some(("max", value)) => number(value).map(|max: u32| files.max = max as usize),
                Some(("inactive", value)) => time(value).map(|time| files.inactive = time),
                Some(("valid", value)) => time(value).map(|time| files.valid = time),
                Some(("min_uses", value)) => number(value).map(|uses| files.min_uses = uses),
                _ => None,
            };
            if known.is_none() {
                let message = format!(
                    "invalid \"open_log_file_cache\" parameter \"{}\"",
                    word.text
                );
                return Err(ArgError::value(index, message));
            }
        }
        if files.max == 0 {
            let message = "\"open_log_file_cache\" must have \"max\" parameter";
            return Err(ArgError::other(message));
        }
        Ok(files)
    }
}

#[derive(Default)]
struct Cache {
    entries: HashMap<Vec<u8>, Entry>,
}

struct Entry {
    file: Option<File>,
    opened: Instant,
    used: Instant,
    /// Counts uses of the cache, to order entries that were used in the same instant.
    turn: u64,
    uses: u32,
}

thread_local! {
    static CACHES: RefCell<HashMap<u64, Cache>> = RefCell::default();
    static TURN: Cell<u64> = const { Cell::new(0) };
}

/// Appends a line to the file of a path.
pub fn append(path: &[u8], files: Option<&NamedFiles>, line: &[u8]) -> io::Result<()> {
    let Some(files) = files else {
        return write(&open(path)?, line);
    };
    CACHES.with_borrow_mut(|caches| {
        caches
            .entry(files.id)
            .or_default()
            .append(files, path, line)
    })
}

/// Closes the files of all caches of this thread, because they may have been renamed.
pub fn close_all() {
    CACHES.with_borrow_mut(HashMap::clear);
}

impl Cache {
    fn append(&mut self, files: &NamedFiles, path: &[u8], line: &[u8]) -> io::Result<()> {
        let now = clock::instant();
        if let Some(entry) = self.entries.get_mut(path)
            && entry.is_good(files, now)
        {
            entry.uses = entry.uses.saturating_add(1);
            entry.used = now;
            entry.turn = next_turn();
            if let Some(file) = &entry.file {
                return write(file, line);
            }
        }
        let file = match open(path) {
            Ok(file) => file,
            Err(error) => {
                // INVARIANT 2.
                self.entries.remove(path);
                return Err(error);
            }
        };
        let outcome = write(&file, line);
        self.keep(files, path, file, now);
        outcome
    }

    /// Keeps a file that was just opened, if it is used often enough; its use is remembered in any
    /// case.
    fn keep(&mut self, files: &NamedFiles, path: &[u8], file: File, now: Instant) {
        let known = self
            .entries
            .remove(path)
            .filter(|entry| entry.is_good(files, now));
        if known.is_none() {
            self.make_place(files, now);
        }
        let uses = known.map_or(1, |entry| entry.uses);
        let entry = Entry {
            file: (uses >= files.min_uses).then_some(file),
            opened: now,
            used: now,
            turn: next_turn(),
            uses,
        };
        self.entries.insert(path.to_vec(), entry);
    }

    /// INVARIANT 1.
    fn make_place(&mut self, files: &NamedFiles, now: Instant) {
        if self.entries.len() < files.max {
            return;
        }
        self.entries
            .retain(|_, entry| now.duration_since(entry.used) <= files.inactive);
        while self.entries.len() >= files.max {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.turn);
            let Some(path) = oldest.map(|(path, _)| path.clone()) else {
                return;
            };
            self.entries.remove(&path);
        }
    }
}

impl Entry {
    /// False when it was not used for too long, or its file must be opened again.
    fn is_good(&self, files: &NamedFiles, now: Instant) -> bool {
        now.duration_since(self.used) <= files.inactive
            && (self.file.is_none() || now.duration_since(self.opened) <= files.valid)
    }
}

/// Orders uses of the caches of this thread.
fn next_turn() -> u64 {
    TURN.set(TURN.get() + 1);
    TURN.get()
}

fn open(path: &[u8]) -> io::Result<File> {
    file::append_to(Path::new(OsStr::from_bytes(path)), file::MODE)
}

fn write(mut file: &File, line: &[u8]) -> io::Result<()> {
    match file.write(line)? {
        written if written < line.len() => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_open_from_their_second_use_and_the_oldest_gives_way() {
        let folder = std::env::temp_dir().join(format!("millpond-named-{}", std::process::id()));
        let moved = folder.with_extension("moved");
        std::fs::create_dir_all(&folder).unwrap();
        let files = NamedFiles {
            id: u64::MAX,
            max: 3,
            inactive: Duration::from_secs(20),
            valid: Duration::from_secs(60),
            min_uses: 2,
        };
        let append = |name: &str| {
            let path = folder.join(name);
            append(path.as_os_str().as_bytes(), Some(&files), b"x\n").is_ok()
        };
        for name in ["lru", "lru", "once", "first", "first", "second", "second"] {
            assert!(append(name));
        }
        std::fs::rename(&folder, &moved).unwrap();
        let found: Vec<bool> = ["lru", "once", "first", "second"].map(append).into();
        assert_eq!(found, [false, false, true, true]);
        std::fs::remove_dir_all(&moved).unwrap();
    }
}
