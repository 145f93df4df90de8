//! A database of addresses in MaxMind's format, in memory, read again when its file has changed.
//!
//! ```text
//! read with the configuration ─► current ─► a look-up, `auto_reload` later ─► stat, read ─┐
//!                                   ▲                     (on a thread of its own)        │
//!                                   └─────────────────────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! 1. A file that cannot be used is told in the error log and changes nothing.
//! 2. One thread at most reads a database again.
//! 3. A file is at most [`FILE_MAX`] long.

use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use maxminddb::{PathElement, Reader};
use millpond_system::clock;
use millpond_system::log::error::{self, Level, os_error};
use serde_json::Value;

/// Bytes of a file (arbitrary: several times the largest that MaxMind has).
const FILE_MAX: u64 = 2 << 30;

/// A database.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    /// The time between two looks at the file; none if it is read once.
    interval: Option<Duration>,
    current: ArcSwap<Loaded>,
    /// The time of the last look, milliseconds since 1970.
    checked_ms: AtomicI64,
}

/// The content of a file.
struct Loaded {
    reader: Reader<Vec<u8>>,
    /// The file's time of change.
    modified: Option<SystemTime>,
    /// The time when it was read, milliseconds since 1970.
    read_ms: i64,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Loaded { read_ms, .. } = self;
        f.debug_struct("Loaded").field("read_ms", read_ms).finish()
    }
}

/// A fact about a database itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// The time when it was made.
    BuildEpoch,
    /// The time of the last look at its file.
    LastCheck,
    /// The time when it was last read.
    LastChange,
}

impl Database {
    /// Reads a database; the error is a reason.
    pub(super) fn open(path: &Path, interval: Option<Duration>) -> Result<Database, String> {
        let loaded = Loaded::read(path)?;
        Ok(Database {
            path: path.to_owned(),
            interval,
            checked_ms: AtomicI64::new(loaded.read_ms),
            current: ArcSwap::from_pointee(loaded),
        })
    }

    /// The value at a place of the record of an address.
    pub(super) fn find(self: &Arc<Self>, ip: IpAddr, path: &[String]) -> Option<String> {
        self.look_again();
        let loaded = self.current.load();
        let found = loaded.reader.lookup(ip).ok()?;
        let value = |path: Vec<PathElement<'_>>| {
            let value = found.decode_path::<Value>(&path).ok().flatten()?;
            written(&value)
        };
        // A number may be a place in a list, or a name.
        let placed = value(path.iter().map(|word| place(word)).collect());
        placed.or_else(|| value(path.iter().map(|word| PathElement::Key(word)).collect()))
    }

    /// A fact, in seconds since 1970.
    pub(super) fn fact(self: &Arc<Self>, fact: Fact) -> String {
        self.look_again();
        let loaded = self.current.load();
        match fact {
            Fact::BuildEpoch => loaded.reader.metadata().build_epoch.to_string(),
            Fact::LastCheck => (self.checked_ms.load(Ordering::Relaxed) / 1000).to_string(),
            Fact::LastChange => (loaded.read_ms / 1000).to_string(),
        }
    }

    /// Has the file looked at, if it is time.
    fn look_again(self: &Arc<Self>) {
        let Some(interval) = self.interval else {
            return;
        };
        let checked = self.checked_ms.load(Ordering::Relaxed);
        let now = clock::now_ms();
        let interval = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
        if now < checked.saturating_add(interval) {
            return;
        }
        // INVARIANT 2: whoever moves the time reads.
        let moved =
            self.checked_ms
                .compare_exchange(checked, now, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_ok() {
            let database = Arc::clone(self);
            tokio::task::spawn_blocking(move || database.read_again());
        }
    }

    fn read_again(&self) {
        let loaded = self.current.load();
        let modified = std::fs::metadata(&self.path).and_then(|it| it.modified());
        let read = match modified {
            Ok(modified) if loaded.modified == Some(modified) => return,
            Ok(_) => Loaded::read(&self.path),
            Err(error) => Err(os_error(&error).to_string()),
        };
        match read {
            Ok(loaded) => self.current.store(Arc::new(loaded)),
            Err(why) => {
                // INVARIANT 1.
                let path = self.path.display();
                let message = format_args!("reading the database \"{path}\" again failed ({why})");
                error::process(Level::Error, message);
            }
        }
    }
}

impl Loaded {
    fn read(path: &Path) -> Result<Loaded, String> {
        let of_io = |error: std::io::Error| os_error(&error).to_string();
        let file = std::fs::File::open(path).map_err(of_io)?;
        let modified = file.metadata().and_then(|it| it.modified()).ok();
        let mut bytes = Vec::new();
        let mut limited = file.take(FILE_MAX + 1);
        limited.read_to_end(&mut bytes).map_err(of_io)?;
        if bytes.len() as u64 > FILE_MAX {
            return Err(format!("more than {FILE_MAX} bytes"));
        }
        let reader = Reader::from_source(bytes).map_err(|error| error.to_string())?;
        Ok(Loaded {
            reader,
            modified,
            read_ms: clock::now_ms(),
        })
    }
}

/// The step to a place of a list, if a word is a number, else to a name.
fn place(word: &str) -> PathElement<'_> {
    match word.parse() {
        Ok(index) => PathElement::Index(index),
        Err(_) => PathElement::Key(word),
    }
}

/// The form of a value in a variable; none for one that consists of others.
///
/// nginx's module: a number with a fraction has five digits of it.
fn written(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(is_so) => Some(u8::from(*is_so).to_string()),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(fraction) => Some(format!("{fraction:.5}")),
            None => Some(number.to_string()),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_as_the_module_does() {
        for (value, expected) in [
            (json!("Zürich"), Some("Zürich")),
            (json!(true), Some("1")),
            (json!(false), Some("0")),
            (json!(8000), Some("8000")),
            (json!(-7), Some("-7")),
            (json!(47.366_67), Some("47.36667")),
            (json!(8.0), Some("8.00000")),
            (json!({"en": "x"}), None),
            (json!([1]), None),
        ] {
            assert_eq!(written(&value).as_deref(), expected, "{value}");
        }
    }
}
