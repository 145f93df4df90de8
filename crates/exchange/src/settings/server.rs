//! Settings that http and server blocks have.
//!
//! A request has them as soon as its server is known, before a location is: they concern the head
//! and the connection.

use millpond_conf::Scope;

use super::clients::head::HeadPolicy;
use super::clients::http2::Http2Policy;
use super::clients::quic::QuicPolicy;

/// Settings of a server.
#[derive(Clone, Debug, Scope)]
pub struct ServerSettings {
    /// Policy of reading request heads.
    pub head: HeadPolicy,
    /// HTTP/2.
    pub http2: Http2Policy,
    /// QUIC and HTTP/3.
    pub quic: QuicPolicy,
}
