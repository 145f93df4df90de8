//! Bytes of the protocols on the wire, without I/O: heads, fields, hosts, targets and the framing
//! of bodies.
//!
//! ```text
//! header ──► head ──► http1 ──► memcached
//!                     http2     fastcgi       base64
//!                     http3
//! ```
//!
//! Bytes go in, heads and pieces of bodies come out, and the other way round. [`header`] are the
//! fields that every protocol shares; [`head`] is the head of a
//! request, the same for all versions of HTTP; [`http1`], [`http2`], [`http3`], [`fastcgi`] and
//! [`memcached`] are a protocol each.
//!
//! Invariants:
//! 1. No input panics: every byte may come from a stranger.
//! 2. What comes out does not depend on how the input was cut into pieces.
//! 3. Nothing here reads a clock, a file, a socket or a setting; what is held is bounded by limits
//!    that the caller gives.
//!
//! What it does not do: meaning (`millpond-semantics` has that), connections, and any decision that
//! needs a configuration.

pub mod base64;
pub mod block;
pub mod fastcgi;
pub mod head;
pub mod header;
pub mod http1;
pub mod http2;
pub mod http3;
pub mod memcached;
mod seek;
pub mod spare;
pub mod url;
