//! Logs: errors, requests, and exchanges with upstreams.
//!
//! ```text
//! access.rs, upstream.rs ─► line.rs, format.rs ─┬─► buffer.rs ─┬─► file.rs ─► queue.rs
//!                                               ├─► turn.rs ───┤   (one open file for a path)
//!                                               ├─► named.rs   │
//! error.rs ─────────────────────────────────────┼──────────────┘
//!                                               └─► syslog.rs
//! stamp.rs: the times that all write; loss.rs: what was lost
//! ```

pub mod access;
pub mod buffer;
pub mod error;
pub mod file;
pub mod format;
pub mod line;
pub mod loss;
pub mod named;
pub mod queue;
pub mod stamp;
pub mod syslog;
pub mod turn;
pub mod upstream;
