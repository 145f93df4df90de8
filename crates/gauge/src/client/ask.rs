//! A request: the resource, the part of it that is wanted, and what of the answer is right.
//!
//! It says nothing of a version of HTTP: `http1` and `http2` write it as theirs has it.

use std::borrow::Cow;
use std::sync::Arc;

use super::head::Method;
use crate::resource::Resource;

/// Part of a resource that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All.
    Whole,
    /// The bytes from an offset up to another (excluded).
    Part(u64, u64),
    /// The bytes from an offset to the end.
    From(u64),
    /// The last so many bytes.
    Last(u64),
}

impl Want {
    /// Start and end (excluded) of what must come of `len` bytes.
    pub fn piece(self, len: u64) -> (u64, u64) {
        match self {
            Self::Whole => (0, len),
            Self::Part(start, end) => (start.min(len), end.min(len)),
            Self::From(start) => (start.min(len), len),
            Self::Last(count) => (len.saturating_sub(count), len),
        }
    }

    /// Value of `Range`.
    pub(super) fn field(self) -> Option<String> {
        match self {
            Self::Whole => None,
            Self::Part(start, end) => Some(format!("bytes={start}-{}", end.saturating_sub(1))),
            Self::From(start) => Some(format!("bytes={start}-")),
            Self::Last(count) => Some(format!("bytes=-{count}")),
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Resource that is asked for.
    pub resource: Resource,
    /// Part of the resource that is wanted.
    pub want: Want,
    /// Method; only the answers of GET have a body that is compared.
    pub method: Cow<'static, str>,
    /// Cache statuses that are right; empty: any.
    pub statuses: &'static [&'static str],
    /// The oldest generation that is right.
    pub oldest: u64,
    /// Bytes of the whole body, if it is not the built-in origin's.
    pub given: Option<Arc<Vec<u8>>>,
}

impl Ask {
    /// A GET of the whole.
    pub fn get(resource: &Resource) -> Self {
        Self {
            resource: resource.clone(),
            want: Want::Whole,
            method: "GET".into(),
            statuses: &[],
            oldest: 0,
            given: None,
        }
    }

    /// Request for a piece of a resource.
    pub fn part(resource: &Resource, want: Want) -> Self {
        Self {
            want,
            ..Self::get(resource)
        }
    }

    /// Part of the method that matters for the answer.
    pub(super) fn kind(&self) -> Method {
        match &*self.method {
            "HEAD" => Method::Head,
            _ => Method::Other,
        }
    }
}
