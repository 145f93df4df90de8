//! The list of excuses, `xtask/tidy-excused.txt`: what breaks a rule and may, for now.
//!
//! One excuse a line, `#` begins a comment:
//!
//! ```text
//! rule | path | item | most | reason
//! ```
//!
//! `most` is how large the finding may be (lines, arguments), or for rules that only say yes or no
//! how often it may occur in the file.
//!
//! 1. An excuse whose finding is gone or smaller is itself a finding: the list only shrinks.

use super::Finding;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

struct Excuse {
    line: usize,
    rule: String,
    path: PathBuf,
    item: String,
    most: usize,
}

/// The findings that are left when the excuses in the file at `list` are taken into account.
pub(crate) fn apply(list: &Path, findings: Vec<Finding>) -> Result<Vec<Finding>> {
    let text = fs::read_to_string(list).unwrap_or_default();
    let excuses = parse(&text)?;
    Ok(subtract(&excuses, findings))
}

fn parse(text: &str) -> Result<Vec<Excuse>> {
    let mut excuses = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [rule, path, item, most, reason] = columns.as_slice() else {
            bail!(
                "tidy-excused.txt:{}: not `rule | path | item | most | reason`",
                index + 1
            );
        };
        if reason.is_empty() {
            bail!("tidy-excused.txt:{}: no reason is given", index + 1);
        }
        excuses.push(Excuse {
            line: index + 1,
            rule: rule.to_string(),
            path: PathBuf::from(path),
            item: item.to_string(),
            most: most
                .parse()
                .with_context(|| format!("tidy-excused.txt:{}: {most}", index + 1))?,
        });
    }
    Ok(excuses)
}

fn subtract(excuses: &[Excuse], findings: Vec<Finding>) -> Vec<Finding> {
    let mut sizes: HashMap<(String, PathBuf, String), usize> = HashMap::new();
    for finding in &findings {
        let size = sizes.entry(key(finding)).or_default();
        *size = match finding.measure {
            1 => *size + 1,
            measure => measure.max(*size),
        };
    }
    let mut left = Vec::new();
    let mut obsolete: Vec<Finding> = Vec::new();
    for excuse in excuses {
        let key = (
            excuse.rule.clone(),
            excuse.path.clone(),
            excuse.item.clone(),
        );
        let size = sizes.get(&key).copied().unwrap_or(0);
        if size < excuse.most {
            obsolete.push(Finding {
                rule: "excuse",
                path: PathBuf::from("xtask/tidy-excused.txt"),
                line: excuse.line,
                item: excuse.item.clone(),
                measure: 1,
                message: format!("{} is excused but {size} is enough", excuse.most),
            });
        }
    }
    for finding in findings {
        let (rule, path, item) = key(&finding);
        let size = sizes.get(&key(&finding)).copied().unwrap_or(0);
        let is_excused = excuses
            .iter()
            .any(|e| e.rule == rule && e.path == path && e.item == item && size <= e.most);
        if !is_excused {
            left.push(finding);
        }
    }
    left.append(&mut obsolete);
    left
}

fn key(finding: &Finding) -> (String, PathBuf, String) {
    (
        finding.rule.to_string(),
        finding.path.clone(),
        finding.item.clone(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(measure: usize) -> Finding {
        Finding {
            rule: "word",
            path: PathBuf::from("a.rs"),
            line: 1,
            item: "x".to_string(),
            measure,
            message: String::new(),
        }
    }

    #[test]
    fn excuses_cover_exactly_what_they_name() {
        let ones = |count| vec![finding(1); count];
        for (list, findings, left) in [
            ("", ones(2), 2),
            ("word | a.rs | x | 2 | because", ones(2), 0),
            ("word | a.rs | x | 1 | because", ones(2), 2),
            ("word | a.rs | x | 3 | because", ones(2), 1),
            ("word | b.rs | x | 1 | because", ones(1), 2),
            ("word | a.rs | x | 80 | because", vec![finding(80)], 0),
            ("word | a.rs | x | 80 | because", vec![finding(81)], 1),
        ] {
            let excuses = parse(list).unwrap();
            assert_eq!(subtract(&excuses, findings).len(), left, "{list}");
        }
    }

    #[test]
    fn an_excuse_needs_a_reason() {
        assert!(parse("word | a.rs | x | 1 |").is_err());
        assert!(parse("word | a.rs | x").is_err());
    }
}
