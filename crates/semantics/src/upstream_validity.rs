//! Time for which a response may be stored, by nginx's reading of what the upstream sent.
//!
//! The pieces read one field each: [`cache_control_validity`], [`x_accel_expires`], [`expires`].
//! [`UpstreamValidity`] puts them together in the order in which the fields came, because the order
//! matters:
//!
//! ```text
//! X-Accel-Expires  over  Cache-Control  over  Expires
//! ```
//!
//! Rules:
//! 1. `no-cache`, `no-store`, `private` and a lifetime of zero forbid storing; an X-Accel-Expires
//!    that names a time lifts that, before or after.
//! 2. A number that is malformed in Cache-Control, `X-Accel-Expires: 0`, Set-Cookie and `Vary: *`
//!    forbid storing and nothing lifts it.
//! 3. An Expires that is past or malformed forbids storing, unless another field names a time.
//! 4. A second Expires or X-Accel-Expires is ignored; a later `max-age` replaces an earlier one.
//! 5. A field that `proxy_ignore_headers` names is simply not handed in.
//!
//! # Differs from the RFC
//! Cache-Control is searched for words, not parsed: `x-max-age=5` has a `max-age`,
//! `no-cache="Set-Cookie"` forbids storing, and `s-maxage` and `max-age` end at a comma, a
//! semicolon or a space. Age and Date play no part.
//!
//! # Differs from nginx
//! An ignored X-Accel-Expires has no effect at all; in nginx its presence still hides `max-age`
//! behind an Expires.

use crate::date::parse_http_date;

/// Verdict of one Cache-Control line about storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CcVerdict {
    /// Validity of the response: if it may be stored, and for how long.
    pub validity: CcValidity,
    /// `stale-while-revalidate`: seconds after the validity in which it may be served while it is
    /// updated.
    pub stale_updating: Option<u64>,
    /// `stale-if-error`, or else `stale-while-revalidate`: the same for when the upstream fails.
    pub stale_error: Option<u64>,
}

/// The storing part of a [`CcVerdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CcValidity {
    /// The response may not be stored.
    NotStorable(Refusal),
    /// The response may be stored.
    Valid {
        /// `s-maxage` or else `max-age`, in seconds, above zero.
        max_age: u64,
        /// End of that time, as an instant.
        until: i64,
    },
    /// The line does not say; `proxy_cache_valid` decides.
    Unset,
}

/// Part of Cache-Control that forbids storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidding {
    /// `no-cache`.
    NoCache,
    /// `no-store`.
    NoStore,
    /// `private`.
    Private,
    /// A lifetime of zero.
    NoTime,
}

/// The reason why a response may not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The upstream forbids to store the response in Cache-Control, by this word.
    Forbidden(Forbidding),
    /// A number in Cache-Control is malformed.
    Malformed,
    /// `X-Accel-Expires: 0`.
    AccelExpires,
    /// Expires is past or malformed.
    Expired,
    /// The response sets a cookie.
    SetCookie,
    /// Vary is `*` or too long.
    Vary,
}

/// Meaning of X-Accel-Expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccelExpires {
    /// The value is `0`: the response may not be stored.
    NotStorable,
    /// Stored until this time, which may be past; the time 0 means that `proxy_cache_valid`
    /// decides.
    Until(i64),
    /// The value is not a number (such as `off` or `-1`): as if the field were not there.
    Unset,
}

/// Meaning of Expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    /// The date is past or malformed.
    Expired,
    /// Stored until this time.
    Until(i64),
}

/// The stale extensions of one Cache-Control line (RFC 5861).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StaleExtensions {
    updating: Option<u64>,
    error: Option<u64>,
}

/// Reads one Cache-Control line as nginx does.
#[must_use]
pub fn cache_control_validity(value: &[u8], now: i64) -> CcVerdict {
    let forbidding: [(&[u8], Forbidding); 3] = [
        (b"no-store", Forbidding::NoStore),
        (b"private", Forbidding::Private),
        (b"no-cache", Forbidding::NoCache),
    ];
    let found = forbidding
        .into_iter()
        .find(|(word, _)| after_word(value, word).is_some());
    if let Some((_, forbidding)) = found {
        return refused(Refusal::Forbidden(forbidding));
    }
    let lifetime = after_word(value, b"s-maxage=").or_else(|| after_word(value, b"max-age="));
    let validity = match lifetime.map(delta_seconds) {
        None => CcValidity::Unset,
        Some(None) => return refused(Refusal::Malformed),
        Some(Some(0)) => return refused(Refusal::Forbidden(Forbidding::NoTime)),
        Some(Some(max_age)) => CcValidity::Valid {
            max_age,
            until: later(now, max_age),
        },
    };
    match stale_extensions(value) {
        None => refused(Refusal::Malformed),
        Some(stale) => CcVerdict {
            validity,
            stale_updating: stale.updating,
            stale_error: stale.error,
        },
    }
}

/// Reads X-Accel-Expires: seconds from now, `@` and a time, or `0`.
#[must_use]
pub fn x_accel_expires(value: &[u8], now: i64) -> AccelExpires {
    if let Some(time) = value.strip_prefix(b"@") {
        return whole_number(time).map_or(AccelExpires::Unset, |time| {
            AccelExpires::Until(later(0, time))
        });
    }
    match whole_number(value) {
        None => AccelExpires::Unset,
        Some(0) => AccelExpires::NotStorable,
        Some(seconds) => AccelExpires::Until(later(now, seconds)),
    }
}

/// Reads Expires.
#[must_use]
pub fn expires(value: &[u8], now: i64) -> Expires {
    match parse_http_date(value) {
        Some(time) if time >= now => Expires::Until(time),
        _ => Expires::Expired,
    }
}

fn refused(refusal: Refusal) -> CcVerdict {
    CcVerdict {
        validity: CcValidity::NotStorable(refusal),
        stale_updating: None,
        stale_error: None,
    }
}

/// `None` if a number is malformed.
fn stale_extensions(value: &[u8]) -> Option<StaleExtensions> {
    let updating = match after_word(value, b"stale-while-revalidate=") {
        Some(text) => Some(delta_seconds(text)?),
        None => None,
    };
    let error = match after_word(value, b"stale-if-error=") {
        Some(text) => Some(delta_seconds(text)?),
        // nginx: who may serve stale while updating may do so when updating fails.
        None => updating,
    };
    Some(StaleExtensions { updating, error })
}

/// Rest behind the first `word` in `value`, wherever it stands and in any case.
fn after_word<'a>(value: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let start = value
        .windows(word.len())
        .position(|window| window.eq_ignore_ascii_case(word))?;
    value.get(start + word.len()..)
}

/// Digits up to a comma, a semicolon, a space or the end; none are zero, too many are the largest
/// number.
fn delta_seconds(text: &[u8]) -> Option<u64> {
    let mut seconds: u64 = 0;
    for &byte in text {
        match byte {
            b',' | b';' | b' ' => break,
            b'0'..=b'9' => {
                seconds = seconds
                    .saturating_mul(10)
                    .saturating_add(u64::from(byte - b'0'));
                // nginx: what follows a number that is too large is not looked at.
                if seconds > i64::MAX as u64 {
                    return Some(i64::MAX as u64);
                }
            }
            _ => return None,
        }
    }
    Some(seconds)
}

/// A number that is all of `text`, at most 2^63 - 1.
fn whole_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let number = text.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })?;
    i64::try_from(number).is_ok().then_some(number)
}

fn later(now: i64, seconds: u64) -> i64 {
    now.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// Verdict of the upstream's fields together; hand them in in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamValidity {
    now: i64,
    /// Refusal that nothing lifts (rule 2).
    refusal: Option<Refusal>,
    /// Rule 1.
    forbidden: Option<Forbidding>,
    /// Rule 3.
    is_expired: bool,
    /// nginx's 0 for "not known" is kept, because `@0` means it.
    until: i64,
    has_accel_expires: bool,
    has_expires: bool,
    stale: StaleExtensions,
}

/// The answer of [`UpstreamValidity::verdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// The response may not be stored.
    NotStorable(Refusal),
    /// Stored until this time, which may be past: then it is stale at once.
    Until(i64),
    /// The upstream does not say; `proxy_cache_valid` decides.
    Unset,
}

impl UpstreamValidity {
    /// Nothing said yet; `now` is in seconds since 1970.
    #[must_use]
    pub fn new(now: i64) -> Self {
        Self {
            now,
            refusal: None,
            forbidden: None,
            is_expired: false,
            until: 0,
            has_accel_expires: false,
            has_expires: false,
            stale: StaleExtensions::default(),
        }
    }

    /// A Cache-Control line came.
    pub fn handle_cache_control(&mut self, value: &[u8]) {
        if self.until != 0 && self.has_accel_expires {
            // X-Accel-Expires has decided; only the extensions count.
            match stale_extensions(value) {
                None => self.refuse(Refusal::Malformed),
                Some(stale) => self.extend(stale),
            }
            return;
        }
        let verdict = cache_control_validity(value, self.now);
        match verdict.validity {
            CcValidity::NotStorable(Refusal::Forbidden(by)) => {
                self.forbidden = self.forbidden.or(Some(by));
            }
            CcValidity::NotStorable(refusal) => self.refuse(refusal),
            CcValidity::Unset => {}
            CcValidity::Valid { until, .. } => {
                self.until = until;
                self.is_expired = false;
            }
        }
        self.extend(StaleExtensions {
            updating: verdict.stale_updating,
            error: verdict.stale_error,
        });
    }

    /// An Expires line came.
    pub fn handle_expires(&mut self, value: &[u8]) {
        if std::mem::replace(&mut self.has_expires, true) || self.until != 0 {
            return;
        }
        match expires(value, self.now) {
            Expires::Expired => self.is_expired = true,
            Expires::Until(time) => self.until = time,
        }
    }

    /// An X-Accel-Expires line came.
    pub fn handle_x_accel_expires(&mut self, value: &[u8]) {
        if std::mem::replace(&mut self.has_accel_expires, true) {
            return;
        }
        match x_accel_expires(value, self.now) {
            AccelExpires::NotStorable => self.refuse(Refusal::AccelExpires),
            AccelExpires::Unset => {}
            AccelExpires::Until(time) => {
                self.until = time;
                self.forbidden = None;
                self.is_expired = false;
            }
        }
    }

    /// A Set-Cookie line came.
    pub fn handle_set_cookie(&mut self) {
        self.refuse(Refusal::SetCookie);
    }

    /// The Vary lines together are `*` or too long; see [`vary`](crate::vary).
    pub fn handle_unusable_vary(&mut self) {
        self.refuse(Refusal::Vary);
    }

    /// Verdict: if the response may be stored, and until when.
    #[must_use]
    pub fn verdict(&self) -> Validity {
        let refusal = self.refusal.or(self.forbidden.map(Refusal::Forbidden));
        match refusal {
            Some(refusal) => Validity::NotStorable(refusal),
            None if self.is_expired => Validity::NotStorable(Refusal::Expired),
            None if self.until == 0 => Validity::Unset,
            None => Validity::Until(self.until),
        }
    }

    /// Seconds after the validity in which it may be served while it is updated; 0 if none.
    #[must_use]
    pub fn stale_updating(&self) -> u64 {
        self.stale.updating.unwrap_or(0)
    }

    /// Seconds after the validity in which it may be served when the upstream fails; 0 if none.
    #[must_use]
    pub fn stale_error(&self) -> u64 {
        self.stale.error.unwrap_or(0)
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.refusal = self.refusal.or(Some(refusal));
    }

    fn extend(&mut self, stale: StaleExtensions) {
        self.stale.updating = stale.updating.or(self.stale.updating);
        self.stale.error = stale.error.or(self.stale.error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000_000;
    const FUTURE: &str = "Thu, 31 Dec 2037 23:55:55 GMT";
    const FUTURE_TIME: i64 = 2_145_916_555;
    const PAST: &str = "Thu, 01 Jan 1970 00:00:01 GMT";

    fn together(fields: &[(&str, &str)]) -> UpstreamValidity {
        let mut validity = UpstreamValidity::new(NOW);
        for (name, value) in fields {
            match *name {
                "cc" => validity.handle_cache_control(value.as_bytes()),
                "expires" => validity.handle_expires(value.as_bytes()),
                "accel" => validity.handle_x_accel_expires(value.as_bytes()),
                "cookie" => validity.handle_set_cookie(),
                _ => validity.handle_unusable_vary(),
            }
        }
        validity
    }

    #[test]
    fn cache_control_is_searched_for_words() {
        use CcValidity::{NotStorable, Unset};
        let valid = |max_age| CcValidity::Valid {
            max_age,
            until: NOW + max_age as i64,
        };
        for (value, expected) in [
            ("", Unset),
            ("public", Unset),
            ("max-age=60", valid(60)),
            ("public, MAX-AGE=60, x", valid(60)),
            ("max-age=60;x", valid(60)),
            ("max-age=60 x", valid(60)),
            ("max-age=60, s-maxage=30", valid(30)),
            ("x-max-age=5", valid(5)),
            ("max-age =5", Unset),
            (
                "max-age=0",
                NotStorable(Refusal::Forbidden(Forbidding::NoTime)),
            ),
            (
                "max-age=",
                NotStorable(Refusal::Forbidden(Forbidding::NoTime)),
            ),
            (
                "s-maxage=0, max-age=5",
                NotStorable(Refusal::Forbidden(Forbidding::NoTime)),
            ),
            (
                "No-Cache, max-age=60",
                NotStorable(Refusal::Forbidden(Forbidding::NoCache)),
            ),
            (
                "no-cache=\"Set-Cookie\"",
                NotStorable(Refusal::Forbidden(Forbidding::NoCache)),
            ),
            (
                "no-store",
                NotStorable(Refusal::Forbidden(Forbidding::NoStore)),
            ),
            (
                "xprivatex",
                NotStorable(Refusal::Forbidden(Forbidding::Private)),
            ),
            ("max-age=-1", NotStorable(Refusal::Malformed)),
            ("max-age=6x", NotStorable(Refusal::Malformed)),
            ("max-age=\"60\"", NotStorable(Refusal::Malformed)),
            (
                "max-age=60, stale-if-error=x",
                NotStorable(Refusal::Malformed),
            ),
        ] {
            assert_eq!(
                cache_control_validity(value.as_bytes(), NOW).validity,
                expected,
                "{value}"
            );
        }
    }

    #[test]
    fn lifetime_that_is_too_long_ends_with_time() {
        let verdict = cache_control_validity(b"max-age=9223372036854775808x", NOW);
        assert_eq!(
            verdict.validity,
            CcValidity::Valid {
                max_age: i64::MAX as u64,
                until: i64::MAX
            }
        );
    }

    #[test]
    fn stale_while_revalidate_also_covers_errors() {
        for (value, updating, error) in [
            ("max-age=1", None, None),
            ("stale-while-revalidate=5", Some(5), Some(5)),
            ("stale-if-error=7", None, Some(7)),
            (
                "stale-while-revalidate=5, stale-if-error=7",
                Some(5),
                Some(7),
            ),
            ("no-cache, stale-if-error=7", None, None),
        ] {
            let verdict = cache_control_validity(value.as_bytes(), NOW);
            assert_eq!(
                (verdict.stale_updating, verdict.stale_error),
                (updating, error),
                "{value}"
            );
        }
    }

    #[test]
    fn x_accel_expires_is_a_delta_a_time_or_nothing() {
        for (value, expected) in [
            ("60", AccelExpires::Until(NOW + 60)),
            ("@60", AccelExpires::Until(60)),
            ("@0", AccelExpires::Until(0)),
            ("0", AccelExpires::NotStorable),
            ("off", AccelExpires::Unset),
            ("-1", AccelExpires::Unset),
            ("", AccelExpires::Unset),
            ("@", AccelExpires::Unset),
            ("@-1", AccelExpires::Unset),
            ("9223372036854775807", AccelExpires::Until(i64::MAX)),
            ("9223372036854775808", AccelExpires::Unset),
        ] {
            assert_eq!(x_accel_expires(value.as_bytes(), NOW), expected, "{value}");
        }
    }

    #[test]
    fn expires_that_is_past_or_malformed_is_expired() {
        assert_eq!(expires(FUTURE.as_bytes(), NOW), Expires::Until(FUTURE_TIME));
        assert_eq!(
            expires(FUTURE.as_bytes(), FUTURE_TIME),
            Expires::Until(FUTURE_TIME)
        );
        for value in [PAST, "0", "-1", ""] {
            assert_eq!(expires(value.as_bytes(), NOW), Expires::Expired, "{value}");
        }
    }

    #[test]
    fn fields_together_follow_their_precedence() {
        use Validity::{NotStorable, Unset, Until};
        let cases: [(&[(&str, &str)], Validity); 22] = [
            (&[], Unset),
            (&[("expires", FUTURE)], Until(FUTURE_TIME)),
            (&[("expires", PAST)], NotStorable(Refusal::Expired)),
            (
                &[("expires", PAST), ("expires", FUTURE)],
                NotStorable(Refusal::Expired),
            ),
            (&[("cc", "max-age=60"), ("expires", PAST)], Until(NOW + 60)),
            (&[("expires", PAST), ("cc", "max-age=60")], Until(NOW + 60)),
            (
                &[("expires", FUTURE), ("cc", "max-age=60")],
                Until(NOW + 60),
            ),
            (
                &[("cc", "no-cache"), ("expires", FUTURE)],
                NotStorable(Refusal::Forbidden(Forbidding::NoCache)),
            ),
            (
                &[("expires", FUTURE), ("cc", "no-cache")],
                NotStorable(Refusal::Forbidden(Forbidding::NoCache)),
            ),
            (
                &[("cc", "no-cache"), ("cc", "max-age=60")],
                NotStorable(Refusal::Forbidden(Forbidding::NoCache)),
            ),
            (
                &[("cc", "max-age=10"), ("cc", "max-age=60")],
                Until(NOW + 60),
            ),
            (
                &[("accel", "60"), ("expires", PAST), ("cc", "no-cache")],
                Until(NOW + 60),
            ),
            (
                &[("expires", PAST), ("cc", "no-cache"), ("accel", "60")],
                Until(NOW + 60),
            ),
            (&[("accel", "60"), ("cc", "max-age=5")], Until(NOW + 60)),
            (
                &[("accel", "0"), ("cc", "max-age=60")],
                NotStorable(Refusal::AccelExpires),
            ),
            (
                &[("cc", "max-age=60"), ("accel", "0")],
                NotStorable(Refusal::AccelExpires),
            ),
            (&[("accel", "60"), ("accel", "0")], Until(NOW + 60)),
            (&[("accel", "@60")], Until(60)),
            (&[("cc", "no-cache"), ("accel", "@0")], Unset),
            (
                &[("cc", "max-age=x"), ("accel", "60")],
                NotStorable(Refusal::Malformed),
            ),
            (
                &[("cookie", ""), ("accel", "60")],
                NotStorable(Refusal::SetCookie),
            ),
            (
                &[("vary", ""), ("cc", "max-age=60")],
                NotStorable(Refusal::Vary),
            ),
        ];
        for (fields, expected) in cases {
            assert_eq!(together(fields).verdict(), expected, "{fields:?}");
        }
    }

    #[test]
    fn extensions_count_before_and_after_x_accel_expires() {
        let extension = ("cc", "stale-while-revalidate=2145902155");
        for fields in [[extension, ("accel", "@1")], [("accel", "@1"), extension]] {
            let validity = together(&fields);
            assert_eq!(validity.verdict(), Validity::Until(1));
            assert_eq!(validity.stale_updating(), 2_145_902_155);
            assert_eq!(validity.stale_error(), 2_145_902_155);
        }
    }
}
