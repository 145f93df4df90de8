//! No-Vary-Search: arguments of a URI that its origin does not tell answers apart by
//! (draft-ietf-httpbis-no-vary-search).
//!
//! ```text
//! No-Vary-Search: params=("utm_source" "utm_medium"), key-order
//!         ?utm_source=x&b=2&a=%31  ──►  a=1&b=2
//! ```
//!
//! [`Variation::parse`] reads the field, and [`Variation::simplify`] writes a query so that two are
//! the same bytes if and only if they are equivalent (§5 of the draft).
//!
//! 1. A field that is malformed, or says what the draft does not know, is none (§4.1): then two
//!    queries are equivalent only if they are the same.
//! 2. Names and values are compared as the form coding of the WHATWG URL standard reads them.

use std::borrow::Cow;
use std::fmt;

use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::list::joined;
use crate::query::{Argument, arguments, decode};
use crate::uri::{EscapeKind, escape_into};

/// Bytes of a field that is read (arbitrary: what is longer is none).
pub const FIELD_MAX: usize = 1024;

/// Word of an origin about the queries of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Variation {
    /// Arguments that do not count, or the only ones that do.
    names: Names,
    /// True if the order of names counts.
    by_order: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Names {
    /// All count but these.
    Except(Vec<String>),
    /// Only these count.
    Only(Vec<String>),
}

impl Variation {
    /// Reads the lines of the field; none where nothing is said that differs from the usual.
    #[must_use]
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Variation> {
        let value = joined(lines);
        if value.is_empty() || value.len() > FIELD_MAX {
            return None;
        }
        let read: Dictionary = Parser::new(&value).parse().ok()?;
        let by_order = match read.get("key-order") {
            None => true,
            Some(ListEntry::Item(item)) => match item.bare_item {
                BareItem::Boolean(is_free) => !is_free,
                _ => return None,
            },
            Some(ListEntry::InnerList(_)) => return None,
        };
        let names = match (read.get("params"), read.get("except")) {
            (Some(_), Some(_)) => return None,
            // The algorithm of the draft (§4.1) gives up here, but its text and its examples
            // (§1, §3) have `key-order` alone.
            (None, None) => Names::Except(Vec::new()),
            (Some(list), None) => Names::Except(strings(list)?),
            (None, Some(list)) => Names::Only(strings(list)?),
        };
        let variation = Variation { names, by_order };
        (!variation.is_usual()).then_some(variation)
    }

    fn is_usual(&self) -> bool {
        self.by_order && matches!(&self.names, Names::Except(names) if names.is_empty())
    }

    /// Appends the arguments that count, in their one spelling.
    pub fn simplify(&self, query: &[u8], out: &mut Vec<u8>) {
        let read = |argument: Argument<'_>| {
            let value = argument.value().map(decode).unwrap_or_default();
            (text(argument.name()), text(value))
        };
        let mut pairs: Vec<(String, String)> = arguments(query)
            .map(read)
            .filter(|(name, _)| self.counts(name))
            .collect();
        if !self.by_order {
            // Stable: those of one name stay in their order.
            pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        for (index, (name, value)) in pairs.iter().enumerate() {
            if index > 0 {
                out.push(b'&');
            }
            escape_into(name.as_bytes(), EscapeKind::UriComponent, out);
            out.push(b'=');
            escape_into(value.as_bytes(), EscapeKind::UriComponent, out);
        }
    }

    fn counts(&self, name: &str) -> bool {
        match &self.names {
            Names::Except(names) => !names.iter().any(|other| other == name),
            Names::Only(names) => names.iter().any(|other| other == name),
        }
    }
}

impl fmt::Display for Variation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut quoted = |names: &[String]| {
            let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            write!(f, "{}", names.join(", "))
        };
        match &self.names {
            Names::Except(names) if names.is_empty() => write!(f, "all arguments count")?,
            Names::Except(names) => {
                quoted(names)?;
                write!(f, " do not count")?;
            }
            Names::Only(names) if names.is_empty() => write!(f, "no argument counts")?,
            Names::Only(names) => {
                quoted(names)?;
                write!(f, " alone count")?;
            }
        }
        if !self.by_order {
            write!(f, "; their order does not")?;
        }
        Ok(())
    }
}

/// The strings of an inner list, as names (§4.3).
fn strings(list: &ListEntry) -> Option<Vec<String>> {
    let ListEntry::InnerList(list) = list else {
        return None;
    };
    let names = list.items.iter().map(|item| match &item.bare_item {
        BareItem::String(name) => Some(text(decode(name.as_str().as_bytes()))),
        _ => None,
    });
    names.collect()
}

/// UTF-8 as the standard decodes it.
fn text(bytes: Cow<'_, [u8]>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(field: &str) -> Option<Variation> {
        Variation::parse([field.as_bytes()])
    }

    fn simplify(field: &str, query: &str) -> String {
        let mut out = Vec::new();
        parse(field)
            .expect(field)
            .simplify(query.as_bytes(), &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn arguments_that_do_not_count_are_left_out() {
        for (field, query, expected) in [
            ("params=(\"a\")", "a=1&b=2&A=3&a", "b=2&A=3"),
            ("params=(\"a\" \"b\")", "b&c=1&a", "c=1"),
            ("except=(\"id\")", "x=1&id=2&y&id=1", "id=2&id=1"),
            ("except=()", "x=1&id=2", ""),
            ("except=(\"x\"), key-order", "y&x=2&x=1", "x=2&x=1"),
            ("key-order", "b=2&a=2&b=1", "a=2&b=2&b=1"),
            ("key-order;x=1, other=5, params=(\"z\";p)", "z&b&a", "a=&b="),
            (
                "params=(\"%C3%A9+%E6%B0%97\")",
                "\u{e9}+%E6%B0%97=1&q",
                "q=",
            ),
        ] {
            assert_eq!(simplify(field, query), expected, "{field} {query}");
        }
    }

    #[test]
    fn what_is_said_is_told_in_words() {
        for (field, expected) in [
            ("params=(\"a\" \"b\")", "\"a\", \"b\" do not count"),
            (
                "except=(\"id\"), key-order",
                "\"id\" alone count; their order does not",
            ),
            ("key-order", "all arguments count; their order does not"),
            ("except=()", "no argument counts"),
        ] {
            assert_eq!(parse(field).expect(field).to_string(), expected);
        }
    }

    /// §5.1.
    #[test]
    fn spellings_of_one_argument_are_equivalent() {
        for (one, other) in [
            ("", "&&"),
            ("a=x", "%61=%78"),
            ("a=\u{e9}", "a=%C3%A9"),
            ("a=%f6", "a=%ef%bf%bd"),
            ("a=x&&&&", "a=x"),
            ("a=", "a"),
            ("a=%20", "a=+"),
        ] {
            assert_eq!(simplify("key-order", one), simplify("key-order", other));
        }
        for (one, other) in [("a=1&b", "a=1%26b"), ("a%3Db", "a=b"), ("a=%2B", "a=+")] {
            assert_ne!(simplify("key-order", one), simplify("key-order", other));
        }
    }

    /// §4.2.1.
    #[test]
    fn what_is_malformed_or_usual_is_none() {
        let long = format!("params=(\"{}\")", "x".repeat(FIELD_MAX));
        for field in [
            "",
            "params=()",
            "key-order=?0",
            "key-order=\"not a boolean\"",
            "params=\"not an inner list\"",
            "params=(not-a-string)",
            "params=?0",
            "params",
            "params=?1, except=(\"x\")",
            "params=(\"a\"), except=(\"x\")",
            "params=(), except=()",
            "except=(not-a-string)",
            "except=?1",
            "key-order=(\"a\")",
            "params=(\"a\"",
            "A=1",
            &long,
        ] {
            assert_eq!(parse(field), None, "{field}");
        }
        let lines = [&b"params=(\"a\")"[..], b"key-order"];
        assert_eq!(Variation::parse(lines), parse("params=(\"a\"), key-order"));
    }
}
