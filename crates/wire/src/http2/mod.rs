//! HTTP/2 without I/O.
//!
//! x

pub mod hpack;
