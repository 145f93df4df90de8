//! Listeners, connections, phases, upstreams, filters, variables and logs.
//!
//! ```text
//! downstream ──► route ──► phase (rewrite, access, handler) ──► respond (filter, writer) ──► log
//!                                        │
//!                                        └──► upstream (pass, cache)
//! ```
//!
//! `phase.rs` is the map of a request; `directives/` builds the configuration it runs on.

pub mod cache;
pub mod conditional;
pub mod control;
pub mod descriptors;
pub mod directives;
pub mod downstream;
pub mod explain;
pub mod failure;
pub mod filter;
pub mod handler;
pub mod lint;
pub mod log;
pub mod map;
pub mod metrics;
pub mod phase;
pub mod pid;
pub mod protocol;
pub mod provenance;
pub mod reload;
pub mod request;
pub mod respond;
pub mod response;
pub mod rewrite;
pub mod root_process;
pub mod route;
pub mod scope;
pub mod server;
pub mod settings;
pub mod stats;
pub mod subrequest;
pub mod tls;
pub mod trace;
pub mod upstream;
pub mod var;
pub mod worker;
