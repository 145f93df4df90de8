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

use millpond_proxy::request::Request;
use millpond_proxy::script::tell;
use millpond_script::Fault;

use crate::status::{Ended, OUR_FAULT};

/// The end of a session whose script has failed.
pub(crate) fn failed(req: &Request, fault: &Fault) -> Ended {
    tell(req, fault);
    OUR_FAULT
}
