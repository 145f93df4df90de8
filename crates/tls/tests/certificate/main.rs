//! Certificates: loading, facts, verdicts and handshakes, against what OpenSSL itself says.
//!
//! `kit` makes certificates, `oracle` asks libssl as nginx does, and the command line.

#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod chains;
mod facts;
mod handshake;
mod hosts;
mod kit;
mod loading;
mod mutated;
mod oracle;
