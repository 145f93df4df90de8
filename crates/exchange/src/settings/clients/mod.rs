//! The families of the way to clients.
//!
//! Many modules obey them, so they stand below all of these.

pub mod body;
pub mod head;
pub mod http2;
pub mod keep_alive;
pub mod quic;
pub mod send;
