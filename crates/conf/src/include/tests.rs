//! Tests of `include`, with files in a directory for each test.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::load::{LoadOptions, load, load_text};
use crate::render::one_line;
use crate::tree::{Tree, print};

/// A directory with these files.
fn files(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().expect("a directory");
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("inside")).expect("created");
        fs::write(path, text).expect("written");
    }
    dir
}

/// Tree of `main.conf` in one line, its diagnostics with paths from the directory, and itself.
fn loaded(dir: &TempDir) -> (String, Vec<String>, Tree) {
    let mut diagnostics = Diagnostics::new();
    let main = dir.path().join("main.conf");
    let tree = load(&main, &LoadOptions::default(), &mut diagnostics);
    let printed = print(&tree.statements);
    let line = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let root = format!("{}/", dir.path().display());
    let lines = diagnostics
        .iter()
        .map(|it| one_line(it, &tree.sources).replace(&root, ""));
    (line, lines.collect(), tree)
}

#[test]
fn includes_are_replaced_in_any_block() {
    let dir = files(&[
        (
            "main.conf",
            "a; include b.conf; http { include sub/*.conf; z; }",
        ),
        ("b.conf", "b { include sub/1.conf; }"),
        ("sub/2.conf", "two;"),
        ("sub/1.conf", "one;"),
        ("sub/.3.conf", "hidden;"),
        ("sub/4.txt", "other;"),
    ]);
    let (statements, messages, tree) = loaded(&dir);
    assert_eq!(statements, "a; b { one; } http { one; two; z; }");
    assert_eq!(messages, [""; 0]);
    let names = tree
        .sources
        .files()
        .map(|file| file.path().file_name().expect("a name"));
    let names: Vec<_> = names.collect();
    assert_eq!(names, ["main.conf", "b.conf", "1.conf", "2.conf"]);
}

#[test]
fn patterns_reach_over_directories_and_may_match_nothing() {
    let dir = files(&[
        (
            "main.conf",
            "include s*/[ab]?/x.conf; include none/*; include *.none;",
        ),
        ("s1/a1/x.conf", "one;"),
        ("s2/b1/x.conf", "two;"),
        ("s2/c1/x.conf", "three;"),
        ("s2/b2/y.conf", "four;"),
    ]);
    let (statements, messages, _) = loaded(&dir);
    assert_eq!(statements, "one; two;");
    assert_eq!(messages, [""; 0]);
}

#[test]
fn absolute_paths_are_taken_as_they_are() {
    let dir = files(&[("b.conf", "b;")]);
    let text = format!(
        "include {0}/b.conf; include {0}/*.conf;",
        dir.path().display()
    );
    fs::write(dir.path().join("main.conf"), "").expect("written");
    let mut diagnostics = Diagnostics::new();
    let options = LoadOptions::default();
    let tree = load_text("elsewhere/x.conf", text, &options, &mut diagnostics);
    assert_eq!(print(&tree.statements), "b;\nb;\n");
}

#[test]
fn mistakes_name_the_include() {
    let dir = files(&[
        (
            "main.conf",
            "include\n none.conf;\ninclude;\ninclude a b;\ninclude a { }\ninclude sub;",
        ),
        ("sub/x", ""),
    ]);
    let (statements, messages, _) = loaded(&dir);
    assert_eq!(statements, "");
    assert_eq!(
        messages,
        [
            "open() \"none.conf\" failed (2: No such file or directory) in main.conf:2",
            "invalid number of arguments in \"include\" directive in main.conf:3",
            "invalid number of arguments in \"include\" directive in main.conf:4",
            "directive \"include\" is not terminated by \";\" in main.conf:5",
            "read() \"sub\" failed (21: Is a directory) in main.conf:6",
        ]
    );
}

#[test]
fn mistakes_in_included_files_name_them() {
    let dir = files(&[
        ("main.conf", "a { include b.conf; } c;"),
        ("b.conf", "b;\n}"),
    ]);
    let (statements, messages, _) = loaded(&dir);
    assert_eq!(statements, "a { b; } c;");
    assert_eq!(messages, ["unexpected \"}\" in b.conf:2"]);
}

#[test]
fn circles_are_reported_once() {
    let dir = files(&[
        ("main.conf", "a; include b.conf;"),
        ("b.conf", "b;\ninclude main.conf; include b.conf;"),
    ]);
    let (statements, messages, _) = loaded(&dir);
    assert_eq!(statements, "a; b;");
    assert_eq!(
        messages,
        [
            "\"main.conf\" includes itself in b.conf:2",
            "\"b.conf\" includes itself in b.conf:2",
        ]
    );
}

#[test]
fn growth_by_inclusion_is_bounded() {
    let names: Vec<String> = (0..8).map(|level| format!("{level}.conf")).collect();
    let twelve = |level: usize| format!("include {}.conf;", level + 1).repeat(12);
    let texts: Vec<String> = (0..8).map(twelve).collect();
    let mut all: Vec<_> = names
        .iter()
        .zip(&texts)
        .map(|(name, text)| (&**name, &**text))
        .collect();
    all.push(("8.conf", "x;"));
    all.push(("main.conf", "include 0.conf;"));
    let dir = files(&all);
    let (_, messages, _) = loaded(&dir);
    assert_eq!(messages.len(), 1);
    assert!(messages[0].starts_with("more than 100000 files are included in "));
}

#[test]
fn depth_counts_over_files() {
    let blocks = "a {".repeat(DEPTH / 2 + 1);
    let closed = "}".repeat(DEPTH / 2 + 1);
    let main = format!("{blocks} include b.conf; {closed}");
    let dir = files(&[
        ("main.conf", &main),
        ("b.conf", &format!("{blocks}{closed}")),
    ]);
    let (_, messages, _) = loaded(&dir);
    assert_eq!(
        messages,
        ["blocks are nested more than 100 deep in b.conf:1"]
    );
}

#[test]
fn globals_come_first_and_are_no_file() {
    let mut diagnostics = Diagnostics::new();
    let options = LoadOptions {
        files: Default::default(),
        globals: Some("daemon off; pid".into()),
        ..LoadOptions::default()
    };
    let tree = load_text("x.conf", "a;", &options, &mut diagnostics);
    assert_eq!(print(&tree.statements), "daemon off;\na;\n");
    assert_eq!(tree.sources.files().count(), 1);
    let lines: Vec<_> = diagnostics
        .iter()
        .map(|it| one_line(it, &tree.sources))
        .collect();
    let expected = "unexpected end of parameter, expecting \";\" in command line";
    assert_eq!(lines, [expected]);
}

#[test]
fn missing_main_file_is_reported_without_a_place() {
    let mut diagnostics = Diagnostics::new();
    let options = LoadOptions::default();
    let tree = load(Path::new("/none/x.conf"), &options, &mut diagnostics);
    let lines: Vec<_> = diagnostics
        .iter()
        .map(|it| one_line(it, &tree.sources))
        .collect();
    let expected = "open() \"/none/x.conf\" failed (2: No such file or directory)";
    assert_eq!(lines, [expected]);
}
