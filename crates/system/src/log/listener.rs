//! The listener of a process: one who hears the events of all error logs, beside them.
//!
//! The level that it wants is a number of its own, so that events that nobody hears cost one load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use arc_swap::ArcSwapOption;

use super::error::Level;
use super::journal::Facts;

/// A listener.
pub trait Hear: Send + Sync {
    /// Takes an event; it must not wait.
    fn hear(&self, level: Level, message: &[u8], facts: &dyn Facts);
}

/// The levels that are heard: 0 for none, else one more than the number of the last.
static LEVELS: AtomicU8 = AtomicU8::new(0);

static LISTENER: ArcSwapOption<Box<dyn Hear>> = ArcSwapOption::const_empty();

/// Has a listener hear events of a level and more severe ones from now on, in place of the one
/// before; or nobody.
pub fn set(listener: Option<(Level, Box<dyn Hear>)>) {
    let levels = match listener {
        Some((level, listener)) => {
            LISTENER.store(Some(Arc::new(listener)));
            level as u8 + 1
        }
        None => {
            LISTENER.store(None);
            0
        }
    };
    LEVELS.store(levels, Ordering::Relaxed);
}

/// True if events of a level are heard.
pub(super) fn hears(level: Level) -> bool {
    (level as u8) < LEVELS.load(Ordering::Relaxed)
}

/// True if any events are heard.
pub(super) fn hears_any() -> bool {
    LEVELS.load(Ordering::Relaxed) != 0
}

/// Hands an event over, if somebody is there.
pub(super) fn tell(level: Level, message: &[u8], facts: &dyn Facts) {
    if let Some(listener) = &*LISTENER.load() {
        listener.hear(level, message, facts);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::error::{self, Event};
    use super::super::journal::{Fields, Kept};
    use super::*;

    struct Notes(Arc<Mutex<Vec<String>>>);

    impl Hear for Notes {
        fn hear(&self, level: Level, message: &[u8], facts: &dyn Facts) {
            let mut note = format!("{level:?} {}", String::from_utf8_lossy(message));
            for (name, value) in Kept::of(facts).fields() {
                note += &format!(" {name}={}", value.escape_ascii());
            }
            self.0.lock().unwrap().push(note);
        }
    }

    struct Two;

    impl Facts for Two {
        fn put(&self, event: &mut Fields<'_>) {
            event.put("A", b"two\nlines");
            event.put("B", b"x=y");
        }
    }

    /// Alone in its file, since there is one listener for the process.
    #[test]
    fn events_that_are_wanted_are_heard_whatever_the_logs_want() {
        let notes = Arc::default();
        let write = |level| {
            let event = Event {
                level,
                connection: Some(7),
                message: format_args!("it happened"),
                facts: &Two,
            };
            error::with_logs(&[], level, |_| error::write_event(&[], &event));
        };
        write(Level::Info);
        set(Some((Level::Info, Box::new(Notes(Arc::clone(&notes))))));
        write(Level::Info);
        write(Level::Debug);
        set(None);
        write(Level::Info);
        let mut heard = notes.lock().unwrap().clone();
        heard.retain(|it| it.contains("happened"));
        assert_eq!(heard, ["Info *7 it happened A=two\\nlines B=x=y"]);
    }
}
