//! `proxy_cache_path`: the zones of a configuration, and the registry that keeps them open over
//! reloads.
//!
//! Invariants:
//! 1. A folder is open at most once in the process: a reload finds the zone that is there, and
//!    changes its parameters where it stands.
//! 2. A zone that no configuration names any more closes with its last user.
//! 3. A configuration that is not taken changes no zone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::head::classify;
use millpond_cache::step::Policies;
use millpond_cache::zone::{CacheZone, ZonePath, share_memory};
use millpond_conf::value::{Args, FromArgs};
use millpond_conf::{Contexts, OffOr, Span, Statement, Template};
use millpond_store::{Event, Platform, SiteBook, StoreError, SystemClock, Zone, ZoneConf};

use super::purge::sweep::PurgeSweeps;
use crate::failure::Failure;
use crate::log::error::{self, Level};
use crate::request::Request;
use crate::scope::Conf;
use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;
use crate::scope::location::LocationSettings;
use crate::stats::site::Sites;
use crate::stats::table::Number;
use crate::upstream::protocol::Protocol;

/// Time between two sweeps of a zone; `inactive` is exact to this.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How often opening a folder is tried that somebody is about to let go, and the pause between two
/// tries: together two and a half seconds, as for addresses.
const OPEN_TRIES: u32 = 100;
const OPEN_PAUSE: Duration = Duration::from_millis(25);

/// Rows of this file. A zone is a zone, whatever the protocol that it was declared with.
pub const ROWS: &[Row] = &[
    row("proxy_cache_path"),
    row("fastcgi_cache_path"),
    row("scgi_cache_path"),
    row("uwsgi_cache_path"),
];

const fn row(name: &'static str) -> Row {
    Row {
        name,
        contexts: Contexts::HTTP,
        syntax: ZonePath::SYNTAX,
        is_block: false,
        pass: Pass::First,
        doc: "A zone: the folder that answers are stored in, its name and its limits. With `disk=`, \
              once or more, it stands on several disks: each gets a share of the keys and of the \
              limits in proportion to its weight, that of the path itself is 1, and one that fails \
              loses its share only (docs/disks.md). With `scrub=`, all that each disk holds is \
              compared with its checksums in the background, once in this time; what is corrupt is \
              removed, logged and counted. `memory=` is the most memory that heads and small \
              bodies of entries in use may take, without which they are read from the disk's cache \
              for each request, taken as it is needed. Unless named it is 128 MiB, but all zones \
              that name none have at most an eighth of the machine's memory. The size in \
              keys_zone, levels, use_temp_path and the loader's and manager's parameters are \
              checked and have no effect: the index needs no size, and the store has neither a \
              file for each entry nor temporary files.",
        apply: cache_path,
    }
}

fn cache_path(builder: &mut Builder, statement: &Statement, _draft: &mut Draft) {
    let mut args = Args {
        name: &statement.name,
        words: &statement.args,
        body: None,
        cx: &mut builder.cx,
    };
    let zone = match ZonePath::from_args(&mut args) {
        Ok(zone) => zone,
        Err(error) => return error.report(statement, ZonePath::SYNTAX, &mut builder.cx),
    };
    let zones = &builder.declared.zones;
    let mut used: HashSet<&PathBuf> = zones.iter().flat_map(ZonePath::paths).collect();
    if let Some(path) = zone.paths().find(|path| !used.insert(path)) {
        let message = format!("the cache path \"{}\" is used twice", path.display());
        return builder.error(statement.span, message);
    }
    if zones.iter().any(|other| other.name == zone.name) {
        let message = format!("duplicate zone \"{}\"", zone.name);
        return builder.error(statement.span, message);
    }
    builder.declared.zones.push(zone);
}

/// How a location caches; made once when its settings are merged.
#[derive(Clone, Debug)]
pub struct LocationCache {
    /// The protocol of the upstreams whose answers it keeps.
    pub protocol: Protocol,
    /// The zone's name.
    pub zone: Template,
    /// Where it was named.
    pub span: Span,
    /// What a name without variables means, once that is known. A location is part of one
    /// configuration, whose zones stay the same.
    named: OnceLock<Named>,
    /// The policies of the walk.
    pub policies: Arc<Policies>,
}

impl LocationCache {
    /// The cache of a location for a protocol; `None` where it is off.
    pub fn of(settings: &LocationSettings, protocol: Protocol) -> Option<LocationCache> {
        let settings = settings.pass(protocol);
        let OffOr::On(zone) = &settings.zone.zone else {
            return None;
        };
        Some(LocationCache {
            protocol,
            zone: zone.value.clone(),
            span: zone.span,
            named: OnceLock::new(),
            policies: Arc::new(Policies {
                valid: settings.valid.clone(),
                lock: settings.lock.clone(),
                disk: settings.disk.clone(),
                hit_for_pass: settings.hit_for_pass.clone(),
                max_variants: settings.max_variants.clone(),
                stale: settings.stale.clone(),
                revalidate: settings.revalidate.clone(),
                backoff: settings.backoff.clone(),
                range: settings.range.clone(),
                admission: settings.admission.clone(),
                ignore: settings.ignore.clone(),
                targeted: settings.targeted.clone(),
            }),
        })
    }

    /// The zone for a request, which is counted there; `None` when the name's value is empty or
    /// `off`.
    pub fn zone_for(&self, req: &mut Request) -> Result<Option<ZoneOf<'_>>, Failure> {
        if let Some(named) = self.named.get() {
            req.upstream.borrow_mut().zone = Some(named.number);
            return Ok(Some(ZoneOf::Location(&named.zone)));
        }
        let Some(zone) = self.find(req)? else {
            return Ok(None);
        };
        let counters = &req.down.generation.worker.shared.cache_zones;
        let number = counters.number(zone.name.as_bytes());
        if self.zone.as_literal().is_some() {
            let zone = Arc::clone(&zone);
            // Another worker's is the same.
            let _ = self.named.set(Named { zone, number });
        }
        req.upstream.borrow_mut().zone = Some(number);
        Ok(Some(ZoneOf::Request(zone)))
    }

    fn find(&self, req: &mut Request) -> Result<Option<Arc<CacheZone>>, Failure> {
        let name: Bytes = match self.zone.as_literal() {
            Some(name) => return Ok(req.conf.zones.get(name).cloned()),
            None => req.eval(&self.zone),
        };
        if name.is_empty() || name.as_ref() == b"off" {
            return Ok(None);
        }
        match req.conf.zones.get(&name) {
            Some(zone) => Ok(Some(Arc::clone(zone))),
            None => {
                let name = String::from_utf8_lossy(&name);
                Err(Failure::Internal(format!("cache \"{name}\" not found")))
            }
        }
    }
}

/// A zone, and the number of its counters.
#[derive(Clone, Debug)]
struct Named {
    zone: Arc<CacheZone>,
    number: Number,
}

/// The zone of a request.
#[derive(Debug)]
pub enum ZoneOf<'l> {
    /// That of all requests of the location.
    Location(&'l Arc<CacheZone>),
    /// One that was found for this request.
    Request(Arc<CacheZone>),
}

impl ZoneOf<'_> {
    /// The zone, to be kept.
    pub fn into_arc(self) -> Arc<CacheZone> {
        match self {
            ZoneOf::Location(zone) => Arc::clone(zone),
            ZoneOf::Request(zone) => zone,
        }
    }
}

impl Deref for ZoneOf<'_> {
    type Target = CacheZone;

    fn deref(&self) -> &CacheZone {
        match self {
            ZoneOf::Location(zone) => zone,
            ZoneOf::Request(zone) => zone,
        }
    }
}

/// The zones of a configuration, by name.
#[derive(Debug, Default)]
pub struct Zones {
    by_name: BTreeMap<Bytes, Arc<CacheZone>>,
}

impl Zones {
    /// The zone of a name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<CacheZone>> {
        self.by_name.get(name)
    }

    /// All zones.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CacheZone>> {
        self.by_name.values()
    }
}

/// Zones that are open in this process, and the thread that sweeps them.
#[derive(Debug, Default)]
pub struct Registry {
    open: Arc<Mutex<HashMap<PathBuf, OpenZone>>>,
    sweeper: Mutex<Option<Sweeper>>,
}

#[derive(Debug)]
struct OpenZone {
    declared: ZonePath,
    zone: Weak<CacheZone>,
}

/// The thread that sweeps, until it is told to stop.
#[derive(Debug)]
struct Sweeper {
    must_stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Registry {
    /// Opens the zones that a configuration declares, or finds them open; the error says which and
    /// why, and then no zone has changed.
    ///
    /// What leaves them is counted in `sites`.
    pub fn open(&self, conf: &mut Conf, sites: &Arc<Sites>) -> Result<(), String> {
        share_memory(&mut conf.declared.zones, machine_memory());
        let mut zones = Vec::new();
        for declared in &conf.declared.zones {
            let zone = match self.find(&declared.path) {
                Some(zone) => zone,
                None => self.open_one(declared)?,
            };
            zones.push((declared, zone));
        }
        let mut by_name = BTreeMap::new();
        for (declared, zone) in zones {
            let zone = self.change(declared, zone);
            by_name.insert(Bytes::from(declared.name.clone().into_bytes()), zone);
        }
        conf.zones = Zones { by_name };
        self.sweep_in_background(sites);
        Ok(())
    }

    /// Lets all folders go, for another process to open them.
    pub fn lend(&self) {
        for zone in self.alive() {
            zone.lend();
        }
    }

    /// Opens the folders again that were lent; the errors say which cannot be had, and those zones
    /// stay without entries.
    pub fn take_back(&self) -> Vec<String> {
        let zones = self.alive();
        let taken = zones.iter().filter_map(|zone| {
            let taken = patiently(|| zone.store.take_back());
            zone.reload_purges();
            taken.err().map(|error| not_opened(&zone.name, &error))
        });
        taken.collect()
    }

    /// Writes everything down; to be called once, when nobody uses the zones any more.
    pub fn close(&self, sites: &Sites) {
        if let Some(sweeper) = lock(&self.sweeper).take() {
            sweeper.must_stop.store(true, Ordering::Release);
            sweeper.thread.thread().unpark();
            // One that panicked sweeps nothing any more either.
            let _ = sweeper.thread.join();
        }
        for zone in self.alive() {
            zone.settle_orphans();
            zone.store.close();
            sites.gather(&zone.store);
        }
    }

    fn alive(&self) -> Vec<Arc<CacheZone>> {
        let open = lock(&self.open);
        open.values()
            .filter_map(|zone| zone.zone.upgrade())
            .collect()
    }

    fn find(&self, path: &Path) -> Option<Arc<CacheZone>> {
        lock(&self.open).get(path)?.zone.upgrade()
    }

    fn open_one(&self, declared: &ZonePath) -> Result<Arc<CacheZone>, String> {
        if declared.disks.is_empty() {
            create_parent(&declared.path)?;
        }
        let open = || {
            Zone::open_on(
                zone_conf(declared),
                Arc::new(SystemClock),
                platform(declared),
            )
        };
        // The folder may be that of a zone whose last user is closing it.
        let store = patiently(open).map_err(|error| not_opened(&declared.name, &error))?;
        let zone = Arc::new(CacheZone::new(declared.name.clone(), store));
        self.note(declared, &zone);
        Ok(zone)
    }

    /// Puts the parameters of a zone into force; entries stay, running fills too.
    fn change(&self, declared: &ZonePath, zone: Arc<CacheZone>) -> Arc<CacheZone> {
        let is_same = {
            let open = lock(&self.open);
            let known = open.get(&declared.path);
            known.is_some_and(|known| known.declared == *declared)
        };
        if is_same {
            return zone;
        }
        zone.store.change(zone_conf(declared));
        let zone = match zone.name == declared.name {
            true => zone,
            // The store is the same; who uses the old name has fills of its own.
            false => Arc::new(zone.renamed(declared.name.clone())),
        };
        self.note(declared, &zone);
        zone
    }

    fn note(&self, declared: &ZonePath, zone: &Arc<CacheZone>) {
        let known = OpenZone {
            declared: declared.clone(),
            zone: Arc::downgrade(zone),
        };
        let mut open = lock(&self.open);
        open.retain(|_, zone| zone.zone.strong_count() > 0);
        open.insert(declared.path.clone(), known);
    }

    /// Starts the thread that sweeps all zones, unless it runs or there is none to sweep.
    fn sweep_in_background(&self, sites: &Arc<Sites>) {
        let mut sweeper = lock(&self.sweeper);
        if sweeper.is_some() || lock(&self.open).is_empty() {
            return;
        }
        let must_stop = Arc::new(AtomicBool::new(false));
        let (stops, open) = (Arc::clone(&must_stop), Arc::clone(&self.open));
        let sites = Arc::clone(sites);
        let mut purges = PurgeSweeps::default();
        let sweep = move || {
            while !stops.load(Ordering::Acquire) {
                let zones: Vec<_> = lock(&open).values().map(|it| it.zone.clone()).collect();
                for zone in zones.iter().filter_map(Weak::upgrade) {
                    zone.store.sweep();
                    purges.run(&zone, &stops);
                    sites.gather(&zone.store);
                }
                std::thread::park_timeout(SWEEP_INTERVAL);
            }
        };
        let started = std::thread::Builder::new()
            .name("millpond-sweep".to_string())
            .spawn(sweep);
        // Without the thread nothing but `inactive` is late: space is kept by the store itself.
        *sweeper = started.ok().map(|thread| Sweeper { must_stop, thread });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tries until nobody else has the folder, for a while.
fn patiently<T>(mut open: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut tries = 1;
    loop {
        match open() {
            Err(StoreError::InUse { .. }) if tries < OPEN_TRIES => {
                tries += 1;
                // This is the main thread, which only waits for signals.
                std::thread::park_timeout(OPEN_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// The machine's file system, with a line in the error log for what happens to the zone.
fn platform(declared: &ZonePath) -> Platform {
    let name = declared.name.clone();
    let tell = move |event: &Event| {
        let level = match event {
            Event::DiskBack { .. }
            | Event::DiskCleared { .. }
            | Event::Recovered { .. }
            | Event::Scrubbed { .. }
            | Event::Loaded { .. }
            | Event::Foreign { .. } => Level::Notice,
            _ => Level::Error,
        };
        error::process(level, format_args!("cache \"{name}\": {event}"));
    };
    Platform {
        events: Arc::new(tell),
        sites: Arc::new(SiteBook::new(classify)),
        ..Platform::default()
    }
}

fn not_opened(name: &str, error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("cache \"{name}\" cannot be opened: {error}: {source}"),
        None => format!("cache \"{name}\" cannot be opened: {error}"),
    }
}

/// Bytes of memory that the machine has.
fn machine_memory() -> Option<u64> {
    let system = rustix::system::sysinfo();
    system.totalram.checked_mul(u64::from(system.mem_unit))
}

/// How the store of a zone is set up.
pub(crate) fn zone_conf(declared: &ZonePath) -> ZoneConf {
    let mut conf = ZoneConf::new(&declared.name, &declared.path);
    conf.max_size = declared.max_size;
    conf.min_free = declared.min_free;
    conf.inactive = declared.inactive;
    conf.memory = declared.memory_bytes();
    conf.admission = declared.admission;
    conf.scrub = declared.scrub;
    conf.disks = declared.disks.clone();
    conf
}

fn create_parent(path: &Path) -> Result<(), String> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(parent)
        .map_err(|error| format!("mkdir() \"{}\" failed: {error}", parent.display()))
}
