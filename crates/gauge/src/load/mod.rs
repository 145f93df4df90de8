//! Users that ask at one time, and what is known of all their answers.
//!
//! ```text
//! threads ── each a runtime ── users ── each a connection:  turn ► ask ► record ► turn ► …
//! ```
//!
//! Closed loop: a user asks again when it has its answer. Open loop: request k is due at k / rate
//! after the start, whoever is free asks it, and its times count from when it was due, so that a
//! server that stalls cannot hide the requests that it kept from being sent (coordinated omission).
//!
//! - `record` – times, counts and faults of one thread, and their sum
//!
//! 1. No more requests than the bound are sent, and none after the time is over or an interrupt;
//!    what was sent by then is read to its end.
//! 2. What a user does depends on the seed and its number alone, but for what others do.

mod record;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::Barrier;
use tokio::task::LocalSet;

pub use self::record::{Connections, Faults, Record, Second};
use crate::client::{Answer, Ask, Client, Clients, Event, Fault, Target};
use crate::module::Module;
use crate::origin::Origin;

/// Amount of load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Users: requests at one time.
    pub users: usize,
    /// Number of threads that the users share.
    pub threads: usize,
    /// Requests in all; none: as many as go into the time.
    pub requests: Option<u64>,
    /// The longest time; none: until all requests are done.
    pub time: Option<Duration>,
    /// Requests a second of all users together (open loop); none: as fast as they go.
    pub rate: Option<f64>,
    /// Seed of the chances.
    pub seed: u64,
}

/// A server that the gauge started itself.
pub trait Restart: std::fmt::Debug + Send + Sync {
    /// Ends the server as its operator would, and starts it again on what it left; the server
    /// listens when this returns.
    fn restart(&self) -> Result<()>;
}

/// State that all users share.
#[derive(Debug)]
pub struct Shared {
    /// Server that is asked.
    pub target: Arc<Target>,
    /// The built-in origin, if there is one.
    pub origin: Option<Origin>,
    /// Amount of load.
    pub load: Load,
    /// Server, if the gauge started it.
    pub server: Option<Arc<dyn Restart>>,
    /// Barrier at which all users meet.
    pub meeting: Barrier,
    tickets: AtomicU64,
    began: OnceLock<Instant>,
    is_over: AtomicBool,
    done: AtomicU64,
    bytes: AtomicU64,
    faults: AtomicU64,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Answers.
    pub requests: u64,
    /// Number of bytes of the answers' bodies.
    pub bytes: u64,
    /// Answers with a fault.
    pub faults: u64,
}

impl Shared {
    /// State that users share, before they begin.
    pub fn new(target: Target, origin: Option<Origin>, load: Load) -> Self {
        Self {
            target: Arc::new(target),
            origin,
            meeting: Barrier::new(load.users.max(1)),
            load,
            server: None,
            tickets: AtomicU64::new(0),
            began: OnceLock::new(),
            is_over: AtomicBool::new(false),
            done: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        }
    }

    /// Time when the first user began.
    pub fn began(&self) -> Instant {
        *self.began.get_or_init(Instant::now)
    }

    /// Sends nothing more.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// True if nothing more is sent.
    pub fn is_over(&self) -> bool {
        let is_late = |time: Duration| self.began().elapsed() >= time;
        let is_done = |requests: u64| self.tickets.load(Ordering::SeqCst) >= requests;
        self.is_over.load(Ordering::SeqCst)
            || self.load.time.is_some_and(is_late)
            || self.load.requests.is_some_and(is_done)
    }

    /// Progress of the run.
    pub fn progress(&self) -> Progress {
        Progress {
            requests: self.done.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            faults: self.faults.load(Ordering::Relaxed),
        }
    }

    /// The number of the next request, unless there shall be no more.
    fn ticket(&self) -> Option<u64> {
        if self.is_over() {
            return None;
        }
        let ticket = self.tickets.fetch_add(1, Ordering::SeqCst);
        let is_wanted = self.load.requests.is_none_or(|requests| ticket < requests);
        is_wanted.then_some(ticket)
    }
}

/// One user.
#[derive(Debug)]
pub struct User {
    /// Number of the user, from 0.
    pub number: usize,
    /// Chances of the user.
    pub random: fastrand::Rng,
    /// State that all users share.
    pub shared: Arc<Shared>,
    /// Record of what the user saw.
    pub record: Record,
    client: Client,
    due: Option<Instant>,
}

impl User {
    fn new(number: usize, client: Client, shared: &Arc<Shared>) -> Self {
        // Seeds of neighbours must not make like chances: the generator mixes them.
        let seed = shared.load.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number as u64;
        Self {
            number,
            random: fastrand::Rng::with_seed(seed),
            client,
            record: Record::new(shared.began()),
            shared: Arc::clone(shared),
            due: None,
        }
    }

    /// The number of the request that this user may send now; none when the run is over. With a
    /// rate it waits until the request is due.
    pub async fn turn(&mut self) -> Option<u64> {
        let ticket = self.shared.ticket()?;
        if let Some(rate) = self.shared.load.rate {
            let due = self.shared.began() + Duration::from_secs_f64(ticket as f64 / rate);
            tokio::time::sleep_until(due.into()).await;
            self.due = Some(due);
        }
        Some(ticket)
    }

    /// Asks, checks, and records what came; none if something was wrong.
    pub async fn ask(&mut self, ask: &Ask) -> Option<Answer> {
        let late = self.due.take().map_or(Duration::ZERO, |due| due.elapsed());
        let outcome = self.client.ask(ask).await;
        self.note();
        let shared = &self.shared;
        shared.done.fetch_add(1, Ordering::Relaxed);
        if let Some(answer) = &outcome.answer {
            shared.bytes.fetch_add(answer.body_bytes, Ordering::Relaxed);
            self.record.answer(answer, late);
        }
        match outcome.fault {
            None => outcome.answer,
            Some(fault) => {
                shared.faults.fetch_add(1, Ordering::Relaxed);
                self.record.fault(fault.kind(), || {
                    format!("{} {:?}: {fault}", ask.resource.path(), ask.want)
                });
                if matches!(fault, Fault::Connect(_) | Fault::Handshake(_)) {
                    // A server that is not there must not be asked a million times a second.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                None
            }
        }
    }

    /// Asks like [`User::ask`], outside of what is measured: only faults are recorded.
    pub async fn prepare(&mut self, ask: &Ask) -> Option<Answer> {
        let outcome = self.client.ask(ask).await;
        self.note();
        match outcome.fault {
            None => outcome.answer,
            Some(fault) => {
                self.record.fault(fault.kind(), || {
                    format!("{} (before the load): {fault}", ask.resource.path())
                });
                None
            }
        }
    }

    /// Asks for something that the server itself knows: status and body.
    pub async fn fetch(&mut self, method: &str, path: &str) -> Option<(u16, Vec<u8>)> {
        let fetched = self.client.fetch(method, path).await;
        self.note();
        match fetched {
            Ok(fetched) => Some(fetched),
            Err(fault) => {
                self.record
                    .fault(fault.kind(), || format!("{path}: {fault}"));
                None
            }
        }
    }

    /// Records what happened on connections beside the answers.
    fn note(&mut self) {
        for event in self.client.events() {
            if matches!(event, Event::Ended(_)) {
                self.shared.faults.fetch_add(1, Ordering::Relaxed);
            }
            self.record.event(event);
        }
    }

    /// Waits for all users. True for one of them, which the others do not wait for further.
    pub async fn meet(&self) -> bool {
        self.shared.meeting.wait().await.is_leader()
    }

    /// Ends the connection.
    pub fn hang_up(&mut self) {
        self.client.hang_up();
    }
}

/// Runs all users to their end; returns what they saw.
pub fn run(shared: &Arc<Shared>, module: &Arc<Module>) -> Result<Record> {
    let threads = shared.load.threads.clamp(1, shared.load.users.max(1));
    shared.began();
    let mut running = Vec::new();
    for thread in 0..threads {
        let (shared, module) = (Arc::clone(shared), Arc::clone(module));
        let spawned = std::thread::Builder::new()
            .name(format!("users-{thread}"))
            .spawn(move || run_thread(thread, threads, &shared, &module));
        running.push(spawned.context("cannot start a thread")?);
    }
    let mut sum = Record::new(shared.began());
    for thread in running {
        match thread.join() {
            Ok(record) => sum.add(&record?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(sum)
}

fn run_thread(
    thread: usize,
    threads: usize,
    shared: &Arc<Shared>,
    module: &Arc<Module>,
) -> Result<Record> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let users = LocalSet::new();
    let numbers = (thread..shared.load.users).step_by(threads);
    let mut clients = Clients::new(Arc::clone(&shared.target));
    let running: Vec<_> = numbers
        .map(|number| {
            let mut user = User::new(number, clients.make(), shared);
            let module = Arc::clone(module);
            users.spawn_local(async move {
                module.run(&mut user).await;
                user.client.end().await;
                user.note();
                user.record
            })
        })
        .collect();
    drop(clients);
    users.block_on(&runtime, async {
        let mut sum = Record::new(shared.began());
        for user in running {
            sum.add(&user.await.context("a user panicked")?);
        }
        Ok(sum)
    })
}
