//! Names of fields as HTTP/2 has them, sorted once when they are read.
//!
//! 1. A name has one class, and a name in a table keeps it: it is not looked at again.
//!
//! What a class means for a message is judged by its reader.
//!
//! Sources: RFC 9113 §8.2.1, §8.3; nginx for names with other bytes than letters, digits, hyphens.

use crate::header::Known;

/// The kind of a field, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:protocol` (RFC 8441)
    Protocol,
    /// `:status`
    Status,
    /// Another name that begins with a colon.
    OtherPseudo,
    /// A field; its name has small letters, digits and hyphens.
    Field(Known),
    /// A field whose name has underscores besides.
    Underscored,
    /// A field whose name has other bytes besides that a name may have.
    Odd,
    /// A field whose name has capitals, controls, spaces or colons, or none at all.
    Bad,
}

/// Classes of bytes in a name, from good to bad.
const PLAIN: u8 = 0;
const UNDERSCORE: u8 = 1;
const ODD: u8 = 2;
const BAD: u8 = 4;

const BYTES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [ODD; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => PLAIN,
            b'_' => UNDERSCORE,
            b'A'..=b'Z' | b':' | 0..=b' ' | 0x7f => BAD,
            // RFC 9113 §8.2.1: and those beyond ASCII, which nginx lets pass as odd ones.
            0x80.. => BAD,
            _ => ODD,
        };
        byte += 1;
    }
    classes
}

impl Class {
    /// The class of a name.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        let seen = name
            .iter()
            .fold(PLAIN, |seen, byte| seen | BYTES[usize::from(*byte)]);
        match seen {
            PLAIN if name.is_empty() => Class::Bad,
            PLAIN => Class::Field(Known::of(name)),
            UNDERSCORE => Class::Underscored,
            ODD | 3 => Class::Odd,
            _ => Class::of_pseudo(name),
        }
    }

    fn of_pseudo(name: &[u8]) -> Self {
        match name {
            b":method" => Class::Method,
            b":scheme" => Class::Scheme,
            b":authority" => Class::Authority,
            b":path" => Class::Path,
            b":protocol" => Class::Protocol,
            b":status" => Class::Status,
            [b':', ..] => Class::OtherPseudo,
            _ => Class::Bad,
        }
    }
}

/// True if a value may stand in a field: no NUL, CR and LF, and no white space around it
/// (RFC 9113 §8.2.1).
#[must_use]
pub fn is_good_value(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    crate::seek::is_one_line(value) && !is_space(value.first()) && !is_space(value.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9113 §8.2.1.
    #[test]
    fn names_are_sorted_by_their_bytes() {
        for (name, class) in [
            ("x-a1", Class::Field(Known::Other)),
            ("content-type", Class::Field(Known::ContentType)),
            ("x_a", Class::Underscored),
            ("x.a", Class::Odd),
            ("x_.a", Class::Odd),
            ("", Class::Bad),
            ("X-a", Class::Bad),
            ("x a", Class::Bad),
            ("x:a", Class::Bad),
            ("x_A", Class::Bad),
            ("x\n", Class::Bad),
            ("x\u{fc}", Class::Bad),
            (":path", Class::Path),
            (":Path", Class::OtherPseudo),
            (":other", Class::OtherPseudo),
            (":", Class::OtherPseudo),
        ] {
            assert_eq!(Class::of(name.as_bytes()), class, "{name:?}");
        }
    }

    /// RFC 9113 §8.2.1.
    #[test]
    fn values_have_no_line_ends_and_no_space_around() {
        for (value, is_good) in [
            ("", true),
            ("a b\tc", true),
            (" a", false),
            ("a ", false),
            ("\ta", false),
            ("a\t", false),
            ("a\0b", false),
            ("a\rb", false),
            ("a\nb", false),
        ] {
            assert_eq!(is_good_value(value.as_bytes()), is_good, "{value:?}");
        }
    }
}
