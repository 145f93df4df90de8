//! Validators that name a version of a resource, and their comparison with answers.
//!
//! Bytes of two answers may be put together only if both have the same strong validator (RFC 9110
//! §15.3.7.3): an entity tag that is not weak, or a Last-Modified that lies before the answer's
//! Date, so that a change after it would have another (§8.8.2.2).

use bytes::Bytes;
use millpond_semantics::date::parse_http_date;

use super::Trust;
use crate::exchange::{Fetched, field};
use crate::head::StoredHead;

/// Name of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validator {
    /// A strong entity tag.
    Tag(Bytes),
    /// A Last-Modified that is strong.
    Date(Bytes),
    /// Nothing but the total length.
    Length,
}

impl Validator {
    /// The strong validator of an answer; `None` when its version cannot be told.
    pub fn of<F: Fetched>(fetched: &F, trust: Trust) -> Option<Validator> {
        Validator::strong(&|name| field(fetched, name), trust)
    }

    /// The strong validator of a stored head; `None` when its version cannot be told.
    pub fn of_head(head: &StoredHead, trust: Trust) -> Option<Validator> {
        Validator::strong(&|name| head.field(name), trust)
    }

    fn strong(field: &dyn Fn(&[u8]) -> Option<Bytes>, trust: Trust) -> Option<Validator> {
        if let Some(tag) = field(b"etag") {
            return is_strong(&tag).then_some(Validator::Tag(tag));
        }
        let Some(modified) = field(b"last-modified") else {
            return (trust == Trust::Unvalidated).then_some(Validator::Length);
        };
        let date = field(b"date").and_then(|date| parse_http_date(&date))?;
        let time = parse_http_date(&modified)?;
        // RFC 9110 §8.8.2.2: at least a second later.
        (time < date).then_some(Validator::Date(modified))
    }

    /// The validator of an entry in slices.
    pub fn stored(head: &StoredHead) -> Validator {
        if let Some(tag) = head.field(b"etag") {
            return Validator::Tag(tag);
        }
        match head.field(b"last-modified") {
            Some(modified) => Validator::Date(modified),
            None => Validator::Length,
        }
    }

    /// Value for If-Range.
    pub fn if_range(&self) -> Option<Bytes> {
        match self {
            Validator::Tag(value) | Validator::Date(value) => Some(value.clone()),
            Validator::Length => None,
        }
    }

    /// True if a partial answer is of this version, as far as its fields say.
    pub fn names<F: Fetched>(&self, fetched: &F) -> bool {
        match self {
            Validator::Tag(tag) => field(fetched, b"etag").as_ref() == Some(tag),
            Validator::Date(modified) => {
                field(fetched, b"etag").is_none()
                    && field(fetched, b"last-modified").as_ref() == Some(modified)
            }
            Validator::Length => {
                field(fetched, b"etag").is_none() && field(fetched, b"last-modified").is_none()
            }
        }
    }
}

/// RFC 9110 §8.8.3: a tag is quoted, and weak with `W/` before it.
fn is_strong(tag: &[u8]) -> bool {
    tag.len() >= 2 && tag.starts_with(b"\"") && tag.ends_with(b"\"")
}
