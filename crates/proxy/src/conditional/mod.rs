//! Conditions and ranges of requests, weighed against an answer (RFC 9110 §13, §14).
//!
//! The filters change the answer by them; the cache asks before it reads a body, so that it begins
//! with the bytes that are wanted. Both ask here, so that they never differ.

pub mod not_modified;
pub(crate) mod range;

use bytes::Bytes;
use millpond_wire::header::{Fields, Known};

use crate::request::Request;
use millpond_exchange::response::{DIGESTS, RangeRule, Response};

/// The request must be answered with an error instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 412, 416, or 500.
    pub status: u16,
    /// The Content-Range of the error's answer.
    pub content_range: Option<Bytes>,
}

impl Refusal {
    /// The refusal of an answer for which an expression of the filters gave up; to be asked after
    /// they have run.
    pub fn of_expressions(req: &Request) -> Result<(), Refusal> {
        req.heed_expressions().map_err(|failure| Refusal {
            status: failure.status(),
            content_range: None,
        })
    }

    /// The fields of the refused answer that its replacement gets too. nginx: a range that cannot
    /// be satisfied keeps what was said of the answer, less what describes its body.
    pub fn take_fields(&self, refused: &mut Response) -> Fields {
        let mut fields = std::mem::take(&mut refused.fields);
        fields.retain(|field| self.status == 416 && !describes_body(field.known));
        fields
    }

    /// Makes an answer to the refusal fit to be sent in place of the refused one.
    pub fn complete(self, response: &mut Response) {
        // The answer that replaces a refused one is neither conditional nor cut.
        response.conditions.are_skipped = true;
        response.parts.rule = RangeRule::Refused;
        if let Some(value) = self.content_range {
            response.fields.set(Known::ContentRange, value);
        }
    }
}

fn describes_body(known: Known) -> bool {
    matches!(
        known,
        Known::ContentType
            | Known::ContentEncoding
            | Known::ContentRange
            | Known::AcceptRanges
            | Known::LastModified
            | Known::ETag
    ) || DIGESTS.contains(known)
}
