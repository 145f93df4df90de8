//! Tests of the parser: what becomes of right and of wrong texts.

use proptest::prelude::*;

use super::*;
use crate::tree::print;

/// Statements of one text. What is wrong goes to `diagnostics`.
fn parse(
    file: FileId,
    kind: SourceKind,
    bytes: &[u8],
    diagnostics: &mut Diagnostics,
) -> Vec<Statement> {
    parse_within(file, kind, bytes, &mut Budget::default(), diagnostics)
}

/// The statements printed in one line, and the messages.
fn parsed(text: &str) -> (String, Vec<String>) {
    parsed_as(SourceKind::File, text)
}

fn parsed_as(kind: SourceKind, text: &str) -> (String, Vec<String>) {
    let mut diagnostics = Diagnostics::new();
    let statements = parse(FileId(0), kind, text.as_bytes(), &mut diagnostics);
    let printed = print(&statements);
    let line = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let messages = diagnostics.iter().map(|it| it.message.clone()).collect();
    (line, messages)
}

#[test]
fn statements_have_names_arguments_and_blocks() {
    for (text, expected) in [
        ("", ""),
        ("# nothing", ""),
        ("a;b  c 'd';", "a; b c \"d\";"),
        ("a{}", "a { }"),
        ("a b{c{d;}e;}f;", "a b { c { d; } e; } f;"),
        (
            "map $u $c{~.mp4(?.*)?$  disk; default ssd;}",
            "map $u $c { ~.mp4(?.*)?$ disk; default ssd; }",
        ),
    ] {
        assert_eq!(parsed(text), (expected.to_owned(), vec![]), "{text}");
    }
}

#[test]
fn mistakes_are_worded_as_in_nginx_and_reading_goes_on() {
    let end = "unexpected end of file, expecting \";\" or \"}\"";
    let open = "unexpected end of file, expecting \"}\"";
    let cases: &[(&str, &str, &[&str])] = &[
        ("a; }b;", "a; b;", &["unexpected \"}\""]),
        ("a { b } c;", "a { b; } c;", &["unexpected \"}\""]),
        ("; a;", "a;", &["unexpected \";\""]),
        ("a;; b;", "a; b;", &["unexpected \";\""]),
        ("{ x; } b;", "b;", &["unexpected \"{\""]),
        ("a { b { c;", "a { b { c; } }", &[open]),
        ("a { b", "a { }", &[end]),
        ("a { b c", "a { }", &[end]),
        ("a \"b", "", &[end]),
        (
            "a \"b\"}",
            "a \"b\";",
            &["unexpected \"}\"", "unexpected \"}\""],
        ),
        ("a \"b\"c d;", "a \"b\" d;", &["unexpected \"c\""]),
        ("a", "", &[end]),
        ("a \"b\"", "a \"b\";", &[end]),
        (
            "a } } ; b;",
            "a; b;",
            &[
                "unexpected \"}\"",
                "unexpected \"}\"",
                "unexpected \"}\"",
                "unexpected \";\"",
            ],
        ),
    ];
    for (text, statements, messages) in cases {
        let (found, said) = parsed(text);
        assert_eq!(found, *statements, "{text}");
        assert_eq!(said, *messages, "{text}");
    }
}

#[test]
fn command_line_has_no_blocks() {
    for (text, message) in [
        ("a", "unexpected end of parameter, expecting \";\""),
        ("a { }", "block directives are not supported in -g option"),
        ("}", "unexpected \"}\""),
    ] {
        let (_, messages) = parsed_as(SourceKind::CommandLine, text);
        assert_eq!(messages, [message], "{text}");
    }
    assert_eq!(parsed_as(SourceKind::CommandLine, "a b;").0, "a b;");
}

#[test]
fn nesting_is_bounded() {
    let (_, messages) = parsed(&"a {".repeat(DEPTH + 1));
    assert_eq!(
        messages.first().map(String::as_str),
        Some("blocks are nested more than 100 deep")
    );
    let text = "a {".repeat(DEPTH) + &"}".repeat(DEPTH);
    assert_eq!(parsed(&text).1, [""; 0]);
}

#[test]
fn spans_cover_what_was_written() {
    let text = "ab 'c d' e {f;}";
    let mut diagnostics = Diagnostics::new();
    let statements = parse(
        FileId(7),
        SourceKind::File,
        text.as_bytes(),
        &mut diagnostics,
    );
    let at = |span: Span| &text[span.start as usize..span.end as usize];
    let first = &statements[0];
    assert_eq!(
        (at(first.span), at(first.args[0].span)),
        ("ab 'c d' e", "'c d'")
    );
    let inner = first.body.as_ref().map(|body| body[0].span);
    assert_eq!(inner.map(at), Some("f"));
    assert_eq!(first.span.file, FileId(7));
}

/// Takes the places away, which differ between two writings of one tree.
fn without_places(statements: &mut [Statement]) {
    for statement in statements {
        statement.span = Span::NONE;
        statement.name.span = Span::NONE;
        statement
            .args
            .iter_mut()
            .for_each(|word| word.span = Span::NONE);
        without_places(statement.body.as_deref_mut().unwrap_or_default());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut diagnostics = Diagnostics::new();
        parse(FileId(0), SourceKind::File, &bytes, &mut diagnostics);
    }

    #[test]
    fn printed_tree_reads_back_as_itself(text in r#"([ab;{}"'\\$#\n\t )rtnü]|\$\{|x y;|"z"){0,40}"#) {
        let mut diagnostics = Diagnostics::new();
        let mut tree = parse(FileId(0), SourceKind::File, text.as_bytes(), &mut diagnostics);
        let printed = print(&tree);
        let mut diagnostics = Diagnostics::new();
        let mut again = parse(FileId(0), SourceKind::File, printed.as_bytes(), &mut diagnostics);
        prop_assert!(diagnostics.is_empty(), "{printed}: {diagnostics:?}");
        without_places(&mut tree);
        without_places(&mut again);
        prop_assert_eq!(tree, again, "{}", printed);
    }
}

#[test]
fn statements_are_counted_over_all_texts() {
    let mut diagnostics = Diagnostics::new();
    let mut budget = Budget::of(5);
    let mut read = |text: &str, diagnostics: &mut Diagnostics| {
        parse_within(
            FileId(0),
            SourceKind::File,
            text.as_bytes(),
            &mut budget,
            diagnostics,
        )
        .len()
    };
    assert_eq!(read("a; b { c; }", &mut diagnostics), 2);
    assert!(!diagnostics.has_errors());
    assert_eq!(read("d; e; f; g; h;", &mut diagnostics), 3);
    let messages: Vec<_> = diagnostics.iter().map(|it| it.message.clone()).collect();
    assert_eq!(messages, ["more than 4000000 directives"]);
}
