//! Lints: what a configuration says that is allowed and seldom meant.
//!
//! A lint looks at the statements as they were written, with their inheritance, and warns: what
//! will happen, and what to write. It never changes what a configuration means, and runs when one
//! is tested, not when a server starts.
//!
//! A comment in the line before, or at the end of the line, silences one by its code:
//!
//! ```text
//! # millpond: allow(no_valid_time)
//! proxy_cache pond;
//! ```
//!
//! Invariants:
//! 1. A place has one warning of a kind, however many locations inherit what stands there.
//! 2. A lint looks at what is written only: it resolves and opens nothing.
//!
//! What it does not do: it follows no variables. A value that may be anything is taken for right.

mod block;
mod host;
mod inherit;
mod key;
mod open;
mod pass;
mod rfc;
mod rights;
mod store;

use std::collections::HashSet;

use millpond_conf::source::{Sources, Span};
use millpond_conf::tree::Statement;
use millpond_conf::{Code, Diagnostic, Diagnostics};

use block::Blocks;

/// A lint.
#[derive(Debug)]
pub struct Lint {
    /// Name and manual text of the lint.
    pub code: Code,
    /// Looks for it.
    check: fn(&Blocks<'_>, &mut Findings<'_>),
}

/// The lints, in the order of the manual.
pub const LINTS: &[Lint] = &[
    Lint {
        code: store::INACTIVE_SHORT,
        check: store::inactive_short,
    },
    Lint {
        code: store::NO_VALID_TIME,
        check: store::no_valid_time,
    },
    Lint {
        code: store::UPDATING_IN_FOREGROUND,
        check: store::updating_in_foreground,
    },
    Lint {
        code: store::BYPASS_IS_STORED,
        check: store::bypass_is_stored,
    },
    Lint {
        code: rfc::RFC_STALE_UPDATING,
        check: rfc::stale_updating,
    },
    Lint {
        code: rfc::RFC_POST_STORED,
        check: rfc::post_stored,
    },
    Lint {
        code: host::CACHE_KEY_WITHOUT_HOST,
        check: host::cache_key_without_host,
    },
    Lint {
        code: key::CACHE_KEY_UNBOUNDED,
        check: key::cache_key_unbounded,
    },
    Lint {
        code: key::CACHE_KEY_AMBIGUOUS,
        check: key::cache_key_ambiguous,
    },
    Lint {
        code: inherit::LIST_NOT_INHERITED,
        check: inherit::list_not_inherited,
    },
    Lint {
        code: inherit::IF_IN_LOCATION,
        check: inherit::if_in_location,
    },
    Lint {
        code: pass::PASS_WITHOUT_RESOLVER,
        check: pass::pass_without_resolver,
    },
    Lint {
        code: open::OPEN_TO_EVERYBODY,
        check: open::open_to_everybody,
    },
    Lint {
        code: rights::WORKERS_AS_ROOT,
        check: rights::workers_as_root,
    },
    Lint {
        code: pass::ALIAS_TRAVERSAL,
        check: pass::alias_traversal,
    },
];

/// Warns of everything that the lints find in a configuration without mistakes.
pub fn run(statements: &[Statement], sources: &Sources, diagnostics: &mut Diagnostics) {
    let blocks = Blocks::of(statements);
    let mut findings = Findings {
        sources,
        diagnostics,
        seen: HashSet::new(),
    };
    for lint in LINTS {
        (lint.check)(&blocks, &mut findings);
    }
}

/// Findings of the lints.
struct Findings<'a> {
    sources: &'a Sources,
    diagnostics: &'a mut Diagnostics,
    seen: HashSet<(&'static str, Span)>,
}

impl Findings<'_> {
    /// Warns at a place, unless it was said there already or is allowed there.
    fn warn(&mut self, code: Code, span: Span, message: String) -> Option<&mut Diagnostic> {
        if !self.seen.insert((code.name, span)) || is_allowed(self.sources, span, code.name) {
            return None;
        }
        let warning = self.diagnostics.push_warning(span, message);
        Some(warning.code(code))
    }
}

/// True if a comment beside the place allows what the code names.
fn is_allowed(sources: &Sources, span: Span, code: &str) -> bool {
    let Some(source) = sources.get(span.file) else {
        return false;
    };
    let (before, behind) = source
        .bytes()
        .split_at((span.start as usize).min(source.bytes().len()));
    let rest = behind
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let trailing = rest.iter().position(|byte| *byte == b'#');
    let trailing = trailing.and_then(|at| rest.get(at..)).unwrap_or_default();
    // The first piece is the beginning of the line itself.
    let lines = before.rsplit(|byte| *byte == b'\n').skip(1);
    let comments = lines.take_while(|line| line.trim_ascii().starts_with(b"#"));
    [trailing]
        .into_iter()
        .chain(comments)
        .any(|comment| allows(comment, code))
}

/// True if a comment has `millpond: allow(…)` with the code in it.
fn allows(comment: &[u8], code: &str) -> bool {
    let comment = String::from_utf8_lossy(comment);
    let inside = comment
        .split_once("millpond: allow(")
        .and_then(|(_, rest)| rest.split_once(')'));
    inside.is_some_and(|(codes, _)| codes.split(',').any(|it| it.trim() == code))
}

#[cfg(test)]
mod tests;
