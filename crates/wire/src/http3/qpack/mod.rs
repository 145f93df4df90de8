//! QPACK: the compression of fields for streams that come in any order (RFC 9204).
//!
//! ```text
//!              instructions                        acknowledgements
//! encoder ─── encoder stream ───► table of the decoder ─── decoder stream ───► encoder
//!    └─────── blocks of fields ──► decode::Decoder ──► name, value
//! ```
//!
//! Each direction has a dynamic table, which both ends change alike; a block says how many
//! insertions it needs, and waits for them.
//!
//! 1. No input makes a decoder or an encoder panic, loop, or keep more than its bounds allow.
//! 2. A text that is too long is refused before memory is taken for it.
//! 3. No entry goes that a block refers to which was not acknowledged, nor one whose insertion was
//!    not (§2.1.1).
//!
//! Names, values, Huffman's code and the memory of a table are those of HPACK
//! ([`crate::http2::hpack`]).

pub mod decode;
pub mod encode;
pub(crate) mod integer;
pub(crate) mod static_table;

pub use decode::BadBlock;

#[cfg(test)]
mod tests;
