//! Regular expressions as nginx's configurations use them.
//!
//! The `regex` crate runs most of them in linear time. What it lacks (look-around, back-references,
//! possessive quantifiers), and what it reads otherwise than PCRE (`is_read_alike`), runs on
//! PCRE2. Which engine serves an expression is decided when the configuration is read. Both work on
//! bytes.
//!
//! One difference depends on the subject: in PCRE, `$` matches before a line feed at the end, too.
//! So subjects that end in one are matched by PCRE2 alone.
//!
//! Invariants:
//! 1. Matching never fails for the subject's sake: PCRE2's limit errors count as no match and are
//!    logged by the caller through `false`.
//! 2. Group numbers mean the same in both engines.

use std::sync::OnceLock;

use bytes::Bytes;
use millpond_conf::VarId;

use crate::request::{Captures, Request, Value};

/// Whether letters match in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// `~`.
    Sensitive,
    /// `~*`.
    Insensitive,
}

/// The stack of PCRE2's machine code, bytes; its own 32 KiB are too few for long subjects.
const JIT_STACK: usize = 512 * 1024;

enum Engine {
    Linear(regex::bytes::Regex),
    Backtracking(pcre2::bytes::Regex),
}

/// A compiled expression.
pub struct Regex {
    engine: Engine,
    /// The same for subjects that end in a line feed, if `engine` is linear; made on first use.
    exact: OnceLock<Option<Engine>>,
    source: String,
    case: Case,
    /// Named groups that set variables.
    names: Vec<(u32, VarId)>,
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Regex").field(&self.source).finish()
    }
}

impl Regex {
    /// Compiles an expression; the error is the engine's own explanation.
    ///
    /// `intern` gives the variable of a named group.
    pub fn new(
        source: &str,
        case: Case,
        mut intern: impl FnMut(&str) -> VarId,
    ) -> Result<Regex, String> {
        let linear = is_read_alike(source).then(|| {
            regex::bytes::RegexBuilder::new(source)
                .unicode(false)
                .case_insensitive(case == Case::Insensitive)
                .build()
        });
        let engine = match linear {
            Some(Ok(regex)) => Engine::Linear(regex),
            _ => Engine::Backtracking(backtracking(source, case)?),
        };
        let names = match &engine {
            Engine::Linear(regex) => named(regex.capture_names(), &mut intern),
            Engine::Backtracking(regex) => named(
                regex.capture_names().iter().map(|name| name.as_deref()),
                &mut intern,
            ),
        };
        Ok(Regex {
            engine,
            exact: OnceLock::new(),
            source: source.to_string(),
            case,
            names,
        })
    }

    /// The engine that reads `$` as PCRE does for this subject.
    fn engine_for(&self, subject: &[u8]) -> &Engine {
        if subject.last() != Some(&b'\n') || matches!(self.engine, Engine::Backtracking(_)) {
            return &self.engine;
        }
        let exact = self.exact.get_or_init(|| {
            let regex = backtracking(&self.source, self.case).ok()?;
            Some(Engine::Backtracking(regex))
        });
        exact.as_ref().unwrap_or(&self.engine)
    }

    /// The expression as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The named groups, and what was given for their names.
    pub fn named_groups(&self) -> &[(u32, VarId)] {
        &self.names
    }

    /// Number of groups, the whole match not counted.
    pub fn group_count(&self) -> usize {
        match &self.engine {
            Engine::Linear(regex) => regex.captures_len() - 1,
            Engine::Backtracking(regex) => regex.captures_len() - 1,
        }
    }

    /// True when the expression matches; captures nothing.
    pub fn is_match(&self, subject: &[u8]) -> bool {
        match self.engine_for(subject) {
            Engine::Linear(regex) => regex.is_match(subject),
            Engine::Backtracking(regex) => regex.is_match(subject).unwrap_or(false),
        }
    }

    /// Offsets of the groups of the first match.
    pub fn groups(&self, subject: &[u8]) -> Option<Vec<Option<(u32, u32)>>> {
        match self.engine_for(subject) {
            Engine::Linear(regex) => {
                let found = regex.captures(subject)?;
                let span = |m: Option<regex::bytes::Match<'_>>| {
                    m.map(|m| (m.start() as u32, m.end() as u32))
                };
                Some(
                    (0..found.len())
                        .map(|group| span(found.get(group)))
                        .collect(),
                )
            }
            Engine::Backtracking(regex) => {
                let found = regex.captures(subject).ok()??;
                let span = |m: Option<pcre2::bytes::Match<'_>>| {
                    m.map(|m| (m.start() as u32, m.end() as u32))
                };
                Some(
                    (0..found.len())
                        .map(|group| span(found.get(group)))
                        .collect(),
                )
            }
        }
    }

    /// Matches the path of a request and sets its captures.
    pub fn capture(&self, req: &mut Request) -> bool {
        let subject = req.uri.clone();
        self.capture_from(req, subject)
    }

    /// Matches `subject` and, when it matches, makes its groups the request's captures and sets the
    /// variables of named groups.
    pub fn capture_from(&self, req: &mut Request, subject: Bytes) -> bool {
        let captures = self.captures(&subject);
        let is_match = captures.is_some();
        if let Some(captures) = captures {
            self.keep(req, captures);
        }
        is_match
    }

    /// The groups of the first match, for [`Regex::keep`].
    pub fn captures(&self, subject: &Bytes) -> Option<Captures> {
        if self.group_count() == 0 {
            return self.is_match(subject).then(Captures::default);
        }
        Some(Captures {
            groups: self.groups(subject)?,
            subject: subject.clone(),
        })
    }

    /// Makes the groups of a match the request's captures and sets the variables of named groups.
    pub fn keep(&self, req: &mut Request, captures: Captures) {
        for (group, variable) in &self.names {
            let span = captures.groups.get(*group as usize).copied().flatten();
            let value = match span {
                Some((start, end)) => captures.subject.slice(start as usize..end as usize),
                // nginx: a group that took no part is an empty value.
                None => Bytes::new(),
            };
            req.set_value(*variable, Value::Found(value));
        }
        req.captures = captures;
    }
}

fn backtracking(source: &str, case: Case) -> Result<pcre2::bytes::Regex, String> {
    pcre2::bytes::RegexBuilder::new()
        .caseless(case == Case::Insensitive)
        .jit_if_available(true)
        .max_jit_stack_size(Some(JIT_STACK))
        .build(source)
        .map_err(|error| error.to_string())
}

fn named<'a>(
    names: impl IntoIterator<Item = Option<&'a str>>,
    intern: &mut impl FnMut(&str) -> VarId,
) -> Vec<(u32, VarId)> {
    names
        .into_iter()
        .enumerate()
        .filter_map(|(group, name)| Some((group as u32, intern(name?))))
        .collect()
}

/// False for what both engines accept and read differently: set operations and brackets inside of a
/// class, `(?R)`, the word boundaries `\<`, `\>` and `\b{...}`, and letters of several bytes.
fn is_read_alike(source: &str) -> bool {
    if !source.is_ascii() {
        return false;
    }
    let mut rest = source;
    let mut is_in_class = false;
    while let Some(first) = rest.chars().next() {
        if ["\\<", "\\>", "\\b{", "(?R"]
            .iter()
            .any(|odd| rest.starts_with(odd))
        {
            return false;
        }
        if is_in_class {
            let is_named = rest.starts_with("[:");
            let is_operator = ["&&", "--", "~~"].iter().any(|odd| rest.starts_with(odd));
            if is_operator || (first == '[' && !is_named) {
                return false;
            }
            if is_named {
                rest = rest
                    .find(":]")
                    .and_then(|end| rest.get(end + 2..))
                    .unwrap_or_default();
                continue;
            }
        }
        is_in_class = match first {
            '[' => true,
            ']' => false,
            _ => is_in_class,
        };
        let escaped = if first == '\\' {
            rest.chars().nth(1)
        } else {
            None
        };
        let len = first.len_utf8() + escaped.map_or(0, char::len_utf8);
        rest = rest.get(len..).unwrap_or_default();
        if first == '[' {
            rest = after_class_start(rest);
        }
    }
    true
}

/// A `]` right at the begin of a class is one of its members.
fn after_class_start(rest: &str) -> &str {
    let inner = rest.strip_prefix('^').unwrap_or(rest);
    inner.strip_prefix(']').unwrap_or(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(source: &str, case: Case) -> Regex {
        Regex::new(source, case, |_| VarId(0)).unwrap()
    }

    #[test]
    fn what_engines_read_differently_goes_to_pcre() {
        for (source, is_linear) in [
            (r"^/a/(\d+)\.php$", true),
            ("[[:alpha:]]+", true),
            ("[]a]b", true),
            ("[^]a]b", true),
            (r"[\]a]", true),
            ("a&&b", true),
            ("[a&&b]", false),
            ("[+--b]", false),
            ("[a[b]", false),
            (r"\<a", false),
            ("(?R)", false),
            ("(?=a)", false),
            (r"(a)\1", false),
            ("\u{e4}", false),
        ] {
            let is_found = matches!(compile(source, Case::Sensitive).engine, Engine::Linear(_));
            assert_eq!(is_found, is_linear, "{source}");
        }
    }

    #[test]
    fn expressions_match_bytes() {
        for (source, case, subject, is_match) in [
            ("^/A$", Case::Sensitive, &b"/a"[..], false),
            ("^/A$", Case::Insensitive, b"/a", true),
            ("^/.$", Case::Sensitive, b"/\xff", true),
            (r"^\w$", Case::Sensitive, "\u{e4}".as_bytes(), false),
            ("^/a$", Case::Sensitive, b"/a\n", true),
            ("^/a$", Case::Sensitive, b"/a\n\n", false),
            (r"^/a\z", Case::Sensitive, b"/a\n", false),
            ("(?<!x)a", Case::Sensitive, b"xa", false),
            ("(?<!x)a", Case::Sensitive, b"ya", true),
        ] {
            assert_eq!(
                compile(source, case).is_match(subject),
                is_match,
                "{source}"
            );
        }
    }

    #[test]
    fn groups_are_numbered_alike() {
        for source in ["(a)|(?<n>b)", "(?!x)(a)|(?<n>b)"] {
            let regex = compile(source, Case::Sensitive);
            assert_eq!(regex.group_count(), 2);
            let groups = regex.groups(b"xb");
            assert_eq!(
                groups,
                Some(vec![Some((1, 2)), None, Some((1, 2))]),
                "{source}"
            );
        }
    }
}
