//! `api` and `status_zone`: what the process tells of itself is what its document says, and what
//! happened.
//!
//! - `bench`: the proxy, and how it is asked
//! - `schema`: whether a value is what a schema of the document describes
//! - `answers`: every answer of the document, in use
//! - `counts`: counters against known traffic
//! - `rights`: who may do what
//! - `servers`: servers of groups, changed while they are asked
//! - `own`: lists, fills and purges
//! - `fuzz`: requests that the document describes, and many that it does not

mod answers;
mod bench;
mod counts;
mod fuzz;
mod own;
mod rights;
mod schema;
mod servers;
