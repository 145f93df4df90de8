//! The code map in `docs/architecture.md`: a line for each module, below the heading of its crate.
//!
//! A heading names the crate in backquotes (`crates/store`), a line is a row of a table that begins
//! with the module's name: "| `zone` | …". A module without a line is a finding, and so is a line
//! without a module, a second one, or one that says nothing.

use super::read::Crate;
use super::table::finding;
use crate::tidy::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The document, from the workspace's root.
pub(crate) const PATH: &str = "docs/architecture.md";

/// Compares the document's text with the modules of the crates.
pub(crate) fn check(text: &str, crates: &BTreeMap<String, Crate>, findings: &mut Vec<Finding>) {
    let mut krate = None;
    let mut named = BTreeSet::new();
    let mut push = |line, message| findings.push(finding(&(PathBuf::from(PATH), line), message));
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            krate = crates
                .keys()
                .find(|name| line.contains(&format!("`crates/{name}`")));
        }
        let (Some(krate), Some((module, what))) = (krate, row(line)) else {
            continue;
        };
        if !crates
            .get(krate)
            .is_some_and(|of| of.modules.contains_key(module))
        {
            push(
                index + 1,
                format!("{krate} has no module {module}: remove the line"),
            );
        } else if !named.insert((krate.clone(), module.to_owned())) {
            push(
                index + 1,
                format!("module {module} of {krate} has a second line"),
            );
        } else if what.len() < LEAST {
            push(
                index + 1,
                format!("the line says nothing of module {module}"),
            );
        }
    }
    for (krate, of) in crates {
        for module in of.modules.keys() {
            if !named.contains(&(krate.clone(), module.clone())) {
                push(
                    1,
                    format!("module {module} of {krate} has no line: say what it is"),
                );
            }
        }
    }
}

/// As few letters as can say something: arbitrary.
const LEAST: usize = 10;

/// The module that a row of a table names, and the rest of the row.
fn row(line: &str) -> Option<(&str, &str)> {
    let (module, what) = line.strip_prefix("| `")?.split_once("` |")?;
    Some((module, what.trim().trim_end_matches('|').trim()))
}

/// The document, read.
pub(crate) fn text(root: &Path) -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(root.join(PATH))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_has_one_line_below_its_crate() {
        let krate = |modules: &[&str]| Crate {
            modules: modules
                .iter()
                .map(|module| ((*module).to_owned(), 1))
                .collect(),
            arrows: BTreeMap::new(),
        };
        let crates = BTreeMap::from([
            ("store".to_owned(), krate(&["zone", "disk"])),
            ("cache".to_owned(), krate(&["zone"])),
        ]);
        let zone = "| `zone` | all that a cache asks of its store |\n";
        let store = format!("### `crates/store`\n{zone}| `disk` | one disk of a zone |\n");
        let cache = format!("### `crates/cache`\n{zone}");
        for (text, expected) in [
            (format!("{store}{cache}"), vec![]),
            (store.clone(), vec![(1, "zone of cache has no line")]),
            (
                format!("{store}{cache}{zone}"),
                vec![(6, "has a second line")],
            ),
            (
                format!("{cache}| `disk` | a disk of it |\n{store}"),
                vec![(3, "cache has no module disk")],
            ),
            (
                format!("{store}### `crates/cache`\n| `zone` | |\n"),
                vec![(5, "says nothing")],
            ),
            (
                format!("{store}{cache}## Beyond\n| `gone` | no module, but no crate either |\n"),
                vec![],
            ),
        ] {
            let mut findings = Vec::new();
            check(&text, &crates, &mut findings);
            assert_eq!(findings.len(), expected.len(), "{text}");
            for (finding, (line, part)) in findings.iter().zip(expected) {
                assert_eq!(finding.line, line, "{text}");
                assert!(finding.message.contains(part), "{finding}");
            }
        }
    }
}
