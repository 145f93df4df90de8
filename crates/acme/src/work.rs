//! The work for an authority, and what is said of it in the log.
//!
//! A configuration gives one for each issuer; lines of the log name the issuer they are about.

use std::fmt;
use std::sync::Arc;

use millpond_system::clock;
use millpond_system::log::error::{self, Level};

use crate::issuer::Issuer;
use crate::ordered::Ordered;

/// The work for an authority.
#[derive(Clone, Debug)]
pub struct Work {
    /// The authority.
    pub issuer: Arc<Issuer>,
    /// The certificates.
    pub orders: Vec<Arc<Ordered>>,
}

/// The time, in seconds since 1970.
pub(crate) fn now_s() -> i64 {
    clock::now_ms().div_euclid(1000)
}

/// Logs, for an issuer.
pub(crate) fn log(level: Level, issuer: &Issuer, message: fmt::Arguments<'_>) {
    let name = &issuer.name;
    error::process(level, format_args!("acme: {message}, issuer \"{name}\""));
}
