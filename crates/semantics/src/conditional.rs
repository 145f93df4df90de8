//! Preconditions of a request against the validators of a response (RFC 9110 §8.8, §13).
//!
//! [`evaluate`] asks in nginx's order: If-Unmodified-Since, If-Match, then If-Modified-Since and
//! If-None-Match together. [`if_range_holds`] decides whether a Range field counts.
//!
//! # Differs from the RFC
//! As nginx does it: If-Unmodified-Since is asked even beside If-Match; If-Modified-Since is asked
//! beside If-None-Match, and both must say "not modified"; a resource without Last-Modified fails
//! If-Unmodified-Since; a strong comparison compares bytes, so a weak tag equals itself, in
//! If-Range too. [`EntityTag`] has the RFC's comparisons for those who need them.

/// The conditional fields of a request, as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preconditions<'a> {
    /// If-Match.
    pub if_match: Option<&'a [u8]>,
    /// If-None-Match.
    pub if_none_match: Option<&'a [u8]>,
    /// If-Modified-Since.
    pub if_modified_since: Option<&'a [u8]>,
    /// If-Unmodified-Since.
    pub if_unmodified_since: Option<&'a [u8]>,
}

impl Preconditions<'_> {
    /// True if the request has no condition at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Preconditions::default()
    }
}

/// Comparison of If-Modified-Since (nginx's `if_modified_since`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfModifiedSince {
    /// The response always counts as modified.
    Off,
    /// Answers are not modified only if the times are equal.
    #[default]
    Exact,
    /// Answers are not modified if Last-Modified is not later.
    Before,
}

/// The times of a response, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dates {
    /// Last-Modified of the response.
    pub last_modified: Option<i64>,
    /// Date of the response, if it is a stored one.
    pub date: Option<i64>,
    /// The present, by which the dates of the request are read.
    pub now: i64,
}

/// Outcome of the preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answer as if there were no conditions.
    Proceed,
    /// Answer 304.
    NotModified,
    /// Answer 412.
    PreconditionFailed,
}

/// Comparison of entity tags (RFC 9110 §8.8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Byte by byte; for If-Match.
    Strong,
    /// Tags are equal without regard to weakness; for If-None-Match.
    Weak,
}

/// An entity tag (RFC 9110 §8.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// Strength of the tag: a weak one only promises that the meaning is the same.
    pub strength: Strength,
    /// Text between the quotes.
    pub opaque: &'a [u8],
}

/// Promise that an entity tag makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// Equal tags mean equal bytes.
    Strong,
    /// Equal tags mean equal meaning only.
    Weak,
}

impl<'a> EntityTag<'a> {
    /// Reads one entity tag; `None` if it is not one, such as a tag without quotes.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (strength, quoted) = match value.strip_prefix(b"W/") {
            Some(quoted) => (Strength::Weak, quoted),
            None => (Strength::Strong, value),
        };
        let opaque = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        // etagc: any visible character except the quote, and obs-text.
        let is_valid = opaque
            .iter()
            .all(|&byte| byte == b'!' || (byte > b'"' && byte != 0x7f));
        is_valid.then_some(Self { strength, opaque })
    }

    /// RFC 9110 §8.8.3.2: equal if both are strong and the same.
    #[must_use]
    pub fn matches_strongly(&self, other: &EntityTag<'_>) -> bool {
        self.strength == Strength::Strong
            && other.strength == Strength::Strong
            && self.opaque == other.opaque
    }

    /// RFC 9110 §8.8.3.2: equal if their opaque parts are the same.
    #[must_use]
    pub fn matches_weakly(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// Evaluates the preconditions of a request for a response that would be 200.
///
/// `last_modified` is in seconds since 1970. The result for other statuses is always to proceed, so
/// do not call it.
#[must_use]
pub fn evaluate(
    pre: &Preconditions<'_>,
    etag: Option<&[u8]>,
    last_modified: Option<i64>,
    mode: IfModifiedSince,
) -> Outcome {
    // RFC 9110 §13.1.4; a date that is malformed is before every Last-Modified.
    if pre
        .if_unmodified_since
        .is_some_and(|since| !is_unmodified(since, last_modified))
    {
        return Outcome::PreconditionFailed;
    }
    // RFC 9110 §13.1.1.
    if pre
        .if_match
        .is_some_and(|list| !matches_any(list, etag, Comparison::Strong))
    {
        return Outcome::PreconditionFailed;
    }
    if pre.if_modified_since.is_none() && pre.if_none_match.is_none() {
        return Outcome::Proceed;
    }
    // RFC 9110 §13.1.3.
    if pre
        .if_modified_since
        .is_some_and(|since| is_modified(since, last_modified, mode))
    {
        return Outcome::Proceed;
    }
    // RFC 9110 §13.1.2.
    if pre
        .if_none_match
        .is_some_and(|list| !matches_any(list, etag, Comparison::Weak))
    {
        return Outcome::Proceed;
    }
    Outcome::NotModified
}

/// Evaluates preconditions like [`evaluate`], by the order and the comparisons of RFC 9110 §13.2.2.
#[must_use]
pub fn evaluate_by_rfc(
    pre: &Preconditions<'_>,
    etag: Option<&[u8]>,
    Dates {
        last_modified,
        date,
        now,
    }: Dates,
) -> Outcome {
    let tag = etag.and_then(EntityTag::parse);
    let lists = |list: &[u8], comparison: Comparison| {
        let is_equal = |member| match (EntityTag::parse(member), tag, comparison) {
            (Some(one), Some(other), Comparison::Strong) => one.matches_strongly(&other),
            (Some(one), Some(other), Comparison::Weak) => one.matches_weakly(&other),
            _ => false,
        };
        crate::list::trim_ows(list) == b"*" || crate::list::members(list).any(is_equal)
    };
    let after = |modified: Option<i64>, date: &[u8]| {
        let date = crate::date::parse_http_date_by_rfc(date, now);
        modified.zip(date).map(|(modified, date)| modified > date)
    };
    let has_failed = match (pre.if_match, pre.if_unmodified_since) {
        (Some(list), _) => !lists(list, Comparison::Strong),
        (None, Some(since)) => after(last_modified, since) == Some(true),
        (None, None) => false,
    };
    if has_failed {
        return Outcome::PreconditionFailed;
    }
    let is_unchanged = match (pre.if_none_match, pre.if_modified_since) {
        (Some(list), _) => lists(list, Comparison::Weak),
        // RFC 9111 §4.3.2: without Last-Modified the Date stands for it.
        (None, Some(since)) => after(last_modified.or(date), since) == Some(false),
        (None, None) => false,
    };
    if is_unchanged {
        Outcome::NotModified
    } else {
        Outcome::Proceed
    }
}

fn is_unmodified(since: &[u8], last_modified: Option<i64>) -> bool {
    let since = crate::date::parse_http_date(since);
    last_modified.is_some_and(|modified| since.is_some_and(|since| since >= modified))
}

fn is_modified(since: &[u8], last_modified: Option<i64>, mode: IfModifiedSince) -> bool {
    let (Some(modified), Some(since)) = (last_modified, crate::date::parse_http_date(since)) else {
        return true;
    };
    match mode {
        IfModifiedSince::Off => true,
        IfModifiedSince::Exact => since != modified,
        IfModifiedSince::Before => since < modified,
    }
}

fn matches_any(list: &[u8], etag: Option<&[u8]>, comparison: Comparison) -> bool {
    // RFC 9110 §13.1.1: `*` matches whatever there is, with or without a tag.
    list == b"*" || etag.is_some_and(|etag| etag_matches(list, etag, comparison))
}

/// True if `list` (of If-Match or If-None-Match) is `*` or has a member that equals `etag`.
///
/// Like nginx, this compares text and does not need the tags to be well formed.
#[must_use]
pub fn etag_matches(list: &[u8], etag: &[u8], comparison: Comparison) -> bool {
    if list == b"*" {
        return true;
    }
    let etag = match comparison {
        Comparison::Strong => etag,
        Comparison::Weak => without_weakness(etag),
    };
    let mut rest = list;
    // Each round consumes a member with its comma, or ends.
    while !rest.is_empty() {
        let member = match comparison {
            Comparison::Strong => rest,
            Comparison::Weak => without_weakness(rest),
        };
        // The tag is compared before the list is split, because a comma may stand in a tag.
        let after = member.strip_prefix(etag).map(skip_blanks);
        if matches!(after, Some([] | [b',', ..])) {
            return true;
        }
        let Some(comma) = memchr::memchr(b',', after.unwrap_or(member)) else {
            return false;
        };
        rest = skip_separators(after.unwrap_or(member).get(comma..).unwrap_or_default());
    }
    false
}

/// True if the Range field of a request counts (RFC 9110 §13.1.5): `value` is the response's
/// validator.
#[must_use]
pub fn if_range_holds(value: &[u8], etag: Option<&[u8]>, last_modified: Option<i64>) -> bool {
    if value.len() >= 2 && value.ends_with(b"\"") {
        return etag == Some(value);
    }
    last_modified.is_some_and(|modified| crate::date::parse_http_date(value) == Some(modified))
}

/// True if the Range field counts, like [`if_range_holds`], by RFC 9110 §13.1.5: both validators
/// must be strong. A Last-Modified is when the response was made at least a second after it
/// (§8.8.2.2).
#[must_use]
pub fn if_range_holds_by_rfc(value: &[u8], etag: Option<&[u8]>, dates: Dates) -> bool {
    let value = crate::list::trim_ows(value);
    if let Some(wanted) = EntityTag::parse(value) {
        let tag = etag.and_then(EntityTag::parse);
        return tag.is_some_and(|tag| tag.matches_strongly(&wanted));
    }
    let Dates {
        last_modified: Some(modified),
        date: Some(date),
        now,
    } = dates
    else {
        return false;
    };
    date > modified && crate::date::parse_http_date_by_rfc(value, now) == Some(modified)
}

/// nginx drops the mark only when something follows it.
pub(crate) fn without_weakness(tag: &[u8]) -> &[u8] {
    match tag.strip_prefix(b"W/") {
        Some(rest) if !rest.is_empty() => rest,
        _ => tag,
    }
}

fn skip_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}

fn skip_separators(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b',', rest @ ..] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_the_rfc_if_range_needs_strong_validators() {
        const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        const MODIFIED: i64 = 784_111_777;
        for (value, tag, date, expected) in [
            ("\"a\"", "\"a\"", None, true),
            ("\t\"a\" ", "\"a\"", None, true),
            ("\"a\"", "W/\"a\"", None, false),
            ("W/\"a\"", "\"a\"", None, false),
            ("W/\"a\"", "W/\"a\"", None, false),
            ("\"a\"", "a", None, false),
            ("a", "a", None, false),
            (DATE, "\"a\"", None, false),
            (DATE, "\"a\"", Some(MODIFIED), false),
            (DATE, "\"a\"", Some(MODIFIED + 1), true),
            (
                "sun, 06 nov 1994 08:49:37 gmt",
                "\"a\"",
                Some(MODIFIED + 1),
                true,
            ),
            (
                "Sun, 06 Nov 1994 08:49:38 GMT",
                "\"a\"",
                Some(MODIFIED + 9),
                false,
            ),
            ("", "\"a\"", Some(MODIFIED + 1), false),
        ] {
            let dates = Dates {
                last_modified: Some(MODIFIED),
                date,
                now: MODIFIED,
            };
            let holds = if_range_holds_by_rfc(value.as_bytes(), Some(tag.as_bytes()), dates);
            assert_eq!(holds, expected, "{value} {tag}");
        }
    }

    #[test]
    fn by_the_rfc_tags_stand_above_dates() {
        const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
        const MODIFIED: i64 = 784_111_777;
        let cases: [(&str, &[u8], Option<i64>, Outcome); 8] = [
            ("none", b"\"a\"", Some(MODIFIED + 9), Outcome::NotModified),
            ("none", b"W/\"a\"", None, Outcome::NotModified),
            ("none", b"\"b\", \"c\"", Some(MODIFIED), Outcome::Proceed),
            ("none", b"*", None, Outcome::NotModified),
            ("match", b"\"a\"", Some(MODIFIED + 9), Outcome::Proceed),
            ("match", b"W/\"a\"", None, Outcome::PreconditionFailed),
            ("dates", b"", Some(MODIFIED), Outcome::NotModified),
            ("dates", b"", None, Outcome::Proceed),
        ];
        for (kind, tags, modified, expected) in cases {
            let mut pre = Preconditions::default();
            match kind {
                "none" => {
                    pre.if_none_match = Some(tags);
                    pre.if_modified_since = Some(DATE);
                }
                "match" => {
                    pre.if_match = Some(tags);
                    pre.if_unmodified_since = Some(DATE);
                }
                _ => pre.if_modified_since = Some(DATE),
            }
            let dates = Dates {
                last_modified: modified,
                date: None,
                now: MODIFIED,
            };
            let outcome = evaluate_by_rfc(&pre, Some(b"\"a\""), dates);
            assert_eq!(outcome, expected, "{kind} {tags:?}");
        }
    }

    const EARLIER: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const EQUAL: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";
    const MODIFIED: Option<i64> = Some(784_111_777);
    const TAG: Option<&[u8]> = Some(b"\"a\"");

    #[test]
    fn by_the_rfc_tags_come_before_dates_and_date_stands_for_last_modified() {
        const EARLY: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
        const TIME: i64 = 784_111_777;
        let dates = |last_modified, date| Dates {
            last_modified,
            date,
            now: TIME,
        };
        let none_match = Preconditions {
            if_none_match: Some(b"\"a\""),
            if_modified_since: Some(EARLY),
            ..Preconditions::default()
        };
        let since = Preconditions {
            if_modified_since: Some(EARLY),
            ..Preconditions::default()
        };
        let unmodified = Preconditions {
            if_unmodified_since: Some(EARLY),
            ..Preconditions::default()
        };
        for (pre, dates, expected) in [
            (
                none_match,
                dates(Some(TIME + 5), None),
                Outcome::NotModified,
            ),
            (since, dates(Some(TIME), None), Outcome::NotModified),
            (since, dates(Some(TIME + 1), Some(TIME)), Outcome::Proceed),
            (since, dates(None, Some(TIME)), Outcome::NotModified),
            (since, dates(None, Some(TIME + 1)), Outcome::Proceed),
            (since, dates(None, None), Outcome::Proceed),
            (
                unmodified,
                dates(Some(TIME + 1), None),
                Outcome::PreconditionFailed,
            ),
            (unmodified, dates(None, Some(TIME + 1)), Outcome::Proceed),
        ] {
            assert_eq!(
                evaluate_by_rfc(&pre, TAG, dates),
                expected,
                "{pre:?} {dates:?}"
            );
        }
    }

    #[test]
    fn tag_is_found_in_a_list() {
        use Comparison::{Strong, Weak};
        for (list, etag, comparison, expected) in [
            (r#""a""#, r#""a""#, Strong, true),
            (r#""b""#, r#""a""#, Strong, false),
            (r#""foo", "bar", "a" , "baz""#, r#""a""#, Strong, true),
            (
                "\"foo\", \"bar\", \t\"a\" , \"baz\"",
                r#""a""#,
                Strong,
                true,
            ),
            ("*", r#""a""#, Strong, true),
            (r#"W/"a""#, r#""a""#, Strong, false),
            (r#"W/"a""#, r#""a""#, Weak, true),
            (r#""a""#, r#"W/"a""#, Weak, true),
            (r#"W/"a""#, r#"W/"a""#, Strong, true),
            (r#""ab""#, r#""a""#, Weak, false),
            (r#""a"x, "a""#, r#""a""#, Weak, true),
            (r#""x,y", "a""#, r#""x,y""#, Weak, true),
            (r#", ,"a""#, r#""a""#, Weak, true),
            ("", r#""a""#, Weak, false),
            ("W/", r#""a""#, Weak, false),
        ] {
            assert_eq!(
                etag_matches(list.as_bytes(), etag.as_bytes(), comparison),
                expected,
                "{list}"
            );
        }
    }

    /// One condition of the tables below.
    enum Given {
        Match(&'static [u8]),
        NoneMatch(&'static [u8]),
        Since(&'static [u8]),
        UnmodifiedSince(&'static [u8]),
    }

    fn preconditions(given: &[Given]) -> Preconditions<'static> {
        let mut pre = Preconditions::default();
        for condition in given {
            match *condition {
                Given::Match(list) => pre.if_match = Some(list),
                Given::NoneMatch(list) => pre.if_none_match = Some(list),
                Given::Since(date) => pre.if_modified_since = Some(date),
                Given::UnmodifiedSince(date) => pre.if_unmodified_since = Some(date),
            }
        }
        pre
    }

    #[test]
    fn conditions_are_asked_in_order() {
        use Given::{Match, NoneMatch, Since, UnmodifiedSince};
        use Outcome::{NotModified, PreconditionFailed, Proceed};
        let cases: [(&[Given], Outcome); 17] = [
            (&[], Proceed),
            (&[NoneMatch(b"\"a\"")], NotModified),
            (&[NoneMatch(b"*")], NotModified),
            (&[NoneMatch(b"\"b\"")], Proceed),
            (&[Match(b"\"b\"")], PreconditionFailed),
            (&[Match(b"W/\"a\"")], PreconditionFailed),
            (&[Match(b"*")], Proceed),
            (&[Since(EQUAL)], NotModified),
            (&[Since(LATER)], Proceed),
            (&[Since(b"wrong")], Proceed),
            (&[UnmodifiedSince(EARLIER)], PreconditionFailed),
            (&[UnmodifiedSince(b"wrong")], PreconditionFailed),
            (&[UnmodifiedSince(EQUAL)], Proceed),
            (&[UnmodifiedSince(EARLIER), Match(b"*")], PreconditionFailed),
            (&[Since(EQUAL), NoneMatch(b"\"b\"")], Proceed),
            (&[Since(EARLIER), NoneMatch(b"\"a\"")], Proceed),
            (&[Match(b"\"a\""), NoneMatch(b"\"a\"")], NotModified),
        ];
        for (given, expected) in cases {
            let pre = preconditions(given);
            let outcome = evaluate(&pre, TAG, MODIFIED, IfModifiedSince::Exact);
            assert_eq!(outcome, expected, "{pre:?}");
        }
    }

    #[test]
    fn mode_decides_what_counts_as_modified() {
        for (since, mode, expected) in [
            (EQUAL, IfModifiedSince::Off, Outcome::Proceed),
            (EQUAL, IfModifiedSince::Before, Outcome::NotModified),
            (LATER, IfModifiedSince::Before, Outcome::NotModified),
            (EARLIER, IfModifiedSince::Before, Outcome::Proceed),
        ] {
            let pre = Preconditions {
                if_modified_since: Some(since),
                ..Preconditions::default()
            };
            assert_eq!(evaluate(&pre, TAG, MODIFIED, mode), expected, "{mode:?}");
        }
    }

    #[test]
    fn response_without_validators_matches_only_the_asterisk() {
        let mode = IfModifiedSince::Before;
        let pre = Preconditions {
            if_none_match: Some(b"\"a\""),
            ..Preconditions::default()
        };
        assert_eq!(evaluate(&pre, None, None, mode), Outcome::Proceed);
        let pre = Preconditions {
            if_match: Some(b"*"),
            ..Preconditions::default()
        };
        assert_eq!(evaluate(&pre, None, None, mode), Outcome::Proceed);
        let pre = Preconditions {
            if_unmodified_since: Some(LATER),
            ..Preconditions::default()
        };
        assert_eq!(
            evaluate(&pre, None, None, mode),
            Outcome::PreconditionFailed
        );
        let pre = Preconditions {
            if_modified_since: Some(LATER),
            ..Preconditions::default()
        };
        assert_eq!(evaluate(&pre, None, None, mode), Outcome::Proceed);
    }

    #[test]
    fn if_range_holds_for_the_same_tag_or_the_same_time() {
        assert!(if_range_holds(b"\"a\"", TAG, None));
        assert!(!if_range_holds(b"\"b\"", TAG, MODIFIED));
        assert!(!if_range_holds(b"W/\"a\"", TAG, MODIFIED));
        assert!(!if_range_holds(b"\"a\"", None, MODIFIED));
        assert!(if_range_holds(EQUAL, None, MODIFIED));
        assert!(!if_range_holds(LATER, None, MODIFIED));
        assert!(!if_range_holds(b"wrong", TAG, MODIFIED));
        assert!(!if_range_holds(b"wrong", None, None));
        assert!(!if_range_holds(b"", None, None));
    }

    #[test]
    fn entity_tags_compare_as_in_the_rfc() {
        // The table of RFC 9110 §8.8.3.2.
        for (one, other, strongly, weakly) in [
            (r#"W/"1""#, r#"W/"1""#, false, true),
            (r#"W/"1""#, r#"W/"2""#, false, false),
            (r#"W/"1""#, r#""1""#, false, true),
            (r#""1""#, r#""1""#, true, true),
        ] {
            let one = EntityTag::parse(one.as_bytes()).expect("a tag of the table");
            let other = EntityTag::parse(other.as_bytes()).expect("a tag of the table");
            assert_eq!(one.matches_strongly(&other), strongly);
            assert_eq!(one.matches_weakly(&other), weakly);
        }
        for bad in ["", "a", "\"", "w/\"a\"", "\"a\"b\"", "\"a b\"", "W/"] {
            assert_eq!(EntityTag::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
