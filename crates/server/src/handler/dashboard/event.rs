//! One event: all that the page shows, as one line of JSON.
//!
//! Counters are since the start of the process (those of sites: of their file), and the page makes
//! rates of the difference of two events. Rows that there may be many of are arrays, in the order
//! that the fields of their types have here. Members may be absent, and the page leaves that part
//! out then.
//!
//! Invariants:
//! 1. An event is bounded: every list in it is.
//! 2. What is made here waits for no disk.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use millpond_exchange::settings::Conf;
use millpond_exchange::stats::limit::{LimitTally, Outcome};
use millpond_exchange::stats::site::SiteCount;
use millpond_exchange::stats::site_info::Words;
use millpond_exchange::stats::status_zone::{ZoneCount, ZoneNames};
use millpond_exchange::stats::times::{BOUNDS_US, Histogram};
use millpond_exchange::stats::{self, STATUSES};
use millpond_exchange::worker::Shared;
use millpond_fleet::Fleets;
use millpond_proxy::cache::zones::Zones;
use millpond_proxy::handler::limit_zone::LimitZones;
use millpond_proxy::upstream::group::Group;
use millpond_proxy::upstream::groups::Groups;
use millpond_proxy::upstream::peer::{Availability, Peer};
use millpond_store::Held;
use millpond_system::clock;
use millpond_tier::Tiers;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::feed::Feed;
use crate::control;
use crate::control::api::{self, Scene};
use crate::control::fleet::{FleetConfigNodeReport, FleetReport};
use crate::control::report::ZoneReport;
use crate::control::tiers::{self, TierReport};

/// Sites in an event: those with the most requests (arbitrary: what a browser draws in passing).
const SITES_MAX: usize = 1000;
/// Status zones in an event.
const STATUS_ZONES_MAX: usize = 500;
/// Zones of limits in an event.
const LIMITS_MAX: usize = 500;
/// Columns of what is said of sites, and which come first.
const COLUMNS_MAX: usize = 4;
const FIRST_COLUMNS: [&str; 2] = ["owner", "plan"];
/// Most letters of one value of the description of a site.
const WORD_MAX: usize = 60;
/// Nodes of a fleet in an event.
const NODES_MAX: usize = 500;
/// Peers in an event.
const PEERS_MAX: usize = 500;
/// Missing URLs in an event.
const MISSING_MAX: usize = 25;

/// Fills in an event; which of more is arbitrary.
const FILLS_MAX: usize = 100;
/// Purges in an event.
const PURGES_MAX: usize = 20;
/// Bytes of a key or a pattern that are shown.
const SHOWN_MAX: usize = 300;

/// The name that entries without a site are counted for.
const NAMELESS: &[u8] = b"-";

/// All that the page shows.
#[derive(Serialize)]
struct Event {
    #[serde(flatten)]
    totals: Totals,
    /// The time when the process began, milliseconds since 1970.
    started: i64,
    version: &'static str,
    pid: u32,
    viewers: usize,
    statuses: [&'static str; STATUSES.len()],
    zones: Vec<ZoneReport>,
    /// Fleets that the process is part of.
    fleets: Vec<FleetReport>,
    /// Second tiers of zones.
    tiers: Vec<TierReport>,
    sites: Vec<SiteRow>,
    sites_left_out: usize,
    /// The titles of the columns of the descriptions of sites.
    descriptions: Vec<String>,
    /// Status zones of servers, then of locations.
    status_zones: Vec<StatusZoneRow>,
    limits: Vec<LimitRow>,
    upstreams: Vec<Upstream>,
    fills: Vec<FillRow>,
    missing: Missing,
    purges: Vec<PurgeRow>,
    lost_lines: u64,
}

/// The numbers that charts are drawn of.
#[derive(Debug, Default, Serialize)]
pub(super) struct Totals {
    /// The time of the numbers, milliseconds since 1970.
    pub(super) time: i64,
    /// Answers with each cache status.
    answers: Vec<Pair>,
    /// Answers with each class of status, 1xx first.
    classes: Vec<u64>,
    /// Exchanges with origins that are over: answered below 500, from 500 on, without an answer.
    ends: [u64; 3],
    connections: Connections,
    /// The requests to origins for all sites together.
    origin: Origin,
    times: Times,
    /// Bytes of all zones.
    stored: u64,
}

#[cfg(test)]
impl Totals {
    /// Totals of nothing, at this time.
    pub(super) fn at(time: i64) -> Totals {
        Totals {
            time,
            ..Totals::default()
        }
    }
}

/// Answers, and bytes of their bodies.
#[derive(Debug, Serialize)]
struct Pair(u64, u64);

#[derive(Debug, Default, Serialize)]
struct Connections {
    accepted: u64,
    active: u64,
    /// Requests that are being read or answered.
    current: u64,
}

#[derive(Debug, Default, Serialize)]
struct Origin {
    requests: u64,
    received: u64,
    sent: u64,
}

impl Origin {
    fn add(&mut self, count: &SiteCount) {
        self.requests += count.exchanges;
        self.received += count.received;
        self.sent += count.asked;
    }
}

/// Histograms of times to the first byte: how many fell below each bound, and above all.
#[derive(Debug, Default, Serialize)]
struct Times {
    bounds_us: &'static [u64],
    /// Times of all answers.
    first_byte: Vec<u64>,
    /// Times of the answers that came from the cache.
    cached: Vec<u64>,
    /// Times of the answers of origins.
    origin: Vec<u64>,
}

/// A site.
struct SiteRow {
    name: Bytes,
    requests: u64,
    bytes: u64,
    /// Answers that a cache looked at.
    asked: u64,
    /// The requests that were answered from the cache.
    hits: u64,
    /// Bytes of bodies that were in the cache when they were asked for.
    cached: u64,
    exchanges: u64,
    received: u64,
    held: Held,
    /// The description of the site, by the columns of the event.
    description: Vec<String>,
}

impl Serialize for SiteRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = (
            String::from_utf8_lossy(&self.name),
            self.requests,
            self.bytes,
            self.asked,
            self.hits,
            self.cached,
            self.exchanges,
            self.received,
            self.held.entries,
            self.held.disk_bytes,
            &self.description,
        );
        row.serialize(serializer)
    }
}

/// A status zone.
#[derive(Serialize)]
struct StatusZoneRow {
    name: String,
    /// `server` or `location`.
    kind: &'static str,
    requests: u64,
    /// Requests that are being answered; none for a location.
    processing: Option<u64>,
    /// Answers by class of status, 1xx first.
    classes: Vec<u64>,
    discarded: u64,
    received: u64,
    sent: u64,
}

/// A zone of limits.
#[derive(Serialize)]
struct LimitRow {
    name: String,
    /// `limit_req` or `limit_conn`.
    kind: &'static str,
    /// Requests by what became of them: passed, delayed, rejected, and the last two of dry runs.
    counts: [u64; Outcome::ALL.len()],
}

/// A group of peers.
#[derive(Serialize)]
struct Upstream {
    name: String,
    peers: Vec<PeerRow>,
}

#[derive(Serialize)]
struct PeerRow {
    name: String,
    /// `up`, `unavailable` (it failed), `draining` or `down` (it is said to be).
    state: &'static str,
    is_backup: bool,
    weight: u32,
    /// Connections on which the peer is asked now.
    active: u64,
    requests: u64,
    /// Answers by class of status, 1xx first.
    classes: Vec<u64>,
    fails: u64,
    received: u64,
    /// Moving averages of the last times to heads and to ends, microseconds.
    header_us: u64,
    response_us: u64,
}

#[derive(Serialize)]
struct Missing {
    /// Misses of late.
    all: u64,
    /// URLs, and misses of each that were certainly seen.
    urls: Vec<(String, u64)>,
}

/// A fill that runs.
#[derive(Serialize)]
struct FillRow {
    zone: String,
    key: String,
    bytes: u64,
    length: Option<u64>,
    clients: u32,
    seconds: u64,
}

/// A purge.
#[derive(Serialize)]
struct PurgeRow {
    zone: String,
    /// The time of the purge, milliseconds since 1970.
    time: u64,
    kind: &'static str,
    mode: &'static str,
    what: String,
    number: u64,
}

/// Makes an event, with what stands around it in the stream.
pub(super) fn make(conf: &Arc<Conf>, shared: &Arc<Shared>) -> Bytes {
    Bytes::from(framed("data: ", &event(conf, shared)))
}

/// A value as one line of the stream, and the empty line behind it.
pub(super) fn framed(before: &str, value: &impl Serialize) -> Vec<u8> {
    let mut text = before.as_bytes().to_vec();
    // Maps have texts for keys and no type refuses to be written, so there is no error.
    let _ = serde_json::to_writer(&mut text, value);
    text.extend_from_slice(b"\n\n");
    text
}

/// The numbers that charts are drawn of, now.
pub(super) fn totals(conf: &Conf, shared: &Shared) -> Totals {
    let declared = conf.declared.zones.iter();
    let zones = declared.filter_map(|it| conf.parts.of::<Zones>().get(it.name.as_bytes()));
    let stored = zones.map(|zone| zone.store.usage().bytes).sum();
    let mut origin = Origin::default();
    for (_, count) in shared.sites.snapshot() {
        origin.add(&count);
    }
    totals_with(shared, origin, stored)
}

fn totals_with(shared: &Shared, origin: Origin, stored: u64) -> Totals {
    let connections = shared.connections.snapshot();
    let answers = shared.cache.snapshot();
    let answers = answers.by_status();
    let ends = shared.times.ends();
    Totals {
        time: clock::now_ms(),
        answers: answers
            .map(|(_, count)| Pair(count.requests, count.bytes))
            .collect(),
        classes: shared.times.responses().classes.to_vec(),
        ends: [ends.answered, ends.refused, ends.failed],
        connections: Connections {
            accepted: connections.accepted,
            active: connections.active,
            current: connections.current(),
        },
        origin,
        times: times(shared),
        stored,
    }
}

fn event(conf: &Arc<Conf>, shared: &Arc<Shared>) -> Event {
    let scene = crate::control::scene(Some(conf), Some(shared), "");
    let (mut sites, origin, sites_left_out) = sites(shared, held(&scene));
    let descriptions = describe(&mut sites, shared);
    let zones = api::zone_reports(&scene);
    let stored = zones.iter().map(|zone| zone.bytes).sum();
    let missing = shared.missing.top(MISSING_MAX);
    let lost = stats::lost_lines();
    let feed = shared.guests.of::<Feed>();
    Event {
        totals: totals_with(shared, origin, stored),
        started: feed.started_ms(),
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        viewers: feed.viewers(),
        statuses: STATUSES,
        zones,
        sites,
        sites_left_out,
        descriptions,
        status_zones: status_zones(conf, shared),
        limits: limits(conf),
        fleets: fleets(shared),
        tiers: tiers::all(&shared.guests.of::<Tiers>()),
        upstreams: upstreams(conf),
        fills: fills(&scene),
        purges: purges(&scene),
        missing: Missing {
            all: missing.all,
            urls: missing
                .urls
                .into_iter()
                .map(|it| (String::from_utf8_lossy(&it.url).into_owned(), it.at_least))
                .collect(),
        },
        lost_lines: lost.file + lost.queue + lost.syslog,
    }
}

/// Writes what is said of the sites to their rows; gives the names of the columns.
fn describe(sites: &mut [SiteRow], shared: &Shared) -> Vec<String> {
    let said: Vec<Option<Words>> = sites
        .iter()
        .map(|site| shared.site_info.of(&site.name))
        .collect();
    let names = said.iter().flatten().flat_map(Words::keys);
    let names: BTreeSet<&String> = names.collect();
    let mut columns: Vec<String> = names.into_iter().cloned().collect();
    // The others are in the order of their names.
    columns.sort_by_key(|name| FIRST_COLUMNS.iter().position(|it| it == name).unwrap_or(9));
    columns.truncate(COLUMNS_MAX);
    if columns.is_empty() {
        return columns;
    }
    for (site, said) in sites.iter_mut().zip(&said) {
        let of = |column: &String| match said.as_ref().and_then(|said| said.get(column)) {
            None => String::new(),
            Some(Value::String(text)) => text.chars().take(WORD_MAX).collect(),
            Some(other) => other.to_string().chars().take(WORD_MAX).collect(),
        };
        site.description = columns.iter().map(of).collect();
    }
    columns
}

fn status_zones(conf: &Conf, shared: &Shared) -> Vec<StatusZoneRow> {
    let (names, zones) = (conf.parts.of::<ZoneNames>(), &shared.status_zones);
    let row = |name: &Bytes, kind, count: ZoneCount| StatusZoneRow {
        name: shown(name),
        kind,
        requests: count.requests,
        processing: (kind == "server").then(|| count.processing()),
        classes: count.responses.classes.to_vec(),
        discarded: count.discarded,
        received: count.received,
        sent: count.sent,
    };
    let servers = names.servers.iter();
    let servers = servers.map(|name| row(name, "server", zones.server(name)));
    let locations = names.locations.iter();
    let locations = locations.map(|name| row(name, "location", zones.location(name)));
    servers.chain(locations).take(STATUS_ZONES_MAX).collect()
}

fn fleets(shared: &Shared) -> Vec<FleetReport> {
    let mut fleets = control::fleet::all(&shared.guests.of::<Fleets>());
    for fleet in &mut fleets {
        fleet.nodes.truncate(NODES_MAX);
        if let Some(config) = &mut fleet.config {
            // Those that somebody should look at, if they are too many.
            let is_well = |node: &FleetConfigNodeReport| node.state == "settled";
            config.nodes.sort_by_key(is_well);
            config.nodes.truncate(NODES_MAX);
        }
    }
    fleets
}

fn limits(conf: &Conf) -> Vec<LimitRow> {
    let row = |name: &str, kind, tally: &LimitTally| {
        let count = tally.snapshot();
        LimitRow {
            name: shown(name.as_bytes()),
            kind,
            counts: Outcome::ALL.map(|outcome| count.of(outcome)),
        }
    };
    let requests = conf.parts.of::<LimitZones>().limit_req.iter();
    let requests = requests.map(|zone| row(zone.name(), "limit_req", zone.tally()));
    let connections = conf.parts.of::<LimitZones>().limit_conn.iter();
    let connections = connections.map(|zone| row(zone.name(), "limit_conn", zone.tally()));
    requests.chain(connections).take(LIMITS_MAX).collect()
}

fn times(shared: &Shared) -> Times {
    let (mut all, mut cached, mut origin) = (
        Histogram::default(),
        Histogram::default(),
        Histogram::default(),
    );
    for (status, times) in STATUSES.into_iter().zip(shared.times.answers()) {
        all.add(&times.first_byte);
        if stats::FROM_CACHE.contains(&status) {
            cached.add(&times.first_byte);
        }
    }
    for times in shared.times.exchanges() {
        origin.add(&times.header);
    }
    Times {
        bounds_us: &BOUNDS_US,
        first_byte: all.buckets.to_vec(),
        cached: cached.buckets.to_vec(),
        origin: origin.buckets.to_vec(),
    }
}

/// The contents of all zones, summed by site.
fn held(scene: &Scene) -> HashMap<Bytes, Held> {
    let mut sums = HashMap::<Bytes, Held>::new();
    for held in scene.zones.iter().flat_map(|it| it.zone.store.sites()) {
        let name = if held.site.is_empty() {
            Bytes::from_static(NAMELESS)
        } else {
            held.site
        };
        sums.entry(name).or_default().add(&held.held);
    }
    sums
}

/// The sites with the most requests, what the origins of all were asked, and how many are left out.
fn sites(shared: &Shared, mut held: HashMap<Bytes, Held>) -> (Vec<SiteRow>, Origin, usize) {
    let mut origin = Origin::default();
    let mut rows = Vec::new();
    for (name, count) in shared.sites.snapshot() {
        origin.add(&count);
        let held = held.remove(&name).unwrap_or_default();
        if count != SiteCount::default() || held != Held::default() {
            rows.push(site(name, &count, held));
        }
    }
    // Their entries were there already, and nobody has asked for them.
    let others = held.into_iter();
    rows.extend(others.map(|(name, held)| site(name, &SiteCount::default(), held)));
    rows.sort_by(|a, b| b.requests.cmp(&a.requests).then(a.name.cmp(&b.name)));
    let left_out = rows.len().saturating_sub(SITES_MAX);
    rows.truncate(SITES_MAX);
    (rows, origin, left_out)
}

fn site(name: Bytes, count: &SiteCount, held: Held) -> SiteRow {
    let total = count.total();
    SiteRow {
        name,
        requests: total.requests,
        bytes: total.bytes,
        asked: count.asked_of_cache(),
        hits: count.from_cache(),
        cached: count.shares.cache,
        exchanges: count.exchanges,
        received: count.received,
        held,
        description: Vec::new(),
    }
}

/// Fills that run, the oldest first.
fn fills(scene: &Scene) -> Vec<FillRow> {
    let mut rows = Vec::new();
    for found in &scene.zones {
        let fills = found.zone.fills.list(FILLS_MAX - rows.len().min(FILLS_MAX));
        rows.extend(fills.into_iter().map(|fill| FillRow {
            zone: found.zone.name.clone(),
            key: shown(&fill.text),
            bytes: fill.received,
            length: fill.length,
            clients: fill.followers.saturating_add(1),
            seconds: fill.age.as_secs(),
        }));
    }
    rows.sort_by(|a, b| b.seconds.cmp(&a.seconds).then_with(|| a.key.cmp(&b.key)));
    rows
}

/// The last purges, the newest first.
fn purges(scene: &Scene) -> Vec<PurgeRow> {
    let mut rows = Vec::new();
    for found in &scene.zones {
        let purges = found.zone.recent_purges.list();
        rows.extend(purges.into_iter().map(|purge| PurgeRow {
            zone: found.zone.name.clone(),
            time: purge.at_ms,
            kind: purge.kind,
            mode: purge.mode.word(),
            what: shown(&purge.what),
            number: purge.serial,
        }));
    }
    rows.sort_by(|a, b| b.time.cmp(&a.time).then(b.number.cmp(&a.number)));
    rows.truncate(PURGES_MAX);
    rows
}

/// A text of which the begin is shown.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text.get(..SHOWN_MAX).unwrap_or(text)).into_owned()
}

/// Groups of the configuration, and others that were asked something.
fn upstreams(conf: &Conf) -> Vec<Upstream> {
    let now_ms = clock::now_ms();
    let declared = conf.parts.of::<Groups>().upstreams.iter();
    let groups = declared.chain(&conf.parts.of::<Groups>().implicit);
    let mut seen = HashSet::new();
    let mut left = PEERS_MAX;
    let mut upstreams = Vec::new();
    for group in groups.filter(|group| group.is_counted && seen.insert(&group.name)) {
        let upstream = upstream(group, left, now_ms);
        left -= upstream.peers.len().min(left);
        upstreams.push(upstream);
        if left == 0 {
            break;
        }
    }
    upstreams
}

fn upstream(group: &Group, most: usize, now_ms: i64) -> Upstream {
    let roster = group.roster();
    Upstream {
        name: group.name.clone(),
        peers: roster
            .peers()
            .take(most)
            .map(|it| peer(it, now_ms))
            .collect(),
    }
}

fn peer(peer: &Peer, now_ms: i64) -> PeerRow {
    let count = peer.tally().snapshot(now_ms);
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    PeerRow {
        name: peer.name.to_string(),
        state: match peer.settings.availability {
            Availability::Down => "down",
            Availability::Draining => "draining",
            Availability::Up if count.down_since_ms.is_some() => "unavailable",
            Availability::Up => "up",
        },
        is_backup: peer.settings.is_backup,
        weight: peer.settings.weight,
        active: peer.load(),
        requests: count.requests,
        classes: count.responses.classes.to_vec(),
        fails: count.fails,
        received: count.received,
        header_us: micros(count.header_time.average),
        response_us: micros(count.response_time.average),
    }
}
