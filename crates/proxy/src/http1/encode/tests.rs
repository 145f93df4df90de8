//! Heads that are written.
