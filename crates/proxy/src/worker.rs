//! A worker thread's own state, and the generations of configuration that it serves.
//!
//! A [`Generation`] is one configuration snapshot on one worker with the connections accepted under
//! it. A reload makes a new one; the old one closes its idle connections at once, lets the busy
//! ones finish their request, and is gone with the last of them.
//!
//! Invariants:
//! 1. A connection belongs to one generation for life.
//! 2. A closing generation accepts nothing and keeps no connection alive after its current request.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;

use bytes::BytesMut;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::cache::site::SiteNumbers;
use crate::cache::zones::Registry;
use crate::clock;
use crate::handler::dashboard::feed::Feed;
use crate::handler::dashboard::history::History;
use crate::handler::open_file::OpenFiles;
use crate::scope::Conf;
use crate::stats::CacheCounters;
use crate::stats::cache_zone::CacheZones;
use crate::stats::connections::ConnectionCounters;
use crate::stats::ledger::LedgerKeeper;
use crate::stats::missing::MissingUrls;
use crate::stats::place::{Places, TakenPlace};
use crate::stats::resets::Resets;
use crate::stats::site::Sites;
use crate::stats::site_info::SiteInfo;
use crate::stats::status_zone::StatusZones;
use crate::stats::times::Times;
use crate::upstream::keepalive::IdlePeers;
use crate::upstream::receive_buffer::ReceiveBuffers;
use crate::upstream::request::HeadBlock;

/// What all workers of the process share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Connection counters.
    pub connections: ConnectionCounters,
    /// The configuration that was taken last.
    pub loads: Loads,
    /// What the API does not tell any more.
    pub resets: Resets,
    /// Requests that the API answers beside the workers.
    pub api_places: Arc<AtomicUsize>,
    /// Open cache zones.
    pub zones: Registry,
    /// Answers by cache status.
    pub cache: CacheCounters,
    /// Answers of each cache zone.
    pub cache_zones: CacheZones,
    /// Requests of servers and locations that name a status zone.
    pub status_zones: StatusZones,
    /// How long answers and exchanges with origins took.
    pub times: Times,
    /// What each site sent and asked for.
    pub sites: Arc<Sites>,
    /// Where the counters of sites are kept.
    pub ledger: LedgerKeeper,
    /// What is said of sites.
    pub site_info: SiteInfo,
    /// Which places of counters are taken.
    pub places: Places,
    /// What was asked for and was not there.
    pub missing: MissingUrls,
    /// What dashboards are fed with.
    pub feed: Feed,
    /// What they begin with.
    pub history: History,
}

/// How many configurations were taken, and the last one's time.
#[derive(Debug, Default)]
pub struct Loads(Mutex<Load>);

#[derive(Debug, Default)]
struct Load {
    count: u64,
    at_ms: i64,
    /// Attempts that changed nothing.
    failures: u64,
    /// Whether the last attempt was one of them.
    has_failed: bool,
    /// Tells whether another one is meant.
    conf: Weak<Conf>,
}

/// How the last attempt to take a configuration ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastLoad {
    /// Whether it was taken.
    pub is_taken: bool,
    /// When one was last taken, milliseconds since 1970.
    pub taken_ms: i64,
    /// How many were taken.
    pub taken: u64,
    /// How many were not.
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

    /// Another configuration was to be taken, and was not.
    pub fn note_failure(&self) {
        let mut load = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        load.failures += 1;
        load.has_failed = true;
    }

    /// How the last attempt ended.
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
    /// Where it counts answers.
    pub place: TakenPlace,
    /// What it shares with the others.
    pub shared: Arc<Shared>,
    /// Numbers of the sites that it has met.
    pub site_numbers: SiteNumbers,
    /// Idle connections to upstream peers.
    pub idle_peers: IdlePeers,
    /// Where the heads of requests to upstreams are written.
    pub upstream_heads: HeadBlock,
    /// Where the first bytes of requests arrive, for all connections: one that waits holds no
    /// memory, and what is written to is in the processor's cache.
    pub arrivals: RefCell<BytesMut>,
    /// What large bodies of upstreams are received into.
    pub receive_buffers: ReceiveBuffers,
}

impl Worker {
    /// A worker that has met nobody yet.
    pub fn new(index: usize, shared: Arc<Shared>) -> Self {
        Worker {
            index,
            place: shared.places.take(index),
            shared,
            site_numbers: SiteNumbers::default(),
            idle_peers: IdlePeers::default(),
            upstream_heads: HeadBlock::default(),
            arrivals: RefCell::default(),
            receive_buffers: ReceiveBuffers::default(),
        }
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
    /// Files that stay open for the next request.
    pub open_files: OpenFiles,
    closing: Cell<bool>,
    connections: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    open: Cell<usize>,
    drained: Notify,
}

/// What is known of a connection or background task.
#[derive(Default)]
struct Slot {
    /// Wakes it to see that the generation closes.
    waker: Option<Waker>,
    /// Ends it.
    task: Option<AbortHandle>,
}

/// Registration of a connection or background task with its generation.
pub struct Member {
    generation: Rc<Generation>,
    slot: usize,
    /// Whether it has left word how to wake it.
    is_registered: Cell<bool>,
}

impl Generation {
    /// A generation without connections.
    pub fn new(worker: Rc<Worker>, conf: Arc<Conf>) -> Rc<Self> {
        Rc::new(Generation {
            worker,
            conf: LocalConf::new(conf),
            open_files: OpenFiles::default(),
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

    /// True when nothing is open any more.
    pub fn is_empty(&self) -> bool {
        self.open.get() == 0
    }

    /// Makes the task of a registration one that [`Generation::drop_all`] ends.
    pub fn adopt(&self, slot: usize, task: AbortHandle) {
        if let Some(slot) = self.connections.borrow_mut().get_mut(slot) {
            slot.task = Some(task);
        }
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
    /// Its place, for [`Generation::adopt`].
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
