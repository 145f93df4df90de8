//! `limit_conn_zone`, `limit_conn`, `limit_conn_status`, `limit_conn_log_level`,
//! `limit_conn_dry_run`: how many requests at a time.
//!
//! A connection counts while a request of it is being answered.
//!
//! Invariants:
//! 1. Whatever ends a request gives back what it holds: [`Held`] is a guard.
//! 2. A request that one limit refuses holds nothing of the others.
//!
//! Connections of zones with `fleet=name:lease` are in `limit_conn_lease`.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{Contexts, Spanned, Statement, Template};
use millpond_fleet::slot_lending::SlotLeases;
use millpond_system::log::error::Level;

use super::limit_conn_lease::{Entry, Slot};
use super::limit_zone::{KeyTable, LimitLevel, LimitStatus, Sharing, Split, read_zone};
use crate::handler::limit_zone::LimitZones;
use crate::handler::settings::HandlerSettings;
use crate::log::request_error;
use crate::phase::Flow;
use crate::request::Request;
use crate::var::WordVariable;
use millpond_exchange::failure::Failure;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;
use millpond_exchange::stats::limit::{LimitTally, Outcome};

/// The longest key that is counted (nginx's bound).
const MAX_KEY: usize = 255;

/// The row of the zones.
pub const ROWS: &[Row] = &[Row {
    name: "limit_conn_zone",
    contexts: Contexts::HTTP.union(Contexts::STREAM),
    syntax: "key zone=name:size [fleet=name:split | fleet=name:lease]",
    is_block: false,
    pass: Pass::First,
    doc: "Names a table of numbers of connections by key. With `fleet=name:split` (not in \
          `stream`) the numbers of `limit_conn` are those of all nodes of a `fleet` together: each \
          has an equal share of them, but at least one connection. Nodes come, go and are \
          cut off as `limit_req_zone` says. With `fleet=name:lease` (not in `stream`) they have as \
          many as they need: the owner of each key hands out what is free. A request that finds no \
          connection free on its node waits for the owner's answer, at most for 0.25 s. Where the \
          owner does not answer, the node has its equal share; what is too much then goes as \
          requests end. All `limit_conn` of such a zone must have one number. The parameter is \
          Millpond's own.",
    apply: limit_conn_zone,
}];

/// The variable.
pub const WORDS: &[WordVariable] = &[WordVariable {
    name: "limit_conn_status",
    doc: "What `limit_conn` did: PASSED, REJECTED or REJECTED_DRY_RUN.",
    word: |req| req.limits.conn_status,
}];

/// The limits of requests at a time.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, stream, stream_server)]
pub struct LimitConnPolicy {
    /// The largest number of connections that are served at a time for a key of the zone.
    #[directive(name = "limit_conn", repeat)]
    pub limits: Vec<Spanned<LimitConn>>,
    /// The status of a refused request.
    #[directive(
        name = "limit_conn_status",
        default = "503",
        contexts(http, server, location)
    )]
    pub status: LimitStatus,
    /// The level at which refusals are logged.
    #[directive(name = "limit_conn_log_level", default = "error")]
    pub log_level: LimitLevel,
    /// Counts connections only, and refuses none.
    #[directive(name = "limit_conn_dry_run", default = "off")]
    pub dry_run: bool,
}

/// One `limit_conn`.
#[derive(Clone, Debug)]
pub struct LimitConn {
    /// Name of the zone.
    pub zone: String,
    /// The largest number.
    pub(super) count: u16,
}

/// A zone.
#[derive(Debug)]
pub struct ConnectionZone {
    name: String,
    key: Template,
    split: Option<Split>,
    /// Shared with the zone of the configuration before, if a reload kept it.
    pub(super) counts: Arc<Mutex<KeyTable<Entry>>>,
    tally: Arc<LimitTally>,
}

/// One connection in a zone; given back when dropped.
#[derive(Debug)]
pub struct Held {
    pub(super) zone: Arc<ConnectionZone>,
    pub(super) key: Bytes,
}

impl FromArgs for LimitConn {
    const SYNTAX: &'static str = "zone number";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let [zone, number] = args.words else {
            return Err(ArgError::Count);
        };
        let named = args.cx.shared.name(&zone.text, "limit_conn");
        named.map_err(|message| ArgError::value(0, message))?;
        let text = number.text.as_str();
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(count @ 1..=65_535) if is_digits => Ok(LimitConn {
                zone: zone.text.clone(),
                // In range by the pattern.
                count: count as u16,
            }),
            Ok(65_536..) if is_digits => {
                Err(ArgError::value(1, "connection limit must be less 65536"))
            }
            _ => Err(ArgError::value(
                1,
                format!("invalid number of connections \"{text}\""),
            )),
        }
    }
}

fn limit_conn_zone(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 2..=3) {
        return;
    }
    let Some(zone) = read_zone(builder, statement, "limit_conn") else {
        return;
    };
    if let Some(word) = zone.others.first() {
        builder.error(word.span, format!("invalid parameter \"{}\"", word.text));
        return;
    }
    if zone.split.is_some() && draft.context == Contexts::STREAM {
        let message = "\"fleet\" parameter is not supported in \"stream\"";
        builder.error(statement.span, message.to_owned());
        return;
    }
    let zones = &mut builder.of::<LimitZones>().limit_conn;
    if zones.iter().any(|other| other.name == zone.name) {
        let message = format!(
            "limit_conn_zone \"{}\" is already bound to a key",
            zone.name
        );
        builder.error(statement.span, message);
        return;
    }
    zones.push(Arc::new(ConnectionZone {
        name: zone.name,
        key: zone.key,
        split: zone.split,
        counts: Arc::new(Mutex::new(KeyTable::new(zone.size))),
        tally: Arc::default(),
    }));
}

/// The reason why a connection is not let in.
pub(super) enum Refusal {
    /// The key has as many connections as may be.
    TooMany,
    /// The zone has no room for the key.
    NoRoom,
}

impl ConnectionZone {
    /// Name of the zone.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fleet whose nodes share the numbers.
    pub(super) fn split(&self) -> Option<&Split> {
        self.split.as_ref()
    }

    /// True if the owner of a key hands out its connections.
    pub(super) fn is_leased(&self) -> bool {
        self.split.as_ref().map(Split::how) == Some(Sharing::Lease)
    }

    /// Counts of what the limits of the zone did to requests.
    pub fn tally(&self) -> &LimitTally {
        &self.tally
    }

    /// Goes on with the table of a zone of the same name, if the size is the same.
    pub fn inherit(&mut self, old: &ConnectionZone) -> Result<(), String> {
        self.tally = Arc::clone(&old.tally);
        let size = |table: &Mutex<KeyTable<Entry>>| {
            table.lock().unwrap_or_else(PoisonError::into_inner).size()
        };
        // nginx: a zone of another size is another zone.
        if size(&self.counts) != size(&old.counts) {
            return Ok(());
        }
        if self.key.source != old.key.source {
            return Err(format!(
                "limit_conn_zone \"{}\" uses the \"{}\" key while previously it used the \"{}\" key",
                self.name, self.key.source, old.key.source
            ));
        }
        self.counts = Arc::clone(&old.counts);
        Ok(())
    }

    /// Slots of the zone, if they are leased and the fleet is joined.
    fn slots(&self) -> Option<&Arc<SlotLeases>> {
        self.split.as_ref()?.slots()
    }

    /// The part of this node of a number of connections.
    pub(super) fn part_of(&self, limit: u16) -> u16 {
        self.split.as_ref().map_or(limit, |it| it.part_of(limit))
    }

    fn hold(self: &Arc<Self>, key: Bytes, limit: u16) -> Result<Held, Refusal> {
        let limit = self.part_of(limit);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.use_key(&key) {
            Some(entry) if entry.used >= limit => return Err(Refusal::TooMany),
            Some(entry) => entry.used += 1,
            None => {
                counts
                    .insert(&key, Entry::of_one())
                    .ok_or(Refusal::NoRoom)?;
            }
        }
        drop(counts);
        let zone = Arc::clone(self);
        Ok(Held { zone, key })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = self
            .zone
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_kept = counts.use_key(&self.key).is_some_and(Entry::give_back);
        if !is_kept {
            counts.remove(&self.key);
        }
    }
}

/// True if there are limits that the request was not counted against yet.
fn is_due(req: &Request) -> bool {
    let settings = req.location.settings.of::<HandlerSettings>();
    !settings.limit_conn.limits.is_empty() && req.limits.conn_status.is_none()
}

/// True if a limit of the request may have to wait for the owner of its key.
pub fn may_wait(req: &Request) -> bool {
    if !is_due(req) {
        return false;
    }
    let settings = req.location.settings.of::<HandlerSettings>();
    let mut limits = settings.limit_conn.limits.iter();
    let zones = &req.conf.parts.of::<LimitZones>().limit_conn;
    limits.any(|limit| {
        let mut zones = zones.iter();
        zones.any(|zone| zone.is_leased() && zone.name == limit.value.zone)
    })
}

/// Refuses the request where too many are being answered. Of zones that are leased it takes what is
/// there.
pub fn run(req: &mut Request) -> Result<Flow, Failure> {
    if !is_due(req) {
        return Ok(Flow::Next);
    }
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<HandlerSettings>().limit_conn;
    for limit in &policy.limits {
        let Some((zone, key)) = counted(req, &limit.value) else {
            continue;
        };
        match zone.hold(key, limit.value.count) {
            Ok(held) => req.limits.held.push(Box::new(held)),
            Err(refusal) => return refuse(req, policy, &zone, refusal),
        }
    }
    Ok(passed(req))
}

/// The same, which waits for owners of keys.
pub async fn run_leased(req: &mut Request) -> Result<Flow, Failure> {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<HandlerSettings>().limit_conn;
    for limit in &policy.limits {
        let Some((zone, key)) = counted(req, &limit.value) else {
            continue;
        };
        let count = limit.value.count;
        let held = match zone.slots() {
            Some(slots) => {
                let slot = Slot::of(&zone, slots, (&key, count));
                if policy.dry_run {
                    slot.take_at_once()
                } else {
                    slot.take().await
                }
            }
            None => zone.hold(key, count),
        };
        match held {
            Ok(held) => req.limits.held.push(Box::new(held)),
            Err(refusal) => return refuse(req, policy, &zone, refusal),
        }
    }
    Ok(passed(req))
}

/// The zone of a limit, and the key that the request counts for; none if it does not.
fn counted(req: &mut Request, limit: &LimitConn) -> Option<(Arc<ConnectionZone>, Bytes)> {
    let conf = Arc::clone(&req.conf);
    let zones = &conf.parts.of::<LimitZones>().limit_conn;
    let zone = zones.iter().find(|zone| zone.name == limit.zone)?;
    let key = req.eval(&zone.key);
    if key.is_empty() {
        return None;
    }
    if key.len() > MAX_KEY {
        let source = &zone.key.source;
        let message = format_args!("the value of the \"{source}\" key is more than 255 bytes");
        request_error::write(req, Level::Error, message);
        return None;
    }
    req.limits.conn_status = Some("PASSED");
    Some((Arc::clone(zone), key))
}

fn passed(req: &Request) -> Flow {
    let guards = req.limits.held.iter();
    let held = guards.filter_map(|guard| guard.downcast_ref::<Held>());
    held.for_each(|held| held.zone.tally.add(Outcome::Passed));
    Flow::Next
}

fn refuse(
    req: &mut Request,
    policy: &LimitConnPolicy,
    zone: &ConnectionZone,
    refusal: Refusal,
) -> Result<Flow, Failure> {
    if matches!(refusal, Refusal::TooMany) {
        let dry = if policy.dry_run { ", dry run," } else { "" };
        request_error::write(
            req,
            policy.log_level.level(),
            format_args!("limiting connections{dry} by zone \"{}\"", zone.name),
        );
    }
    // INVARIANT 2.
    req.limits.held.clear();
    if policy.dry_run {
        zone.tally.add(Outcome::RejectedDryRun);
        req.limits.conn_status = Some("REJECTED_DRY_RUN");
        return Ok(Flow::Next);
    }
    zone.tally.add(Outcome::Rejected);
    req.limits.conn_status = Some("REJECTED");
    Err(Failure::Status(policy.status.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_given_back_when_their_guards_are_dropped() {
        let zone = Arc::new(ConnectionZone {
            name: "one".to_string(),
            key: Template::literal("k"),
            split: None,
            counts: Arc::new(Mutex::new(KeyTable::new(128))),
            tally: Arc::default(),
        });
        let key = Bytes::from_static(b"a");
        let first = zone.hold(key.clone(), 2);
        let second = zone.hold(key.clone(), 2);
        assert!(first.is_ok() && second.is_ok());
        assert!(matches!(zone.hold(key.clone(), 2), Err(Refusal::TooMany)));
        drop(first);
        let third = zone.hold(key.clone(), 2);
        assert!(third.is_ok());
        assert!(zone.hold(Bytes::from_static(b"b"), 1).is_ok());
        drop((second, third));
        assert!(zone.counts.lock().unwrap().use_key(b"a").is_none());
    }
}
