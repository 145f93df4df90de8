//! Cache-Control, read as a list of directives (RFC 9111 §5.2, RFC 5861, RFC 8246).
//!
//! This is the standard's reading, of a request's or a response's field, for
//! `proxy_cache_conformance rfc9111`; nginx's reading of a response is in
//! [`upstream_validity`](crate::upstream_validity).
//!
//! Tolerance, where RFC 9111 leaves room (§4.2.1): names are case-insensitive; unknown directives
//! are ignored; of duplicates the first counts; a number may be quoted; one that is too large is
//! the largest; a lifetime that is not a number is zero, so that the response is stale; a
//! permission to serve stale that is not a number is not given.

use crate::list;

/// The largest number of seconds that is told apart; RFC 9111 §1.2.2 asks for at least 2^31.
pub const MAX_DELTA_SECONDS: u64 = i64::MAX as u64;

/// The directives of all Cache-Control lines of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheControl<'a> {
    /// `no-cache` without a list of fields.
    pub no_cache: bool,
    /// The text of `no-cache="…"`: fields that may not be reused without revalidation.
    pub no_cache_fields: Option<&'a [u8]>,
    /// `no-store`.
    pub no_store: bool,
    /// `no-transform`.
    pub no_transform: bool,
    /// `private` without a list of fields.
    pub private: bool,
    /// The text of `private="…"`: fields that a shared cache may not store.
    pub private_fields: Option<&'a [u8]>,
    /// `public`.
    pub public: bool,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// `immutable` (RFC 8246).
    pub immutable: bool,
    /// `only-if-cached`, of requests.
    pub only_if_cached: bool,
    /// `max-age` in seconds.
    pub max_age: Option<u64>,
    /// `s-maxage` in seconds.
    pub s_maxage: Option<u64>,
    /// `max-stale` of requests, in seconds; without a value any staleness is taken.
    pub max_stale: Option<u64>,
    /// `min-fresh` of requests, in seconds.
    pub min_fresh: Option<u64>,
    /// `stale-while-revalidate` in seconds (RFC 5861 §3).
    pub stale_while_revalidate: Option<u64>,
    /// `stale-if-error` in seconds (RFC 5861 §4).
    pub stale_if_error: Option<u64>,
}

impl<'a> CacheControl<'a> {
    /// Reads all Cache-Control lines of a message, in order.
    #[must_use]
    pub fn parse(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut directives = Self::default();
        for value in values {
            for member in list::members(value) {
                directives.apply(member);
            }
        }
        directives
    }

    fn apply(&mut self, member: &'a [u8]) {
        let (name, value) = list::name_and_value(member);
        let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
        if is(b"max-age") {
            self.max_age = self.max_age.or(Some(lifetime(value)));
        } else if is(b"s-maxage") {
            self.s_maxage = self.s_maxage.or(Some(lifetime(value)));
        } else if is(b"no-cache") {
            qualify(value, &mut self.no_cache, &mut self.no_cache_fields);
        } else if is(b"private") {
            qualify(value, &mut self.private, &mut self.private_fields);
        } else if is(b"max-stale") {
            let allowed = value.map_or(Some(MAX_DELTA_SECONDS), number);
            self.max_stale = self.max_stale.or(allowed);
        } else if is(b"min-fresh") {
            self.min_fresh = self.min_fresh.or(value.and_then(number));
        } else if is(b"stale-while-revalidate") {
            self.stale_while_revalidate = self.stale_while_revalidate.or(value.and_then(number));
        } else if is(b"stale-if-error") {
            self.stale_if_error = self.stale_if_error.or(value.and_then(number));
        } else if let Some(flag) = self.flag(name) {
            *flag = true;
        }
    }

    fn flag(&mut self, name: &[u8]) -> Option<&mut bool> {
        let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
        Some(if is(b"no-store") {
            &mut self.no_store
        } else if is(b"public") {
            &mut self.public
        } else if is(b"must-revalidate") {
            &mut self.must_revalidate
        } else if is(b"proxy-revalidate") {
            &mut self.proxy_revalidate
        } else if is(b"immutable") {
            &mut self.immutable
        } else if is(b"only-if-cached") {
            &mut self.only_if_cached
        } else if is(b"no-transform") {
            &mut self.no_transform
        } else if is(b"must-understand") {
            &mut self.must_understand
        } else {
            return None;
        })
    }
}

/// Reads one Cache-Control line.
#[must_use]
pub fn parse_cache_control(value: &[u8]) -> CacheControl<'_> {
    CacheControl::parse([value])
}

/// RFC 9111 §1.2.2: seconds, in digits only; what is too large is [`MAX_DELTA_SECONDS`].
#[must_use]
pub fn parse_delta_seconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = value.iter().fold(0u64, |sum, byte| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(byte - b'0'))
    });
    Some(seconds.min(MAX_DELTA_SECONDS))
}

/// A number that may be quoted (RFC 9111 §5.2: recipients should accept both forms).
fn number(value: &[u8]) -> Option<u64> {
    let bare = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    parse_delta_seconds(bare.unwrap_or(value))
}

/// RFC 9111 §4.2.1: a lifetime that cannot be read makes the response stale.
fn lifetime(value: Option<&[u8]>) -> u64 {
    value.and_then(number).unwrap_or(0)
}

/// RFC 9111 §5.2.2.4 and §5.2.2.7: with a list of fields the directive is about those fields only.
fn qualify<'a>(value: Option<&'a [u8]>, whole: &mut bool, fields: &mut Option<&'a [u8]>) {
    let text = value.map(|value| {
        let inner = value.strip_prefix(b"\"").unwrap_or(value);
        inner.strip_suffix(b"\"").unwrap_or(inner)
    });
    match text {
        Some(text) if !text.is_empty() => *fields = fields.or(Some(text)),
        _ => *whole = true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_in_any_case_and_order() {
        let read =
            parse_cache_control(b"Public, MAX-AGE=60,  s-maxage = \"30\" , immutable,unknown=1");
        let expected = CacheControl {
            public: true,
            max_age: Some(60),
            s_maxage: Some(30),
            immutable: true,
            ..CacheControl::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn every_flag_has_a_name() {
        let read = parse_cache_control(
            b"no-cache, no-store, no-transform, private, public, must-revalidate, proxy-revalidate, \
              must-understand, immutable, only-if-cached, max-stale, min-fresh=1, \
              stale-while-revalidate=2, stale-if-error=3",
        );
        let expected = CacheControl {
            no_cache: true,
            no_store: true,
            no_transform: true,
            private: true,
            public: true,
            must_revalidate: true,
            proxy_revalidate: true,
            must_understand: true,
            immutable: true,
            only_if_cached: true,
            max_stale: Some(MAX_DELTA_SECONDS),
            min_fresh: Some(1),
            stale_while_revalidate: Some(2),
            stale_if_error: Some(3),
            ..CacheControl::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn qualified_directives_are_about_their_fields_only() {
        let read = parse_cache_control(br#"private="Set-Cookie, X-A", no-cache=X-B, max-age=5"#);
        assert!(!read.private && !read.no_cache);
        assert_eq!(read.private_fields, Some(&b"Set-Cookie, X-A"[..]));
        assert_eq!(read.no_cache_fields, Some(&b"X-B"[..]));
        assert_eq!(read.max_age, Some(5));
        assert!(parse_cache_control(br#"no-cache="""#).no_cache);
    }

    #[test]
    fn first_of_duplicates_counts_across_lines() {
        let read = CacheControl::parse([&b"max-age=1"[..], b"max-age=2, s-maxage=3"]);
        assert_eq!((read.max_age, read.s_maxage), (Some(1), Some(3)));
    }

    #[test]
    fn unreadable_numbers_make_stale_and_allow_nothing() {
        for (value, max_age) in [
            ("max-age", 0),
            ("max-age=", 0),
            ("max-age=-1", 0),
            ("max-age=1.5", 0),
            ("max-age=abc", 0),
            ("max-age=99999999999999999999999", MAX_DELTA_SECONDS),
            ("max-age=\"7\"", 7),
        ] {
            assert_eq!(
                parse_cache_control(value.as_bytes()).max_age,
                Some(max_age),
                "{value}"
            );
        }
        let read = parse_cache_control(b"stale-if-error=x, max-stale=x, stale-while-revalidate");
        assert_eq!(read, CacheControl::default());
    }

    #[test]
    fn words_inside_quotes_or_other_words_are_not_directives() {
        let read = parse_cache_control(br#"ext="no-store, private", xno-cache, max-agex=5"#);
        assert_eq!(read, CacheControl::default());
    }
}
