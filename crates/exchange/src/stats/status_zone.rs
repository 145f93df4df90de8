//! `status_zone`: what is counted of the requests of a server or a location.
//!
//! A request belongs to the zone of its server, and to that of the location where it ended. Zones
//! of servers and of locations are two kinds: the same name may stand for one of each.
//!
//! Invariants:
//! 1. A request is counted in a server's zone once when it begins and once when it ends, so that
//!    the difference is what is being processed.
//! 2. Where no zone is named nothing is counted.
//! 3. A name keeps its counters over reloads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use millpond_conf::{Contexts, Statement};

use super::responses::{ResponseCells, ResponseCount};
use crate::counters::{NAMES_MAX, Number, Table};
use crate::scope::block::{Draft, Pass, Row};
use crate::scope::build::Builder;
use crate::scope::parts::{Part, Place};

/// The row.
pub const ROWS: &[Row] = &[Row {
    name: "status_zone",
    contexts: Contexts::SERVER
        .union(Contexts::LOCATION)
        .union(Contexts::IF_LOCATION),
    syntax: "zone | off",
    is_block: false,
    pass: Pass::First,
    doc: "The zone in which requests of the server, or of the location where they end, are counted: \
          how many, their statuses, and bytes in both directions. Several servers, or locations, \
          may share one. A location inside another has its zone, but for `off`. The API shows what \
          was counted.",
    apply: status_zone,
}];

fn status_zone(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    if !builder.has_arguments(statement, 1..=1) {
        return;
    }
    let Some(word) = statement.args.first() else {
        return;
    };
    if draft.has::<Named>() {
        builder.error(statement.span, "\"status_zone\" directive is duplicate");
        return;
    }
    draft.put(Named);
    draft.take::<StatusZone>();
    let is_server = draft.context == Contexts::SERVER;
    if word.text == "off" && !is_server {
        return;
    }
    if word.text.is_empty() {
        builder.error(word.span, "the name of a status zone is empty");
        return;
    }
    let name = Bytes::from(word.text.clone());
    let declared = builder.of::<ZoneNames>();
    let names = if is_server {
        &mut declared.servers
    } else {
        &mut declared.locations
    };
    if !names.contains(&name) {
        names.push(name.clone());
    }
    // The first number is for the excess.
    if names.len() >= NAMES_MAX {
        builder.error(word.span, format!("more than {NAMES_MAX} status zones"));
    }
    draft.put(StatusZone::new(name));
}

/// A mark of the block that names `status_zone` itself.
struct Named;

/// The names of a configuration, each once, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct ZoneNames {
    /// Zones of servers.
    pub servers: Vec<Bytes>,
    /// Zones of locations.
    pub locations: Vec<Bytes>,
}

impl Part for ZoneNames {
    const PLACE: Place = Place::StatusZones;
}

/// The zone of a block.
#[derive(Clone, Debug)]
pub struct StatusZone {
    name: Bytes,
    /// Number of the zone, once it is known.
    number: OnceLock<Number>,
}

impl Part for StatusZone {
    const PLACE: Place = Place::StatusZone;
}

impl StatusZone {
    fn new(name: Bytes) -> Self {
        StatusZone {
            name,
            number: OnceLock::new(),
        }
    }

    /// Gives a block inside of another one the zone of that.
    pub fn pass_on(outer: &Draft, inner: &mut Draft) {
        if let Some(zone) = outer.get::<StatusZone>() {
            inner.put(zone.clone());
        }
    }

    /// The number of the zone in a table.
    pub fn number(&self, zones: &Table<ZoneRow>) -> Number {
        *self.number.get_or_init(|| zones.number(&self.name))
    }
}

/// The counters of all zones.
#[derive(Debug, Default)]
pub struct StatusZones {
    /// Zones of servers.
    pub servers: Table<ZoneRow>,
    /// Zones of locations.
    pub locations: Table<ZoneRow>,
}

/// Counters of one worker for one zone.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct ZoneRow {
    requests: AtomicU64,
    discarded: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    responses: ResponseCells,
}

impl ZoneRow {
    /// Counts a request that begins, or that is known only when it ends.
    pub fn begin(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that ended without an answer.
    pub fn discard(&self) {
        self.discarded.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that has ended with this status, and its bytes.
    pub fn end(&self, status: u16, received: u64, sent: u64) {
        self.received.fetch_add(received, Ordering::Relaxed);
        self.sent.fetch_add(sent, Ordering::Relaxed);
        if sent == 0 {
            self.discard();
        } else {
            self.responses.record(status);
        }
    }
}

/// Counts of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneCount {
    /// Requests.
    pub requests: u64,
    /// Requests that ended without an answer.
    pub discarded: u64,
    /// Bytes that came from clients.
    pub received: u64,
    /// Bytes that were sent to clients.
    pub sent: u64,
    /// Answers by status.
    pub responses: ResponseCount,
}

impl ZoneCount {
    fn sum<'a>(rows: impl Iterator<Item = &'a ZoneRow>) -> Self {
        let mut count = ZoneCount::default();
        for row in rows {
            // Ends before begins, so that a sum of what runs has no less begins than ends.
            row.responses.add_to(&mut count.responses);
            count.discarded += row.discarded.load(Ordering::Relaxed);
            count.received += row.received.load(Ordering::Relaxed);
            count.sent += row.sent.load(Ordering::Relaxed);
            count.requests += row.requests.load(Ordering::Relaxed);
        }
        count
    }

    /// Requests of a server that are being processed; a location's begin to count when they end.
    pub fn processing(&self) -> u64 {
        let ended = self.responses.total() + self.discarded;
        self.requests.saturating_sub(ended)
    }

    /// Counts that came after an earlier count.
    pub fn since(&self, base: &ZoneCount) -> ZoneCount {
        ZoneCount {
            requests: self.requests.saturating_sub(base.requests),
            discarded: self.discarded.saturating_sub(base.discarded),
            received: self.received.saturating_sub(base.received),
            sent: self.sent.saturating_sub(base.sent),
            responses: self.responses.since(&base.responses),
        }
    }
}

impl StatusZones {
    /// Counts of a server's zone.
    pub fn server(&self, name: &[u8]) -> ZoneCount {
        ZoneCount::sum(self.servers.rows(name))
    }

    /// Counts of a location's zone.
    pub fn location(&self, name: &[u8]) -> ZoneCount {
        ZoneCount::sum(self.locations.rows(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_ended_is_being_processed() {
        let zones = StatusZones::default();
        let number = zones.servers.number(b"a");
        let row = zones.servers.row(1, number).unwrap();
        row.requests.fetch_add(4, Ordering::Relaxed);
        row.responses.record(200);
        row.discarded.fetch_add(1, Ordering::Relaxed);
        let count = zones.server(b"a");
        assert_eq!((count.requests, count.processing()), (4, 2));
        assert_eq!(zones.location(b"a"), ZoneCount::default());
    }
}
