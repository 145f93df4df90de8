//! Handlers that tell about the server itself, as any handler of the proxy does about a site.
//!
//! Each answers for its location out of what `control` and `metrics` know; who may ask is said by
//! `allow`, `deny` and the like.

pub mod api;
pub mod dashboard;
pub mod health;
pub mod metrics;
