//! Findings that are counted: `xtask/tidy-bounds.txt` says how many of a rule each crate may have.
//!
//! One bound a line, `#` begins a comment; a crate without a line has none:
//!
//! ```text
//! rule | crate | most
//! ```
//!
//! 1. More findings than the bound is a failure, and so is less: then the bound is to be lowered,
//!    which `cargo xtask tidy --bounds` does, so what was mended stays mended.
//! 2. That command lets a number move between crates, as files do, but never raises the sum of a
//!    rule.
//!
//! Tests, fuzzers and tasks count as crates of the names of their folders.

use super::Finding;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The table, from the workspace's root.
const TABLE: &str = "xtask/tidy-bounds.txt";
const HEAD: &str = "\
# How many findings of a rule a crate may have: rule | crate | most
# Numbers only fall. `cargo xtask tidy --list RULE CRATE` names the findings, and
# `cargo xtask tidy --bounds` lowers the numbers to what is left.
";
/// As many findings as are printed one by one when there are too many: a screen's worth.
const MOST_PRINTED: usize = 20;

/// The rules whose findings are counted.
const RULES: &[&str] = &[
    "arguments",
    "bool-parameter",
    "doc-subject",
    "match-bool",
    "nesting",
    "same-let",
    "type-parameters",
];

/// Numbers of findings that there are or may be, by rule and crate.
pub(crate) type Counts = BTreeMap<(String, String), usize>;

/// The findings that are left when those within the bounds are taken away.
pub(crate) fn apply(root: &Path, findings: Vec<Finding>) -> Result<Vec<Finding>> {
    let bounds = parse(&fs::read_to_string(root.join(TABLE)).unwrap_or_default())?;
    Ok(subtract(&bounds, findings))
}

/// Writes the bounds that are needed, unless a rule would have more findings than before.
pub(crate) fn lower(root: &Path, findings: &[Finding]) -> Result<()> {
    let path = root.join(TABLE);
    let old = parse(&fs::read_to_string(&path).unwrap_or_default())?;
    let new = count(findings);
    for rule in RULES {
        // A rule that is new to the table begins with what there is.
        let (before, now) = (sum(&old, rule), sum(&new, rule));
        if before.is_some_and(|before| now > Some(before)) {
            bail!(
                "{rule}: {} findings, at most {}; `cargo xtask tidy --list {rule}` names them",
                now.unwrap_or(0),
                before.unwrap_or(0)
            );
        }
    }
    fs::write(path, render(&new))?;
    Ok(())
}

/// Counts the findings of the counted rules.
pub(crate) fn count(findings: &[Finding]) -> Counts {
    let mut counts = Counts::new();
    for finding in findings.iter().filter(|finding| is_counted(finding)) {
        let of = (finding.rule.to_owned(), crate_of(&finding.path));
        *counts.entry(of).or_default() += 1;
    }
    counts
}

/// The crate that a path is in: the folder below `crates`, or the first one.
pub(crate) fn crate_of(path: &Path) -> String {
    let mut parts = path.iter().map(|part| part.to_string_lossy());
    let first = parts.next().unwrap_or_default();
    let second = (first == "crates").then(|| parts.next()).flatten();
    second.unwrap_or(first).into_owned()
}

fn is_counted(finding: &Finding) -> bool {
    RULES.contains(&finding.rule)
}

fn sum(counts: &Counts, rule: &str) -> Option<usize> {
    let of_rule = counts.iter().filter(|((name, _), _)| name == rule);
    of_rule.map(|(_, count)| *count).reduce(|a, b| a + b)
}

fn parse(text: &str) -> Result<Counts> {
    let mut bounds = Counts::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let (rule, krate, most) = match columns.as_slice() {
            [rule, krate, most] if RULES.contains(rule) => (*rule, *krate, most.parse()),
            _ => bail!("{TABLE}:{}: not `rule | crate | most`", index + 1),
        };
        let Ok(most) = most else {
            bail!("{TABLE}:{}: not a number", index + 1);
        };
        bounds.insert((rule.to_owned(), krate.to_owned()), most);
    }
    Ok(bounds)
}

fn render(counts: &Counts) -> String {
    let rows = counts
        .iter()
        .map(|((rule, krate), count)| format!("{rule} | {krate} | {count}\n"));
    HEAD.to_owned() + &rows.collect::<String>()
}

fn subtract(bounds: &Counts, findings: Vec<Finding>) -> Vec<Finding> {
    let counts = count(&findings);
    let all: BTreeSet<_> = bounds.keys().chain(counts.keys()).collect();
    let mut left = Vec::new();
    let mut printed = BTreeSet::new();
    for of in all {
        let most = bounds.get(of).copied().unwrap_or(0);
        let count = counts.get(of).copied().unwrap_or(0);
        let (rule, krate) = of;
        if count > most && count <= MOST_PRINTED {
            printed.insert(of.clone());
        }
        if count != most {
            let what_to_do = if count > most {
                format!("`cargo xtask tidy --list {rule} {krate}` names them")
            } else {
                "lower the number: `cargo xtask tidy --bounds`".to_owned()
            };
            left.push(Finding {
                rule: "bound",
                path: PathBuf::from(TABLE),
                line: 1,
                item: rule.clone(),
                measure: 1,
                message: format!(
                    "{krate} has {count} of {rule}, the bound is {most}: {what_to_do}"
                ),
            });
        }
    }
    let is_left = |finding: &Finding| {
        let of = || (finding.rule.to_owned(), crate_of(&finding.path));
        !is_counted(finding) || printed.contains(&of())
    };
    left.extend(findings.into_iter().filter(is_left));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rule: &'static str, path: &str) -> Finding {
        Finding {
            rule,
            path: PathBuf::from(path),
            line: 1,
            item: String::new(),
            measure: 1,
            message: String::new(),
        }
    }

    #[test]
    fn a_crate_has_as_many_findings_as_its_bound_says_no_more_and_no_less() {
        let bounds = |text| parse(text).unwrap();
        let two = || vec![finding("nesting", "crates/a/src/b.rs"); 2];
        for (table, findings, left) in [
            ("nesting | a | 2", two(), 0),
            // One line for the bound, and the findings, since they are few.
            ("nesting | a | 1", two(), 3),
            ("nesting | a | 3", two(), 1),
            ("nesting | b | 2", two(), 4),
            ("", vec![finding("nesting", "tests/tests/b.rs"); 21], 1),
            (
                "nesting | tests | 1",
                vec![finding("nesting", "tests/tests/b.rs")],
                0,
            ),
            ("", vec![finding("columns", "crates/a/src/b.rs")], 1),
        ] {
            assert_eq!(subtract(&bounds(table), findings).len(), left, "{table}");
        }
    }

    #[test]
    fn a_line_that_is_no_bound_is_an_error_and_the_table_reads_back() {
        for text in [
            "nesting | a",
            "nesting | a | b",
            "columns | a | 1",
            "nesting | a | -1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let counts = count(&[finding("nesting", "xtask/src/a.rs")]);
        assert_eq!(parse(&render(&counts)).unwrap(), counts);
    }

    #[test]
    fn lowering_lets_numbers_move_and_never_rise() {
        let root = folder();
        let of_a = || finding("nesting", "crates/a/src/b.rs");
        let of_b = || finding("nesting", "crates/b/src/b.rs");
        lower(&root, &[of_a(), of_a()]).unwrap();
        lower(&root, &[of_a(), of_b()]).unwrap();
        assert!(lower(&root, &[of_a(), of_b(), of_b()]).is_err());
        lower(&root, &[of_b()]).unwrap();
        let left = apply(&root, vec![of_b()]).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(left, []);
    }

    /// A folder of this test alone, with one for the table.
    fn folder() -> PathBuf {
        let name = format!("millpond-tidy-bounds-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(root.join("xtask")).unwrap();
        root
    }
}
