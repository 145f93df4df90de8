//! Templates: complex values such as `"$scheme://$host$request_uri"`, compiled when they are read.
//!
//! A `$` starts a variable, whose name is the letters, digits and underscores that follow, or what
//! stands in `${...}`; or a capture of the last regular expression, `$1` to `$9`, one digit. There
//! is no escape for `$`: as in nginx, a dollar sign comes from a variable that holds one.
//!
//! Invariants:
//!
//! 1. No part is an empty literal, and no two literals are neighbours. So [`Template::as_literal`]
//!    looks at one part only.
//! 2. Every variable is interned with the place of its use, to be checked when all are known.

use std::sync::Arc;

use thiserror::Error;

use crate::context::ParseContext;
use crate::source::Span;
use crate::tree::Word;
use crate::value::{FromWord, WordError};
use crate::variable::{VarId, VariableUses};

/// A piece of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Bytes as they are.
    Literal(Box<[u8]>),
    /// The value of a variable.
    Variable(VarId),
    /// A capture, from 1 to 9.
    Capture(u8),
}

/// A compiled complex value. Clones share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// Parts that are put one after another.
    pub parts: Arc<[Part]>,
    /// Text that the template was compiled from.
    pub source: Arc<str>,
}

/// The reason why a text is no template; in nginx's words.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TemplateError {
    /// No name follows a `$`.
    #[error("invalid variable name")]
    InvalidName,
    /// A `${` is not closed right behind the name.
    #[error("the closing bracket in \"{name}\" variable is missing")]
    MissingBracket {
        /// The name so far.
        name: String,
    },
}

impl Template {
    /// Compiles a text that stands at the span.
    pub fn parse(
        text: &str,
        span: Span,
        uses: &mut VariableUses,
    ) -> Result<Template, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            let (literal, reference) = rest.split_at(dollar);
            push_literal(&mut parts, literal);
            let (part, len) = match Reference::parse(reference)? {
                Reference::Capture(number) => (Part::Capture(number), 2),
                Reference::Variable { name, len } => {
                    let at = text.len() - reference.len();
                    let place = span.part(text.len(), at, at + len);
                    (Part::Variable(uses.intern(name, place)), len)
                }
            };
            parts.push(part);
            rest = reference.get(len..).unwrap_or_default();
        }
        push_literal(&mut parts, rest);
        Ok(Template {
            parts: parts.into(),
            source: text.into(),
        })
    }

    /// A template of the text as it is, dollar signs included.
    pub fn literal(text: &str) -> Template {
        let mut parts = Vec::new();
        push_literal(&mut parts, text);
        Template {
            parts: parts.into(),
            source: text.into(),
        }
    }

    /// Bytes of the template, if neither variables nor captures are in it.
    pub fn as_literal(&self) -> Option<&[u8]> {
        match &*self.parts {
            [] => Some(&[]),
            [Part::Literal(bytes)] => Some(bytes),
            _ => None,
        }
    }

    /// True if the template uses captures.
    pub fn has_captures(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| matches!(part, Part::Capture(_)))
    }

    /// Variables that the template uses.
    pub fn variables(&self) -> impl Iterator<Item = VarId> + '_ {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(id) => Some(*id),
            Part::Literal(_) | Part::Capture(_) => None,
        })
    }
}

impl FromWord for Template {
    const SYNTAX: &'static str = "string";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Template, WordError> {
        Template::parse(&word.text, word.span, &mut cx.variables)
            .map_err(|error| WordError::Message(error.to_string()))
    }
}

fn push_literal(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        parts.push(Part::Literal(text.as_bytes().into()));
    }
}

/// Reference that a `$` begins.
enum Reference<'a> {
    Capture(u8),
    /// `len` counts the dollar sign and the brackets, too.
    Variable {
        name: &'a str,
        len: usize,
    },
}

impl Reference<'_> {
    /// Reads the reference at the start of a text that starts with `$`.
    fn parse(text: &str) -> Result<Reference<'_>, TemplateError> {
        let behind = text.get(1..).unwrap_or_default();
        if let Some(digit @ b'1'..=b'9') = behind.bytes().next() {
            return Ok(Reference::Capture(digit - b'0'));
        }
        let Some(inner) = behind.strip_prefix('{') else {
            let name = name_at_start(behind);
            return match name {
                "" => Err(TemplateError::InvalidName),
                name => Ok(Reference::Variable {
                    name,
                    len: name.len() + 1,
                }),
            };
        };
        let name = name_at_start(inner);
        if inner.is_empty() || inner.starts_with('}') {
            return Err(TemplateError::InvalidName);
        }
        if inner.as_bytes().get(name.len()) != Some(&b'}') {
            let name = name.to_owned();
            return Err(TemplateError::MissingBracket { name });
        }
        let len = name.len() + 3;
        Ok(Reference::Variable { name, len })
    }
}

fn name_at_start(text: &str) -> &str {
    let end = text.find(|char: char| !(char.is_ascii_alphanumeric() || char == '_'));
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles a text and writes the parts in a form that is easy to compare.
    fn compiled(text: &str) -> Result<String, String> {
        let mut uses = VariableUses::new();
        let template = Template::parse(text, Span::NONE, &mut uses);
        let template = template.map_err(|error| error.to_string())?;
        let parts = template.parts.iter().map(|part| match part {
            Part::Literal(bytes) => format!("'{}'", String::from_utf8_lossy(bytes)),
            Part::Variable(id) => format!("${}", uses.name(*id)),
            Part::Capture(number) => format!("#{number}"),
        });
        Ok(parts.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn dollars_start_variables_and_captures() {
        for (text, expected) in [
            ("", ""),
            ("plain", "'plain'"),
            ("$host$uri", "$host $uri"),
            ("${host}s", "$host 's'"),
            ("a$HOST-b", "'a' $host '-b'"),
            ("$1$23", "#1 #2 '3'"),
            ("$0", "$0"),
            ("${1}", "$1"),
            ("a{b}c", "'a{b}c'"),
            ("$hostä", "$host 'ä'"),
            ("\\$host", "'\\' $host"),
        ] {
            assert_eq!(compiled(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn dollars_without_a_name_are_errors() {
        let bracket = |name: &str| format!("the closing bracket in \"{name}\" variable is missing");
        for (text, expected) in [
            ("$", "invalid variable name".to_owned()),
            ("a$ b", "invalid variable name".to_owned()),
            ("$$", "invalid variable name".to_owned()),
            ("${", "invalid variable name".to_owned()),
            ("${}", "invalid variable name".to_owned()),
            ("${host", bracket("host")),
            ("${ho-st}", bracket("ho")),
            ("${-}", bracket("")),
        ] {
            assert_eq!(compiled(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn literals_and_captures_are_told_apart() {
        let mut uses = VariableUses::new();
        let mut parse = |text| Template::parse(text, Span::NONE, &mut uses).expect("a template");
        assert_eq!(parse("").as_literal(), Some(&b""[..]));
        assert_eq!(parse("ab").as_literal(), Some(&b"ab"[..]));
        assert_eq!(parse("a$b").as_literal(), None);
        assert!(parse("$1").has_captures());
        assert!(!parse("$x").has_captures());
        assert_eq!(Template::literal("$x").as_literal(), Some(&b"$x"[..]));
    }

    #[test]
    fn uses_point_at_the_name_in_the_word() {
        let mut uses = VariableUses::new();
        let span = Span {
            file: crate::FileId(0),
            start: 10,
            end: 20,
        };
        Template::parse("a${host}", span, &mut uses).expect("a template");
        let places: Vec<_> = uses
            .uses()
            .map(|(_, place)| (place.start, place.end))
            .collect();
        assert_eq!(places, [(12, 19)]);
    }
}
