//! Handlers that tell about the server itself, as any handler of the proxy does about a site.
//!
//! Each answers for its location out of what `control` and `metrics` know; who may ask is said by
//! `allow`, `deny` and the like.

pub(crate) mod api;
pub(crate) mod dashboard;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod warm;
