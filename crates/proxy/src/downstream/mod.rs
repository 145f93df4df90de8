//! The client's side: listeners, connections, requests in, answers out.
//!
//! `serve` makes an answer of a head and knows none of the three apart. A protocol
//! (`http1`) reads heads from its connection and calls it.

pub mod accepted;
pub mod encryption;
pub(crate) mod http1;
pub mod http2;
mod http3;
pub mod inside;
mod lanes;
pub mod listener;
pub mod proxy_protocol;
pub mod quic;
pub(crate) mod respond;
pub mod serve;
pub(crate) mod stream;

pub use http1::quiet;
