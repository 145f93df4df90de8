//! Which crate of ours may depend on which.
//!
//! The table is the style guide's section 2: `millpond → proxy → cache → {store, semantics}`,
//! `proxy → {semantics, conf}`, `cache → conf`, `store → conf`; and `millpond → gauge`, which is
//! the same tool as the program of that name. What stands above another crate may
//! also use what stands below that one. Tools and tests are judged too; only `dev-dependencies`
//! may name the test kit.
//!
//! Manifests are read line by line, which is enough for the two forms in use here:
//! `name.workspace = true` and `name = { … }`.

use super::Finding;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Crate and what it may depend on.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("conf", &["conf-derive"]),
    ("conf-derive", &[]),
    ("semantics", &[]),
    ("store", &["conf"]),
    ("cache", &["store", "semantics", "conf"]),
    ("proxy", &["cache", "store", "semantics", "conf"]),
    (
        "millpond",
        &["proxy", "cache", "store", "semantics", "conf", "gauge"],
    ),
    ("gauge", &[]),
    ("testkit", &[]),
];

/// Checks the manifests of all crates below `crates/`.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    let mut dirs: Vec<_> = fs::read_dir(root.join("crates"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.file_name()))
        .collect();
    dirs.sort();
    for dir in dirs {
        let name = dir.to_string_lossy();
        let path = Path::new("crates").join(&dir).join("Cargo.toml");
        let Ok(text) = fs::read_to_string(root.join(&path)) else {
            continue;
        };
        let allowed = MAY_IMPORT
            .iter()
            .find(|(krate, _)| *krate == name)
            .map(|(_, allowed)| *allowed)
            .with_context(|| format!("crates/{name} is not in xtask/src/tidy/imports.rs"))?;
        check_manifest(&path, &text, allowed, findings);
    }
    Ok(())
}

fn check_manifest(path: &Path, text: &str, allowed: &[&str], findings: &mut Vec<Finding>) {
    let mut section = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            section = rest.trim_end_matches(']');
            continue;
        }
        if !section.ends_with("dependencies") {
            continue;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or("");
        let Some(ours) = name.strip_prefix("millpond-") else {
            continue;
        };
        let may = allowed.contains(&ours) || (section == "dev-dependencies" && ours == "testkit");
        if !may {
            findings.push(Finding {
                rule: "import",
                path: path.to_path_buf(),
                line: index + 1,
                item: name.to_string(),
                measure: 1,
                message: format!("{name} may not be used here (style guide, section 2)"),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_may_import_only_what_stands_below_it() {
        for (text, expected) in [
            ("[dependencies]\nmillpond-conf.workspace = true\n", 0),
            ("[dependencies]\nmillpond-proxy = { path = \"x\" }\n", 1),
            ("[dependencies]\nmillpond-testkit.workspace = true\n", 1),
            ("[dev-dependencies]\nmillpond-testkit.workspace = true\n", 0),
            ("[lints]\nmillpond-proxy = true\n", 0),
        ] {
            let mut findings = Vec::new();
            check_manifest(Path::new("x/Cargo.toml"), text, &["conf"], &mut findings);
            assert_eq!(findings.len(), expected, "{text}");
        }
    }
}
