//! Listeners, HTTP/1, phases, upstreams, filters, variables and logs.
//!
//! ```text
//! downstream ──► route ──► phase (rewrite, access, handler) ──► respond (filter, writer) ──► log
//!                                        │
//!                                        └──► upstream (pass, cache)
//! ```
//!
//! `phase.rs` is the map of a request; `scope/` builds the configuration it runs on.

pub mod aside;
pub mod base64;
pub mod block;
pub mod body;
pub mod cache;
pub mod chance;
pub mod clock;
pub mod control;
pub mod downstream;
pub mod explain;
pub mod failure;
pub mod fastcgi;
pub mod filter;
pub mod handler;
pub mod header;
pub mod http1;
pub mod lint;
pub mod log;
pub mod map;
pub mod memcached;
pub mod metrics;
pub mod mp4;
pub mod network;
pub mod phase;
pub mod pid;
pub mod reload;
pub mod request;
pub mod resolve;
pub mod respond;
pub mod response;
pub mod rewrite;
pub mod route;
pub mod scope;
pub mod server;
pub mod shutdown;
pub mod socket;
pub mod spare;
pub mod stats;
pub mod subrequest;
pub mod temp_file;
pub mod upstream;
pub mod var;
pub mod worker;
