//! The families of the way to clients, which many modules obey.

pub mod body;
pub mod head;
pub mod http2;
pub mod keep_alive;
pub mod quic;
pub mod send;
