//! Rendering of diagnostics: nginx's one line for tools, then the place for people.
//!
//! Each finding is printed as
//!
//! ```text
//! millpond: [emerg] unknown directive "servr" in /etc/millpond.conf:3
//!    ,-[/etc/millpond.conf:3:5]
//!  3 |     servr {
//!    :     ^^|^^
//!    `----
//!   help: did you mean "server"?
//!   code: unknown_directive
//! ```
//!
//! The first line has exactly nginx's form, so that what greps logs for `[emerg]` goes on working.
//! The rest is made by miette. Findings are sorted by place, those without one first, and at most
//! [`RENDERED`] are printed.

use std::fmt;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, NamedSource, SourceCode,
    SourceSpan, SpanContents,
};

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::source::{SourceKind, Sources, Span};

/// Number of findings that are printed in full. Nobody reads more, and each costs a scan of its
/// file.
pub const RENDERED: usize = 100;

/// The width to which help is wrapped, that of a usual terminal.
const WIDTH: usize = 100;
/// Bytes of the longest message that is written whole, and of the longest line that is shown.
/// Arbitrarily: ten lines of a terminal.
const LONGEST_LINE: usize = 1000;

/// Style of the output: the characters that it may contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// ASCII without colours.
    Plain,
    /// Unicode and colours, for a terminal.
    Fancy,
}

/// The message and its place in nginx's form, without the severity: for the error log.
pub fn one_line(diagnostic: &Diagnostic, sources: &Sources) -> String {
    let message = &printable(&diagnostic.message);
    let Some(span) = diagnostic.span else {
        return message.clone();
    };
    match (sources.get(span.file), sources.place(span)) {
        (Some(source), _) if source.kind() == SourceKind::CommandLine => {
            format!("{message} in command line")
        }
        (_, Some(place)) => format!("{message} in {}:{}", place.path.display(), place.line),
        _ => message.clone(),
    }
}

/// A text without the bytes that would steer a terminal, cut where nobody reads on: what is quoted
/// may be anything, down to a program that was named by mistake.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        if out.len() >= LONGEST_LINE {
            out.push('…');
            break;
        }
        if char.is_control() && char != '\n' {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    out
}

impl Diagnostics {
    /// All findings as text for the standard error stream.
    pub fn render(&self, sources: &Sources, style: Style) -> String {
        let mut sorted: Vec<&Diagnostic> = self.iter().collect();
        sorted.sort_by_key(|it| it.span.map(|span| (span.file, span.start)));
        let mut out = String::new();
        for diagnostic in sorted.iter().take(RENDERED) {
            render_one(&mut out, diagnostic, sources, style);
        }
        if sorted.len() > RENDERED {
            out.push_str(&format!("and {} more\n", sorted.len() - RENDERED));
        }
        out
    }
}

fn render_one(out: &mut String, diagnostic: &Diagnostic, sources: &Sources, style: Style) {
    let level = diagnostic.severity.level();
    let line = one_line(diagnostic, sources);
    out.push_str(&format!("millpond: [{level}] {line}\n"));
    let Some(snippet) = Snippet::new(diagnostic, sources) else {
        for help in diagnostic.help.iter().flat_map(|help| help.lines()) {
            out.push_str(&format!("  help: {help}\n"));
        }
        render_code(out, diagnostic);
        return;
    };
    let theme = match style {
        Style::Plain => GraphicalTheme::none(),
        Style::Fancy => GraphicalTheme::unicode(),
    };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(WIDTH)
        .with_links(false)
        .with_context_lines(1);
    let mut text = String::new();
    if handler.render_report(&mut text, &snippet).is_ok() {
        // miette's own heading is empty here: the message stands in our first line.
        let lines = text.lines().skip_while(|line| !line.contains('['));
        lines.for_each(|line| {
            out.push_str(line.trim_end());
            out.push('\n');
        });
    }
    render_code(out, diagnostic);
}

/// The code of what is a mistake or a warning; notes say all there is.
fn render_code(out: &mut String, diagnostic: &Diagnostic) {
    if let Some(code) = diagnostic.code
        && diagnostic.severity != Severity::Note
    {
        out.push_str(&format!("  code: {}\n", code.name));
    }
}

/// Drawing that miette makes: the text, the places in it and the help.
#[derive(Debug)]
struct Snippet {
    source: Lines,
    labels: Vec<LabeledSpan>,
    help: Option<String>,
}

impl Snippet {
    fn new(diagnostic: &Diagnostic, sources: &Sources) -> Option<Snippet> {
        let span = diagnostic.span?;
        let source = sources.get(span.file)?;
        let text = Text::new(source.bytes());
        if text.lines_around(span) > LONGEST_LINE {
            return None;
        }
        let also = diagnostic.also.iter();
        let also = also.filter(|(also, _)| also.file == span.file && *also != span);
        let also = also.map(|(also, label)| {
            LabeledSpan::new_with_span(Some(label.clone()), text.range(*also))
        });
        let mut labels: Vec<LabeledSpan> = also.collect();
        // The end of the file is nothing to look at, if there is a second place.
        if labels.is_empty() || !span.is_empty() {
            let label = diagnostic.label.clone();
            let primary = LabeledSpan::new_primary_with_span(label, text.range(span));
            labels.insert(0, primary);
        }
        Some(Snippet {
            labels,
            help: diagnostic.help.clone(),
            source: Lines(NamedSource::new(
                source.path().display().to_string(),
                text.lossy,
            )),
        })
    }
}

/// The text, read in whole lines.
#[derive(Debug)]
struct Lines(NamedSource<String>);

impl SourceCode for Lines {
    /// miette asks twice: without context for the line and column of a place, and with context for
    /// what to print. Its context of one line is the line before and the one behind; ours is the
    /// line itself.
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        _: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        if lines_before == 0 {
            return self.0.read_span(span, 0, 0);
        }
        let text = self.0.inner();
        let (start, end) = (span.offset(), span.offset() + span.len());
        let before = text.get(..start).and_then(|text| text.rfind('\n'));
        let behind = text.get(end..).and_then(|text| text.find('\n'));
        let start = before.map_or(0, |offset| offset + 1);
        let end = behind.map_or(text.len(), |offset| end + offset);
        self.0
            .read_span(&SourceSpan::new(start.into(), end - start), 0, 0)
    }
}

impl fmt::Display for Snippet {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl std::error::Error for Snippet {}

impl miette::Diagnostic for Snippet {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let help = self.help.as_ref()?;
        Some(Box::new(help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

/// Puts stars in the place of the values of parameters that are secrets (`secret_key=…`), as many
/// bytes, so that offsets stay right.
fn hide_secrets(text: &mut String) {
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('=') {
        let (before, behind) = rest.split_at(at + 1);
        out.push_str(before);
        rest = behind;
        let name = name_before(before);
        if !is_secret(name) {
            continue;
        }
        let bare = before.trim_end_matches('=').strip_suffix(name);
        let quote = bare.and_then(|it| it.chars().next_back());
        let is_end = |char: char| match quote {
            Some(quote @ ('"' | '\'')) => char == quote,
            _ => char.is_whitespace() || ";{}".contains(char),
        };
        let (value, behind) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
        let stars = value
            .chars()
            .map(|char| if char == '\n' { "\n" } else { "*" });
        out.extend(
            stars
                .zip(value.chars())
                .map(|(star, char)| star.repeat(char.len_utf8())),
        );
        rest = behind;
    }
    if !out.is_empty() {
        out.push_str(rest);
        *text = out;
    }
}

/// A word of a statement as it may be shown: the value of a secret is left out.
pub fn shown(word: &str) -> String {
    match word.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => word.to_string(),
    }
}

/// The name of a parameter at the end of a text, before an equals sign.
fn name_before(text: &str) -> &str {
    let is_of_names = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let mut words = text.trim_end_matches('=').rsplit(|char| !is_of_names(char));
    words.next().unwrap_or_default()
}

/// True for the name of a parameter that is a secret.
fn is_secret(name: &str) -> bool {
    ["secret", "session_token", "access_key"]
        .iter()
        .any(|part| name.contains(part))
}

/// A text in UTF-8, and how offsets in the bytes of the file become offsets in it.
struct Text<'a> {
    bytes: &'a [u8],
    lossy: String,
}

impl<'a> Text<'a> {
    fn new(bytes: &'a [u8]) -> Text<'a> {
        let mut lossy = String::with_capacity(bytes.len());
        for char in String::from_utf8_lossy(bytes).chars() {
            if char.is_control() && !matches!(char, '\n' | '\t') {
                // As many bytes, so that offsets stay right.
                lossy.extend(std::iter::repeat_n('?', char.len_utf8()));
            } else {
                lossy.push(char);
            }
        }
        hide_secrets(&mut lossy);
        Text { bytes, lossy }
    }

    /// Bytes of the lines that a place lies in.
    fn lines_around(&self, span: Span) -> usize {
        let is_end = |byte: &u8| *byte == b'\n';
        let before = self.bytes.get(..span.start as usize).unwrap_or_default();
        let behind = self.bytes.get(span.end as usize..).unwrap_or_default();
        let before = before.iter().rev().position(is_end).unwrap_or(before.len());
        let behind = behind.iter().position(is_end).unwrap_or(behind.len());
        before + span.end.saturating_sub(span.start) as usize + behind
    }

    /// INVARIANT: the range lies in the text and on borders of characters.
    fn range(&self, span: Span) -> SourceSpan {
        let start = self.offset(span.start as usize);
        let end = self.offset(span.end as usize).max(start);
        SourceSpan::new(start.into(), end - start)
    }

    fn offset(&self, offset: usize) -> usize {
        if self.lossy.len() == self.bytes.len() {
            return offset.min(self.lossy.len());
        }
        let before = self.bytes.get(..offset).unwrap_or(self.bytes);
        String::from_utf8_lossy(before).len().min(self.lossy.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_shown_to_nobody() {
        for (text, expected) in [
            ("a region=r secret_key=HUSH;", "a region=r secret_key=****;"),
            ("\"secret_key=a b\" x", "\"secret_key=***\" x"),
            ("'session_token=a\n=b' x=y", "'session_token=*\n**' x=y"),
            (
                "secretkey=\u{e4}=\u{e4}; keys_zone=one:1m",
                "secretkey=*****; keys_zone=one:1m",
            ),
            ("\u{e4}access_key==x", "\u{e4}access_key=**"),
            ("no", "no"),
        ] {
            let mut shown = text.to_string();
            hide_secrets(&mut shown);
            assert_eq!(shown, expected);
            assert_eq!(shown.len(), text.len(), "{text}");
        }
        assert_eq!(shown("secret_key=a b"), "secret_key=***");
        assert_eq!(shown("a=b"), "a=b");
    }
}
