//! Lines of the error log at `error` and above: the code against the tables of
//! `docs/operations.md`.
//!
//! ```text
//! functions that name a level ──► xtask/log-lines.txt: constant parts of lines ──► the manual
//! ```
//!
//! 1. Each function that names one of these levels has a line in the list, and no other has.
//! 2. Each part in the list stands in the code that users run and in the manual.
//!
//! Does not follow a level through variables: the list is about where it is named.

use crate::tally::Tally;
use crate::tidy::source::{self, Kind, SourceFile};
use crate::workspace;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use syn::spanned::Spanned;
use syn::visit::Visit;

const LIST: &str = "xtask/log-lines.txt";
const MANUAL: &str = "docs/operations.md";
/// Heading that the tables stand under.
const HEADING: &str = "## Lines of the error log";
/// Ends of paths that name a level.
const LEVELS: [&str; 4] = ["Error", "Crit", "Alert", "Emerg"];
/// Part of a place that writes no line.
const NOTHING: &str = "-";

/// Compares code, list and manual.
pub(crate) fn check() -> Result<Tally> {
    let root = workspace::root();
    let files = source::read_all(&root)?;
    let manual = fs::read_to_string(root.join(MANUAL))?;
    let faults = faults(&files, &fs::read_to_string(root.join(LIST))?, &manual);
    faults.iter().for_each(|fault| println!("{fault}"));
    Ok(Tally::from(faults.is_empty()))
}

fn faults(files: &[SourceFile], list: &str, manual: &str) -> Vec<String> {
    let shipped: Vec<&SourceFile> = files
        .iter()
        .filter(|file| file.kind() == Kind::Shipped && !file.is_test())
        .collect();
    let places: BTreeSet<String> = shipped.iter().flat_map(|file| places(file)).collect();
    let listed = listed(list);
    let tables = manual.split_once(HEADING).map_or("", |(_, tables)| tables);
    let mut faults = Vec::new();
    for place in places.iter().filter(|place| !listed.contains_key(*place)) {
        let how = format!("put its line into {MANUAL}, and the place into {LIST}");
        faults.push(format!("{place} writes to the error log: {how}"));
    }
    for place in listed.keys().filter(|place| !places.contains(*place)) {
        faults.push(format!("{LIST}: {place} names no level any more"));
    }
    // Quotes have a backslash in the code, and long texts go over several lines.
    let texts = shipped
        .iter()
        .map(|file| flat(&file.text).replace("\\\"", "\""));
    let code: Vec<String> = texts.collect();
    for (place, parts) in &listed {
        for part in parts.iter().filter(|part| *part != NOTHING) {
            if !tables.contains(part.trim()) {
                faults.push(format!("{MANUAL} has no line with \"{part}\" ({place})"));
            }
            if !code.iter().any(|text| text.contains(part.as_str())) {
                faults.push(format!("{LIST}: nothing writes \"{part}\" ({place})"));
            }
        }
    }
    faults
}

/// The parts of each place.
fn listed(list: &str) -> BTreeMap<String, Vec<String>> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once(": "));
    pairs
        .map(|(place, parts)| {
            let parts = parts.split(" | ").map(str::to_owned);
            (place.to_owned(), parts.collect())
        })
        .collect()
}

/// A text whose literals do not go over several lines.
fn flat(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match line.trim_end().strip_suffix('\\') {
            Some(start) => out.push_str(if out.ends_with(['\n', ' ']) {
                start.trim_start()
            } else {
                start
            }),
            None => {
                out.push_str(line.trim_start());
                out.push('\n');
            }
        }
    }
    out
}

/// Functions of a file that name a level, with the file's path.
fn places(file: &SourceFile) -> BTreeSet<String> {
    let mut finder = Finder {
        file,
        function: "?".to_owned(),
        found: BTreeSet::new(),
    };
    finder.visit_file(&file.syntax);
    finder.found
}

struct Finder<'a> {
    file: &'a SourceFile,
    /// The function that is being looked at; a constant has none.
    function: String,
    found: BTreeSet<String>,
}

impl Finder<'_> {
    fn within(&mut self, name: &syn::Ident, look: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.function, name.to_string());
        look(self);
        self.function = outer;
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.within(&item.sig.ident, |this| {
            syn::visit::visit_item_fn(this, item)
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within(&item.sig.ident, |this| {
            syn::visit::visit_impl_item_fn(this, item)
        });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        if let [.., kind, level] = names.as_slice()
            && kind == "Level"
            && LEVELS.contains(&level.as_str())
            && self.file.kind_at(path.span().start().line) == Kind::Shipped
        {
            let path = self.file.path.display();
            self.found.insert(format!("{path}::{}", self.function));
        }
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const CODE: &str = "
        fn one() { log(Level::Error, format_args!(\"it is \\\"gone\\\" and \\
            cold\")); }
        fn two() { log(Level::Warn, \"nothing\"); }
        #[cfg(test)] mod tests { fn three() { log(Level::Crit, \"\"); } }";

    fn faults_of(list: &str, manual: &str) -> Vec<String> {
        let path = Path::new("crates/x/src/a.rs");
        let file = SourceFile::parse(path, CODE.to_owned()).unwrap();
        faults(&[file], list, &format!("{HEADING}\n{manual}"))
    }

    #[test]
    fn code_list_and_manual_say_the_same() {
        let list = "# a word\ncrates/x/src/a.rs::one: is \"gone\" and cold\n";
        let manual = "| `it is \"gone\" and cold` |";
        assert_eq!(faults_of(list, manual), Vec::<String>::new());
        assert_eq!(faults_of(list, "").len(), 1);
        assert_eq!(faults_of("", manual).len(), 1);
        let more = format!("{list}crates/x/src/a.rs::two: nothing\n");
        assert_eq!(faults_of(&more, &format!("{manual} nothing")).len(), 1);
        let other = "crates/x/src/a.rs::one: is hot\n";
        assert_eq!(faults_of(other, "it is hot").len(), 1);
    }
}
