//! Parts of an exchange: who asks, what is answered, under which settings, and what is counted.
//!
//! ```text
//! client (connection, wire, carrier) ──► an exchange, which the crate above serves ──► response
//!                                              │ obeys            │ counts in
//!                                        scope, settings        stats, trace
//! ```
//!
//! Nothing here serves a request: the crate above has requests, phases and handlers.

pub mod client;
pub mod counters;
pub mod descriptors;
pub mod expression;
pub mod failure;
pub mod protocol;
pub mod provenance;
pub mod response;
pub mod scope;
pub mod settings;
pub mod stats;
pub mod trace;
pub mod worker;
