//! `map`, `split_clients`, `geo`: variables computed from other values.
//!
//! A block of this kind defines a variable; a [`Lookup`] computes it when the variable is read,
//! once for a request unless the block says otherwise.
//!
//! Invariants:
//! 1. Evaluation cannot fail; what matches nothing is the default, else empty.
//! 2. Blocks may use one another's variables; `var/mod.rs` bounds how deep.

mod geo;
mod select;
mod split;

use bytes::Bytes;
use millpond_conf::Contexts;

use crate::request::Request;
use crate::scope::block::{Pass, Row};
use crate::var::Computed;

pub use geo::Geo;
pub use select::Map;
pub use split::SplitClients;

/// Rows of the blocks.
pub const ROWS: &[Row] = &[
    Row {
        name: "map",
        contexts: Contexts::HTTP.union(Contexts::STREAM),
        syntax: "string $variable { … }",
        is_block: true,
        pass: Pass::First,
        doc: "Defines a variable whose value is chosen by the value of a string.",
        apply: select::map,
    },
    Row {
        name: "split_clients",
        contexts: Contexts::HTTP.union(Contexts::STREAM),
        syntax: "string $variable { … }",
        is_block: true,
        pass: Pass::First,
        doc: "Defines a variable that has each of several values for a share of all strings.",
        apply: split::split_clients,
    },
    Row {
        name: "geo",
        contexts: Contexts::HTTP.union(Contexts::STREAM),
        syntax: "[$address] $variable { … }",
        is_block: true,
        pass: Pass::First,
        doc: "Defines a variable whose value is chosen by the client's address.",
        apply: geo::geo,
    },
];

/// A block that computes a variable.
#[derive(Debug)]
pub enum Lookup {
    /// `map`.
    Map(Map),
    /// `split_clients`.
    SplitClients(SplitClients),
    /// `geo`.
    Geo(Geo),
}

impl Computed for Lookup {
    fn evaluate(&self, req: &mut Request) -> Bytes {
        match self {
            Lookup::Map(map) => map.evaluate(req),
            Lookup::SplitClients(split) => split.evaluate(req),
            Lookup::Geo(geo) => geo.evaluate(req),
        }
    }

    fn is_cached(&self) -> bool {
        match self {
            Lookup::Map(map) => !map.is_volatile(),
            Lookup::SplitClients(_) => true,
            Lookup::Geo(geo) => !geo.is_volatile(),
        }
    }
}
