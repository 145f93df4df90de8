//! `cargo xtask tidy`: the rules of the style guide (docs/style.md) that a program can check.
//!
//! Every rule looks at the Rust files (and manifests) of the workspace and yields findings; all are
//! reported at once as `file:line: rule: what is wrong`. What cannot be mended yet is excused by
//! name in `xtask/tidy-excused.txt`, with how much it may exceed and why.
//!
//! What there is too much of to be named is counted: `xtask/tidy-bounds.txt` says how many findings
//! of a rule a crate may have.
//!
//! 1. A finding is reported, excused or within a bound, never lost.
//! 2. An excuse or a bound that allows more than is needed is a finding.
//!
//! Does not judge names, comments or design: that is what a review is for.

mod counted;
mod excused;
mod flow;
mod limits;
mod names;
mod shape;
pub(crate) mod source;
mod subject;
mod words;

use crate::tally::Tally;
use crate::{arrows, workspace};
use anyhow::{Result, bail};
use source::SourceFile;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Something that a rule found, at the place where it can be mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The rule's name, as it stands in the list of excuses.
    pub(crate) rule: &'static str,
    /// Path from the workspace's root.
    pub(crate) path: PathBuf,
    /// Line, counted from 1.
    pub(crate) line: usize,
    /// The subject of the finding: a function's name, a forbidden word; stable under edits.
    pub(crate) item: String,
    /// The size: lines, arguments, or 1 for what is only there or not.
    pub(crate) measure: usize,
    /// The fault, and what to do instead.
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(f, "{path}:{}: {}: {}", self.line, self.rule, self.message)
    }
}

const USAGE: &str = "\
`tidy` alone checks; `--bounds` lowers the numbers of xtask/tidy-bounds.txt to what is left;
`--list` says how many findings of each counted rule there are, `--list RULE [CRATE]` names them;
`--arrows` writes xtask/arrows.txt as the code is, `--arrows CRATE` names where its arrows stand";

/// Checks the whole workspace, or does what the arguments say.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let root = workspace::root();
    let files = source::read_all(&root)?;
    let findings = find(&root, &files)?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => report(&root, findings),
        ["--arrows"] => arrows::renew(&root, &files).map(|()| Tally::PASS),
        ["--arrows", krate] => arrows::print_crate(&root, &files, krate).map(|()| Tally::default()),
        ["--bounds"] => counted::lower(&root, &findings).map(|()| Tally::PASS),
        ["--list"] => {
            list_rules(&files, &findings);
            Ok(Tally::default())
        }
        ["--list", rule, krates @ ..] if krates.len() < 2 => {
            let is_meant = |finding: &&Finding| {
                let krate = counted::crate_of(&finding.path);
                finding.rule == *rule && krates.iter().all(|meant| *meant == krate)
            };
            let meant = findings.iter().filter(is_meant);
            meant.for_each(|finding| println!("{finding}"));
            Ok(Tally::default())
        }
        _ => bail!("{USAGE}"),
    }
}

/// All that the rules find.
fn find(root: &Path, files: &[SourceFile]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in files {
        names::check(file, &mut findings);
        limits::check(file, &mut findings);
        shape::check(file, &mut findings);
        flow::check(file, &mut findings);
        subject::check(file, &mut findings);
        words::check(file, &mut findings);
    }
    arrows::check(root, files, &mut findings)?;
    Ok(findings)
}

/// Prints what is neither excused nor within a bound; one finding is one failure, none is one pass.
fn report(root: &Path, findings: Vec<Finding>) -> Result<Tally> {
    let findings = counted::apply(root, findings)?;
    let list = root.join("xtask/tidy-excused.txt");
    let mut findings = excused::apply(&list, findings)?;
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for finding in &findings {
        println!("{finding}");
    }
    Ok(if findings.is_empty() {
        Tally::PASS
    } else {
        Tally::new(0, findings.len() as u64)
    })
}

/// Prints the sum of each counted rule, and what share of doc comments has no subject.
fn list_rules(files: &[SourceFile], findings: &[Finding]) {
    let mut sums = BTreeMap::<String, usize>::new();
    for ((rule, _), count) in counted::count(findings) {
        *sums.entry(rule).or_default() += count;
    }
    for (rule, sum) in &sums {
        println!("{sum:6} {rule}");
    }
    let comments: usize = files
        .iter()
        .map(|file| subject::first_words(&file.text).count())
        .sum();
    let without = sums.get("doc-subject").copied().unwrap_or(0);
    let share = without as f64 / comments.max(1) as f64 * 100.0;
    println!("{share:.1} % of {comments} doc comments have no subject");
}
