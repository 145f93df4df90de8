//! Every parser takes every input: no bytes panic, and what is promised about results holds for all
//! of them.

use millpond_semantics::{
    accept_encoding, cache_control, cache_status, conditional, date, freshness, list, preference,
    query, range, targeted, upstream_validity, uri, vary,
};
use proptest::prelude::*;

/// Bytes of any kind, and texts made of the marks that the grammars know.
fn untrusted() -> impl Strategy<Value = Vec<u8>> {
    let marks = "[ \t,;:=\"*/.%?#@W\\[\\]\\\\0-9a-fA-F-]{0,40}".prop_map(String::into_bytes);
    let seeds = prop::sample::select(vec![
        &b"bytes=0-99, -5"[..],
        b"bytes 0-99/100",
        b"Sun, 06 Nov 1994 08:49:37 GMT",
        b"Sunday, 06-Nov-94 08:49:37 GMT",
        b"Sun Nov  6 08:49:37 1994",
        b"W/\"tag\", \"other\"",
        b"max-age=60, s-maxage=\"5\", no-cache=\"a, b\"",
        b"stale-while-revalidate=99999999999999999999",
        b"http://[::1]:8080/a/../b%2f?x#y",
        b"gzip;q=0.5, br",
    ]);
    let changed =
        (seeds, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(seed, at, byte)| {
            let mut bytes = seed.to_vec();
            let index = at.index(bytes.len());
            bytes[index] = byte;
            bytes
        });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..80), marks, changed]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_parser_panics(value in untrusted(), other in untrusted(), now in any::<i64>()) {
        let _ = accept_encoding::accepts_gzip(&value);
        let _ = cache_control::CacheControl::parse([&value[..], &other]);
        let _ = cache_control::parse_delta_seconds(&value);
        let _ = date::civil(now);
        let _ = date::format_http_date(now);
        let _ = freshness::parse_age(&value);
        let _ = list::unquote(&value);
        let _ = list::name_and_value(&value);
        let _ = upstream_validity::cache_control_validity(&value, now);
        let _ = upstream_validity::x_accel_expires(&value, now);
        let _ = upstream_validity::expires(&value, now);
        let _ = vary::Vary::parse([&value[..], &other]);
        let _ = conditional::if_range_holds(&value, Some(&other), Some(now));
        let _ = conditional::EntityTag::parse(&value);
        let pre = conditional::Preconditions {
            if_match: Some(&value),
            if_none_match: Some(&other),
            if_modified_since: Some(&other),
            if_unmodified_since: None,
        };
        let mode = conditional::IfModifiedSince::Before;
        let _ = conditional::evaluate(&pre, Some(&other), Some(now), mode);
        let _ = range::parse_unsatisfied_range(&value);
        let _ = uri::unescape_redirect(&value);
        let _ = uri::escape_html(&value);
    }

    #[test]
    fn members_are_trimmed_parts_of_the_value(value in untrusted()) {
        for member in list::members(&value) {
            prop_assert!(!member.is_empty());
            prop_assert_eq!(list::trim_ows(member), member);
        }
    }

    #[test]
    fn date_that_is_read_is_written_and_read_alike(value in untrusted()) {
        if let Some(time) = date::parse_http_date(&value).filter(|time| *time >= 0) {
            prop_assert_eq!(date::parse_http_date(&date::format_http_date(time)), Some(time));
        }
    }

    #[test]
    fn ranges_lie_within_the_body(
        value in untrusted(),
        len in any::<u64>(),
        max_ranges in 0u32..5,
    ) {
        let _ = range::first_range(&value);
        if let range::RangeSet::Ranges(ranges) = range::parse_range(&value, len, max_ranges) {
            prop_assert!(!ranges.is_empty() && ranges.len() <= max_ranges as usize);
            for range in ranges.iter() {
                prop_assert!(range.start < range.end_exclusive && range.end_exclusive <= len);
            }
        }
    }

    #[test]
    fn content_range_is_written_whole(
        start in any::<u64>(),
        end in any::<u64>(),
        len in any::<u64>(),
    ) {
        let text = range::content_range(start, end, len);
        let expected = format!("bytes {start}-{}/{len}", end.saturating_sub(1));
        prop_assert_eq!(text.as_bytes(), expected.as_bytes());
        let _ = range::parse_content_range(text.as_bytes());
    }

    #[test]
    fn content_range_that_is_read_makes_sense(value in untrusted()) {
        if let Some(range) = range::parse_content_range(&value) {
            prop_assert!(range.start < range.end);
            prop_assert!(range.len.is_none_or(|len| range.end <= len));
        }
    }

    #[test]
    fn normal_path_stays_below_the_root_and_normal(value in untrusted()) {
        let path = [b"/", &value[..]].concat();
        let Ok(normal) = uri::normalize(&path, uri::MergeSlashes::On) else { return Ok(()) };
        prop_assert!(normal.starts_with(b"/") && normal.len() <= path.len());
        prop_assert!(!normal.contains(&0));
        for segment in normal.split(|&byte| byte == b'/') {
            prop_assert!(segment != b"." && segment != b"..");
        }
        prop_assert!(!normal.windows(2).any(|pair| pair == b"//"));
    }

    #[test]
    fn escapes_come_back(value in untrusted()) {
        for kind in [uri::EscapeKind::Uri, uri::EscapeKind::Args, uri::EscapeKind::UriComponent] {
            let escaped = uri::escape(&value, kind);
            let unescaped = uri::unescape(&escaped);
            prop_assert_eq!(&unescaped[..], &value[..]);
        }
    }

    #[test]
    fn arguments_in_their_one_spelling_stay_so(value in untrusted()) {
        for argument in query::arguments(&value) {
            let mut once = Vec::new();
            argument.write(&mut once);
            prop_assert!(once.len() <= value.len());
            let mut twice = Vec::new();
            query::arguments(&once).for_each(|argument| argument.write(&mut twice));
            prop_assert_eq!(&twice, &once);
            let again = query::arguments(&once).next().map(|argument| argument.name().into_owned());
            prop_assert_eq!(again, Some(argument.name().into_owned()));
        }
    }

    #[test]
    fn codings_and_languages_are_not_much_longer_than_they_were(value in untrusted()) {
        let mut out = Vec::new();
        preference::write_codings([&value[..]].into_iter(), &mut out);
        prop_assert!(out.len() <= value.len() * 4);
        out.clear();
        preference::write_languages([&value[..]].into_iter(), &mut out);
        prop_assert!(out.len() <= value.len() * 4);
    }

    #[test]
    fn variant_material_is_told_by_its_field(text in untrusted(), field in untrusted()) {
        let mut fed = Vec::new();
        let spelling = vary::Spelling::ByRfc;
        vary::variant_material(&text, spelling, |_| [&field[..]], &mut fed);
        prop_assert_eq!(fed.is_empty(), vary::names(&text).next().is_none());
        let mut absent = Vec::new();
        vary::variant_material(&text, spelling, |_| None, &mut absent);
        prop_assert!(fed.is_empty() || fed != absent);
    }

    #[test]
    fn targeted_control_is_read_again_as_it_was_written(value in untrusted()) {
        if let Some(control) = targeted::as_cache_control([&value[..]])
            && !control.is_empty()
        {
            prop_assert_eq!(targeted::as_cache_control([&control[..]]), Some(control));
        }
    }

    #[test]
    fn cache_status_is_printable(name in untrusted(), key in untrusted()) {
        let member = cache_status::Member {
            cache: &name,
            handling: cache_status::Handling::Hit,
            ttl: None,
            key: Some(&key),
            detail: None,
        };
        let text = member.serialize();
        prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    }
}
