//! Bounds of a request's head, and what of it is let through.
//!
//! 1. They are the same for every protocol; each says what it counts.
//!
//! The settings that they come from are read elsewhere.

/// The treatment of field names with underscores (`underscores_in_headers`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underscores {
    /// Names with underscores are ordinary names.
    Allow,
    /// Names with underscores are invalid names.
    Ignore,
}

/// The treatment of fields with invalid names (`ignore_invalid_headers`): names with anything but
/// letters, digits, hyphens and allowed underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidNames {
    /// Such fields are dropped, as if they had not been sent.
    Ignore,
    /// Such fields are kept like others.
    Keep,
}

/// Bounds of a request head, and what is let through.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the first buffer (`client_header_buffer_size`).
    pub first: usize,
    /// Bytes of each further buffer: the longest line, line end included
    /// (the size in `large_client_header_buffers`).
    pub line: usize,
    /// Bytes of all further buffers together (number times size in the same directive).
    pub total: usize,
    /// The most fields that a request may have (`max_headers`).
    pub fields: usize,
    /// The treatment of names with underscores.
    pub underscores: Underscores,
    /// The treatment of fields with invalid names.
    pub invalid: InvalidNames,
    /// The rules by which values and lists are read: nginx's or the RFC's.
    pub reading: Reading,
}

/// The rules by which values and lists of fields are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reading {
    /// The rules of nginx: a tab is a part of a value, and a list of entity tags stands in one
    /// line.
    AsNginx,
    /// White space around a value is no part of it (RFC 9110 §5.5), and a list may stand in several
    /// lines (§5.3); whoever obeys nginx's rules refuses such a list then.
    ByRfc,
}

/// nginx's defaults.
impl Default for Limits {
    fn default() -> Self {
        Self {
            first: 1024,
            line: 8 * 1024,
            total: 4 * 8 * 1024,
            fields: 1000,
            underscores: Underscores::Ignore,
            invalid: InvalidNames::Ignore,
            reading: Reading::AsNginx,
        }
    }
}

/// The choice to serve CONNECT here or to refuse it (`allow_connect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// CONNECT is answered by 405.
    Refuse,
    /// CONNECT is let through, in HTTP/1.1 and without a body.
    Allow,
}
