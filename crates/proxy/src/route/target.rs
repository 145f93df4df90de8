//! `merge_slashes`: from the request line's target to path, query and host.
//!
//! The target's own authority wins over the Host field. What the head's parser has checked already
//! (the form of both hosts, one Host field only, none missing) is not checked again.
//!
//! Invariants:
//! 1. After success `uri` begins with a slash, is normalized and holds no NUL.
//! 2. Nothing is copied for a path that is normal already: path and query share the head's bytes.

use std::borrow::Cow;
use std::rc::Rc;

use bytes::Bytes;
use millpond_semantics::uri::{MergeSlashes, normalize};

use crate::request::{Request, Unparsed};

/// The words of nginx for every target that it cannot read.
const INVALID: &str = "client sent invalid request";

/// Takes the target and the Host field apart; the error is a status and why.
///
/// The request's server must be the default one of its listener: its `merge_slashes` counts.
pub fn apply(req: &mut Request) -> Result<(), (u16, String)> {
    let head = Rc::clone(&req.head);
    put_path(req, head.share(head.uri()))?;
    req.unparsed = Unparsed::Head;
    if let Some(host) = head.host() {
        req.host_port = host.port.filter(|port| *port > 0);
        req.host = host.write_lower(head.bytes());
    }
    Ok(())
}

/// Makes `raw` (a path, maybe with a query) the request's URI; the error is a status and why.
pub fn set_path(req: &mut Request, raw: &Bytes) -> Result<(), (u16, String)> {
    put_path(req, raw.clone())?;
    req.unparsed = Unparsed::Own(raw.clone());
    Ok(())
}

fn put_path(req: &mut Request, raw: Bytes) -> Result<(), (u16, String)> {
    if is_plain(&raw) {
        req.uri = raw;
        req.set_query(None);
        req.path.is_quoted = false;
        req.path.has_escapes = false;
        req.path.is_changed = false;
        return Ok(());
    }
    let (path, query) = split(&raw);
    let merge = if req.server.settings.head.merge_slashes {
        MergeSlashes::On
    } else {
        MergeSlashes::Off
    };
    // An absolute target may have a query and no path.
    let is_pathless = path.is_empty() && !raw.is_empty();
    let whole: &[u8] = if is_pathless { b"/" } else { path };
    let normal = normalize(whole, merge).map_err(|_| (400, INVALID.to_string()))?;
    req.path.is_quoted = memchr::memchr(b'%', path).is_some();
    req.path.has_escapes = req.path.is_quoted || memchr::memchr(b'+', path).is_some();
    req.uri = match normal {
        Cow::Borrowed(path) if is_pathless => Bytes::copy_from_slice(path),
        Cow::Borrowed(path) => raw.slice_ref(path),
        Cow::Owned(path) => Bytes::from(path),
    };
    req.path.is_changed = is_pathless;
    // nginx: a question mark with nothing behind it is no query.
    let is_there = !query.is_empty();
    req.set_query(is_there.then(|| raw.slice_ref(query)));
    Ok(())
}

/// Bytes of a target that are looked at together.
const BLOCK: usize = 16;

/// True if a target is a path alone that is normal and has nothing to be unescaped, or looks like
/// one. Most are.
fn is_plain(raw: &[u8]) -> bool {
    let ([b'/', after @ ..], Some((_, before))) = (raw, raw.split_last()) else {
        return false;
    };
    // Both have one byte less than the target: the last blocks are there for both, or for none.
    match (before.last_chunk::<BLOCK>(), after.last_chunk::<BLOCK>()) {
        (Some(last_before), Some(last)) => {
            let befores = before.as_chunks::<BLOCK>().0;
            let mut blocks = befores.iter().zip(after.as_chunks::<BLOCK>().0);
            !has_mark(last_before, last) && !blocks.any(|(before, block)| has_mark(before, block))
        }
        _ => !before
            .iter()
            .zip(after)
            .any(|(before, byte)| is_mark(*before, *byte)),
    }
}

/// True if one of the bytes is a mark, each behind the one before.
fn has_mark(before: &[u8; BLOCK], block: &[u8; BLOCK]) -> bool {
    // Without an early end, so that compilers make a few instructions of it; counted by hand, since
    // builds without optimization call a function for each step of an iterator.
    let (mut has, mut at) = (false, 0);
    while at < BLOCK {
        has |= is_mark(before[at], block[at]);
        at += 1;
    }
    has
}

/// True if a byte, behind that one, shows that more than a plain path is there.
#[inline]
fn is_mark(before: u8, byte: u8) -> bool {
    let is_escape = (byte == b'%') | (byte == b'+');
    let is_end = (byte == b'?') | (byte == b'#') | (byte == 0);
    let is_step = (before == b'/') & ((byte == b'/') | (byte == b'.'));
    is_escape | is_end | is_step
}

/// Path and query; a fragment is part of neither.
fn split(raw: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(b'#', raw).unwrap_or(raw.len());
    let raw = raw.get(..end).unwrap_or(raw);
    match memchr::memchr(b'?', raw).and_then(|mark| raw.split_at_checked(mark)) {
        Some((path, query)) => (path, query.get(1..).unwrap_or_default()),
        None => (raw, b""),
    }
}

#[cfg(test)]
mod tests {
    use millpond_semantics::uri::{MergeSlashes, normalize};

    use super::{is_plain, split};

    #[test]
    fn a_plain_target_is_its_own_path() {
        for (raw, expected) in [
            ("/", true),
            ("/a/b.c~d:e", true),
            ("/\u{e4}", true),
            ("", false),
            ("a", false),
            ("/a//b", false),
            ("/a/.b", false),
            ("/%41", false),
            ("/a+b", false),
            ("/a?b", false),
            ("/a#b", false),
            ("/a\0", false),
        ] {
            assert_eq!(is_plain(raw.as_bytes()), expected, "{raw}");
            if expected {
                for merge in [MergeSlashes::On, MergeSlashes::Off] {
                    let normal = normalize(raw.as_bytes(), merge);
                    assert_eq!(normal.as_deref(), Ok(raw.as_bytes()), "{raw}");
                }
                assert_eq!(split(raw.as_bytes()), (raw.as_bytes(), &b""[..]));
            }
        }
    }

    #[test]
    fn a_mark_is_seen_wherever_it_stands() {
        for len in 1..70 {
            let plain = format!("/{}", "a".repeat(len));
            assert!(is_plain(plain.as_bytes()), "{len}");
            for at in 0..len {
                for mark in ["%", "+", "?", "#", "\0", "//", "/."] {
                    let mut marked = plain.clone();
                    marked.replace_range(1 + at..1 + at, mark);
                    assert!(!is_plain(marked.as_bytes()), "{marked}");
                }
            }
        }
    }

    #[test]
    fn targets_are_split_at_the_first_mark_and_end_at_the_fragment() {
        for (raw, path, query) in [
            ("/", "/", ""),
            ("/a?b", "/a", "b"),
            ("/a?b?c", "/a", "b?c"),
            ("/a?", "/a", ""),
            ("?b", "", "b"),
            ("/a#b?c", "/a", ""),
            ("/a?b#c", "/a", "b"),
        ] {
            assert_eq!(
                split(raw.as_bytes()),
                (path.as_bytes(), query.as_bytes()),
                "{raw}"
            );
        }
    }
}
