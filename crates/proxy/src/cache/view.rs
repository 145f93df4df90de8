//! Views, the fields of a stored head as a location shows them: made once, and kept with the head.
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
use millpond_cache::shared_head::SharedHead;
use millpond_wire::header::{Fields, Known, KnownSet, SharedFields};
use millpond_wire::http1::encode;

use crate::conditional::range;
use crate::request::Request;
use crate::upstream::pass::PassTarget;
use millpond_exchange::provenance::{Provenance, Whence};
use millpond_exchange::response::{
    Changes, Conditions, Orders, Parts, RangeRule, Response, Source,
};
use millpond_exchange::settings::Location;

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

/// The fields of an answer, and the rest of it as far as it is known without a request.
type View = SharedFields<Shown>;

/// Part of a view besides the fields.
#[derive(Debug)]
struct Shown {
    location: Weak<Location>,
    status: u16,
    status_text: Option<Bytes>,
    hidden: KnownSet,
    last_modified: Option<i64>,
    ranges: RangeRule,
    is_partial: bool,
    may_be_intercepted: bool,
    hides_date: bool,
    hides_server: bool,
    conditions_by_rfc: bool,
    forbids_transform: bool,
}

/// The answer for a head, if this location has shown it before.
pub(super) fn find(req: &Request, target: &PassTarget, head: &SharedHead) -> Option<Box<Response>> {
    if !is_handler(req, target) {
        return None;
    }
    let view = head.view::<View>()?;
    // INVARIANT 1.
    let is_same = std::ptr::eq(view.with.location.as_ptr(), Arc::as_ptr(&req.location));
    // The place comes first, so that the answer is made in it.
    is_same.then(|| Box::write(Box::new_uninit(), begin(view)))
}

/// Keeps the answer for a head, unless it depends on the request.
pub(super) fn keep(req: &Request, target: &PassTarget, head: &SharedHead, response: &Response) {
    let is_worked_on = |name: &[u8]| WORKED_ON.contains(Known::of(name));
    let is_kept = is_handler(req, target) && is_place_free(req, head);
    if !is_kept || head.fields().any(|(name, _)| is_worked_on(name)) {
        return;
    }
    let (fields, hidden) = fields_of(response);
    let shown = Shown {
        location: Arc::downgrade(&req.location),
        status: response.status,
        status_text: response.orders.status_text.clone(),
        hidden,
        last_modified: response.last_modified,
        ranges: response.parts.rule,
        is_partial: response.parts.is_one,
        may_be_intercepted: response.orders.may_be_intercepted,
        hides_date: response.orders.hides_date,
        hides_server: response.orders.hides_server,
        conditions_by_rfc: response.conditions.are_by_rfc,
        forbids_transform: response.changes.are_forbidden,
    };
    let view = View::new(fields, shown, encode::write_any);
    if view.memory() <= head.view_bytes() {
        head.keep_view(Arc::new(view));
    }
}

/// The fields of an answer and, INVARIANT 3, one more, with what is to be hidden of them.
fn fields_of(response: &Response) -> (Fields, KnownSet) {
    let mut fields = response.fields.clone();
    let mut hidden = KnownSet::default();
    if response.parts.rule != RangeRule::Refused && !fields.contains(Known::AcceptRanges) {
        fields.push_known(Known::AcceptRanges, range::UNIT);
        hidden.insert(Known::AcceptRanges);
    }
    (fields, hidden)
}

/// True if a view may take the place of the one that there is. Where several locations show the
/// same entries, each takes the place from another now and then, so that most often the view is
/// that of the location that asks most.
fn is_place_free(req: &Request, head: &SharedHead) -> bool {
    let view = head.view::<View>();
    let is_in_use = view.is_some_and(|view| view.with.location.strong_count() > 0);
    !is_in_use || req.started_us % REPLACED_ONE_IN == 0
}

/// True if the target is that of the location itself, which tells views apart.
fn is_handler(req: &Request, target: &PassTarget) -> bool {
    let own = req.location.parts.get().and_then(PassTarget::of);
    own.is_some_and(|own| std::ptr::eq(&**own, target))
}

/// An answer that begins as a view says.
fn begin(view: Arc<View>) -> Response {
    let Shown {
        location: _,
        status,
        ref status_text,
        hidden,
        last_modified,
        ranges,
        is_partial,
        may_be_intercepted,
        hides_date,
        hides_server,
        conditions_by_rfc,
        forbids_transform,
    } = view.with;
    Response {
        status,
        last_modified,
        source: Source::Upstream,
        provenance: Provenance::One(Whence::Cache),
        orders: Orders {
            status_text: status_text.clone(),
            may_be_intercepted,
            hides_date,
            hides_server,
            ..Orders::default()
        },
        conditions: Conditions {
            are_by_rfc: conditions_by_rfc,
            ..Conditions::default()
        },
        parts: Parts {
            rule: ranges,
            is_one: is_partial,
            ..Parts::default()
        },
        changes: Changes {
            are_forbidden: forbids_transform,
            ..Changes::default()
        },
        fields: Fields::beginning_with(view, hidden),
        ..Response::default()
    }
}
