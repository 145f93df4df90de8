//! `map`, `split_clients`: variables computed from other values.

use bytes::Bytes;

use crate::request::Request;

/// A block that computes a variable.
#[derive(Debug)]
pub enum Lookup {}

impl Lookup {
    /// The value for this request.
    pub fn evaluate(&self, _req: &mut Request) -> Bytes {
        match *self {}
    }

    /// True when the value is computed once for a request.
    pub fn is_cached(&self) -> bool {
        match *self {}
    }
}
