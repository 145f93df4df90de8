//! Heads to be sent: status lines, request lines, fields.
//!
//! Everything is written into a `BytesMut` that the caller owns and reuses. Values such as Date
//! are the caller's; nothing is added here.
//!
//! 1. Whatever the parts hold, a head has exactly the lines that were asked for: NUL, CR and LF
//!    in a value or a text go out as spaces (RFC 9110 §5.5), and other bytes than those of a token
//!    in a name or method, and controls and spaces in a target, are dropped or percent-encoded.
//! 2. Answers say HTTP/1.1 always, whatever the request said (RFC 9110 §6.2 and nginx).
//!
//! Sources: RFC 9112 §3 and §4; the texts are those that nginx sends.

use bytes::{BufMut, BytesMut};
use millpond_semantics::decimal::{Backwards, DIGITS};

use super::Version;
use crate::header::{Field, Fields, Known};
use crate::seek;

/// Space that is reserved at least for a head, in bytes: most fit without growing.
const USUAL_HEAD: usize = 512;

/// The text after a status, as nginx has it; `None` where nginx sends the number alone.
#[must_use]
pub fn reason(status: u16) -> Option<&'static str> {
    let line = std::str::from_utf8(status_line(status)?).ok()?;
    line.get("HTTP/1.1 200 ".len()..line.len() - 2)
}

/// True if status and reason, as they stand behind the version, are what is sent for the status
/// anyway. So is nothing.
#[must_use]
pub fn is_usual(status: u16, text: &[u8]) -> bool {
    let line = status_line(status).unwrap_or_default();
    let usual = line
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|rest| rest.strip_suffix(b"\r\n"));
    text.is_empty() || usual == Some(text)
}

/// Declares the whole status lines.
macro_rules! status_lines {
    ($($status:literal $text:literal,)*) => {
        /// The whole status line with its line end; `None` where there is no text for the status.
        #[must_use]
        pub(crate) fn status_line(status: u16) -> Option<&'static [u8]> {
            match status {
                $($status => Some(concat!("HTTP/1.1 ", $status, " ", $text, "\r\n").as_bytes()),)*
                _ => None,
            }
        }
    };
}

status_lines! {
    100 "Continue",
    101 "Switching Protocols",
    103 "Early Hints",
    200 "OK",
    201 "Created",
    202 "Accepted",
    204 "No Content",
    206 "Partial Content",
    301 "Moved Permanently",
    302 "Moved Temporarily",
    303 "See Other",
    304 "Not Modified",
    307 "Temporary Redirect",
    308 "Permanent Redirect",
    400 "Bad Request",
    401 "Unauthorized",
    402 "Payment Required",
    403 "Forbidden",
    404 "Not Found",
    405 "Not Allowed",
    406 "Not Acceptable",
    407 "Proxy Authentication Required",
    408 "Request Time-out",
    409 "Conflict",
    410 "Gone",
    411 "Length Required",
    412 "Precondition Failed",
    413 "Request Entity Too Large",
    414 "Request-URI Too Large",
    415 "Unsupported Media Type",
    416 "Requested Range Not Satisfiable",
    421 "Misdirected Request",
    429 "Too Many Requests",
    500 "Internal Server Error",
    501 "Not Implemented",
    502 "Bad Gateway",
    503 "Service Temporarily Unavailable",
    504 "Gateway Time-out",
    505 "HTTP Version Not Supported",
    507 "Insufficient Storage",
}

/// The status that goes out for one that only the configuration knows: 494 to 497 are kinds of
/// bad requests.
#[must_use]
pub fn wire_status(status: u16) -> u16 {
    match status {
        494..=497 => 400,
        status => status,
    }
}

/// Writes the status line for a status, with nginx's text; a status without one is written as its
/// number and a space.
pub fn write_status(out: &mut BytesMut, status: u16) {
    out.reserve(USUAL_HEAD);
    match status_line(status) {
        Some(line) => out.put_slice(line),
        None => {
            out.put_slice(b"HTTP/1.1 ");
            if status < 100 {
                out.put_slice(if status < 10 { b"00" } else { b"0" });
            }
            write_number(out, u64::from(status));
            out.put_slice(b" \r\n");
        }
    }
}

/// Writes a status line with the status and text of an upstream (`404 Nothing here`).
pub fn write_status_text(out: &mut BytesMut, text: &[u8]) {
    out.reserve(USUAL_HEAD);
    out.put_slice(b"HTTP/1.1 ");
    write_value(out, text);
    out.put_slice(b"\r\n");
}

/// Writes the head of an answer: status line, fields, empty line.
pub fn write_response_head(out: &mut BytesMut, status: u16, fields: &Fields) {
    out.reserve(fields_len(fields) + USUAL_HEAD);
    write_status(out, status);
    write_fields(out, fields);
    end_head(out);
}

/// Writes a request line. The target is written as a path or URI that is encoded already; bytes
/// that would end it are percent-encoded, and an empty one becomes `/`.
pub fn write_request_line(out: &mut BytesMut, method: &[u8], target: &[u8], version: Version) {
    out.reserve(target.len() + USUAL_HEAD);
    write_token(out, method);
    out.put_u8(b' ');
    match target {
        [] => out.put_u8(b'/'),
        target => write_target(out, target),
    }
    // Nobody asks upstreams in HTTP/0.9.
    out.put_slice(match version {
        Version::Http09 | Version::Http10 => b" HTTP/1.0\r\n",
        Version::Http11 | Version::Http2 | Version::Http3 => b" HTTP/1.1\r\n",
    });
}

/// Writes one field.
pub fn write_field(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    write_name(out, name);
    out.put_slice(b": ");
    write_value(out, value);
    out.put_slice(b"\r\n");
}

/// Writes one field as a parser of heads has read it: name and value are good ones.
pub fn write_read_field(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    put_line(room(out, line_len(name, value)), name, value);
}

/// Writes one field with a known name. `known` must not be `Other`.
pub fn write_known(out: &mut BytesMut, known: Known, value: &[u8]) {
    write_checked(out, known.canonical().as_bytes(), value);
}

/// Writes a line that is whole and good already, its end included.
pub fn write_line(out: &mut BytesMut, line: &[u8]) {
    out.put_slice(line);
}

/// Writes the line of Content-Length.
pub fn write_content_length(out: &mut BytesMut, length: u64) {
    const AROUND: usize = "Content-Length: \r\n".len();
    let mut line = Backwards::<{ AROUND + DIGITS }>::new();
    line.prepend(b"\r\n");
    line.prepend_number(length);
    line.prepend(b"Content-Length: ");
    out.put_slice(line.as_bytes());
}

/// Writes all fields in order.
pub fn write_fields(out: &mut BytesMut, fields: &Fields) {
    let own = fields.parts(|lines| out.put_slice(lines));
    if !own.iter().all(is_good) {
        own.iter().for_each(|field| write_any(out, field));
        return;
    }
    let lens = own.iter().map(|field| line_len(&field.name, &field.value));
    let mut room = room(out, lens.sum());
    for field in own {
        room = put_line(room, &field.name, &field.value);
    }
}

/// True if name and value can go out as they are.
fn is_good(field: &Field) -> bool {
    // A known name is a good one.
    (field.known != Known::Other || is_good_name(&field.name)) && seek::is_one_line(&field.value)
}

/// Writes a field.
#[inline]
pub fn write_any(out: &mut BytesMut, field: &Field) {
    match field.known {
        Known::Other => write_field(out, &field.name, &field.value),
        _ => write_checked(out, &field.name, &field.value),
    }
}

/// Writes the empty line that ends a head.
pub fn end_head(out: &mut BytesMut) {
    out.put_slice(b"\r\n");
}

/// Writes a number in decimal digits.
pub(crate) fn write_number(out: &mut BytesMut, value: u64) {
    let mut digits = Backwards::<DIGITS>::new();
    digits.prepend_number(value);
    out.put_slice(digits.as_bytes());
}

/// Bytes that these fields take.
fn fields_len(fields: &Fields) -> usize {
    fields
        .iter()
        .map(|field| field.name.len() + field.value.len() + 4)
        .sum()
}

/// Writes one field with a name that is known to be good.
fn write_checked(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    if seek::is_one_line(value) {
        return write_read_field(out, name, value);
    }
    out.reserve(line_len(name, value));
    out.put_slice(name);
    out.put_slice(b": ");
    write_value(out, value);
    out.put_slice(b"\r\n");
}

/// Bytes of the line of a field.
fn line_len(name: &[u8], value: &[u8]) -> usize {
    name.len() + b": ".len() + value.len() + b"\r\n".len()
}

/// Room for more bytes at the end, to be written over: what is known together is copied without
/// a look at the buffer for each part.
fn room(out: &mut BytesMut, len: usize) -> &mut [u8] {
    let start = out.len();
    out.resize(start + len, 0);
    out.get_mut(start..).unwrap_or_default()
}

/// Writes a line, of which name and value are good ones; gives the rest of the room.
#[inline]
fn put_line<'a>(room: &'a mut [u8], name: &[u8], value: &[u8]) -> &'a mut [u8] {
    put(put(put(put(room, name), b": "), value), b"\r\n")
}

/// Writes a part; gives the rest of the room, which was made for all parts.
#[inline]
fn put<'a>(room: &'a mut [u8], part: &[u8]) -> &'a mut [u8] {
    match room.split_at_mut_checked(part.len()) {
        Some((place, rest)) => {
            place.copy_from_slice(part);
            rest
        }
        None => &mut [],
    }
}

/// Writes a value or text. INVARIANT 1.
fn write_value(out: &mut BytesMut, value: &[u8]) {
    if seek::is_one_line(value) {
        out.put_slice(value);
        return;
    }
    for byte in value {
        out.put_u8(match byte {
            b'\0' | b'\r' | b'\n' => b' ',
            byte => *byte,
        });
    }
}

/// Writes a name without what would end it. INVARIANT 1.
fn write_name(out: &mut BytesMut, name: &[u8]) {
    if is_good_name(name) {
        out.put_slice(name);
        return;
    }
    let is_good = |byte: &&u8| **byte > b' ' && **byte != b':' && **byte != 0x7f;
    for byte in name.iter().filter(is_good) {
        out.put_u8(*byte);
    }
}

/// True if nothing in a name would end it.
fn is_good_name(name: &[u8]) -> bool {
    seek::end_of_target(name) == name.len() && seek::colon(name) == name.len()
}

/// Writes a method without what has no place in one. INVARIANT 1.
fn write_token(out: &mut BytesMut, method: &[u8]) {
    if method.iter().all(u8::is_ascii_alphanumeric) {
        return out.put_slice(method);
    }
    for byte in method {
        if byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte) {
            out.put_u8(*byte);
        }
    }
}

/// Writes a target. INVARIANT 1.
fn write_target(out: &mut BytesMut, target: &[u8]) {
    if seek::end_of_target(target) == target.len() {
        out.put_slice(target);
        return;
    }
    for byte in target {
        if *byte > b' ' && *byte != 0x7f {
            out.put_u8(*byte);
        } else {
            // Masked to sixteen digits.
            let digit = |value: u8| b"0123456789ABCDEF"[usize::from(value & 15)];
            out.put_slice(&[b'%', digit(byte >> 4), digit(*byte)]);
        }
    }
}

#[cfg(test)]
mod tests;
