//! What is to be done when an exchange with a peer is over, in whatever way: it is counted for its
//! site, and logged.
//!
//! The guard lives as long as the exchange: with the try until the head is there, then with the
//! body. What it tells stands in the trace of the request.

use std::cell::RefCell;
use std::rc::Rc;

use super::trace::UpstreamTrace;
use crate::cache::site;
use crate::header::Fields;
use crate::log::upstream::LoggedExchange;
use crate::request::Request;
use crate::stats::site::SiteId;
use crate::worker::Worker;

/// An exchange that is counted and logged when this is dropped.
pub struct Ended {
    trace: Rc<RefCell<UpstreamTrace>>,
    /// Which of the trace's attempts it is.
    attempt: usize,
    site: SiteId,
    worker: Rc<Worker>,
    logged: Option<LoggedExchange>,
}

impl Ended {
    /// The last attempt of the request's trace begins.
    pub fn begin(req: &mut Request) -> Self {
        Ended {
            site: site::id(req),
            trace: Rc::clone(&req.upstream),
            attempt: req.upstream.borrow().attempts.len().saturating_sub(1),
            worker: Rc::clone(&req.down.generation.worker),
            logged: LoggedExchange::begin(req),
        }
    }

    /// The head of the answer is there.
    pub fn head_came(&mut self, fields: &Rc<Fields>) {
        if let Some(logged) = &mut self.logged {
            logged.head_came(fields);
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // A trace that is being changed right now would be a fault of ours: then nothing is known.
        let bytes = self.trace.try_borrow().ok().and_then(|trace| {
            let attempt = trace.attempts.get(self.attempt)?;
            Some((attempt.bytes_received, attempt.bytes_sent))
        });
        let sites = &self.worker.shared.sites;
        sites.exchanged(self.worker.index, self.site, bytes.unwrap_or_default());
    }
}
