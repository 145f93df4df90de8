//! The answer 304 to a client that has the same already, and 412 to one that wanted something else.
//!
//! Only answers with status 200 are conditional. `if_modified_since` is obeyed here.
//!
//! Sources: RFC 9110 §13; nginx ngx_http_not_modified_header_filter.

use millpond_semantics::conditional;
use std::borrow::Cow;

use millpond_semantics::conditional::{Dates, Outcome, Preconditions, evaluate, evaluate_by_rfc};
use millpond_semantics::date::parse_http_date_by_rfc;
use millpond_system::body::Body;
use millpond_wire::header::{Known, KnownSet};

use super::Refusal;
use crate::request::Request;
use millpond_exchange::response::{CONTENT_DIGESTS, RangeRule, Response};
use millpond_exchange::scope::parts::{Part, Place};

/// Settings of conditions and ranges.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct ConditionPolicy {
    /// Comparison of If-Modified-Since with the time of the last change.
    #[directive(name = "if_modified_since", default = "exact")]
    pub if_modified_since: IfModifiedSince,
    /// The most ranges that a request may ask for; more are answered with the whole, and 0 allows
    /// none.
    #[directive(name = "max_ranges")]
    pub max_ranges: Option<u32>,
}

impl Part for ConditionPolicy {
    const PLACE: Place = Place::Conditions;
}

/// The comparison of If-Modified-Since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum IfModifiedSince {
    /// Dates are not compared: the answer always counts as modified.
    #[word("off")]
    Off,
    /// Unmodified when the times are equal.
    #[word("exact")]
    Exact,
    /// Unmodified when the last change is not later.
    #[word("before")]
    Before,
}

impl IfModifiedSince {
    /// The rule for [`conditional::evaluate`].
    pub fn rule(self) -> conditional::IfModifiedSince {
        match self {
            IfModifiedSince::Off => conditional::IfModifiedSince::Off,
            IfModifiedSince::Exact => conditional::IfModifiedSince::Exact,
            IfModifiedSince::Before => conditional::IfModifiedSince::Before,
        }
    }
}

/// The fields with conditions, less If-Range, which is about ranges.
const CONDITIONS: KnownSet = KnownSet::of(&[
    Known::IfMatch,
    Known::IfNoneMatch,
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
]);

/// Fields that a 304 does not repeat.
const NOT_REPEATED: KnownSet = KnownSet::of(&[
    Known::ContentType,
    Known::AcceptRanges,
    Known::ContentEncoding,
]);

/// Outcome of the request's conditions for an answer.
pub(crate) fn outcome(req: &Request, response: &Response) -> Outcome {
    let is_conditional = req.head.has_any(CONDITIONS);
    if !is_conditional || response.status != 200 || response.conditions.are_skipped {
        return Outcome::Proceed;
    }
    let etag = response.fields.get(Known::ETag).map(|tag| &tag[..]);
    // RFC 9110 §5.3: lines of a list are one list. Where nginx's rules hold, there is only one.
    let (matches, none_matches) = (list(req, Known::IfMatch), list(req, Known::IfNoneMatch));
    let pre = Preconditions {
        if_match: matches.as_deref(),
        if_none_match: none_matches.as_deref(),
        if_modified_since: req.field(Known::IfModifiedSince),
        if_unmodified_since: req.field(Known::IfUnmodifiedSince),
    };
    let mode = req
        .location
        .settings
        .of::<ConditionPolicy>()
        .if_modified_since
        .rule();
    if response.conditions.are_by_rfc {
        evaluate_by_rfc(&pre, etag, dates(req, response))
    } else {
        evaluate(&pre, etag, response.last_modified, mode)
    }
}

/// All values of a field as one.
fn list(req: &Request, known: Known) -> Option<Cow<'_, [u8]>> {
    let mut lines = req.head.get_all(known);
    let mut list = Cow::Borrowed(lines.next()?);
    for line in lines {
        let joined = list.to_mut();
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(line);
    }
    Some(list)
}

/// Evaluates the conditions of the request.
pub(crate) fn run(req: &Request, response: &mut Response) -> Result<(), Refusal> {
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

/// The times of an answer, as the RFC's rules need them.
pub(super) fn dates(req: &Request, response: &Response) -> Dates {
    let (date, now) = (response.fields.get(Known::Date), req.now_s());
    Dates {
        last_modified: response.last_modified,
        date: date.and_then(|date| parse_http_date_by_rfc(date, now)),
        now,
    }
}

fn become_not_modified(response: &mut Response) {
    response.status = 304;
    response.orders.status_text = None;
    response.length = None;
    response.body = Body::Empty;
    response.parts.rule = RangeRule::Refused;
    response.fields.remove_all(NOT_REPEATED.or(CONTENT_DIGESTS));
}
