//! `if`: what a condition tests.
//!
//! ```text
//! ($name)                                a value that is neither empty nor "0"
//! ($name = text)      ($name != text)    bytes, in their case
//! ($name ~ regex)     ($name !~ regex)   also ~* and !~* for both cases; sets captures
//! (-f path)           (!-f path)         also -d, -e, -x
//! ```
//!
//! Parentheses may stand alone or touch their neighbours, as in nginx.

use std::sync::Arc;

use bytes::Bytes;
use millpond_conf::{Statement, Template, VarId, Word};
use millpond_system::log::error::Level;

use super::{CaptureForm, eval, text, trace};
use crate::content::open_file::{self, Kind};
use crate::request::{Request, Value};
use crate::route::captures::RequestRegex as _;
use millpond_exchange::expression::{Captures, Case, Regex};
use millpond_exchange::scope::build::Builder;

/// A compiled condition.
#[derive(Debug)]
pub(super) enum Condition {
    True(VarId),
    Equals {
        variable: VarId,
        value: Template,
        expected: Expected,
    },
    Matches {
        variable: VarId,
        regex: Arc<Regex>,
        expected: Expected,
    },
    File {
        path: Template,
        test: FileTest,
        expected: Expected,
    },
}

/// The result that the test must have: to hold, or to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Yes,
    No,
}

/// The question that is asked of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileTest {
    Plain,
    Directory,
    Exists,
    Executable,
}

/// Reads the words between the parentheses; a mistake is reported.
pub(super) fn parse(builder: &mut Builder, statement: &Statement) -> Option<Condition> {
    let words = match inside(&statement.args) {
        Ok(words) => words,
        Err(word) => {
            let (at, span) = match word {
                Some(word) => (word.text.as_str(), word.span),
                None => ("", statement.span),
            };
            builder.error(span, format!("invalid condition \"{at}\""));
            return None;
        }
    };
    let first = words.first()?;
    let result = if first.text.len() > 1 && first.text.starts_with('$') {
        parse_variable(builder, &words)
    } else if let Some((test, expected)) = file_test(&first.text) {
        match words.as_slice() {
            [_, path] => {
                let path = builder.template(path)?;
                Some(Condition::File {
                    path,
                    test,
                    expected,
                })
            }
            _ => None,
        }
    } else {
        None
    };
    if result.is_none() && !builder.cx.diagnostics.has_errors() {
        builder.error(first.span, format!("invalid condition \"{}\"", first.text));
    }
    result
}

/// The words without the parentheses; the word at fault if there are none.
fn inside(args: &[Word]) -> Result<Vec<Word>, Option<&Word>> {
    let (Some(first), Some(last)) = (args.first(), args.last()) else {
        return Err(None);
    };
    if !first.text.starts_with('(') {
        return Err(Some(first));
    }
    let mut words = args.to_vec();
    if let Some(word) = words.last_mut() {
        match word.text.strip_suffix(')') {
            Some(rest) => word.text = rest.to_string(),
            None => return Err(Some(last)),
        }
    }
    if let Some(word) = words.first_mut() {
        word.text = word.text.strip_prefix('(').unwrap_or_default().to_string();
    }
    if words
        .last()
        .is_some_and(|word| word.text.is_empty() && !word.quoted)
    {
        words.pop();
    }
    if words.first().is_some_and(|word| word.text.is_empty()) {
        words.remove(0);
    }
    if words.is_empty() {
        Err(Some(first))
    } else {
        Ok(words)
    }
}

fn parse_variable(builder: &mut Builder, words: &[Word]) -> Option<Condition> {
    let (name, rest) = words.split_first()?;
    let name_text = name.text.strip_prefix('$').unwrap_or_default();
    let invalid = |builder: &mut Builder| {
        builder.error(name.span, format!("invalid condition \"{}\"", name.text));
        None
    };
    let (operator, value) = match rest {
        [] => {
            return Some(Condition::True(
                builder.cx.variables.intern(name_text, name.span),
            ));
        }
        [operator, value] => (operator, value),
        _ => return invalid(builder),
    };
    let variable = builder.cx.variables.intern(name_text, name.span);
    let expected = if operator.text.starts_with('!') {
        Expected::No
    } else {
        Expected::Yes
    };
    match operator.text.as_str() {
        "=" | "!=" => {
            let value = builder.template(value)?;
            Some(Condition::Equals {
                variable,
                value,
                expected,
            })
        }
        "~" | "!~" | "~*" | "!~*" => {
            let case = if operator.text.ends_with('*') {
                Case::Insensitive
            } else {
                Case::Sensitive
            };
            let regex = Regex::compile(builder, &value.text, case, value.span)?;
            Some(Condition::Matches {
                variable,
                regex,
                expected,
            })
        }
        other => {
            builder.error(
                operator.span,
                format!("unexpected \"{other}\" in condition"),
            );
            None
        }
    }
}

fn file_test(text: &str) -> Option<(FileTest, Expected)> {
    let (letter, expected) = match text.strip_prefix('!') {
        Some(rest) => (rest, Expected::No),
        None => (text, Expected::Yes),
    };
    let test = match letter {
        "-f" => FileTest::Plain,
        "-d" => FileTest::Directory,
        "-e" => FileTest::Exists,
        "-x" => FileTest::Executable,
        _ => return None,
    };
    Some((test, expected))
}

impl Condition {
    /// True if the condition holds for the request.
    pub(super) fn holds(&self, req: &mut Request, form: CaptureForm) -> bool {
        match self {
            Condition::True(variable) => {
                let value = value_of(req, *variable);
                !value.is_empty() && value.as_ref() != b"0"
            }
            Condition::Equals {
                variable,
                value,
                expected,
            } => {
                let left = value_of(req, *variable);
                let right = eval(req, value, form);
                (left == right) == (*expected == Expected::Yes)
            }
            Condition::Matches {
                variable,
                regex,
                expected,
            } => {
                let subject = value_of(req, *variable);
                matches(req, regex, subject) == (*expected == Expected::Yes)
            }
            Condition::File {
                path,
                test,
                expected,
            } => {
                let path = eval(req, path, form);
                test.holds(req, &path) == (*expected == Expected::Yes)
            }
        }
    }
}

fn value_of(req: &mut Request, variable: VarId) -> Bytes {
    match req.variable(variable) {
        Value::Found(value) => value,
        Value::NotFound => Bytes::new(),
    }
}

fn matches(req: &mut Request, regex: &Regex, subject: Bytes) -> bool {
    let is_match = regex.capture_from(req, subject.clone());
    let verb = if is_match {
        "matches"
    } else {
        "does not match"
    };
    trace(
        req,
        format_args!("\"{}\" {verb} \"{}\"", regex.source(), text(&subject)),
    );
    if !is_match {
        req.captures = Captures::default();
    }
    is_match
}

impl FileTest {
    fn holds(self, req: &mut Request, path: &[u8]) -> bool {
        if self == FileTest::Executable {
            return open_file::is_executable(req, path);
        }
        match (self, open_file::test(req, path)) {
            (FileTest::Plain, Ok(kind)) => kind == Kind::File,
            (FileTest::Directory, Ok(kind)) => kind == Kind::Directory,
            (_, Ok(kind)) => kind != Kind::Other,
            (_, Err(failure)) => {
                // A file that is not there is no event; one that cannot be looked at is.
                if !failure.is_missing() {
                    failure.log(req, Level::Crit, path);
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_conf::Span;

    fn words(text: &str) -> Vec<Word> {
        let word = |text: &str| Word {
            text: text.to_string(),
            span: Span::NONE,
            quoted: false,
        };
        text.split(' ').map(word).collect()
    }

    #[test]
    fn parentheses_may_touch_their_words_or_stand_alone() {
        for (text, expected) in [
            ("($a)", Some("$a")),
            ("( $a )", Some("$a")),
            ("($a = b)", Some("$a = b")),
            ("( $a = b )", Some("$a = b")),
            ("($a ~ (x))", Some("$a ~ (x)")),
            ("()", None),
            ("( )", None),
            ("(", None),
            ("$a)", None),
            ("($a", None),
        ] {
            let args = words(text);
            let found = inside(&args).ok().map(|words| {
                words
                    .iter()
                    .map(|word| word.text.clone())
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn file_tests_are_one_letter_and_may_be_negated() {
        assert_eq!(file_test("-f"), Some((FileTest::Plain, Expected::Yes)));
        assert_eq!(file_test("!-x"), Some((FileTest::Executable, Expected::No)));
        for text in ["-", "!", "-a", "f", "--f", "!-", ""] {
            assert_eq!(file_test(text), None, "{text}");
        }
    }
}
