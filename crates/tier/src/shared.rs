//! Things that the parts of a tier share: the store with its circuits and counts, and the jobs that
//! wait.
//!
//! A circuit that opens or closes is told in the error log, once each.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_cache::copies::Offer;
use millpond_cache::tier_path::TierPath;
use millpond_cache::zone::CacheZone;
use millpond_fleet::Fleets;
use millpond_store::{Clock, SystemClock};
use millpond_system::log::error::{self, Level};
use object_store::path::Path;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::circuit::{Circuit, News, OPEN_MS};
use crate::counts::Counts;
use crate::objects::{Fault, Objects};
use crate::place::{Name, Places};

/// Memory that is read into at once, in units of `UNIT` (arbitrary: 256 MiB).
pub(crate) const MEMORY: usize = 256;
/// Unit of memory.
pub(crate) const UNIT: u64 = 1 << 20;
/// Lanes, each of which does one thing at a time (arbitrary).
const LANES: usize = 4;
/// Jobs that may wait, beside the limit of their bytes (arbitrary).
const JOBS_MAX: usize = 4096;

/// A circuit that tells the error log.
#[derive(Debug)]
pub(crate) struct Told {
    circuit: Mutex<Circuit>,
    zone: String,
    /// Words for what is left undone while it is open, and for what is done again.
    words: [&'static str; 2],
}

impl Told {
    pub(crate) fn new(zone: &str, words: [&'static str; 2]) -> Told {
        Told {
            circuit: Mutex::default(),
            zone: zone.to_owned(),
            words,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lets_through(&self) -> bool {
        self.lock().lets_through(SystemClock.since_boot())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().is_open()
    }

    pub(crate) fn answered(&self) {
        if self.lock().answered() == Some(News::Closed) {
            let (zone, [_, again]) = (&self.zone, self.words);
            let message = format_args!("tier of cache \"{zone}\": {again} again");
            error::process(Level::Notice, message);
        }
    }

    pub(crate) fn failed(&self, why: &Fault) {
        let news = self.lock().failed(SystemClock.since_boot());
        if news == Some(News::Opened) {
            let (zone, [not, _], seconds) = (&self.zone, self.words, OPEN_MS / 1000);
            let message = format_args!("tier of cache \"{zone}\": {not} for {seconds} s: {why}");
            error::process(Level::Warn, message);
        }
    }
}

/// Things that all parts of a tier share.
pub(crate) struct Core {
    pub(crate) path: TierPath,
    pub(crate) zone: Arc<CacheZone>,
    pub(crate) fleets: Arc<Fleets>,
    pub(crate) places: Places,
    pub(crate) objects: Objects,
    pub(crate) counts: Counts,
    pub(crate) reading: Told,
    pub(crate) writing: Told,
    /// Memory that is read into, in units.
    pub(crate) memory: Arc<Semaphore>,
    pub(crate) queue: Queue,
    /// Bytes of bodies that wait to be written, or are.
    pub(crate) queued: AtomicU64,
}

/// Work for a lane.
#[derive(Debug)]
pub(crate) enum Job {
    /// An entry is worth a copy.
    Write(Offer),
    /// A key is to be found no more.
    Withdraw(Name),
    /// An object is not what was written: it goes, and the head that names it.
    Spoil(Name, Option<Path>),
}

/// Jobs that wait.
pub(crate) struct Queue {
    lanes: Vec<UnboundedSender<Job>>,
    pub(crate) count: AtomicUsize,
}

impl Queue {
    pub(crate) fn new() -> (Queue, Vec<UnboundedReceiver<Job>>) {
        let (lanes, ends) = (0..LANES).map(|_| unbounded_channel()).unzip();
        let count = AtomicUsize::new(0);
        (Queue { lanes, count }, ends)
    }

    /// False if too many wait.
    pub(crate) fn push(&self, of: &impl Hash, job: Job) -> bool {
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        let number = usize::try_from(hasher.finish() % LANES as u64).unwrap_or(0);
        // INVARIANT 3.
        if self.count.fetch_add(1, Ordering::Relaxed) >= JOBS_MAX {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let lane = self.lanes.get(number);
        lane.is_some_and(|lane| lane.send(job).is_ok())
    }
}

impl Core {
    /// An object is not what was written: it goes, and the head of the name with it.
    pub(crate) fn spoil(&self, name: &Name, place: Option<Path>) {
        self.queue.push(name, Job::Spoil(name.clone(), place));
    }
}
