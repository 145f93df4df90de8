//! Files in which dictionaries outlive the process.
//!
//! ```text
//! clean ──a change──► changed ──`PAUSE`──► written into FILE.tmp, which becomes FILE ──► clean
//! ```
//!
//! Invariants:
//! 1. A file is a whole state: another is put in its place.
//! 2. No script waits for a file: a thread writes them all, and is woken by the first change.
//! 3. A file that is not understood is renamed to `FILE.broken`, and never written over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::Dict;
use super::state;

/// The time between a change and its writing (nginx has a second); so much is lost when the process
/// is killed.
const PAUSE: Duration = Duration::from_millis(500);
/// The time between two tries to write where one failed.
const RETRY: Duration = Duration::from_secs(10);

/// The ground that a keeper stands on: what only the process has.
#[derive(Clone, Copy, Debug)]
pub struct Ground {
    /// Reads the clock.
    pub clock: fn() -> Instant,
    /// Reads the wall clock, in microseconds since the epoch.
    pub wall_us: fn() -> i64,
    /// Writes a line into the error log.
    pub tell: fn(&str),
}

/// Keeps dictionaries in files, until it is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Common {
    ground: Ground,
    dicts: Mutex<Vec<Arc<Dict>>>,
    must_stop: AtomicBool,
}

impl Keeper {
    /// Begins, with no dictionary.
    pub(crate) fn begin(ground: Ground) -> io::Result<Self> {
        let common = Arc::new(Common {
            ground,
            dicts: Mutex::default(),
            must_stop: AtomicBool::new(false),
        });
        let own = Arc::clone(&common);
        let thread = thread::Builder::new()
            .name("script dicts".to_string())
            .spawn(move || own.run())?;
        Ok(Keeper {
            common,
            thread: Some(thread),
        })
    }

    /// Fills a dictionary from its file, and keeps it there from now on.
    pub(crate) fn keep(&self, dict: &Arc<Dict>) {
        let Some(path) = &dict.spec.state else {
            return;
        };
        self.common.fill(dict, path);
        if let Some(thread) = &self.thread {
            dict.watch.set_writer(thread.thread());
        }
        self.common.lock().push(Arc::clone(dict));
    }

    /// Writes what a dictionary has, and lets it go.
    pub(crate) fn let_go(&self, dict: &Arc<Dict>) {
        self.common.lock().retain(|known| !Arc::ptr_eq(known, dict));
        self.common.write(dict);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.common.must_stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // What is left of it is one file for each dictionary.
            let _ended = thread.join();
        }
    }
}

impl Common {
    fn run(&self) {
        let mut has_failed = false;
        while !self.must_stop.load(Ordering::Acquire) {
            if has_failed {
                thread::park_timeout(RETRY);
            } else {
                thread::park();
            }
            // Changes of the meantime are written together.
            let due = (self.ground.clock)() + PAUSE;
            while !self.must_stop.load(Ordering::Acquire) {
                match due.checked_duration_since((self.ground.clock)()) {
                    Some(left) if !left.is_zero() => thread::park_timeout(left),
                    _ => break,
                }
            }
            has_failed = !self.write_all();
        }
        self.write_all();
    }

    /// Writes what has changed; false if that failed.
    fn write_all(&self) -> bool {
        let dicts = self.lock().clone();
        let mut is_done = true;
        for dict in dicts {
            is_done &= self.write(&dict);
        }
        is_done
    }

    fn write(&self, dict: &Dict) -> bool {
        let Some(path) = dict
            .spec
            .state
            .as_ref()
            .filter(|_| dict.watch.take_change())
        else {
            return true;
        };
        let rows = dict.rows(self.moment());
        let temporary = with_ending(path, ".tmp");
        let written =
            fs::write(&temporary, state::write(&rows)).and_then(|()| fs::rename(&temporary, path));
        if let Err(error) = &written {
            dict.watch.put_back();
            self.tell(dict, "could not be saved", &error.to_string());
        }
        written.is_ok()
    }

    fn fill(&self, dict: &Dict, path: &Path) {
        let told = match fs::read(path) {
            Ok(bytes) => String::from_utf8(bytes)
                .map_err(|_| "it is not UTF-8".to_string())
                .and_then(|text| state::read(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.tell(dict, "could not be read", &error.to_string()),
        };
        match told {
            Ok(rows) => {
                let left_out = dict.fill(rows, self.moment());
                if left_out > 0 {
                    let why = format!("{left_out} items have no room, or not the type");
                    self.tell(dict, "was not read as a whole", &why);
                }
            }
            Err(why) => {
                let renamed = fs::rename(path, with_ending(path, ".broken"));
                let why = match renamed {
                    Ok(()) => format!("{why}; it is \"{}.broken\" now", path.display()),
                    Err(error) => format!("{why}; renaming it failed ({error})"),
                };
                self.tell(dict, "is broken", &why);
            }
        }
    }

    /// Now, by both clocks.
    fn moment(&self) -> (Instant, i64) {
        ((self.ground.clock)(), (self.ground.wall_us)())
    }

    fn tell(&self, dict: &Dict, what: &str, why: &str) {
        let path = dict.spec.state.as_deref().unwrap_or(Path::new(""));
        let name = &dict.spec.name;
        (self.ground.tell)(&format!(
            "the state \"{}\" of the shared dict zone \"{name}\" {what} ({why})",
            path.display()
        ));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Dict>>> {
        self.dicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    PathBuf::from(path)
}

/// Notes that a dictionary has changed.
#[derive(Debug, Default)]
pub(super) struct Watch {
    has_changed: AtomicBool,
    writer: std::sync::OnceLock<Thread>,
}

impl Watch {
    fn set_writer(&self, thread: &Thread) {
        let _first = self.writer.set(thread.clone());
        if self.has_changed.load(Ordering::Acquire) {
            thread.unpark();
        }
    }

    /// A change; the first one wakes the writer.
    pub(super) fn note(&self) {
        if !self.has_changed.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.writer.get()
        {
            thread.unpark();
        }
    }

    fn take_change(&self) -> bool {
        self.has_changed.swap(false, Ordering::AcqRel)
    }

    fn put_back(&self) {
        self.has_changed.store(true, Ordering::Release);
    }
}
