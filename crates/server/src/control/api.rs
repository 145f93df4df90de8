//! The API: which request is answered by what.
//!
//! Below `/api/millpond/1`:
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the process, its counters and its zones: [`ServerReport`] |
//! | `GET /health` | whether it is ready: [`HealthReport`](super::health::HealthReport), 200 or 503 |
//! | `GET /sites` | what each site sent and asked for: [`SitesReport`] |
//! | `GET /why?url=URL` | what becomes of a request, and why: [`WhyReport`](super::why::WhyReport) |
//! | `GET /zones` | all zones: [`ZonesReport`] |
//! | `GET /disks` | the disks of all zones: [`DisksReport`] |
//! | `GET /fills` | what is being fetched for the zones now: [`FillsReport`] |
//! | `GET /peers` | the peers of upstreams: [`PeersReport`](super::peers::PeersReport) |
//! | `GET /fleets`, `NAME/sites`, `DELETE NAME/nodes/NODE` | fleets, counters, leaving ([`fleet`]) |
//! | … `NAME/nodes/NODE/zones/NAME/entries?FILTERS` | entries of another node |
//! | `GET /purges`, `/tiers` | what was purged last: [`PurgesReport`]; second tiers of zones |
//! | `GET /events` | what happens to entries: [`EventReport`](super::events::EventReport) |
//! | `GET /warm`, `DELETE /warm?id=ID` | jobs that warm caches ([`warm`]); only `api` takes one |
//! | `GET /zones/NAME`, `…/events` | one zone: [`ZoneReport`]; what happens to entries there |
//! | `GET /zones/NAME/sites` | what each site holds there: [`HoldingsReport`] |
//! | `GET /zones/NAME/entries?FILTERS` | entries, one [`Line`] each |
//! | `GET /zones/NAME/entry?key=KEY`, `?id=ID` | all of one key: [`EntriesReport`] |
//! | `POST /zones/NAME/purge?type=TYPE&what=TEXT` | [`PurgeReport`]; in force and durable |
//! | `POST /zones/NAME/verify` | what is damaged, one [`Line`] each |
//!
//! Filters: `prefix`, `site`, `host`, `tag`; `older`, `newer`, `unused` (seconds); `larger`,
//! `smaller` (bytes of the body that are stored); `hits`, `hits_max`; `status` (`404`, `4xx`);
//! `content_type` (`image/png`, `image`); `fresh=1`, `stale=1`; `limit`; and `detail=1` for all
//! that is known, `progress=1` for lines that tell how far it is.
//!
//! A purge's types are those of the field `Purge-Type`, with `tag` (repeated) in place of `what`
//! for tags; `soft=1`, `dry_run=1`. In a zone with a fleet it is answered when the log has
//! acknowledged it, with `wait=fleet` when it is in force on all nodes, and with 503 when it is in
//! force here only. A verification removes what is corrupt with `remove=1`.
//!
//! 1. What is not understood is refused, and nothing is done then.
//! 2. Nothing grows with the zone: lists are made while they are sent.
//!
//! It knows no sockets: the same requests are answered for a zone at rest (`rest.rs`).

use std::io;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use millpond_cache::catalogue::{Filter, Freshness, Shown};
use millpond_cache::site::clean;
use millpond_cache::zone::{CacheZone, ZonePath};
use millpond_exchange::settings::Conf;
use millpond_exchange::stats::CacheSnapshot;
use millpond_exchange::stats::site::SiteCount;
use millpond_exchange::worker::Shared;
use millpond_fleet::Fleets;
use millpond_fleet::node::Reach;
use millpond_proxy::cache::purge::{self, Outcome};
use millpond_store::{Checked, Key};
use millpond_system::clock;
use millpond_system::log::error::{self, Level};

use super::events;
use super::health;
use super::holdings::{self, HoldingsReport};
use super::peers;
use super::query::{Parameters, Reader};
use super::report::{
    self, ClassesReport, DamageReport, DisksReport, EndReport, EntriesReport, FillsReport, Line,
    LiveReport, ProgressReport, PurgeReport, PurgesReport, ResetReport, ServerReport, SiteReport,
    SitesReport, ZoneDiskReport, ZoneReport, ZonesReport,
};
use super::{fleet, fleet_list, tiers, warm, why};

/// Segments that the path of every request of the API begins with.
pub const PREFIX: [&str; 3] = ["api", "millpond", "1"];
/// Records between two lines that tell how far a list is, and two looks for who wants it.
const STRIDE: u64 = 1024;
/// Fills that are told of one zone (arbitrary: more than anybody reads).
const FILLS_MAX: usize = 1000;
/// Bytes between two such lines of a verification.
const STRIDE_BYTES: u64 = 16 << 20;

/// Action that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Something is asked.
    Get,
    /// Something is told, or added.
    Post,
    /// Something is changed.
    Patch,
    /// Something is removed, or begun anew.
    Delete,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Action that is asked for.
    pub verb: Verb,
    /// The segments of its path.
    pub segments: Vec<String>,
    /// The parameters of its query.
    pub parameters: Parameters,
}

impl Ask {
    /// A request for something below [`PREFIX`].
    pub fn new(verb: Verb, segments: &[&str], parameters: Parameters) -> Ask {
        let segments = PREFIX.iter().chain(segments);
        Ask {
            verb,
            segments: segments.map(ToString::to_string).collect(),
            parameters,
        }
    }
}

/// An answer.
pub struct Answer {
    /// Status of the answer.
    pub status: u16,
    /// Body of the answer.
    pub body: Body,
}

/// Makes the lines of an answer.
pub type MakeLines = Box<dyn FnOnce(&mut dyn Lines) -> io::Result<()>>;

/// The body of an answer.
pub enum Body {
    /// One object.
    Json(String),
    /// Objects, one a line, made while they are sent.
    Lines(MakeLines),
    /// Server-sent events, line by line; only whoever reads them ends them.
    Events(MakeLines),
}

/// Receiver of the lines of an answer.
pub trait Lines {
    /// Takes a line; an error ends the answer.
    fn push(&mut self, line: &str) -> io::Result<()>;
    /// Takes a line, and sees that it arrives now.
    fn push_now(&mut self, line: &str) -> io::Result<()>;
    /// True if somebody still wants the lines.
    fn is_wanted(&mut self) -> bool;
}

/// Zones that there are to be asked about, and the process that has them.
#[derive(Debug)]
pub struct Scene {
    /// The zones.
    pub zones: Vec<SceneZone>,
    /// Standing of the process that has the zones.
    pub standing: Standing,
}

/// A zone, and what the configuration says of it.
#[derive(Clone, Debug)]
pub struct SceneZone {
    /// Zone as it is declared.
    pub declared: ZonePath,
    /// Zone as it is open now.
    pub zone: Arc<CacheZone>,
}

/// Kind of process that has the zones.
#[derive(Clone, Debug)]
pub enum Standing {
    /// A process that serves.
    Running(ServerFacts),
    /// Somebody who looks.
    AtRest,
}

/// Facts that a process knows of itself.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// Id of the process.
    pub pid: u32,
    /// Counts of what the process answered.
    pub answers: CacheSnapshot,
    /// The configuration in force.
    pub conf: Option<Arc<Conf>>,
    /// State that the workers share, with the counts of answers by site.
    pub shared: Option<Arc<Shared>>,
    /// Client that asks, for the record.
    pub by: String,
}

/// Answers a request.
pub fn answer(scene: &Scene, ask: &Ask) -> Answer {
    let segments: Vec<&str> = ask.segments.iter().map(String::as_str).collect();
    let Some(rest) = segments.strip_prefix(&PREFIX) else {
        return report::problem(404, "the API is at /api/millpond/1/");
    };
    let reader = Reader::new(&ask.parameters);
    let answered = match (rest, ask.verb) {
        ([], Verb::Get) => reader.end().map(|()| report::json(200, &server(scene))),
        (["health"], Verb::Get) => reader.end().map(|()| health(scene)),
        (["why"], Verb::Get) => why::answer(scene, reader),
        (["sites"], Verb::Get) => reader.end().map(|()| sites(scene)),
        (["sites"], Verb::Delete) => reset_sites(scene, reader),
        (["zones"], Verb::Get) => reader.end().map(|()| zones(scene)),
        (["disks"], Verb::Get) => reader.end().map(|()| disks(scene)),
        (["fills"], Verb::Get) => reader.end().map(|()| fills(scene)),
        (["peers"], Verb::Get) => reader.end().map(|()| peers::answer(scene)),
        (["tiers"], Verb::Get) => reader.end().map(|()| tiers::answer(scene)),
        (["fleets"], Verb::Get) => reader.end().map(|()| fleet::answer(scene)),
        (["fleets", name, "sites"], Verb::Get) => reader.end().map(|()| fleet::sites(scene, name)),
        (["fleets", fleet, "nodes", node], Verb::Delete) => {
            reader.end().map(|()| fleet::leave(scene, fleet, node))
        }
        (["fleets", fleet, "nodes", node, "zones", zone, "entries"], Verb::Get) => {
            let place = [*fleet, *node, *zone];
            listed_elsewhere(reader).map(|()| fleet_list::entries(scene, place, &ask.parameters))
        }
        (["purges"], Verb::Get) => reader.end().map(|()| purges(scene)),
        (["events"], Verb::Get) => events::answer(scene, None, reader),
        (["warm"], Verb::Get) => reader.end().map(|()| warm::list(scene)),
        (["warm"], Verb::Delete) => warm::stop(scene, reader),
        (
            []
            | [
                "health" | "why" | "sites" | "zones" | "disks" | "fills" | "fleets" | "peers"
                | "purges" | "events" | "tiers" | "warm",
            ]
            | ["fleets", _, "sites"]
            | ["fleets", _, "nodes", _]
            | ["fleets", _, "nodes", _, "zones", _, "entries"],
            _,
        ) => Ok(report::problem(405, "the other method is meant")),
        (["zones", name, rest @ ..], verb) => match find(scene, name) {
            Some(found) => about_zone(scene, found, (rest, verb), reader),
            None => return report::problem(404, format!("there is no zone \"{name}\"")),
        },
        _ => return report::problem(404, "there is no such thing"),
    };
    answered.unwrap_or_else(|error| report::problem(400, error))
}

fn health(scene: &Scene) -> Answer {
    let found = health::of(scene);
    report::json(found.status(), &found)
}

fn find<'a>(scene: &'a Scene, name: &str) -> Option<&'a SceneZone> {
    scene.zones.iter().find(|zone| zone.declared.name == name)
}

fn about_zone(
    scene: &Scene,
    found: &SceneZone,
    (rest, verb): (&[&str], Verb),
    reader: Reader,
) -> Result<Answer, String> {
    let zone = Arc::clone(&found.zone);
    match (rest, verb) {
        ([], Verb::Get) => reader
            .end()
            .map(|()| report::json(200, &about(scene, found))),
        (["sites"], Verb::Get) => reader.end().map(|()| held(found)),
        (["events"], Verb::Get) => events::answer(scene, Some(found), reader),
        (["entries"], Verb::Get) => list(zone, reader),
        (["entry"], Verb::Get) => show(&zone, reader),
        (["purge"], Verb::Post) => purge(found, &scene.standing, reader),
        (["verify"], Verb::Post) => verify(zone, reader),
        (["entries" | "entry" | "events" | "purge" | "sites" | "verify"] | [], _) => {
            Ok(report::problem(405, "the other method is meant"))
        }
        _ => Ok(report::problem(404, "there is no such thing")),
    }
}

fn server(scene: &Scene) -> ServerReport {
    let facts = match &scene.standing {
        Standing::Running(facts) => Some(facts),
        Standing::AtRest => None,
    };
    let times = facts.and_then(|facts| Some(&facts.shared.as_ref()?.times));
    ServerReport {
        version: env!("CARGO_PKG_VERSION").to_string(),
        pid: facts.map(|facts| facts.pid),
        zones: zone_reports(scene),
        answers: facts.map(|facts| report::answers(&facts.answers)),
        hit_ratio: facts.map(|facts| facts.answers.hit_ratio()),
        classes: times.map(|times| ClassesReport::of(times.responses().classes)),
        exchanges: times.map(|times| times.ends().into()),
    }
}

/// All zones.
pub(crate) fn zone_reports(scene: &Scene) -> Vec<ZoneReport> {
    scene.zones.iter().map(|it| about(scene, it)).collect()
}

/// Answers with the counters of each site that something was counted for.
fn sites(scene: &Scene) -> Answer {
    let Standing::Running(facts) = &scene.standing else {
        return report::problem(404, "sites are counted by a process that runs");
    };
    let Some(shared) = &facts.shared else {
        return report::problem(404, "nothing is counted yet");
    };
    for zone in &scene.zones {
        shared.sites.gather(&zone.zone.store);
    }
    let about = |name: &[u8], count: &SiteCount, held| SiteReport {
        info: shared.site_info.of(name),
        ..report::site(count, held)
    };
    let mut held = holdings::by_site(&scene.zones);
    let mut sites = Vec::new();
    for (name, count) in shared.sites.snapshot() {
        let held = held.remove(&name);
        if count != SiteCount::default() || held.is_some() {
            let held = held.unwrap_or_else(|| holdings::nothing(&name));
            sites.push(about(&name, &count, held));
        }
    }
    // Such sites hold something that was stored before anything was counted.
    let uncounted = held.into_iter();
    sites.extend(uncounted.map(|(name, held)| about(&name, &SiteCount::default(), held)));
    report::json(200, &SitesReport { sites })
}

/// Counters of sites begin anew: of one, or of all that the configuration does not say.
fn reset_sites(scene: &Scene, mut reader: Reader) -> Result<Answer, String> {
    let site = reader.text("site");
    reader.end()?;
    let Some((facts, shared)) = running(scene) else {
        return Ok(report::problem(
            404,
            "sites are counted by a process that runs",
        ));
    };
    for zone in &scene.zones {
        shared.sites.gather(&zone.zone.store);
    }
    let site = site.map(|name| clean(&name));
    let count = shared.sites.reset(site.as_deref());
    let which = match &site {
        Some(name) => format!("site \"{}\"", name.escape_ascii()),
        None => "sites that the configuration does not name".to_string(),
    };
    let message = format_args!("{count} counters of {which} reset {}", facts.by);
    error::process(Level::Notice, message);
    let report = ResetReport {
        sites: count as u64,
    };
    Ok(report::json(200, &report))
}

/// The process that has the zones, if one has.
fn running(scene: &Scene) -> Option<(&ServerFacts, &Arc<Shared>)> {
    match &scene.standing {
        Standing::Running(facts) => Some((facts, facts.shared.as_ref()?)),
        Standing::AtRest => None,
    }
}

/// Answers with the entries and bytes that each site holds in a zone.
fn held(found: &SceneZone) -> Answer {
    let sites = holdings::by_site([found]).into_values();
    let sites = HoldingsReport {
        sites: sites.collect(),
    };
    report::json(200, &sites)
}

fn zones(scene: &Scene) -> Answer {
    let zones = ZonesReport {
        zones: zone_reports(scene),
    };
    report::json(200, &zones)
}

fn disks(scene: &Scene) -> Answer {
    let disks = scene.zones.iter().flat_map(|found| {
        let disks = found.zone.store.disks().into_iter();
        disks.map(|disk| ZoneDiskReport {
            zone: found.declared.name.clone(),
            disk: report::disk(&disk),
        })
    });
    let disks = DisksReport {
        disks: disks.collect(),
    };
    report::json(200, &disks)
}

fn fills(scene: &Scene) -> Answer {
    let now_ms = clock::now_ms();
    let fills = scene.zones.iter().flat_map(|found| {
        let fills = found.zone.fills.list(FILLS_MAX).into_iter();
        fills.map(|fill| report::fill(&found.declared.name, &fill, now_ms))
    });
    let fills = FillsReport {
        fills: fills.collect(),
    };
    report::json(200, &fills)
}

fn purges(scene: &Scene) -> Answer {
    let purges = scene.zones.iter().flat_map(|found| {
        let purges = found.zone.recent_purges.list().into_iter();
        purges.map(|purge| report::recent_purge(&found.declared.name, &purge))
    });
    let mut purges: Vec<_> = purges.collect();
    purges.sort_by_key(|purge| std::cmp::Reverse((purge.at, purge.number)));
    report::json(200, &PurgesReport { purges })
}

fn about(scene: &Scene, found: &SceneZone) -> ZoneReport {
    let SceneZone { declared, zone } = found;
    let usage = zone.store.usage();
    let is_running = matches!(scene.standing, Standing::Running(_));
    let live = is_running.then_some(LiveReport {
        memory_bytes: usage.memory_bytes,
        memory_limit: declared.memory_bytes(),
        queued_bytes: usage.queued_bytes,
        evicted: usage.evicted,
        inactive_removed: usage.expired,
        corrupt: usage.corrupt,
        lost: usage.lost,
        not_stored: usage.not_stored,
        written_bytes: usage.written_bytes,
        rewritten_bytes: usage.rewritten_bytes,
        write_errors: usage.write_errors,
        lost_segments: usage.lost_segments,
    });
    ZoneReport {
        name: declared.name.clone(),
        path: declared.path.display().to_string(),
        is_running,
        records: usage.entries,
        bytes: usage.bytes,
        live_bytes: usage.live_bytes,
        max_size: declared.max_size,
        index_bytes: usage.index_bytes,
        purges: zone.purges.rule_count() as u64,
        inactive: declared.inactive.as_secs(),
        disks: zone.store.disks().iter().map(report::disk).collect(),
        live,
    }
}

/// Part of a list that is wanted.
struct Listing {
    filter: Filter,
    limit: u64,
    is_detailed: bool,
    tells_progress: bool,
}

impl Listing {
    fn read(mut reader: Reader, now: i64) -> Result<Listing, String> {
        let mut ago = |name: &'static str| -> Result<Option<i64>, String> {
            let seconds = reader.number(name)?;
            let seconds = seconds.map(|it| i64::try_from(it).unwrap_or(i64::MAX));
            Ok(seconds.map(|it| now.saturating_sub(it)))
        };
        let (stored_upto, stored_from, used_upto) = (ago("older")?, ago("newer")?, ago("unused")?);
        let listing = Listing {
            filter: Filter {
                prefix: reader.text("prefix"),
                site: reader.text("site"),
                host: reader.text("host"),
                tag: reader.text("tag"),
                stored_upto,
                stored_from,
                used_upto,
                held_min: reader.number("larger")?,
                held_max: reader.number("smaller")?,
                hits_min: reader.number("hits")?,
                hits_max: reader.number("hits_max")?,
                status: statuses(reader.text("status"))?,
                content_type: reader.text("content_type"),
                freshness: freshness(&mut reader, now)?,
            },
            limit: reader.number("limit")?.unwrap_or(u64::MAX),
            is_detailed: reader.is_on("detail"),
            tells_progress: reader.is_on("progress"),
        };
        reader.end()?;
        Ok(listing)
    }
}

/// `404`, or all of a kind: `4xx`.
fn statuses(text: Option<Bytes>) -> Result<Option<RangeInclusive<u16>>, String> {
    let Some(text) = text else { return Ok(None) };
    let range = match text.as_ref() {
        [kind @ b'1'..=b'9', b'x' | b'X', b'x' | b'X'] => {
            let first = u16::from(kind - b'0') * 100;
            Some(first..=first + 99)
        }
        [_, _, _] => std::str::from_utf8(&text)
            .ok()
            .and_then(|text| text.parse().ok())
            .map(|status: u16| status..=status),
        _ => None,
    };
    match range {
        Some(range) => Ok(Some(range)),
        None => Err("\"status\" must be a status such as 404 or 4xx".to_string()),
    }
}

fn freshness(reader: &mut Reader, now: i64) -> Result<Option<Freshness>, String> {
    match (reader.is_on("fresh"), reader.is_on("stale")) {
        (false, false) => Ok(None),
        (true, false) => Ok(Some(Freshness::FreshAt(now))),
        (false, true) => Ok(Some(Freshness::StaleAt(now))),
        (true, true) => Err("nothing is both fresh and stale".to_string()),
    }
}

fn list(zone: Arc<CacheZone>, reader: Reader) -> Result<Answer, String> {
    let now = now();
    let listing = Listing::read(reader, now)?;
    let make: MakeLines = Box::new(move |lines| {
        let mut walk = Walk::new(&zone, lines, listing.tells_progress);
        let all = zone.catalogue(&listing.filter, &mut |shown| {
            let row = match shown {
                Shown::Entry(listed) => listed,
                Shown::Corrupt(_) => return walk.count(|end| end.corrupt += 1),
                Shown::Unread(_) => return walk.count(|end| end.unread += 1),
                Shown::Other => return walk.count(|_| {}),
            };
            if walk.end.listed >= listing.limit {
                return ControlFlow::Break(());
            }
            let row = if listing.is_detailed {
                report::entry_in_full(&zone, &row, now)
            } else {
                report::entry(&zone, &row, now)
            };
            walk.push(&Line::Entry(Box::new(row)))?;
            walk.count(|end| end.listed += 1)
        });
        let is_limited = walk.end.listed >= listing.limit;
        walk.finish(all.is_continue() || is_limited)
    });
    Ok(Answer {
        status: 200,
        body: Body::Lines(make),
    })
}

/// Checks the parameters of a list that another node makes.
fn listed_elsewhere(reader: Reader) -> Result<(), String> {
    Listing::read(reader, now()).map(|_| ())
}

/// A walk through a zone whose lines are sent.
struct Walk<'a> {
    lines: &'a mut dyn Lines,
    end: EndReport,
    all: u64,
    tells_progress: bool,
    /// Bytes and records at the last line that told how far it is.
    told_bytes: u64,
    told_records: u64,
    failed: Option<io::Error>,
}

impl<'a> Walk<'a> {
    fn new(zone: &CacheZone, lines: &'a mut dyn Lines, tells_progress: bool) -> Walk<'a> {
        Walk {
            lines,
            end: EndReport::default(),
            all: zone.store.usage().entries,
            tells_progress,
            told_bytes: 0,
            told_records: 0,
            failed: None,
        }
    }

    fn push(&mut self, line: &Line) -> ControlFlow<()> {
        let pushed = self.lines.push(&report::line(line));
        self.go_on(pushed)
    }

    fn go_on(&mut self, pushed: io::Result<()>) -> ControlFlow<()> {
        match pushed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Counts a record.
    fn count(&mut self, note: impl FnOnce(&mut EndReport)) -> ControlFlow<()> {
        note(&mut self.end);
        self.end.records += 1;
        self.tell()
    }

    /// Sends how far the walk is, if it is time, and breaks when nobody wants to know.
    fn tell(&mut self) -> ControlFlow<()> {
        let more = self.end.bytes.saturating_sub(self.told_bytes);
        let since = self.end.records - self.told_records;
        if since < STRIDE && more < STRIDE_BYTES {
            return ControlFlow::Continue(());
        }
        (self.told_bytes, self.told_records) = (self.end.bytes, self.end.records);
        if !self.lines.is_wanted() {
            return self.go_on(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if !self.tells_progress {
            return ControlFlow::Continue(());
        }
        let progress = Line::Progress(ProgressReport {
            done: self.end.records,
            all: self.all.max(self.end.records),
            bytes: self.end.bytes,
        });
        let pushed = self.lines.push_now(&report::line(&progress));
        self.go_on(pushed)
    }

    fn finish(mut self, is_complete: bool) -> io::Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.end.is_complete = is_complete;
        self.lines.push(&report::line(&Line::End(self.end)))
    }
}

fn show(zone: &CacheZone, mut reader: Reader) -> Result<Answer, String> {
    let (key, id) = (reader.text("key"), reader.text("id"));
    reader.end()?;
    let found = match (key, id) {
        (Some(text), None) => zone.listed(&text),
        (None, Some(id)) => {
            let key = parse_id(&id).ok_or("an id has 32 hexadecimal digits")?;
            zone.listed_at(&key).into_iter().collect()
        }
        _ => return Err("\"key\" or \"id\" must be there".to_string()),
    };
    if found.is_empty() {
        return Ok(report::problem(404, "there is no such entry"));
    }
    let now = now();
    let entries = found
        .iter()
        .map(|listed| report::entry_in_full(zone, listed, now));
    let entries = entries.collect();
    Ok(report::json(200, &EntriesReport { entries }))
}

fn parse_id(text: &[u8]) -> Option<Key> {
    let text = std::str::from_utf8(text).ok()?;
    let is_it = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_it)?;
    Some(Key(number.to_be_bytes()))
}

fn purge(found: &SceneZone, standing: &Standing, mut reader: Reader) -> Result<Answer, String> {
    let zone = &*found.zone;
    let kind = reader.text("type");
    let what = reader.text("what");
    let tags = reader.texts("tag");
    let (is_soft, is_dry_run) = (reader.is_on("soft"), reader.is_on("dry_run"));
    let wait = reader.text("wait");
    reader.end()?;
    let kind = kind.ok_or("\"type\" must be there")?;
    let needs_what = !matches!(kind.as_ref(), b"all" | b"tag");
    if needs_what != what.is_some() {
        return Err("\"what\" must be there unless everything or tags are purged".to_string());
    }
    let on = |is_on: bool| {
        is_on
            .then(|| Bytes::from_static(b"1"))
            .into_iter()
            .collect()
    };
    let field = |name: &[u8]| -> Vec<Bytes> {
        match name {
            b"purge-type" => vec![kind.clone()],
            b"cache-tag" => tags.clone(),
            b"purge-soft" => on(is_soft),
            b"purge-dry-run" => on(is_dry_run),
            b"purge-wait" => wait.clone().into_iter().collect(),
            _ => Vec::new(),
        }
    };
    let order = purge::Order::named(what.unwrap_or_default(), &field);
    let order = order.map_err(|refused| refused.to_string())?;
    let done = purge::carry_out(zone, &order, u64::try_from(clock::now_ms()).unwrap_or(0));
    let outcome = done.as_ref().ok().copied();
    let spread = outcome.and_then(|outcome| spread(found, standing, (&order, outcome)));
    let reach = spread.as_ref();
    let done = done.map(|outcome| purge::reach::of_all(outcome, reach));
    if let Standing::Running(facts) = standing {
        let (level, message) = purge::record(zone, (&order, &done), reach);
        error::process(level, format_args!("{message}, {}", facts.by));
    }
    let (number, entries) = match done {
        Ok(Outcome::Counted(count)) => (None, Some(count)),
        Ok(Outcome::Purged { serial, was_there }) => (Some(serial), was_there.map(u64::from)),
        Err(error) => {
            let cause = std::error::Error::source(&error);
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            return Ok(report::problem(500, format!("{error}{cause}")));
        }
    };
    let status = match reach {
        Some(Reach::Local(_)) => 503,
        _ => 200,
    };
    Ok(report::json(
        status,
        &PurgeReport {
            zone: zone.name.clone(),
            kind: order.kind().to_string(),
            what: report::text(&order.what()),
            mode: order.mode_word().to_string(),
            number,
            entries,
            fleet: reach.map(|reach| reach.word().to_string()),
            error: match reach {
                Some(Reach::Local(why)) => Some(format!("purged on this node only: {why}")),
                _ => None,
            },
        },
    ))
}

/// Nodes on which a purge is in force; none if the zone has no fleet.
fn spread(
    found: &SceneZone,
    standing: &Standing,
    (order, outcome): (&purge::Order, Outcome),
) -> Option<Reach> {
    match standing {
        Standing::Running(facts) => {
            let fleets = facts.shared.as_ref()?.guests.of::<Fleets>();
            purge::reach::spread_and_wait(&fleets, &found.zone, (order, outcome))
        }
        Standing::AtRest if found.declared.fleet.is_none() => None,
        Standing::AtRest if matches!(outcome, Outcome::Counted(_)) => None,
        Standing::AtRest => Some(Reach::Local("no process serves from the zone".to_owned())),
    }
}

fn verify(zone: Arc<CacheZone>, mut reader: Reader) -> Result<Answer, String> {
    let (must_remove, tells_progress) = (reader.is_on("remove"), reader.is_on("progress"));
    reader.end()?;
    let make: MakeLines = Box::new(move |lines| {
        let mut walk = Walk::new(&zone, lines, tells_progress);
        let all = zone.store.inspect(&mut |glance| {
            let damage = |is_removed| DamageReport {
                zone: zone.name.clone(),
                id: glance.key().to_string(),
                key: zone.text_of(glance),
                is_removed,
            };
            let before = walk.end.bytes;
            let checked = glance.verify(&mut |bytes| {
                walk.end.bytes += bytes;
                walk.tell()
            });
            if checked != Checked::Sound {
                walk.end.bytes = before;
            }
            match checked {
                Checked::Sound | Checked::Gone => walk.count(|_| {}),
                Checked::Stopped => ControlFlow::Break(()),
                Checked::Corrupt => {
                    let line = Line::Corrupt(damage(must_remove));
                    if must_remove {
                        glance.remove_corrupt();
                    }
                    walk.push(&line)?;
                    walk.count(|end| end.corrupt += 1)
                }
                Checked::Unread => {
                    walk.push(&Line::Unread(damage(false)))?;
                    walk.count(|end| end.unread += 1)
                }
            }
        });
        walk.finish(all.is_continue())
    });
    Ok(Answer {
        status: 200,
        body: Body::Lines(make),
    })
}

fn now() -> i64 {
    clock::now_ms().div_euclid(1000)
}
