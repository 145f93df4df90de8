//! Tests of the lexer. The texts and their words are what nginx 1.22.1 makes of them: its message
//! about an unknown directive shows the first word.

use super::*;

/// The tokens of a text in a short form, and the messages.
fn lexed(text: impl AsRef<[u8]>) -> (Vec<String>, Vec<String>) {
    let mut diagnostics = Diagnostics::new();
    let mut lexer = Lexer::new(FileId(0), text.as_ref());
    let mut out = Vec::new();
    loop {
        out.push(match lexer.next(&mut diagnostics) {
            Token::Word(word) if word.quoted => format!("<{}>", word.text),
            Token::Word(word) => word.text,
            Token::Semicolon(_) => ";".into(),
            Token::Open(_) => "{".into(),
            Token::Close(_) => "}".into(),
            Token::End(_) => break,
            Token::EndInWord(_) => {
                out.push("end in word".into());
                break;
            }
            Token::Stop => {
                out.push("stop".into());
                break;
            }
        });
    }
    let messages = diagnostics.iter().map(|it| it.message.clone()).collect();
    (out, messages)
}

#[test]
fn words_end_where_nginx_ends_them() {
    let cases: &[(&str, &[&str])] = &[
        ("a b;", &["a", "b", ";"]),
        ("a\t\r\nb{}", &["a", "b", "{", "}"]),
        ("a#b;#c", &["a#b", ";"]),
        ("a #b;\n c;", &["a", "c", ";"]),
        ("abc}d;", &["abc}d", ";"]),
        ("a\"b'c;", &["a\"b'c", ";"]),
        ("a\\ b;", &["a\\ b", ";"]),
        ("a\\;b\\{c;", &["a\\;b\\{c", ";"]),
        ("\\\"abc;", &["\"abc", ";"]),
        ("a\\tb\\x\\\\;", &["a\tb\\x\\", ";"]),
        ("\"a b\" 'c;d';", &["<a b>", "<c;d>", ";"]),
        ("\"a\\\"b'\";", &["<a\"b'>", ";"]),
        ("\"a\nb\";", &["<a\nb>", ";"]),
        ("\"\" '';", &["<>", "<>", ";"]),
        ("\"a\"{\"b\";", &["<a>", "{", "<b>", ";"]),
        ("\"a\")b;", &["<a>", ")b", ";"]),
        ("${a} b${c}d;", &["${a}", "b${c}d", ";"]),
        ("$a{b};", &["$a", "{", "b}", ";"]),
        ("${{b;", &["${{b", ";"]),
        ("a$\\{b;", &["a$\\{b", ";"]),
        ("$ {;", &["$", "{", ";"]),
        (
            "~.mp4(?.*)?$  disk_cache;",
            &["~.mp4(?.*)?$", "disk_cache", ";"],
        ),
        ("if ($a = \"b\") {", &["if", "($a", "=", "<b>", ")", "{"]),
    ];
    for (text, expected) in cases {
        let (tokens, messages) = lexed(text);
        assert_eq!(tokens, *expected, "{text}");
        assert_eq!(messages, [""; 0], "{text}");
    }
}

#[test]
fn text_may_end_inside_a_word() {
    for text in ["abc", "\"abc", "'a;", "a\\", "\"a\\", "${a"] {
        assert_eq!(lexed(text).0, ["end in word"], "{text}");
    }
    assert_eq!(lexed("\"abc\"").0, ["<abc>"]);
}

#[test]
fn separator_must_follow_a_closing_quote() {
    for (text, message) in [
        ("\"a\"b;", "unexpected \"b\""),
        ("'a'\"b\";", "unexpected \"\"\""),
        ("\"a\"#;", "unexpected \"#\""),
        ("\"a\"ü;", "unexpected \"ü\""),
    ] {
        assert_eq!(lexed(text).1, [message], "{text}");
    }
}

#[test]
fn words_fit_in_the_buffer_with_their_end() {
    let long = |len: usize| "a".repeat(len);
    for (text, tokens) in [
        (long(4095) + ";", 2),
        (long(4095) + " ", 1),
        (format!("\"{}\";", long(4094)), 2),
        (format!("#{}\na;", long(9000)), 2),
    ] {
        let (found, messages) = lexed(&text);
        assert_eq!(
            (found.len(), messages.len()),
            (tokens, 0),
            "{} bytes",
            text.len()
        );
    }
    let bare = "too long parameter \"aaaaaaaaaa...\" started";
    let quoted = "too long parameter, probably missing terminating \"'\" character";
    for (text, message) in [
        (long(4096) + ";", bare),
        (long(9000), bare),
        (format!("\"{}\";", long(4095)), bare),
        (format!("'{}';", long(4096)), quoted),
    ] {
        assert_eq!(lexed(&text).1, [message], "{} bytes", text.len());
    }
    assert_eq!(lexed(long(4096)).0, ["end in word"]);
}

#[test]
fn only_comments_may_be_other_than_utf8() {
    assert_eq!(lexed(b"# \xff\na;").1, [""; 0]);
    let (tokens, messages) = lexed(b"a\xffb;");
    assert_eq!(tokens, ["a\u{fffd}b", ";"]);
    assert_eq!(messages, ["invalid UTF-8 in a word"]);
}
