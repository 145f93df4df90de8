//! Sizes: lines of a function, lines of a file, columns of a line.
//!
//! The limits are those of the style guide (docs/style.md). A function whose body is one flat
//! `match` (or ends in one after a few lines) is a dispatch table and may be long, as may a `const`
//! table. Lines that hold a string, a link or a table of a comment may be wide, since breaking them
//! would make them harder to read or to search.
//!
//! Tests follow the same limits, except for the length of a file: one file per subject is kept.

use super::Finding;
use super::source::SourceFile;
use syn::spanned::Spanned;
use syn::visit::Visit;

const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 800;
const COLUMNS: usize = 100;
/// Lines of one arm for a `match` to count as flat.
const FLAT_ARM_LINES: usize = 4;
/// Lines that may stand before a flat `match`.
const FLAT_PRELUDE_LINES: usize = 6;

/// Checks the sizes of one file.
pub(crate) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    let lines = file.line_count();
    if !file.is_test() && lines > FILE_LINES {
        findings.push(Finding {
            rule: "file-lines",
            path: file.path.clone(),
            line: 1,
            item: "file".to_string(),
            measure: lines,
            message: format!("{lines} lines without tests, at most {FILE_LINES}: split by role"),
        });
    }
    for (index, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS && !may_be_wide(line) {
            findings.push(Finding {
                rule: "columns",
                path: file.path.clone(),
                line: index + 1,
                item: "line".to_string(),
                measure: columns,
                message: format!("{columns} columns, at most {COLUMNS}"),
            });
        }
    }
    Functions { file, findings }.visit_file(&file.syntax);
}

fn may_be_wide(line: &str) -> bool {
    let text = line.trim_start();
    let comment = text.trim_start_matches(['/', '!']).trim_start();
    text.contains('"')
        || line.contains("://")
        || (text.starts_with("//") && comment.starts_with('|'))
}

struct Functions<'a> {
    file: &'a SourceFile,
    findings: &'a mut Vec<Finding>,
}

impl Functions<'_> {
    fn check(&mut self, signature: &syn::Signature, block: Option<&syn::Block>) {
        let name = signature.ident.to_string();
        let line = signature.ident.span().start().line;
        let Some(block) = block else { return };
        let lines = lines_of(block).saturating_sub(2);
        if lines > FUNCTION_LINES && !is_dispatch(block) {
            self.push("function-lines", line, &name, lines, FUNCTION_LINES);
        }
    }

    fn push(&mut self, rule: &'static str, line: usize, name: &str, measure: usize, most: usize) {
        let what = rule.trim_start_matches("function-");
        self.findings.push(Finding {
            rule,
            path: self.file.path.clone(),
            line,
            item: name.to_string(),
            measure,
            message: format!("fn {name} has {measure} {what}, at most {most}"),
        });
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check(&item.sig, Some(&item.block));
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.sig, Some(&item.block));
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.check(&item.sig, item.default.as_ref());
        syn::visit::visit_trait_item_fn(self, item);
    }
}

fn lines_of(node: &impl Spanned) -> usize {
    let span = node.span();
    span.end().line + 1 - span.start().line
}

/// True if a body is a table: one `match` with short arms, with little before it.
fn is_dispatch(block: &syn::Block) -> bool {
    let Some((last, prelude)) = block.stmts.split_last() else {
        return false;
    };
    let before: usize = prelude.iter().map(lines_of).sum();
    let syn::Stmt::Expr(syn::Expr::Match(table), _) = last else {
        return false;
    };
    before <= FLAT_PRELUDE_LINES && table.arms.iter().all(|arm| lines_of(arm) <= FLAT_ARM_LINES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn rules(text: String) -> Vec<&'static str> {
        let path = Path::new("crates/store/src/zone.rs");
        let file = SourceFile::parse(path, text).unwrap();
        let mut findings = Vec::new();
        check(&file, &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn long_functions_are_found_but_tables_may_be_long() {
        let straight = format!("fn a() {{\n{}}}\n", "    b();\n".repeat(71));
        assert_eq!(rules(straight), ["function-lines"]);
        let fits = format!("fn a() {{\n{}}}\n", "    b();\n".repeat(70));
        assert!(rules(fits).is_empty());
        let arms = "        1 => 2,\n".repeat(80);
        assert!(rules(format!("fn a() {{\n    match b {{\n{arms}    }}\n}}\n")).is_empty());
    }

    #[test]
    fn wide_lines_are_found_unless_breaking_them_would_hurt() {
        let word = "a".repeat(101);
        for (text, wide) in [
            (format!("// {word}\n"), true),
            (format!("// | {word} |\n"), false),
            (format!("// https://{word}\n"), false),
            (format!("const A: &str = \"{word}\";\n"), false),
        ] {
            assert_eq!(!rules(text.clone()).is_empty(), wide, "{text}");
        }
    }
}
