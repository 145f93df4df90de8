//! `cargo xtask tidy`: the rules of the style guide that a program can check.
//!
//! Every rule looks at the Rust files (and manifests) of the workspace and yields findings; all are
//! reported at once as `file:line: rule: what is wrong`. What cannot be mended yet is excused by
//! name in `xtask/tidy-excused.txt`, with how much it may exceed and why.
//!
//! 1. A finding is either reported or excused, never lost.
//! 2. An excuse that nothing needs any more, or that allows more than is needed, is a finding.
//!
//! Does not judge names, comments or design: that is what a review is for.

mod excused;
mod imports;
mod limits;
mod names;
mod source;
mod words;

use crate::tally::Tally;
use crate::workspace;
use anyhow::Result;
use std::fmt;
use std::path::PathBuf;

/// Something that a rule found, at the place where it can be mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The rule's name, as it stands in the list of excuses.
    pub(crate) rule: &'static str,
    /// Path from the workspace's root.
    pub(crate) path: PathBuf,
    /// Line, counted from 1.
    pub(crate) line: usize,
    /// What the finding is about: a function's name, a forbidden word; stable under edits.
    pub(crate) item: String,
    /// How large it is: lines, arguments, or 1 for what is only there or not.
    pub(crate) measure: usize,
    /// What is wrong and what to do instead.
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(f, "{path}:{}: {}: {}", self.line, self.rule, self.message)
    }
}

/// Checks the whole workspace; one finding is one failure, and no finding is one pass.
pub(crate) fn run() -> Result<Tally> {
    let root = workspace::root();
    let files = source::read_all(&root)?;
    let mut findings = Vec::new();
    for file in &files {
        names::check(file, &mut findings);
        limits::check(file, &mut findings);
        words::check(file, &mut findings);
    }
    imports::check(&root, &mut findings)?;
    let list = root.join("xtask/tidy-excused.txt");
    let mut findings = excused::apply(&list, findings)?;
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for finding in &findings {
        println!("{finding}");
    }
    Ok(if findings.is_empty() {
        Tally::PASS
    } else {
        Tally {
            passed: 0,
            failed: findings.len() as u64,
        }
    })
}
