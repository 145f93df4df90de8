//! Names of files, and the module doc that every file begins with.
//!
//! Files are named by role, so the names that say nothing are forbidden. A module doc has 3 to 40
//! lines in shipped code and at least one line elsewhere.

use super::Finding;
use super::source::{Kind, SourceFile};

const FORBIDDEN: &[&str] = &[
    "util", "utils", "common", "misc", "types", "helpers", "helper",
];
const LEAST_DOC_LINES: usize = 3;
const MOST_DOC_LINES: usize = 40;

/// Checks the name and the module doc of one file.
pub(crate) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    let mut push = |rule, measure, message| {
        findings.push(Finding {
            rule,
            path: file.path.clone(),
            line: 1,
            item: "file".to_string(),
            measure,
            message,
        });
    };
    for part in file.path.iter() {
        let part = part.to_string_lossy();
        let stem = part.strip_suffix(".rs").unwrap_or(&part);
        if FORBIDDEN.contains(&stem) {
            push(
                "file-name",
                1,
                format!("`{stem}` names no role: say what is in it"),
            );
        }
    }
    let lines = doc_lines(&file.text);
    let least = match file.kind() {
        Kind::Shipped => LEAST_DOC_LINES,
        Kind::Support => 1,
    };
    if lines < least {
        let message = format!("module doc of {lines} lines, at least {least}");
        push("module-doc", 1, message);
    } else if lines > MOST_DOC_LINES {
        let message = format!("module doc of {lines} lines, at most {MOST_DOC_LINES}");
        push("module-doc", lines, message);
    }
}

/// The number of lines of `//!` that a file begins with.
fn doc_lines(text: &str) -> usize {
    text.lines()
        .take_while(|line| line.starts_with("//!"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn files_without_role_or_doc_are_found() {
        let doc = "//! A.\n//!\n//! B.\n";
        for (path, text, expected) in [
            ("crates/store/src/zone.rs", doc, vec![]),
            ("crates/store/src/util.rs", doc, vec!["file-name"]),
            ("crates/store/src/util/zone.rs", doc, vec!["file-name"]),
            ("crates/store/src/zone.rs", "//! A.\n", vec!["module-doc"]),
            ("tests/tests/proxy_cache_lock.rs", "//! A.\n", vec![]),
            ("tests/tests/proxy_cache_lock.rs", "", vec!["module-doc"]),
        ] {
            let file = SourceFile::parse(Path::new(path), text.to_string()).unwrap();
            let mut findings = Vec::new();
            check(&file, &mut findings);
            let rules: Vec<_> = findings.iter().map(|finding| finding.rule).collect();
            assert_eq!(rules, expected, "{path}");
        }
    }
}
