//! Logs of the process: where lines go, and the error log.
//!
//! ```text
//! error.rs ─┬─► file.rs ─► queue.rs        (one open file for a path)
//!           ├─► syslog.rs, journal.rs
//!           └─► listener.rs                (who hears the lines of all of them)
//! buffer.rs, turn.rs, named.rs ─► file.rs  (lines that are collected, or whose files have names)
//! stamp.rs: the times that all write; loss.rs: what was lost
//! ```
//!
//! What is written about requests is put together by the crate above.

pub mod buffer;
pub mod error;
pub mod file;
pub mod journal;
pub mod listener;
pub mod loss;
pub mod named;
pub(crate) mod queue;
pub mod stamp;
pub mod syslog;
pub mod turn;
