//! Cache-Groups and Cache-Group-Invalidation (RFC 9875): answers that an origin puts in groups, and
//! groups that a change has made wrong.
//!
//! Both fields are lists of strings (RFC 9651 §3.1):
//!
//! ```text
//! Cache-Groups: "scripts", "shop, spring"
//! Cache-Group-Invalidation: "shop, spring"
//! ```
//!
//! 1. A field that is malformed, or has a member that is no string, counts as absent.
//! 2. Parameters mean nothing (§2, §3), and letters count as they are written (§2.1).

use sfv::{BareItem, List, ListEntry, Parser};

use crate::list::joined;

/// Reads the lines of one of the fields; none where it is absent, malformed or empty.
#[must_use]
pub fn names<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let Ok(list) = Parser::new(&joined(lines)).parse::<List>() else {
        return Vec::new();
    };
    let names = list.into_iter().map(|entry| match entry {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::String(name) => Some(name.as_str().to_owned()),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    });
    names.collect::<Option<_>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn lists_of_strings_are_read_and_all_else_is_absent() {
        let cases: [(&[&str], &[&str]); 12] = [
            (&[], &[]),
            (&[""], &[]),
            (&["\"a\""], &["a"]),
            (&["\"a\", \"B c\""], &["a", "B c"]),
            (&["\"a\"", "\"b\""], &["a", "b"]),
            (&["\"a\";x=1, \"b\";y"], &["a", "b"]),
            (&["\"a, b\""], &["a, b"]),
            (&["\"a\\\"b\""], &["a\"b"]),
            (&["a"], &[]),
            (&["\"a\", 1"], &[]),
            (&["\"a\", (\"b\")"], &[]),
            (&["\"a\",", "\"b"], &[]),
        ];
        for (lines, expected) in cases {
            let read = names(lines.iter().map(|line| line.as_bytes()));
            assert_eq!(read, expected, "{lines:?}");
        }
    }

    /// RFC 9875 §2 and §3: at least 32 groups of at least 32 characters.
    #[test]
    fn many_long_names_are_read() {
        let wanted: Vec<String> = (0..64).map(|at| format!("{at:0>200}")).collect();
        let line: Vec<String> = wanted.iter().map(|name| format!("\"{name}\"")).collect();
        assert_eq!(names([line.join(", ").as_bytes()]), wanted);
    }
}
