//! The threads that read from a disk, so that nobody else waits for it.
//!
//! ```text
//!   who wants bytes ──submit──► queue (bounded) ──► up to four threads ──► Load: done, wakes all
//!        │                         └─ full, or the disk is stalled: Busy
//!        └──── Load::done().await ◄──────────────────────────────────────────┘
//! ```
//!
//! Threads are started when there is work for them, and end with the disk. A disk whose threads
//! have all been at one read for a second is *stalled*: it gets no more work until one of them
//! returns, so that nobody waits for what will not come.
//!
//! 1. There are never more than `THREADS` threads, nor more than `QUEUE` jobs that wait besides one
//!    for each answer that has begun.
//! 2. A job that nobody waits for any more is not begun.
//! 3. A job ends its load in every way out, so nobody waits for a thread that panicked.
//!
//! It does not know what is read. Writes have a thread of their own (`writer`).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::lock::lock;

/// Threads of a disk (arbitrary: a rotating disk orders that many well, and a solid-state disk
/// answers before more are needed).
const THREADS: usize = 4;
/// Jobs that wait (arbitrary: a slow disk does so many reads in about a second).
const QUEUE: usize = 256;
/// A read that takes so long is no ordinary one; milliseconds.
const STALL_MS: u64 = 1000;

/// Number of jobs from which on nobody looks for itself any more. Each of them may have been looked
/// for, so that is half of what the simplest disks take at once.
const LOOKS: usize = 16;

type Job = Box<dyn FnOnce() + Send>;

/// Patience of a reader: may its read be refused?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// The reader can do without: the read is refused if the disk has too much to do.
    OrNotAtAll,
    /// An answer has begun and needs it: it waits, and whoever asks bounds how many do.
    Patient,
}

/// The pool's queue is full, or the disk is stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

/// The reading threads of one disk.
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    arrived: Condvar,
    /// Jobs that wait or run, to be seen without the lock.
    busy: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Times when the running jobs began, by thread.
    running: [Option<u64>; THREADS],
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl Pool {
    /// A pool without threads.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            clock,
            state: Mutex::default(),
            arrived: Condvar::new(),
            busy: AtomicUsize::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Queues a job for a thread of the pool.
    pub(crate) fn submit(&self, haste: Haste, job: Job) -> Result<(), Busy> {
        let now_ms = self.shared.clock.steady();
        let mut state = lock(&self.shared.state);
        let has_too_much = state.jobs.len() >= QUEUE || state.is_stalled(now_ms);
        if state.is_closed || (haste == Haste::OrNotAtAll && has_too_much) {
            return Err(Busy);
        }
        if state.idle <= state.jobs.len() && state.threads < THREADS {
            let number = state.threads;
            let shared = Arc::clone(&self.shared);
            let named = std::thread::Builder::new().name(format!("store-read {number}"));
            match named.spawn(move || shared.work(number)) {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return Err(Busy),
                // Those that are there do it.
                Err(_) => {}
            }
        }
        state.jobs.push_back(job);
        self.shared.busy.fetch_add(1, Ordering::AcqRel);
        drop(state);
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// True if others may look what is in the page cache. A look may make the kernel read ahead,
    /// and a disk with a full queue of its own makes who asks for that wait.
    pub(crate) fn may_look(&self) -> bool {
        self.shared.busy.load(Ordering::Acquire) < LOOKS
    }

    /// The clock that stalls are measured with.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.is_closed = true;
        state.jobs.clear();
        drop(state);
        // Nobody waits for the threads: the disk may never answer them.
        self.shared.arrived.notify_all();
    }
}

impl State {
    fn is_stalled(&self, now_ms: u64) -> bool {
        let is_old =
            |began: &Option<u64>| began.is_some_and(|at| now_ms.saturating_sub(at) >= STALL_MS);
        self.running.iter().all(is_old)
    }
}

/// Notes that a thread's job is over.
struct Ends<'a>(&'a Shared, usize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if let Some(running) = state.running.get_mut(self.1) {
            *running = None;
        }
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    fn work(&self, number: usize) {
        while let Some(job) = self.next(number) {
            let _ends = Ends(self, number);
            // What it would have read is missed by whoever waits for it; the hook has said why.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn next(&self, number: usize) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                if let Some(running) = state.running.get_mut(number) {
                    *running = Some(self.clock.steady());
                }
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state.idle += 1;
            let waited = self.arrived.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// Something that is being read, and who waits for it.
#[derive(Debug)]
pub(crate) struct Load<T> {
    outcome: Mutex<Outcome<T>>,
    changed: Notify,
}

#[derive(Debug)]
enum Outcome<T> {
    Awaited,
    Done(T),
    /// The job went away without a result.
    Dropped,
}

impl<T: Clone + Send + 'static> Load<T> {
    /// One whose result is brought by somebody else than a pool.
    pub(crate) fn awaited() -> Self {
        Self {
            outcome: Mutex::new(Outcome::Awaited),
            changed: Notify::new(),
        }
    }

    /// Brings the result; one that is there already stays.
    pub(crate) fn finish(&self, result: T) {
        self.end(Outcome::Done(result));
    }

    /// Starts `read` on a thread of a pool.
    pub(crate) fn start(
        (pool, haste): (&Pool, Haste),
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Arc<Self>, Busy> {
        let load = Arc::new(Self::awaited());
        let ending = Ending(Arc::downgrade(&load));
        pool.submit(haste, Box::new(move || ending.with(read)))?;
        Ok(load)
    }

    /// Result of the load, if it is there.
    pub(crate) fn now(&self) -> Option<Result<T, Busy>> {
        match &*lock(&self.outcome) {
            Outcome::Awaited => None,
            Outcome::Done(result) => Some(Ok(result.clone())),
            Outcome::Dropped => Some(Err(Busy)),
        }
    }

    /// Waits for the result.
    pub(crate) async fn done(&self) -> Result<T, Busy> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(result) = self.now() {
                return result;
            }
            changed.await;
        }
    }

    fn end(&self, outcome: Outcome<T>) {
        let mut now = lock(&self.outcome);
        if matches!(*now, Outcome::Awaited) {
            *now = outcome;
        }
        drop(now);
        self.changed.notify_waiters();
    }
}

/// INVARIANT 3.
struct Ending<T: Clone + Send + 'static>(Weak<Load<T>>);

impl<T: Clone + Send + 'static> Ending<T> {
    fn with(self, read: impl FnOnce() -> T) {
        // INVARIANT 2. While it is read, others who want it can still join.
        if let Some(load) = self.0.upgrade() {
            load.end(Outcome::Done(read()));
        }
    }
}

impl<T: Clone + Send + 'static> Drop for Ending<T> {
    fn drop(&mut self) {
        if let Some(load) = self.0.upgrade() {
            load.end(Outcome::Dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;

    fn start<T: Clone + Send + 'static>(
        pool: &Pool,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Arc<Load<T>>, Busy> {
        Load::start((pool, Haste::OrNotAtAll), read)
    }

    fn pool() -> (Pool, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(1_000_000));
        (Pool::new(Arc::<ManualClock>::clone(&clock)), clock)
    }

    /// Keeps all threads at a read each, until the sender is dropped.
    fn stall(pool: &Pool) -> (mpsc::Sender<()>, Vec<Arc<Load<u8>>>) {
        let (release, stalled) = mpsc::channel::<()>();
        let stalled = Arc::new(Mutex::new(stalled));
        let (begun, began) = mpsc::channel();
        let loads = (0..THREADS).map(|_| {
            let (stalled, begun) = (Arc::clone(&stalled), begun.clone());
            let read = move || {
                begun.send(()).unwrap();
                // One of them has the lock and waits for the channel, the others for the lock.
                let _ = lock(&stalled).recv();
                7
            };
            start(pool, read).unwrap()
        });
        let loads: Vec<_> = loads.collect();
        for _ in 0..THREADS {
            began.recv().unwrap();
        }
        (release, loads)
    }

    fn is_stalled(pool: &Pool) -> bool {
        lock(&pool.shared.state).is_stalled(pool.clock().steady())
    }

    #[tokio::test]
    async fn a_result_reaches_everybody_who_waits() {
        let (pool, _) = pool();
        let load = start(&pool, || 3).unwrap();
        assert_eq!(load.done().await, Ok(3));
        assert_eq!((load.done().await, load.now()), (Ok(3), Some(Ok(3))));
    }

    #[tokio::test]
    async fn a_read_that_panics_ends_its_load() {
        let (pool, _) = pool();
        let load: Arc<Load<u8>> = start(&pool, || panic!("on purpose")).unwrap();
        assert_eq!(load.done().await, Err(Busy));
    }

    #[tokio::test]
    async fn work_for_a_stalled_disk_is_bounded_and_then_refused() {
        let (pool, clock) = pool();
        let (release, stalled) = stall(&pool);
        assert!(!is_stalled(&pool) && pool.may_look());
        let waiting: Vec<_> = (0..QUEUE).map(|_| start(&pool, || 1).unwrap()).collect();
        assert_eq!(start(&pool, || 1).err(), Some(Busy), "the queue is full");
        clock.advance(Duration::from_millis(STALL_MS));
        assert!(is_stalled(&pool) && !pool.may_look());
        let patient = Load::start((&pool, Haste::Patient), || 2).unwrap();
        assert_eq!(lock(&pool.shared.state).threads, THREADS);
        drop(release);
        for load in stalled {
            assert_eq!(load.done().await, Ok(7));
        }
        for load in waiting {
            assert_eq!(load.done().await, Ok(1));
        }
        assert_eq!(patient.done().await, Ok(2));
        assert!(!is_stalled(&pool));
        assert_eq!(start(&pool, || 1).unwrap().done().await, Ok(1));
    }

    #[tokio::test]
    async fn a_job_that_nobody_waits_for_is_not_begun() {
        let (pool, _) = pool();
        let (release, stalled) = stall(&pool);
        let (begun, began) = mpsc::channel::<()>();
        drop(start(&pool, move || begun.send(()).unwrap()).unwrap());
        drop(release);
        for load in stalled {
            load.done().await.unwrap();
        }
        assert!(began.recv().is_err());
    }
}
