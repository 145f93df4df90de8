//! Lessons of an answer to HEAD about the stored answer to GET (RFC 9111 §4.3.5).
//!
//! Where HEAD is not asked of the origin as GET, its answer has no body and stands for none that is
//! stored. But its fields are those that GET would get now: a stored answer that they can belong to
//! is freshened like by a 304, another one is invalidated.
//!
//! nginx stores an answer to HEAD as it stores one to GET; under its rules nothing is learnt here.

use millpond_semantics::reuse::{Selected, is_same_selection};

use super::Walk;
use super::freshen::{Audience, freshened, tells_other_vary};
use super::store::{Given, Lifetime, each_stored_field};
use crate::exchange::field;
use crate::exchange::{Exchange, Fetched};
use crate::variant::RequestFields;
use crate::zone::{FoundEntry, LookedUp};

/// Freshens or invalidates what is stored for a HEAD request, by the answer that it got.
pub fn learn_from_head<X: Exchange>(x: &mut X, walk: &Walk, fetched: &X::Fetched) {
    if !walk.rules.is_rfc() || fetched.status() != 200 {
        return;
    }
    let fields = RequestFields {
        lookup: &|name| x.selecting(name),
        spelling: walk.rules.spelling(),
    };
    let LookedUp::Found(found) = walk.zone.look_up(&walk.key, &fields) else {
        return;
    };
    if found.head.status != 200 {
        return;
    }
    let (now, given) = (x.now(), Given::of(x, walk));
    let is_same = is_same(&found, fetched) && !tells_other_vary(&given, &found.head, fetched);
    let mut head = freshened(&given, &found.head, (fetched, Audience::All, now));
    let own = Lifetime::renewed(&given, fetched, (&head, now));
    let ruling = x.ruling(head.status, &|each| each_stored_field(&head, each));
    let life = Lifetime::renewed_by(own, ruling.as_ref(), (&walk.rules, now));
    let Some(life) = life.filter(|_| is_same) else {
        return walk.zone.invalidate(&walk.key);
    };
    head.stored_at = now;
    life.apply(&mut head);
    let head = head.encode();
    // What cannot be written stays as it is, and grows stale as it would have.
    let _ = walk.zone.store.replace_head(&found.entry, head);
}

fn is_same<F: Fetched>(found: &FoundEntry, fetched: &F) -> bool {
    let length = |value: &[u8]| std::str::from_utf8(value).ok()?.parse().ok();
    let (etag, modified) = (
        found.head.field(b"etag"),
        found.head.field(b"last-modified"),
    );
    let announced = found.head.field(b"content-length");
    let stored = Selected {
        etag: etag.as_deref(),
        last_modified: modified.as_deref(),
        length: announced.map_or(Some(found.body_len()), |value| length(&value)),
    };
    let (etag, modified) = (field(fetched, b"etag"), field(fetched, b"last-modified"));
    let told = Selected {
        etag: etag.as_deref(),
        last_modified: modified.as_deref(),
        length: field(fetched, b"content-length").and_then(|value| length(&value)),
    };
    is_same_selection(&stored, &told)
}
