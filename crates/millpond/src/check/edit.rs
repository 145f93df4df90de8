//! Changes of one text, each with a comment that says why.
//!
//! ```text
//! old line;                      # millpond check --fix: replaced "old line;": why
//!                          ──►   new line;
//!
//! block { … }                    # millpond check --fix: taken out: why
//!                          ──►   # block {
//!                                # … }
//! ```
//!
//! A change is one of a whole statement, so that comments stand between statements only.

use millpond_conf::{Span, Written};

/// The begin of a comment.
pub(super) const MARK: &str = "# millpond check --fix: ";

/// Change of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    /// Place of the statement, with its end.
    pub(super) extent: Span,
    pub(super) kind: Kind,
    /// The reason, in one line.
    pub(super) why: String,
}

/// Kind of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Words of the statement are others.
    Words(Vec<(Span, String)>),
    /// The statement is commented out.
    Out,
    /// The statement is commented out, and this line stands in its place.
    Instead(&'static str),
}

/// A statement, found by a place in it.
pub(super) struct Found<'w> {
    pub(super) statement: &'w Written,
    /// The statements of its block, itself among them.
    pub(super) block: &'w [Written],
    /// The name of the block; empty for that of the file.
    pub(super) around: &'w str,
}

/// The innermost statement whose words a place lies in.
pub(super) fn find(all: &[Written], place: Span) -> Option<Found<'_>> {
    let (mut block, mut around) = (all, "");
    loop {
        let is_here = |it: &&Written| {
            it.extent.file == place.file && (it.extent.start..it.extent.end).contains(&place.start)
        };
        let statement = block.iter().find(is_here)?;
        // What is added behind the last word belongs to the words.
        if place.start <= statement.head.end {
            return Some(Found {
                statement,
                block,
                around,
            });
        }
        (block, around) = (&statement.inside, statement.name());
    }
}

/// A text with changes; of two that overlap the first one is made.
pub(super) fn apply(text: &[u8], mut edits: Vec<Edit>) -> Vec<u8> {
    edits.sort_by_key(|edit| (edit.extent.start, std::cmp::Reverse(edit.extent.end)));
    let (mut out, mut at) = (Vec::new(), 0);
    for edit in edits {
        let (start, end) = (edit.extent.start as usize, edit.extent.end as usize);
        let (Some(before), Some(old)) = (text.get(at..start), text.get(start..end)) else {
            continue;
        };
        out.extend_from_slice(before);
        let line = Line::around(text, start, end);
        out.extend_from_slice(&line.written(old, &edit));
        at = end;
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    out
}

/// The line that a statement stands in.
struct Line<'a> {
    /// The space before it; none if something else stands there.
    indent: Option<&'a [u8]>,
    /// True if nothing follows it in its last line.
    is_last: bool,
}

impl<'a> Line<'a> {
    fn around(text: &'a [u8], start: usize, end: usize) -> Line<'a> {
        let (before, behind) = (text.get(..start), text.get(end..));
        let before = before.unwrap_or_default();
        let begin = before.iter().rposition(|byte| *byte == b'\n');
        let indent = before.get(begin.map_or(0, |at| at + 1)..);
        let rest = behind
            .unwrap_or_default()
            .split(|byte| *byte == b'\n')
            .next();
        Line {
            indent: indent.filter(|it| it.trim_ascii().is_empty()),
            is_last: rest.unwrap_or_default().trim_ascii().is_empty(),
        }
    }

    fn written(&self, old: &[u8], edit: &Edit) -> Vec<u8> {
        let indent = self.indent.unwrap_or_default();
        let mut out = Vec::new();
        if self.indent.is_none() {
            out.push(b'\n');
        }
        let what = match edit.kind {
            Kind::Words(_) => format!("replaced \"{}\"", one_line(old)),
            Kind::Out | Kind::Instead(_) => "taken out".to_string(),
        };
        out.extend_from_slice(format!("{MARK}{what}: {}\n", edit.why).as_bytes());
        out.extend_from_slice(indent);
        let is_comment = match &edit.kind {
            Kind::Words(words) => {
                out.extend_from_slice(&with_words(old, edit.extent, words));
                false
            }
            Kind::Out => {
                out.extend_from_slice(&commented(old, indent));
                true
            }
            Kind::Instead(line) => {
                out.extend_from_slice(&commented(old, indent));
                out.push(b'\n');
                out.extend_from_slice(indent);
                out.extend_from_slice(line.as_bytes());
                false
            }
        };
        // A comment would take what follows with it.
        if is_comment && !self.is_last {
            out.push(b'\n');
            out.extend_from_slice(indent);
        }
        out
    }
}

/// Each line of a text as a comment.
fn commented(old: &[u8], indent: &[u8]) -> Vec<u8> {
    let lines = old.split(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_prefix(indent).unwrap_or(line);
        [b"# ", line].concat()
    });
    let between = [b"\n", indent].concat();
    lines.collect::<Vec<_>>().join(&between[..])
}

/// A statement with other words; a word that is taken out takes the space before it along.
fn with_words(old: &[u8], extent: Span, words: &[(Span, String)]) -> Vec<u8> {
    let mut words: Vec<_> = words.iter().collect();
    words.sort_by_key(|(span, _)| span.start);
    let (mut out, mut at) = (Vec::new(), 0);
    for (span, new) in words {
        let start = span.start.saturating_sub(extent.start) as usize;
        let end = span.end.saturating_sub(extent.start) as usize;
        let Some(before) = old.get(at..start) else {
            continue;
        };
        out.extend_from_slice(before);
        if new.is_empty() {
            out.truncate(out.trim_ascii_end().len());
        }
        out.extend_from_slice(new.as_bytes());
        at = end;
    }
    out.extend_from_slice(old.get(at..).unwrap_or_default());
    out
}

/// A text without the breaks of its lines, for a comment.
pub(super) fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::{FileId, written};

    /// The text with the statement of that name changed.
    fn changed(text: &str, name: &str, kind: Kind) -> String {
        let all = written(FileId(0), text.as_bytes());
        let start = text.find(name).unwrap() as u32;
        let place = Span {
            file: FileId(0),
            start,
            end: start + name.len() as u32,
        };
        let statement = find(&all, place).unwrap().statement;
        let kind = match kind {
            Kind::Words(mut words) => {
                words.iter_mut().for_each(|(span, _)| *span = place);
                Kind::Words(words)
            }
            kind => kind,
        };
        let edit = Edit {
            extent: statement.extent,
            kind,
            why: "so".to_string(),
        };
        String::from_utf8(apply(text.as_bytes(), vec![edit])).unwrap()
    }

    #[test]
    fn statements_become_comments_and_nothing_else_does() {
        let mark = "# millpond check --fix: taken out: so";
        for (text, expected) in [
            ("a;\n  b 1;\nc;\n", format!("a;\n  {mark}\n  # b 1;\nc;\n")),
            ("a; b 1; c;\n", format!("a; \n{mark}\n# b 1;\n c;\n")),
            (
                "  b {\n    x;\n  }\n",
                format!("  {mark}\n  # b {{\n  #   x;\n  # }}\n"),
            ),
            ("s { b; }", format!("s {{ \n{mark}\n# b;\n }}")),
            ("  b; # why\n", format!("  {mark}\n  # b;\n   # why\n")),
            ("b \"x\n;y\";\n", format!("{mark}\n# b \"x\n# ;y\";\n")),
        ] {
            let name = "b";
            assert_eq!(changed(text, name, Kind::Out), expected, "{text}");
        }
        let kind = Kind::Instead("return 501;");
        let expected = format!("  {mark}\n  # b 1;\n  return 501;\n");
        assert_eq!(changed("  b 1;\n", "b", kind), expected);
    }

    #[test]
    fn words_are_replaced_or_taken_out() {
        let words = |new: &str| Kind::Words(vec![(Span::NONE, new.to_string())]);
        let mark = "# millpond check --fix: replaced \"listen 1 http2;\": so";
        let text = "  listen 1\n    http2;\n";
        let expected = format!("  {mark}\n  listen 1;\n");
        assert_eq!(changed(text, "http2", words("")), expected);
        let expected = format!("  {mark}\n  listen 1\n    ssl;\n");
        assert_eq!(changed(text, "http2", words("ssl")), expected);
    }
}
