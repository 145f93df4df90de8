//! Making of stored encodings: threads beside the workers, which take one entry after another.
//!
//! A thread reads the body, encodes it, decodes it again to compare, and hands it to the store. It
//! runs at a low priority, and ends when nothing waits.
//!
//! 1. There are at most `threads_max` threads, each with one body and its encoding in memory.
//! 2. Each job ends with an outcome, also one that panics.
//! 3. Nothing is kept that does not decode to the body.
//! 4. A job keeps no zone open.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use millpond_cache::encoded::BegunEncoding;
use millpond_cache::encoding::Outcome;
use millpond_cache::zone::{CacheZone, FoundEntry};
use millpond_semantics::accept_encoding::Coding;
use millpond_store::{Entry, Key};
use millpond_system::clock;

use super::body::piece;
use super::codec;

/// Processors for each thread, and the most threads (arbitrary: work that can wait takes at most
/// an eighth of a machine).
const PROCESSORS: usize = 8;
const THREADS_MOST: usize = 8;
/// Steps by which the threads' priority is lower than that of workers (arbitrary: about a tenth of
/// a processor that others want).
const NICE: i32 = 10;
/// An encoding must save one byte in so many (arbitrary: less is not worth the space).
const SAVES_ONE_IN: u64 = 20;

/// Jobs of the process, and its threads.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
}

/// An encoding that is to be made.
#[derive(Debug)]
pub(crate) struct Job {
    found: FoundEntry,
    /// INVARIANT 4.
    zone: Weak<CacheZone>,
    key: Key,
    /// None once it is made.
    begun: Option<BegunEncoding>,
    coding: Coding,
    level: u32,
    outcome: Outcome,
}

impl Job {
    /// The making of an encoding of an entry, which was begun.
    pub(crate) fn new(
        (found, zone): (FoundEntry, &Arc<CacheZone>),
        begun: BegunEncoding,
        (coding, level): (Coding, u32),
    ) -> Self {
        Job {
            found,
            zone: Arc::downgrade(zone),
            key: begun.key(),
            begun: Some(begun),
            coding,
            level,
            outcome: Outcome::Failed,
        }
    }

    fn run(mut self) {
        self.outcome = self.make();
    }

    fn make(&mut self) -> Outcome {
        let Some(body) = read(&self.found.entry) else {
            return Outcome::Failed;
        };
        let encoded = match codec::encode(self.coding, self.level, &body) {
            Ok(encoded) => encoded,
            Err(_) => return Outcome::Failed,
        };
        let (before, after) = (body.len() as u64, encoded.len() as u64);
        if after > before - before / SAVES_ONE_IN {
            return Outcome::NotShorter;
        }
        // INVARIANT 3.
        if !codec::decodes_to(self.coding, &encoded, &body) {
            return Outcome::Failed;
        }
        match (self.zone.upgrade(), self.begun.take()) {
            (Some(zone), Some(begun)) => {
                let encoded = (self.coding, Bytes::from(encoded));
                zone.keep_encoding(&self.found, begun, encoded)
            }
            _ => Outcome::NotStored,
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // INVARIANT 2.
        if let Some(zone) = self.zone.upgrade() {
            let now = clock::now_ms().div_euclid(1000);
            zone.encodings.end(&self.key, self.outcome, now);
        }
    }
}

/// The whole body of an entry; waits for its disk.
fn read(entry: &Entry) -> Option<Vec<u8>> {
    let len = usize::try_from(entry.len()).ok()?;
    let mut body = Vec::with_capacity(len);
    for region in entry.regions(0..entry.len()) {
        let mut piece = piece(region);
        while !piece.is_empty() {
            body.extend_from_slice(&piece.take_memory().ok()?);
        }
    }
    (body.len() == len).then_some(body)
}

impl Encoder {
    /// Takes a job, for a thread that runs or for a new one.
    pub(crate) fn take(&self, job: Job) {
        let mut state = lock(&self.state);
        state.waiting.push_back(job);
        if state.threads >= threads_max() {
            return;
        }
        let seat = Seat(Arc::clone(&self.state));
        let named = std::thread::Builder::new().name("encode".to_string());
        state.threads += 1;
        drop(state);
        // Without a thread the jobs end as failed, with the seat.
        let _ = named.spawn(move || seat.work());
    }
}

fn threads_max() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / PROCESSORS).clamp(1, THREADS_MOST)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread's place among the threads.
struct Seat(Arc<Mutex<State>>);

impl Seat {
    fn work(self) {
        // Without the lower priority the work is done all the same.
        let _ = rustix::process::nice(NICE);
        while let Some(job) = self.next() {
            job.run();
        }
    }

    fn next(&self) -> Option<Job> {
        lock(&self.0).waiting.pop_front()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.threads -= 1;
        let left = if state.threads == 0 {
            std::mem::take(&mut state.waiting)
        } else {
            VecDeque::new()
        };
        drop(state);
        drop(left);
    }
}
