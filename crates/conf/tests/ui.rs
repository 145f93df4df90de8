//! Messages that the operator sees: each `tests/ui/NAME.conf` is read and `NAME.stderr` has them.
//!
//! Set `UPDATE_UI=1` to write what is said now, and review the difference like code.

mod family;

use std::fs;
use std::path::{Path, PathBuf};

use millpond_conf::{Diagnostics, LoadOptions, ParseContext, Style, load};

/// All that is said about a configuration file.
fn said(path: &Path) -> String {
    let mut diagnostics = Diagnostics::new();
    let tree = load(path, &LoadOptions::default(), &mut diagnostics);
    let mut cx = ParseContext::new("/prefix", "/conf");
    cx.diagnostics = diagnostics;
    family::resolve(&tree.statements, &mut cx);
    cx.diagnostics.render(&tree.sources, Style::Plain)
}

#[test]
fn every_mistake_is_shown_as_written_down() {
    let update = std::env::var_os("UPDATE_UI").is_some();
    let entries = fs::read_dir("tests/ui").expect("the directory of the cases");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "conf")
    });
    paths.sort();
    assert!(paths.len() > 10, "the cases are missing");
    let mut different = Vec::new();
    for path in paths {
        let now = said(&path);
        let file = path.with_extension("stderr");
        if update {
            fs::write(&file, &now).expect("written");
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if now != expected {
            different.push(format!("{}:\n{now}", path.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn fancy_style_says_the_same_in_colours() {
    let path = Path::new("tests/ui/unknown_directive.conf");
    let mut diagnostics = Diagnostics::new();
    let tree = load(path, &LoadOptions::default(), &mut diagnostics);
    diagnostics
        .push_error(tree.statements[0].span, "a message")
        .label("a label");
    let text = diagnostics.render(&tree.sources, Style::Fancy);
    let first = text.lines().next().unwrap_or_default();
    let place = "tests/ui/unknown_directive.conf:1";
    assert_eq!(first, format!("millpond: [emerg] a message in {place}"));
    assert!(text.contains('╭') && text.contains("\u{1b}["), "{text}");
    assert!(text.contains("a label"), "{text}");
}

#[test]
fn long_lists_are_cut() {
    let mut diagnostics = Diagnostics::new();
    for _ in 0..millpond_conf::render::RENDERED + 5 {
        diagnostics.push_note(None, "again").help("one\ntwo");
    }
    let text = diagnostics.render(&millpond_conf::Sources::new(), Style::Plain);
    assert!(text.starts_with("millpond: [notice] again\n  help: one\n  help: two\n"));
    assert!(text.ends_with("and 5 more\n"));
}
