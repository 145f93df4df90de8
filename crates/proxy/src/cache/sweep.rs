//! The threads that look after open zones: one for each, so that a disk that stands still holds up
//! its own zone and no other.
//!
//! ```text
//!   a zone is open ──► its thread: inactivity, space, purges; a pause; again …
//!                         └─ its last user has gone: the thread ends
//!   the process ends ──► each zone has a thread that waits for that one, and closes it
//!                         └─ after `CLOSE_PATIENCE` the process ends without those that are left
//! ```
//!
//! A zone that was not closed is found by the next start as after a crash: that takes longer, and
//! nothing is lost that was complete for longer than `flush`.
//!
//! 1. A folder has at most one thread that sweeps, and while it is open one that will sweep again.
//! 2. A zone is closed when its thread has ended, so nothing is swept that is being closed.
//!
//! The disks of one zone have threads of their own for inactivity and space (`Zone::sweep`); its
//! purges are swept one disk after the other.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use millpond_cache::zone::CacheZone;
use millpond_system::clock;

use super::open_zones::Open;
use super::purge::sweep::PurgeSweeps;
use millpond_exchange::stats::site::Sites;
use millpond_exchange::stats::site_quota::Quotas;

/// Time between two sweeps of a zone; `inactive` is exact to this.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Time that the end of the process waits for zones to be closed. Less than the minute and a half
/// after which systemd kills a service that does not stop; a disk that takes more than a gigabyte a
/// minute writes its queue and what is to be synced in that.
pub const CLOSE_PATIENCE: Duration = Duration::from_secs(60);

/// The threads that sweep, by folder.
#[derive(Clone, Debug, Default)]
pub struct Sweepers {
    threads: Arc<Mutex<HashMap<PathBuf, JoinHandle<()>>>>,
    must_stop: Arc<AtomicBool>,
    /// Quotas of sites, which change as nodes of a fleet come and go.
    pub(super) quotas: Arc<Quotas>,
}

impl Sweepers {
    /// Sees to it that each open zone is swept.
    pub(super) fn begin(&self, open: &Open, sites: &Arc<Sites>) {
        let mut threads = lock(&self.threads);
        for (path, _) in open.all() {
            // One that panicked sweeps no more.
            if threads.get(&path).is_some_and(|it| !it.is_finished()) {
                continue;
            }
            let sweeper = Sweeper {
                path: path.clone(),
                open: open.clone(),
                sites: Arc::clone(sites),
                all: self.clone(),
            };
            let started = Builder::new()
                .name("millpond-sweep".to_string())
                .spawn(move || sweeper.run());
            // Without the thread nothing but `inactive` is late: space is kept by the store itself.
            if let Ok(thread) = started {
                threads.insert(path, thread);
            }
        }
    }

    /// Closes zones, and waits for that until patience ends; the names of those that are not closed
    /// by then. To be called once, when nobody uses them any more.
    pub(super) fn close(
        &self,
        zones: Vec<(PathBuf, Arc<CacheZone>)>,
        sites: &Arc<Sites>,
        patience: Duration,
    ) -> Vec<String> {
        self.must_stop.store(true, Ordering::Release);
        let (done, closed) = mpsc::channel();
        let mut left = Vec::new();
        for (path, zone) in zones {
            left.push(zone.name.clone());
            let thread = lock(&self.threads).remove(&path);
            let (sites, done) = (Arc::clone(sites), done.clone());
            let close = move || {
                close(&zone, thread, &sites);
                // Whoever waited may have gone.
                let _ = done.send(zone.name.clone());
            };
            let named = Builder::new().name("millpond-close".to_string());
            // A zone for which no thread can be had is left as it is.
            drop(named.spawn(close));
        }
        drop(done);
        let deadline = clock::instant() + patience;
        loop {
            let wait = deadline.saturating_duration_since(clock::instant());
            let Ok(name) = closed.recv_timeout(wait) else {
                return left;
            };
            if let Some(position) = left.iter().position(|other| *other == name) {
                left.swap_remove(position);
            }
        }
    }
}

#[cfg(test)]
impl Sweepers {
    /// Number of zones that have a thread.
    pub(super) fn count(&self) -> usize {
        lock(&self.threads).len()
    }
}

/// Closes a zone. INVARIANT 2.
fn close(zone: &CacheZone, sweeper: Option<JoinHandle<()>>, sites: &Sites) {
    if let Some(sweeper) = sweeper {
        sweeper.thread().unpark();
        // One that panicked sweeps nothing any more either.
        let _ = sweeper.join();
    }
    zone.settle_orphans();
    zone.store.close();
    sites.gather(&zone.store);
}

/// State of the thread that sweeps one zone.
struct Sweeper {
    path: PathBuf,
    open: Open,
    sites: Arc<Sites>,
    all: Sweepers,
}

impl Sweeper {
    fn run(self) {
        let mut purges = PurgeSweeps::default();
        let must_stop = &self.all.must_stop;
        while !must_stop.load(Ordering::Acquire) {
            match self.open.at(&self.path) {
                Some(zone) => {
                    self.all.quotas.follow(&zone.store);
                    zone.store.sweep();
                    purges.run(&zone, must_stop);
                    self.sites.gather(&zone.store);
                    self.sites.tend(self.sites.age_s());
                }
                None if self.ends() => return,
                None => {}
            }
            std::thread::park_timeout(SWEEP_INTERVAL);
        }
    }

    /// True if nobody has the folder open any more, so that the next to open it begins anew.
    /// INVARIANT 1: nobody begins meanwhile.
    fn ends(&self) -> bool {
        let mut threads = lock(&self.all.threads);
        let is_over = self.open.at(&self.path).is_none();
        if is_over {
            threads.remove(&self.path);
        }
        is_over
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
