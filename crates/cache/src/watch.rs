//! Events of the entries of a zone, for those who watch: stored, freshened, gone, purged.
//!
//! ```text
//! fills, purges, the store ──tell──► Watch ──► Queue of each reader ──take──► a thread of its own
//! ```
//!
//! 1. While nobody watches, telling costs one look.
//! 2. Nobody who tells waits for a reader: a queue holds [`QUEUE_MAX`] events, and what comes when
//!    it is full is counted instead. The reader is told how many there were.
//! 3. Events of one zone reach a reader in the order in which they were told.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millpond_store::{Cause, Departure, Departures, Key};

use crate::head::StoredHead;
use crate::purge::{Mode, Target};

/// Events that wait for one reader (arbitrary: a second of a busy cache, and a megabyte or two).
pub const QUEUE_MAX: usize = 8192;

/// Readers of one zone (arbitrary: a log and a few programs, each of which keeps a thread).
pub const READERS_MAX: usize = 8;

/// Bytes of a text that is told (arbitrary: longer keys are cut).
const TEXT_MAX: usize = 1024;

/// Something that happened in a zone.
#[derive(Clone, Debug)]
pub struct Event {
    /// Name of the zone.
    pub zone: Arc<str>,
    /// Kind of it.
    pub kind: EventKind,
}

/// Kind of what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An answer was stored.
    Stored(Told),
    /// An entry is fresh again: the origin has said that it has not changed.
    Freshened(Told),
    /// An entry is gone.
    Left(Departure),
    /// Something was purged.
    Purged {
        /// Kind of the target, in a word.
        kind: &'static str,
        /// Target of the purge.
        what: Bytes,
        /// Effect of the purge.
        mode: Mode,
        /// Serial of the purge.
        serial: u64,
    },
}

/// Entry that is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Key of the entry.
    pub id: Key,
    /// Text of its cache key.
    pub key: Bytes,
    /// Status of the answer.
    pub status: u16,
    /// Bytes of the body.
    pub bytes: u64,
    /// Last second in which it is fresh, since 1970.
    pub fresh_until: i64,
}

impl Told {
    /// Facts that are told of an entry, whose body has so many bytes unless it is in slices.
    fn of(id: Key, head: &StoredHead, bytes: u64) -> Told {
        Told {
            id,
            key: cut(&head.key),
            status: head.status,
            bytes: head.sliced.map_or(bytes, |set| set.total),
            fresh_until: head.valid_until,
        }
    }
}

fn cut(text: &Bytes) -> Bytes {
    text.slice(..text.len().min(TEXT_MAX))
}

/// Readers of a zone's events.
#[derive(Debug)]
pub struct Watch {
    zone: Arc<str>,
    is_on: AtomicBool,
    queues: Mutex<Vec<Arc<Queue>>>,
}

impl Watch {
    /// Nobody watches a zone of this name yet.
    pub fn new(zone: &str) -> Arc<Watch> {
        Arc::new(Watch {
            zone: Arc::from(zone),
            is_on: AtomicBool::new(false),
            queues: Mutex::default(),
        })
    }

    /// Name of the zone.
    pub fn zone(&self) -> &Arc<str> {
        &self.zone
    }

    /// True if somebody watches.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Gives the readers an event.
    pub fn tell(&self, kind: EventKind) {
        if !self.is_on() {
            return;
        }
        let event = Event {
            zone: Arc::clone(&self.zone),
            kind,
        };
        for queue in lock(&self.queues).iter() {
            queue.push(event.clone());
        }
    }

    /// Gives the readers an entry that is in the zone now.
    pub(crate) fn tell_stored(&self, id: Key, head: &StoredHead, bytes: u64) {
        if self.is_on() {
            self.tell(EventKind::Stored(Told::of(id, head, bytes)));
        }
    }

    /// Gives the readers an entry whose head says now that it is fresh.
    pub(crate) fn tell_freshened(&self, id: Key, head: &StoredHead, bytes: u64) {
        if self.is_on() {
            self.tell(EventKind::Freshened(Told::of(id, head, bytes)));
        }
    }

    /// Gives the readers a purge.
    pub(crate) fn tell_purge(&self, target: &Target, mode: Mode, serial: u64) {
        if self.is_on() {
            self.tell(EventKind::Purged {
                kind: target.kind(),
                what: cut(&target.text()),
                mode,
                serial,
            });
        }
    }

    /// Adds a queue, which is told from now on; false if there are [`READERS_MAX`] already.
    pub fn join(&self, queue: &Arc<Queue>) -> bool {
        let mut queues = lock(&self.queues);
        if queues.len() >= READERS_MAX {
            return false;
        }
        queues.push(Arc::clone(queue));
        self.is_on.store(true, Ordering::Relaxed);
        true
    }

    /// Removes a queue, which is told nothing more.
    pub fn leave(&self, queue: &Arc<Queue>) {
        let mut queues = lock(&self.queues);
        queues.retain(|other| !Arc::ptr_eq(other, queue));
        self.is_on.store(!queues.is_empty(), Ordering::Relaxed);
    }
}

impl Departures for Watch {
    fn are_wanted(&self) -> bool {
        self.is_on()
    }

    fn note(&self, departure: Departure) {
        self.tell(EventKind::Left(departure));
    }
}

/// Events that wait for one reader.
#[derive(Debug, Default)]
pub struct Queue {
    held: Mutex<Held>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    events: VecDeque<Event>,
    lost: u64,
    /// True while the reader waits, so that nobody is woken in vain.
    is_awaited: bool,
}

/// Events that were taken.
#[derive(Debug, Default)]
pub struct Taken {
    /// The events, in their order.
    pub events: VecDeque<Event>,
    /// Number of those that there was no room for behind them.
    pub lost: u64,
}

impl Queue {
    fn push(&self, event: Event) {
        let mut held = lock(&self.held);
        // INVARIANT 2. Once one is lost, all that follow are, until the reader has come.
        if held.lost > 0 || held.events.len() >= QUEUE_MAX {
            held.lost += 1;
            return;
        }
        held.events.push_back(event);
        if held.is_awaited {
            held.is_awaited = false;
            self.came.notify_one();
        }
    }

    /// Takes what there is, or waits for it so long.
    pub fn take(&self, wait: Duration) -> Taken {
        let mut held = lock(&self.held);
        if held.events.is_empty() {
            held.is_awaited = true;
            let waited = self.came.wait_timeout(held, wait);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
            held.is_awaited = false;
        }
        Taken {
            events: std::mem::take(&mut held.events),
            lost: std::mem::take(&mut held.lost),
        }
    }
}

/// Word for a cause.
pub fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::Evicted => "evicted",
        Cause::Inactive => "inactive",
        Cause::Removed => "removed",
        Cause::Replaced => "replaced",
        Cause::Corrupt => "corrupt",
        Cause::Lost => "lost",
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(number: u8) -> EventKind {
        EventKind::Left(Departure {
            key: Key([number; 16]),
            body_len: 1,
            cause: Cause::Evicted,
        })
    }

    #[test]
    fn readers_are_told_in_order_from_when_they_join_until_they_leave() {
        let watch = Watch::new("z");
        watch.tell(left(0));
        let (one, other) = (Arc::<Queue>::default(), Arc::<Queue>::default());
        assert!(watch.join(&one));
        watch.tell(left(1));
        assert!(watch.join(&other));
        watch.tell(left(2));
        watch.leave(&one);
        watch.tell(left(3));
        let kinds = |queue: &Queue| -> Vec<EventKind> {
            let taken = queue.take(Duration::ZERO);
            assert_eq!(taken.lost, 0);
            taken.events.into_iter().map(|event| event.kind).collect()
        };
        assert_eq!(kinds(&one), [left(1), left(2)]);
        assert_eq!(kinds(&other), [left(2), left(3)]);
        watch.leave(&other);
        assert!(!watch.is_on());
    }

    #[test]
    fn slow_reader_is_told_how_many_it_has_lost() {
        let watch = Watch::new("z");
        let queue = Arc::<Queue>::default();
        assert!(watch.join(&queue));
        for _ in 0..QUEUE_MAX + 5 {
            watch.tell(left(1));
        }
        let taken = queue.take(Duration::ZERO);
        assert_eq!((taken.events.len(), taken.lost), (QUEUE_MAX, 5));
        watch.tell(left(2));
        let taken = queue.take(Duration::ZERO);
        assert_eq!((taken.events.len(), taken.lost), (1, 0));
    }

    #[test]
    fn whoever_waits_is_woken() {
        let watch = Watch::new("z");
        let queue = Arc::<Queue>::default();
        assert!(watch.join(&queue));
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| queue.take(Duration::from_secs(60)));
            watch.tell(left(1));
            assert_eq!(taken.join().unwrap().events.len(), 1);
        });
    }
}
