//! A server and a client of this crate, with nothing but memory between them.
//!
//! `pair` has both ends; the other files are named after what they show.

mod agree;
mod carry;
mod pair;
mod quic;
mod record;
mod refuse;
mod resume;
