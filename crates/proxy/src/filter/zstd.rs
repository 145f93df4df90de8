//! `zstd` and its directives: compression of answers by Zstandard while they are sent (RFC 8878).
//!
//! The names and defaults are those of zstd-nginx-module; `coding` chooses between codings.

use std::io::{self, Write};

use ::zstd::stream::write::Encoder;
use millpond_conf::{Buffers, ByteSize};
use millpond_semantics::accept_encoding::Coding;

use super::coding;
use super::compressor::{Compressor, Level};
use crate::var::Variable;
use millpond_exchange::response::type_set::TypeSet;

/// The largest window that readers of the content coding must have room for, as a power of two
/// (RFC 9659 §3).
const WINDOW_BITS_MOST: u32 = 23;
/// The first level whose window would be larger than that.
const FIRST_TOO_WIDE: i32 = 20;

/// Settings of the compression by zstd.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct ZstdPolicy {
    /// Compresses answers by Zstandard, for clients that take it.
    ///
    /// A client that takes several codings gets the one that it gives the highest quality; of
    /// equals brotli before zstd before gzip. `gzip_vary` makes answers say so in Vary.
    #[directive(
        name = "zstd",
        default = "off",
        contexts(http, server, location, if_location)
    )]
    pub enabled: bool,
    /// The media types that are compressed by zstd, beside text/html.
    #[directive(name = "zstd_types", default = "text/html", repeat)]
    pub types: Vec<TypeSet>,
    /// Effort of the compression, from 1 (fast) to 22 (small).
    #[directive(name = "zstd_comp_level", default = "1")]
    pub level: Level<1, 22>,
    /// The shortest answer of known length that is compressed by zstd.
    #[directive(name = "zstd_min_length", default = "20")]
    pub min_length: ByteSize,
    /// Number and size of buffers.
    ///
    /// The memory of one answer is bounded without it; the value is only checked.
    #[directive(name = "zstd_buffers", default = "32 4k")]
    pub buffers: Buffers,
}

/// The variables of this file.
pub const VARIABLES: &[Variable] = &[Variable {
    name: "zstd_ratio",
    doc: "How many times longer the answer was before its compression by zstd, with two decimals.",
    write: |req, out| coding::write_ratio(req, Coding::Zstd, out),
}];

/// Plan by which an answer is compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(super) level: i32,
    pub(super) length: Option<u64>,
}

impl Plan {
    /// The plan for an answer of that length.
    pub(crate) fn new(policy: &ZstdPolicy, length: Option<u64>) -> Self {
        Plan {
            level: policy.level.0.cast_signed(),
            length,
        }
    }

    /// The compressor of the answer's body.
    pub(crate) fn compressor(self) -> Zstd {
        Zstd::Planned(self)
    }

    fn encoder(&self) -> io::Result<Encoder<'static, Vec<u8>>> {
        let mut encoder = Encoder::new(Vec::new(), self.level)?;
        // A short body needs less memory.
        encoder.set_pledged_src_size(self.length)?;
        if self.level >= FIRST_TOO_WIDE {
            encoder.window_log(WINDOW_BITS_MOST)?;
        }
        Ok(encoder)
    }
}

/// A stream of zstd. Its encoder can fail to get its memory, and then costs the answer.
pub(crate) enum Zstd {
    /// Nothing has come.
    Planned(Plan),
    /// The body comes.
    Running(Encoder<'static, Vec<u8>>),
}

impl Compressor for Zstd {
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.run(out, |encoder| encoder.write_all(input))
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.run(out, Write::flush)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.run(out, Encoder::do_finish)
    }
}

impl Zstd {
    /// Writes, and takes what comes out.
    fn run(
        &mut self,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Encoder<'static, Vec<u8>>) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Zstd::Planned(plan) = self {
            *self = Zstd::Running(plan.encoder()?);
        }
        if let Zstd::Running(encoder) = self {
            write(encoder)?;
            out.append(encoder.get_mut());
        }
        Ok(())
    }
}
