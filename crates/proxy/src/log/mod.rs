//! Logs: errors and accesses.
//!
//! ```text
//! error.rs ──────────────────────────────┬─► syslog.rs
//!                                        ├─► file.rs ─► queue.rs: one open file for a path
//! access.rs ─► format.rs ─┬─► buffer.rs ─┘
//!                         ├─► named.rs: files whose path has variables
//!                         └─► syslog.rs: servers that take datagrams
//! stamp.rs: the times that all write; loss.rs: what was lost
//! ```

pub mod access;
pub mod buffer;
pub mod error;
pub mod file;
pub mod format;
pub mod loss;
pub mod named;
pub mod queue;
pub mod stamp;
pub mod syslog;
