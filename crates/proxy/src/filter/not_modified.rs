//! The answer 304 to a client that has the same already, and 412 to one that wanted something else.
//!
//! Only answers with status 200 are conditional. `if_modified_since` is obeyed here.
//!
//! Sources: RFC 9110 §13; nginx ngx_http_not_modified_header_filter.

use millpond_semantics::conditional::{Dates, Outcome, Preconditions, evaluate, evaluate_by_rfc};
use millpond_semantics::date::parse_http_date;

use super::Refusal;
use crate::body::Body;
use crate::header::{Known, KnownSet};
use crate::request::Request;
use crate::response::{RangeRule, Response};

/// The fields with conditions, less If-Range, which is about ranges.
const CONDITIONS: KnownSet = KnownSet::of(&[
    Known::IfMatch,
    Known::IfNoneMatch,
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
]);

/// What a 304 does not say again.
const NOT_REPEATED: KnownSet = KnownSet::of(&[
    Known::ContentType,
    Known::AcceptRanges,
    Known::ContentEncoding,
]);

/// What the conditions of the request say of an answer.
pub fn outcome(req: &Request, response: &Response) -> Outcome {
    let is_conditional = req.head.has_any(CONDITIONS);
    if !is_conditional || response.status != 200 || response.skip_conditionals {
        return Outcome::Proceed;
    }
    let pre = Preconditions {
        if_match: req.field(Known::IfMatch),
        if_none_match: req.field(Known::IfNoneMatch),
        if_modified_since: req.field(Known::IfModifiedSince),
        if_unmodified_since: req.field(Known::IfUnmodifiedSince),
    };
    let etag = response.fields.get(Known::ETag).map(|tag| &tag[..]);
    let mode = req.location.settings.static_files.if_modified_since.rule();
    match response.conditions_by_rfc {
        true => evaluate_by_rfc(&pre, etag, dates(response)),
        false => evaluate(&pre, etag, response.last_modified, mode),
    }
}

/// Evaluates the conditions of the request.
pub fn run(req: &Request, response: &mut Response) -> Result<(), Refusal> {
    match outcome(req, response) {
        Outcome::Proceed => Ok(()),
        Outcome::PreconditionFailed => Err(Refusal {
            status: 412,
            content_range: None,
        }),
        Outcome::NotModified => {
            become_not_modified(response);
            Ok(())
        }
    }
}

fn dates(response: &Response) -> Dates {
    let date = response.fields.get(Known::Date);
    Dates {
        last_modified: response.last_modified,
        date: date.and_then(|date| parse_http_date(date)),
    }
}

fn become_not_modified(response: &mut Response) {
    response.status = 304;
    response.status_text = None;
    response.length = None;
    response.body = Body::Empty;
    response.ranges = RangeRule::Refused;
    response.fields.remove_all(NOT_REPEATED);
}
