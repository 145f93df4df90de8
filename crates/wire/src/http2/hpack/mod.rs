//! HPACK: the compression of fields (RFC 7541).
//!
//! ```text
//! block ──► decode::Decoder ──► name, value   (static_table, table, huffman)
//! fields ─► encode::Encoder ──► block
//! ```
//!
//! Each direction of a connection has a dynamic table of its own (`table::Table`); both ends
//! change theirs alike, so every block must be read, also one that nobody wants.
//!
//! 1. No input makes a decoder panic, loop, or keep more than its bounds allow.
//! 2. A text that is too long is refused before memory is taken for it.
//! 3. What a table costs is what RFC 7541 §4.1 says it costs, give or take a factor of two.
//!
//! Which names and values are good is noted here ([`name`]) and judged elsewhere.

pub mod decode;
pub mod encode;
pub mod huffman;
pub(crate) mod integer;
pub mod name;
pub(crate) mod policy;
pub(crate) mod static_table;
pub(crate) mod table;

#[cfg(test)]
mod tests;
