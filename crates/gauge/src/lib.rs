//! `gauge`: loads, verifies and compares caching HTTP proxies.
//!
//! ```text
//! origin ◄── server under test ◄── users of a module ──► record ──► report ──► limits
//!  counts what it is asked           check every byte      times, faults, claims
//! ```
//!
//! | module | what |
//! |---|---|
//! | `content`, [`resource`] | what a body must be |
//! | [`origin`] | the built-in origin |
//! | [`client`] | a connection that checks what comes |
//! | [`load`] | users, and what they saw |
//! | [`module`] | what users do |
//! | [`report`] | what came of it |
//! | [`plan`] | a document that says what is wanted |
//! | [`process`] | what the kernel knows of a server's processes |
//! | `compare` | two servers in turn on one configuration |
//! | [`crowd`] | many connections on one thread, times in microseconds |
//! | `certificate` | certificates of its own making |
//! | `command`, `unit` | the command line |
//!
//! It knows nothing of the server that it judges but HTTP, and imports none of its code.

mod certificate;
pub mod client;
mod command;
mod compare;
pub(crate) mod content;
pub mod crowd;
pub mod load;
pub mod module;
pub mod origin;
pub mod plan;
pub mod process;
pub mod report;
pub mod resource;
mod unit;

pub use command::{compare, run};
pub use compare::{Comparison, Round};
