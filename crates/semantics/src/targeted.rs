//! Targeted cache control (RFC 9213): fields such as CDN-Cache-Control, which speak to some caches
//! only and take the place of Cache-Control and Expires there.
//!
//! A targeted field is a dictionary of structured fields (RFC 9651), parsed strictly: one fault and
//! the whole field counts as absent. What is understood of it is written again as a Cache-Control
//! line, so that it is read by the same rules as one, the standard's or nginx's:
//!
//! ```text
//! CDN-Cache-Control: max-age=600;why=x, ext=1, private="Set-Cookie"
//!         ──► max-age=600, private="Set-Cookie"
//! ```
//!
//! 1. A field that is malformed or empty is no field (§2.1).
//! 2. A directive whose value is not of its type is no directive (§2.1); a lifetime below zero is
//!    none at all, as in Cache-Control.
//! 3. Parameters mean nothing, and of a name that comes twice the last counts (RFC 9651 §4.2.2).
//!
//! Which fields are targeted at a cache is not decided here.

use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::list::joined;

/// Directives without a value.
const FLAGS: [&str; 7] = [
    "no-store",
    "no-transform",
    "public",
    "must-revalidate",
    "proxy-revalidate",
    "must-understand",
    "immutable",
];

/// Directives with or without a list of fields.
const QUALIFIED: [&str; 2] = ["no-cache", "private"];

/// Directives with a number of seconds.
const SECONDS: [&str; 4] = [
    "max-age",
    "s-maxage",
    "stale-while-revalidate",
    "stale-if-error",
];

/// Reads the lines of one targeted field; `None` when it is absent, empty or malformed, else what
/// is understood of it as the value of a Cache-Control, which may be empty.
#[must_use]
pub fn as_cache_control<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let value = joined(lines);
    let read: Dictionary = Parser::new(&value).parse().ok()?;
    if read.is_empty() {
        return None;
    }
    let mut control = Vec::with_capacity(value.len());
    for (name, entry) in &read {
        // A list is no value that a directive has.
        if let ListEntry::Item(item) = entry {
            write_directive(name.as_str(), &item.bare_item, &mut control);
        }
    }
    Some(control)
}

fn write_directive(name: &str, value: &BareItem, out: &mut Vec<u8>) {
    let is_flag = matches!(value, BareItem::Boolean(true));
    let text = match value {
        _ if is_flag && (FLAGS.contains(&name) || QUALIFIED.contains(&name)) => name.to_string(),
        BareItem::Integer(seconds) if SECONDS.contains(&name) => {
            format!("{name}={}", i64::from(*seconds).max(0))
        }
        BareItem::String(fields) if QUALIFIED.contains(&name) => {
            let quoted = fields.as_str().replace('\\', "\\\\").replace('"', "\\\"");
            format!("{name}=\"{quoted}\"")
        }
        _ => return,
    };
    if !out.is_empty() {
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Option<String> {
        let control = as_cache_control(lines.iter().map(|line| line.as_bytes()));
        control.map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn what_is_understood_becomes_cache_control() {
        for (value, expected) in [
            ("max-age=600", "max-age=600"),
            ("  max-age=600  ", "max-age=600"),
            ("max-age=99999999999", "max-age=99999999999"),
            ("foobar, max-age=3600", "max-age=3600"),
            ("max-age=1, max-age=2", "max-age=2"),
            ("max-age=5;p=\"no-store\";q", "max-age=5"),
            ("no-store, must-revalidate", "no-store, must-revalidate"),
            ("private=\"A, B\", no-cache", "private=\"A, B\", no-cache"),
            ("max-age=-5", "max-age=0"),
            ("none", ""),
        ] {
            assert_eq!(read(&[value]).as_deref(), Some(expected), "{value}");
        }
        let lines = read(&["max-age=5", "public"]);
        assert_eq!(lines.as_deref(), Some("max-age=5, public"));
    }

    #[test]
    fn directives_of_the_wrong_type_are_none() {
        for value in [
            "max-age=\"10\"",
            "max-age=1.0",
            "max-age",
            "max-age=(1 2)",
            "no-store=?0",
            "no-store=1",
            "no-cache=Token",
            "private=:YQ==:",
        ] {
            assert_eq!(read(&[value]).as_deref(), Some(""), "{value}");
        }
    }

    #[test]
    fn malformed_and_empty_fields_are_none() {
        for value in [
            "",
            "  ",
            "max-age=10, &&&&&",
            "max-age =100",
            "max-age= 100",
            "MaX-aGe=3600",
            "max-age=9999999999999999",
            "max-age=10,",
            "no-cache=\"open",
            "max-age=10;",
            "max-age=\u{e9}",
        ] {
            assert_eq!(read(&[value]), None, "{value}");
        }
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["max-age=10", "&"]), None);
    }
}
