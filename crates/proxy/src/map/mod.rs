//! `map`, `split_clients`, `geo`, `geoip2`: variables computed from other values.
//!
//! A block of this kind defines a variable; a [`Lookup`] computes it when the variable is read,
//! once for a request unless the block says otherwise.
//!
//! Invariants:
//! 1. Evaluation cannot fail; what matches nothing is the default, else empty.
//! 2. Blocks may use one another's variables; `var/mod.rs` bounds how deep.

mod geo;
mod geoip2;
mod select;
mod split;

use bytes::Bytes;
use millpond_conf::Contexts;

use crate::request::Request;
use crate::var::Computed;
use millpond_exchange::scope::block::{Pass, Row};

pub use geo::Geo;
pub use geoip2::Geoip2;
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
    Row {
        name: "geoip2",
        contexts: Contexts::HTTP.union(Contexts::STREAM),
        syntax: "file { … }",
        is_block: true,
        pass: Pass::First,
        doc: "Defines variables that tell something of the client's address, out of a database in \
              MaxMind's format (`.mmdb`). A line is `$variable [default=value] [source=$address] \
              name …`, where the names lead to a value of the address's record, and a number to a \
              place of a list: `$geoip2_country default=XX country iso_code`. `$variable metadata \
              build_epoch`, `last_check` or `last_change` tell of the database itself. \
              `auto_reload time` has the file looked at again, at most that often, and read when \
              it has changed; one that cannot be used is told in the error log, and what was \
              read before stays. The file is kept in memory.\n\n# Differs from nginx\n\nThe \
              directives are those of ngx_http_geoip2_module. A value of 128 bits is none, and a \
              value that is not there is empty.",
        apply: geoip2::geoip2,
    },
    Row {
        name: "geoip2_proxy",
        contexts: Contexts::HTTP,
        syntax: "network",
        is_block: false,
        pass: Pass::First,
        doc: "Proxies whose word for the client's address (X-Forwarded-For) `geoip2` takes.",
        apply: geoip2::proxy,
    },
    Row {
        name: "geoip2_proxy_recursive",
        contexts: Contexts::HTTP,
        syntax: "on | off",
        is_block: false,
        pass: Pass::First,
        doc: "Passes over the addresses of such proxies in the field, too.",
        apply: geoip2::recursive,
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
    /// `geoip2`.
    Geoip2(Geoip2),
}

impl Computed for Lookup {
    fn evaluate(&self, req: &mut Request) -> Bytes {
        match self {
            Lookup::Map(map) => map.evaluate(req),
            Lookup::SplitClients(split) => split.evaluate(req),
            Lookup::Geo(geo) => geo.evaluate(req),
            Lookup::Geoip2(variable) => variable.evaluate(req),
        }
    }

    fn is_cached(&self) -> bool {
        match self {
            Lookup::Map(map) => !map.is_volatile(),
            Lookup::SplitClients(_) | Lookup::Geoip2(_) => true,
            Lookup::Geo(geo) => !geo.is_volatile(),
        }
    }
}
