//! The agreement of a client and this server in a handshake, for as long as the connection lasts.
//!
//! An agreement is taken out of the session when the handshake is over: variables, logs and the
//! check of requests read it, whatever protocol they come in.

use std::sync::Arc;

use millpond_tls::SessionId;
use millpond_tls::certificate::facts::Certificate;
use millpond_tls::certificate::verdict::Verdict;

use crate::settings::Server;

/// An agreement.
pub struct Agreed {
    /// The server that the handshake was for.
    pub server: Arc<Server>,
    /// The version, as in `TLSv1.3`.
    pub protocol: &'static str,
    /// The cipher suite.
    pub cipher: &'static str,
    /// The group of the key exchange.
    pub curve: &'static str,
    /// The protocol inside.
    pub alpn: Box<[u8]>,
    /// The name that the client asked for.
    pub server_name: Box<str>,
    /// The scheme of the server's signature.
    pub sigalg: &'static str,
    /// The scheme of the client's signature.
    pub client_sigalg: &'static str,
    /// The session, if both sides know one.
    pub session_id: Option<SessionId>,
    /// True if a session was resumed.
    pub is_resumed: bool,
    /// The client's certificate.
    pub certificate: Option<Certificate>,
    /// Judgement of it.
    pub verdict: Verdict,
    /// The client's offer: suites, groups, signature schemes.
    pub offered: Option<Box<[String; 3]>>,
}
