//! Connections that have been quiet for a while: they keep their socket, their place and the end of
//! their wait, and nothing else.
//!
//! ```text
//! task of a connection ──nothing for a while──► Quiet
//!         ▲                                       │ a byte, the client's end, the end of the wait,
//!         └───────────── another task ◄───────────┘ a generation that closes
//! ```
//!
//! A task takes a kilobyte, the event loop's entry and the timer half of one. Whatever happens to a
//! quiet connection, it gets a task again, which finds out what that is and does what has to be
//! done. Only one that makes room for another is closed here: somebody waits for its place.
//!
//! Invariants:
//! 1. A connection is quiet or has a task, and counts as open in either case.
//! 2. A connection gets its task within a second of the end of its wait.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use millpond_exchange::client::http1::Quiet;
use millpond_exchange::failure::ClientGone;
use millpond_exchange::settings::listen::Binding;
use millpond_exchange::worker::parts::{Kept, Part, Place};
use millpond_exchange::worker::{Member, Worker};
use millpond_system::clock::{self, Instant};
use millpond_system::quiet_sockets::QuietSockets;
use tokio::sync::Notify;
use tokio::task::spawn_local;

use super::arrival::{Idle, log_idle_end};
use crate::downstream::accepted;

/// The time between two looks for connections whose wait is over.
const LOOK: Duration = Duration::from_secs(1);

/// A second of the worker's that never comes.
const NEVER: u32 = u32::MAX;

/// The quiet connections of a worker.
#[derive(Default)]
pub(crate) struct Connections {
    sockets: OnceCell<QuietSockets>,
    table: RefCell<Table>,
    /// Wakes the task that looks for connections which are to have an end.
    caller: OnceCell<Waker>,
    /// There are some again.
    filled: Notify,
}

/// The connections by number.
#[derive(Default)]
struct Table {
    kept: Vec<Option<One>>,
    /// The ends of their waits, in seconds of [`Connections::second`]: a few bytes for each are
    /// looked through, and not all that is kept.
    ends: Vec<u32>,
    free: Vec<u32>,
    /// Time of the first one.
    began: Option<Instant>,
}

/// A quiet connection.
struct One {
    quiet: Quiet,
    binding: Arc<Binding>,
    member: Member,
    idle: Idle,
}

impl Kept for Connections {}

impl Part for Connections {
    const PLACE: Place = Place::Quiet;
}

/// Keeps a connection until something happens to it.
pub(crate) fn keep(quiet: Quiet, (binding, member): (Arc<Binding>, Member), idle: Idle) {
    let worker = Rc::clone(&quiet.connection.generation.worker);
    let connections: &Connections = worker.of();
    let one = One {
        quiet,
        binding,
        member,
        idle,
    };
    if let Some(one) = connections.enter(one) {
        // Nobody watches it: it goes on with a task.
        let idle = one.idle.attentive();
        one.go_on(idle);
    }
}

/// Gives tasks to quiet connections of a worker when something happens to them, for as long as it
/// runs.
pub async fn tend(worker: Rc<Worker>) {
    let connections: &Connections = worker.of();
    let hear = async {
        while let Ok(numbers) = connections.heard().await {
            for number in numbers {
                connections.wake(number as usize);
            }
        }
    };
    let look = async {
        loop {
            connections.filled.notified().await;
            while !connections.is_empty() {
                clock::pause(LOOK).await;
                connections.wake_all_whose_wait_is_over(clock::instant());
            }
        }
    };
    let ended = Rc::clone(&worker);
    spawn_local(std::future::poll_fn(move |cx| {
        let connections: &Connections = ended.of();
        connections.caller.get_or_init(|| cx.waker().clone());
        connections.end_all_that_are_called();
        Poll::<()>::Pending
    }));
    tokio::join!(hear, look);
}

impl Connections {
    /// Takes a connection, or gives it back if the kernel does not watch it.
    fn enter(&self, one: One) -> Option<One> {
        let Some(sockets) = self.sockets() else {
            return Some(one);
        };
        let number = self.table.borrow_mut().place();
        if sockets.add(one.quiet.as_fd(), number as u64).is_err() {
            self.table.borrow_mut().free.push(number as u32);
            return Some(one);
        }
        let connection = &one.quiet.connection;
        let generation = &connection.generation;
        if let Some(caller) = self.caller.get() {
            generation.part(&one.member, caller.clone());
        }
        let worker = &generation.worker;
        let counters = worker.shared.connections.shard(worker.index);
        counters.active.fetch_add(1, Ordering::Relaxed);
        counters.quiet.fetch_add(1, Ordering::Relaxed);
        self.table.borrow_mut().put(number, one);
        self.filled.notify_one();
        None
    }

    /// The sockets, once the event loop knows of them.
    fn sockets(&self) -> Option<&QuietSockets> {
        if self.sockets.get().is_none() {
            let made = QuietSockets::new().ok()?;
            let _ = self.sockets.set(made);
        }
        self.sockets.get()
    }

    /// The numbers of connections that something has come on.
    async fn heard(&self) -> io::Result<Vec<u64>> {
        match self.sockets() {
            Some(sockets) => std::future::poll_fn(|cx| sockets.poll_heard(cx)).await,
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn is_empty(&self) -> bool {
        let table = self.table.borrow();
        table.free.len() == table.kept.len()
    }

    /// Gives a connection a task.
    fn wake(&self, number: usize) {
        self.take(number).into_iter().for_each(One::wake);
    }

    /// A connection that is not quiet any more.
    fn take(&self, number: usize) -> Option<One> {
        let one = self.table.borrow_mut().take(number)?;
        if let Some(sockets) = self.sockets() {
            // One that is not there is not watched.
            let _ = sockets.remove(one.quiet.as_fd());
        }
        let worker = &one.quiet.connection.generation.worker;
        let counters = worker.shared.connections.shard(worker.index);
        counters.active.fetch_sub(1, Ordering::Relaxed);
        counters.quiet.fetch_sub(1, Ordering::Relaxed);
        Some(one)
    }

    fn wake_all(&self, numbers: Vec<usize>) {
        numbers.into_iter().for_each(|number| self.wake(number));
    }

    fn wake_all_whose_wait_is_over(&self, now: Instant) {
        let over = self.table.borrow().over(now);
        self.wake_all(over);
    }

    /// Ends connections that make room for others, and wakes those of a generation that closes.
    fn end_all_that_are_called(&self) {
        for number in self.numbers(|one| one.quiet.connection.is_displaced.get()) {
            self.take(number).into_iter().for_each(One::make_room);
        }
        self.wake_all(self.numbers(|one| one.quiet.connection.generation.is_closing()));
    }

    fn numbers(&self, is_wanted: impl Fn(&One) -> bool) -> Vec<usize> {
        let table = self.table.borrow();
        let kept = table.kept.iter().enumerate();
        let found = kept.filter(|(_, one)| one.as_ref().is_some_and(&is_wanted));
        found.map(|(number, _)| number).collect()
    }
}

impl One {
    /// Closes the connection, unless its client has sent something meanwhile.
    fn make_room(self) {
        let connection = &self.quiet.connection;
        if self.quiet.has_unread() {
            connection.is_displaced.set(false);
            return self.wake();
        }
        connection.count_displaced();
        log_idle_end(connection, &ClientGone::Displaced);
    }

    /// Serves the connection by a task again, for the rest of its wait.
    fn wake(self) {
        let idle = self.idle.again(clock::instant());
        self.go_on(idle);
    }

    /// Serves the connection by a task; one that the event loop has no room for is closed.
    fn go_on(self, idle: Idle) {
        let known = Rc::downgrade(&self.quiet.connection);
        let generation = Rc::clone(&self.quiet.connection.generation);
        let Ok(http1) = self.quiet.wake() else {
            return;
        };
        let slot = self.member.slot();
        let served = accepted::go_on(http1, self.binding, (self.member, idle));
        generation.adopt(slot, (spawn_local(served).abort_handle(), known));
    }
}

impl Table {
    /// A number that no connection has.
    fn place(&mut self) -> usize {
        if let Some(number) = self.free.pop() {
            return number as usize;
        }
        self.kept.push(None);
        self.ends.push(NEVER);
        self.kept.len() - 1
    }

    fn put(&mut self, number: usize, one: One) {
        let began = *self.began.get_or_insert_with(clock::instant);
        let end = one.idle.end().map_or(NEVER, |end| second(began, end) + 1);
        if let (Some(kept), Some(slot)) = (self.kept.get_mut(number), self.ends.get_mut(number)) {
            *kept = Some(one);
            *slot = end;
        }
    }

    fn take(&mut self, number: usize) -> Option<One> {
        let one = self.kept.get_mut(number)?.take()?;
        if let Some(end) = self.ends.get_mut(number) {
            *end = NEVER;
        }
        self.free.push(number as u32);
        Some(one)
    }

    /// The connections whose wait is over.
    fn over(&self, now: Instant) -> Vec<usize> {
        let Some(began) = self.began else {
            return Vec::new();
        };
        let now = second(began, now);
        let ends = self.ends.iter().enumerate();
        let over = ends.filter(|(_, end)| **end <= now);
        over.map(|(number, _)| number).collect()
    }
}

/// The whole seconds from one time to a later one, as many as are told apart.
fn second(began: Instant, at: Instant) -> u32 {
    let seconds = at.saturating_duration_since(began).as_secs();
    u32::try_from(seconds).unwrap_or(NEVER).min(NEVER - 1)
}
