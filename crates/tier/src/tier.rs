//! The tier of one zone: its thread, and what its readers and writers share.
//!
//! 1. Whoever stops a tier does not wait for it; what was not written is lost.
//! 2. A tier that cannot be opened, for want of credentials or of a folder, is told of once and not
//!    asked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use millpond_cache::copies::{Keeper, Worth};
use millpond_cache::tier_path::TierPath;
use millpond_cache::zone::CacheZone;
use millpond_fleet::Fleets;
use millpond_system::log::error;
use tokio::sync::{Semaphore, oneshot};

use crate::counts::Counts;
use crate::objects::Objects;
use crate::place::Places;
use crate::read::Reader;
use crate::shared::{Core, MEMORY, Queue, Told};

/// Threads for files: of the zone, and of a store of files (arbitrary).
const BLOCKING_MAX: usize = 4;

/// The second tier of a zone.
pub struct Tier {
    core: Arc<Core>,
    reader: Reader,
    keeper: Arc<dyn Keeper>,
    /// Dropped, it ends the thread.
    _end: oneshot::Sender<()>,
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier")
            .field("zone", &self.core.zone.name)
            .finish_non_exhaustive()
    }
}

impl Tier {
    /// Starts the tier of a zone; the error says why it has none.
    pub(crate) fn start(
        path: &TierPath,
        zone: &Arc<CacheZone>,
        fleets: &Arc<Fleets>,
    ) -> Result<Tier, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_MAX)
            .build()
            .map_err(|error| error::os_error(&error).to_string())?;
        let objects = Objects::open(path)?;
        let (queue, lanes) = Queue::new();
        let core = Arc::new(Core {
            places: Places::new(&path.prefix, &zone.name),
            objects,
            counts: Counts::default(),
            reading: Told::new(&zone.name, ["it is not asked", "it is asked"]),
            writing: Told::new(&zone.name, ["nothing is written", "it is written"]),
            memory: Arc::new(Semaphore::new(MEMORY)),
            queue,
            queued: AtomicU64::new(0),
            path: path.clone(),
            zone: Arc::clone(zone),
            fleets: Arc::clone(fleets),
        });
        let handle = runtime.handle().clone();
        for lane in lanes {
            handle.spawn(Core::write_all(Arc::downgrade(&core), lane));
        }
        let (end, over) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name(format!("tier {}", zone.name))
            .spawn(move || {
                // The other side is dropped when the tier has ended.
                let _ = runtime.block_on(over);
                runtime.shutdown_background();
            })
            .map_err(|error| error::os_error(&error).to_string())?;
        let worth = Worth {
            hits: path.min_hits,
            size: path.min_size,
            lifetime: path.min_ttl,
        };
        let keeper: Arc<dyn Keeper> = Arc::<Core>::clone(&core);
        zone.copies.begin(Arc::clone(&keeper), worth);
        let reader = Reader {
            core: Arc::clone(&core),
            runtime: handle,
        };
        Ok(Tier {
            core,
            reader,
            keeper,
            _end: end,
        })
    }

    /// The reader of its copies.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The place, as it is configured.
    pub fn path(&self) -> &TierPath {
        &self.core.path
    }

    /// The zone.
    pub fn zone(&self) -> &Arc<CacheZone> {
        &self.core.zone
    }

    /// Counts of what happened.
    pub fn counts(&self) -> &Counts {
        &self.core.counts
    }

    /// Bytes of bodies that wait to be written.
    pub fn queued(&self) -> u64 {
        self.core.queued.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Number of things that wait to be written or removed.
    pub fn waiting(&self) -> u64 {
        let count = &self.core.queue.count;
        count.load(std::sync::atomic::Ordering::Relaxed) as u64
    }

    /// True while the store is not asked, or not written to, because it has failed.
    pub fn is_left_alone(&self) -> bool {
        self.core.reading.is_open() || self.core.writing.is_open()
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.core.zone.copies.end(&self.keeper);
    }
}
