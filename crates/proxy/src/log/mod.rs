//! Logs: errors and accesses.

pub mod access;
pub mod error;
