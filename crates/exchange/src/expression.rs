//! Regular expressions as nginx's configurations use them.
//!
//! The `regex` crate runs most of them in linear time. What it lacks, and all that it may read
//! otherwise than PCRE (`shared`), runs on PCRE2, and so does what counts far (`[a-z]{2000}`,
//! `weight`): linear time follows as many states at each byte. Which engine serves an expression is
//! decided when the configuration is read. Both work on bytes.
//!
//! One difference depends on the subject: in PCRE, `$` matches before a line feed at the end, too.
//! So subjects that end in one are matched by PCRE2 alone.
//!
//! PCRE2 tries one way after the other, within limits. Where those are reached it is not known
//! whether the expression matches, and whoever sends the subject can bring that about. So it counts
//! neither as a match nor as none: the request that it was asked for is answered with 500.
//!
//! Invariants:
//! 1. An expression that gives up is an alert in the error log and the end of what the request
//!    would have got (`Request::heed_expressions`).
//! 2. Group numbers mean the same in both engines.

pub mod shared;
mod weight;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use millpond_conf::{Span, VarId};

use crate::scope::build::Builder;
use crate::scope::code;

/// The treatment of letters in both cases: as different, or as the same.
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

/// The most places that counts make of an expression that runs in linear time (arbitrary: many
/// times those of a UUID, and a quarter of what was seen to take milliseconds).
const COUNTED_MAX: u64 = 512;

/// Bytes of a subject that are told of in the error log (arbitrary: some lines of a terminal).
const SUBJECT_SHOWN: usize = 256;

/// Begin and end of each group of a match.
pub type Groups = Vec<Option<(u32, u32)>>;

/// Captures of the last regular expression that matched: the subject and the groups' offsets.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    /// Text that was matched.
    pub subject: Bytes,
    /// Start and end of each group; group 0 is the whole match.
    pub groups: Groups,
}

/// An expression for which a limit was reached: whether it matches is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pcre2_match() failed: {reason} on \"{subject}\" using \"{expression}\"")]
pub struct GaveUp {
    reason: String,
    subject: String,
    expression: String,
}

/// A compiled expression.
pub struct Regex {
    engine: Engine,
    /// The engine for subjects that end in a line feed, if `engine` is linear; made on first use.
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
    /// Compiles an expression of the configuration; named groups become variables. A bad one is
    /// reported and `None`.
    pub fn compile(
        builder: &mut Builder,
        source: &str,
        case: Case,
        span: Span,
    ) -> Option<Arc<Regex>> {
        let variables = &mut builder.cx.variables;
        match Regex::new(source, case, |name| variables.store(name, span)) {
            Ok(regex) => Some(Arc::new(regex)),
            Err(error) => {
                let message = format!("invalid regular expression \"{source}\"");
                let diagnostic = builder.cx.diagnostics.push_error(span, message);
                diagnostic.code(code::INVALID_REGEX).help(error);
                None
            }
        }
    }

    /// Compiles an expression; the error is the engine's own explanation.
    ///
    /// `intern` gives the variable of a named group.
    pub fn new(
        source: &str,
        case: Case,
        mut intern: impl FnMut(&str) -> VarId,
    ) -> Result<Regex, String> {
        let is_linear = shared::is_read_alike(source) && weight::counted(source) <= COUNTED_MAX;
        let linear = is_linear.then(|| {
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

    /// True if the expression matches; captures nothing.
    pub fn is_match(&self, subject: &[u8]) -> Result<bool, GaveUp> {
        match self.engine_for(subject) {
            Engine::Linear(regex) => Ok(regex.is_match(subject)),
            Engine::Backtracking(regex) => {
                let found = regex.is_match(subject);
                found.map_err(|error| self.gave_up(subject, &error))
            }
        }
    }

    /// Offsets of the groups of the first match.
    pub fn groups(&self, subject: &[u8]) -> Result<Option<Groups>, GaveUp> {
        match self.engine_for(subject) {
            Engine::Linear(regex) => {
                let Some(found) = regex.captures(subject) else {
                    return Ok(None);
                };
                let span = |group| found.get(group).map(|m| (m.start() as u32, m.end() as u32));
                Ok(Some((0..found.len()).map(span).collect()))
            }
            Engine::Backtracking(regex) => {
                let found = regex.captures(subject);
                let found = found.map_err(|error| self.gave_up(subject, &error))?;
                let Some(found) = found else {
                    return Ok(None);
                };
                let span = |group| found.get(group).map(|m| (m.start() as u32, m.end() as u32));
                Ok(Some((0..found.len()).map(span).collect()))
            }
        }
    }

    fn gave_up(&self, subject: &[u8], error: &pcre2::Error) -> GaveUp {
        let begin = subject.get(..SUBJECT_SHOWN).unwrap_or(subject);
        GaveUp {
            reason: error.to_string(),
            subject: begin.escape_ascii().to_string(),
            expression: self.source.clone(),
        }
    }

    /// The groups of the first match, for the request that it was asked for.
    pub fn captures(&self, subject: &Bytes) -> Result<Option<Captures>, GaveUp> {
        if self.group_count() == 0 {
            return Ok(self.is_match(subject)?.then(Captures::default));
        }
        Ok(self.groups(subject)?.map(|groups| Captures {
            groups,
            subject: subject.clone(),
        }))
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

#[cfg(test)]
mod tests;
