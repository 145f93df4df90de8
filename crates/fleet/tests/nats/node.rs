//! A node: a thread that follows the log, and a zone that notes what it was told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_cache::purge::log::LogPurge;
use millpond_cache::purge::position::Position;
use millpond_cache::purge::{Mode, Target};
use millpond_fleet::entry::{Entry, Purge};
use millpond_fleet::follower::Replica;
use millpond_fleet::nats::{NatsConf, NatsLog};
use millpond_fleet::session::{Scene, follow};
use millpond_fleet::{FleetLog, Follower, LogError};
use millpond_store::{Clock, SystemClock};
use tokio::runtime::Handle;

/// Longer than an election of servers takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::park_timeout(Duration::from_micros(200));
    }
}

/// State that outlives the node.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    position: Mutex<Option<Position>>,
    /// Purges that are in force, and since when.
    taken: Mutex<HashMap<(u8, Bytes), Instant>>,
    count: AtomicU64,
    confirmed_ms: AtomicU64,
    gaps: AtomicU64,
}

fn mark(target: &Target) -> (u8, Bytes) {
    (target.kind().as_bytes()[0], target.text())
}

#[derive(Clone, Debug)]
struct Zone(Arc<Disk>);

impl Replica for Zone {
    type Error = std::convert::Infallible;

    fn name(&self) -> &[u8] {
        b"z"
    }

    fn position(&self) -> Option<Position> {
        *self.0.position.lock().unwrap()
    }

    fn take(&self, purges: &[LogPurge], position: Position) -> Result<(), Self::Error> {
        let mut taken = self.0.taken.lock().unwrap();
        let now = Instant::now();
        for purge in purges {
            taken.entry(mark(&purge.target)).or_insert(now);
        }
        self.0
            .count
            .fetch_add(purges.len() as u64, Ordering::SeqCst);
        *self.0.position.lock().unwrap() = Some(position);
        Ok(())
    }

    fn confirm(&self, at_ms: u64) {
        self.0.confirmed_ms.fetch_max(at_ms, Ordering::SeqCst);
    }
}

impl Scene<Zone> for Arc<Disk> {
    fn now_ms(&self) -> u64 {
        SystemClock.since_boot()
    }

    fn tell(&self, follower: &mut Follower<Zone>) {
        self.gaps.store(follower.counts().gaps, Ordering::SeqCst);
    }
}

pub(crate) struct Node {
    disk: Arc<Disk>,
    run: [u8; 16],
    count: AtomicU64,
    log: NatsLog,
    handle: Handle,
    /// Dropped, it ends the thread.
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Node {
    pub(crate) fn start(name: &str, conf: &NatsConf, disk: Option<Arc<Disk>>) -> Node {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let disk = disk.unwrap_or_default();
        disk.count.store(0, Ordering::SeqCst);
        disk.gaps.store(0, Ordering::SeqCst);
        disk.confirmed_ms.store(0, Ordering::SeqCst);
        let mut run = [0; 16];
        run[..8].copy_from_slice(&fastrand::u64(..).to_le_bytes());
        let log = runtime.block_on(NatsLog::connect(conf.clone())).unwrap();
        let mut follower = Follower::new(name, run, vec![Zone(Arc::clone(&disk))]);
        let (own, scene) = (log.clone(), Arc::clone(&disk));
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let following = async {
                    let mut tries = tokio::time::interval(Duration::from_millis(200));
                    loop {
                        tries.tick().await;
                        let Err(LogError { .. }) = follow(&own, &mut follower, &scene).await;
                    }
                };
                tokio::select! {
                    () = following => {}
                    _ = ended => {}
                }
            });
            runtime.shutdown_background();
        });
        Node {
            disk,
            run,
            count: AtomicU64::new(0),
            log,
            handle,
            _end: end,
        }
    }

    pub(crate) fn disk(&self) -> Arc<Disk> {
        Arc::clone(&self.disk)
    }

    fn entry(&self, target: Target, mode: Mode) -> Entry {
        Entry::Purge(Purge {
            run: self.run,
            count: self.count.fetch_add(1, Ordering::SeqCst),
            zone: Bytes::from_static(b"z"),
            mode,
            target,
        })
    }

    /// Purges as a node does: in force here, then in the log.
    pub(crate) fn purge(&self, target: Target, mode: Mode) -> Result<u64, LogError> {
        let now = Instant::now();
        self.disk.taken.lock().unwrap().insert(mark(&target), now);
        let entry = self.entry(target, mode);
        self.handle.block_on(self.log.append(&entry))
    }

    /// Puts many purges into the log, some at a time.
    pub(crate) fn purge_many(&self, targets: Vec<Target>) {
        for some in targets.chunks(500) {
            let appends = some.iter().map(|target| {
                let (log, entry) = (self.log.clone(), self.entry(target.clone(), Mode::Hard));
                self.handle.spawn(async move { log.append(&entry).await })
            });
            let begun: Vec<_> = appends.collect();
            for append in begun {
                self.handle.block_on(append).unwrap().unwrap();
            }
        }
    }

    pub(crate) fn has_taken(&self, target: &Target) -> bool {
        self.taken_at(target).is_some()
    }

    /// The moment since which a purge is in force.
    pub(crate) fn taken_at(&self, target: &Target) -> Option<Instant> {
        self.disk.taken.lock().unwrap().get(&mark(target)).copied()
    }

    pub(crate) fn taken_count(&self) -> usize {
        self.disk.count.load(Ordering::SeqCst) as usize
    }

    pub(crate) fn gaps(&self) -> u64 {
        self.disk.gaps.load(Ordering::SeqCst)
    }

    pub(crate) fn confirmed_ms(&self) -> u64 {
        self.disk.confirmed_ms.load(Ordering::SeqCst)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        SystemClock.since_boot()
    }
}
