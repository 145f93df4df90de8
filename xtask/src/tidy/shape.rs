//! The shape of functions: nesting, arguments, type parameters, `bool` parameters.
//!
//! A tuple among the arguments counts as its members, behind references and aliases of patterns
//! too, so that a tuple is no way to stay under the limit. Nesting is counted in what branches,
//! loops or runs later: `if`, `match`, loops, closures and blocks; an arm of a `match` and an
//! `else if` add nothing to what they belong to. The signature of a trait's method is counted where
//! the trait is, not where it is implemented.
//!
//! Does not look into macros: what stands in `select!` is not parsed.

use super::Finding;
use super::source::SourceFile;
use syn::visit::Visit;

const ARGUMENTS: usize = 5;
const NESTING: usize = 4;
const TYPE_PARAMETERS: usize = 3;

/// Checks all functions of one file.
pub(crate) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    let mut functions = Functions {
        file,
        findings,
        is_dictated: false,
    };
    functions.visit_file(&file.syntax);
}

struct Functions<'a> {
    file: &'a SourceFile,
    findings: &'a mut Vec<Finding>,
    /// True in the implementation of a trait, whose signatures are the trait's.
    is_dictated: bool,
}

impl Functions<'_> {
    fn check(&mut self, signature: &syn::Signature, block: Option<&syn::Block>) {
        let name = signature.ident.to_string();
        if let Some(block) = block {
            self.hold(signature, "nesting", depth_of(block), NESTING);
        }
        if self.is_dictated {
            return;
        }
        let typed = || signature.inputs.iter().filter_map(typed);
        let arguments = typed().map(members).sum();
        self.hold(signature, "arguments", arguments, ARGUMENTS);
        let types = signature.generics.type_params().count();
        self.hold(signature, "type-parameters", types, TYPE_PARAMETERS);
        for argument in typed().filter(|argument| is_bool(&argument.ty)) {
            let line = syn::spanned::Spanned::span(argument).start().line;
            let message =
                format!("fn {name} takes a `bool`: an enum of two names reads at the call");
            self.push("bool-parameter", line, &name, message);
        }
    }

    fn hold(&mut self, of: &syn::Signature, rule: &'static str, measure: usize, most: usize) {
        if measure > most {
            let name = of.ident.to_string();
            let what = match rule {
                "nesting" => "levels of nesting".to_owned(),
                rule => rule.replace('-', " "),
            };
            let message = format!("fn {name} has {measure} {what}, at most {most}");
            self.push(rule, of.ident.span().start().line, &name, message);
        }
    }

    fn push(&mut self, rule: &'static str, line: usize, name: &str, message: String) {
        self.findings.push(Finding {
            rule,
            path: self.file.path.clone(),
            line,
            item: name.to_owned(),
            measure: 1,
            message,
        });
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let outer = std::mem::replace(&mut self.is_dictated, item.trait_.is_some());
        syn::visit::visit_item_impl(self, item);
        self.is_dictated = outer;
    }

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

fn typed(input: &syn::FnArg) -> Option<&syn::PatType> {
    match input {
        syn::FnArg::Typed(argument) => Some(argument),
        _ => None,
    }
}

/// The number of values that an argument brings: the members of a tuple, or one.
fn members(argument: &syn::PatType) -> usize {
    let of_pattern = match &*argument.pat {
        syn::Pat::Tuple(tuple) => tuple.elems.len(),
        _ => 1,
    };
    of_pattern.max(members_of_type(&argument.ty))
}

fn members_of_type(ty: &syn::Type) -> usize {
    match ty {
        syn::Type::Tuple(tuple) => tuple
            .elems
            .iter()
            .map(members_of_type)
            .sum::<usize>()
            .max(1),
        syn::Type::Reference(reference) => members_of_type(&reference.elem),
        syn::Type::Paren(paren) => members_of_type(&paren.elem),
        _ => 1,
    }
}

fn is_bool(ty: &syn::Type) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.is_ident("bool"))
}

/// The deepest nesting in a body, which itself is at 0.
fn depth_of(block: &syn::Block) -> usize {
    let mut depth = Depth::default();
    depth.visit_block(block);
    depth.deepest
}

#[derive(Default)]
struct Depth {
    present: usize,
    deepest: usize,
}

impl Depth {
    fn within(&mut self, visit: impl FnOnce(&mut Self)) {
        self.present += 1;
        self.deepest = self.deepest.max(self.present);
        visit(self);
        self.present -= 1;
    }

    fn visit_if(&mut self, branch: &syn::ExprIf) {
        self.visit_expr(&branch.cond);
        self.within(|depth| depth.visit_block(&branch.then_branch));
        match branch.else_branch.as_ref().map(|(_, branch)| &**branch) {
            Some(syn::Expr::If(next)) => self.visit_if(next),
            Some(syn::Expr::Block(last)) => self.within(|depth| depth.visit_block(&last.block)),
            _ => {}
        }
    }

    fn visit_body(&mut self, body: &syn::Expr) {
        match body {
            syn::Expr::Block(body) => self.visit_block(&body.block),
            body => self.visit_expr(body),
        }
    }
}

impl<'ast> Visit<'ast> for Depth {
    fn visit_expr(&mut self, expression: &'ast syn::Expr) {
        match expression {
            syn::Expr::If(branch) => self.visit_if(branch),
            syn::Expr::Match(table) => {
                self.visit_expr(&table.expr);
                self.within(|depth| {
                    for arm in &table.arms {
                        depth.visit_body(&arm.body);
                    }
                });
            }
            syn::Expr::Closure(closure) if !matches!(*closure.body, syn::Expr::Block(_)) => {
                self.visit_expr(&closure.body);
            }
            syn::Expr::Closure(closure) => self.within(|depth| depth.visit_body(&closure.body)),
            syn::Expr::ForLoop(_)
            | syn::Expr::While(_)
            | syn::Expr::Loop(_)
            | syn::Expr::Async(_)
            | syn::Expr::Unsafe(_)
            | syn::Expr::Block(_) => {
                self.within(|depth| syn::visit::visit_expr(depth, expression));
            }
            _ => syn::visit::visit_expr(self, expression),
        }
    }

    /// Functions in functions have a depth of their own.
    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn rules(text: &str) -> Vec<&'static str> {
        let path = Path::new("crates/store/src/zone.rs");
        let file = SourceFile::parse(path, text.to_owned()).unwrap();
        let mut findings = Vec::new();
        check(&file, &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn members_of_tuples_are_arguments_and_the_receiver_is_none() {
        for (inputs, is_found) in [
            ("&self, b: u8, c: u8, d: u8, e: u8, f: u8", false),
            ("b: u8, c: u8, d: u8, e: u8, f: u8, g: u8", true),
            ("b: u8, c: u8, (d, e): (u8, u8), f: u8", false),
            ("b: u8, c: u8, (d, e): (u8, u8), f: u8, g: u8", true),
            ("b: u8, c: u8, d: &(u8, (u8, u8)), e: u8", true),
            ("b: u8, (c, d, e, f, g): Five", true),
            ("b: u8, c: (), d: u8, e: u8, f: u8", false),
        ] {
            let expected: &[&str] = if is_found { &["arguments"] } else { &[] };
            assert_eq!(
                rules(&format!("trait T {{ fn a({inputs}); }}")),
                expected,
                "{inputs}"
            );
            assert_eq!(
                rules(&format!("impl T {{ fn a({inputs}) {{}} }}")),
                expected,
                "{inputs}"
            );
        }
    }

    #[test]
    fn nesting_counts_what_branches_loops_or_runs_later() {
        for (body, depth) in [
            ("b(); c(|d| e(d));", 0),
            ("if b { c() } else if d { e() } else { f() }", 1),
            ("match b { 1 => { c(); d() } _ => if e { f() } }", 2),
            ("for b in c { while d { loop { if e { f() } } } }", 4),
            ("for b in c { d(|e| { if f { g() } }) }", 3),
            ("let Some(b) = c else { if d { e() } };", 2),
            ("async { fn inner() { if b { if c { d() } } } }", 1),
        ] {
            let block = syn::parse_str(&format!("{{ {body} }}")).unwrap();
            assert_eq!(depth_of(&block), depth, "{body}");
        }
        let five = "for b in c { while d { loop { if e { if f { g() } } } } }";
        assert_eq!(rules(&format!("fn a() {{ {five} }}")), ["nesting"]);
    }

    #[test]
    fn many_type_parameters_and_bools_are_found() {
        assert!(rules("fn a<'a, B, C, D, const E: usize>() {}").is_empty());
        assert_eq!(rules("fn a<B, C, D, E>() {}"), ["type-parameters"]);
        assert!(rules("fn a(b: &mut bool, c: Option<bool>) -> bool { d }").is_empty());
        assert_eq!(rules("fn a(b: u8, c: bool) {}"), ["bool-parameter"]);
        assert!(rules("impl From<bool> for A { fn from(b: bool) -> A { A } }").is_empty());
    }
}
