//! `js_access`, `js_preread`, `js_filter`: scripts of sessions, as they run.
//!
//! The engine, the bounds and the request that stands behind `s.variables` are those of `http`
//! ([`millpond_proxy::script`]); here is what only sessions have: the phases that a function
//! decides about (`phase.rs`), and the bytes that it changes (`filter.rs`).
//!
//! ```text
//! js_access ─► js_preread ─► js_filter (each piece, both ways) ─► js_set of the log ─► exit
//! └────────────── one context, whose modules keep their values ──────────────────────┘
//! ```
//!
//! Invariants:
//! 1. Nothing here is asked for a session of a server that names no script.
//! 2. A script that fails ends its session, with a line in the error log.

pub(crate) mod filter;
pub(crate) mod phase;

use std::sync::Arc;

use millpond_proxy::request::Request;
use millpond_proxy::script::host::Out;
use millpond_proxy::script::operation::Running;
use millpond_proxy::script::session::Session;
use millpond_proxy::script::{Scripts, tell};
use millpond_script::{Errand, Fault, Reply};

use crate::status::{Ended, OUR_FAULT};

/// The end of a session whose script has failed.
fn failed(req: &Request, fault: &Fault) -> Ended {
    tell(req, fault);
    OUR_FAULT
}

/// A script's part in a session: its context, what it has ordered, and what it waits for.
pub(crate) struct Talk {
    session: Session,
    pub(crate) out: Out,
    pub(crate) running: Running,
}

impl Talk {
    /// Begins with the scripts of a session's server.
    pub(crate) fn begin(req: &mut Request) -> Result<Talk, Ended> {
        let location = Arc::clone(&req.location);
        let scripts: &Scripts = location.parts.get().ok_or(OUR_FAULT)?;
        Ok(Talk {
            session: Session::begin(req, scripts).map_err(|fault| failed(req, &fault))?,
            out: Out::of_session(),
            running: Running::default(),
        })
    }

    /// Calls a function by its name, or the one that waits for an event.
    pub(crate) fn call(&mut self, req: &mut Request, call: (&str, Errand)) -> Result<(), Ended> {
        let called = self.session.call(req, &mut self.out, call);
        called.map_err(|fault| failed(req, &fault))?;
        self.check()
    }

    /// Goes on behind an operation that has ended.
    pub(crate) fn resume(&mut self, req: &mut Request, ended: (u32, Reply)) -> Result<(), Ended> {
        let ended = (ended, &self.running);
        let resumed = self.session.resume(req, &mut self.out, ended);
        resumed.map_err(|fault| failed(req, &fault))?;
        self.check()
    }

    /// A function that may have failed halfway has lost bytes, and decides nothing.
    fn check(&self) -> Result<(), Ended> {
        if self.out.has_unhandled {
            return Err(OUR_FAULT);
        }
        Ok(())
    }
}
