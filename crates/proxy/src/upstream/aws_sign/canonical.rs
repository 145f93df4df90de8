//! Paths, queries and fields in the one spelling that is signed.
//!
//! A path of S3 is the name of an object: its escapes are read, and everything but `A-Z a-z 0-9 - .
//! _ ~ /` is escaped, once. Other services sign the path that is sent, without dots and doubled
//! slashes, escaped once more. In a query everything but the unreserved is escaped, `+` is a space,
//! and arguments are sorted.

use millpond_semantics::uri::hex_value;

/// Bytes that stand for themselves besides letters and digits (RFC 3986 §2.3).
const UNRESERVED: &[u8] = b"-._~";
/// The same of a path.
const OF_PATHS: &[u8] = b"-._~/";

/// Meaning of a plus sign.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plus {
    Itself,
    Space,
}

/// The path of an object.
pub(super) fn object_path(path: &[u8]) -> Vec<u8> {
    escaped(&unescaped(path, Plus::Itself), OF_PATHS)
}

/// The path of another service, which gets it as it is.
pub(super) fn service_path(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let segments: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    for segment in &segments {
        match *segment {
            b"" | b"." => {}
            b".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let mut out = vec![b'/'];
    out.extend(escaped(&kept.join(&b'/'), OF_PATHS));
    let ends_in_folder = matches!(segments.last().copied(), Some(b"" | b"." | b".."));
    if ends_in_folder && !kept.is_empty() {
        out.push(b'/');
    }
    out
}

/// One argument of a query: its name, and its value if it has one.
pub(super) struct Argument {
    name: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// The arguments of a query in their order, escaped.
pub(super) fn arguments(query: &[u8]) -> Vec<Argument> {
    let spelt = |text: &[u8]| escaped(&unescaped(text, Plus::Space), UNRESERVED);
    let parts = query
        .split(|byte| *byte == b'&')
        .filter(|part| !part.is_empty());
    let read = |part: &[u8]| {
        let mut halves = part.splitn(2, |byte| *byte == b'=');
        Argument {
            name: spelt(halves.next().unwrap_or_default()),
            value: halves.next().map(spelt),
        }
    };
    parts.map(read).collect()
}

/// A query as it is sent: in its order.
pub(super) fn query(arguments: &[Argument]) -> Vec<u8> {
    let texts = arguments.iter().map(|argument| match &argument.value {
        Some(value) => [&argument.name[..], value].join(&b'='),
        None => argument.name.clone(),
    });
    texts.collect::<Vec<_>>().join(&b'&')
}

/// A query as it is signed: sorted, each argument with an equals sign.
pub(super) fn signed_query(arguments: &[Argument]) -> Vec<u8> {
    let empty = Vec::new();
    let mut pairs: Vec<_> = arguments
        .iter()
        .map(|argument| (&argument.name, argument.value.as_ref().unwrap_or(&empty)))
        .collect();
    pairs.sort();
    let texts: Vec<_> = pairs
        .into_iter()
        .map(|(name, value)| [&name[..], value].join(&b'='))
        .collect();
    texts.join(&b'&')
}

/// The value of a field: without spaces around it, and one for several.
pub(super) fn value(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for word in value.split(|byte| *byte == b' ') {
        if word.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
    out
}

/// The bytes that an escaped text stands for; a percent sign without two digits is itself.
fn unescaped(text: &[u8], plus: Plus) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let escape = match (*first, behind) {
            (b'%', [high, low, ..]) => hex_value(*high).zip(hex_value(*low)),
            _ => None,
        };
        match escape {
            Some((high, low)) => {
                out.push(high << 4 | low);
                rest = behind.get(2..).unwrap_or_default();
            }
            None if *first == b'+' && plus == Plus::Space => out.push(b' '),
            None => out.push(*first),
        }
    }
    out
}

fn escaped(bytes: &[u8], kept: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || kept.contains(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    out
}
