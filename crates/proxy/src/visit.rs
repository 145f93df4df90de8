//! Requests of status zones, from the moment when their server is known until they are logged.
//!
//! ```text
//! server is known ─► Visit (its request is counted) ─► logged: status and bytes
//!                                    └─ dropped before that: discarded
//! ```

use std::rc::Rc;

use crate::request::Request;
use millpond_exchange::counters::Number;
use millpond_exchange::stats::status_zone::{StatusZone, ZoneRow};
use millpond_exchange::worker::Worker;

/// A request of a server that has a zone; it is discarded if this is dropped.
pub(crate) struct Visit {
    worker: Rc<Worker>,
    number: Number,
    has_ended: bool,
}

impl Visit {
    /// A request begins whose server is known.
    pub(crate) fn begin(req: &Request) -> Option<Self> {
        let zone = req.server.parts.get::<StatusZone>()?;
        let worker = Rc::clone(req.worker());
        let visit = Visit {
            number: zone.number(&worker.shared.status_zones.servers),
            worker,
            has_ended: false,
        };
        if let Some(row) = visit.row() {
            row.begin();
        }
        Some(visit)
    }

    fn row(&self) -> Option<&ZoneRow> {
        let zones = &self.worker.shared.status_zones;
        zones.servers.row(self.worker.index, self.number)
    }

    /// The request was answered as far as it will be.
    fn end(mut self, req: &Request) {
        self.has_ended = true;
        if let Some(row) = self.row() {
            count_end(row, req);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if let Some(row) = self.row() {
            row.discard();
        }
    }
}

/// A client's request has ended, and was logged.
pub(crate) fn ended(req: &Request, visit: Option<Visit>) {
    if let Some(zone) = req.location.parts.get::<StatusZone>() {
        let worker = req.worker();
        let zones = &worker.shared.status_zones.locations;
        if let Some(row) = zones.row(worker.index, zone.number(zones)) {
            row.begin();
            count_end(row, req);
        }
    }
    if let Some(visit) = visit {
        visit.end(req);
    }
}

fn count_end(row: &ZoneRow, req: &Request) {
    let sent = req.sent.head_bytes + req.sent.body_bytes;
    row.end(req.sent.status, req.client.request_bytes.get(), sent);
}
