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
use millpond_cache::encoded::{BegunEncoding, Form};
use millpond_cache::encoding::Outcome;
use millpond_cache::rule_counts::Rule;
use millpond_cache::zone::{CacheZone, FoundEntry};
use millpond_store::{Entry, Key};
use millpond_system::clock;
use sha2::{Digest, Sha256};

use super::body::piece;
use super::codec;

/// Processors for each thread, and the most threads (arbitrary: work that can wait takes at most
/// an eighth of a machine).
const PROCESSORS: usize = 8;
const THREADS_MOST: usize = 8;
/// Steps by which the threads' priority is lower than that of workers (arbitrary: about a tenth of
/// a processor that others want).
const NICE: i32 = 10;
/// Tasks that wait, at which no dictionary is kept (arbitrary: it is looked at again with a later
/// hit).
const KEPT_BEHIND: usize = 64;
/// An encoding must save one byte in so many (arbitrary: less is not worth the space).
const SAVES_ONE_IN: u64 = 20;

/// Jobs of the process, and its threads.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Task>,
    threads: usize,
}

/// Work for a thread.
#[derive(Debug)]
pub(crate) enum Task {
    /// An encoding is to be made.
    Encode(Job),
    /// A body is to be kept as a dictionary.
    Keep(DictionaryJob),
}

/// A body that is to be kept as a dictionary.
#[derive(Debug)]
pub(crate) struct DictionaryJob {
    found: FoundEntry,
    /// INVARIANT 4.
    zone: Weak<CacheZone>,
    /// Origin and path of the request that found it.
    place: (Vec<u8>, Vec<u8>),
}

impl DictionaryJob {
    /// The keeping of an entry's body.
    pub(crate) fn new(
        (found, zone): (FoundEntry, &Arc<CacheZone>),
        place: (Vec<u8>, Vec<u8>),
    ) -> Self {
        DictionaryJob {
            found,
            zone: Arc::downgrade(zone),
            place,
        }
    }

    fn run(self) {
        let Some(body) = read(&self.found.entry) else {
            return;
        };
        let hash = Sha256::digest(&body).into();
        if let Some(zone) = self.zone.upgrade() {
            let (origin, path) = &self.place;
            let kept = zone.keep_dictionary(&self.found, (origin, path), (hash, body.into()));
            // What is refused is tried again with a later hit.
            if kept == Ok(true) {
                zone.rule_counts.note(Rule::DictionaryKept);
            }
        }
    }
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
    form: Form,
    level: u32,
    /// The dictionary, for a form that has one.
    pub(super) dictionary: Option<Entry>,
    outcome: Outcome,
}

impl Job {
    /// The making of an encoding of an entry, which was begun.
    pub(crate) fn new(
        (found, zone): (FoundEntry, &Arc<CacheZone>),
        begun: BegunEncoding,
        (form, level): (Form, u32),
    ) -> Self {
        Job {
            found,
            zone: Arc::downgrade(zone),
            key: begun.key(),
            begun: Some(begun),
            form,
            level,
            dictionary: None,
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
        // INVARIANT 3.
        let Some(encoded) = self.encode(&body) else {
            return Outcome::Failed;
        };
        let (before, after) = (body.len() as u64, encoded.len() as u64);
        if after > before - before / SAVES_ONE_IN {
            return Outcome::NotShorter;
        }
        match (self.zone.upgrade(), self.begun.take()) {
            (Some(zone), Some(begun)) => {
                let encoded = (&self.form, Bytes::from(encoded));
                zone.keep_encoding(&self.found, begun, encoded)
            }
            _ => Outcome::NotStored,
        }
    }
}

impl Job {
    /// The body encoded, if that decodes to it.
    fn encode(&self, body: &[u8]) -> Option<Vec<u8>> {
        match self.form {
            Form::Plain(coding) => {
                let encoded = codec::encode(coding, self.level, body).ok()?;
                codec::decodes_to(coding, &encoded, body).then_some(encoded)
            }
            Form::By(coding, hash) => {
                let dictionary = read(self.dictionary.as_ref()?)?;
                let by = (coding, &hash);
                let pair = (&dictionary[..], body);
                let encoded = codec::encode_by(by, self.level, pair).ok()?;
                codec::decodes_by(by, &encoded, pair).then_some(encoded)
            }
            Form::Dictionary => None,
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
    pub(crate) fn take(&self, task: Task) {
        let mut state = lock(&self.state);
        // Encodings are bounded by their zones.
        if matches!(task, Task::Keep(_)) && state.waiting.len() >= KEPT_BEHIND {
            return;
        }
        state.waiting.push_back(task);
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
        while let Some(task) = self.next() {
            match task {
                Task::Encode(job) => job.run(),
                Task::Keep(job) => job.run(),
            }
        }
    }

    fn next(&self) -> Option<Task> {
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
