//! Names of subjects and issuers as text, in the two forms of nginx.
//!
//! | form | variable | OpenSSL |
//! |---|---|---|
//! | RFC 2253, last part first | `$ssl_client_s_dn` | `X509_NAME_print_ex` with `XN_FLAG_RFC2253` |
//! | one line with slashes | `$ssl_client_s_dn_legacy` | `X509_NAME_oneline` |
//!
//! The safe binding has neither, so both are written here, byte for byte as OpenSSL writes them:
//! its table of short names is asked, its rules of escaping are obeyed.
//!
//! 1. A name whose bytes do not fit the type of a part has no RFC 2253 form (OpenSSL fails, too).

use std::fmt::Write as _;

use openssl::nid::Nid;
use openssl::x509::X509NameRef;

use super::der::{OBJECT, Reader, SEQUENCE, SET};

/// One part of a name: `CN=x`.
#[derive(Debug)]
struct Part {
    /// The short name of its kind, or the numbers of its object.
    kind: String,
    is_known: bool,
    /// The place of its set in the name: parts of one set are joined by `+`.
    set: usize,
    /// The tag of the value.
    tag: u8,
    value: Vec<u8>,
    /// Tag, length and value.
    whole: Vec<u8>,
}

/// The name in the form of RFC 2253.
pub(crate) fn rfc2253(name: &X509NameRef) -> Option<String> {
    let parts = parts(name)?;
    let mut text = String::new();
    let mut set = None;
    for part in parts.iter().rev() {
        if let Some(set) = set {
            text.push(if set == part.set { '+' } else { ',' });
        }
        set = Some(part.set);
        text.push_str(&part.kind);
        text.push('=');
        write_value(&mut text, part)?;
    }
    Some(text)
}

/// The name in one line: `/O=x/CN=y`.
pub(crate) fn one_line(name: &X509NameRef) -> Option<String> {
    let parts = parts(name)?;
    let mut text = String::new();
    let mut set = None;
    for part in &parts {
        text.push(if set == Some(part.set) { '+' } else { '/' });
        set = Some(part.set);
        text.push_str(&part.kind);
        text.push('=');
        write_one_line(&mut text, part);
    }
    Some(text)
}

/// The parts of a name, in the order of its bytes.
fn parts(name: &X509NameRef) -> Option<Vec<Part>> {
    let der = name.to_der().ok()?;
    let mut sets = Reader(Reader(&der).expect(SEQUENCE)?.body);
    let mut objects = name.entries();
    let mut parts = Vec::new();
    let mut index = 0;
    while !sets.0.is_empty() {
        let mut members = Reader(sets.expect(SET)?.body);
        while !members.0.is_empty() {
            let mut fields = Reader(members.expect(SEQUENCE)?.body);
            fields.expect(OBJECT)?;
            let value = fields.read()?;
            let object = objects.next()?.object();
            let known = (object.nid() != Nid::UNDEF)
                .then(|| object.nid().short_name().ok())
                .flatten();
            parts.push(Part {
                kind: known.map_or_else(|| object.to_string(), ToOwned::to_owned),
                is_known: known.is_some(),
                set: index,
                tag: value.tag,
                value: value.body.to_vec(),
                whole: value.whole.to_vec(),
            });
        }
        index += 1;
    }
    Some(parts)
}

/// Writes a value as RFC 2253 has it.
fn write_value(text: &mut String, part: &Part) -> Option<()> {
    let width = match part.tag {
        _ if !part.is_known => None,
        // UTF8String: its bytes are taken as they are.
        0x0c => Some(Width::Utf8),
        // NumericString, PrintableString, T61String, IA5String, times, VisibleString.
        0x12 | 0x13 | 0x14 | 0x16 | 0x17 | 0x18 | 0x1a => Some(Width::Bytes(1)),
        0x1c => Some(Width::Bytes(4)),
        0x1e => Some(Width::Bytes(2)),
        _ => None,
    };
    let Some(width) = width else {
        text.push('#');
        for byte in &part.whole {
            let _ = write!(text, "{byte:02X}");
        }
        return Some(());
    };
    let bytes = match width {
        Width::Utf8 => part.value.clone(),
        Width::Bytes(width) => to_utf8(&part.value, width)?,
    };
    let last = bytes.len().saturating_sub(1);
    for (at, byte) in bytes.iter().enumerate() {
        // A space is special at both ends, a `#` at the first.
        let is_special = match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => true,
            b' ' => at == 0 || at == last,
            b'#' => at == 0,
            _ => false,
        };
        if is_special {
            text.push('\\');
        }
        write_byte(text, *byte);
    }
    Some(())
}

/// The way in which characters lie in a value.
#[derive(Clone, Copy, Debug)]
enum Width {
    Utf8,
    Bytes(usize),
}

/// Characters of so many bytes each, as UTF-8.
fn to_utf8(value: &[u8], width: usize) -> Option<Vec<u8>> {
    if !value.len().is_multiple_of(width) {
        return None;
    }
    let text: Option<String> = value
        .chunks(width)
        .map(|bytes| {
            bytes
                .iter()
                .fold(0, |code, byte| code << 8 | u32::from(*byte))
        })
        .map(char::from_u32)
        .collect();
    text.map(String::into_bytes)
}

/// Writes a byte of UTF-8, in hexadecimal digits if it is not printable.
fn write_byte(text: &mut String, byte: u8) {
    if (b' '..=b'~').contains(&byte) {
        text.push(char::from(byte));
    } else {
        let _ = write!(text, "\\{byte:02X}");
    }
}

/// Writes a value as `X509_NAME_oneline` does.
fn write_one_line(text: &mut String, part: &Part) {
    // A GeneralString of four bytes a character is printed by its last ones.
    let is_wide = part.tag == 0x1b
        && part.value.len().is_multiple_of(4)
        && part
            .value
            .chunks(4)
            .all(|bytes| bytes.iter().take(3).all(|byte| *byte == 0));
    for (at, byte) in part.value.iter().enumerate() {
        if is_wide && at % 4 != 3 {
            continue;
        }
        if !(b' '..=b'~').contains(byte) {
            let _ = write!(text, "\\x{byte:02X}");
            continue;
        }
        if matches!(byte, b'/' | b'+') {
            text.push('\\');
        }
        text.push(char::from(*byte));
    }
}
