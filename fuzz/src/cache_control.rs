//! Cache-Control, dates and the validity that an upstream gives: bounded, and what is written is
//! read.

use millpond_semantics::cache_control::{CacheControl, parse_delta_seconds};
use millpond_semantics::cache_status::{Handling, Member};
use millpond_semantics::conditional::{Comparison, EntityTag, etag_matches};
use millpond_semantics::date::{civil, format_http_date, parse_http_date};
use millpond_semantics::list;
use millpond_semantics::targeted::as_cache_control;
use millpond_semantics::upstream_validity::{UpstreamValidity, Validity};
use millpond_semantics::vary::Vary;
use millpond_semantics::{accept_encoding, conditional, freshness};

/// Reads a value as each of the fields.
pub fn run(data: &[u8]) {
    let Some((now, value)) = data.split_first_chunk::<4>() else {
        return;
    };
    let now = i64::from(i32::from_le_bytes(*now));
    let (one, other) = value.split_at(value.len() / 2);
    let _ = CacheControl::parse([one, other]);
    let _ = CacheControl::parse([value]);
    let _ = Vary::parse([one, other]);
    let _ = accept_encoding::accepts_gzip(value);
    let _ = freshness::parse_age(value);
    let _ = parse_delta_seconds(value);
    check_date(value);
    check_list(value);
    check_validity(value, now);
    check_tags(one, other);
    check_targeted(one, other);
}

/// Checks that a written Cache-Control is read again as it is, and that a member of Cache-Status is
/// text.
fn check_targeted(one: &[u8], other: &[u8]) {
    if let Some(control) = as_cache_control([one, other])
        && !control.is_empty()
    {
        assert_eq!(as_cache_control([&control[..]]), Some(control));
    }
    let member = Member {
        cache: one,
        handling: Handling::Hit,
        ttl: None,
        key: Some(other),
        detail: None,
    };
    let text = member.serialize();
    assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
}

fn check_date(value: &[u8]) {
    if let Some(time) = parse_http_date(value).filter(|time| *time >= 0) {
        assert_eq!(parse_http_date(&format_http_date(time)), Some(time));
        assert!((1..=12).contains(&civil(time).month));
    }
}

fn check_list(value: &[u8]) {
    let mut count = 0;
    for member in list::members(value) {
        count += 1;
        assert!(!member.is_empty() && list::trim_ows(member) == member);
        let (name, _) = list::name_and_value(member);
        assert!(name.len() <= member.len());
    }
    assert!(count <= value.len());
    assert!(list::unquote(value).len() <= value.len());
}

/// Fields in one order and in the other: a refusal stays, whatever comes behind it.
fn check_validity(value: &[u8], now: i64) {
    let mut parts = value.splitn(3, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (control, expires, accel) = (part(), part(), part());
    let mut forward = UpstreamValidity::new(now);
    forward.handle_cache_control(control);
    forward.handle_expires(expires);
    forward.handle_x_accel_expires(accel);
    let mut backward = UpstreamValidity::new(now);
    backward.handle_set_cookie();
    backward.handle_x_accel_expires(accel);
    backward.handle_expires(expires);
    backward.handle_cache_control(control);
    assert!(matches!(backward.verdict(), Validity::NotStorable(_)));
    if let Validity::Until(until) = forward.verdict() {
        assert_ne!(until, 0, "no time is a time");
    }
}

fn check_tags(one: &[u8], other: &[u8]) {
    if let (Some(a), Some(b)) = (EntityTag::parse(one), EntityTag::parse(other)) {
        assert_eq!(a.matches_weakly(&b), b.matches_weakly(&a));
        assert!(!a.matches_strongly(&b) || a.matches_weakly(&b));
        if a.matches_weakly(&b) {
            assert!(etag_matches(one, other, Comparison::Weak));
        }
    }
    let _ = conditional::if_range_holds(one, Some(other), None);
}
