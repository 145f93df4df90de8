//! Dependencies among our crates, as their manifests say.
//!
//! Manifests are read line by line, which is enough for the two forms in use here:
//! `name.workspace = true` and `name = { … }`. `dev-dependencies` count too, but for the test kit,
//! which is only for them.

use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The crates below `crates/`, by the names of their folders, and what each depends on.
pub(crate) fn read(root: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut crates = BTreeMap::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let dir = entry?.path();
        let Ok(text) = fs::read_to_string(dir.join("Cargo.toml")) else {
            continue;
        };
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        crates.insert(name.into_owned(), imports(&text));
    }
    Ok(crates)
}

fn imports(manifest: &str) -> BTreeSet<String> {
    let mut section = "";
    let mut imports = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix('[') {
            section = rest.trim_end_matches(']');
            continue;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        let ours = name.strip_prefix("millpond-");
        let is_for_tests = section == "dev-dependencies" && ours == Some("testkit");
        if let (true, false, Some(ours)) = (section.ends_with("dependencies"), is_for_tests, ours) {
            imports.insert(ours.to_owned());
        }
    }
    imports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_says_which_of_our_crates_it_needs() {
        for (text, expected) in [
            (
                "[dependencies]\nmillpond-conf.workspace = true\nbytes = \"1\"\n",
                vec!["conf"],
            ),
            (
                "[dependencies]\nmillpond-proxy = { path = \"x\" }\n",
                vec!["proxy"],
            ),
            (
                "[dependencies]\nmillpond-testkit.workspace = true\n",
                vec!["testkit"],
            ),
            (
                "[dev-dependencies]\nmillpond-testkit.workspace = true\n",
                vec![],
            ),
            (
                "[dev-dependencies]\nmillpond-conf.workspace = true\n",
                vec!["conf"],
            ),
            ("[lints]\nmillpond-proxy = true\n", vec![]),
        ] {
            let imports = imports(text);
            assert_eq!(imports.iter().collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
