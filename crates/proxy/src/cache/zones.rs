//! `proxy_cache_path`: the zones of a configuration, and the registry that keeps them open over
//! reloads.
//!
//! Invariants:
//! 1. A folder is open at most once in the process: a reload finds the zone that is there, and
//!    changes its parameters where it stands.
//! 2. A zone that no configuration names any more closes with its last user.
//! 3. A configuration that is not taken changes no zone.

use std::collections::{BTreeMap, HashSet};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::fill::lock::LockPolicy;
use millpond_cache::head::classify;
use millpond_cache::step::Policies;
use millpond_cache::zone::{CacheZone, ZonePath, share_memory};
use millpond_conf::value::{Args, FromArgs};
use millpond_conf::{Contexts, OffOr, Span, Statement, Template};
use millpond_fleet::Fleets;
use millpond_store::{
    Event, OpenFiles, Platform, SiteBook, StoreError, SystemClock, Zone, ZoneConf, is_disk_fault,
    make_parents, make_private_folder,
};
use millpond_system::log::error::{self, Level};

pub use millpond_store::{most_segments, store_file};

use super::open_zones::{Open, ZoneDisks};
use super::peers::LocationPeers;
use super::sweep::Sweepers;
use crate::request::Request;
use crate::site;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use millpond_exchange::counters::Number;
use millpond_exchange::failure::Failure;
use millpond_exchange::protocol::Protocol;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::scope::code;
use millpond_exchange::scope::parts::{Part, Place};
use millpond_exchange::settings::declared::Declared;
use millpond_exchange::settings::level::Closing;
use millpond_exchange::settings::location::LocationSettings;
use millpond_exchange::settings::{Conf, Location};
use millpond_exchange::stats::site::Sites;
use millpond_exchange::worker::Shared;

/// Number of times that opening a folder is tried that somebody is about to let go, and the pause
/// between two tries: together two and a half seconds, as for addresses.
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
        doc: "A zone: the folder that answers are stored in, its name and its limits. With \
              `disk=`, once or more, it stands on several disks: each gets a share of the keys and \
              of the limits in proportion to its weight, that of the path itself is 1, and one \
              that fails loses its share only (docs/disks.md). With `scrub=`, all that each disk \
              holds is compared with its checksums in the background, once in this time; what is \
              corrupt is removed, logged and counted. With `fleet=`, purges of the zone hold on \
              all nodes of that `fleet`. With `tier=`, which needs that, copies of entries are \
              kept as objects in a store that all nodes share (`s3://bucket/prefix`, `gs://…`, \
              `az://…`, `file:///folder`), and what is missing is looked for there before the \
              origin is asked: of bodies of `tier_min_size=` (64k) or more that are fresh for \
              `tier_min_ttl=` (10h) or more, after `tier_min_hits=` (2) hits. `tier_endpoint=` and \
              `tier_region=` name a store that is not the cloud's own and the region of a bucket; \
              at most `tier_queue=` (256m) wait to be written, and no request waits longer than \
              `tier_timeout=` (1s) for the tier (docs/fleet.md). `memory=` is the most memory that \
              heads and small bodies of entries in use may take, without which they are read from \
              the disk's cache for each request, taken as it is needed. Unless named it is 128 \
              MiB, but all zones that name none have at most an eighth of the machine's memory. \
              The size in keys_zone, levels, use_temp_path and the loader's and manager's \
              parameters are checked and have no effect: the index needs no size, and the store \
              has neither a file for each entry nor temporary files.\n\n\
              # Differs from nginx\n\n\
              A zone is one of all protocols: \"fastcgi_cache\" may name what \
              \"proxy_cache_path\" has declared.",
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
    if let Err(message) = builder.cx.shared.name(&zone.name, "cache") {
        return builder.error(statement.span, message);
    }
    let zones = &builder.of::<Declared>().zones;
    let mut used: HashSet<&PathBuf> = zones.iter().flat_map(ZonePath::paths).collect();
    if let Some(path) = zone.paths().find(|path| !used.insert(path)) {
        let message = format!("the cache path \"{}\" is used twice", path.display());
        return builder.error(statement.span, message);
    }
    if zones.iter().any(|other| other.name == zone.name) {
        let message = format!("duplicate zone \"{}\"", zone.name);
        return builder.error(statement.span, message);
    }
    if let Some(fleet) = zone.fleet.clone() {
        let used = builder.of::<ZonesUsed>();
        used.fleets.push((fleet, statement.span));
    }
    builder.of::<Declared>().zones.push(zone);
}

/// The zones that locations name, with the places; they may be declared behind their use.
#[derive(Default)]
pub(super) struct ZonesUsed {
    by_caches: Vec<(Protocol, String, Span)>,
    pub(super) by_purges: Vec<(Protocol, String, Span)>,
    /// Fleets that zones name.
    fleets: Vec<(String, Span)>,
    /// Zones of caches that have peers.
    by_peers: Vec<(String, Span)>,
}

/// Makes the caches of a location.
pub fn close(level: &mut Closing<'_>) {
    let settings = &*level.settings;
    let caches = Protocol::ALL.into_iter();
    let caches = caches.filter_map(|protocol| LocationCache::of(settings, protocol));
    let caches: Vec<_> = caches.collect();
    let named = caches.iter().filter_map(|used| {
        let name = String::from_utf8_lossy(used.zone.as_literal()?).into_owned();
        Some((used.protocol, name, used.span))
    });
    let has_peers = |used: &&LocationCache| settings.pass(used.protocol).peers.peers != OffOr::Off;
    let with_peers = caches.iter().filter(has_peers).filter_map(|used| {
        let name = String::from_utf8_lossy(used.zone.as_literal()?).into_owned();
        Some((name, used.span))
    });
    let known = level.builder.of::<ZonesUsed>();
    known.by_caches.extend(named);
    known.by_peers.extend(with_peers);
    level.draft.put(LocationCaches(caches));
}

/// Zones of caches with peers must have a fleet whose nodes can be asked.
fn check_peers(builder: &mut Builder, by_peers: Vec<(String, Span)>) {
    for (name, span) in by_peers {
        let declared = builder.of::<Declared>();
        let Some(zone) = declared.zones.iter().find(|zone| zone.name == name) else {
            continue;
        };
        let mut fleets = declared.fleets.iter();
        let why = match &zone.fleet {
            None => format!("\"proxy_cache_peers\" needs \"fleet=\" of zone \"{name}\""),
            Some(fleet) => match fleets.find(|it| it.name() == fleet) {
                Some(conf) if conf.peers.secret.is_none() => {
                    format!("\"proxy_cache_peers\" needs \"peer_secret\" of fleet \"{fleet}\"")
                }
                _ => continue,
            },
        };
        builder.error(span, why);
    }
}

/// Zones that are named must be declared; each place is reported once.
pub fn check_uses(builder: &mut Builder) {
    let mut reported = HashSet::new();
    let used: ZonesUsed = builder.take();
    for (name, span) in used.fleets {
        let mut known = builder.of::<Declared>().fleets.iter();
        if !known.any(|fleet| fleet.name() == name) {
            builder.error(span, format!("fleet \"{name}\" is unknown"));
        }
    }
    check_peers(builder, used.by_peers);
    for (protocol, name, span) in used.by_caches.into_iter().chain(used.by_purges) {
        let mut known = builder.of::<Declared>().zones.iter();
        if !known.any(|zone| zone.name == name) && reported.insert(span) {
            let prefix = protocol.prefix();
            let message = format!("\"{prefix}_cache\" zone \"{name}\" is unknown");
            builder.coded(span, code::UNKNOWN_ZONE, message);
        }
    }
}

/// Caching of a location; made once when its settings are merged.
#[derive(Clone, Debug)]
pub struct LocationCache {
    /// The protocol of the upstreams whose answers it keeps.
    pub protocol: Protocol,
    /// The zone's name.
    pub zone: Template,
    /// Place of the directive that named the zone.
    pub span: Span,
    /// Zone that a name without variables means, once that is known. A location is part of one
    /// configuration, whose zones stay the same.
    named: OnceLock<Named>,
    /// The policies of the walk.
    pub policies: Arc<Policies>,
    /// Nodes of the fleet that are asked in place of the origin.
    pub peers: Option<Arc<LocationPeers>>,
    /// True if requests may be more than looked up by their key and fields: without the look-up, by
    /// a peer, or by values of the configuration.
    pub has_detours: bool,
}

/// The cache of answers of a protocol's upstreams at a location; none where they are not cached.
pub fn of_location(location: &Location, protocol: Protocol) -> Option<&LocationCache> {
    let mut caches = location.parts.get::<LocationCaches>()?.0.iter();
    caches.find(|cache| cache.protocol == protocol)
}

/// The caches of a location, one for each protocol at most.
#[derive(Debug)]
pub struct LocationCaches(pub(super) Vec<LocationCache>);

impl Part for LocationCaches {
    const PLACE: Place = Place::Caches;
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
            peers: None,
            has_detours: settings.bypass.bypass.is_some()
                || settings.method.graphql
                || settings.no_vary_search.is_on
                || !settings.vary_as.fields.is_empty(),
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
                lag: settings.lag.clone(),
            }),
        })
    }

    /// Gives the cache peers.
    pub(super) fn join(&mut self, peers: LocationPeers) {
        *self = self.locked();
        self.peers = Some(Arc::new(peers));
        self.has_detours = true;
    }

    /// The same cache, whose requests wait for each other's fills.
    pub(super) fn locked(&self) -> LocationCache {
        self.with_lock(|lock| lock.enabled = true)
    }

    /// The same cache, whose requests do not.
    pub(super) fn unlocked(&self) -> LocationCache {
        self.with_lock(|lock| lock.enabled = false)
    }

    fn with_lock(&self, change: fn(&mut LockPolicy)) -> LocationCache {
        let mut cache = self.clone();
        change(&mut Arc::make_mut(&mut cache.policies).lock);
        cache
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
        let counters = &req.worker().shared.cache_zones;
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
            Some(name) => return Ok(req.conf.parts.of::<Zones>().get(name).cloned()),
            None => req.eval(&self.zone),
        };
        if name.is_empty() || name.as_ref() == b"off" {
            return Ok(None);
        }
        match req.conf.parts.of::<Zones>().get(&name) {
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
    /// The zone.
    pub fn arc(&self) -> &Arc<CacheZone> {
        match self {
            ZoneOf::Location(zone) => zone,
            ZoneOf::Request(zone) => zone,
        }
    }

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

impl Part for Zones {
    const PLACE: Place = Place::Zones;
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

/// Zones that are open in this process, and the threads that sweep them.
#[derive(Debug, Default)]
pub struct Registry {
    open: Open,
    /// Files of all zones that are open.
    open_files: Arc<OpenFiles>,
    sweepers: Sweepers,
}

impl Registry {
    /// The zones of a process.
    pub fn of(shared: &Shared) -> Arc<Self> {
        shared.guests.of()
    }

    /// Opens the zones that a configuration declares, or finds them open; the error says which and
    /// why, and then no zone has changed.
    ///
    /// What leaves them is counted in `sites`.
    pub fn open(&self, conf: &mut Conf, sites: &Arc<Sites>) -> Result<(), String> {
        share_memory(&mut conf.declared.zones, machine_memory());
        let mut zones = Vec::new();
        for declared in &conf.declared.zones {
            let zone = match self.open.at(&declared.path) {
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
        conf.parts.put(Zones { by_name });
        let stores = self.open.all().into_iter();
        sites.set_stores(
            stores
                .map(|(_, zone)| Arc::downgrade(&zone.store))
                .collect(),
        );
        self.sweepers.begin(&self.open, sites);
        Ok(())
    }

    /// Reads what a configuration says of sites, and gives those that it names their numbers in
    /// the zones of a process.
    pub fn expect(shared: &Shared, conf: &Conf) {
        shared.site_info.read(conf);
        let quotas = &conf.declared.site_quotas;
        let mut names = site::written(conf);
        names.extend(shared.site_info.names());
        names.extend(quotas.iter().map(|quota| quota.site.clone()));
        names.retain(|name| !name.is_empty());
        let zones = Registry::of(shared);
        // In this order, a number with a limit belongs to its site all the time.
        let fleets: Arc<Fleets> = shared.guests.of();
        zones
            .sweepers
            .quotas
            .put(quotas, |fleet| fleets.share(fleet));
        zones.limit_sites();
        zones.expect_sites(&names);
        shared.sites.expect(names);
    }

    /// Sites hold no more than their quotas in all zones.
    fn limit_sites(&self) {
        for (_, zone) in self.open.all() {
            for site in self.sweepers.quotas.limit(&zone.store) {
                let (site, zone) = (site.escape_ascii(), &zone.name);
                let message = format_args!(
                    "quota of site \"{site}\" has no effect in zone \"{zone}\": as many sites as \
                     are told apart have entries there"
                );
                error::process(Level::Warn, message);
            }
        }
    }

    /// Sites that are to be expected have numbers in all zones.
    fn expect_sites(&self, names: &HashSet<Bytes>) {
        for (_, zone) in self.open.all() {
            zone.store.expect_sites(names.iter().map(|name| &name[..]));
        }
    }

    /// Says how many files of segments may be open, over all zones.
    pub fn limit_open_files(&self, most: usize) {
        self.open_files.set_limit(most);
    }

    /// Sets the giver of a descriptor for a file when none is left, if it has one.
    pub fn ask_for_descriptors(&self, giver: fn() -> bool) {
        self.open_files.ask_for_more(giver);
    }

    /// The zones that are open under a name: one, and another while a configuration goes.
    pub fn named(&self, name: &str) -> Vec<Arc<CacheZone>> {
        self.alive().filter(|zone| zone.name == name).collect()
    }

    /// All zones that are open.
    pub fn all(&self) -> Vec<Arc<CacheZone>> {
        self.alive().collect()
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
        let taken = self.alive().filter_map(|zone| {
            let taken = patiently(|| zone.store.take_back());
            zone.reload_purges();
            taken.err().map(|error| not_opened(&zone.name, &error))
        });
        taken.collect()
    }

    /// Writes everything down, as far as the disks let that be done within `patience`; to be called
    /// once, when nobody uses the zones any more.
    pub fn close(&self, sites: &Arc<Sites>, patience: Duration) {
        for name in self.sweepers.close(self.open.all(), sites, patience) {
            let message = format_args!(
                "cache \"{name}\" was not closed within {} s: a disk does not answer, and what \
                 it holds is looked through at the next start",
                patience.as_secs()
            );
            error::process(Level::Alert, message);
        }
    }

    /// The disks of all zones that are open, now and later.
    pub fn disks(&self) -> ZoneDisks {
        ZoneDisks(self.open.clone())
    }

    fn alive(&self) -> impl Iterator<Item = Arc<CacheZone>> {
        self.open.all().into_iter().map(|(_, zone)| zone)
    }

    fn open_one(&self, declared: &ZonePath) -> Result<Arc<CacheZone>, String> {
        if declared.disks.is_empty() {
            let made = make_parents(&declared.path);
            unless_at_fault(made).map_err(|error| not_made(declared.path.parent(), &error))?;
        }
        let open = || {
            Zone::open_on(
                zone_conf(declared),
                Arc::new(SystemClock),
                platform(declared, &self.open_files),
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
        if self.open.is_declared_as(declared) {
            return zone;
        }
        zone.store.change(zone_conf(declared));
        let zone = if zone.name == declared.name {
            zone
        } else {
            // The store is the same; who uses the old name has fills of its own.
            Arc::new(zone.renamed(declared.name.clone()))
        };
        self.note(declared, &zone);
        zone
    }

    fn note(&self, declared: &ZonePath, zone: &Arc<CacheZone>) {
        self.open.note(declared, zone);
    }
}

/// Tries until nobody else has the folder, for a while.
fn patiently<T>(mut open: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut tries = 1;
    loop {
        match open() {
            Err(StoreError::InUse { .. }) if tries < OPEN_TRIES => {
                tries += 1;
                // The main thread runs here, which only waits for signals.
                std::thread::park_timeout(OPEN_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// The machine's file system, with a line in the error log for what happens to the zone.
fn platform(declared: &ZonePath, open_files: &Arc<OpenFiles>) -> Platform {
    let name = declared.name.clone();
    let tell = move |event: &Event| {
        let level = match event {
            Event::DiskBack { .. }
            | Event::DiskCleared { .. }
            | Event::Recovered { .. }
            | Event::Scrubbed { .. }
            | Event::Loaded { .. } => Level::Notice,
            Event::Foreign { .. } | Event::Unkeyed { .. } => Level::Warn,
            _ => Level::Error,
        };
        error::process(level, format_args!("cache \"{name}\": {event}"));
    };
    Platform {
        events: Arc::new(tell),
        sites: Arc::new(SiteBook::new(classify)),
        open_files: Arc::clone(open_files),
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

/// Settings of the store of a zone.
pub fn zone_conf(declared: &ZonePath) -> ZoneConf {
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

/// Makes the folders of zones, before the process changes to the user whose they will be.
pub fn make_folders(declared: &[ZonePath]) -> Result<(), String> {
    for zone in declared {
        let made = make_private_folder(&zone.path);
        // A zone on several disks starts without those that cannot be had.
        if zone.disks.is_empty() {
            unless_at_fault(made).map_err(|error| not_made(Some(&zone.path), &error))?;
        }
        for disk in &zone.disks {
            // Without a folder to mount on, there is no disk.
            if disk.path.parent().is_some_and(Path::is_dir) {
                let _ = make_private_folder(&disk.path);
            }
        }
    }
    Ok(())
}

/// Outcome of making a folder, less the faults of its disk: the zone starts without that.
fn unless_at_fault(made: std::io::Result<()>) -> std::io::Result<()> {
    made.or_else(|error| {
        if is_disk_fault(&error) {
            Ok(())
        } else {
            Err(error)
        }
    })
}

fn not_made(folder: Option<&Path>, error: &std::io::Error) -> String {
    let folder = folder.unwrap_or(Path::new("")).display();
    format!("mkdir() \"{folder}\" failed: {error}")
}

#[cfg(test)]
mod tests;
