//! Upstreams: groups of peers, connections to them, exchanges with them.

pub mod keepalive;
pub mod pass;
pub mod trace;
