//! Changes that an answer without a body makes to a stored one: a 304 (RFC 9111 §4.3.4), or one to
//! HEAD.
//!
//! ```text
//! stored head ─┬─ fields of the answer ─► shown: to the client whose request was validated
//!              └─ those that are for all ─► kept: for whoever comes later, if anything is
//! ```
//!
//! 1. A cookie is for the client that it was sent to, unless the same answer says for how long all
//!    may have it.
//! 2. A Vary that is told selects from then on, by the request that was validated. An entry that
//!    can be found by it no more, or by nobody, is removed with all variants of its key.
//! 3. What is of the connection that the answer came on goes no further.

use bytes::Bytes;
use millpond_semantics::{reuse, vary};
use millpond_store::NotStored;

use super::store::{self, AnswerFields, Given, Lifetime, each_stored_field};
use super::{Served, Step, Walk};
use crate::exchange::{Clients, Exchange, Fetched, Outcome, field};
use crate::fill::{FillEnd, Lead};
use crate::head::{FieldsWriter, StoredHead};
use crate::ignore::IgnorableField;
use crate::reason::{Note, Reason};
use crate::status::CacheStatus;
use crate::tag;
use crate::variant::RequestFields;
use crate::zone::FoundEntry;

/// Audience that fields are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// The client whose request was validated.
    Asker,
    /// Everybody.
    All,
}

/// RFC 9111 §4.3.4: a 304 makes the stored answer fresh again.
pub(super) fn renew<X: Exchange, F: Fetched>(
    x: &mut X,
    walk: &Walk,
    lead: Lead,
    mut stale: Box<FoundEntry>,
    (fetched, status): (&F, CacheStatus),
) -> Step<X> {
    let now = fetched.came_at().unwrap_or_else(|| x.now());
    x.note(Note::Because(Reason::NotModified));
    let given = Given::of(x, walk);
    let (mut shown, mut kept) = heads(&given, &stale.head, (fetched, now));
    let selection = Selection::of((x, &given), walk, &stale, fetched);
    let own = Lifetime::renewed(&given, fetched, (&kept, now));
    let ruling = x.ruling(kept.status, &|each| each_stored_field(&kept, each));
    let life = Lifetime::renewed_by(own, ruling.as_ref(), (&walk.rules, now));
    if walk.rules.is_rfc() {
        let ruled = ruling.map(|ruling| ruling.tags).unwrap_or_default();
        let fresh = x.tags(&|each| each_stored_field(&kept, each), &ruled);
        kept.tags = tag::renewed(&kept.tags, &fresh);
    }
    let end = match (life, selection) {
        // INVARIANT 2.
        (_, Selection::Nobody) | (None, Selection::Other(..)) => {
            walk.zone.invalidate(&walk.key);
            FillEnd::Abandoned
        }
        (None, Selection::Same) if walk.rules.is_rfc() && x.is_background() => {
            // Nobody waits for what the origin says now: the next request asks for it.
            walk.zone.store.remove(lead.key());
            FillEnd::NotStorable
        }
        // It is served once more and stays as stale as it is: each waiter must ask for itself.
        (None, Selection::Same) => FillEnd::NotStorable,
        (Some(mut life), selection) => {
            life.end_with(fetched, now);
            selection.apply(walk, &mut kept);
            kept.serial = lead.serial();
            for head in [&mut shown, &mut kept] {
                head.stored_at = now;
                life.apply(head);
            }
            walk.zone.backoffs.forget(&walk.mark(lead.key()));
            replace(walk, &lead, &mut stale, &kept)
        }
    };
    stale.head = shown.into();
    fetched.note_outcome(&Outcome {
        entry: matches!(end, FillEnd::Complete | FillEnd::Unchanged).then_some(*lead.key()),
        clients: Clients::Besides(lead.followers()),
    });
    lead.end(end);
    Step::Done(Served::Entry(stale, status))
}

/// Stores the new head of an entry.
fn replace(walk: &Walk, lead: &Lead, stale: &mut FoundEntry, head: &StoredHead) -> FillEnd {
    lead.know(head);
    if !lead.may_store() {
        return FillEnd::Abandoned;
    }
    match walk.zone.store.replace_head(&stale.entry, head.encode()) {
        Ok(entry) => {
            let watch = &walk.zone.watch;
            watch.tell_freshened(*entry.key(), head, entry.len());
            stale.entry = entry;
            FillEnd::Unchanged
        }
        // Another entry has taken its place.
        Err(NotStored::Superseded) => FillEnd::Complete,
        Err(_) => FillEnd::NotStorable,
    }
}

/// The head for the client that asked, and the one that is kept.
///
/// nginx: fields of a 304 are not taken over; but what is told of the selection is true of all that
/// is served after it, so the Vary is.
fn heads<F: Fetched>(
    given: &Given<'_>,
    stored: &StoredHead,
    (fetched, now): (&F, i64),
) -> (StoredHead, StoredHead) {
    if !given.rules.is_rfc() {
        let shown = if tells_vary(given, fetched) {
            merged(stored, fetched, |name| name.eq_ignore_ascii_case(b"vary"))
        } else {
            stored.clone()
        };
        return (shown.clone(), shown);
    }
    let shown = freshened(given, stored, (fetched, Audience::Asker, now));
    let kept = match field(fetched, b"set-cookie") {
        Some(_) => freshened(given, stored, (fetched, Audience::All, now)),
        None => shown.clone(),
    };
    (shown, kept)
}

/// RFC 9111 §3.2: the stored head with the fields of an answer in place of its own.
pub(super) fn freshened<F: Fetched>(
    given: &Given<'_>,
    head: &StoredHead,
    (fetched, audience, now): (&F, Audience, i64),
) -> StoredHead {
    let named = store::connection_fields(given, fetched);
    // INVARIANT 1.
    let has_cookies = audience == Audience::Asker
        || !given.policies.ignore.obeys(IgnorableField::SetCookie)
        || AnswerFields::read(given, &|each| fetched.each_field(each), now).state_lifetime();
    // RFC 9111 §4.3.4: a 304 of another strong validator is not about this answer. What names the
    // version of a body in slices stays, whatever the origin says, or two would be mixed.
    let is_version = |name: &[u8]| {
        let names = [&b"etag"[..], &b"last-modified"[..]];
        head.sliced.is_some() && names.iter().any(|kept| name.eq_ignore_ascii_case(kept))
    };
    let mut fresh = merged(head, fetched, |name| {
        reuse::is_freshened(name)
            && !is_version(name)
            && !named.iter().any(|other| other.eq_ignore_ascii_case(name))
            && (has_cookies || !name.eq_ignore_ascii_case(b"set-cookie"))
    });
    if let Some(modified) = fresh.field(b"last-modified")
        && head.last_modified.is_some()
    {
        fresh.last_modified = given.time(&modified, now);
    }
    fresh
}

/// The stored head with those fields of an answer that are `taken` in place of its own.
fn merged<F: Fetched>(head: &StoredHead, fetched: &F, taken: impl Fn(&[u8]) -> bool) -> StoredHead {
    let mut fresh: Vec<(Bytes, Bytes)> = Vec::new();
    fetched.each_field(&mut |name, value| {
        if taken(name) {
            fresh.push((Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
        }
    });
    // A 304 without Age was generated now, whatever the stored answer's age was.
    let is_replaced = |name: &[u8]| {
        (name.eq_ignore_ascii_case(b"age") && taken(name))
            || fresh.iter().any(|(new, _)| new.eq_ignore_ascii_case(name))
    };
    let mut fields = FieldsWriter::with_status_text(head.status_text().as_deref());
    for (name, value) in head.fields() {
        if !is_replaced(name) {
            fields.push(name, value);
        }
    }
    for (name, value) in &fresh {
        fields.push(name, value);
    }
    head.with_fields(fields)
}

/// Requests that an entry is for, after an answer that validated it.
#[derive(Debug)]
enum Selection {
    /// The requests that the entry was for.
    Same,
    /// The requests that say this in the fields of another Vary.
    Other(Bytes, Bytes),
    /// No requests, or those by which the entry cannot be found at its place.
    Nobody,
}

impl Selection {
    fn of<X: Exchange, F: Fetched>(
        (x, given): (&X, &Given<'_>),
        walk: &Walk,
        found: &FoundEntry,
        fetched: &F,
    ) -> Self {
        if !tells_other_vary(given, &found.head, fetched) {
            return Selection::Same;
        }
        let Some(vary) = store::vary(given, fetched) else {
            return Selection::Nobody;
        };
        let head = &found.head;
        let each_field = |each: &mut dyn FnMut(&[u8], &[u8])| store::each_stored_field(head, each);
        // The first key's entry says what the variants are; another one is not found by its own.
        if found.key != walk.key.key || !store::covers_coding(x, &each_field, &vary) {
            return Selection::Nobody;
        }
        let fields = RequestFields {
            lookup: &|name| x.selecting(name),
            spelling: walk.rules.spelling(),
        };
        let variant = if vary.is_empty() {
            Bytes::new()
        } else {
            fields.variant(&vary)
        };
        Selection::Other(vary, variant)
    }

    /// Writes the selection into the head of the first key's entry. The variants that there were
    /// are not found again: their Vary is not that of the key any more.
    fn apply(self, walk: &Walk, head: &mut StoredHead) {
        if let Selection::Other(vary, variant) = self {
            head.seed = if vary.is_empty() {
                0
            } else {
                walk.zone.new_seed()
            };
            head.vary = vary;
            head.variant = variant;
        }
    }
}

/// True if an answer tells of another Vary than a stored one has (RFC 9111 §4.1). Without a Vary it
/// tells nothing.
pub(super) fn tells_other_vary<F: Fetched>(
    given: &Given<'_>,
    head: &StoredHead,
    fetched: &F,
) -> bool {
    let told = tells_vary(given, fetched).then(|| store::vary(given, fetched));
    match told {
        None => false,
        Some(None) => true,
        Some(Some(told)) => !vary::is_same_selection(&head.vary, &told),
    }
}

fn tells_vary<F: Fetched>(given: &Given<'_>, fetched: &F) -> bool {
    given.policies.ignore.obeys(IgnorableField::Vary) && field(fetched, b"vary").is_some()
}
