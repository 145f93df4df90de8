//! All that metrics are made of, read once for a page.
//!
//! Each counter is read for itself: numbers of one page may differ by what happened while it was
//! read. Reading takes locks of zones for a moment, so it is done beside the workers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use millpond_acme::ordered::Counts;
use millpond_cache::encoding::EncodingCounts;
use millpond_cache::rule_counts::Rule;
use millpond_cache::zone::{CacheZone, ZonePath};
use millpond_exchange::settings::Conf;
use millpond_exchange::stats::cache_zone::ZoneStatusCount;
use millpond_exchange::stats::connections::ConnectionCount;
use millpond_exchange::stats::limit::LimitCount;
use millpond_exchange::stats::peer::PeerCount;
use millpond_exchange::stats::responses::ResponseCount;
use millpond_exchange::stats::site::{EXCESS, SiteCount};
use millpond_exchange::stats::site_numbers::UNNAMED;
use millpond_exchange::stats::status_zone::{ZoneCount, ZoneNames};
use millpond_exchange::stats::times::{AnswerTimes, ExchangeTimes};
use millpond_exchange::stats::{CacheSnapshot, STATUSES};
use millpond_exchange::trace::Why;
use millpond_exchange::worker::{LastLoad, Shared};
use millpond_otlp::tally::Counts as Exported;
use millpond_otlp::{Exporters, Signal};
use millpond_proxy::cache::zones::Zones;
use millpond_proxy::handler::limit_zone::LimitZones;
use millpond_proxy::tls::acme::Orders;
use millpond_proxy::upstream::group::Group;
use millpond_proxy::upstream::groups::Groups;
use millpond_proxy::upstream::peer::{Availability, Peer};
use millpond_store::{Departed, DiskUsage, Held, SiteLimit, Usage};
use millpond_system::log::loss::Lost;
use millpond_system::{clock, log};

use super::fleet::{self, FleetFacts};
use super::process::{self, ProcessFacts};
use super::tier::{self, TierFacts};

/// All counters at about one moment.
#[derive(Debug)]
pub struct Facts {
    /// Facts that the kernel knows.
    pub(super) process: ProcessFacts,
    pub(super) load: LastLoad,
    pub(super) connections: ConnectionCount,
    /// Answers by cache status, and by status code.
    pub(super) answers: CacheSnapshot,
    pub(super) responses: ResponseCount,
    /// In the order of the statuses, and of the reasons.
    pub(super) answer_times: [AnswerTimes; STATUSES.len()],
    pub(super) exchange_times: [ExchangeTimes; Why::ALL.len()],
    pub(super) lost: Lost,
    /// Records for a collector, by signal.
    pub(super) exported: [(Signal, Exported); Signal::ALL.len()],
    pub(super) zones: Vec<ZoneFacts>,
    /// Holdings of sites in zones, and the records that left.
    pub(super) held: Vec<SiteFacts>,
    /// Quotas of sites: site, zone, and the standing.
    pub(super) quotas: Vec<(String, String, SiteLimit)>,
    /// The sites with the most requests, and what all others have together.
    pub(super) sites: Vec<(String, SiteCount)>,
    /// All sites together.
    pub(super) all_sites: SiteCount,
    pub(super) servers: Vec<(String, ZoneCount)>,
    pub(super) locations: Vec<(String, ZoneCount)>,
    /// Zones of `limit_conn` and of `limit_req`.
    pub(super) limit_conns: Vec<(String, LimitCount)>,
    pub(super) limit_reqs: Vec<(String, LimitCount)>,
    pub(super) peers: Vec<PeerFacts>,
    /// Groups whose connections carry several requests.
    pub(super) shared: Vec<SharedFacts>,
    /// Certificates that are ordered.
    pub(super) orders: Vec<OrderFacts>,
    /// Fleets that are followed.
    pub(super) fleets: Vec<FleetFacts>,
    /// Second tiers of zones.
    pub(super) tiers: Vec<TierFacts>,
}

/// A certificate that is ordered.
#[derive(Debug)]
pub(super) struct OrderFacts {
    pub(super) issuer: String,
    pub(super) label: String,
    pub(super) counts: Counts,
    /// Seconds until it ends; none if there is none.
    pub(super) left_s: Option<i64>,
}

/// A cache zone.
#[derive(Debug)]
pub(super) struct ZoneFacts {
    pub(super) declared: ZonePath,
    pub(super) usage: Usage,
    pub(super) disks: Vec<DiskUsage>,
    pub(super) fills: u64,
    pub(super) purges: u64,
    /// Number of purges that were acknowledged, by kind and mode.
    pub(super) purged: Vec<((&'static str, &'static str), u64)>,
    pub(super) statuses: Vec<(&'static str, ZoneStatusCount)>,
    pub(super) encodings: EncodingCounts,
    /// Requests that a rule beyond ordinary caching has decided.
    pub(super) rules: [(Rule, u64); Rule::ALL.len()],
}

/// A site in a zone.
#[derive(Debug, Default)]
pub(super) struct SiteFacts {
    pub(super) site: String,
    pub(super) zone: String,
    pub(super) held: Held,
    /// Number of records that left, by reason.
    pub(super) departed: BTreeMap<&'static str, u64>,
}

/// A peer of a group.
#[derive(Debug)]
pub(super) struct PeerFacts {
    pub(super) group: String,
    /// Address of the peer; of one that stands twice in a group with a number.
    pub(super) name: String,
    pub(super) state: &'static str,
    pub(super) active: u64,
    pub(super) max_conns: u64,
    pub(super) count: PeerCount,
}

/// Facts about the connections of a group that several requests share.
#[derive(Debug)]
pub(super) struct SharedFacts {
    pub(super) group: String,
    pub(super) connections: u64,
    pub(super) requests: u64,
}

/// The states of peers, in the order of NGINX Plus's numbers from 1.
pub(super) const PEER_STATES: [&str; 4] = ["up", "draining", "down", "unavail"];

impl Facts {
    /// Adds something for each site in each zone that has a line of its own.
    pub(super) fn each_held(&self, mut add: impl FnMut([&str; 2], &SiteFacts)) {
        for it in &self.held {
            add([&it.site, &it.zone], it);
        }
    }

    /// Adds something for each quota of a site in a zone.
    pub(super) fn each_quota(&self, mut add: impl FnMut([&str; 2], &SiteLimit)) {
        for (site, zone, it) in &self.quotas {
            add([site, zone], it);
        }
    }

    /// Reads all; of the sites at most so many.
    pub fn read(conf: &Conf, shared: &Shared, sites_max: usize) -> Facts {
        let (sites, all_sites) = top_sites(shared.sites.snapshot(), sites_max);
        let names = conf.parts.of::<ZoneNames>();
        let zones = &shared.status_zones;
        Facts {
            process: process::read(),
            load: shared.loads.outcome(),
            connections: shared.connections.snapshot(),
            answers: shared.cache.snapshot(),
            responses: shared.times.responses(),
            answer_times: shared.times.answers(),
            exchange_times: shared.times.exchanges(),
            lost: log::loss::lost(),
            exported: {
                let exporters = shared.guests.of::<Exporters>();
                Signal::ALL.map(|signal| (signal, exporters.counts(signal)))
            },
            zones: read_zones(conf, shared),
            held: read_held(conf, &sites),
            quotas: read_quotas(conf),
            sites,
            all_sites,
            servers: named(&names.servers, |name| zones.server(name)),
            locations: named(&names.locations, |name| zones.location(name)),
            limit_conns: {
                let limits = conf.parts.of::<LimitZones>().limit_conn.iter();
                limits
                    .map(|zone| (zone.name().to_string(), zone.tally().snapshot()))
                    .collect()
            },
            limit_reqs: {
                let limits = conf.parts.of::<LimitZones>().limit_req.iter();
                limits
                    .map(|zone| (zone.name().to_string(), zone.tally().snapshot()))
                    .collect()
            },
            peers: read_peers(conf),
            shared: read_shared(conf),
            orders: read_orders(conf),
            fleets: fleet::read(shared),
            tiers: tier::read(shared),
        }
    }
}

fn read_orders(conf: &Conf) -> Vec<OrderFacts> {
    let now_s = clock::now_ms().div_euclid(1000);
    let orders = conf.parts.of::<Orders>().iter().map(|order| {
        let ordered = &order.ordered;
        OrderFacts {
            issuer: ordered.issuer.clone(),
            label: ordered.label.clone(),
            counts: ordered.counts(),
            left_s: ordered.issued().map(|issued| issued.valid.end - now_s),
        }
    });
    orders.collect()
}

fn named(names: &[bytes::Bytes], count: impl Fn(&[u8]) -> ZoneCount) -> Vec<(String, ZoneCount)> {
    let counted = names.iter().map(|name| (text(name), count(name)));
    counted.collect()
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The sites with the most requests by name, the sum of the others under [`EXCESS`], and the sum of
/// all.
pub(super) fn top_sites(
    counted: Vec<(bytes::Bytes, SiteCount)>,
    most: usize,
) -> (Vec<(String, SiteCount)>, SiteCount) {
    let mut counted: Vec<_> = counted
        .into_iter()
        .filter(|(_, count)| *count != SiteCount::default())
        .collect();
    // The excess comes last, whatever it has; then it is by requests, and by name for those that
    // have the same.
    counted.sort_by_cached_key(|(name, count)| {
        let rank = (name == EXCESS, Reverse(count.total().requests));
        (rank, name.clone())
    });
    let (mut all, mut rest) = (SiteCount::default(), SiteCount::default());
    let mut sites: Vec<(String, SiteCount)> = Vec::new();
    let mut seen = HashSet::new();
    for (name, count) in counted {
        all.add_count(&count);
        let label = text(&name);
        // Names that only differ in bytes that are no text are one here.
        let is_own = sites.len() < most && name != EXCESS && seen.insert(label.clone());
        if is_own {
            sites.push((label, count))
        } else {
            rest.add_count(&count)
        }
    }
    if rest != SiteCount::default() {
        sites.push((text(EXCESS), rest));
    }
    (sites, all)
}

fn read_zones(conf: &Conf, shared: &Shared) -> Vec<ZoneFacts> {
    let declared = conf.declared.zones.iter();
    let zones = declared.filter_map(|declared| {
        let zone: &Arc<CacheZone> = conf.parts.of::<Zones>().get(declared.name.as_bytes())?;
        Some(ZoneFacts {
            declared: declared.clone(),
            usage: zone.store.usage(),
            disks: zone.store.disks(),
            fills: zone.fills.len() as u64,
            purges: zone.purges.rule_count() as u64,
            purged: zone.recent_purges.totals(),
            statuses: shared.cache_zones.snapshot(declared.name.as_bytes()),
            encodings: zone.encodings.counts(),
            rules: zone.rule_counts.counts(),
        })
    });
    zones.collect()
}

/// Holdings of the sites that have lines of their own; others under [`EXCESS`].
fn read_held(conf: &Conf, sites: &[(String, SiteCount)]) -> Vec<SiteFacts> {
    let shown: HashSet<&str> = sites.iter().map(|(site, _)| site.as_str()).collect();
    let mut found: BTreeMap<(String, &str), SiteFacts> = BTreeMap::new();
    for declared in &conf.declared.zones {
        let Some(zone) = conf.parts.of::<Zones>().get(declared.name.as_bytes()) else {
            continue;
        };
        let mut entry = |site: &[u8], change: &dyn Fn(&mut SiteFacts)| {
            let name = match site {
                b"" => text(UNNAMED),
                site => text(site),
            };
            let name = Some(name).filter(|name| shown.contains(name.as_str()));
            let name = name.unwrap_or_else(|| text(EXCESS));
            change(found.entry((name, &declared.name)).or_default());
        };
        for it in zone.store.sites() {
            entry(&it.site, &|facts| facts.held.add(&it.held));
        }
        for (site, departed) in zone.store.departed() {
            entry(&site, &|facts| facts.add_departed(&departed));
        }
    }
    let named = found.into_iter().map(|((site, zone), facts)| SiteFacts {
        site,
        zone: zone.to_string(),
        ..facts
    });
    named.collect()
}

/// Quotas of sites, which the configuration names.
fn read_quotas(conf: &Conf) -> Vec<(String, String, SiteLimit)> {
    let mut quotas = Vec::new();
    for declared in &conf.declared.zones {
        let zone = conf.parts.of::<Zones>().get(declared.name.as_bytes());
        let limited = zone.map(|zone| zone.store.limited_sites());
        for limit in limited.unwrap_or_default() {
            let site = match &limit.site[..] {
                b"" => text(UNNAMED),
                site => text(site),
            };
            quotas.push((site, declared.name.clone(), limit));
        }
    }
    quotas.sort_by(|one, other| (&one.1, &one.0).cmp(&(&other.1, &other.0)));
    quotas
}

impl SiteFacts {
    fn add_departed(&mut self, departed: &Departed) {
        let Departed {
            evicted,
            swept,
            removed,
            replaced,
            corrupt,
            lost,
        } = *departed;
        for (reason, count) in [
            ("evicted", evicted),
            ("inactive", swept),
            ("removed", removed),
            ("replaced", replaced),
            ("corrupt", corrupt),
            ("lost", lost),
        ] {
            if count > 0 {
                *self.departed.entry(reason).or_default() += count;
            }
        }
    }
}

fn read_peers(conf: &Conf) -> Vec<PeerFacts> {
    let now_ms = clock::now_ms();
    let declared = conf.parts.of::<Groups>();
    let groups = declared.upstreams.iter().chain(&declared.implicit);
    let mut seen = HashSet::new();
    let mut peers = Vec::new();
    for group in groups.filter(|group| group.is_counted) {
        for peer in group.roster().peers() {
            peers.push(PeerFacts {
                group: group.name.clone(),
                name: name_once(&mut seen, group, peer),
                state: state(peer),
                active: peer.load(),
                max_conns: u64::from(peer.settings.max_conns),
                count: peer.tally().snapshot(now_ms),
            });
        }
    }
    peers
}

fn read_shared(conf: &Conf) -> Vec<SharedFacts> {
    let groups = conf.parts.of::<Groups>().upstreams.iter();
    let sharing = groups.filter(|group| group.keep_alive.streams > 1);
    let facts = |group: &Arc<Group>| SharedFacts {
        group: group.name.clone(),
        connections: group.shared.lines.load(Relaxed) as u64,
        requests: group.shared.streams.load(Relaxed) as u64,
    };
    sharing.map(facts).collect()
}

/// The peer's address, with a number if it was there before.
fn name_once(seen: &mut HashSet<(String, String)>, group: &Group, peer: &Peer) -> String {
    let mut name = peer.name.to_string();
    // Each round takes another number, and there are as many as peers.
    for number in 2.. {
        if seen.insert((group.name.clone(), name.clone())) {
            break;
        }
        name = format!("{}#{number}", peer.name);
    }
    name
}

fn state(peer: &Peer) -> &'static str {
    match peer.settings.availability {
        Availability::Down => "down",
        Availability::Draining => "draining",
        Availability::Up if peer.is_failing() => "unavail",
        Availability::Up => "up",
    }
}

impl ZoneFacts {
    pub(super) fn name(&self) -> &str {
        &self.declared.name
    }
}

/// The statuses of disks.
pub(super) const DISK_STATES: [&str; 3] = ["live", "full", "failed"];

/// Calls back for each disk of each zone.
pub(super) fn disks(facts: &Facts, mut add: impl FnMut([&str; 2], &millpond_store::DiskUsage)) {
    for zone in &facts.zones {
        for disk in &zone.disks {
            add([zone.name(), &disk.path.to_string_lossy()], disk);
        }
    }
}

/// Calls back for each disk that is scrubbed.
pub(super) fn scrubs(facts: &Facts, mut add: impl FnMut([&str; 2], &millpond_store::Scrub)) {
    disks(facts, |names, disk| {
        if !disk.scrub.every.is_zero() {
            add(names, &disk.scrub);
        }
    });
}

/// That of a disk.
pub(super) fn disk_state(disk: &DiskUsage) -> &'static str {
    match disk.state {
        millpond_store::DiskState::Live => "live",
        millpond_store::DiskState::Full => "full",
        millpond_store::DiskState::Failed => "failed",
    }
}

/// Lines that logs lost since the start.
pub(super) fn lost_lines(facts: &Facts) -> [(&'static str, u64); 3] {
    let Lost {
        file,
        queue,
        syslog,
    } = facts.lost;
    [("file", file), ("queue", queue), ("syslog", syslog)]
}
