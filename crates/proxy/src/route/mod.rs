//! From a connection and a head to a server and a location.
//!
//! The listener's address gives the candidates, the host picks the server ([`name`]), the target is
//! taken apart ([`target`]), and after the server's rewrites the path picks the location
//! (`settings::tree`).

pub(crate) mod captures;
pub mod name;
pub mod target;
