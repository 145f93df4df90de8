//! Logs: errors and accesses.
//!
//! ```text
//! error.rs  ─┐
//!            ├─► file.rs (one open file for a path, reopened by a signal)
//! access.rs ─┘
//! stamp.rs: the times that both write
//! ```

pub mod access;
pub mod error;
pub mod file;
pub mod stamp;
