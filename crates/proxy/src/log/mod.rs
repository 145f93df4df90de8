//! Logs: errors and accesses.
//!
//! ```text
//! error.rs ──────────────────────────────┐
//!                                        ├─► file.rs: one open file for a path
//! access.rs ─► format.rs ─┬─► buffer.rs ─┘
//!                         └─► named.rs: files whose path has variables
//! stamp.rs: the times that all write
//! ```

pub mod access;
pub mod buffer;
pub mod error;
pub mod file;
pub mod format;
pub mod named;
pub mod stamp;
