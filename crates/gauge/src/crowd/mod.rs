//! Many connections on one thread, and requests that are due at fixed times: what a server keeps
//! waiting, in microseconds.
//!
//! ```text
//! due at k / rate ─► the connection that rested longest ─► whole answer: time since it was due
//!                └─► nobody is free: it waits, and its time goes on
//! ```
//!
//! Users of a module ([`crate::load`]) check every byte, and are woken by a timer of a millisecond.
//! Here only status and length are looked at, so that one core has a hundred thousand connections
//! or asks for tens of thousands of answers a second, and is woken to the microsecond.
//!
//! 1. A time counts from when its request was due, whoever was late (coordinated omission).
//! 2. A request that a kept connection took no more, without a byte of an answer, is sent again on
//!    a new one, and its time goes on; that is not a failure.
//! 3. All connections are cut off in the end (RST), so that none of their ports stays taken.
//!
//! - `connection` – one connection and the answer that comes on it
//! - `paths` – paths that are asked for
//! - `seen` – times and failures
//! - `ports` – sources of connections, and the limit of descriptors

mod connection;
mod paths;
mod ports;
mod seen;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::connection::{Asked, Connection, Met};
pub use self::paths::Paths;
pub use self::ports::make_room;
pub use self::seen::{Seen, Times};

/// Events that are taken at one time.
const EVENTS: usize = 256;
/// Bytes that are read at one time: more than a small answer has, so that one call ends it.
const READ: usize = 1 << 16;
/// A request that is sent so often in vain fails.
const TRIES: u8 = 4;

/// Settings of a crowd.
#[derive(Clone, Debug)]
pub struct CrowdConf {
    /// The server.
    pub address: SocketAddrV4,
    /// Lines of fields behind `Host`, each with its end of line.
    pub fields: String,
    /// Bytes of each answer's body.
    pub body_bytes: u64,
    /// The longest wait for an answer.
    pub patience: Duration,
}

/// Requests that are due one after the other, in equal distances.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    /// The connections that take them, the first ones.
    pub active: usize,
    /// Requests a second.
    pub rate: f64,
    /// Requests.
    pub count: u64,
}

impl Steady {
    /// As many as are due within a time.
    pub fn lasting(active: usize, rate: f64, time: Duration) -> Self {
        Self {
            active,
            rate,
            count: (rate * time.as_secs_f64()).round() as u64,
        }
    }
}

/// Connections, and what is under way on them.
#[derive(Debug)]
pub struct Crowd {
    conf: CrowdConf,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections that take requests: those before this one.
    active: usize,
    /// Connections that may be free, who rested longest first.
    free: VecDeque<usize>,
    /// Requests that nobody was free for.
    waiting: VecDeque<Asked>,
    /// Requests that were due and have not ended.
    under_way: usize,
    buffer: Vec<u8>,
    text: Vec<u8>,
}

impl Crowd {
    /// Nobody, yet.
    pub fn new(conf: CrowdConf) -> Result<Self> {
        Ok(Self {
            conf,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Vec::new(),
            active: 0,
            free: VecDeque::new(),
            waiting: VecDeque::new(),
            under_way: 0,
            buffer: vec![0; READ],
            text: Vec::new(),
        })
    }

    /// Connections that are open.
    pub fn open_count(&self) -> usize {
        let is_open = |connection: &&Connection| connection.is_open();
        self.connections.iter().filter(is_open).count()
    }

    /// Opens `count` more connections, at most `at_once` of them at one time; each asks once as
    /// soon as it is open. A time is that from the beginning of a connection to the end of its
    /// answer.
    pub fn open(&mut self, count: usize, at_once: usize, paths: &mut Paths) -> Result<Seen> {
        let mut seen = Seen::default();
        let began = Instant::now();
        let mut moved = began;
        let all = self.connections.len() + count;
        self.begin(0);
        loop {
            while self.connections.len() < all && self.under_way < at_once {
                let asked = Asked::new(Instant::now(), paths.next());
                self.under_way += 1;
                self.connections.push(Connection::default());
                self.connect(self.connections.len() - 1, Some(asked), &mut seen);
                // What has come is not left lying for long.
                if self.connections.len().is_multiple_of(EVENTS) {
                    break;
                }
            }
            if self.under_way == 0 && self.connections.len() == all {
                break;
            }
            let ended = seen.ended_requests();
            let wait = self.connections.len() < all && self.under_way < at_once;
            let until = if wait {
                moved
            } else {
                moved + self.conf.patience
            };
            self.turn(until, paths, &mut seen)?;
            if seen.ended_requests() > ended || wait {
                moved = Instant::now();
            } else if moved.elapsed() >= self.conf.patience {
                self.give_up(&mut seen);
            }
        }
        seen.elapsed = began.elapsed();
        Ok(seen)
    }

    /// Sends requests when they are due.
    pub fn ask(&mut self, steady: Steady, paths: &mut Paths) -> Result<Seen> {
        let mut seen = Seen::default();
        self.begin(steady.active);
        self.reopen(&mut seen);
        let began = Instant::now();
        let due = |number: u64| began + Duration::from_secs_f64(number as f64 / steady.rate);
        let last = due(steady.count);
        let mut number = 0;
        loop {
            while number < steady.count && due(number) <= Instant::now() {
                self.give(Asked::new(due(number), paths.next()), paths, &mut seen);
                number += 1;
            }
            let is_sent = number == steady.count;
            if is_sent && self.under_way == 0 {
                break;
            }
            let until = if is_sent {
                last + self.conf.patience
            } else {
                due(number)
            };
            self.turn(until, paths, &mut seen)?;
            if is_sent && Instant::now() >= until {
                self.give_up(&mut seen);
            }
        }
        seen.elapsed = began.elapsed();
        Ok(seen)
    }

    /// Asks nothing for a time; what ends meanwhile is counted.
    pub fn rest(&mut self, time: Duration, paths: &mut Paths) -> Result<Seen> {
        let mut seen = Seen::default();
        let began = Instant::now();
        self.begin(0);
        while began.elapsed() < time {
            self.turn(began + time, paths, &mut seen)?;
        }
        seen.elapsed = began.elapsed();
        Ok(seen)
    }

    /// Makes the first connections the ones that take requests.
    fn begin(&mut self, active: usize) {
        self.active = active.min(self.connections.len());
        let is_idle = |index: &usize| self.connections[*index].is_idle();
        self.free = (0..self.active).filter(is_idle).collect();
    }

    /// Opens the active connections again that are not open.
    fn reopen(&mut self, seen: &mut Seen) {
        for index in 0..self.active {
            if !self.connections[index].is_open() {
                self.connect(index, None, seen);
            }
        }
    }

    /// Gives a request that is due to a connection that is free, or has it wait.
    fn give(&mut self, asked: Asked, paths: &Paths, seen: &mut Seen) {
        self.under_way += 1;
        while let Some(index) = self.free.pop_front() {
            if self.connections[index].is_idle() {
                seen.late.add(asked.due.elapsed());
                self.send(index, asked, paths, seen);
                return;
            }
        }
        self.waiting.push_back(asked);
    }

    fn send(&mut self, index: usize, asked: Asked, paths: &Paths, seen: &mut Seen) {
        paths.write(asked.number, &self.conf, &mut self.text);
        let connection = &mut self.connections[index];
        if let Some(met) = connection.send(asked, &self.text) {
            self.apply(index, met, paths, seen);
        }
    }

    /// Begins a connection, with a request that is sent when it is open.
    fn connect(&mut self, index: usize, asked: Option<Asked>, seen: &mut Seen) {
        let source = ports::source(index);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let begun = ports::connect(source, self.conf.address).and_then(|stream| {
            epoll::add(
                &self.epoll,
                &stream,
                EventData::new_u64(index as u64),
                flags,
            )?;
            Ok(stream)
        });
        match begun {
            Ok(stream) => self.connections[index].begin(stream, asked),
            Err(error) => {
                self.connections[index] = Connection::default();
                self.fail(asked, || format!("connect from {source}: {error}"), seen);
            }
        }
    }

    /// Takes what has come, or waits for something to come until then.
    fn turn(&mut self, until: Instant, paths: &Paths, seen: &mut Seen) -> Result<()> {
        if !self.take(paths, seen)? {
            let wait = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(wait).context("a long wait")?;
            let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Err(rustix::io::Errno::INTR) | Ok(0) => {}
                other => {
                    other?;
                    self.take(paths, seen)?;
                }
            }
        }
        Ok(())
    }

    /// Takes what has come; false if that is nothing.
    fn take(&mut self, paths: &Paths, seen: &mut Seen) -> Result<bool> {
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        let now = Timespec::default();
        let (events, _) = epoll::wait(&self.epoll, &mut room, Some(&now))?;
        for event in &*events {
            let index = usize::try_from(event.data.u64())?;
            let flags = event.flags;
            // An end is told once, so it is looked for behind an answer; all else is told again.
            let mut is_end = true;
            while is_end {
                let connection = &mut self.connections[index];
                let Some(met) = connection.advance(flags, &mut self.buffer) else {
                    break;
                };
                // A connection that was begun anew has events of its own.
                is_end = flags.contains(EventFlags::RDHUP) && !matches!(met, Met::Ended(..));
                self.apply(index, met, paths, seen);
            }
        }
        Ok(!events.is_empty())
    }

    /// Does what follows from what a connection met.
    fn apply(&mut self, index: usize, met: Met, paths: &Paths, seen: &mut Seen) {
        match met {
            Met::Opened(Some(asked)) => self.send(index, asked, paths, seen),
            Met::Opened(None) => self.next(index, paths, seen),
            Met::Answered(asked, answer) => {
                seen.times.add(asked.due.elapsed());
                seen.bytes += answer.body_bytes;
                self.under_way -= 1;
                if !answer.is_as(self.conf.body_bytes) {
                    seen.fail(1, || answer.to_string());
                }
                self.next(index, paths, seen);
            }
            Met::Ended(None, _) => {
                seen.ended += 1;
                // One that only rests is not missed.
                if index < self.active {
                    self.connect(index, None, seen);
                }
            }
            Met::Ended(Some(mut asked), None) if asked.tries < TRIES => {
                seen.again += 1;
                asked.tries += 1;
                self.connect(index, Some(asked), seen);
            }
            Met::Ended(asked, why) => {
                let why = why.unwrap_or_else(|| "no answer, again and again".to_owned());
                self.fail(asked, || why, seen);
                if index < self.active {
                    self.connect(index, None, seen);
                }
            }
        }
    }

    /// A connection is free: it takes a request that waits.
    fn next(&mut self, index: usize, paths: &Paths, seen: &mut Seen) {
        if index >= self.active {
            return;
        }
        match self.waiting.pop_front() {
            Some(asked) => self.send(index, asked, paths, seen),
            None => self.free.push_back(index),
        }
    }

    fn fail(&mut self, asked: Option<Asked>, why: impl FnOnce() -> String, seen: &mut Seen) {
        if asked.is_some() {
            self.under_way -= 1;
            seen.fail(1, why);
        }
    }

    /// Nobody waits any longer: what is under way has failed, and its connections are cut off.
    fn give_up(&mut self, seen: &mut Seen) {
        let patience = self.conf.patience;
        let count = self.under_way as u64;
        seen.fail(count, || format!("no answer within {patience:?}"));
        self.under_way = 0;
        self.waiting.clear();
        for connection in &mut self.connections {
            if !connection.is_idle() {
                *connection = Connection::default();
            }
        }
    }
}
