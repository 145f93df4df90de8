//! Lines of a head: where they end, and what a field line holds.
//!
//! Most lines are as usual and have come whole: [`read_usual_field`] finds the end of such a line
//! and its parts with one look at each byte. Whatever else there is takes the longer way, so that
//! one place alone says what is refused.
//!
//! 1. [`LineScanner`] looks for the end of a line in each byte once, however often it is asked.
//! 2. A field line that parses has a name without controls and space, and a value without NUL,
//!    CR and LF.
//! 3. A field that `read_usual_field` reads is what [`parse_field_line`] makes of its line.
//!
//! It does not decide which names are good enough; [`NameKind`] tells the caller.
//!
//! Sources: RFC 9112 §2.2 and §5.

use std::ops::Range;

use crate::head::place::{FieldLine, NameKind, Span};
use crate::header::Known;
use crate::seek;

/// Finds the ends of lines in a buffer that grows.
#[derive(Debug, Default)]
pub(super) struct LineScanner {
    /// The offset at which the current line begins.
    start: usize,
    /// Up to where no LF was found after `start`.
    scanned: usize,
}

impl LineScanner {
    /// The next whole line, with its LF; `None` if its end has not come.
    pub(super) fn next_line(&mut self, buf: &[u8]) -> Option<Range<usize>> {
        let unseen = buf.get(self.scanned..)?;
        let Some(at) = memchr::memchr(b'\n', unseen) else {
            self.scanned = buf.len();
            return None;
        };
        let end = self.scanned + at + 1;
        let line = self.start..end;
        self.start = end;
        self.scanned = end;
        Some(line)
    }

    /// The offset of the current line, if nobody has looked for the line's end.
    pub(super) fn untouched(&self) -> Option<usize> {
        (self.scanned == self.start).then_some(self.start)
    }

    /// Takes the current line, whose end was found elsewhere: `len` bytes, its LF included.
    pub(super) fn take(&mut self, len: usize) {
        self.start += len;
        self.scanned = self.start;
    }

    /// The offset of the current line: the end of what was taken.
    pub(super) fn taken(&self) -> usize {
        self.start
    }
}

/// A line without its LF and without one CR before it.
pub(super) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// True if a line ends in CR LF.
pub(super) fn ends_in_crlf(line: &[u8]) -> bool {
    line.ends_with(b"\r\n")
}

/// A field line that cannot be read; where, counted from its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadLine;

/// Classes of bytes in a name: flags below `STOP`, ends from there on.
const UNDERSCORE: u8 = 1;
const ODD: u8 = 2;
const STOP: u8 = 4;

const CLASSES: [u8; 256] = build_classes();

const fn build_classes() -> [u8; 256] {
    let mut classes = [ODD; 256];
    let mut byte = 0;
    while byte < 256 {
        let ch = byte as u8;
        if ch.is_ascii_alphanumeric() || ch == b'-' {
            classes[byte] = 0;
        } else if ch == b'_' {
            classes[byte] = UNDERSCORE;
        } else if ch <= b' ' || ch == 0x7f || ch == b':' {
            classes[byte] = STOP;
        }
        byte += 1;
    }
    classes
}

/// Length and kind of the name at the begin of a line.
fn read_name(text: &[u8]) -> (usize, NameKind) {
    let mut seen = 0;
    let mut len = 0;
    for byte in text {
        let class = CLASSES[usize::from(*byte)];
        if class == STOP {
            break;
        }
        seen |= class;
        len += 1;
    }
    let kind = match seen {
        0 => NameKind::Plain,
        UNDERSCORE => NameKind::Underscored,
        _ => NameKind::Odd,
    };
    (len, kind)
}

/// A field line that ended as most do.
pub(super) struct UsualField {
    pub(super) line: FieldLine,
    pub(super) known: Known,
    /// True if the name is spelled as usual; false for one that is not known.
    is_usual: bool,
    /// The end of the line: CR LF or LF.
    pub(super) end: LineEnd,
    /// The length of the line, with the line end.
    pub(super) len: usize,
}

impl UsualField {
    /// The place of the field when its line begins at `start`; see [`Span::new`].
    pub(super) fn place(&self, start: usize) -> Option<Span> {
        let span = Span::new(start, &self.line, self.known)?;
        Some(if self.is_usual {
            span.spelled_as_usual()
        } else {
            span
        })
    }
}

/// The end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// CR and LF, as the RFC wants it.
    CrLf,
    /// LF alone.
    Lf,
}

/// Bytes among which the end of a known name is looked for: more than any of them has.
const KNOWN_NAME: usize = 32;

/// Reads the field line that `rest` begins with and that ends within it; `None` when it is not as
/// usual, or not whole. INVARIANT 3.
#[inline]
pub(super) fn read_usual_field(rest: &[u8]) -> Option<UsualField> {
    let begin = rest.get(..KNOWN_NAME).unwrap_or(rest);
    let mut name_len = seek::colon(begin);
    let (mut known, is_usual) = Known::spelled(rest.get(..name_len)?);
    let mut kind = NameKind::Plain;
    // A known name is a plain one.
    if known == Known::Other {
        (name_len, kind) = read_name(rest);
        known = Known::of(rest.get(..name_len)?);
    }
    if name_len == 0 || rest.get(name_len) != Some(&b':') {
        return None;
    }
    let mut start = name_len + 1;
    while rest.get(start) == Some(&b' ') {
        start += 1;
    }
    let mut end = start + seek::end_of_value(rest.get(start..)?);
    let (line_end, len) = match rest.get(end..)? {
        [b'\r', b'\n', ..] => (LineEnd::CrLf, end + 2),
        [b'\n', ..] => (LineEnd::Lf, end + 1),
        _ => return None,
    };
    while end > start && rest.get(end - 1) == Some(&b' ') {
        end -= 1;
    }
    let value = start..end;
    let line = FieldLine {
        name_len,
        kind,
        value,
    };
    Some(UsualField {
        line,
        known,
        is_usual,
        end: line_end,
        len,
    })
}

/// Reads a field line that is not empty, without its line end.
///
/// As in nginx, a line without a colon is a name with an empty value, and only spaces, not tabs,
/// are cut from around a value. A line that begins with a space or a tab (the obsolete folding of
/// RFC 9112 §5.2), a space before the colon (§5.1), an empty name and a NUL or CR anywhere are
/// refused.
pub(super) fn parse_field_line(line: &[u8]) -> Result<FieldLine, BadLine> {
    let (name_len, kind) = read_name(line);
    if name_len == 0 {
        return Err(BadLine);
    }
    let value = match line.get(name_len) {
        None => name_len..name_len,
        Some(b':') => trim_spaces(line, name_len + 1)?,
        Some(_) => return Err(BadLine),
    };
    Ok(FieldLine {
        name_len,
        kind,
        value,
    })
}

/// The value that begins somewhere after `start`, without the spaces around it.
fn trim_spaces(line: &[u8], start: usize) -> Result<Range<usize>, BadLine> {
    let rest = line.get(start..).unwrap_or_default();
    if memchr::memchr2(b'\0', b'\r', rest).is_some() {
        return Err(BadLine);
    }
    let Some(first) = rest.iter().position(|byte| *byte != b' ') else {
        return Ok(line.len()..line.len());
    };
    let after = rest
        .iter()
        .rposition(|byte| *byte != b' ')
        .map_or(first, |last| last + 1);
    Ok(start + first..start + after)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::header::Field;

    #[test]
    fn lines_are_found_however_the_bytes_come() {
        let text = b"one\r\ntwo\n\nlast";
        let mut whole = LineScanner::default();
        let mut expected = Vec::new();
        while let Some(line) = whole.next_line(text) {
            expected.push(line);
        }
        assert_eq!(expected, [0..5, 5..9, 9..10]);
        let mut bytewise = LineScanner::default();
        let mut found = Vec::new();
        for end in 0..=text.len() {
            while let Some(line) = bytewise.next_line(&text[..end]) {
                found.push(line);
            }
        }
        assert_eq!(found, expected);
        assert_eq!(bytewise.taken(), 10);
    }

    #[test]
    fn a_field_line_is_a_name_and_a_trimmed_value() {
        for (line, name, value, kind) in [
            ("A: b", "A", "b", NameKind::Plain),
            ("A:b", "A", "b", NameKind::Plain),
            ("A:   b c   ", "A", "b c", NameKind::Plain),
            ("A:\tb", "A", "\tb", NameKind::Plain),
            ("A:", "A", "", NameKind::Plain),
            ("A:   ", "A", "", NameKind::Plain),
            ("A", "A", "", NameKind::Plain),
            ("a_b: c:d", "a_b", "c:d", NameKind::Underscored),
            ("a.b_: c", "a.b_", "c", NameKind::Odd),
            ("</kie>: c", "</kie>", "c", NameKind::Odd),
        ] {
            let parsed = parse_field_line(line.as_bytes()).expect(line);
            assert_eq!(&line[..parsed.name_len], name, "{line:?}");
            assert_eq!(&line[parsed.value.clone()], value, "{line:?}");
            assert_eq!(parsed.kind, kind, "{line:?}");
        }
    }

    #[test]
    fn a_usual_line_is_read_as_any_other_is() {
        let names = ["A", "Host", "a_b", "a.b", "", "A ", "A\0", "HTTP/1.1"];
        let values = [
            "", "b", " b", "  b c  ", "   ", "\tb", "b\0c", "b\rc", "b\r", ":",
        ];
        for (name, value) in names
            .iter()
            .flat_map(|name| values.iter().map(move |value| (name, value)))
        {
            for end in ["\r\n", "\n"] {
                let line = format!("{name}:{value}{end}");
                let expected = parse_field_line(without_end(line.as_bytes())).ok();
                for behind in ["", "\r\n", "X: y\r\n"] {
                    let text = format!("{line}{behind}");
                    let usual = read_usual_field(text.as_bytes());
                    let len = usual.as_ref().map_or(line.len(), |usual| usual.len);
                    assert_eq!(len, line.len(), "{text:?}");
                    assert_eq!(usual.map(|usual| usual.line), expected, "{text:?}");
                }
            }
            let cut_off = format!("{name}:{value}");
            assert!(
                read_usual_field(cut_off.as_bytes()).is_none(),
                "{cut_off:?}"
            );
        }
    }

    #[test]
    fn a_usual_field_has_its_name_as_it_was_written() {
        for name in ["Host", "host", "HOST", "ETag", "Etag", "X-Own"] {
            let text = Bytes::from(format!("{name}: b\r\n"));
            let usual = read_usual_field(&text).unwrap();
            let field = usual.place(0).unwrap().to_field(&text);
            assert_eq!(field, Field::new(name.into(), "b".into()), "{name}");
            assert_eq!(usual.is_usual, matches!(name, "Host" | "ETag"), "{name}");
        }
    }

    #[test]
    fn a_field_line_that_could_be_read_two_ways_is_refused() {
        for line in [
            ":a", ": a", " A: b", "\tA: b", "A : b", "A\t: b", "A\0: b", "A\x02: b", "A\x7f: b",
            "A: b\0c", "A: b\rc", "A: b\r", "\r", "A B", "A\r: b",
        ] {
            assert_eq!(parse_field_line(line.as_bytes()), Err(BadLine), "{line:?}");
        }
    }
}
