//! The Rust files of the workspace, read and parsed once for all rules.
//!
//! A file is `Shipped` (part of a crate that users run) or `Support` (tests, benches, examples,
//! and the crates that only serve development); some rules ask more of shipped code. Inside a
//! shipped file the lines of `#[cfg(test)]` modules count as support too.
//!
//! Does not look into `target` or hidden directories, and does not expand macros.

use anyhow::{Context, Result};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Directories that hold Rust files.
const ROOTS: &[&str] = &["crates", "xtask", "tests", "fuzz"];
/// Path prefixes of code that users never run.
const SUPPORT: &[&str] = &[
    "crates/testkit/",
    "crates/gauge/",
    "xtask/",
    "tests/",
    "fuzz/",
];

/// The purpose of a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Part of what users run.
    Shipped,
    /// Tests and tools of development.
    Support,
}

/// One Rust file.
pub(crate) struct SourceFile {
    /// Path from the workspace's root.
    pub(crate) path: PathBuf,
    /// The whole text.
    pub(crate) text: String,
    /// The parsed text.
    pub(crate) syntax: syn::File,
    kind: Kind,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl SourceFile {
    /// Parses `text` as the file at `path`.
    pub(crate) fn parse(path: &Path, text: String) -> Result<SourceFile> {
        let syntax = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let mut tests = TestModules::default();
        tests.visit_file(&syntax);
        Ok(SourceFile {
            path: path.to_path_buf(),
            text,
            syntax,
            kind: kind_of(path),
            test_lines: tests.lines,
        })
    }

    /// The purpose of the code at `line`.
    pub(crate) fn kind_at(&self, line: usize) -> Kind {
        if self.test_lines.iter().any(|lines| lines.contains(&line)) {
            Kind::Support
        } else {
            self.kind
        }
    }

    /// True if the whole file is test code, of whatever crate.
    pub(crate) fn is_test(&self) -> bool {
        is_test(&self.path)
    }

    /// The purpose of the file as a whole.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The number of lines outside of test modules.
    pub(crate) fn line_count(&self) -> usize {
        let in_tests: usize = self
            .test_lines
            .iter()
            .map(|lines| lines.end() + 1 - lines.start())
            .sum();
        self.text.lines().count().saturating_sub(in_tests)
    }
}

/// All Rust files below `root`, in the order of their paths.
pub(crate) fn read_all(root: &Path) -> Result<Vec<SourceFile>> {
    let mut paths = Vec::new();
    for dir in ROOTS {
        collect(&root.join(dir), &mut paths)?;
    }
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            SourceFile::parse(path.strip_prefix(root).unwrap_or(path), text)
        })
        .collect()
}

fn collect(dir: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, paths)?;
            }
        } else if name.ends_with(".rs") {
            paths.push(path);
        }
    }
    Ok(())
}

fn kind_of(path: &Path) -> Kind {
    let text = path.to_string_lossy();
    if is_test(path) || SUPPORT.iter().any(|prefix| text.starts_with(prefix)) {
        Kind::Support
    } else {
        Kind::Shipped
    }
}

fn is_test(path: &Path) -> bool {
    let is_folder = |part| {
        ["tests", "benches", "examples"]
            .iter()
            .any(|name| *name == part)
    };
    path.iter().any(is_folder) || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// Collects the line ranges of items under `#[cfg(test)]` or `#[test]`.
#[derive(Default)]
struct TestModules {
    lines: Vec<RangeInclusive<usize>>,
}

impl<'ast> Visit<'ast> for TestModules {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.attrs.iter().any(is_cfg_test) {
            let span = item.span();
            self.lines.push(span.start().line..=span.end().line);
        } else {
            syn::visit::visit_item_mod(self, item);
        }
    }
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    if !attribute.path().is_ident("cfg") {
        return false;
    }
    let Ok(list) = attribute.meta.require_list() else {
        return false;
    };
    list.tokens
        .to_string()
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| word == "test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_modules_are_support_code_and_do_not_count_as_lines() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        let path = Path::new("crates/store/src/zone.rs");
        let file = SourceFile::parse(path, text.to_string()).unwrap();
        assert_eq!(file.kind_at(1), Kind::Shipped);
        assert_eq!(file.kind_at(4), Kind::Support);
        assert_eq!(file.line_count(), 1);
    }

    #[test]
    fn paths_say_what_code_is_for() {
        for (path, kind) in [
            ("crates/store/src/zone.rs", Kind::Shipped),
            ("crates/store/src/zone/tests.rs", Kind::Support),
            ("crates/store/tests/model.rs", Kind::Support),
            ("crates/testkit/src/lib.rs", Kind::Support),
            ("xtask/src/main.rs", Kind::Support),
        ] {
            assert_eq!(kind_of(Path::new(path)), kind, "{path}");
        }
    }
}
