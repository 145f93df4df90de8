//! `brotli` and its directives: compression of answers by brotli while they are sent (RFC 7932).
//!
//! The names and defaults are those of the module ngx_brotli; `coding` chooses between codings.

use std::io::{self, Write};

use ::brotli::CompressorWriter;
use millpond_conf::{ArgError, Args, Buffers, ByteSize, FromArgs};
use millpond_semantics::accept_encoding::Coding;

use super::coding;
use super::compressor::{Compressor, Level};
use crate::var::Variable;
use millpond_exchange::response::type_set::TypeSet;

/// The size of the compressor's own buffer for what comes out.
const BUFFER: usize = 4096;
/// The smallest and largest window, as powers of two (RFC 7932 §9.1).
const WINDOW_BITS: std::ops::RangeInclusive<u32> = 10..=24;

/// Settings of the compression by brotli.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct BrotliPolicy {
    /// Compresses answers by brotli, for clients that take it.
    ///
    /// A client that takes several codings gets the one that it gives the highest quality; of
    /// equals brotli before zstd before gzip. `gzip_vary` makes answers say so in Vary.
    #[directive(
        name = "brotli",
        default = "off",
        contexts(http, server, location, if_location)
    )]
    pub enabled: bool,
    /// The media types that are compressed by brotli, beside text/html.
    #[directive(name = "brotli_types", default = "text/html", repeat)]
    pub types: Vec<TypeSet>,
    /// Effort of the compression, from 0 (fast) to 11 (small, and slower by a factor of hundreds).
    #[directive(name = "brotli_comp_level", default = "6")]
    pub level: Level<0, 11>,
    /// Distance within which repeated text is looked for.
    #[directive(name = "brotli_window", default = "512k")]
    pub window: Window,
    /// The shortest answer of known length that is compressed by brotli.
    #[directive(name = "brotli_min_length", default = "20")]
    pub min_length: ByteSize,
    /// Number and size of buffers.
    ///
    /// The memory of one answer is bounded without it; the value is only checked.
    #[directive(name = "brotli_buffers", default = "32 4k")]
    pub buffers: Buffers,
}

/// The size of the window, as a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(u32);

impl FromArgs for Window {
    const SYNTAX: &'static str = "size";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        args.one()?;
        let ByteSize(size) = args.word(0)?;
        let bits = size.trailing_zeros();
        if size.is_power_of_two() && WINDOW_BITS.contains(&bits) {
            Ok(Window(bits))
        } else {
            Err(ArgError::value(0, "must be a power of two from 1k to 16m"))
        }
    }
}

/// The variables of this file.
pub const VARIABLES: &[Variable] = &[Variable {
    name: "brotli_ratio",
    doc: "How many times longer the answer was before its compression by brotli, with two decimals.",
    write: |req, out| coding::write_ratio(req, Coding::Brotli, out),
}];

/// Plan by which an answer is compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(super) level: u32,
    pub(super) window_bits: u32,
}

impl Plan {
    /// The plan for an answer of that length: a short one needs no larger window than itself.
    pub(crate) fn new(policy: &BrotliPolicy, length: Option<u64>) -> Self {
        let needed = length.map_or(u32::MAX, |length| {
            // The last 16 bytes of a window are not used (RFC 7932 §9.1).
            u64::BITS - length.saturating_add(16).leading_zeros()
        });
        Plan {
            level: policy.level.0,
            window_bits: policy.window.0.min(needed.max(*WINDOW_BITS.start())),
        }
    }

    /// The compressor of the answer's body.
    pub(crate) fn compressor(&self) -> Brotli {
        let writer = CompressorWriter::new(Vec::new(), BUFFER, self.level, self.window_bits);
        Brotli(Some(writer))
    }
}

/// A stream of brotli, until its end.
pub(crate) struct Brotli(Option<CompressorWriter<Vec<u8>>>);

impl Compressor for Brotli {
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.run(out, |writer| writer.write_all(input))
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.run(out, Write::flush)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if let Some(writer) = self.0.take() {
            out.append(&mut writer.into_inner());
        }
        Ok(())
    }
}

impl Brotli {
    /// Writes, and takes what comes out.
    fn run(
        &mut self,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut CompressorWriter<Vec<u8>>) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(writer) = &mut self.0 {
            write(writer)?;
            out.append(writer.get_mut());
        }
        Ok(())
    }
}
