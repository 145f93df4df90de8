//! Families of the caches of a pass that its own module reads: they are merged with the other
//! settings of the pass, for each of its protocols.
//!
//! The rest of a cache's families stand in the crate `millpond-cache`, which knows no request.

pub mod encodings;
pub mod peers;
pub mod purge;
pub mod status_header;
