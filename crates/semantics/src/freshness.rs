//! Age and freshness of a stored response (RFC 9111 §4.2, RFC 5861).
//!
//! ```text
//! apparent age            max(0, response time - Date)
//! corrected age value     Age + (response time - request time)
//! corrected initial age   the larger of the two
//! current age             corrected initial age + (now - response time)
//! fresh                   current age < freshness lifetime
//! ```
//!
//! Times are seconds since 1970, ages and lifetimes are seconds. Clocks that run backwards give
//! zero, sums that overflow give the largest number.
//!
//! It does not decide whether a response may be stored or reused; that needs the request and
//! policies.

use crate::cache_control::{CacheControl, parse_delta_seconds};
use crate::date::parse_http_date_by_rfc;
use crate::list;

/// RFC 9111 §4.2.2 suggests a tenth of the time since the last modification.
const HEURISTIC_DIVISOR: u64 = 10;

/// Audience that a cache stores for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// The cache is for many users: `s-maxage` counts.
    Shared,
    /// The cache is for one user.
    Private,
}

/// Values that the age of a response is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeInputs {
    /// The Age field in seconds; 0 without one.
    pub age_value: u64,
    /// The Date field; without one, take the time of the response (RFC 9110 §6.6.1).
    pub date: i64,
    /// Time when the request was sent.
    pub request_time: i64,
    /// Time when the response came.
    pub response_time: i64,
}

/// Values that the lifetime of a response is computed from.
#[derive(Clone, Copy, Debug)]
pub struct LifetimeInputs<'a> {
    /// The directives of the response.
    pub cache_control: &'a CacheControl<'a>,
    /// The Expires field, if there is one; several count as malformed, so hand in the first.
    pub expires: Option<&'a [u8]>,
    /// The Date field, or when the response came.
    pub date: i64,
    /// Time when the response came.
    pub received: i64,
}

/// Time for which a response is fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The origin said so, in seconds.
    Explicit(u64),
    /// The origin said nothing; a heuristic may be used.
    Unstated,
}

/// Reads an Age field: its first member (RFC 9111 §5.1); `None` if that is not a number.
#[must_use]
pub fn parse_age(value: &[u8]) -> Option<u64> {
    parse_delta_seconds(list::members(value).next()?)
}

/// RFC 9111 §4.2.3: how old the response seems by its Date.
#[must_use]
pub fn apparent_age(date: i64, response_time: i64) -> u64 {
    elapsed(date, response_time)
}

/// RFC 9111 §4.2.3: how old the response said it was, and the whole time that it was under way.
#[must_use]
pub fn corrected_age_value(age_value: u64, request_time: i64, response_time: i64) -> u64 {
    age_value.saturating_add(elapsed(request_time, response_time))
}

/// RFC 9111 §4.2.3: how old the response was when it came.
#[must_use]
pub fn corrected_initial_age(inputs: &AgeInputs) -> u64 {
    let apparent = apparent_age(inputs.date, inputs.response_time);
    apparent.max(corrected_age_value(
        inputs.age_value,
        inputs.request_time,
        inputs.response_time,
    ))
}

/// RFC 9111 §4.2.3: how old the response is `now`; the value of the Age field to send.
#[must_use]
pub fn current_age(inputs: &AgeInputs, now: i64) -> u64 {
    corrected_initial_age(inputs).saturating_add(elapsed(inputs.response_time, now))
}

/// RFC 9111 §4.2.1: how long the origin lets the response be fresh.
#[must_use]
pub fn freshness_lifetime(inputs: &LifetimeInputs<'_>, kind: CacheKind) -> Lifetime {
    let shared = match kind {
        CacheKind::Shared => inputs.cache_control.s_maxage,
        CacheKind::Private => None,
    };
    if let Some(seconds) = shared.or(inputs.cache_control.max_age) {
        return Lifetime::Explicit(seconds);
    }
    match inputs.expires {
        None => Lifetime::Unstated,
        // RFC 9111 §5.3: a malformed date, such as `0`, is a time in the past.
        Some(expires) => Lifetime::Explicit(
            parse_http_date_by_rfc(expires, inputs.received)
                .map_or(0, |until| elapsed(inputs.date, until)),
        ),
    }
}

/// RFC 9111 §4.2.2: a tenth of the time between Last-Modified and Date.
///
/// Use it only for an unstated lifetime, and if the status or `public` allows it.
#[must_use]
pub fn heuristic_lifetime(date: i64, last_modified: i64) -> u64 {
    elapsed(last_modified, date) / HEURISTIC_DIVISOR
}

/// RFC 9110 §15.1: statuses that may be stored by a heuristic.
#[must_use]
pub fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(
        status,
        200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// RFC 9111 §4.2: whether a response of this age is fresh.
#[must_use]
pub fn is_fresh(lifetime: u64, age: u64) -> bool {
    lifetime > age
}

/// Number of seconds for which the response has been stale; `None` if it is fresh.
#[must_use]
pub fn staleness(lifetime: u64, age: u64) -> Option<u64> {
    age.checked_sub(lifetime)
}

/// RFC 9111 §4.2.4: whether the origin forbids serving this response stale.
#[must_use]
pub fn must_not_serve_stale(cache_control: &CacheControl<'_>, kind: CacheKind) -> bool {
    let is_shared = kind == CacheKind::Shared;
    // RFC 9111 §5.2.2.10: s-maxage implies proxy-revalidate.
    cache_control.must_revalidate
        || cache_control.no_cache
        || (is_shared && (cache_control.proxy_revalidate || cache_control.s_maxage.is_some()))
}

/// RFC 5861 §3: whether a response may be served this many seconds after it became stale, during
/// revalidation.
#[must_use]
pub fn may_serve_while_revalidating(cache_control: &CacheControl<'_>, stale_for: u64) -> bool {
    cache_control
        .stale_while_revalidate
        .is_some_and(|window| stale_for <= window)
}

/// RFC 5861 §4: whether a response may be served this many seconds after it became stale, because
/// of an error.
#[must_use]
pub fn may_serve_on_error(cache_control: &CacheControl<'_>, stale_for: u64) -> bool {
    cache_control
        .stale_if_error
        .is_some_and(|window| stale_for <= window)
}

/// Seconds from `earlier` to `later`; 0 if the clock ran backwards.
fn elapsed(earlier: i64, later: i64) -> u64 {
    u64::try_from(later.saturating_sub(earlier)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_control::{MAX_DELTA_SECONDS, parse_cache_control};

    const DATE: i64 = 784_111_777;

    #[test]
    fn age_field_is_a_number_or_nothing() {
        for (value, expected) in [
            ("0", Some(0)),
            ("60", Some(60)),
            (" 60 , 70", Some(60)),
            ("99999999999999999999", Some(MAX_DELTA_SECONDS)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("abc", None),
        ] {
            assert_eq!(parse_age(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn larger_of_the_two_ages_counts() {
        let inputs = AgeInputs {
            age_value: 10,
            date: DATE,
            request_time: DATE,
            response_time: DATE + 2,
        };
        assert_eq!(apparent_age(DATE, DATE + 2), 2);
        assert_eq!(corrected_initial_age(&inputs), 12);
        assert_eq!(current_age(&inputs, DATE + 5), 15);
        let behind = AgeInputs {
            date: DATE - 100,
            ..inputs
        };
        assert_eq!(corrected_initial_age(&behind), 102);
    }

    #[test]
    fn clock_that_runs_backwards_makes_nothing_older() {
        let inputs = AgeInputs {
            age_value: 0,
            date: DATE + 50,
            request_time: DATE + 9,
            response_time: DATE,
        };
        assert_eq!(current_age(&inputs, DATE - 10), 0);
        let extreme = AgeInputs {
            age_value: u64::MAX,
            date: i64::MIN,
            request_time: i64::MIN,
            response_time: i64::MAX,
        };
        assert_eq!(current_age(&extreme, i64::MAX), u64::MAX);
    }

    #[test]
    fn lifetime_comes_from_the_most_specific_source() {
        use CacheKind::{Private, Shared};
        use Lifetime::{Explicit, Unstated};
        let later: Option<&[u8]> = Some(b"Sun, 06 Nov 1994 08:50:37 GMT");
        for (control, expires, kind, expected) in [
            ("s-maxage=1, max-age=2", later, Shared, Explicit(1)),
            ("s-maxage=1, max-age=2", later, Private, Explicit(2)),
            ("max-age=2", later, Shared, Explicit(2)),
            ("s-maxage=1", later, Private, Explicit(60)),
            ("", later, Shared, Explicit(60)),
            ("", Some(b"0".as_slice()), Shared, Explicit(0)),
            ("", None, Shared, Unstated),
        ] {
            let cache_control = parse_cache_control(control.as_bytes());
            let inputs = LifetimeInputs {
                cache_control: &cache_control,
                expires,
                date: DATE,
                received: DATE,
            };
            assert_eq!(freshness_lifetime(&inputs, kind), expected, "{control}");
        }
    }

    #[test]
    fn heuristic_is_a_tenth_of_the_time_unchanged() {
        assert_eq!(heuristic_lifetime(DATE, DATE - 1000), 100);
        assert_eq!(heuristic_lifetime(DATE, DATE + 1000), 0);
        assert!(is_heuristically_cacheable(404));
        assert!(!is_heuristically_cacheable(302));
    }

    #[test]
    fn response_is_stale_from_the_end_of_its_lifetime() {
        assert!(is_fresh(10, 9));
        assert!(!is_fresh(10, 10));
        assert_eq!(
            (staleness(10, 9), staleness(10, 10), staleness(10, 15)),
            (None, Some(0), Some(5))
        );
    }

    #[test]
    fn staleness_is_allowed_within_its_window_and_forbidden_by_directives() {
        let control = parse_cache_control(b"stale-while-revalidate=5, stale-if-error=7");
        assert!(
            may_serve_while_revalidating(&control, 5) && !may_serve_while_revalidating(&control, 6)
        );
        assert!(may_serve_on_error(&control, 7) && !may_serve_on_error(&control, 8));
        for (value, shared, private) in [
            ("must-revalidate", true, true),
            ("no-cache", true, true),
            ("proxy-revalidate", true, false),
            ("s-maxage=5", true, false),
            ("max-age=5", false, false),
        ] {
            let control = parse_cache_control(value.as_bytes());
            assert_eq!(
                must_not_serve_stale(&control, CacheKind::Shared),
                shared,
                "{value}"
            );
            assert_eq!(
                must_not_serve_stale(&control, CacheKind::Private),
                private,
                "{value}"
            );
        }
    }
}
