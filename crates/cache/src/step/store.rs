//! Whether an answer is stored, for how long, and as what.
//!
//! The rules are nginx's: the answer's own fields (X-Accel-Expires, Cache-Control, Expires, in this
//! strength), else `proxy_cache_valid`; Set-Cookie, X-Accel-Redirect, `Vary: *` and unreadably long
//! Vary keep it out.

use bytes::Bytes;
use millpond_semantics::date::parse_http_date;
use millpond_semantics::upstream_validity::{UpstreamValidity, Validity};
use millpond_semantics::vary::Vary;
use millpond_store::Key;

use super::{Exchange, Fetched, Walk};
use crate::head::{FieldsWriter, StoredHead};
use crate::ignore::IgnorableField;
use crate::variant;

/// The head to store, or `None` when the answer must not be.
pub(crate) fn storable<X: Exchange>(
    x: &mut X,
    walk: &Walk,
    fetched: &X::Fetched,
) -> Option<StoredHead> {
    let now = x.now();
    // nginx: who was let through by an answer that redirects inside does not open it to others.
    if walk.policies.ignore.obeys(IgnorableField::XAccelRedirect)
        && field(fetched, b"x-accel-redirect").is_some()
    {
        return None;
    }
    let life = Lifetime::of(walk, fetched, now)?;
    if x.must_not_store() {
        return None;
    }
    let vary = vary(walk, fetched)?;
    let mut fields = FieldsWriter::default();
    fetched.each_field(&mut |name, value| fields.push(name, value));
    let mut head = StoredHead::new(fetched.status(), fields);
    head.stored_at = now;
    life.apply(&mut head);
    head.last_modified = match fetched.status() {
        200 | 206 => field(fetched, b"last-modified").and_then(|value| parse_http_date(&value)),
        _ => None,
    };
    head.key = walk.key.text.clone();
    if !vary.is_empty() {
        head.variant = variant::hash(&walk.key.key, &vary, &|name| x.field(name));
        head.vary = vary;
    }
    Some(head)
}

/// The key that the answer is stored under: the one that was looked up, if the answer is of that
/// variant.
///
/// nginx: an answer without Vary, or with another Vary than the first key's entry, takes the first
/// key. There it decides from now on what the variants are.
pub(crate) fn storage_key(walk: &Walk, head: &StoredHead, looked_up: Key) -> Key {
    if !head.vary.is_empty() && variant::key(&head.variant) == looked_up {
        looked_up
    } else {
        walk.key.key
    }
}

/// How long an answer is fresh, and stale beyond it.
pub(crate) struct Lifetime {
    until: i64,
    stale_updating: u32,
    stale_error: u32,
}

impl Lifetime {
    /// The lifetime of an answer; `None` when it must not be stored.
    pub(crate) fn of<F: Fetched>(walk: &Walk, fetched: &F, now: i64) -> Option<Lifetime> {
        // RFC 9111 §3: only final answers are stored.
        if fetched.status() < 200 {
            return None;
        }
        let validity = validity(walk, fetched, now);
        let until = match validity.verdict() {
            Validity::NotStorable(_) => return None,
            Validity::Until(until) => until,
            Validity::Unset => configured(walk, fetched.status(), now)?,
        };
        Some(Lifetime {
            until,
            stale_updating: bounded(validity.stale_updating()),
            stale_error: bounded(validity.stale_error()),
        })
    }

    /// The lifetime that a 304 gives to a stored answer; `None` when it stays as stale as it is.
    ///
    /// nginx: its own fields count, else those of the stored answer, else the configuration for its
    /// status.
    ///
    /// # Differs from nginx
    /// A 304 whose own fields forbid reuse, such as `no-cache`, renews nothing; in nginx the stored
    /// fields count then.
    pub(crate) fn renewed<F: Fetched>(
        walk: &Walk,
        fetched: &F,
        head: &StoredHead,
        now: i64,
    ) -> Option<Lifetime> {
        let fresh = renewing_validity(walk, fetched, now);
        let stored = stored_validity(walk, head, now);
        let (until, source) = match (fresh.verdict(), stored.verdict()) {
            (Validity::NotStorable(_), _) => return None,
            (Validity::Until(until), _) => (until, &fresh),
            (Validity::Unset, Validity::Until(until)) => (until, &stored),
            (Validity::Unset, _) => (configured(walk, head.status, now)?, &stored),
        };
        Some(Lifetime {
            until,
            stale_updating: bounded(source.stale_updating()),
            stale_error: bounded(source.stale_error()),
        })
    }

    /// Writes the lifetime into a head.
    pub(crate) fn apply(&self, head: &mut StoredHead) {
        head.valid_until = self.until;
        head.stale_updating = self.stale_updating;
        head.stale_error = self.stale_error;
    }
}

fn bounded(seconds: u64) -> u32 {
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

fn configured(walk: &Walk, status: u16, now: i64) -> Option<i64> {
    let time = walk.policies.valid.time_for(status)?;
    Some(now.saturating_add(i64::try_from(time.as_secs()).unwrap_or(i64::MAX)))
}

fn validity<F: Fetched>(walk: &Walk, fetched: &F, now: i64) -> UpstreamValidity {
    let mut validity = UpstreamValidity::new(now);
    fetched.each_field(&mut |name, value| feed(walk, &mut validity, name, value));
    validity
}

/// As [`validity`], but a cookie does not count: it forbids to store the answer that sets it, not
/// to reuse an older one.
fn renewing_validity<F: Fetched>(walk: &Walk, fetched: &F, now: i64) -> UpstreamValidity {
    let mut validity = UpstreamValidity::new(now);
    fetched.each_field(&mut |name, value| {
        if !name.eq_ignore_ascii_case(b"set-cookie") {
            feed(walk, &mut validity, name, value);
        }
    });
    validity
}

fn stored_validity(walk: &Walk, head: &StoredHead, now: i64) -> UpstreamValidity {
    let mut validity = UpstreamValidity::new(now);
    for (name, value) in head.fields() {
        feed(walk, &mut validity, name, value);
    }
    validity
}

fn feed(walk: &Walk, validity: &mut UpstreamValidity, name: &[u8], value: &[u8]) {
    let obeys = |field| walk.policies.ignore.obeys(field);
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    if is(b"cache-control") && obeys(IgnorableField::CacheControl) {
        validity.handle_cache_control(value);
    } else if is(b"expires") && obeys(IgnorableField::Expires) {
        validity.handle_expires(value);
    } else if is(b"x-accel-expires") && obeys(IgnorableField::XAccelExpires) {
        validity.handle_x_accel_expires(value);
    } else if is(b"set-cookie") && obeys(IgnorableField::SetCookie) {
        validity.handle_set_cookie();
    }
}

/// The names of the answer's Vary; `None` when it cannot be stored for its sake.
fn vary<F: Fetched>(walk: &Walk, fetched: &F) -> Option<Bytes> {
    if !walk.policies.ignore.obeys(IgnorableField::Vary) {
        return Some(Bytes::new());
    }
    let mut values: Vec<Bytes> = Vec::new();
    fetched.each_field(&mut |name, value| {
        if name.eq_ignore_ascii_case(b"vary") {
            values.push(Bytes::copy_from_slice(value));
        }
    });
    match Vary::parse(values.iter().map(|value| &value[..])) {
        Vary::None => Some(Bytes::new()),
        Vary::Names(names) => Some(Bytes::copy_from_slice(&names)),
        Vary::Any | Vary::TooLong => None,
    }
}

/// The first value of a field of an answer.
pub(crate) fn field<F: Fetched>(fetched: &F, wanted: &[u8]) -> Option<Bytes> {
    let mut found = None;
    fetched.each_field(&mut |name, value| {
        if found.is_none() && name.eq_ignore_ascii_case(wanted) {
            found = Some(Bytes::copy_from_slice(value));
        }
    });
    found
}
