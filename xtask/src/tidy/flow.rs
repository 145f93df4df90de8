//! Statements that read badly: a chain that is broken by `let`s of one name, `match` on a `bool`.
//!
//! `let said = read(path)?; let said = said.trim();` says one thing in two statements whose names
//! tell nothing apart: the second is found when it stands directly behind the first and uses it. A
//! `match` whose patterns are `true` and `false` is an `if`.
//!
//! Does not look into macros.

use super::Finding;
use super::source::SourceFile;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Checks all statements of one file.
pub(crate) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    Statements { file, findings }.visit_file(&file.syntax);
}

struct Statements<'a> {
    file: &'a SourceFile,
    findings: &'a mut Vec<Finding>,
}

impl Statements<'_> {
    fn push(&mut self, rule: &'static str, line: usize, item: String, message: String) {
        self.findings.push(Finding {
            rule,
            path: self.file.path.clone(),
            line,
            item,
            measure: 1,
            message,
        });
    }
}

impl<'ast> Visit<'ast> for Statements<'_> {
    fn visit_block(&mut self, block: &'ast syn::Block) {
        for pair in block.stmts.windows(2) {
            let [first, second] = pair else { continue };
            let (Some((before, _)), Some((name, value))) = (binding(first), binding(second)) else {
                continue;
            };
            if before == name && mentions(value, name) {
                let message =
                    format!("`{name}` is bound anew to go on: write one chain, or two names");
                let line = second.span().start().line;
                self.push("same-let", line, name.to_string(), message);
            }
        }
        syn::visit::visit_block(self, block);
    }

    fn visit_expr_match(&mut self, table: &'ast syn::ExprMatch) {
        let is_bool = |arm: &syn::Arm| match &arm.pat {
            syn::Pat::Lit(pattern) => matches!(pattern.lit, syn::Lit::Bool(_)),
            _ => false,
        };
        if table.arms.iter().any(is_bool) {
            let line = table.span().start().line;
            let message = "`match` on a bool: write `if`".to_owned();
            self.push("match-bool", line, "match".to_owned(), message);
        }
        syn::visit::visit_expr_match(self, table);
    }
}

/// The name and the value of a `let` that binds one name.
fn binding(statement: &syn::Stmt) -> Option<(&syn::Ident, &syn::Expr)> {
    let syn::Stmt::Local(local) = statement else {
        return None;
    };
    let mut pattern = &local.pat;
    if let syn::Pat::Type(typed) = pattern {
        pattern = &typed.pat;
    }
    match (pattern, &local.init) {
        (syn::Pat::Ident(name), Some(init)) => Some((&name.ident, &init.expr)),
        _ => None,
    }
}

fn mentions(value: &syn::Expr, name: &syn::Ident) -> bool {
    let mut search = Search {
        name,
        is_found: false,
    };
    search.visit_expr(value);
    search.is_found
}

struct Search<'a> {
    name: &'a syn::Ident,
    is_found: bool,
}

impl<'ast> Visit<'ast> for Search<'_> {
    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        self.is_found |= path.path.is_ident(self.name);
    }

    /// Arguments of `format!` and its like are not parsed, so their tokens are searched.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let tokens = call.tokens.to_string();
        let mut words = tokens.split(|c: char| !c.is_alphanumeric() && c != '_');
        self.is_found |= words.any(|word| *self.name == word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn rules(body: &str) -> Vec<&'static str> {
        let path = Path::new("crates/store/src/zone.rs");
        let file = SourceFile::parse(path, format!("fn a() {{ {body} }}")).unwrap();
        let mut findings = Vec::new();
        check(&file, &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn chains_that_lets_of_one_name_break_are_found() {
        for (body, found) in [
            ("let b = c(); let b = b.trim();", 1),
            ("let b = c(); let b: &str = &b; let b = d(b);", 2),
            ("let b = c(); let b = format!(\"{b}\");", 1),
            ("let b = c(); let d = b.trim();", 0),
            ("let b = c(); let b = d();", 0),
            ("let b = c(); e(); let b = b.trim();", 0),
            ("let b = c(); let (b, d) = b.split();", 0),
        ] {
            assert_eq!(rules(body), vec!["same-let"; found], "{body}");
        }
    }

    #[test]
    fn matches_on_bools_are_found() {
        for (body, found) in [
            ("match b { true => c(), false => d() }", 1),
            (
                "let e = match b() { true => c(), _ => match d { false => f, true => g } };",
                2,
            ),
            ("match (b, c) { (true, false) => d(), _ => e() }", 0),
            ("match b { Some(true) => d(), _ => e() }", 0),
            ("if b { c() } else { d() }", 0),
        ] {
            assert_eq!(rules(body), vec!["match-bool"; found], "{body}");
        }
    }
}
