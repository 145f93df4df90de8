//! TLS without I/O: certificates, keys, and what chains of them are worth.
//!
//! Handshakes are rustls's; chains are judged by OpenSSL's verifier
//! ([decision 11](../../../docs/decisions/0011-chains-by-openssl.md)).

pub mod certificate;
