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
pub mod client;
pub mod collector;
pub mod conditional;
pub mod content;
pub mod counters;
pub mod descriptors;
pub mod downstream;
pub mod expression;
pub mod failure;
pub mod filter;
pub mod handler;
pub mod log;
pub mod map;
pub mod otel;
pub(crate) mod pass;
pub mod phase;
pub mod protocol;
pub mod provenance;
pub mod request;
pub mod request_body;
pub mod response;
pub mod rewrite;
pub mod route;
pub mod scope;
pub mod settings;
pub mod site;
pub mod stats;
pub mod steps;
pub mod subrequest;
pub mod tls;
pub mod trace;
pub mod upstream;
pub mod var;
mod visit;
mod websocket;
pub mod worker;
