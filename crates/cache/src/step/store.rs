//! Decision to store an answer: if, for how long, and as what.
//!
//! The rules are nginx's: the answer's own fields (X-Accel-Expires, Cache-Control or a field that
//! takes its place, Expires, in this strength), else `proxy_cache_valid`; Set-Cookie,
//! X-Accel-Redirect, `Vary: *` and unreadably long Vary keep it out.

use std::borrow::Cow;

use bytes::Bytes;
use millpond_semantics::cache_control::CacheControl;
use millpond_semantics::date::{is_in_gmt, parse_http_date, parse_http_date_by_rfc};
use millpond_semantics::freshness::parse_age;
use millpond_semantics::list;
use millpond_semantics::preference;
use millpond_semantics::reuse::{self, Answer, Asked, RequestRules};
use millpond_semantics::upstream_validity::{Forbidding, Refusal, UpstreamValidity, Validity};
use millpond_semantics::vary::{self, Vary};

use super::{Policies, Rules, Walk};
use crate::exchange::{Exchange, Fetched, field};
use crate::head::{Bounds, FieldsWriter, StoredHead};
use crate::ignore::IgnorableField;
use crate::reason::Reason;
use crate::ruling::Ruling;
use crate::targeted::EachField;
use crate::valid::ValidPolicy;
use crate::variant::{RequestFields, VariantKey};

/// The reason why an answer is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptOut {
    /// The answer is not one to store.
    Answer(Reason),
    /// The answer is kept out for the sake of its request; another's may be stored.
    Request(Reason),
}

/// The head to store, or why the answer must not be.
pub(crate) fn storable<X: Exchange, F: Fetched>(
    x: &mut X,
    walk: &Walk,
    fetched: &F,
) -> Result<StoredHead, KeptOut> {
    let now = fetched.came_at().unwrap_or_else(|| x.now());
    let given = Given::of(x, walk);
    let ruling = x.ruling(fetched.status(), &|each| fetched.each_field(each));
    let kept = may_keep(&given, fetched, (now, ruling.as_ref()));
    let (mut life, vary) = kept.map_err(|why| match why {
        NotKept::Rules(_) if given.is_kept_out() => KeptOut::Request(why.into()),
        why => KeptOut::Answer(why.into()),
    })?;
    if fetched.is_unbuffered() {
        return Err(KeptOut::Answer(Reason::Unbuffered));
    }
    if fetched.is_left_to_owner() {
        return Err(KeptOut::Request(Reason::OfOwner));
    }
    if x.must_not_store() {
        return Err(KeptOut::Request(Reason::Excluded));
    }
    if given.rules.is_rfc() {
        of_its_request(x, fetched)?;
    }
    if !x.takes_key(fetched.status(), &|each| fetched.each_field(each)) {
        return Err(KeptOut::Request(Reason::NoVarySearch));
    }
    let mut fields = FieldsWriter::with_status_text(fetched.status_text());
    let named = connection_fields(&given, fetched);
    let is_named = |name: &[u8]| named.iter().any(|other| other.eq_ignore_ascii_case(name));
    // RFC 9111 §3.1.
    let is_stored = |name: &[u8]| !given.rules.is_rfc() || reuse::is_stored(name);
    fetched.each_field(&mut |name, value| {
        if is_stored(name) && !is_named(name) {
            fields.push(name, value);
        }
    });
    let mut head = StoredHead::new(fetched.status(), fields);
    head.stored_at = now;
    life.end_with(fetched, now);
    life.apply(&mut head);
    head.last_modified = match fetched.status() {
        200 | 206 => field(fetched, b"last-modified").and_then(|value| given.time(&value, now)),
        _ => None,
    };
    head.key = walk.key.text.clone();
    let ruled = ruling.map(|ruling| ruling.tags).unwrap_or_default();
    head.tags = x.tags(&|each| fetched.each_field(each), &ruled);
    if !vary.is_empty() {
        if !covers_coding(x, &|each| fetched.each_field(each), &vary) {
            return Err(KeptOut::Request(Reason::VaryCoding));
        }
        let fields = RequestFields {
            lookup: &|name| x.selecting(name),
            spelling: walk.rules.spelling(),
        };
        head.variant = fields.variant(&vary);
        head.vary = vary;
    }
    Ok(head)
}

/// Refuses an answer that is for its request alone.
fn of_its_request<X: Exchange, F: Fetched>(x: &X, fetched: &F) -> Result<(), KeptOut> {
    // RFC 9110 §9.3.1: content of a GET has no meaning that another request would share.
    if x.has_content() {
        return Err(KeptOut::Request(Reason::RequestBody));
    }
    // RFC 9110 §13.2.1: what a condition of the client came to says nothing of other requests.
    let mut conditions = [&b"if-match"[..], b"if-unmodified-since"].into_iter();
    if fetched.status() == 412 && conditions.any(|name| !x.field(name).is_empty()) {
        Err(KeptOut::Request(Reason::Status))
    } else {
        Ok(())
    }
}

/// Policies, rules and facts that an answer is judged by.
pub struct Given<'a> {
    /// The policies of the location.
    pub policies: &'a Policies,
    /// Rules that count.
    pub rules: &'a Rules,
    /// Times of freshness, as they are for this answer.
    pub valid: Cow<'a, ValidPolicy>,
    /// True if the request has an Authorization.
    pub is_authorized: bool,
}

impl<'a> Given<'a> {
    /// Policies, rules and facts of a walk, once the answer's head has come.
    pub(crate) fn of<X: Exchange>(x: &mut X, walk: &'a Walk) -> Given<'a> {
        let valid = &walk.policies.valid;
        Given {
            policies: &walk.policies,
            rules: &walk.rules,
            valid: valid.told(&mut |text| x.time_of(text)),
            is_authorized: is_authorized(x, &walk.rules),
        }
    }

    /// A date of an answer that came at `now`.
    pub(crate) fn time(&self, value: &[u8], now: i64) -> Option<i64> {
        match self.rules {
            Rules::Nginx => parse_http_date(value),
            Rules::Rfc9111(_) => parse_http_date_by_rfc(value, now),
        }
    }

    /// True when the request itself may be why its answer is not stored (RFC 9111 §3).
    fn is_kept_out(&self) -> bool {
        self.is_authorized || forbids_storing(self.rules)
    }
}

/// True when a request itself may be why its answer is not stored (RFC 9111 §3).
pub(super) fn may_keep_out<X: Exchange>(x: &X, rules: &Rules) -> bool {
    is_authorized(x, rules) || forbids_storing(rules)
}

fn is_authorized<X: Exchange>(x: &X, rules: &Rules) -> bool {
    rules.is_rfc() && !x.field(b"authorization").is_empty()
}

fn forbids_storing(rules: &Rules) -> bool {
    rules.asked().is_some_and(|asked| asked.no_store)
}

/// The reason why an answer is not kept, whatever `proxy_no_cache` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The answer is not final.
    Interim,
    /// The answer redirects inside the server.
    AccelRedirect,
    /// The answer's fields forbid it.
    Refused(Refusal),
    /// The rules of RFC 9111 forbid it.
    Rules(reuse::Refusal),
    /// Neither the answer's fields nor `proxy_cache_valid` state a lifetime.
    NoTime,
    /// The answer's Vary is `*` or too long.
    Vary,
    /// A ruling keeps it out.
    Ruled,
}

impl NotKept {
    /// True if a ruling that says how long the answer is fresh stands above it. What the RFC
    /// forbids where its rules were asked for stays forbidden.
    fn may_be_overruled(&self) -> bool {
        match self {
            NotKept::Refused(_) | NotKept::NoTime | NotKept::Vary => true,
            NotKept::Rules(why) => matches!(
                why,
                reuse::Refusal::NothingSaid | reuse::Refusal::Useless | reuse::Refusal::Status
            ),
            NotKept::Interim | NotKept::AccelRedirect | NotKept::Ruled => false,
        }
    }
}

impl From<NotKept> for Reason {
    fn from(why: NotKept) -> Self {
        match why {
            NotKept::Interim => Reason::Interim,
            NotKept::AccelRedirect => Reason::AccelRedirect,
            NotKept::NoTime => Reason::NoTime,
            NotKept::Ruled => Reason::Ruled,
            NotKept::Vary | NotKept::Refused(Refusal::Vary) => Reason::VaryStar,
            NotKept::Refused(Refusal::Forbidden(by)) => match by {
                Forbidding::NoCache => Reason::NoCache,
                Forbidding::NoStore => Reason::NoStore,
                Forbidding::Private => Reason::Private,
                Forbidding::NoTime => Reason::Expired,
            },
            NotKept::Refused(Refusal::Malformed) => Reason::Malformed,
            NotKept::Refused(Refusal::AccelExpires) => Reason::AccelExpires,
            NotKept::Refused(Refusal::Expired) => Reason::Expired,
            NotKept::Refused(Refusal::SetCookie) => Reason::SetCookie,
            NotKept::Rules(why) => match why {
                reuse::Refusal::Status => Reason::Status,
                reuse::Refusal::NoStore => Reason::NoStore,
                reuse::Refusal::Private => Reason::Private,
                reuse::Refusal::Authorization => Reason::Authorization,
                reuse::Refusal::NotUnderstood => Reason::MustUnderstand,
                reuse::Refusal::NothingSaid => Reason::NoTime,
                reuse::Refusal::Useless => Reason::Expired,
                reuse::Refusal::Cookie => Reason::SetCookie,
            },
        }
    }
}

/// Time for which an answer is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Last second in which the answer is fresh, since the epoch.
    pub until: i64,
    /// True if the answer itself states its lifetime.
    pub is_stated: bool,
    /// Number of seconds after that in which the answer may be served while it is updated.
    pub stale_updating: u32,
    /// Number of seconds after that in which the answer may be served when the origin fails.
    pub stale_error: u32,
    /// The names of the fields that its variants differ in.
    pub vary: Bytes,
}

/// Judgement of an answer, for callers that want to know it beforehand; with what was ruled of it.
pub fn judge<F: Fetched>(
    given: &Given<'_>,
    fetched: &F,
    at: (i64, Option<&Ruling>),
) -> Result<Kept, NotKept> {
    let (life, vary) = may_keep(given, fetched, at)?;
    Ok(Kept {
        until: life.until,
        is_stated: life.is_stated,
        stale_updating: life.stale_updating,
        stale_error: life.stale_error,
        vary,
    })
}

/// Lifetime for which an answer may be kept, and its variants.
fn may_keep<F: Fetched>(
    given: &Given<'_>,
    fetched: &F,
    (now, ruling): (i64, Option<&Ruling>),
) -> Result<(Lifetime, Bytes), NotKept> {
    // nginx: who was let through by an answer that redirects inside does not open it to others.
    if given.policies.ignore.obeys(IgnorableField::XAccelRedirect)
        && field(fetched, b"x-accel-redirect").is_some()
    {
        return Err(NotKept::AccelRedirect);
    }
    let own = Lifetime::of(given, fetched, now);
    let life = match ruling {
        Some(ruling) => Lifetime::ruled(own, ruling, (given.rules, now))?,
        None => own?,
    };
    let told = ruling.and_then(Ruling::names);
    let vary = told.unwrap_or_else(|| vary(given, fetched));
    Ok((life, vary.ok_or(NotKept::Vary)?))
}

/// Key under which the answer is stored: the one that was looked up, if the answer is of that
/// variant.
///
/// nginx: an answer without Vary, or with another Vary than the first key's entry, takes the first
/// key. There it decides from now on what the variants are.
pub(crate) fn storage_key(walk: &Walk, head: &StoredHead, looked_up: VariantKey) -> VariantKey {
    let first = VariantKey::first(walk.key.key);
    if head.vary.is_empty() {
        return first;
    }
    let own = VariantKey::of(
        walk.zone.keys(),
        &first.key,
        (looked_up.seed, &head.variant),
    );
    if own == looked_up {
        return own;
    }
    let seed = walk.zone.seed(&walk.key);
    let seed = seed.unwrap_or_else(|| walk.zone.new_seed());
    VariantKey { seed, ..first }
}

/// Time for which an answer is fresh, and stale beyond it.
pub(crate) struct Lifetime {
    until: i64,
    /// Neither a heuristic nor the configuration says it.
    is_stated: bool,
    stale_updating: u32,
    stale_error: u32,
    initial_age: u32,
    bounds: Bounds,
}

impl Lifetime {
    /// The lifetime of an answer, or why it must not be stored.
    pub(crate) fn of<F: Fetched>(
        given: &Given<'_>,
        fetched: &F,
        now: i64,
    ) -> Result<Lifetime, NotKept> {
        // RFC 9111 §3: only final answers are stored.
        if fetched.status() < 200 {
            return Err(NotKept::Interim);
        }
        if let Some(asked) = given.rules.asked() {
            let fields = AnswerFields::read(given, &|each| fetched.each_field(each), now);
            let came = (now, fetched.delay());
            return Lifetime::by_rfc(given, asked, (fetched.status(), &fields, came))
                .map_err(NotKept::Rules);
        }
        let validity = validity(given, fetched, now);
        let verdict = validity.verdict();
        let (until, stale) = match verdict {
            Validity::NotStorable(why) => return Err(NotKept::Refused(why)),
            Validity::Until(until) => (until, 0),
            Validity::Unset => match configured(given, fetched.status(), now) {
                Some(configured) => configured,
                // The fields alone forbid it.
                None if vary(given, fetched).is_none() => return Err(NotKept::Vary),
                None => return Err(NotKept::NoTime),
            },
        };
        Ok(Lifetime {
            until,
            is_stated: matches!(verdict, Validity::Until(_)),
            stale_updating: bounded(validity.stale_updating().max(stale)),
            stale_error: bounded(validity.stale_error().max(stale)),
            initial_age: 0,
            bounds: Bounds::default(),
        })
    }

    /// The lifetime by a ruling, from what else is known of it.
    pub(crate) fn ruled(
        own: Result<Lifetime, NotKept>,
        ruling: &Ruling,
        (rules, now): (&Rules, i64),
    ) -> Result<Lifetime, NotKept> {
        if ruling.forbids() {
            return Err(NotKept::Ruled);
        }
        let mut life = match own {
            Err(why) if ruling.fresh.is_some() && why.may_be_overruled() => Lifetime {
                until: now,
                is_stated: true,
                stale_updating: 0,
                stale_error: 0,
                initial_age: 0,
                bounds: Bounds::default(),
            },
            own => own?,
        };
        if let Some(fresh) = ruling.fresh {
            let seconds = i64::try_from(fresh.as_secs()).unwrap_or(i64::MAX);
            // Under the RFC's rules the last fresh second is that before the lifetime is over.
            let last = i64::from(rules.is_rfc() || seconds == 0);
            life.until = now.saturating_add(seconds).saturating_sub(last);
            life.is_stated = true;
        }
        if let Some(stale) = ruling.stale {
            life.stale_updating = bounded(stale.as_secs());
            life.stale_error = bounded(stale.as_secs());
        }
        Ok(life)
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
        given: &Given<'_>,
        fetched: &F,
        (head, now): (&StoredHead, i64),
    ) -> Option<Lifetime> {
        if let Some(asked) = given.rules.asked() {
            let fields = AnswerFields::read(given, &|each| each_stored_field(head, each), now);
            let came = (now, fetched.delay());
            return Lifetime::by_rfc(given, asked, (head.status, &fields, came)).ok();
        }
        let fresh = renewing_validity(given, fetched, now);
        let stored = stored_validity(given, head, now);
        let ((until, stale), source) = match (fresh.verdict(), stored.verdict()) {
            (Validity::NotStorable(_), _) => return None,
            (Validity::Until(until), _) => ((until, 0), &fresh),
            (Validity::Unset, Validity::Until(until)) => ((until, 0), &stored),
            (Validity::Unset, _) => (configured(given, head.status, now)?, &stored),
        };
        Some(Lifetime {
            until,
            is_stated: false,
            stale_updating: bounded(source.stale_updating().max(stale)),
            stale_error: bounded(source.stale_error().max(stale)),
            initial_age: 0,
            bounds: Bounds::default(),
        })
    }

    /// The lifetime that a 304 gives to a stored answer of which somebody rules.
    pub(crate) fn renewed_by(
        life: Option<Lifetime>,
        ruling: Option<&Ruling>,
        at: (&Rules, i64),
    ) -> Option<Lifetime> {
        match ruling {
            Some(ruling) => Lifetime::ruled(life.ok_or(NotKept::NoTime), ruling, at).ok(),
            None => life,
        }
    }

    /// RFC 9111 §3, §4.2.
    fn by_rfc(
        given: &Given<'_>,
        asked: &RequestRules,
        (status, fields, (now, delay)): (u16, &AnswerFields, (i64, u64)),
    ) -> Result<Lifetime, reuse::Refusal> {
        let control = fields.cache_control.iter().map(|value| &value[..]);
        let answer = Answer {
            status,
            cache_control: CacheControl::parse(control),
            expires: fields.expires.as_deref(),
            date: fields.date,
            age: fields.age,
            last_modified: fields.last_modified,
            has_validator: fields.has_validator,
            sets_cookie: fields.sets_cookie,
        };
        let configured = given.valid.times_for(status);
        let asked = Asked {
            is_authorized: given.is_authorized,
            forbids_storing: asked.no_store,
            received: now,
            delay,
            configured: configured.map(|line| line.time.as_secs()),
        };
        let terms = reuse::terms(&answer, &asked)?;
        // What the answer states itself is stronger.
        let counts = configured.filter(|_| !terms.is_stated);
        let stale = counts.map_or(0, |line| line.stale.as_secs());
        let left = terms.lifetime as i128 - terms.initial_age as i128;
        // Seconds are told whole: the last fresh one is that before the lifetime is over.
        let until = i128::from(now) + left - 1;
        Ok(Lifetime {
            until: until.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64,
            is_stated: terms.is_stated,
            stale_updating: bounded(terms.while_revalidating.max(stale)),
            stale_error: bounded(terms.on_error.unwrap_or(0).max(stale)),
            initial_age: bounded(terms.initial_age),
            bounds: Bounds {
                must_validate: terms.must_validate,
                never_stale: terms.never_stale,
                states_on_error: terms.on_error.is_some(),
            },
        })
    }

    /// Ends it no later than who gave the answer says.
    pub(crate) fn end_with<F: Fetched>(&mut self, fetched: &F, now: i64) {
        if let Some(left) = fetched.fresh_left() {
            self.until = self.until.min(now.saturating_add(left));
        }
    }

    /// Writes the lifetime into a head.
    pub(crate) fn apply(&self, head: &mut StoredHead) {
        head.valid_until = self.until;
        head.stale_updating = self.stale_updating;
        head.stale_error = self.stale_error;
        head.initial_age = self.initial_age;
        head.bounds = self.bounds;
    }
}

/// The fields of an answer that RFC 9111 looks at.
#[derive(Default)]
pub(super) struct AnswerFields {
    cache_control: Vec<Bytes>,
    expires: Option<Bytes>,
    date: Option<i64>,
    age: u64,
    has_age: bool,
    last_modified: Option<i64>,
    has_validator: bool,
    sets_cookie: bool,
}

impl AnswerFields {
    pub(super) fn read(given: &Given<'_>, each_field: EachField<'_>, now: i64) -> Self {
        let mut fields = AnswerFields::default();
        each_field(&mut |name, value| fields.push(given, (name, value), now));
        if let Some(control) = targeted(given, each_field) {
            fields.cache_control = vec![Bytes::from(control)];
            fields.expires = None;
        }
        fields
    }

    /// True if the fields say for how long the answer is fresh.
    pub(super) fn state_lifetime(&self) -> bool {
        let control = CacheControl::parse(self.cache_control.iter().map(|value| &value[..]));
        control.max_age.is_some() || control.s_maxage.is_some() || self.expires.is_some()
    }

    fn push(&mut self, given: &Given<'_>, (name, value): (&[u8], &[u8]), now: i64) {
        let obeys = |field| given.policies.ignore.obeys(field);
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"cache-control") && obeys(IgnorableField::CacheControl) {
            self.cache_control.push(Bytes::copy_from_slice(value));
        } else if is(b"expires") && obeys(IgnorableField::Expires) && self.expires.is_none() {
            // RFC 9110 §5.6.7: a date in another zone is malformed, hence past.
            let value = if is_in_gmt(value) { value } else { b"0" };
            self.expires = Some(Bytes::copy_from_slice(value));
        } else if is(b"date") {
            self.date = self.date.or_else(|| given.time(value, now));
        } else if is(b"age") && !self.has_age {
            // RFC 9111 §5.1: an Age that is no number is ignored.
            self.age = parse_age(value).unwrap_or(0);
            self.has_age = true;
        } else if is(b"last-modified") {
            self.last_modified = self.last_modified.or_else(|| given.time(value, now));
            self.has_validator |= self.last_modified.is_some();
        } else if is(b"etag") {
            self.has_validator = true;
        } else if is(b"set-cookie") && obeys(IgnorableField::SetCookie) {
            self.sets_cookie = true;
        }
    }
}

/// RFC 9110 §7.6.1: the fields that Connection names are for the next hop only.
pub(super) fn connection_fields<F: Fetched>(given: &Given<'_>, fetched: &F) -> Vec<Vec<u8>> {
    let mut named = Vec::new();
    if given.rules.is_rfc() {
        fetched.each_field(&mut |name, value| {
            if name.eq_ignore_ascii_case(b"connection") {
                named.extend(list::members(value).map(<[u8]>::to_vec));
            }
        });
    }
    named
}

/// Value that takes the place of Cache-Control and Expires.
fn targeted(given: &Given<'_>, each_field: EachField<'_>) -> Option<Vec<u8>> {
    let rules = given.rules.conformance();
    given.policies.targeted.control(rules, each_field)
}

fn bounded(seconds: u64) -> u32 {
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// Last second of the configured lifetime, and seconds after it.
fn configured(given: &Given<'_>, status: u16, now: i64) -> Option<(i64, u64)> {
    let line = given.valid.times_for(status)?;
    let time = i64::try_from(line.time.as_secs()).unwrap_or(i64::MAX);
    Some((now.saturating_add(time), line.stale.as_secs()))
}

fn validity<F: Fetched>(given: &Given<'_>, fetched: &F, now: i64) -> UpstreamValidity {
    read_validity(given, &|each| fetched.each_field(each), now)
}

/// Validity as of [`validity`], but a cookie does not count: it forbids to store the answer that
/// sets it, not to reuse an older one.
fn renewing_validity<F: Fetched>(given: &Given<'_>, fetched: &F, now: i64) -> UpstreamValidity {
    let without_cookies = |each: &mut dyn FnMut(&[u8], &[u8])| {
        fetched.each_field(&mut |name, value| {
            if !name.eq_ignore_ascii_case(b"set-cookie") {
                each(name, value);
            }
        });
    };
    read_validity(given, &without_cookies, now)
}

fn stored_validity(given: &Given<'_>, head: &StoredHead, now: i64) -> UpstreamValidity {
    read_validity(given, &|each| each_stored_field(head, each), now)
}

pub(super) fn each_stored_field(head: &StoredHead, each: &mut dyn FnMut(&[u8], &[u8])) {
    for (name, value) in head.fields() {
        each(name, value);
    }
}

fn read_validity(given: &Given<'_>, each_field: EachField<'_>, now: i64) -> UpstreamValidity {
    let mut validity = UpstreamValidity::new(now);
    let control = targeted(given, each_field);
    let obeys = |field| given.policies.ignore.obeys(field);
    each_field(&mut |name, value| {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"cache-control") && control.is_none() && obeys(IgnorableField::CacheControl) {
            validity.handle_cache_control(value);
        } else if is(b"expires") && control.is_none() && obeys(IgnorableField::Expires) {
            validity.handle_expires(value);
        } else if is(b"x-accel-expires") && obeys(IgnorableField::XAccelExpires) {
            validity.handle_x_accel_expires(value);
        } else if is(b"set-cookie") && obeys(IgnorableField::SetCookie) {
            validity.handle_set_cookie();
        }
    });
    if let Some(control) = &control {
        validity.handle_cache_control(control);
    }
    validity
}

/// The names of the answer's Vary; `None` when it cannot be stored for its sake.
pub(super) fn vary<F: Fetched>(given: &Given<'_>, fetched: &F) -> Option<Bytes> {
    if !given.policies.ignore.obeys(IgnorableField::Vary) {
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

/// True if all requests of the variant may be answered in the answer's codings: one that has no
/// better ones beside it is not regarded when variants are told apart.
pub(super) fn covers_coding<X: Exchange>(x: &X, each_field: EachField<'_>, vary: &[u8]) -> bool {
    const SELECTING: &[u8] = b"accept-encoding";
    let asked = x.field(SELECTING);
    if asked.is_empty() || !vary::names(vary).any(|name| name.eq_ignore_ascii_case(SELECTING)) {
        return true;
    }
    let mut covers = true;
    each_field(&mut |name, value| {
        if name.eq_ignore_ascii_case(b"content-encoding") {
            covers &= preference::covers_coding(asked.iter().copied(), value);
        }
    });
    covers
}
