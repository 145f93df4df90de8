//! A node of a fleet: the threads that follow its log, and the way of purges into it.
//!
//! ```text
//! purge ──publish──► "fleet-log": connection, entries on their way ──► NATS
//!                         │ records
//!                         ▼
//!                    "fleet": follower ──► zones (waits for their disks)
//! ```
//!
//! There are two threads, because a zone that takes purges waits for its disk, while purges of this
//! node and the connection must not.
//!
//! 1. A purge counts as acknowledged when the log has said so, and as local in every other case:
//!    without a server, without an answer in time, at the end of the process.
//! 2. The log that fails is opened again after a second, as often as it takes.
//! 3. Whoever stops a node waits until it does not touch its zones any more, unless their disk does
//!    not answer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use millpond_cache::lag::OnLag;
use millpond_cache::purge::log::PurgeId;
use millpond_cache::purge::position::Position;
use millpond_cache::purge::{Mode, Target};
use millpond_cache::zone::CacheZone;
use millpond_store::{Clock, SystemClock};
use millpond_system::chance;
use millpond_system::clock;
use millpond_system::log::error::{self, Level};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

use crate::ask::{Catalogue, Lists, Piece, Question};
use crate::config::ConfigConf;
use crate::config::rollout::Rollout;
use crate::entry::{Entry, Purge, Run};
use crate::follower::{Follower, Member};
use crate::gap::Gap;
use crate::held::watch_lag;
use crate::ledger::{self, Ledgers};
use crate::lending;
use crate::log::{FleetLog, LogError};
use crate::nats::{NatsConf, NatsLog};
use crate::peers::{LIVE_MS, Peers, PeersConf};
use crate::session::{Scene, follow};
use crate::share::{Census, Share};
use crate::slot_lending;
use crate::tally::{PARTS, Source, Sum};
use crate::view::{Heard, View};

/// Time between two tries to open the log.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// Time in which the log must have acknowledged a purge (a little more than its servers have for an
/// answer).
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(3);
/// Time that is waited longer than `max_lag` for nodes that are not heard of: times of beats are
/// whole milliseconds.
const MARGIN: Duration = Duration::from_millis(10);
/// Purges that may be on their way to the log at once (arbitrary; each is a request that waits).
const PUBLISHING_MAX: usize = 1024;
/// Time between two tallies.
const TALLY_EVERY: Duration = Duration::from_secs(10);
/// Time in which all tallies must have been read (arbitrary: a hundred full ones take a second).
const SUM_WITHIN: Duration = Duration::from_secs(10);
/// Readers of all tallies at once: each has a sum in memory.
const SUMS_MAX: usize = 2;
/// Time for which the end of a node waits for a disk (arbitrary; as long as for slow logs).
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Time in which a node must answer a question: a little more than it has for a piece.
const ANSWER_WITHIN: Duration = Duration::from_secs(12);
/// Reason for a question that is not put.
const UNSIGNED: &str = "nodes are asked with \"peer_secret\" of the fleet only";
/// Reason for an answer that did not come: a node does not answer what is not signed right.
const SILENT: &str = "it does not answer: it stands still, or its clock or secret is another";
/// Reason for what was not done at the end of a node.
const LEAVING: &str = "the process is leaving the fleet";

/// A fleet, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConf {
    /// The log, with the names of the fleet and of this node.
    pub log: NatsConf,
    /// The most that a node may be behind.
    pub max_lag: Duration,
    /// Use of stored answers while it is.
    pub on_lag: OnLag,
    /// Place of this node among its peers.
    pub peers: PeersConf,
    /// Configuration that comes from the fleet, if any does.
    pub config: Option<ConfigConf>,
}

impl FleetConf {
    /// Name of the fleet.
    pub fn name(&self) -> &str {
        &self.log.fleet
    }
}

/// Nodes on which a purge is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This one; the reason why no other is known to be.
    Local(String),
    /// This one now, and all after `max_lag` at the latest: the log has acknowledged it.
    Acknowledged {
        /// Sequence of the purge in the log.
        sequence: u64,
    },
    /// All.
    Everywhere {
        /// Sequence of the purge in the log.
        sequence: u64,
    },
}

impl Reach {
    /// The reach in a word.
    pub fn word(&self) -> &'static str {
        match self {
            Reach::Local(_) => "local",
            Reach::Acknowledged { .. } => "acknowledged",
            Reach::Everywhere { .. } => "everywhere",
        }
    }
}

/// The moment that who purges waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Await {
    /// The log has acknowledged the purge.
    Log,
    /// The purge is in force on all nodes.
    Fleet,
}

/// The reason why a node has not left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotLeft {
    /// The node is heard of, or is this one.
    Lives,
    /// Nobody has heard of it.
    Unknown,
    /// The log cannot be told.
    Failed(String),
}

/// Counts of this node's own purges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Purges that the log has acknowledged.
    pub acknowledged: u64,
    /// Purges that are in force here only.
    pub local: u64,
}

/// Things of the process that a node tells its fleet.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Counters.
    pub counters: Option<Arc<dyn Source>>,
    /// Lists, for other nodes that ask.
    pub catalogue: Option<Arc<dyn Catalogue>>,
}

/// State that both threads and those who purge share.
struct Core {
    conf: FleetConf,
    zones: Vec<Arc<CacheZone>>,
    run: Run,
    log: Mutex<Option<NatsLog>>,
    view: Mutex<View>,
    /// Changes of the view.
    changes: watch::Sender<()>,
    peers: Arc<Peers>,
    census: Mutex<Census>,
    /// Counters that are told to the fleet, and lists.
    sources: Sources,
    summing: Semaphore,
    ledgers: Ledgers,
    /// Told when the first zone has a ledger.
    has_ledgers: Notify,
    publishing: Arc<Semaphore>,
    purges: AtomicU64,
    /// Purges of this node that wait for the fleet, by number, and the log that they came back by.
    awaited: Mutex<BTreeMap<u64, Option<[u8; 16]>>>,
    acknowledged: AtomicU64,
    local: AtomicU64,
}

/// A node that follows.
pub struct Node {
    core: Arc<Core>,
    runtime: Handle,
    end: Mutex<Option<oneshot::Sender<()>>>,
    ended: Mutex<Receiver<()>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("fleet", &self.core.conf.name())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time by the clock that zones are confirmed by.
pub fn now_ms() -> u64 {
    SystemClock.since_boot()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Node {
    /// Starts the threads of a node for some zones, which are part of the fleet from here on; its
    /// limits are told of their share, and the fleet of things of the process.
    pub fn start(
        conf: FleetConf,
        zones: Vec<Arc<CacheZone>>,
        share: Arc<Share>,
        (sources, rollout): (Sources, Arc<Rollout>),
    ) -> std::io::Result<Node> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut run = Run::default();
        let words = [chance::word(), chance::word()].map(u64::to_le_bytes);
        run.copy_from_slice(words.as_flattened());
        let peers = Arc::new(Peers::new(&conf.log.node, conf.peers.clone()));
        let census = Mutex::new(Census::new(&conf.log.node, share));
        let core = Arc::new(Core {
            peers,
            census,
            sources,
            summing: Semaphore::new(SUMS_MAX),
            conf,
            zones,
            run,
            log: Mutex::default(),
            view: Mutex::default(),
            changes: watch::Sender::default(),
            ledgers: Ledgers::default(),
            has_ledgers: Notify::new(),
            publishing: Arc::new(Semaphore::new(PUBLISHING_MAX)),
            purges: AtomicU64::new(0),
            awaited: Mutex::default(),
            acknowledged: AtomicU64::new(0),
            local: AtomicU64::new(0),
        });
        let handle = runtime.handle().clone();
        let (end, over) = oneshot::channel();
        let (following, followed) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("fleet-log".to_owned())
            .spawn(move || {
                // The other side is dropped when the follower has ended.
                let _ = runtime.block_on(followed);
                runtime.shutdown_background();
            })?;
        let (done, ended) = sync_channel(1);
        let (own, tending) = (handle.clone(), Arc::clone(&core));
        std::thread::Builder::new()
            .name("fleet".to_owned())
            .spawn(move || {
                let fleet = tending.conf.name();
                own.block_on(async {
                    tokio::select! {
                        () = tend(&tending) => {}
                        () = watch_lag(fleet, tending.conf.max_lag, &tending.zones) => {}
                        () = tell_tallies(&tending) => {}
                        () = answer_questions(&tending) => {}
                        () = keep_ledgers(&tending) => {}
                        () = take_configuration(&tending, &rollout) => {}
                        () = lend_tokens(&tending) => {}
                        _ = over => {}
                    }
                });
                let _ = done.send(());
                drop(following);
            })?;
        Ok(Node {
            core,
            runtime: handle,
            end: Mutex::new(Some(end)),
            ended: Mutex::new(ended),
        })
    }

    /// Ends the threads.
    pub fn stop(&self) {
        // Dropped, it ends them.
        drop(lock(&self.end).take());
        // INVARIANT 3.
        let ended = lock(&self.ended);
        let _ = ended.recv_timeout(STOP_PATIENCE);
    }

    /// The fleet as it was configured.
    pub fn conf(&self) -> &FleetConf {
        &self.core.conf
    }

    /// Zones that follow.
    pub fn zones(&self) -> &[Arc<CacheZone>] {
        &self.core.zones
    }

    /// The peers of this node.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.core.peers
    }

    /// Number of nodes among which limits are split.
    pub fn split_nodes(&self) -> u64 {
        lock(&self.core.census).share().nodes()
    }

    /// The counters of all nodes, on a thread that may wait; or the reason why there are none.
    pub fn sum_and_wait(&self) -> Result<Sum, String> {
        let (tell, told) = sync_channel(1);
        let core = Arc::clone(&self.core);
        self.runtime.spawn(async move {
            let _ = tell.send(core.sum().await);
        });
        told.recv().unwrap_or_else(|_| Err(LEAVING.to_owned()))
    }

    /// Has a node leave the fleet for good, on a thread that may wait.
    pub fn leave_and_wait(&self, name: &str) -> Result<(), NotLeft> {
        let (tell, told) = sync_channel(1);
        let (core, name) = (Arc::clone(&self.core), name.to_owned());
        self.runtime.spawn(async move {
            let _ = tell.send(core.leave(name).await);
        });
        told.recv()
            .unwrap_or_else(|_| Err(NotLeft::Failed(LEAVING.to_owned())))
    }

    /// Asks another node, on a thread that may wait; or the reason why it has not answered.
    pub(crate) fn ask_and_wait(&self, to: &str, question: &Question) -> Result<Piece, String> {
        let (tell, told) = sync_channel(1);
        let (core, to, question) = (Arc::clone(&self.core), to.to_owned(), question.clone());
        self.runtime.spawn(async move {
            let _ = tell.send(core.ask(&to, &question).await);
        });
        told.recv().unwrap_or_else(|_| Err(LEAVING.to_owned()))
    }

    /// The ledgers of zones that have copies outside.
    pub fn ledgers(&self) -> &Ledgers {
        &self.core.ledgers
    }

    /// A zone has a ledger from now on.
    pub fn keep_ledger(&self, zone: &CacheZone) {
        self.core.ledgers.add(&zone.name, *zone.keys());
        self.core.has_ledgers.notify_one();
    }

    /// Waits until all that the log has up to a position of a zone is in force in it; the position
    /// that it has come to. None if it is not in time, or of another log.
    pub async fn reach(
        &self,
        zone: &str,
        wanted: Position,
        patience: Duration,
    ) -> Option<Position> {
        clock::within(patience, self.core.reached(zone, wanted))
            .await
            .flatten()
    }

    /// Knowledge of the fleet.
    pub fn view(&self) -> View {
        lock(&self.core.view).clone()
    }

    /// Counts of this node's own purges.
    pub fn published(&self) -> Published {
        Published {
            acknowledged: self.core.acknowledged.load(Ordering::Relaxed),
            local: self.core.local.load(Ordering::Relaxed),
        }
    }

    /// Hands a purge over to the log, which is in force in a zone of this node already.
    pub async fn publish(&self, zone: &str, (target, mode): (Target, Mode), wait: Await) -> Reach {
        self.begin(zone, (target, mode), wait)
            .await
            .unwrap_or_else(|_| ending())
    }

    /// Hands a purge over as [`Node::publish`] does, on a thread that may wait.
    pub fn publish_and_wait(
        &self,
        zone: &str,
        (target, mode): (Target, Mode),
        wait: Await,
    ) -> Reach {
        let (tell, told) = sync_channel(1);
        let publishing = self.begin(zone, (target, mode), wait);
        self.runtime.spawn(async move {
            let _ = tell.send(publishing.await.unwrap_or_else(|_| ending()));
        });
        told.recv().unwrap_or_else(|_| ending())
    }

    fn begin(&self, zone: &str, (target, mode): (Target, Mode), wait: Await) -> JoinHandle<Reach> {
        let core = Arc::clone(&self.core);
        let count = core.purges.fetch_add(1, Ordering::Relaxed);
        let id = PurgeId {
            run: core.run,
            count,
        };
        let own = core.zones.iter().find(|it| *it.name == *zone).cloned();
        if let Some(own) = &own {
            own.purges.apart.send(&target, mode, id);
        }
        let entry = Entry::Purge(Purge {
            run: core.run,
            count,
            zone: Bytes::copy_from_slice(zone.as_bytes()),
            mode,
            target,
        });
        self.runtime.spawn(async move {
            if wait == Await::Fleet {
                lock(&core.awaited).insert(count, None);
            }
            let reach = core.publish((&entry, count), wait).await;
            lock(&core.awaited).remove(&count);
            let tally = match &reach {
                Reach::Local(_) => &core.local,
                _ => {
                    own.inspect(|zone| zone.purges.apart.acknowledge(id, now_ms()));
                    &core.acknowledged
                }
            };
            tally.fetch_add(1, Ordering::Relaxed);
            reach
        })
    }
}

/// INVARIANT 1.
fn ending() -> Reach {
    Reach::Local(LEAVING.to_owned())
}

impl Core {
    async fn publish(&self, (entry, count): (&Entry, u64), wait: Await) -> Reach {
        let Ok(_place) = self.publishing.try_acquire() else {
            return Reach::Local("too many purges are on their way".to_owned());
        };
        let log = lock(&self.log).clone();
        let Some(log) = log else {
            return Reach::Local("no server is connected".to_owned());
        };
        let appended = clock::within(ACKNOWLEDGE_WITHIN, log.append(entry)).await;
        let sequence = match appended {
            Some(Ok(sequence)) => sequence,
            Some(Err(error)) => return Reach::Local(error.to_string()),
            None => return Reach::Local("the log does not answer".to_owned()),
        };
        match wait {
            Await::Log => Reach::Acknowledged { sequence },
            Await::Fleet => {
                // After `max_lag` it is everywhere, whoever was heard of.
                let most = self.conf.max_lag + MARGIN;
                let _ = clock::within(most, self.everywhere((count, sequence))).await;
                Reach::Everywhere { sequence }
            }
        }
    }

    async fn ask(&self, to: &str, question: &Question) -> Result<Piece, String> {
        let secret = self.peers.secret().ok_or(UNSIGNED)?;
        let log = lock(&self.log).clone().ok_or("no server is connected")?;
        let now_ms = u64::try_from(clock::now_ms()).unwrap_or(0);
        let asked = log.ask(to, |reply| question.encode(secret, (to, reply), now_ms));
        match clock::within(ANSWER_WITHIN, asked).await {
            Some(Ok(answer)) => Piece::decode(&answer, secret, question)
                .ok_or_else(|| "its answer is not signed with the same secret".to_owned()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err(SILENT.to_owned()),
        }
    }

    /// The counters of the node stay, as those of nobody; then all are told.
    async fn leave(&self, name: String) -> Result<(), NotLeft> {
        let max_lag_ms = millis(self.conf.max_lag);
        let (is_known, is_live) = {
            let view = lock(&self.view);
            let heard = view.members.get(&name);
            let is_recent = |it: &Heard| now_ms().saturating_sub(it.at_ms) <= max_lag_ms;
            (heard.is_some(), heard.is_some_and(is_recent))
        };
        if is_live || name == self.conf.log.node {
            return Err(NotLeft::Lives);
        }
        let Some(log) = lock(&self.log).clone() else {
            return Err(NotLeft::Failed("no server is connected".to_owned()));
        };
        let (run, node) = (self.run, name.clone());
        let leaving = async {
            let disowned = log.disown_tallies(&name).await?;
            if !is_known && disowned == 0 {
                return Ok(false);
            }
            log.append(&Entry::Farewell { run, node }).await?;
            Ok::<_, LogError>(true)
        };
        match clock::within(SUM_WITHIN, leaving).await {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(NotLeft::Unknown),
            Some(Err(error)) => Err(NotLeft::Failed(error.to_string())),
            None => Err(NotLeft::Failed("the log does not answer".to_owned())),
        }
    }

    async fn sum(&self) -> Result<Sum, String> {
        let Ok(_place) = self.summing.try_acquire() else {
            return Err("too many ask at once".to_owned());
        };
        let log = lock(&self.log).clone().ok_or("no server is connected")?;
        let mut sum = Sum::default();
        let reading = log.read_tallies(|record, at_ms| sum.take(record, at_ms));
        match clock::within(SUM_WITHIN, reading).await {
            Some(Ok(())) => Ok(sum),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the log does not answer".to_owned()),
        }
    }

    /// Waits until a purge of this node is everywhere. Its sequence is one of the log that it came
    /// back by: the log may have been made anew since the view was told.
    async fn everywhere(&self, (count, sequence): (u64, u64)) {
        let mut changes = self.changes.subscribe();
        let max_lag_ms = millis(self.conf.max_lag);
        loop {
            let is_so = {
                let view = lock(&self.view);
                let by = lock(&self.awaited).get(&count).copied().flatten();
                by.is_some() && by == view.log && view.is_everywhere(sequence, now_ms(), max_lag_ms)
            };
            if is_so || changes.changed().await.is_err() {
                return;
            }
        }
    }

    async fn reached(&self, zone: &str, wanted: Position) -> Option<Position> {
        let mut changes = self.changes.subscribe();
        loop {
            let position = lock(&self.view).position(zone)?;
            if position.log != wanted.log {
                return None;
            }
            if position.covers(&wanted) {
                return Some(position);
            }
            changes.changed().await.ok()?;
        }
    }

    fn tell_gap(&self, zone: &[u8], gap: Gap) {
        // A zone that has never followed has missed nothing that anybody knows of.
        let level = if gap == Gap::First {
            Level::Notice
        } else {
            Level::Warn
        };
        let (fleet, zone) = (self.conf.name(), String::from_utf8_lossy(zone));
        let why = gap.as_str();
        error::process(
            level,
            format_args!("fleet \"{fleet}\": all of cache \"{zone}\" counts as stale once: {why}"),
        );
    }

    fn tell_trouble(&self, failure: &LogError) {
        let text = failure.to_string();
        let mut view = lock(&self.view);
        let is_known = view.trouble.as_ref() == Some(&text);
        view.trouble = Some(text.clone());
        drop(view);
        if !is_known {
            let fleet = self.conf.name();
            error::process(Level::Warn, format_args!("fleet \"{fleet}\": {text}"));
        }
    }
}

/// The clock of a session, and the listener that it tells.
struct Listener<'a>(&'a Core);

impl Scene<Arc<CacheZone>> for Listener<'_> {
    fn now_ms(&self) -> u64 {
        now_ms()
    }

    fn tell(&self, follower: &mut Follower<Arc<CacheZone>>) {
        let core = self.0;
        for (zone, gap) in follower.take_gaps() {
            core.tell_gap(&zone, gap);
        }
        // INVARIANT 2 of `view.rs`.
        let at_ms = now_ms();
        let newest_ms = follower.newest_ms();
        let at = |(name, member): (String, Member)| {
            let heard = Heard {
                was_recent: newest_ms.saturating_sub(member.at_ms) <= LIVE_MS,
                member,
                at_ms,
            };
            (name, heard)
        };
        let left = follower.take_left();
        let heard = follower.take_heard().into_iter().map(at);
        let counts = follower.counts();
        let (own, log) = (follower.take_own(), follower.log());
        follower.announce(Some(core.peers.announced()));
        let mut view = lock(&core.view);
        let is_first_rival = view.counts.rivals == 0 && counts.rivals > 0;
        view.taken = follower.settled();
        view.confirmed_ms = follower.confirmed_ms();
        view.members.retain(|name, _| !left.contains(name));
        view.members.extend(heard);
        view.counts = counts;
        view.log = log;
        let mut awaited = lock(&core.awaited);
        for count in own {
            if let Some(by) = awaited.get_mut(&count) {
                *by = log;
            }
        }
        drop(awaited);
        view.newest_ms = newest_ms;
        core.peers.hear(view.members.iter());
        lock(&core.census).hear(view.members.iter(), at_ms);
        let is_open_again = view.trouble.take().is_some();
        drop(view);
        core.changes.send_replace(());
        let (fleet, node) = (core.conf.name(), &core.conf.log.node);
        if is_open_again {
            let message = format_args!("fleet \"{fleet}\": the log is followed");
            error::process(Level::Notice, message);
        }
        if is_first_rival {
            let message = format_args!(
                "fleet \"{fleet}\": another process is the node \"{node}\", too: give each a name \
                 of its own with \"node\""
            );
            error::process(Level::Warn, message);
        }
    }
}

/// Follows the log. INVARIANT 2.
async fn tend(core: &Core) {
    let mut follower = Follower::new(&core.conf.log.node, core.run, core.zones.clone());
    follower.announce(Some(core.peers.announced()));
    loop {
        let known = lock(&core.log).clone();
        let connected = match known {
            Some(log) => Ok(log),
            // Once it is there, it comes back by itself.
            None => NatsLog::connect(core.conf.log.clone()).await,
        };
        let failure = match connected {
            Ok(log) => {
                *lock(&core.log) = Some(log.clone());
                let Err(failure) = follow(&log, &mut follower, &Listener(core)).await;
                failure
            }
            Err(failure) => failure,
        };
        core.tell_trouble(&failure);
        clock::pause(TRY_EVERY).await;
    }
}

/// Counters of this node, told to the fleet: the first part each time, so that it is known how old
/// they are, and others when they have changed.
async fn tell_tallies(core: &Core) {
    let mut known: [Option<Bytes>; PARTS] = Default::default();
    loop {
        // The first one is due as soon as there is a connection.
        let is_first = known.iter().all(Option::is_none);
        clock::pause(if is_first { TRY_EVERY } else { TALLY_EVERY }).await;
        let (Some(source), Some(log)) = (&core.sources.counters, lock(&core.log).clone()) else {
            continue;
        };
        let Some(tally) = source.tally() else {
            continue;
        };
        let records = tally.records(&core.conf.log.node);
        let numbered = records.iter().enumerate().zip(&known);
        let news = numbered
            .filter(|((part, record), known)| *part == 0 || known.as_ref() != Some(*record));
        // What fails is told by the log that is not followed, and sent again.
        if log
            .put_tally(&tally.ledger, news.map(|(it, _)| it))
            .await
            .is_ok()
        {
            known = records.map(Some);
        }
    }
}

/// Answers to questions of other nodes.
async fn answer_questions(core: &Core) {
    let (Some(secret), Some(catalogue)) = (core.peers.secret(), &core.sources.catalogue) else {
        return std::future::pending().await;
    };
    let mut lists = Lists::new(Arc::clone(catalogue));
    let node = &core.conf.log.node;
    loop {
        clock::pause(TRY_EVERY).await;
        let Some(log) = lock(&core.log).clone() else {
            continue;
        };
        let Ok(mut questions) = log.questions(node).await else {
            continue;
        };
        while let Some(message) = questions.next().await {
            let Some(reply) = message.reply else { continue };
            let time_ms = u64::try_from(clock::now_ms()).unwrap_or(0);
            let asked = Question::decode(&message.payload, secret, (node, &reply), time_ms);
            let Some(question) = asked else { continue };
            let piece = lists.answer(&question, now_ms()).await;
            // Who asked asks no more without an answer.
            let _ = log.reply(reply, piece.encode(secret, &question)).await;
        }
    }
}

/// Reads the log into the ledgers of zones, where there are any; its failures are those that who
/// follows it tells of.
async fn keep_ledgers(core: &Core) {
    loop {
        while core.ledgers.is_empty() {
            core.has_ledgers.notified().await;
        }
        let log = lock(&core.log).clone();
        if let Some(log) = log {
            let _failed = ledger::read(&log, &core.ledgers).await;
            core.ledgers.forget();
        }
        clock::pause(TRY_EVERY).await;
    }
}

/// Leases limits to and from other nodes.
async fn lend_tokens(core: &Core) {
    let share = Arc::clone(lock(&core.census).share());
    let (node, connected) = (&core.conf.log.node, || lock(&core.log).clone());
    tokio::join!(
        lending::run(share.leases(), node, connected),
        slot_lending::run(share.slots(), node, connected)
    );
}

/// Takes the configuration of the fleet, where it gives any.
async fn take_configuration(core: &Core, rollout: &Rollout) {
    match core.conf.config {
        Some(_) => rollout.drive(|| lock(&core.log).clone()).await,
        None => std::future::pending().await,
    }
}
