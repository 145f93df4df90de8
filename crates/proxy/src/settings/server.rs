//! The families whose directives stand in http and server blocks only.
//!
//! A request has them as soon as its server is known, before a location is: they concern the head
//! and the connection.

use millpond_conf::Scope;

use crate::downstream::http2::policy::Http2Policy;
use crate::downstream::policy::HeadPolicy;
use crate::downstream::quic::policy::QuicPolicy;
use crate::tls::settings::SslPolicy;

/// Settings of a server.
#[derive(Clone, Debug, Scope)]
pub struct ServerSettings {
    /// Policy of reading request heads.
    pub head: HeadPolicy,
    /// HTTP/2.
    pub http2: Http2Policy,
    /// QUIC and HTTP/3.
    pub quic: QuicPolicy,
    /// Encryption of clients' connections.
    pub ssl: SslPolicy,
}
