//! Accounts of an exchange with a peer that is over, in whatever way: the exchange is counted for
//! its site, its peer and its cache zone, timed, traced, and logged.
//!
//! The guard lives as long as the exchange: with the try until the head is there, then with the
//! body. What it tells stands in the trace of the request.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_wire::header::Fields;

use super::group::Group;
use super::peer::Peer;
use crate::log::upstream::LoggedExchange;
use crate::otel::exchange::ExchangeSpan;
use crate::request::Request;
use crate::site;
use millpond_exchange::counters::Number;
use millpond_exchange::stats::Label;
use millpond_exchange::stats::peer::PeerExchange;
use millpond_exchange::stats::site_names::Claim;
use millpond_exchange::trace::{Attempt, UpstreamTrace, Why};
use millpond_exchange::worker::Worker;

/// An exchange that is counted and logged when this is dropped.
pub struct Ended {
    trace: Rc<RefCell<UpstreamTrace>>,
    /// Index of this exchange among the trace's attempts.
    attempt: usize,
    /// None if it is counted for none.
    site: Option<Bytes>,
    /// The peer, if it is counted.
    peer: Option<Arc<Peer>>,
    worker: Rc<Worker>,
    logged: Option<LoggedExchange>,
    span: Option<Box<ExchangeSpan>>,
}

impl Ended {
    /// The last attempt of the request's trace begins.
    pub fn begin(req: &mut Request, (group, peer): (&Group, &Arc<Peer>)) -> Self {
        let span = ExchangeSpan::begin(req);
        Ended {
            site: site::counted(req),
            peer: group.is_counted.then(|| Arc::clone(peer)),
            trace: Rc::clone(&req.upstream),
            attempt: req.upstream.borrow().attempts.len().saturating_sub(1),
            worker: Rc::clone(req.worker()),
            logged: LoggedExchange::begin(req),
            span,
        }
    }

    /// True when a line is written of it.
    pub fn is_logged(&self) -> bool {
        self.logged.is_some()
    }

    /// The head of the answer is there.
    pub fn head_came(&mut self, fields: &Rc<Fields>) {
        if let Some(logged) = &mut self.logged {
            logged.head_came(fields);
        }
    }
}

impl Ended {
    fn count(&self, attempt: &Attempt, zone: Option<Number>) {
        let (shared, worker) = (&self.worker.shared, self.worker.index);
        shared.times.exchanged(worker, attempt);
        if let Some(peer) = &self.peer {
            let exchange = PeerExchange {
                started_ms: attempt.started_ms,
                // Without a head the status says only how the try failed.
                status: attempt.header.map(|_| attempt.status),
                sent: attempt.bytes_sent,
                received: attempt.bytes_received,
                header: attempt.header,
                response: attempt.response,
            };
            peer.tally().exchanged(worker, &exchange);
        }
        if let (Some(zone), Some(_)) = (zone, attempt.entry) {
            let label = Label::of(Some(cause(attempt.why)));
            let written = (label, attempt.body_bytes);
            shared.cache_zones.written(worker, zone, written);
        }
    }
}

/// The status of the answer that caused an exchange.
fn cause(why: Why) -> &'static str {
    match why {
        Why::Pass | Why::Miss | Why::Slice => "MISS",
        Why::Bypass => "BYPASS",
        Why::Expired | Why::Revalidate => "EXPIRED",
        Why::Background => "UPDATING",
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let span = self.span.take();
        // A trace that is being changed right now would be a fault of ours: then nothing is known.
        let bytes = self.trace.try_borrow().ok().and_then(|trace| {
            let attempt = trace.attempts.get(self.attempt)?;
            self.count(attempt, trace.zone);
            span.into_iter().for_each(|span| span.end(attempt, &trace));
            Some((attempt.bytes_received, attempt.bytes_sent))
        });
        if let Some(name) = &self.site {
            let counting = self.worker.shared.sites.enter(self.worker.index);
            // Not before: what came of it may be stored meanwhile.
            let site = counting.id(name, Claim::None);
            counting.exchanged(site, bytes.unwrap_or_default());
        }
    }
}
