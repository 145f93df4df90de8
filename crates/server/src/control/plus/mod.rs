//! NGINX Plus's API, version 9: counters that its exporters and dashboards read.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the versions |
//! | `/9/` | the names below it; the same for `/9/http/` |
//! | `/9/nginx`, `processes`, `connections`, `ssl`, `workers` | the process |
//! | `/9/slabs`, `resolvers` | nothing: an empty object |
//! | `/9/http/requests` | requests of all clients |
//! | `/9/http/server_zones`, `location_zones`, `limit_conns`, `limit_reqs`, `caches`, `upstreams`, each with `/NAME` | counters |
//! | `/9/http/upstreams/NAME/servers`, with `/ID` | servers as they are configured |
//!
//! | with `DELETE` | effect |
//! |---|---|
//! | `connections`, `workers`, `http/requests`, zones, limits, caches, `upstreams/NAME` | counted anew (`reset.rs`) |
//! | `upstreams/NAME/servers/ID`; there also `PATCH`, above it `POST` | servers are changed (`server.rs`) |
//!
//! Older versions have the same answers. `fields=a,b` keeps only these members; an empty `fields`
//! of what has names gives the names alone.
//!
//! 1. What is named in the configuration is there, counted or not; nothing else is.
//! 2. What is refused changed nothing.

mod report;
mod reset;
mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_exchange::settings::Conf;
use millpond_exchange::stats::cache_zone::ZoneStatusCount;
use millpond_exchange::stats::connections::ConnectionCount;
use millpond_exchange::stats::limit::LimitTally;
use millpond_exchange::stats::resets::Bases;
use millpond_exchange::stats::status_zone::ZoneNames;
use millpond_exchange::worker::Shared;
use millpond_proxy::cache::zones::Zones;
use millpond_proxy::handler::limit_zone::LimitZones;
use millpond_proxy::upstream::group::Group;
use millpond_proxy::upstream::groups::Groups;
use millpond_proxy::upstream::peer;
use millpond_system::clock;
use serde::Serialize;
use serde_json::{Map, Value};

#[cfg(test)]
pub(super) use self::report::described;
use self::report::{
    Cache, Connections, Failure, Fetched, HealthChecks, LimitConn, LimitReq, Nginx, Peer,
    Processes, Requests, Responses, Served, Ssl, Upstream, UpstreamQueue, Why, Worker, WorkerHttp,
    Zone,
};
#[cfg(test)]
pub(super) use self::server::MEMBERS;
pub(crate) use self::server::{BODY_MAX, Payload};
use super::api::{Answer, Ask, Body, Verb};
use super::peers::state;
use crate::control::foreign::Foreign;

/// The versions that are answered.
pub(crate) const VERSIONS: std::ops::RangeInclusive<u16> = 1..=9;
/// Address where the API is described.
const HREF: &str = "https://nginx.org/en/docs/http/ngx_http_api_module.html";
/// Names below a version, and below `http`.
const ROOT: [&str; 8] = [
    "nginx",
    "processes",
    "connections",
    "slabs",
    "http",
    "resolvers",
    "ssl",
    "workers",
];
const HTTP: [&str; 7] = [
    "requests",
    "server_zones",
    "location_zones",
    "caches",
    "limit_conns",
    "limit_reqs",
    "upstreams",
];

/// Objects from which the API answers.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The configuration.
    pub conf: Arc<Conf>,
    /// The counters.
    pub shared: Arc<Shared>,
    /// The address that the request came to.
    pub address: String,
    /// Number that the request has in answers.
    pub request_id: String,
    /// Client that asks, for the record.
    pub by: String,
}

/// Reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such path.
    Path,
    /// There is no such version.
    Version,
    /// There is no such thing of a kind.
    Name(&'static str, &'static str),
    /// The number of a server is none.
    ServerId,
    /// The group is not in shared memory.
    Static(String),
    /// The thing that is asked for cannot be, for a reason with a code.
    Invalid(String, &'static str),
    /// The body is not JSON.
    Json,
    /// The body is longer than it may be.
    TooLarge,
    /// The request changes something, and that is not allowed here.
    Disabled,
    /// The request has a method that nothing here has.
    Method,
    /// A page in a browser asks, or could.
    Foreign(Foreign),
    /// Too many others are being answered.
    Busy,
}

impl Refusal {
    fn words(self) -> (u16, String, String) {
        let (status, text, code) = match self {
            Refusal::Static(name) => {
                let text = format!("upstream \"{name}\" is static: it has no \"zone\"");
                return (400, text, "UpstreamStatic".to_string());
            }
            Refusal::Invalid(text, code) => return (400, text, code.to_string()),
            Refusal::Json => (415, "the body must be one JSON object", "JsonError"),
            Refusal::TooLarge => (413, "the body is too large", "BodyTooLarge"),
            Refusal::Path => (404, "path not found", "PathNotFound"),
            Refusal::Version => (404, "unknown version", "UnknownVersion"),
            Refusal::Name(what, code) => {
                return (404, format!("{what} not found"), format!("{code}NotFound"));
            }
            Refusal::ServerId => (400, "invalid server id", "UpstreamBadServerId"),
            Refusal::Disabled => (405, "method disabled", "MethodDisabled"),
            Refusal::Method => (405, "method not supported", "MethodNotSupported"),
            Refusal::Foreign(Foreign::Page) => {
                (403, "asked by a page of another site", "OtherSite")
            }
            Refusal::Foreign(Foreign::Unmarked) => (
                403,
                "what changes something needs \"Content-Type: application/json\" or \"Millpond-Api\"",
                "HeaderMissing",
            ),
            Refusal::Foreign(Foreign::Host) => (
                403,
                "the host is no name of the server, and not among \"hosts\"",
                "OtherHost",
            ),
            Refusal::Busy => (503, "too many requests to the API", "Busy"),
        };
        (status, text.to_string(), code.to_string())
    }

    /// Status of the refusal, and its text.
    pub(crate) fn status_and_text(self) -> (u16, String) {
        let (status, text, _) = self.words();
        (status, text)
    }

    /// The answer that says so.
    pub(crate) fn answer(self, request_id: &str) -> Answer {
        let (status, text, code) = self.words();
        let failure = Failure {
            error: Why {
                status,
                text: &text,
                code: &code,
            },
            request_id,
            href: HREF,
        };
        Answer {
            status,
            body: json(&failure),
        }
    }
}

/// Something that is found.
enum Found {
    /// Several things by their names.
    Named(Map<String, Value>),
    /// One thing.
    One(Value),
}

/// Result of a request that was obeyed.
enum Done {
    /// Nothing but telling.
    Told(Found),
    /// Counters were begun anew.
    Reset,
    /// Servers are others now, and this is what they are.
    Changed(Value),
    /// A server is there that was not.
    Added(Value),
}

/// Answers a request for what is below the version, or for the versions; `body` is what came with
/// it.
pub(crate) fn answer(view: &View, ask: &Ask, body: &Payload) -> Answer {
    let segments: Vec<&str> = ask.segments.iter().map(String::as_str).collect();
    let done = match (segments.as_slice(), ask.verb) {
        ([], Verb::Get) => Ok(Done::Told(one(&VERSIONS.collect::<Vec<u16>>()))),
        ([], _) => Err(Refusal::Method),
        ([version, rest @ ..], verb) => match version.parse() {
            Ok(version) if VERSIONS.contains(&version) => carry_out(view, (verb, rest), body),
            Ok(_) => Err(Refusal::Version),
            Err(_) => Err(Refusal::Path),
        },
    };
    let fields = ask.parameters.iter().find(|(name, _)| name == "fields");
    let fields = fields.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    let (status, body) = match done {
        Ok(Done::Told(found)) => (200, json(&reduced(found, fields.as_deref()))),
        Ok(Done::Reset) => (204, Body::Json(String::new())),
        Ok(Done::Changed(value)) => (200, json(&value)),
        Ok(Done::Added(value)) => (201, json(&value)),
        Err(refusal) => return refusal.answer(&view.request_id),
    };
    Answer { status, body }
}

fn carry_out(view: &View, (verb, path): (Verb, &[&str]), body: &Payload) -> Result<Done, Refusal> {
    match (verb, path) {
        (Verb::Get, path) => find(view, path).map(Done::Told),
        (verb, ["http", "upstreams", name, "servers", rest @ ..]) => {
            server::carry_out(view, (verb, group(view, name)?, rest), body)
        }
        (Verb::Delete, path) => reset::reset(view, path).map(|()| Done::Reset),
        // A path that is not there is told first.
        (Verb::Post | Verb::Patch, path) => find(view, path).and(Err(Refusal::Method)),
    }
}

fn json(report: &impl Serialize) -> Body {
    // Maps have texts for keys and no type refuses to be written, so there is no error.
    Body::Json(serde_json::to_string(report).unwrap_or_default())
}

fn one(report: &impl Serialize) -> Found {
    Found::One(value(report))
}

fn value(report: &impl Serialize) -> Value {
    // No error, for the reason given in `json`.
    serde_json::to_value(report).unwrap_or_default()
}

fn named<T: Serialize>(all: impl Iterator<Item = (String, T)>) -> Found {
    Found::Named(all.map(|(name, it)| (name, value(&it))).collect())
}

/// Keeps the members that are asked for.
fn reduced(found: Found, fields: Option<&str>) -> Value {
    match (found, fields) {
        (Found::Named(all), None) => Value::Object(all),
        (Found::Named(all), Some("")) => all.into_iter().map(|(name, _)| name).collect(),
        (Found::Named(mut all), Some(fields)) => {
            all.values_mut().for_each(|it| keep(it, fields));
            Value::Object(all)
        }
        (Found::One(value), None | Some("")) => value,
        (Found::One(mut value), Some(fields)) => {
            keep(&mut value, fields);
            value
        }
    }
}

fn keep(value: &mut Value, fields: &str) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| fields.split(',').any(|field| field == name));
        }
        Value::Array(items) => items
            .iter_mut()
            .filter(|item| item.is_object())
            .for_each(|item| keep(item, fields)),
        _ => {}
    }
}

fn find(view: &View, path: &[&str]) -> Result<Found, Refusal> {
    let count = || {
        let count = view.shared.connections.snapshot();
        let resets = &view.shared.resets;
        resets.with(|bases| count.since(&bases.connections))
    };
    Ok(match path {
        [] => one(&ROOT),
        ["nginx"] => one(&nginx(view)),
        ["processes"] => one(&Processes { respawned: 0 }),
        ["connections"] => one(&connections(&count())),
        ["ssl"] => one(&Ssl::default()),
        ["slabs" | "resolvers"] => Found::Named(Map::new()),
        ["slabs", _] => return Err(Refusal::Name("slab", "Slab")),
        ["resolvers", _] => return Err(Refusal::Name("resolver zone", "ResolverZone")),
        ["workers"] => one(&workers(view)),
        ["workers", id] => {
            let workers = workers(view);
            let mut workers = workers.iter();
            let worker = workers.find(|worker| worker.id.to_string() == *id);
            one(worker.ok_or(Refusal::Name("worker", "Worker"))?)
        }
        ["http", rest @ ..] => return http(view, rest),
        _ => return Err(Refusal::Path),
    })
}

fn http(view: &View, path: &[&str]) -> Result<Found, Refusal> {
    let names = view.conf.parts.of::<ZoneNames>();
    let (servers, locations) = (&names.servers, &names.locations);
    let zones = &view.shared.status_zones;
    let resets = &view.shared.resets;
    let server = |name: &[u8]| {
        let count = zones.server(name);
        let processing = count.processing();
        let since = resets.with(|bases| Bases::zone(&bases.servers, name, count));
        Zone::server(&since, processing)
    };
    let location = |name: &[u8]| {
        let count = zones.location(name);
        Zone::location(&resets.with(|bases| Bases::zone(&bases.locations, name, count)))
    };
    Ok(match path {
        [] => one(&HTTP),
        ["requests"] => {
            let count = view.shared.connections.snapshot();
            one(&requests(
                &resets.with(|bases| count.since(&bases.requests)),
            ))
        }
        ["server_zones"] => named(servers.iter().map(|name| (text(name), server(name)))),
        ["server_zones", name] => {
            let name = servers.iter().find(|known| *known == name.as_bytes());
            one(&server(
                name.ok_or(Refusal::Name("server zone", "ServerZone"))?,
            ))
        }
        ["location_zones"] => named(locations.iter().map(|name| (text(name), location(name)))),
        ["location_zones", name] => {
            let name = locations.iter().find(|known| *known == name.as_bytes());
            let unknown = Refusal::Name("location zone", "LocationZone");
            one(&location(name.ok_or(unknown)?))
        }
        ["caches"] => {
            let zones = view.conf.declared.zones.iter();
            named(zones.filter_map(|zone| Some((zone.name.clone(), cache(view, &zone.name)?))))
        }
        ["caches", name] => one(&cache(view, name).ok_or(Refusal::Name("cache", "Cache"))?),
        [kind @ ("limit_conns" | "limit_reqs")] => {
            let limits = limits(view, kind);
            named(limits.map(|(name, tally)| (name.to_string(), limit(kind, tally))))
        }
        [kind @ ("limit_conns" | "limit_reqs"), name] => {
            one(&limit(kind, tally(view, kind, name)?))
        }
        ["upstreams"] => {
            let groups = view.conf.parts.of::<Groups>().upstreams.iter();
            named(groups.map(|group| (group.name.clone(), upstream(group))))
        }
        ["upstreams", name, rest @ ..] => {
            return servers_of(group(view, name)?, rest);
        }
        _ => return Err(Refusal::Path),
    })
}

/// The zones of a kind of limits.
fn limits<'a>(view: &'a View, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a LimitTally)> {
    let (conns, reqs) = (
        &view.conf.parts.of::<LimitZones>().limit_conn,
        &view.conf.parts.of::<LimitZones>().limit_req,
    );
    let conns = conns.iter().map(|zone| (zone.name(), zone.tally()));
    let reqs = reqs.iter().map(|zone| (zone.name(), zone.tally()));
    let (conns, reqs) = match kind {
        "limit_conns" => (Some(conns), None),
        _ => (None, Some(reqs)),
    };
    conns
        .into_iter()
        .flatten()
        .chain(reqs.into_iter().flatten())
}

/// The counters of one of them.
fn tally<'a>(view: &'a View, kind: &'a str, name: &str) -> Result<&'a LimitTally, Refusal> {
    let found = limits(view, kind).find(|(known, _)| *known == name);
    let unknown = match kind {
        "limit_conns" => Refusal::Name("limit_conn", "LimitConn"),
        _ => Refusal::Name("limit_req", "LimitReq"),
    };
    Ok(found.ok_or(unknown)?.1)
}

fn limit(kind: &str, tally: &LimitTally) -> Value {
    let count = tally.since_reset();
    match kind {
        "limit_conns" => value(&LimitConn::from(count)),
        _ => value(&LimitReq::from(count)),
    }
}

fn group<'a>(view: &'a View, name: &str) -> Result<&'a Group, Refusal> {
    let mut groups = view.conf.parts.of::<Groups>().upstreams.iter();
    let group = groups.find(|group| group.name == name);
    Ok(group.ok_or(Refusal::Name("upstream", "Upstream"))?)
}

fn servers_of(group: &Group, path: &[&str]) -> Result<Found, Refusal> {
    Ok(match path {
        [] => one(&upstream(group)),
        ["servers"] => one(&server::all(group)),
        ["servers", id] => {
            let peer = group.peer(server::number(id)?);
            one(&server::one(&*peer.ok_or(server::UNKNOWN)?))
        }
        _ => return Err(Refusal::Path),
    })
}

fn nginx(view: &View) -> Nginx {
    let (generation, loaded_ms) = view.shared.loads.last();
    Nginx {
        version: env!("CARGO_PKG_VERSION"),
        build: "millpond",
        address: view.address.clone(),
        generation,
        load_timestamp: timestamp(loaded_ms),
        timestamp: timestamp(clock::now_ms()),
        pid: std::process::id(),
        ppid: std::os::unix::process::parent_id(),
    }
}

fn connections(count: &ConnectionCount) -> Connections {
    Connections {
        accepted: count.accepted,
        dropped: count.dropped(),
        active: count.active.saturating_sub(count.waiting()),
        idle: count.waiting(),
        displaced: count.displaced,
    }
}

fn requests(count: &ConnectionCount) -> Requests {
    Requests {
        total: count.requests,
        current: count.current(),
    }
}

fn workers(view: &View) -> Vec<Worker> {
    let workers = 0..view.conf.main.process.worker_count();
    let worker = |id| {
        let count = view.shared.connections.of_worker(id);
        let count = view.shared.resets.with(|bases| bases.worker(id, &count));
        Worker {
            id,
            pid: std::process::id(),
            connections: connections(&count),
            http: WorkerHttp {
                requests: requests(&count),
            },
        }
    };
    workers.map(worker).collect()
}

fn cache(view: &View, name: &str) -> Option<Cache> {
    let zone = view.conf.parts.of::<Zones>().get(name.as_bytes())?;
    let counts = view.shared.cache_zones.snapshot(name.as_bytes());
    let resets = &view.shared.resets;
    let counts = resets.with(|bases| bases.cache(name.as_bytes(), counts));
    let of = |status: &str| -> ZoneStatusCount {
        let found = counts.iter().find(|(known, _)| *known == status);
        found.map(|(_, count)| *count).unwrap_or_default()
    };
    let usage = zone.store.usage();
    Some(Cache {
        size: usage.bytes,
        max_size: usage.max_size,
        cold: zone.store.is_loading(),
        hit: Served::from(of("HIT")),
        stale: Served::from(of("STALE")),
        updating: Served::from(of("UPDATING")),
        revalidated: Served::from(of("REVALIDATED")),
        miss: Fetched::from(of("MISS")),
        expired: Fetched::from(of("EXPIRED")),
        bypass: Fetched::from(of("BYPASS")),
    })
}

fn upstream(group: &Group) -> Upstream {
    let roster = group.roster();
    let keeps = group.keep_alive.connections > 0;
    Upstream {
        peers: roster.peers().map(|it| peer(it)).collect(),
        keepalive: keeps.then(|| group.idle.load(Ordering::Relaxed)),
        zombies: 0,
        queue: group.queue.as_ref().map(|queue| UpstreamQueue {
            size: queue.waiting(),
            max_size: queue.most,
            overflows: queue.overflows(),
        }),
        zone: group.zone.clone(),
    }
}

fn peer(peer: &peer::Peer) -> Peer {
    let count = peer.tally().since_reset(clock::now_ms());
    let settings = &peer.settings;
    let time = |time: &millpond_exchange::stats::peer::TimeCount| {
        let average = u64::try_from(time.average.as_millis()).unwrap_or(u64::MAX);
        (time.count > 0).then_some(average)
    };
    Peer {
        id: peer.number,
        server: peer.name.to_string(),
        name: settings.server.to_string(),
        backup: settings.is_backup,
        weight: settings.weight,
        state: state(peer),
        active: peer.load(),
        max_conns: Some(settings.max_conns).filter(|most| *most > 0),
        requests: count.requests,
        responses: Responses::from(&count.responses),
        sent: count.sent,
        received: count.received,
        fails: count.fails,
        unavail: count.unavailable,
        health_checks: HealthChecks::default(),
        downtime: u64::try_from(count.downtime.as_millis()).unwrap_or(u64::MAX),
        downstart: count.down_since_ms.map(timestamp),
        selected: count.selected_ms.map(timestamp),
        header_time: time(&count.header_time),
        response_time: time(&count.response_time),
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// `2026-11-21T03:17:22.123Z`.
pub(crate) fn timestamp(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(timestamp(1_700_000_000_007), "2023-11-14T22:13:20.007Z");
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn only_the_fields_that_are_asked_for_stay() {
        let all = || {
            named(
                [("a", 1), ("b", 2)]
                    .map(|(name, total)| (name.to_string(), Requests { total, current: 0 }))
                    .into_iter(),
            )
        };
        for (fields, expected) in [
            (
                None,
                r#"{"a":{"current":0,"total":1},"b":{"current":0,"total":2}}"#,
            ),
            (Some("total,x"), r#"{"a":{"total":1},"b":{"total":2}}"#),
            (Some(""), r#"["a","b"]"#),
        ] {
            assert_eq!(reduced(all(), fields).to_string(), expected);
        }
        let one = one(&Requests {
            total: 1,
            current: 0,
        });
        assert_eq!(
            reduced(one, Some("current")).to_string(),
            r#"{"current":0}"#
        );
    }

    #[test]
    fn what_is_refused_is_said_in_nginxs_words() {
        let answer = Refusal::Name("server zone", "ServerZone").answer("id");
        let Body::Json(text) = answer.body else {
            panic!("an object");
        };
        let said: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer.status, 404);
        assert_eq!(said["error"]["code"], "ServerZoneNotFound");
        assert_eq!(said["error"]["status"], 404);
        assert_eq!(said["request_id"], "id");
    }
}
