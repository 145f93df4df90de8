//! Listeners, connections, phases, upstreams, filters, variables and logs.
//!
//! ```text
//! downstream ──► route ──► phase (rewrite, access, handler) ──► respond (filter, writer) ──► log
//!                                        │
//!                                        └──► upstream (pass, cache)
//! ```
//!
//! `phase.rs` is the map of a request, `steps.rs` has its handlers. The tables of directives, and
//! what runs all this as a process, stand in the crate above.

pub mod cache;
pub mod cache_settings;
pub mod collector;
pub mod conditional;
pub mod content;
pub mod downstream;
pub mod filter;
pub mod handler;
pub mod log;
pub mod map;
pub mod otel;
pub(crate) mod pass;
pub mod phase;
pub mod request;
pub mod request_body;
pub mod rewrite;
pub mod route;
#[cfg(feature = "script")]
pub mod script;
pub mod site;
pub mod steps;
pub mod subrequest;
pub mod tls;
pub mod upstream;
pub mod var;
mod visit;
mod websocket;
