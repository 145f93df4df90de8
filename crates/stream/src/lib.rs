//! `stream {}`: connections of TCP and sessions of UDP that are passed on as they are, after a look
//! at where they go.
//!
//! ```text
//! accept ─► PROXY protocol ─► real address ─► limits, set ─► access ─► first bytes ─┐
//!                                                                                   ▼
//!      log ◄─┬─ relay ◄─ peer ◄─ proxy_pass ◄───────────────────────────────────── content
//!            └─ text ◄─ return ◄──────────────────────────────────────────────────────┤
//!                                another listener ◄─ pass ◄───────────────────────────┘
//! ```
//!
//! The block is a configuration of its own: what it declares by name (groups, maps, formats, zones)
//! is none of `http`'s. What both know is one code: a session has the [`Request`] of the crate
//! below, without a head, so that variables, maps, rules about addresses, limits and logs read it
//! as they read any other.
//!
//! Invariants:
//! 1. A session is one task; an idle one keeps no buffer.
//! 2. What a side has sent is read only when the other side has taken what was read before.
//! 3. Each session is logged once, however it ends.
//!
//! [`Request`]: millpond_proxy::request::Request

pub mod content;
#[cfg(feature = "script")]
pub mod functions;
mod header;
pub mod packets;
mod peer;
mod preread;
mod relay;
#[cfg(feature = "script")]
mod script;
pub mod session;
pub mod settings;
mod status;
pub mod variables;
