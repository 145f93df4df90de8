//! Paths and URIs, by nginx's rules (RFC 3986).
//!
//! - [`normalize`] makes of a path the one that locations and files are matched with.
//! - [`escape`] and [`unescape`] translate between bytes and percent signs; [`safe_uri`] judges a
//!   URI that an upstream or a client names inside of a field.

mod escape;
mod normalize;

use std::fmt;

pub use escape::{
    EscapeKind, escape, escape_html, escape_into, unescape, unescape_redirect, unescape_uri,
};
pub use normalize::{MergeSlashes, SafeUri, normalize, safe_uri};

/// The reason why a URI is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UriError {
    /// The URI is empty.
    Empty,
    /// A percent sign without two hexadecimal digits.
    InvalidEscape,
    /// `%00`.
    NulByte,
    /// `..` leads above the root.
    AboveRoot,
    /// A path that does not begin with a slash.
    NotAbsolute,
    /// `..` or a NUL in a URI that must be plain.
    Unsafe,
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "uri is empty"),
            Self::InvalidEscape => write!(f, "percent sign without two hexadecimal digits in uri"),
            Self::NulByte => write!(f, "escaped zero byte in uri"),
            Self::AboveRoot => write!(f, "uri leads above the root"),
            Self::NotAbsolute => write!(f, "path in uri does not begin with a slash"),
            Self::Unsafe => write!(f, "unsafe uri"),
        }
    }
}

impl std::error::Error for UriError {}

/// The value of a hexadecimal digit.
pub fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
