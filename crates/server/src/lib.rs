//! The program around the proxy: the tables of directives, the process with its workers, and all
//! ways to ask and tell it things.
//!
//! ```text
//! source ──► directives (a tree to Conf) ──► server (workers, signals) ──► requests: proxy
//!    │                                          ▲
//!    └──► lint, explain: no process     control, handler, metrics: questions to it
//! ```

pub mod control;
pub mod directives;
pub mod explain;
pub(crate) mod handler;
pub mod lint;
pub mod metrics;
pub mod pid;
pub(crate) mod reaches;
pub mod root_process;
pub mod server;
pub mod sockets;
pub mod source;
pub(crate) mod telemetry;
pub(crate) mod variables;
