//! `traceparent` and `tracestate` (W3C Trace Context): the trace that a request belongs to.
//!
//! | bytes of `traceparent` | contents |
//! |---|---|
//! | 0..2 | version; `ff` is none |
//! | 3..35 | id of the trace, not all zeros |
//! | 36..52 | id of the span that asks, not all zeros |
//! | 53..55 | flags; the lowest bit says that the trace is sampled |
//!
//! Digits are hexadecimal and small, with a hyphen between the parts. A later version may have more
//! behind another hyphen, which is not read. A field that breaks these rules is as if it were not
//! there, and `tracestate` with it.
//!
//! Source: W3C Trace Context, Recommendation of 23 November 2021, §3.2, §3.3.

/// The length of a `traceparent` of version 00.
pub const PARENT_LEN: usize = 55;
/// Members of a `tracestate`, at most (§3.3.1.1).
const MEMBERS_MAX: usize = 32;
/// Bytes of a key of a member, and of its value, at most (§3.3.1.3).
const MEMBER_PART_MAX: usize = 256;
/// The flag of a trace that is sampled.
const SAMPLED: u8 = 1;

/// The id of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    /// Appends its digits.
    pub fn write(self, out: &mut Vec<u8>) {
        write_hex(&self.0, out);
    }
}

impl SpanId {
    /// Appends its digits.
    pub fn write(self, out: &mut Vec<u8>) {
        write_hex(&self.0, out);
    }
}

/// The place of a request in a trace, as `traceparent` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The span that asks.
    pub span: SpanId,
    /// True if the one who asks may have recorded the trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Reads the value of a field; none if it is malformed (§3.2.2).
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(PARENT_LEN)?;
        let [version] = hex(known.get(..2)?)?;
        let is_whole = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more.starts_with(b"-"),
        };
        let has_hyphens = [2, 35, 52].iter().all(|at| known.get(*at) == Some(&b'-'));
        if !is_whole || !has_hyphens {
            return None;
        }
        let trace = hex(known.get(3..35)?)?;
        let span = hex(known.get(36..52)?)?;
        let [flags] = hex(known.get(53..)?)?;
        if trace == [0; 16] || span == [0; 8] {
            return None;
        }
        Some(TraceParent {
            trace: TraceId(trace),
            span: SpanId(span),
            is_sampled: flags & SAMPLED != 0,
        })
    }

    /// Appends the value of a field, of version 00. Flags that are not known are zero (§3.2.2.5.2).
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"00-");
        self.trace.write(out);
        out.push(b'-');
        self.span.write(out);
        out.extend_from_slice(if self.is_sampled { b"-01" } else { b"-00" });
    }
}

/// Joins the values of `tracestate` fields to one; empty if there is none, or a malformed one
/// (§3.3.1).
pub fn join_state<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    let mut count = 0;
    for member in values.flat_map(|value| value.split(|byte| *byte == b',')) {
        let member = member.trim_ascii();
        // §3.3.1.1: empty members are allowed.
        if member.is_empty() {
            continue;
        }
        count += 1;
        if count > MEMBERS_MAX || !is_member(member) {
            return Vec::new();
        }
        if !joined.is_empty() {
            joined.push(b',');
        }
        joined.extend_from_slice(member);
    }
    joined
}

fn is_member(member: &[u8]) -> bool {
    let Some(at) = member.iter().position(|byte| *byte == b'=') else {
        return false;
    };
    let (key, value) = member.split_at(at);
    let value = value.get(1..).unwrap_or_default();
    let is_key_byte =
        |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let is_value_byte = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'=';
    let begins_well = key
        .first()
        .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    begins_well
        && key.iter().all(is_key_byte)
        && value.iter().all(is_value_byte)
        && (1..=MEMBER_PART_MAX).contains(&value.len())
        && key.len() <= MEMBER_PART_MAX
}

/// The bytes that small hexadecimal digits stand for, if there are exactly so many.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    let digit = |value: u8| match value {
        0..=9 => b'0' + value,
        _ => b'a' + value - 10,
    };
    out.extend(
        bytes
            .iter()
            .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b9c7c989f97918e1";

    fn parse(value: &str) -> Option<String> {
        let parent = TraceParent::parse(value.as_bytes())?;
        let mut out = Vec::new();
        parent.write(&mut out);
        assert_eq!(out.len(), PARENT_LEN);
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn parents_are_read_by_the_rules_of_their_version() {
        let of = |version: &str, flags: &str| format!("{version}-{TRACE}-{SPAN}-{flags}");
        for (value, expected) in [
            (of("00", "01"), Some("01")),
            (of("00", "00"), Some("00")),
            // §3.2.2.5.2: flags that are not known are ignored, and not passed on.
            (of("00", "ff"), Some("01")),
            (of("00", "02"), Some("00")),
            // §3.2.2: a later version may have more behind a hyphen.
            (of("cc", "01"), Some("01")),
            (of("cc", "01-what-the-future-is-like"), Some("01")),
            (of("cc", "01-"), Some("01")),
            (of("cc", "01.what"), None),
            (of("00", "01-"), None),
            (of("00", "01-more"), None),
            (of("ff", "01"), None),
            (of("FF", "01"), None),
            (of("0", "01"), None),
            (of("000", "01"), None),
            (of("0x", "01"), None),
            (of("00", "1"), None),
            (of("00", "001"), None),
            (of("00", ".1"), None),
            (of("00", "0A"), None),
            (String::new(), None),
            ("00".to_owned(), None),
        ] {
            let expected = expected.map(|flags| of("00", flags));
            assert_eq!(parse(&value), expected, "{value}");
        }
    }

    #[test]
    fn ids_are_small_hexadecimal_and_not_zero() {
        let upper = TRACE.to_uppercase();
        let zeros = "0".repeat(32);
        for (trace, span) in [
            (upper.as_str(), SPAN),
            (TRACE, "B9C7C989F97918E1"),
            (zeros.as_str(), SPAN),
            (TRACE, "0000000000000000"),
            (TRACE, "b9c7c989f97918e"),
            (TRACE, "b9c7c989f97918e1a"),
            (&TRACE[1..], SPAN),
            (TRACE, "b9c7c989f97918g1"),
            (TRACE, "b9c7c989-97918e1"),
            (TRACE, ""),
        ] {
            assert_eq!(
                parse(&format!("00-{trace}-{span}-01")),
                None,
                "{trace} {span}"
            );
        }
        assert_eq!(parse(&format!("00_{TRACE}-{SPAN}-01")), None);
        assert_eq!(parse(&format!("00-{TRACE}-{SPAN}_01")), None);
    }

    #[test]
    fn states_are_joined_in_order_and_dropped_when_malformed() {
        let long = |len| "v".repeat(len);
        let many = |count: usize| {
            let members = (0..count).map(|number| format!("k{number}=1"));
            members.collect::<Vec<_>>().join(",")
        };
        let (value, too_long) = (format!("a={}", long(256)), format!("a={}", long(257)));
        let key = format!("{}=1", "k".repeat(256));
        let too_long_key = format!("{}=1", "k".repeat(257));
        let (most, too_many) = (many(32), many(33));
        for (values, expected) in [
            (&[][..], ""),
            (&["a=1"], "a=1"),
            (&["a=1,b=2"], "a=1,b=2"),
            (&["a=1", "b=2"], "a=1,b=2"),
            (&["a=1 ,\t b=2"], "a=1,b=2"),
            (&["a=1,,b=2,"], "a=1,b=2"),
            (&["", "a=1"], "a=1"),
            (
                &["congo=ucfJifl5GOE,rojo=00f067aa0ba902b7"],
                "congo=ucfJifl5GOE,rojo=00f067aa0ba902b7",
            ),
            (&["fw529a3039@dt=FfAwMg"], "fw529a3039@dt=FfAwMg"),
            (&["0a=1"], "0a=1"),
            (&["a_-*/b=x y"], "a_-*/b=x y"),
            (&["a"], ""),
            (&["a="], ""),
            (&["=1"], ""),
            (&["A=1"], ""),
            (&["a=1,B=2"], ""),
            (&["a=1", "b"], ""),
            (&["a =1"], ""),
            (&["a=1=2"], ""),
            (&["a=\u{7f}"], ""),
            (&["_a=1"], ""),
            (&[value.as_str()], value.as_str()),
            (&[too_long.as_str()], ""),
            (&[key.as_str()], key.as_str()),
            (&[too_long_key.as_str()], ""),
            (&[most.as_str()], most.as_str()),
            (&[too_many.as_str()], ""),
        ] {
            let joined = join_state(values.iter().map(|value| value.as_bytes()));
            assert_eq!(String::from_utf8(joined).unwrap(), expected, "{values:?}");
        }
    }
}
