//! TLS without I/O: bytes of a socket to plaintext and back, and what was agreed.
//!
//! ```text
//! clients    Acceptor ─► Accepted ─┬─ choose(ServerContext) ─► Session
//!                                  └─ reject(alert)
//! upstreams  ClientContext::connect(Target) ─► Session
//! ```
//!
//! Contexts are made of settings once, and shared by connections and threads. A [`Session`] is one
//! connection's: whoever owns the socket lends it buffers. Handshakes and records are rustls's, on
//! aws-lc-rs; around them stands what nginx and OpenSSL do otherwise.
//!
//! 1. No bytes of a peer make anything here panic.
//! 2. An idle session keeps no buffers.
//! 3. Nothing here opens files or waits. Only the judgement of chains asks the system for the time.
//!
//! Handshakes take certificates as DER with a key that signs, and verifiers as rustls's traits;
//! [`certificate`] reads both from texts, and judges chains by OpenSSL's verifier (decision 0011).

pub mod certificate;
mod client;
mod engine;
mod error;
mod established;
mod group;
mod hello;
mod identity;
mod key_log;
pub mod quic;
mod record;
mod resumption;
mod scheme;
mod scope;
mod server;
mod session;
mod suite;
pub mod tap;
mod verifier;
mod version;

#[cfg(test)]
mod tests;

pub use client::{ClientContext, ClientSettings, Sni, Target};
pub use error::{Error, Fault};
pub use group::{Groups, GroupsError};
pub use hello::{ClientHello, HELLO_MAX, Reading};
pub use identity::Identity;
pub use key_log::KeyLogLines;
pub use resumption::{CacheMode, ClientSessions, SessionCache, TicketKey, TicketKeyError, Tickets};
pub use rustls::pki_types::CertificateDer;
pub use scope::{SESSION_ID_LEN, SessionId, note, server_name};
pub use server::{
    Accepted, Accepting, Acceptor, Compression, EarlyData, Inside, Offers, Preference,
    ServerContext, ServerSettings, UNRECOGNIZED_NAME,
};
pub use session::{Ending, Facts, Filled, Received, Session};
pub use suite::{Ciphers, CiphersError};
pub use version::Versions;

/// The longest plaintext of a record (RFC 8446 §5.1).
pub const FRAGMENT_MAX: usize = 16 * 1024;

/// The shortest plaintext of a full record: rustls cuts no message smaller.
pub const FRAGMENT_MIN: usize = 32;

/// The length that records get, of that which settings have.
fn fragment(wanted: usize) -> usize {
    wanted.clamp(FRAGMENT_MIN, FRAGMENT_MAX)
}

/// The size of messages that rustls cuts handshakes into, for records of so much plaintext.
fn message_size(wanted: usize) -> Option<usize> {
    /// Bytes that rustls takes away for a record's head.
    const HEAD: usize = 5;
    Some(fragment(wanted) + HEAD)
}
