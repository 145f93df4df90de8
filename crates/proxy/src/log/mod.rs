//! Lines about requests: access logs, errors of requests, exchanges with upstreams.
//!
//! ```text
//! access.rs, upstream.rs ─► line.rs, format.rs ─┬─► millpond_system::log
//! request_error.rs ─────────────────────────────┘
//! ```
//!
//! Files, queues, syslog and the error log itself are those of the process, in the crate below.

pub mod access;
pub mod format;
pub(crate) mod line;
pub mod request_error;
pub mod settings;
pub mod upstream;
