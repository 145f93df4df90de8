//! What a location shows of a stored head: made once, and kept with the head.
//!
//! Which fields of an entry go to clients, and how, is the same for all requests of a location,
//! but for redirects, cookies and orders to this server (X-Accel-…), which are worked on for each.
//! A hit begins its answer with the fields as they were shown before, and their bytes.
//!
//! 1. A view is of one location, which is compared by identity: what a new configuration makes of
//!    the same block is another one.
//! 2. A head with a field that depends on the request has no view.
//! 3. What a filter will say of ranges stands in the view, and is hidden until it does.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use millpond_cache::shared_head::{SharedHead, View};

use crate::cache::provenance::{Provenance, Whence};
use crate::filter::range;
use crate::handler::ContentHandler;
use crate::header::{Fields, Known, KnownSet, SharedFields};
use crate::http1::encode;
use crate::request::Request;
use crate::response::{RangeRule, Response, Source};
use crate::scope::Location;
use crate::upstream::pass::PassTarget;

/// INVARIANT 2: the fields whose place in an answer depends on the request.
const WORKED_ON: KnownSet = KnownSet::of(&[
    Known::Location,
    Known::Refresh,
    Known::SetCookie,
    Known::XAccelRedirect,
    Known::XAccelLimitRate,
    Known::XAccelCharset,
]);

/// One in so many requests that another view is in the way of. (Arbitrary: to make one costs some
/// answers' worth.)
const REPLACED_ONE_IN: i64 = 16;

/// The answer of a location for a head, as far as it is known without a request.
struct Shown {
    location: Weak<Location>,
    status: u16,
    status_text: Option<Bytes>,
    fields: Arc<SharedFields>,
    hidden: KnownSet,
    last_modified: Option<i64>,
    ranges: RangeRule,
    is_partial: bool,
    may_be_intercepted: bool,
    hides_date: bool,
    hides_server: bool,
    conditions_by_rfc: bool,
}

/// The answer for a head, if this location has shown it before.
pub(super) fn find(req: &Request, target: &PassTarget, head: &SharedHead) -> Option<Response> {
    if !is_handler(req, target) {
        return None;
    }
    head.with_view(|view| {
        let shown = view.of::<Shown>()?;
        // INVARIANT 1.
        let is_same = std::ptr::eq(shown.location.as_ptr(), Arc::as_ptr(&req.location));
        is_same.then(|| shown.begin())
    })
    .flatten()
}

/// Keeps the answer for a head, unless it depends on the request.
pub(super) fn keep(req: &Request, target: &PassTarget, head: &SharedHead, response: &Response) {
    let is_worked_on = |name: &[u8]| WORKED_ON.contains(Known::of(name));
    let is_kept = is_handler(req, target) && is_place_free(req, head);
    if !is_kept || head.fields().any(|(name, _)| is_worked_on(name)) {
        return;
    }
    let (fields, hidden) = fields_of(response);
    let fields = SharedFields::new(fields, encode::write_any);
    if size_of::<Shown>() + fields.memory() > head.view_bytes() {
        return;
    }
    head.keep_view(View::new(Shown {
        location: Arc::downgrade(&req.location),
        status: response.status,
        status_text: response.status_text.clone(),
        fields: Arc::new(fields),
        hidden,
        last_modified: response.last_modified,
        ranges: response.ranges,
        is_partial: response.is_partial,
        may_be_intercepted: response.may_be_intercepted,
        hides_date: response.hides_date,
        hides_server: response.hides_server,
        conditions_by_rfc: response.conditions_by_rfc,
    }));
}

/// The fields of an answer and, INVARIANT 3, one more, with what is to be hidden of them.
fn fields_of(response: &Response) -> (Fields, KnownSet) {
    let mut fields = response.fields.clone();
    let mut hidden = KnownSet::default();
    if response.ranges != RangeRule::Refused && !fields.contains(Known::AcceptRanges) {
        fields.push_known(Known::AcceptRanges, range::UNIT);
        hidden.insert(Known::AcceptRanges);
    }
    (fields, hidden)
}

/// Whether a view may take the place of the one that there is. Where several locations show the
/// same entries, each takes its place from another now and then, so that most often it is that of
/// who asks most.
fn is_place_free(req: &Request, head: &SharedHead) -> bool {
    let is_in_use = |view: &View| {
        let shown = view.of::<Shown>();
        shown.is_some_and(|shown| shown.location.strong_count() > 0)
    };
    !head.with_view(is_in_use).unwrap_or(false) || req.started_us % REPLACED_ONE_IN == 0
}

/// Whether the target is that of the location itself, which tells views apart.
fn is_handler(req: &Request, target: &PassTarget) -> bool {
    match &req.location.handler {
        Some(ContentHandler::Pass(own)) => std::ptr::eq(&**own, target),
        _ => false,
    }
}

impl Shown {
    fn begin(&self) -> Response {
        Response {
            status: self.status,
            status_text: self.status_text.clone(),
            fields: Fields::beginning_with(Arc::clone(&self.fields), self.hidden),
            last_modified: self.last_modified,
            ranges: self.ranges,
            source: Source::Upstream,
            provenance: Provenance::One(Whence::Cache),
            is_partial: self.is_partial,
            may_be_intercepted: self.may_be_intercepted,
            hides_date: self.hides_date,
            hides_server: self.hides_server,
            conditions_by_rfc: self.conditions_by_rfc,
            ..Response::default()
        }
    }
}
