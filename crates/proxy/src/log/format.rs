//! `log_format`: what a line of an access log says.
//!
//! A format is a list of literals and variables, joined from all words of the directive. What a
//! client may choose is escaped, so that a line stays a line.
//!
//! | `escape=` | what is escaped | a variable without a value |
//! |---|---|---|
//! | `default` | `"`, `\`, control characters and bytes over 126 as `\xHH` | `-` |
//! | `json` | `"`, `\` and control characters as JSON does | nothing |
//! | `none` | nothing | nothing |
//!
//! A value is written straight into the line and looked at there; only one that needs escapes is
//! copied.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use millpond_conf::tree::Statement;
use millpond_conf::{Contexts, ParseContext, Part, Span, Template, Words};
use millpond_system::log::buffer::Buffering;

use crate::request::Request;
use millpond_exchange::scope::block::{Draft, Pass, Row};
use millpond_exchange::scope::build::Builder;

/// The name of the format that is there without being declared.
pub const COMBINED: &str = "combined";

/// The text of that format.
const COMBINED_TEXT: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                             $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";

/// The name of the format of upstream logs that name none; a configuration may declare another one
/// by this name.
pub const UPSTREAM: &str = "upstream";

/// The text of that format.
const UPSTREAM_TEXT: &str = "$upstream_addr - [$upstream_start] [$upstream_end] \
                             \"$upstream_method $upstream_uri\" $upstream_status \
                             $upstream_bytes_sent $upstream_bytes_received \"$http_host\" \
                             \"$upstream_host\" \"$upstream_http_content_type\" \
                             $upstream_reason $upstream_clients $upstream_entry";

/// Rows of this file.
pub const ROWS: &[Row] = &[Row {
    name: "log_format",
    contexts: Contexts::HTTP.union(Contexts::STREAM),
    syntax: "name [escape=default | json | none] string …",
    is_block: false,
    pass: Pass::First,
    doc: "Names a format of log lines; `combined` and `upstream` are there without being named.",
    apply: log_format,
}];

/// Bytes that are looked at together: as many as a register of any of the machines holds.
const BLOCK: usize = 16;

/// Way in which values are made safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Escape {
    /// `\xHH`.
    #[word("default")]
    Default,
    /// Values are escaped for a JSON string.
    #[word("json")]
    Json,
    /// Not at all.
    #[word("none")]
    None,
}

/// A format.
#[derive(Debug)]
pub struct LogFormat {
    parts: Vec<Part>,
    escape: Escape,
}

/// Declarations of the log directives.
#[derive(Debug, Default)]
pub struct Logs {
    /// Formats by name.
    pub formats: HashMap<String, Arc<LogFormat>>,
    /// Buffered files, which must be buffered in one way.
    pub buffered: HashMap<PathBuf, Buffering>,
    /// Places where formats are named that nobody has declared; each is reported once.
    pub unknown: HashSet<Span>,
}

/// The format of a name: one that was declared, or one that is there without.
pub fn find(name: &str, logs: &mut Logs, cx: &mut ParseContext) -> Option<Arc<LogFormat>> {
    let text = match name {
        COMBINED => COMBINED_TEXT,
        UPSTREAM => UPSTREAM_TEXT,
        _ => return logs.formats.get(name).cloned(),
    };
    let format = logs.formats.entry(name.to_owned());
    let format = format.or_insert_with(|| Arc::new(LogFormat::built_in(text, cx)));
    Some(Arc::clone(format))
}

impl LogFormat {
    /// The format of a text that is ours.
    fn built_in(text: &str, cx: &mut ParseContext) -> LogFormat {
        let parts = Template::parse(text, Span::NONE, &mut cx.variables)
            .map(|template| template.parts.to_vec())
            // The text is a template, as a test shows.
            .unwrap_or_default();
        LogFormat {
            parts,
            escape: Escape::Default,
        }
    }

    /// Appends the line of a request, without its end.
    pub fn write(&self, req: &mut Request, out: &mut Vec<u8>) {
        for part in &self.parts {
            let id = match part {
                Part::Literal(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                Part::Variable(id) => *id,
                Part::Capture(_) => continue,
            };
            let start = out.len();
            if req.write_variable(id, out) {
                escape_from(out, start, self.escape);
            } else {
                out.truncate(start);
                if self.escape == Escape::Default {
                    out.push(b'-');
                }
            }
        }
    }
}

fn log_format(builder: &mut Builder, statement: &Statement, draft: &mut Draft) {
    let [name, words @ ..] = statement.args.as_slice() else {
        return builder.error(
            statement.span,
            "invalid number of arguments in \"log_format\" directive",
        );
    };
    let (escape, words) = match words {
        [first, rest @ ..] if first.text.starts_with("escape=") => {
            let word = first.text.trim_start_matches("escape=");
            let Some(escape) = Escape::parse(word) else {
                let message = format!("unknown log format escaping \"{word}\"");
                return builder.error(first.span, message);
            };
            (escape, rest)
        }
        words => (Escape::Default, words),
    };
    if words.is_empty() {
        return builder.error(
            statement.span,
            "invalid number of arguments in \"log_format\" directive",
        );
    }
    let mut parts = Vec::new();
    for word in words {
        match Template::parse(&word.text, word.span, &mut builder.cx.variables) {
            Ok(template) if template.has_captures() => {
                builder.error(word.span, "captures are not known in \"log_format\"");
            }
            Ok(template) => parts.extend(template.parts.iter().cloned()),
            Err(error) => builder.error(word.span, error.to_string()),
        }
    }
    let format = Arc::new(LogFormat { parts, escape });
    let formats = &mut builder.of::<Logs>().formats;
    // nginx: sessions have no format without being named.
    let is_built_in = name.text == COMBINED && draft.context == Contexts::HTTP;
    let is_known = formats.contains_key(&name.text) || is_built_in;
    formats.insert(name.text.clone(), format);
    if is_known {
        let message = format!("duplicate \"log_format\" name \"{}\"", name.text);
        builder.error(name.span, message);
    }
}

/// Escapes what stands in `out` from `start`.
fn escape_from(out: &mut Vec<u8>, start: usize, escape: Escape) {
    let needs: fn(u8) -> bool = match escape {
        Escape::Default => |byte| matches!(byte, 0..=0x1f | b'"' | b'\\' | 0x7f..),
        Escape::Json => |byte| matches!(byte, 0..=0x1f | b'"' | b'\\'),
        Escape::None => return,
    };
    let value = out.get(start..).unwrap_or_default();
    if is_plain(value) {
        return;
    }
    let Some(clean) = value.iter().position(|byte| needs(*byte)) else {
        return;
    };
    let rest = out.split_off(start + clean);
    for byte in rest {
        match byte {
            byte if !needs(byte) => out.push(byte),
            byte if escape == Escape::Default => push_hex(out, b"\\x", byte),
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x08 => out.extend(b"\\b"),
            0x0c => out.extend(b"\\f"),
            byte => push_hex(out, b"\\u00", byte),
        }
    }
}

/// True if a value holds nothing that any way escapes, as most do. The value is looked at in
/// blocks, of which the last one may begin within the one before.
fn is_plain(value: &[u8]) -> bool {
    if let Some(last) = value.last_chunk::<BLOCK>() {
        let is_odd = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\') | (byte > 0x7e);
        let has_odd = |block: &[u8; BLOCK]| block.iter().fold(false, |any, it| any | is_odd(*it));
        return !value.as_chunks::<BLOCK>().0.iter().any(has_odd) && !has_odd(last);
    }
    if let (Some(first), Some(last)) = (value.first_chunk(), value.last_chunk()) {
        return odd_bits(u64::from_le_bytes(*first)) | odd_bits(u64::from_le_bytes(*last)) == 0;
    }
    if let (Some(first), Some(last)) = (value.first_chunk(), value.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return odd_bits(u64::from(first) | u64::from(last) << 32) == 0;
    }
    // At most three are left.
    let padded = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
    odd_bits(value.iter().fold(EACH * u64::from(b' '), padded)) == 0
}

/// One in each byte of a word.
const EACH: u64 = u64::from_le_bytes([1; 8]);

/// The high bits of bytes that some way escapes, and maybe of the byte before such a one.
fn odd_bits(word: u64) -> u64 {
    let below = |word: u64, bound: u8| word.wrapping_sub(EACH * u64::from(bound)) & !word;
    let equal = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    (word | below(word, b' ') | equal(b'"') | equal(b'\\') | equal(0x7f)) & (EACH << 7)
}

fn push_hex(out: &mut Vec<u8>, before: &[u8], byte: u8) {
    let digit = |nibble: u8| {
        if nibble < 10 {
            b'0' + nibble
        } else {
            b'A' + nibble - 10
        }
    };
    out.extend_from_slice(before);
    out.extend([digit(byte >> 4), digit(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_nginxs() {
        let long = "0123456789abcdef0123456789abcdef~";
        let cases: [(Escape, &[u8], &str); 10] = [
            (Escape::Default, long.as_bytes(), long),
            (
                Escape::Default,
                b"0123456789abcde\x7f0123456789abcdef",
                "0123456789abcde\\x7F0123456789abcdef",
            ),
            (
                Escape::Json,
                b"0123456789abcdef0123456789abcde\"",
                "0123456789abcdef0123456789abcde\\\"",
            ),
            (Escape::Default, b"plain", "plain"),
            (
                Escape::Default,
                b"a\"b\\c\x1b\x7f\xff",
                "a\\x22b\\x5Cc\\x1B\\x7F\\xFF",
            ),
            (Escape::Json, b"a\"b\\c", "a\\\"b\\\\c"),
            (
                Escape::Json,
                b"\n\r\t\x08\x0c\x1b",
                "\\n\\r\\t\\b\\f\\u001B",
            ),
            (Escape::Json, "\u{fc}".as_bytes(), "\u{fc}"),
            (Escape::None, b"\"\x1b", "\"\x1b"),
            (Escape::Default, b"", ""),
        ];
        for (escape, value, expected) in cases {
            let mut out = b"\"".to_vec();
            out.extend_from_slice(value);
            escape_from(&mut out, 1, escape);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                format!("\"{expected}"),
                "{escape:?}"
            );
        }
    }

    #[test]
    fn plain_values_are_told_from_others_wherever_the_odd_byte_stands() {
        for len in 0..40 {
            let plain: Vec<u8> = (0..len).map(|at| b"a~ !#[]^0"[at % 9]).collect();
            assert!(is_plain(&plain), "{len}");
            for at in 0..len {
                for byte in [0, 0x1f, b'"', b'\\', 0x7f, 0x80, 0xff] {
                    let mut odd = plain.clone();
                    odd[at] = byte;
                    assert!(!is_plain(&odd), "{byte} at {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn formats_that_are_there_without_being_declared_are_templates() {
        let mut cx = ParseContext::default();
        let mut logs = Logs::default();
        for (name, parts) in [(COMBINED, 16), (UPSTREAM, 27)] {
            let format = find(name, &mut logs, &mut cx).unwrap();
            assert_eq!(format.parts.len(), parts, "{name}");
        }
    }
}
