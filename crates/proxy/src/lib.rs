//! Listeners, HTTP/1, phases, upstreams, filters, variables and logs.

pub mod header;
pub mod http1;
