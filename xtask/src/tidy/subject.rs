//! Doc comments whose first word is no subject.
//!
//! A doc comment is read by someone who does not know the answer, so it begins with what the thing
//! is, or with what it does. One that begins with a question word, a pronoun or `Tells` says it
//! only to who knows.
//!
//! Does not judge the rest of the sentence.

use super::Finding;
use super::source::SourceFile;

/// Words that leave open what is spoken of.
const NO_SUBJECTS: &[&str] = &[
    "How",
    "It",
    "Of",
    "Past",
    "So",
    "Tells",
    "Them",
    "They",
    "What",
    "Whatever",
    "When",
    "Whenever",
    "Where",
    "Wherever",
    "Whether",
    "Which",
    "Whichever",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "Why",
];

/// Checks the doc comments of one file.
pub(crate) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    for (line, word) in first_words(&file.text) {
        if NO_SUBJECTS.contains(&word) {
            findings.push(Finding {
                rule: "doc-subject",
                path: file.path.clone(),
                line,
                item: word.to_owned(),
                measure: 1,
                message: format!(
                    "a doc comment begins with `{word}`: begin with what the thing is"
                ),
            });
        }
    }
}

/// Line and first word of each doc comment.
pub(crate) fn first_words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let comments = text.lines().map(comment).scan("", |before, comment| {
        let kind = comment.map_or("", |(kind, _)| kind);
        let is_first = kind != *before;
        *before = kind;
        Some(comment.filter(|_| is_first))
    });
    comments.enumerate().filter_map(|(index, comment)| {
        let (_, words) = comment?;
        let end = words.find(|c: char| !c.is_alphanumeric());
        Some((index + 1, words.get(..end.unwrap_or(words.len()))?))
    })
}

/// The marks of a doc comment and what follows them.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    ["///", "//!"].into_iter().find_map(|kind| {
        let rest = line.strip_prefix(kind)?;
        (!rest.starts_with('/')).then_some((kind, rest.trim_start()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn comments_without_a_subject_are_found_by_their_first_word() {
        for (text, words) in [
            ("/// The zone.\nstruct A;\n", vec![]),
            ("//! What is here.\n//!\n//! How it works.\n", vec!["What"]),
            (
                "/// Where, if\n/// Whether.\nfn a() {}\n    /// It.\nfn b() {}\n",
                vec!["Where", "It"],
            ),
            (
                "/// Reads.\n/// When there is none, waits.\nfn a() {}\n",
                vec![],
            ),
            ("// What follows is no doc.\n//// Nor is this.\n", vec![]),
            ("/// Itself.\nfn a() {}\n/// `What`\nfn b() {}\n", vec![]),
        ] {
            let file = SourceFile::parse(Path::new("crates/a/src/b.rs"), text.to_owned()).unwrap();
            let mut findings = Vec::new();
            check(&file, &mut findings);
            let found: Vec<_> = findings.into_iter().map(|finding| finding.item).collect();
            assert_eq!(found, words, "{text}");
        }
    }
}
