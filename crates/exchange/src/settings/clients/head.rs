//! `client_header_timeout`, `client_header_buffer_size`, `large_client_header_buffers`,
//! `ignore_invalid_headers`, `underscores_in_headers`, `max_headers`, `merge_slashes`: heads of
//! requests.

use std::time::Duration;

use millpond_conf::ByteSize;

use millpond_wire::http1::request::{InvalidNames, Limits, Reading, Underscores};

/// The way in which heads are read; obeyed before the server is known, so the default server's
/// values count.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server)]
pub struct HeadPolicy {
    /// The time in which a client must send a whole request head.
    #[directive(name = "client_header_timeout", default = "60s")]
    pub timeout: Duration,
    /// The first buffer of a request head; enough for most.
    #[directive(name = "client_header_buffer_size", default = "1k")]
    pub buffer_size: ByteSize,
    /// Number and size of the buffers of long heads: a request line or a field must fit into one,
    /// the whole head into all of them.
    #[directive(name = "large_client_header_buffers", default = "4 8k")]
    pub large_buffers: millpond_conf::Buffers,
    /// True if fields with invalid names are ignored; else the request is refused.
    #[directive(name = "ignore_invalid_headers", default = "on")]
    pub ignore_invalid: bool,
    /// True if names with underscores are valid.
    #[directive(name = "underscores_in_headers", default = "off")]
    pub underscores: bool,
    /// The largest number of fields of a request.
    #[directive(name = "max_headers", default = "1000")]
    pub max_fields: u32,
    /// True if adjacent slashes of a path are merged into one.
    #[directive(name = "merge_slashes", default = "on")]
    pub merge_slashes: bool,
}

impl HeadPolicy {
    /// The bounds of a request head.
    pub fn limits(&self, reading: Reading) -> Limits {
        let line = self.large_buffers.size.0 as usize;
        Limits {
            first: self.buffer_size.0 as usize,
            line,
            total: line.saturating_mul(self.large_buffers.count as usize),
            fields: self.max_fields as usize,
            underscores: if self.underscores {
                Underscores::Allow
            } else {
                Underscores::Ignore
            },
            invalid: if self.ignore_invalid {
                InvalidNames::Ignore
            } else {
                InvalidNames::Keep
            },
            reading,
        }
    }
}
