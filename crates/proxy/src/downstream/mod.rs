//! The client's side: listeners, connections, requests in, answers out.
//!
//! ```text
//! Connection   facts that last: addresses, number, when it was accepted
//!    ▲
//! Client       one for each request: its address, its bytes
//!    │
//!    ▼
//! Wire         the way its bytes go: none, HTTP/1, or a stream of a connection that has several
//! ```
//!
//! `serve` makes an answer of a head and knows none of the three apart. A protocol
//! (`http1`) reads heads from its connection and calls it.

pub mod accepted;
pub mod body;
pub mod carrier;
pub mod client;
pub mod connection;
pub mod encryption;
pub(crate) mod http1;
pub mod http2;
mod http3;
mod lanes;
pub mod listener;
pub mod proxy_protocol;
pub mod quic;
pub(crate) mod respond;
pub mod send;
pub mod serve;
pub(crate) mod stream;
pub(crate) mod websocket;
pub mod wire;
