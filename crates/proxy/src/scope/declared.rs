//! What the http block declares by name: log formats, upstream groups, cache zones.
//!
//! One field for each kind; the type stands in the file that uses it.

/// Declarations of an http block.
#[derive(Debug, Default)]
pub struct Declared {}
