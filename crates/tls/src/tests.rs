//! A server and a client of this crate, with nothing but memory between them.

mod agree;
mod pair;
