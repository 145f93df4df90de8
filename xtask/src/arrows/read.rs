//! Imports as the code has them: for each crate its modules and the arrows among them.
//!
//! A module is what stands directly below a crate's root: `crates/store/src/zone/set.rs` belongs to
//! `zone`. An arrow is a path that begins with `crate`, or with as many `super` as lead to the
//! root, wherever it stands: in `use`, in an expression, in a macro's arguments. A name that the
//! root re-exports belongs to the module that it comes from.
//!
//! 1. Test code makes no arrows: `#[cfg(test)]` items, modules that are declared so, test folders.
//!
//! Does not resolve names: a path that begins with an alias of a module is not seen.

use crate::tidy::source::SourceFile;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A place in the code.
pub(crate) type Place = (PathBuf, usize);

/// One crate's modules, and where each imports another.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    /// The modules directly below the root, with how many lines they have without tests.
    pub(crate) modules: BTreeMap<String, usize>,
    /// From which module to which, and every place where it is so.
    pub(crate) arrows: BTreeMap<(String, String), Vec<Place>>,
}

/// The root where something in it is named that comes from no module.
const ROOT: &str = "lib";

/// The crates below `crates/`, by the names of their folders.
pub(crate) fn read(files: &[SourceFile]) -> BTreeMap<String, Crate> {
    let sources: Vec<Source<'_>> = files.iter().filter_map(Source::of).collect();
    let mut roots = BTreeMap::<&str, Root>::new();
    for source in &sources {
        let root = roots.entry(source.krate).or_default();
        walk(&mut Declarations { source, root }, source);
    }
    let mut crates = BTreeMap::<String, Crate>::new();
    for source in &sources {
        let krate = crates.entry(source.krate.to_owned()).or_default();
        let Some(root) = roots.get(source.krate) else {
            continue;
        };
        let is_test = |at: &[String]| root.tests.iter().any(|test| at.starts_with(test));
        let [module, ..] = source.module.as_slice() else {
            continue;
        };
        if is_test(&source.module) {
            continue;
        }
        *krate.modules.entry(module.clone()).or_default() += source.file.line_count();
        walk(
            &mut Imports {
                source,
                root,
                krate,
            },
            source,
        );
    }
    crates
}

/// A file of a crate, and which module it is.
struct Source<'a> {
    file: &'a SourceFile,
    krate: &'a str,
    module: Vec<String>,
}

impl<'a> Source<'a> {
    fn of(file: &'a SourceFile) -> Option<Self> {
        let mut parts = file
            .path
            .iter()
            .map(|part| part.to_str().unwrap_or_default());
        let (Some("crates"), Some(krate), Some("src")) = (parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        if file.is_test() {
            return None;
        }
        let names = parts.map(|part| part.trim_end_matches(".rs").to_owned());
        let mut module: Vec<String> = names.collect();
        if matches!(
            module.last().map(String::as_str),
            Some("mod" | "lib" | "main")
        ) {
            module.pop();
        }
        Some(Source {
            file,
            krate,
            module,
        })
    }
}

/// The facts of a crate's root that its other files are read with.
#[derive(Debug, Default)]
struct Root {
    /// The modules that exist in tests only.
    tests: Vec<Vec<String>>,
    modules: BTreeSet<String>,
    /// The names that the root re-exports, and the modules that they come from.
    exports: BTreeMap<String, String>,
}

/// A reader of the tokens of a file outside of test code.
trait Visitor {
    /// A run of tokens that begins with `first`, in the module `at`.
    fn visit(&mut self, first: &str, line: usize, rest: &[TokenTree], at: &[String]);
    /// A module that is declared for tests only.
    fn visit_test(&mut self, _at: Vec<String>) {}
}

fn walk(visitor: &mut impl Visitor, source: &Source<'_>) {
    if let Ok(tokens) = source.file.text.parse::<TokenStream>() {
        walk_tokens(visitor, tokens, &mut source.module.clone());
    }
}

fn walk_tokens(visitor: &mut impl Visitor, tokens: TokenStream, at: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut rest = tokens.as_slice();
    let mut is_path = false;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let was_path = std::mem::replace(&mut is_path, is_punct(first, ':'));
        match first {
            TokenTree::Punct(punct) if punct.as_char() == '#' && is_cfg_test(tail) => {
                rest = after_item(tail, |name| {
                    visitor.visit_test([at.as_slice(), &[name]].concat());
                });
            }
            TokenTree::Ident(word) if *word == "mod" => {
                if let [TokenTree::Ident(name), TokenTree::Group(body), after @ ..] = tail {
                    at.push(name.to_string());
                    walk_tokens(visitor, body.stream(), at);
                    at.pop();
                    rest = after;
                }
                visitor.visit("mod", word.span().start().line, tail, at);
            }
            TokenTree::Ident(word) if !was_path => {
                visitor.visit(&word.to_string(), word.span().start().line, tail, at);
            }
            TokenTree::Group(group) => walk_tokens(visitor, group.stream(), at),
            _ => {}
        }
    }
}

/// True if an attribute's brackets say `cfg(test)`, alone or among others.
fn is_cfg_test(tokens: &[TokenTree]) -> bool {
    let Some(TokenTree::Group(brackets)) = tokens.first() else {
        return false;
    };
    let text = brackets.stream().to_string();
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.next() == Some("cfg") && words.any(|word| word == "test") && !text.contains("not")
}

/// The tokens behind the item that an attribute belongs to; `name_module` is told of a module
/// without a body.
fn after_item(tokens: &[TokenTree], name_module: impl FnOnce(String)) -> &[TokenTree] {
    const ITEMS: &[&str] = &[
        "async",
        "const",
        "enum",
        "extern",
        "fn",
        "impl",
        "let",
        "macro_rules",
        "mod",
        "static",
        "struct",
        "trait",
        "type",
        "union",
        "unsafe",
        "use",
    ];
    let mut rest = tokens.get(1..).unwrap_or_default();
    while let [hash, TokenTree::Group(_), tail @ ..] = rest {
        if !is_punct(hash, '#') {
            break;
        }
        rest = tail;
    }
    let mut words = rest.iter().filter_map(|token| match token {
        TokenTree::Ident(word) if *word != "pub" => Some(word.to_string()),
        _ => None,
    });
    let (first, second) = (words.next().unwrap_or_default(), words.next());
    let is_item = ITEMS.contains(&first.as_str());
    for (index, token) in rest.iter().enumerate() {
        let is_body =
            matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        let is_end = is_punct(token, ';')
            || (is_item && first != "use" && is_body)
            || (!is_item && is_punct(token, ','));
        if is_end {
            if first == "mod" && is_punct(token, ';') {
                name_module(second.unwrap_or_default());
            }
            return rest.get(index + 1..).unwrap_or_default();
        }
    }
    &[]
}

fn is_punct(token: &TokenTree, is: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == is)
}

/// The tokens behind `::`.
fn behind_colons(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    match tokens {
        [a, b, rest @ ..] if is_punct(a, ':') && is_punct(b, ':') => Some(rest),
        _ => None,
    }
}

/// The first words of the paths that begin here: one, or those of a group in braces.
fn first_words(tokens: &[TokenTree]) -> Vec<String> {
    match tokens.first() {
        Some(TokenTree::Ident(word)) => vec![word.to_string()],
        Some(TokenTree::Group(group)) => {
            let mut words = Vec::new();
            let mut is_first = true;
            for token in group.stream() {
                if let (true, TokenTree::Ident(word)) = (is_first, &token) {
                    words.push(word.to_string());
                }
                is_first = is_punct(&token, ',');
            }
            words
        }
        _ => Vec::new(),
    }
}

/// Reads what a crate's root declares, and which modules are for tests.
struct Declarations<'a, 's> {
    source: &'a Source<'s>,
    root: &'a mut Root,
}

impl Visitor for Declarations<'_, '_> {
    fn visit(&mut self, first: &str, _: usize, rest: &[TokenTree], at: &[String]) {
        let is_root = self.source.module.is_empty() && at.is_empty();
        match (is_root, first, rest) {
            (true, "mod", [TokenTree::Ident(name), ..]) => {
                self.root.modules.insert(name.to_string());
            }
            (true, "use", [TokenTree::Ident(module), rest @ ..]) => {
                let end = rest.iter().position(|token| is_punct(token, ';'));
                for token in rest.get(..end.unwrap_or(0)).unwrap_or_default() {
                    self.export(token, &module.to_string());
                }
            }
            _ => {}
        }
    }

    fn visit_test(&mut self, at: Vec<String>) {
        self.root.tests.push(at);
    }
}

impl Declarations<'_, '_> {
    fn export(&mut self, token: &TokenTree, module: &str) {
        match token {
            TokenTree::Ident(name) => {
                let exports = &mut self.root.exports;
                exports.insert(name.to_string(), module.to_owned());
            }
            TokenTree::Group(group) => {
                let tokens = group.stream().into_iter();
                tokens.for_each(|token| self.export(&token, module));
            }
            _ => {}
        }
    }
}

/// Reads the arrows of one file.
struct Imports<'a, 's> {
    source: &'a Source<'s>,
    root: &'a Root,
    krate: &'a mut Crate,
}

impl Visitor for Imports<'_, '_> {
    fn visit(&mut self, first: &str, line: usize, rest: &[TokenTree], at: &[String]) {
        let mut depth = match first {
            "crate" => 0,
            "super" => at.len().saturating_sub(1),
            _ => return,
        };
        let Some(mut rest) = behind_colons(rest) else {
            return;
        };
        while let [TokenTree::Ident(word), tail @ ..] = rest {
            match behind_colons(tail) {
                Some(tail) if *word == "super" => (depth, rest) = (depth.saturating_sub(1), tail),
                _ => break,
            }
        }
        if depth > 0 {
            return;
        }
        for word in first_words(rest) {
            self.push(&word, line);
        }
    }
}

impl Imports<'_, '_> {
    fn push(&mut self, word: &str, line: usize) {
        let Some(from) = self.source.module.first() else {
            return;
        };
        let to = match self.root.exports.get(word) {
            _ if self.root.modules.contains(word) => word,
            Some(module) if self.root.modules.contains(module) => module,
            _ => ROOT,
        };
        if to != from {
            let arrow = (from.clone(), to.to_owned());
            let place = (Path::to_path_buf(&self.source.file.path), line);
            self.krate.arrows.entry(arrow).or_default().push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let parse = |(path, text): &(&str, &str)| {
            SourceFile::parse(&Path::new("crates/a/src").join(path), (*text).to_owned()).unwrap()
        };
        let files: Vec<SourceFile> = files.iter().map(parse).collect();
        let crates = read(&files);
        let arrows = crates["a"].arrows.keys();
        arrows.map(|(from, to)| format!("{from} -> {to}")).collect()
    }

    #[test]
    fn paths_from_the_root_are_arrows_wherever_they_stand() {
        let root = "pub mod b; mod c; pub use c::{C, Other as D}; pub struct E;";
        for (path, text, expected) in [
            ("b.rs", "use crate::c::C;", vec!["b -> c"]),
            ("b.rs", "use crate::{c::C, E};", vec!["b -> c", "b -> lib"]),
            ("b.rs", "use super::c;", vec!["b -> c"]),
            ("b/mod.rs", "fn a() { super::c::d() }", vec!["b -> c"]),
            ("b/d.rs", "use super::c;", vec![]),
            ("b/d.rs", "use super::super::c;", vec!["b -> c"]),
            (
                "b.rs",
                "mod d { use super::c; use super::super::c::C; }",
                vec!["b -> c"],
            ),
            ("b.rs", "fn a() { m!(crate::c::d(e)); }", vec!["b -> c"]),
            ("b.rs", "use crate::C;", vec!["b -> c"]),
            ("b.rs", "use crate::D;", vec!["b -> c"]),
            ("b.rs", "use crate::b::D; use std::c::C;", vec![]),
            ("b.rs", "// crate::c\nconst A: &str = \"crate::c\";", vec![]),
            ("lib.rs", "use crate::c::C;", vec![]),
        ] {
            assert_eq!(
                arrows(&[("lib.rs", root), (path, text)]),
                expected,
                "{path}: {text}"
            );
        }
    }

    #[test]
    fn test_code_makes_no_arrows() {
        let root = "mod b; mod c;";
        for text in [
            "#[cfg(test)]\nmod tests { use crate::c; }",
            "#[cfg(test)]\nuse crate::{c::C, c::D};",
            "#[cfg(test)]\n#[allow(dead_code)]\npub(crate) fn d() { crate::c::e() }",
            "struct D { #[cfg(test)] e: crate::c::C, f: u8 }",
            "#[cfg(all(test, unix))]\nimpl D { fn e() { crate::c::f() } }",
        ] {
            assert!(
                arrows(&[("lib.rs", root), ("b.rs", text)]).is_empty(),
                "{text}"
            );
        }
        let declared = [("lib.rs", root), ("b.rs", "#[cfg(test)]\nmod d;")];
        let used = ("b/d.rs", "use crate::c::C;");
        assert!(arrows(&[declared[0], declared[1], used]).is_empty());
        let behind = "#[cfg(test)]\nmod d { }\nuse crate::c::C;";
        assert_eq!(arrows(&[("lib.rs", root), ("b.rs", behind)]), ["b -> c"]);
        let but_tests = "#[cfg(not(test))]\nuse crate::c::C;";
        assert_eq!(arrows(&[("lib.rs", root), ("b.rs", but_tests)]), ["b -> c"]);
    }
}
