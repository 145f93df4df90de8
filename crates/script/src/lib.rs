//! Scripts in the language of nginx's njs: modules, an engine for each worker, and the objects that
//! scripts see.
//!
//! ```text
//! Program   modules as they were read at start; shared by all workers
//!    │
//! Engine    one QuickJS runtime of a worker: memory, time, idle contexts
//!    │
//! Instance  a context with the program's modules, lent to one request at a time
//!    │
//! Host      the request, as the server shows it
//! ```
//!
//! A call runs until the script has ended or waits. What it waits for (a timer, a subrequest) is an
//! [`Operation`] that the host has been given; its end is told by [`Instance::resume`]. Nothing
//! here waits, opens sockets or reads a clock of its own; but for files, which scripts ask for.
//!
//! Invariants:
//! 1. A turn of a script ends within its [`Limits`]; one that was cut off is never continued.
//! 2. When a turn is over no job of it is left, so that none runs in the turn of another request.
//! 3. A script reaches only the request whose turn it is.

mod deflate;
mod derive;
pub mod dict;
pub mod engine;
pub mod fault;
mod files;
mod hash;
pub mod host;
mod modules;
mod natives;
mod prelude;
pub mod program;
mod subtle;
pub mod url;
mod xml;

#[cfg(test)]
mod tests;

pub use dict::{Dict, DictSpec};
pub use engine::{Engine, Entry, Errand, Ground, Instance, Limits, Part, Turn};
pub use fault::Fault;
pub use host::{
    Bound, Cached, Fetch, Fetched, Form, Header, Host, Level, Operation, Order, Purge, Reply,
    Ruling, SessionOrder, Side, Text,
};
pub use program::{Import, Lines, LoadError, Program};
pub use url::{Forward, Url, UrlError};
