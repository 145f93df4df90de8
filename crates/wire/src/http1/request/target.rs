//! The request line: method, target, version.
//!
//! ```text
//! line      = method " "+ target [ " "+ [ version " "* ] ]
//! method    = ( "A".."Z" | "_" | "-" )+
//! target    = "/" byte*                                         (origin form)
//!           | scheme "://" authority [ ( "/" | "?" ) byte* ]    (absolute form)
//!           | host ":" digit+                                   (only for CONNECT)
//! authority = ( letter | digit | "." | "-" )* [ ":" digit* ]  |  "[" … "]" [ ":" digit* ]
//! version   = "HTTP/1." digit+
//! byte      = anything but space, controls and DEL
//! ```
//!
//! 1. Without a version it is HTTP/0.9, which knows GET only.
//! 2. A fault of the method is found before one of the target, and that before one of the version.
//!
//! The asterisk form (`OPTIONS *`) is refused, as by nginx. Fragments and malformed percent
//! sequences are left to whoever decodes the path.
//!
//! Sources: RFC 9112 §3; nginx's request line grammar.

use std::ops::Range;

use super::{Extent, Parts, Refusal};
use crate::head::Host;
use crate::http1::{Method, Version};
use crate::seek;

/// True if a byte may stand in a method.
pub(super) fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte == b'_' || byte == b'-'
}

/// The method that a request line begins with.
pub(super) fn method_of(line: &[u8]) -> Method {
    let len = count_while(line, is_method_byte);
    match line.split_at_checked(len) {
        Some((method, [b' ', ..])) => Method::of(method),
        _ => Method::Other,
    }
}

/// A request line as most are: a path, HTTP/1.1, single spaces, CR LF.
pub(super) struct UsualLine {
    method: Method,
    method_len: u32,
    target_end: u32,
    /// The length of the line, with the line end.
    pub(super) len: usize,
}

impl UsualLine {
    /// Reads the request line that `rest` begins with; `None` when it is not as usual, or not
    /// whole. What it says is what [`parse_request_line`] would say.
    #[inline]
    pub(super) fn read(rest: &[u8]) -> Option<Self> {
        const END: &[u8] = b" HTTP/1.1\r\n";
        let method_len = rest.iter().position(|byte| !is_method_byte(*byte))?;
        let [b' ', target @ ..] = rest.get(method_len..)? else {
            return None;
        };
        if target.first() != Some(&b'/') {
            return None;
        }
        let target_len = seek::end_of_target(target);
        let method = Method::of(rest.get(..method_len)?);
        if !target.get(target_len..)?.starts_with(END) || method == Method::Connect {
            return None;
        }
        let target_end = method_len + 1 + target_len;
        Some(UsualLine {
            method,
            method_len: u32::try_from(method_len).ok().filter(|len| *len > 0)?,
            target_end: u32::try_from(target_end).ok()?,
            len: target_end + END.len(),
        })
    }

    /// Notes the parts of the line.
    #[inline]
    pub(super) fn place(&self, parts: &mut Parts) -> Option<()> {
        let extent = |start, end| Extent { start, end };
        // Of the end of the line.
        let line_end = u32::try_from(self.len).ok()? - 2;
        parts.method = self.method;
        parts.version = Version::Http11;
        parts.line = extent(0, line_end);
        parts.method_bytes = extent(0, self.method_len);
        parts.target = extent(self.method_len + 1, self.target_end);
        parts.uri = parts.target;
        parts.protocol = extent(self.target_end + 1, line_end);
        Some(())
    }
}

/// Reads a request line, without its line end, that begins with the head.
pub(super) fn parse_request_line(line: &[u8], parts: &mut Parts) -> Result<(), Refusal> {
    let method_len = line
        .iter()
        .position(|byte| !is_method_byte(*byte))
        .ok_or(Refusal::InvalidMethod)?;
    if method_len == 0 || line.get(method_len) != Some(&b' ') {
        return Err(Refusal::InvalidMethod);
    }
    let method = line.get(..method_len).unwrap_or_default();
    // Known before anything can fail: an answer to HEAD has no body, whatever it says.
    parts.method = Method::of(method);
    parts.method_bytes = extent(0..method_len)?;
    let target_start = skip_spaces(line, method_len);
    let target_end = end_of_target(line, target_start)?;
    parts.target = extent(target_start..target_end)?;
    parts.line = extent(0..line.len())?;
    match line.get(target_start) {
        _ if parts.method == Method::Connect => {
            parse_connect(line, target_start..target_end, parts)?;
        }
        Some(b'/') => parts.uri = parts.target,
        Some(first) if first.is_ascii_alphabetic() => {
            parse_absolute(line, target_start..target_end, parts)?;
        }
        _ => return Err(Refusal::InvalidRequest),
    }
    parse_version(line, skip_spaces(line, target_end), parts)
}

/// The offset at which the target ends: at a space or at the end of the line.
fn end_of_target(line: &[u8], start: usize) -> Result<usize, Refusal> {
    let target = line.get(start..).unwrap_or_default();
    let at = seek::end_of_target(target);
    match target.get(at) {
        None => Ok(line.len()),
        Some(b' ') => Ok(start + at),
        Some(_) => Err(Refusal::InvalidRequest),
    }
}

/// An absolute URI. Something must follow it: a line that ends with the authority is refused.
fn parse_absolute(line: &[u8], range: Range<usize>, parts: &mut Parts) -> Result<(), Refusal> {
    let target = line.get(range.clone()).unwrap_or_default();
    let scheme_len = target
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || b"+-.".contains(byte)))
        .ok_or(Refusal::InvalidRequest)?;
    let after = target.get(scheme_len..).unwrap_or_default();
    let rest = after.strip_prefix(b"://").ok_or(Refusal::InvalidRequest)?;
    let len = authority_len(rest);
    let start = range.start + scheme_len + 3;
    let is_bare = match rest.get(len) {
        Some(b'/' | b'?') => false,
        None if range.end < line.len() => true,
        _ => return Err(Refusal::InvalidRequest),
    };
    parts.scheme = extent(range.start..range.start + scheme_len)?;
    parts.authority = extent(start..start + len)?;
    parts.uri = if is_bare {
        Extent::default()
    } else {
        extent(start + len..range.end)?
    };
    check_host(rest.get(..len).unwrap_or_default())
}

/// CONNECT's host and port.
fn parse_connect(line: &[u8], range: Range<usize>, parts: &mut Parts) -> Result<(), Refusal> {
    let target = line.get(range.clone()).unwrap_or_default();
    let has_port = target.last().is_some_and(u8::is_ascii_digit)
        && target.iter().rev().find(|byte| !byte.is_ascii_digit()) == Some(&b':');
    if authority_len(target) != target.len() || !has_port || range.end == line.len() {
        return Err(Refusal::InvalidRequest);
    }
    parts.authority = parts.target;
    check_host(target)
}

/// The count of bytes at the begin of `text` that look like an authority.
fn authority_len(text: &[u8]) -> usize {
    let host_len = match text.first() {
        Some(b'[') => match memchr::memchr(b']', text) {
            Some(at) => at + 1,
            None => return 0,
        },
        _ => count_while(text, |byte| {
            byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-'
        }),
    };
    let rest = text.get(host_len..).unwrap_or_default();
    match rest.strip_prefix(b":") {
        Some(digits) => host_len + 1 + count_while(digits, |byte| byte.is_ascii_digit()),
        None => host_len,
    }
}

fn check_host(authority: &[u8]) -> Result<(), Refusal> {
    match Host::parse(authority) {
        Some(_) => Ok(()),
        None => Err(Refusal::InvalidHostInLine),
    }
}

/// The version, and nothing but spaces after it.
fn parse_version(line: &[u8], start: usize, parts: &mut Parts) -> Result<(), Refusal> {
    let text = line.get(start..).unwrap_or_default();
    if text.is_empty() {
        parts.version = Version::Http09;
        return match parts.method {
            Method::Get => Ok(()),
            _ => Err(Refusal::InvalidMethodHttp09),
        };
    }
    parts.protocol = extent(start..line.len())?;
    // By far the most frequent, and exact.
    if text == b"HTTP/1.1" {
        parts.version = Version::Http11;
        return Ok(());
    }
    let digits = text.strip_prefix(b"HTTP/").ok_or(Refusal::InvalidRequest)?;
    match digits {
        [b'1', b'.', ..] => {}
        [b'1'..=b'9', next, ..] if next.is_ascii_digit() => {
            return Err(Refusal::VersionNotSupported);
        }
        [b'2'..=b'9', ..] => return Err(Refusal::VersionNotSupported),
        _ => return Err(Refusal::InvalidRequest),
    }
    let minor = digits.get(2..).unwrap_or_default();
    let minor_len = count_while(minor, |byte| byte.is_ascii_digit());
    let (minor, after) = minor.split_at_checked(minor_len).unwrap_or_default();
    // Three digits as in nginx, arbitrarily.
    if minor.is_empty() || minor.len() > 3 || after.iter().any(|byte| *byte != b' ') {
        return Err(Refusal::InvalidRequest);
    }
    parts.version = if minor.iter().all(|digit| *digit == b'0') {
        Version::Http10
    } else {
        Version::Http11
    };
    Ok(())
}

fn skip_spaces(line: &[u8], start: usize) -> usize {
    let rest = line.get(start..).unwrap_or_default();
    start + count_while(rest, |byte| byte == b' ')
}

fn count_while(text: &[u8], is_wanted: impl Fn(u8) -> bool) -> usize {
    text.iter().take_while(|byte| is_wanted(**byte)).count()
}

/// A range as an extent. A line of 4 GiB is too long whatever the limits say.
fn extent(range: Range<usize>) -> Result<Extent, Refusal> {
    match (u32::try_from(range.start), u32::try_from(range.end)) {
        (Ok(start), Ok(end)) => Ok(Extent { start, end }),
        _ => Err(Refusal::UriTooLong),
    }
}
