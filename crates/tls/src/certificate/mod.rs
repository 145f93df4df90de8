//! Certificates and keys: read from texts, shown as text, judged.
//!
//! ```text
//! value of a directive ─► source ─► (caller opens the file) ─► load ─► CertifiedKey
//! bytes of a peer ─► client, origin (rustls's traits) ─► signature: the key fits the handshake
//!                                                     └► trust, host: OpenSSL's verdict
//! certificate of a peer ─► facts ─► $ssl_client_…
//! ```
//!
//! Certificates are read and chains are judged by OpenSSL, whose answers configurations and
//! applications know by heart; handshakes and their signatures are rustls's. No path validation is
//! written here.
//!
//! 1. No bytes of a file or a peer make it panic.
//! 2. A chain that OpenSSL refuses is never good.
//!
//! Opening of files, caches of what was read, OCSP and sessions are others'.

mod der;
mod name;
mod pem;
mod signature;

pub mod client;
pub mod facts;
pub mod failure;
pub mod host;
pub mod load;
pub mod ocsp;
pub mod origin;
pub mod password;
pub mod source;
pub mod trust;
pub mod verdict;

/// Name and version of the library that reads certificates and judges chains.
pub fn library() -> &'static str {
    openssl::version::version()
}
