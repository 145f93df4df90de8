//! Servers of a group: as they are configured, and `POST`, `PATCH` and `DELETE` of them.
//!
//! | request | effect | answer |
//! |---|---|---|
//! | `POST …/servers` | another server | 201 and the server |
//! | `PATCH …/servers/ID` | the server has other settings | 200 and the server |
//! | `DELETE …/servers/ID` | it is asked no more | 200 and those that are left |
//!
//! The body of the first two is a JSON object of what `server` lines say. Only groups with a `zone`
//! can be changed, as in NGINX Plus, and only as long as the configuration lasts.
//!
//! 1. A server that a name was resolved to goes when the name says so: it is not removed, and its
//!    address and weight are not changed.
//! 2. What is refused changed nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millpond_conf::value::parse_duration;
use millpond_proxy::upstream::declare::ROUTE_MAX;
use millpond_proxy::upstream::group::{Group, Wanted};
use millpond_proxy::upstream::peer::{Availability, Peer, PeerSettings};
use millpond_system::address::Address;
use millpond_system::log::error::{self, Level};
use millpond_system::network;
use serde_json::{Map, Value};

use super::report::Server;
use super::{Done, Refusal, View, value};
use crate::control::api::Verb;

/// Bytes of a body.
pub(crate) const BODY_MAX: u64 = 64 << 10;
/// Members that a body may have.
#[cfg(test)]
pub(in crate::control) const MEMBERS: [&str; 11] = [
    "id",
    "server",
    "weight",
    "max_conns",
    "max_fails",
    "fail_timeout",
    "slow_start",
    "route",
    "backup",
    "down",
    "drain",
];
/// A server that is not there.
pub(super) const UNKNOWN: Refusal = Refusal::Name("server", "UpstreamServer");

/// Body that came with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Bytes of the body.
    Bytes(Bytes),
    /// More than is read.
    TooLarge,
}

/// The number of a server.
pub(super) fn number(id: &str) -> Result<usize, Refusal> {
    id.parse().map_err(|_| Refusal::ServerId)
}

/// A server as it is configured.
pub(super) fn one(peer: &Peer) -> Server {
    let settings = &peer.settings;
    Server {
        id: peer.number,
        server: peer.name.to_string(),
        weight: settings.weight,
        max_conns: settings.max_conns,
        max_fails: settings.max_fails,
        fail_timeout: seconds(settings.fail_timeout),
        slow_start: "0s",
        route: settings.route.to_string(),
        backup: settings.is_backup,
        down: settings.availability == Availability::Down,
        drain: settings.availability == Availability::Draining,
    }
}

/// A time in nginx's form.
fn seconds(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

/// All of a group.
pub(super) fn all(group: &Group) -> Vec<Server> {
    group.roster().peers().map(|peer| one(peer)).collect()
}

/// Adds, changes or removes.
pub(super) fn carry_out(
    view: &View,
    (verb, group, rest): (Verb, &Group, &[&str]),
    body: &Payload,
) -> Result<Done, Refusal> {
    let id = match (verb, rest) {
        (Verb::Post, []) => None,
        (Verb::Patch | Verb::Delete, [id]) => Some(number(id)?),
        (_, [] | [_]) => return Err(Refusal::Method),
        _ => return Err(Refusal::Path),
    };
    if group.zone.is_none() {
        return Err(Refusal::Static(group.name.clone()));
    }
    let note = |what: &str, server: &str| {
        let (name, by) = (&group.name, &view.by);
        let message = format_args!("server {server} of upstream \"{name}\" {what}, {by}");
        error::process(Level::Notice, message);
    };
    match (verb, id) {
        (Verb::Post, None) => {
            let added = add(group, &members(body)?)?;
            note("added", &added.name);
            Ok(Done::Added(value(&one(&added))))
        }
        (Verb::Patch, Some(id)) => {
            let members = members(body)?;
            let set = group.set(id, |peer| patched(group, peer, &members));
            let changed = set.ok_or(UNKNOWN)??;
            note("changed", &changed.name);
            Ok(Done::Changed(value(&one(&changed))))
        }
        (Verb::Delete, Some(id)) => {
            let peer = group.peer(id).ok_or(UNKNOWN)?;
            // INVARIANT 1.
            if peer.origin.is_some() {
                return Err(Refusal::Invalid(
                    "server not removable: a name was resolved to it".to_string(),
                    "UpstreamServerImmutable",
                ));
            }
            if !group.remove(id) {
                return Err(UNKNOWN);
            }
            note("removed", &peer.name);
            Ok(Done::Changed(value(&all(group))))
        }
        (_, Some(id)) => group
            .peer(id)
            .map_or(Err(UNKNOWN), |_| Err(Refusal::Method)),
        (_, None) => Err(Refusal::Method),
    }
}

/// The members of a body.
fn members(body: &Payload) -> Result<Map<String, Value>, Refusal> {
    match body {
        Payload::TooLarge => Err(Refusal::TooLarge),
        Payload::Bytes(bytes) => match serde_json::from_slice(bytes) {
            Ok(Value::Object(members)) => Ok(members),
            _ => Err(Refusal::Json),
        },
    }
}

fn add(group: &Group, members: &Map<String, Value>) -> Result<Arc<Peer>, Refusal> {
    let server = match members.get("server") {
        Some(Value::String(server)) => server,
        Some(_) => return Err(format_error("invalid \"server\" value")),
        None => return Err(format_error("missing \"server\" argument")),
    };
    let mut wanted = Wanted {
        address: address(server)?,
        settings: PeerSettings::new(server),
    };
    for (name, value) in members {
        match name.as_str() {
            "server" => {}
            "backup" => wanted.settings.is_backup = flag(name, value)?,
            _ => apply(&mut wanted.settings, name, value)?,
        }
    }
    if wanted.settings.is_backup && !group.method.allows_backup() {
        let text = "the balancing method does not support \"backup\"";
        return Err(Refusal::Invalid(text.to_string(), "UpstreamNoBackup"));
    }
    let added = group.add(wanted);
    added.map_err(|full| Refusal::Invalid(full.to_string(), "UpstreamOutOfMemory"))
}

fn patched(group: &Group, peer: &Peer, members: &Map<String, Value>) -> Result<Wanted, Refusal> {
    let mut wanted = Wanted {
        address: peer.address.clone(),
        settings: peer.settings.clone(),
    };
    for (name, value) in members {
        match (name.as_str(), value) {
            ("server", Value::String(server)) => {
                let other = address(server)?;
                if other == wanted.address {
                    continue;
                }
                wanted.address = other;
                wanted.settings.server = Arc::from(server.as_str());
            }
            ("server", _) => return Err(format_error("invalid \"server\" value")),
            ("backup", Value::Bool(is_backup)) if *is_backup == peer.settings.is_backup => {}
            ("id", Value::Number(id)) if id.as_u64() == Some(peer.number as u64) => {}
            ("backup" | "id", _) => {
                return Err(format_error(&format!("\"{name}\" cannot be changed")));
            }
            _ => apply(&mut wanted.settings, name, value)?,
        }
    }
    // INVARIANT 1.
    if peer.origin.is_some() && wanted.address != peer.address {
        let text = "a name was resolved to it: its address cannot be changed";
        return Err(Refusal::Invalid(
            text.to_string(),
            "UpstreamServerImmutable",
        ));
    }
    if peer.origin.is_some() && wanted.settings.weight != peer.settings.weight {
        let text = format!(
            "its weight is that of a name in upstream \"{}\"",
            group.name
        );
        return Err(Refusal::Invalid(text, "UpstreamServerWeightImmutable"));
    }
    Ok(wanted)
}

fn apply(settings: &mut PeerSettings, name: &str, value: &Value) -> Result<(), Refusal> {
    let bad = |code| move || Refusal::Invalid(format!("invalid \"{name}\""), code);
    match name {
        "weight" => {
            let weight = count(value).filter(|weight| *weight > 0);
            settings.weight = weight.ok_or_else(bad("UpstreamBadWeight"))?;
        }
        "max_conns" => settings.max_conns = count(value).ok_or_else(bad("UpstreamBadMaxConns"))?,
        "max_fails" => settings.max_fails = count(value).ok_or_else(bad("UpstreamBadMaxFails"))?,
        "fail_timeout" => {
            settings.fail_timeout = time(value).ok_or_else(bad("UpstreamBadFailTimeout"))?;
        }
        "slow_start" => {
            // There is none: only what says so is true.
            let none = time(value).filter(Duration::is_zero);
            none.ok_or_else(bad("UpstreamBadSlowStart"))?;
        }
        "route" => match value {
            Value::String(route) if route.len() <= ROUTE_MAX => {
                settings.route = Arc::from(route.as_str());
            }
            _ => return Err(bad("UpstreamBadRoute")()),
        },
        "down" => settings.availability = to(settings, Availability::Down, flag(name, value)?),
        "drain" => {
            settings.availability = to(settings, Availability::Draining, flag(name, value)?);
        }
        _ => return Err(format_error(&format!("unknown parameter \"{name}\""))),
    }
    Ok(())
}

/// Availability of a server that enters a state, or leaves it; a server that is down does not
/// drain.
fn to(settings: &PeerSettings, state: Availability, is_on: bool) -> Availability {
    match (settings.availability, is_on) {
        (Availability::Down, true) => Availability::Down,
        (_, true) => state,
        (now, false) if now == state => Availability::Up,
        (now, false) => now,
    }
}

fn format_error(text: &str) -> Refusal {
    Refusal::Invalid(text.to_string(), "UpstreamConfFormatError")
}

/// A number, also as a text.
fn count(value: &Value) -> Option<u32> {
    match value {
        Value::Number(number) => u32::try_from(number.as_u64()?).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A time as configurations have it; a number is seconds.
fn time(value: &Value) -> Option<Duration> {
    match value {
        Value::Number(number) => number.as_u64().map(Duration::from_secs),
        Value::String(text) => parse_duration(text),
        _ => None,
    }
}

fn flag(name: &str, value: &Value) -> Result<bool, Refusal> {
    match value {
        Value::Bool(is_on) => Ok(*is_on),
        _ => Err(format_error(&format!("invalid \"{name}\" value"))),
    }
}

/// An address with its port; names are for the configuration, which has a resolver for them.
fn address(text: &str) -> Result<Address, Refusal> {
    let bad = |why: &str| {
        let text = format!("{why} while parsing \"{text}\"");
        Refusal::Invalid(text, "UpstreamBadAddress")
    };
    if !text.starts_with("unix:") {
        let (host, _) = network::split_port(text, 80).map_err(|why| bad(&why))?;
        if network::ip_of(host).is_none() {
            return Err(bad("not an IP address and no \"unix:\" socket"));
        }
    }
    let addresses = network::resolve(text, 80).map_err(|why| bad(&why))?;
    let first = addresses.into_iter().next();
    first.ok_or_else(|| bad("no address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_proxy::upstream::balance::Method;

    fn group() -> Group {
        let peer = |at: &str| {
            let address = Address::Inet(at.parse().unwrap());
            Peer::new(address, PeerSettings::new(at), None)
        };
        let peers = vec![peer("127.0.0.1:1"), peer("127.0.0.1:2")];
        let mut group = Group::new("g".to_string(), peers, Method::RoundRobin);
        group.zone = Some("g".to_string());
        group
    }

    fn object(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    fn code(refusal: Refusal) -> String {
        refusal.words().2
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_what_is_said_of_it() {
        let group = group();
        let patch = r#"{"weight": 5, "max_conns": "3", "fail_timeout": "1500ms", "drain": true,
            "route": "a", "backup": false, "slow_start": 0, "id": 1}"#;
        let set = group.set(1, |peer| patched(&group, peer, &object(patch)));
        let peer = set.unwrap().unwrap();
        let said = serde_json::to_value(one(&peer)).unwrap();
        assert_eq!(
            (&said["weight"], &said["max_conns"]),
            (&5.into(), &3.into())
        );
        assert_eq!(
            (&said["fail_timeout"], &said["drain"]),
            (&"1500ms".into(), &true.into())
        );
        assert_eq!(group.roster().primary.total_weight, 6);
        let added = add(&group, &object(r#"{"server": "[::1]:8080", "down": true}"#)).unwrap();
        assert_eq!((added.number, &*added.name), (2, "[::1]:8080"));
        assert!(group.remove(2) && !group.remove(2));
        let again = add(&group, &object(r#"{"server": "127.0.0.1"}"#)).unwrap();
        assert_eq!((again.number, &*again.name), (3, "127.0.0.1:80"));
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_is_described_is_understood() {
        let group = group();
        for name in MEMBERS {
            let body = format!(r#"{{"{name}": {{}}}}"#);
            let refused = group.set(0, |peer| patched(&group, peer, &object(&body)));
            let (_, text, _) = refused.unwrap().unwrap_err().words();
            assert!(!text.contains("unknown"), "{name}: {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wrong_is_refused_by_its_code() {
        let group = group();
        for (body, expected) in [
            ("{}", "UpstreamConfFormatError"),
            (r#"{"server": 1}"#, "UpstreamConfFormatError"),
            (r#"{"server": "name.example:80"}"#, "UpstreamBadAddress"),
            (r#"{"server": "127.0.0.1:0"}"#, "UpstreamBadAddress"),
            (
                r#"{"server": "127.0.0.1", "weight": 0}"#,
                "UpstreamBadWeight",
            ),
            (
                r#"{"server": "127.0.0.1", "max_fails": -1}"#,
                "UpstreamBadMaxFails",
            ),
            (
                r#"{"server": "127.0.0.1", "slow_start": "9s"}"#,
                "UpstreamBadSlowStart",
            ),
            (
                r#"{"server": "127.0.0.1", "x": {}}"#,
                "UpstreamConfFormatError",
            ),
            (
                r#"{"server": "127.0.0.1", "down": "no"}"#,
                "UpstreamConfFormatError",
            ),
        ] {
            assert_eq!(
                code(add(&group, &object(body)).unwrap_err()),
                expected,
                "{body}"
            );
        }
        for body in [r#"{"backup": true}"#, r#"{"id": 7}"#] {
            let refused = group.set(0, |peer| patched(&group, peer, &object(body)));
            assert_eq!(
                code(refused.unwrap().unwrap_err()),
                "UpstreamConfFormatError"
            );
        }
        assert_eq!(group.roster().peers().count(), 2);
    }
}
