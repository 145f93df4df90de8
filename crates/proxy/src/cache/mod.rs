//! The cache as the proxy uses it: zones of a configuration, the walk of a request, bodies from the
//! store.
//!
//! The machines are in the crate `millpond-cache`; here is what they need of HTTP/1 and of
//! configurations: [`exchange`] is their origin, `body` makes answers of entries and running
//! fills, [`zones`] opens zones and keeps them over reloads, [`sweep`] looks after them,
//! `slice` answers from entries in slices, `encodings` in codings that were made once.

pub(crate) mod body;
mod codec;
pub mod content_key;
mod encoder;
pub(crate) mod encodings;
pub mod exchange;
pub mod fleet;
pub mod fleet_config;
pub(crate) mod groups;
pub(crate) mod invalidate;
pub(crate) mod leap;
pub(crate) mod loaded;
pub mod no_vary_search;
pub(crate) mod open_zones;
pub mod pass;
pub mod peers;
pub(crate) mod post;
pub mod provenance;
pub mod purge;
mod rule_of_hit;
pub mod ruling;
pub(crate) mod slice;
pub(crate) mod status_header;
mod stored_head;
pub mod sweep;
pub mod tier;
pub(crate) mod uncached;
pub mod vary_as;
mod view;
pub mod zones;
