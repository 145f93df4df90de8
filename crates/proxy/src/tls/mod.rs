//! Encryption, between clients and this server and between this server and origins: the words of
//! the configuration, the contexts that are made of them, and the variables.
//!
//! The handshakes are the business of those who own connections (`downstream/encryption.rs`,
//! `upstream/encryption.rs`), and the protocol that of the crate `millpond-tls`.

pub mod acme;
pub(crate) mod agreed;
pub mod certificate_cache;
pub mod check;
pub mod client_status;
pub mod commands;
pub mod contexts;
pub mod explain;
pub mod files;
pub mod key_log;
pub mod named;
pub mod objects;
pub mod origins;
pub mod responder;
pub mod settings;
pub mod stapling;
pub mod variables;
