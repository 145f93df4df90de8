//! A worker thread's own state, and the generations of configuration that it serves.
//!
//! A [`Generation`] is one configuration snapshot on one worker with the connections accepted under
//! it. A reload makes a new one; the old one closes its idle connections at once, lets the busy
//! ones finish their request, and is gone with the last of them.
//!
//! Invariants:
//! 1. A connection belongs to one generation for life.
//! 2. A closing generation accepts nothing and keeps no connection alive after its current request.

pub mod guests;
pub(crate) mod head_block;
pub mod parts;
pub mod receive_buffer;

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::{self, Rc};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Waker;

use bytes::BytesMut;
use millpond_acme::Tender;
use millpond_system::clock;
use millpond_system::quota::{self, Quota, ROUNDS, Seat, Shortage, Side, Waiting};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::descriptors;
use crate::settings::Conf;
use crate::stats::CacheCounters;
use crate::stats::attempts::Attempts;
use crate::stats::cache_zone::CacheZones;
use crate::stats::connections::ConnectionCounters;
use crate::stats::ending::Ending;
use crate::stats::ledger::LedgerKeeper;
use crate::stats::missing::MissingUrls;
use crate::stats::place::{Places, TakenPlace};
use crate::stats::resets::Resets;
use crate::stats::site::Sites;
use crate::stats::site_info::SiteInfo;
use crate::stats::site_numbers::SiteNumbers;
use crate::stats::status_zone::StatusZones;
use crate::stats::times::Times;
use guests::Guests;
use head_block::HeadBlock;
use parts::{Part, Parts};
use receive_buffer::ReceiveBuffers;

/// The state that all workers of the process share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Connection counters.
    pub connections: ConnectionCounters,
    /// The count of descriptors that the process may have.
    pub descriptors: Descriptors,
    /// The configuration that was taken last.
    pub loads: Loads,
    /// The attempts to take another one.
    pub attempts: Attempts,
    /// The end of the process, once it is near.
    pub ending: Ending,
    /// The counts that the API subtracts since it was told to reset them.
    pub resets: Resets,
    /// Requests that the API answers beside the workers.
    pub api_places: Arc<AtomicUsize>,
    /// Answers by cache status.
    pub cache: CacheCounters,
    /// Answers of each cache zone.
    pub cache_zones: CacheZones,
    /// Requests of servers and locations that name a status zone.
    pub status_zones: StatusZones,
    /// The durations of answers and of exchanges with origins.
    pub times: Times,
    /// The counts of what each site sent and asked for.
    pub sites: Arc<Sites>,
    /// The keeper of the counters of sites.
    pub ledger: LedgerKeeper,
    /// The descriptions of sites.
    pub site_info: SiteInfo,
    /// The places of counters that are taken.
    pub places: Places,
    /// The URLs that were asked for and were not there.
    pub missing: MissingUrls,
    /// State of the modules and crates above.
    pub guests: Guests,
    /// The thread that orders certificates.
    pub tender: Tender,
}

/// The count of descriptors that the process may have, once that is known.
#[derive(Debug, Default)]
pub struct Descriptors(OnceLock<u64>);

impl Descriptors {
    /// Notes how many; the first word counts.
    pub fn set(&self, count: u64) {
        self.0.get_or_init(|| count);
    }

    /// The count of connections that each worker may have under a configuration.
    fn connections(&self, conf: &Conf) -> usize {
        let count = self.0.get();
        let connections = count.map(|count| descriptors::connections(conf, *count));
        let wanted = conf.main.connections.connections;
        quota::share(wanted, conf.main.process.worker_count(), connections)
    }
}

/// The count of configurations that were taken, and the time of the last one.
#[derive(Debug, Default)]
pub struct Loads(Mutex<Load>);

#[derive(Debug, Default)]
struct Load {
    count: u64,
    at_ms: i64,
    /// Attempts that changed nothing.
    failures: u64,
    /// True if the last attempt failed.
    has_failed: bool,
    /// The configuration that was taken last, to be told from another one.
    conf: Weak<Conf>,
}

/// The outcome of the last attempt to take a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastLoad {
    /// True if the configuration was taken.
    pub is_taken: bool,
    /// The time when one was last taken, milliseconds since 1970.
    pub taken_ms: i64,
    /// The count of configurations that were taken.
    pub taken: u64,
    /// The count of configurations that were not taken.
    pub failed: u64,
}

impl Loads {
    /// A configuration is in force; once more the same is no other.
    pub fn note(&self, conf: &Arc<Conf>) {
        let mut load = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::ptr::eq(load.conf.as_ptr(), Arc::as_ptr(conf)) {
            return;
        }
        *load = Load {
            count: load.count + 1,
            at_ms: clock::now_ms(),
            failures: load.failures,
            has_failed: false,
            conf: Arc::downgrade(conf),
        };
    }

    /// Notes that another configuration was to be taken, and was not.
    pub fn note_failure(&self) {
        let mut load = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        load.failures += 1;
        load.has_failed = true;
    }

    /// The outcome of the last attempt.
    pub fn outcome(&self) -> LastLoad {
        let load = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        LastLoad {
            is_taken: !load.has_failed,
            taken_ms: load.at_ms,
            taken: load.count,
            failed: load.failures,
        }
    }

    /// The number of the last one, from 1, and when it was taken, milliseconds since 1970.
    pub fn last(&self) -> (u64, i64) {
        let load = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (load.count, load.at_ms)
    }
}

/// A worker thread.
pub struct Worker {
    /// Index of the worker, from 0.
    pub index: usize,
    /// The place in which the worker counts answers.
    pub place: TakenPlace,
    /// The state that the worker shares with the others.
    pub shared: Arc<Shared>,
    /// The count of connections that the worker has and may have.
    pub quota: Rc<Quota>,
    /// The generation that accepts.
    current: RefCell<rc::Weak<Generation>>,
    /// Numbers of the sites that the worker has met.
    pub site_numbers: SiteNumbers,
    /// The memory in which the heads of requests to upstreams are written.
    pub upstream_heads: HeadBlock,
    /// The memory in which the first bytes of requests arrive, for all connections: one that waits
    /// holds no memory, and what is written to is in the processor's cache.
    pub arrivals: RefCell<BytesMut>,
    /// The buffers that large bodies of upstreams are received into.
    pub receive_buffers: ReceiveBuffers,
    /// State of the modules above.
    parts: Parts,
}

impl Worker {
    /// A worker that has met nobody yet.
    pub fn new(index: usize, shared: Arc<Shared>) -> Self {
        Worker {
            index,
            place: shared.places.take(index),
            shared,
            quota: Rc::default(),
            current: RefCell::default(),
            site_numbers: SiteNumbers::default(),
            upstream_heads: HeadBlock::default(),
            arrivals: RefCell::default(),
            receive_buffers: ReceiveBuffers::default(),
            parts: Parts::default(),
        }
    }
}

impl Worker {
    /// The state that a module above keeps for the worker.
    pub fn of<T: Part>(&self) -> &T {
        self.parts.of()
    }

    /// The generation that serves, if the worker does not leave.
    pub fn serving(&self) -> Option<Rc<Generation>> {
        let generation = self.current.borrow().upgrade();
        generation.filter(|it| !it.is_closing())
    }

    /// A place for a connection, after idle ones were closed for it if need be.
    pub async fn seat(&self, side: Side) -> Option<Seat> {
        if self.quota.is_tight() {
            self.close_idle(Shortage::Connections);
        }
        for _ in 0..ROUNDS {
            if let Some(seat) = self.quota.take(side) {
                return Some(seat);
            }
            if !self.make_room(Shortage::Connections).await {
                break;
            }
        }
        self.quota.take(side)
    }

    /// A place for a connection, waited for where it is descriptors that lack; none if the
    /// configured number is reached.
    pub async fn seat_in_turn(&self, side: Side) -> Option<Seat> {
        loop {
            let seat = self.seat(side).await;
            if seat.is_some() || !self.quota.is_cut() {
                return seat;
            }
            self.quota.tell_of_waiting(clock::instant());
            self.quota.freed().await;
        }
    }

    /// A place for a connection, now or not at all; idle ones are closed for those that come later.
    pub fn seat_now(&self, side: Side) -> Option<Seat> {
        let seat = self.quota.take(side);
        if seat.is_none() || self.quota.is_tight() {
            self.close_idle(Shortage::Connections);
        }
        seat
    }

    /// Closes idle connections and lets them end; false if there is none.
    pub async fn make_room(&self, why: Shortage) -> bool {
        let closed = self.close_idle(why);
        if closed {
            tokio::task::yield_now().await;
        }
        closed
    }

    /// Has idle connections closed; false if there is none.
    fn close_idle(&self, why: Shortage) -> bool {
        let generation = self.current.borrow().upgrade();
        let clients = generation.map_or(0, |it| it.close_waiting());
        let closed = clients > 0 || self.parts.make_room();
        if closed {
            self.quota.tell(why, clock::instant());
        }
        closed
    }
}

/// A configuration as the requests of one worker share it: who holds it there is counted without
/// the other workers.
#[derive(Debug)]
pub struct LocalConf(Arc<Conf>);

impl LocalConf {
    /// A share of a configuration.
    pub fn new(conf: Arc<Conf>) -> Rc<Self> {
        Rc::new(LocalConf(conf))
    }
}

impl Deref for LocalConf {
    type Target = Arc<Conf>;

    fn deref(&self) -> &Arc<Conf> {
        &self.0
    }
}

/// A configuration on a worker.
pub struct Generation {
    /// The worker.
    pub worker: Rc<Worker>,
    /// The configuration.
    pub conf: Rc<LocalConf>,
    /// The `stream` block of the configuration.
    pub stream: Option<Rc<LocalConf>>,
    /// State of the modules above.
    parts: Parts,
    closing: Cell<bool>,
    connections: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    open: Cell<usize>,
    drained: Notify,
}

/// A client's connection as its worker sees it.
pub trait Displaced {
    /// The state of its task.
    fn waiting(&self) -> Waiting;

    /// True when it is to be closed already, to make room for another.
    fn is_displaced(&self) -> bool;

    /// Has it be closed.
    fn displace(&self);
}

/// The record of a connection or background task.
#[derive(Default)]
struct Slot {
    /// Wakes the connection or task to see that the generation closes, or that room is to be made.
    waker: Option<Waker>,
    /// The connection, if the slot is of a client.
    client: Option<rc::Weak<dyn Displaced>>,
    /// Ends the task.
    task: Option<AbortHandle>,
}

/// Registration of a connection or background task with its generation.
pub struct Member {
    generation: Rc<Generation>,
    slot: usize,
    /// True if the member has left word how to wake it.
    is_registered: Cell<bool>,
}

impl Generation {
    /// A generation without connections.
    pub fn new(worker: Rc<Worker>, conf: Arc<Conf>) -> Rc<Self> {
        Rc::new(Generation {
            worker,
            stream: conf.stream.clone().map(LocalConf::new),
            conf: LocalConf::new(conf),
            parts: Parts::default(),
            closing: Cell::new(false),
            connections: RefCell::default(),
            free: RefCell::default(),
            open: Cell::new(0),
            drained: Notify::new(),
        })
    }

    /// Enters a connection or a background task.
    pub fn enter(self: &Rc<Self>) -> Member {
        self.open.set(self.open.get() + 1);
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut connections = self.connections.borrow_mut();
            connections.push(Slot::default());
            connections.len() - 1
        });
        Member {
            generation: Rc::clone(self),
            slot,
            is_registered: Cell::new(false),
        }
    }

    /// The state that a module above keeps for the generation.
    pub fn of<T: Part>(&self) -> &T {
        self.parts.of()
    }

    /// True when connections must not be kept alive.
    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Starts to close: idle connections end now.
    pub fn close(&self) {
        self.closing.set(true);
        let connections = self.connections.borrow();
        let wakers = connections.iter().filter_map(|slot| slot.waker.clone());
        let wakers: Vec<Waker> = wakers.collect();
        drop(connections);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Serves clients from now on: its idle connections make room for others.
    pub fn begin(self: &Rc<Self>) {
        let worker = &self.worker;
        let connections = worker.shared.descriptors.connections(&self.conf);
        let configured = self.conf.main.connections.connections as usize;
        worker.quota.set_most(connections, configured);
        *worker.current.borrow_mut() = Rc::downgrade(self);
    }

    /// Has some clients' connections closed that wait for nothing of ours; says how many.
    fn close_waiting(&self) -> usize {
        let connections = self.connections.borrow();
        let waiting = |slot: &Slot| {
            let client = slot.client.as_ref()?.upgrade()?;
            if client.is_displaced() {
                return None;
            }
            let waker = slot.waker.clone()?;
            Some((client.waiting(), (client, waker)))
        };
        let all = connections.iter().filter_map(waiting).collect();
        let chosen = quota::order(all, self.worker.quota.fresh());
        drop(connections);
        let count = chosen.len();
        for (client, waker) in chosen {
            client.displace();
            waker.wake();
        }
        count
    }

    /// True when nothing is open any more.
    pub fn is_empty(&self) -> bool {
        self.open.get() == 0
    }

    /// Makes the task of a registration one that [`Generation::drop_all`] ends.
    pub fn adopt(
        &self,
        slot: usize,
        (task, client): (AbortHandle, rc::Weak<impl Displaced + 'static>),
    ) {
        if let Some(slot) = self.connections.borrow_mut().get_mut(slot) {
            slot.task = Some(task);
            slot.client = Some(client);
        }
    }

    /// Puts another connection of a task in the place of the one that it was adopted with.
    pub fn rename(&self, slot: usize, client: rc::Weak<impl Displaced + 'static>) {
        if let Some(slot) = self.connections.borrow_mut().get_mut(slot) {
            slot.client = Some(client);
        }
    }

    /// Notes that a connection has no task for now; `waker` is called where its task would be.
    pub fn part(&self, member: &Member, waker: Waker) {
        if let Some(slot) = self.connections.borrow_mut().get_mut(member.slot) {
            slot.task = None;
            slot.waker = Some(waker);
        }
        // The next task leaves word for itself.
        member.is_registered.set(false);
    }

    /// Ends all connections and tasks where they stand.
    pub fn drop_all(&self) {
        let mut connections = self.connections.borrow_mut();
        let tasks: Vec<AbortHandle> = connections
            .iter_mut()
            .filter_map(|slot| slot.task.take())
            .collect();
        drop(connections);
        tasks.iter().for_each(AbortHandle::abort);
    }

    /// Waits until no connection is left.
    pub async fn drained(&self) {
        while self.open.get() > 0 {
            self.drained.notified().await;
        }
    }
}

impl Member {
    /// The place of the member, for [`Generation::adopt`].
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Leaves word how to wake the connection when the generation closes; once is enough.
    pub fn register(&self, waker: &Waker) {
        if !self.is_registered.replace(true)
            && let Some(slot) = self.generation.connections.borrow_mut().get_mut(self.slot)
        {
            slot.waker = Some(waker.clone());
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(slot) = self.generation.connections.borrow_mut().get_mut(self.slot) {
            *slot = Slot::default();
        }
        self.generation.free.borrow_mut().push(self.slot);
        self.generation
            .open
            .set(self.generation.open.get().saturating_sub(1));
        self.generation.drained.notify_waiters();
        self.generation.drained.notify_one();
    }
}
