//! Regular expressions as nginx's configurations use them.
//!
//! The `regex` crate runs most of them in linear time. What it lacks (look-around, back-references, possessive
//! quantifiers) runs on PCRE2. Which engine serves an expression is decided when the configuration is read.
//!
//! Invariants:
//! 1. Matching never fails for the subject's sake: PCRE2's limit errors count as no match and are logged by the caller
//!    through `false`.
//! 2. Group numbers mean the same in both engines.

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

enum Engine {
    Linear(regex::bytes::Regex),
    Backtracking(pcre2::bytes::Regex),
}

/// A compiled expression.
pub struct Regex {
    engine: Engine,
    source: String,
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
        let linear = regex::bytes::RegexBuilder::new(source)
            .unicode(false)
            .case_insensitive(case == Case::Insensitive)
            .build();
        let engine = match linear {
            Ok(regex) => Engine::Linear(regex),
            Err(_) => Engine::Backtracking(
                pcre2::bytes::RegexBuilder::new()
                    .caseless(case == Case::Insensitive)
                    .jit_if_available(true)
                    .build(source)
                    .map_err(|error| error.to_string())?,
            ),
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
            source: source.to_string(),
            names,
        })
    }

    /// The expression as written.
    pub fn source(&self) -> &str {
        &self.source
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
        match &self.engine {
            Engine::Linear(regex) => regex.is_match(subject),
            Engine::Backtracking(regex) => regex.is_match(subject).unwrap_or(false),
        }
    }

    /// Offsets of the groups of the first match.
    pub fn groups(&self, subject: &[u8]) -> Option<Vec<Option<(u32, u32)>>> {
        match &self.engine {
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

    /// Matches `subject` and, when it matches, makes its groups the request's captures and sets the variables of named
    /// groups.
    pub fn capture_from(&self, req: &mut Request, subject: Bytes) -> bool {
        if self.group_count() == 0 {
            let is_match = self.is_match(&subject);
            if is_match {
                req.captures = Captures::default();
            }
            return is_match;
        }
        let Some(groups) = self.groups(&subject) else {
            return false;
        };
        for (group, variable) in &self.names {
            let span = groups.get(*group as usize).copied().flatten();
            let value = match span {
                Some((start, end)) => Value::Found(subject.slice(start as usize..end as usize)),
                None => Value::NotFound,
            };
            req.set_value(*variable, value);
        }
        req.captures = Captures { subject, groups };
        true
    }
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
