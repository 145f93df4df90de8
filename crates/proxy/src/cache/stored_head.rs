//! The head that a client is sent, from one that was stored.
//!
//! Entries in memory have one that was made before ([`view`]); fills and all others are read field
//! by field. Nothing stored is changed: the fields share its memory.

use millpond_cache::head::StoredHead;
use millpond_cache::zone::FoundEntry;
use millpond_exchange::response::Response;
use millpond_exchange::trace::Freshness;
use millpond_wire::header::{Field, Fields, Known};

use super::{status_header, view};
use crate::request::Request;
use crate::upstream::answer::{self, AnswerHead, Stored};
use crate::upstream::pass::PassTarget;

/// The head for the client, from an entry.
pub(super) fn from_found(
    req: &mut Request,
    target: &PassTarget,
    found: &FoundEntry,
) -> Box<Response> {
    let head = &found.head;
    // A configuration that asks for the fields of the upstream gets them all.
    if req.conf.uses_upstream_fields {
        return from_head(req, target, head, Stored::Yes);
    }
    if let Some(response) = view::find(req, target, head) {
        note_freshness(req, target, head);
        return response;
    }
    let response = from_head(req, target, head, Stored::Yes);
    if found.entry.reading().is_some() {
        view::keep(req, target, head, &response);
    }
    response
}

fn note_freshness(req: &Request, target: &PassTarget, head: &StoredHead) {
    if !req.conf.uses_freshness {
        return;
    }
    let now = req.now_s();
    req.upstream.borrow_mut().freshness = Some(Freshness {
        age: i64::try_from(head.age(now)).unwrap_or(i64::MAX),
        ttl: status_header::left(req, target, (head.valid_until, now)),
    });
}

/// The head for the client, from what was stored.
pub(super) fn from_head(
    req: &mut Request,
    target: &PassTarget,
    head: &StoredHead,
    stored: Stored,
) -> Box<Response> {
    note_freshness(req, target, head);
    // Room for what the configuration adds.
    let mut fields = Fields::with_capacity(head.field_count() + 4);
    for (name, value) in head.fields() {
        fields.push(stored_field(head, name, value));
    }
    if req.conf.uses_upstream_fields {
        req.upstream.borrow_mut().fields = Some(std::rc::Rc::new(fields.clone()));
    }
    let head = AnswerHead {
        status: head.status,
        status_text: head.status_text(),
        fields,
    };
    answer::from_head(req, target, head, stored)
}

/// A name that is written as usual costs no reference to the stored head.
pub(super) fn stored_field(head: &StoredHead, name: &[u8], value: &[u8]) -> Field {
    let (known, value) = (Known::of(name), head.share(value));
    if known != Known::Other && name == known.canonical().as_bytes() {
        return Field::known(known, value);
    }
    let name = head.share(name);
    Field { known, name, value }
}
