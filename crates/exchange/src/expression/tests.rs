//! Both engines: what they read alike, what they say, and what happens when one gives up.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn compile(source: &str, case: Case) -> Regex {
    Regex::new(source, case, |_| VarId(0)).unwrap()
}

fn is_linear(regex: &Regex) -> bool {
    matches!(regex.engine, Engine::Linear(_))
}

#[test]
fn what_engines_read_differently_goes_to_pcre() {
    for (source, expected) in [
        (r"^/a/(\d+)\.php$", true),
        (r"\.(gif|jpe?g|png)$", true),
        (r"^(?<user>[\w-]+)\.example\.com$", true),
        (r"^(/[^/]+?)(/.*)?$", true),
        (r"(?i)^/(?:a|b){2,3}/?$", true),
        (r"(?i:bot)|spider", true),
        (r"[\x80-\xff]", true),
        ("[[:alpha:]]+", true),
        ("[[:^alpha:]]+", false),
        ("[[:upper:]]+", false),
        ("[]a]b", true),
        ("[^]a]b", true),
        (r"[\]a]", true),
        ("[a-z0-9_-]", true),
        ("[-a]", true),
        ("[a-c-e]", false),
        ("a&&b", true),
        ("[a&&b]", false),
        ("[+--b]", false),
        ("[a[b]", false),
        (r"\<a", false),
        ("(?R)", false),
        ("(?=a)", false),
        (r"(a)\1", false),
        ("\u{e4}", false),
        // Possessive, or a repetition of a repetition.
        ("a++", false),
        ("a*+", false),
        ("a?+", false),
        ("a{2}+", false),
        ("a{2}{3}", false),
        ("(?x)a b", false),
        ("(?x: a )", false),
        ("a(?i)b", false),
        (r"\v", false),
        (r"\h", false),
        (r"\R", false),
        (r"\Z", false),
        (r"\x{41}", false),
        (r"\101", false),
        ("a{,3}", false),
        ("a{x", false),
        ("(a*)*", false),
        ("(|a)+", false),
        ("(a|b*)?", false),
        ("^*", false),
    ] {
        let found = Regex::new(source, Case::Sensitive, |_| VarId(0));
        let found = found.is_ok_and(|regex| is_linear(&regex));
        assert_eq!(found, expected, "{source}");
    }
}

#[test]
fn expressions_match_bytes() {
    for (source, case, subject, is_match) in [
        ("^/A$", Case::Sensitive, &b"/a"[..], false),
        ("^/A$", Case::Insensitive, b"/a", true),
        ("^/.$", Case::Sensitive, b"/\xff", true),
        (r"^\w$", Case::Sensitive, "\u{e4}".as_bytes(), false),
        ("^/a$", Case::Sensitive, b"/a\n", true),
        ("^/a$", Case::Sensitive, b"/a\n\n", false),
        (r"^/a\z", Case::Sensitive, b"/a\n", false),
        ("(?<!x)a", Case::Sensitive, b"xa", false),
        ("(?<!x)a", Case::Sensitive, b"ya", true),
        // Possessive: what was taken is not given back.
        ("^a++a", Case::Sensitive, b"aaa", false),
        ("^a+a", Case::Sensitive, b"aaa", true),
        ("(?x) a b # c", Case::Sensitive, b"ab", true),
        ("(?x) a b # c", Case::Sensitive, b"a b", false),
        (r"^\v$", Case::Sensitive, b"\r", true),
    ] {
        let found = compile(source, case).is_match(subject);
        assert_eq!(found, Ok(is_match), "{source}");
    }
}

#[test]
fn groups_are_numbered_alike() {
    for source in ["(a)|(?<n>b)", "(?!x)(a)|(?<n>b)"] {
        let regex = compile(source, Case::Sensitive);
        assert_eq!(regex.group_count(), 2);
        let groups = regex.groups(b"xb").unwrap();
        assert_eq!(
            groups,
            Some(vec![Some((1, 2)), None, Some((1, 2))]),
            "{source}"
        );
    }
}

/// Neither a match nor none.
#[test]
fn expression_that_gives_up_is_an_error() {
    let regex = compile("(?!x)^(a+)+$", Case::Sensitive);
    let subject = [&[b'a'; 60][..], b"!"].concat();
    let gave_up = regex.is_match(&subject).unwrap_err();
    let text = gave_up.to_string();
    assert!(text.contains("using \"(?!x)^(a+)+$\""), "{text}");
    assert!(text.contains("on \"aaaa"), "{text}");
    assert!(regex.groups(&subject).is_err());
    assert!(regex.captures(&Bytes::from(subject)).is_err());
    assert_eq!(regex.is_match(b"aaa"), Ok(true));
}

/// Pieces of expressions: some that are alike, and more that may not be.
const ATOMS: &[&str] = &[
    "a",
    "b",
    "B",
    "ab",
    ".",
    "-",
    " ",
    "#",
    "]",
    "}",
    "{",
    "&",
    "~",
    "^",
    "$",
    r"\d",
    r"\D",
    r"\w",
    r"\W",
    r"\s",
    r"\S",
    r"\b",
    r"\B",
    r"\A",
    r"\z",
    r"\Z",
    r"\n",
    r"\r",
    r"\t",
    r"\f",
    r"\v",
    r"\h",
    r"\H",
    r"\R",
    r"\N",
    r"\K",
    r"\G",
    r"\e",
    r"\a",
    r"\0",
    r"\1",
    r"\12",
    r"\x41",
    r"\x4",
    r"\x{41}",
    r"\xe4",
    r"\Qa.b\E",
    r"\.",
    r"\-",
    r"\ ",
    r"\#",
    r"\&",
    r"\<",
    r"\>",
    r"\b{start}",
    "\u{e4}",
    "[ab]",
    "[^ab]",
    "[a-c]",
    "[^a-b]",
    "[]a]",
    "[^]a]",
    "[a-]",
    "[-a]",
    "[--a]",
    "[a-c-e]",
    "[a-b-]",
    "[+--b]",
    "[+--]",
    r"[\d-z]",
    r"[\w-]",
    r"[\]a]",
    r"[\b]",
    "[a&&b]",
    "[a&b]",
    "[a--b]",
    "[a~~b]",
    "[[a]b]",
    "[a[b]]",
    "[[:alpha:]]",
    "[[:^alpha:]]",
    "[[:upper:]]",
    "[[:^upper:]]",
    "[[:lower:]b]",
    "[[:word:]]",
    "[^[:space:]]",
    "[[:punct:]]",
    "[[:blank:]]",
    "[[:cntrl:]]",
    "[[:print:]]",
    "[[:graph:]]",
    "[[:ascii:]]",
    "[[:xdigit:]]",
    "[[:<:]]",
    "[[.a.]]",
    "[ab ]",
    "[#a]",
    r"[\x41-\x43]",
    r"[\x80-\xff]",
    r"[\W]",
    r"[^\W]",
    r"[\D\d]",
    r"[\h]",
    r"[\v]",
    "(?i)",
    "(?s)",
    "(?m)",
    "(?x)",
    "(?U)",
    "(?-i)",
    "(?R)",
    "(?#a)",
    "(?=a)",
    "(?!a)",
    "(?<=a)",
    "(?<!a)",
    "(*COMMIT)",
    "()",
    "(|a)",
    "(a|)",
    "[a",
    "(",
    ")",
];

const REPETITIONS: &[&str] = &[
    "", "", "", "", "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{2}?", "{2}+",
    "{1,2}", "{0,2}", "{0}", "{1,}", "{,2}", "{ 1 }", "{1, 2}", "{2,1}", "**", "{2}{2}", "{",
];

const GROUPS: &[&str] = &[
    "(", "(", "(?:", "(?:", "(?i:", "(?-i:", "(?s:", "(?x:", "(?i-s:", "(?U:", "(?<n>", "(?P<m>",
    "(?'o'", "(?>", "(?|", "(?=", "(?!", "(?<1>", "(?<a.b>",
];

const BYTES: &[u8] = b"aabbABcC0_- .\n\r\t\x0b\x0c#]}{&~^\x00\xe4\xc3\xff\x85";

fn expressions() -> impl Strategy<Value = String> {
    let atom =
        || (select(ATOMS), select(REPETITIONS)).prop_map(|(atom, more)| format!("{atom}{more}"));
    let sequence = vec(atom(), 1..4).prop_map(|atoms| atoms.concat());
    sequence.prop_recursive(3, 12, 3, move |inner| {
        let branches = vec(inner.clone(), 1..3).prop_map(|branches| branches.join("|"));
        let group = (select(GROUPS), branches, select(REPETITIONS))
            .prop_map(|(begin, inside, more)| format!("{begin}{inside}){more}"));
        vec(prop_oneof![group, inner], 1..3).prop_map(|parts| parts.concat())
    })
}

fn many_cases() -> ProptestConfig {
    ProptestConfig {
        cases: 6000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(many_cases())]

    /// Checks that expressions that PCRE refuses are refused, and that the groups of all matches
    /// are PCRE's.
    #[test]
    fn engines_agree_on_generated_expressions(
        source in expressions(),
        is_caseless in any::<bool>(),
        subjects in vec(vec(select(BYTES), 0..9), 6),
    ) {
        let case = if is_caseless { Case::Insensitive } else { Case::Sensitive };
        let ours = Regex::new(&source, case, |_| VarId(0));
        let theirs = backtracking(&source, case);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} of {}", theirs, source);
        let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return Ok(()) };
        if !is_linear(&ours) {
            return Ok(());
        }
        prop_assert_eq!(ours.group_count() + 1, theirs.captures_len(), "{}", source);
        for subject in subjects {
            let Ok(expected) = theirs.captures(&subject) else { continue };
            let expected = expected.map(|found| {
                let span = |group| found.get(group).map(|m| (m.start() as u32, m.end() as u32));
                (0..found.len()).map(span).collect::<Groups>()
            });
            let found = ours.groups(&subject).unwrap();
            let subject = subject.escape_ascii().to_string();
            prop_assert_eq!(found, expected, "{} on {}", source, subject);
        }
    }
}

#[test]
fn expressions_that_count_far_are_matched_by_backtracking() {
    for (source, expected) in [
        ("[a-z0-9]{2000}", false),
        ("([a-z]{30}){30}", false),
        (
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            true,
        ),
        ("^/v[0-9]{1,3}/", true),
    ] {
        assert_eq!(
            is_linear(&compile(source, Case::Insensitive)),
            expected,
            "{source}"
        );
    }
    let regex = compile("([a-z0-9]{2000})", Case::Insensitive);
    assert_eq!(regex.is_match("A1".repeat(1000).as_bytes()), Ok(true));
    assert_eq!(regex.is_match("/".repeat(6000).as_bytes()), Ok(false));
}
