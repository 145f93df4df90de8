//! HTTP semantics as pure functions: ranges, conditionals, freshness, URIs, dates.
//!
//! Every function here maps bytes (and a `now` where time matters) to a value. The rules are those
//! of RFC 9110, RFC 9111, RFC 9211, RFC 9213 and RFC 5861; where nginx decides differently, the
//! function follows nginx and its documentation says so under `# Differs from the RFC`.
//!
//! Invariants:
//! 1. No input panics: every byte may come from a stranger.
//! 2. Work is linear in the input, and what is allocated is bounded by it.
//! 3. Nothing here reads a clock, a file, a socket or a setting.
//!
//! What it does not do: HTTP/1 framing, header maps, MIME types, and any decision that needs a
//! policy.
//!
//! Sources: RFC 3986, 5861, 9110, 9111, 9211, 9213; nginx 1.31.5 for the departures.

pub mod accept_encoding;
pub(crate) mod byte_set;
pub mod cache_control;
pub mod cache_groups;
pub mod cache_status;
pub mod cdn_loop;
pub mod conditional;
pub mod date;
pub mod decimal;
pub mod dictionary;
pub mod freshness;
pub mod hex;
pub mod json;
pub mod list;
pub mod no_vary_search;
pub mod preference;
pub mod proxy_status;
pub mod query;
pub mod range;
pub mod reuse;
pub mod targeted;
pub mod trace_context;
pub mod upstream_validity;
pub mod uri;
pub mod vary;
