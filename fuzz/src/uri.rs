//! URIs and hosts: a normal path stays below the root and is normal; escaping and unescaping are
//! inverse; the name of a host is its own form.

use std::borrow::Cow;

use bytes::Bytes;
use millpond_semantics::uri::{
    EscapeKind, MergeSlashes, escape, escape_html, normalize, safe_uri, unescape,
    unescape_redirect, unescape_uri,
};
use millpond_wire::http1::host::Host;

/// Reads a value as path, host and text.
pub fn run(data: &[u8]) {
    check_normal(data, MergeSlashes::On);
    check_normal(data, MergeSlashes::Off);
    for kind in [EscapeKind::Uri, EscapeKind::Args, EscapeKind::UriComponent] {
        let escaped = escape(data, kind);
        assert!(escaped.len() <= data.len() * 3);
        assert_eq!(&unescape(&escaped)[..], data);
    }
    assert!(unescape_uri(data).len() <= data.len());
    assert!(unescape_redirect(data).len() <= data.len());
    assert!(
        !escape_html(data)
            .iter()
            .any(|byte| matches!(byte, b'<' | b'>' | b'"'))
    );
    check_host(data);
    if let Ok(safe) = safe_uri(data) {
        let mut segments = safe.path.split(|byte| *byte == b'/');
        assert!(!safe.path.contains(&0) && !segments.any(|segment| segment == b".."));
    }
}

fn check_host(data: &[u8]) {
    let whole = Bytes::copy_from_slice(data);
    let Some(host) = Host::parse(&whole) else {
        return;
    };
    let is_graphic = |byte: &u8| byte.is_ascii_graphic() && *byte != b'/';
    assert!(!host.name.is_empty() && host.name.iter().all(is_graphic));
    let lower = host.write_lower(&whole);
    assert_eq!(&lower[..], host.name.to_ascii_lowercase());
    let again = Host::parse(&lower).map(|host| (host.name, host.port));
    let name = Some((&lower[..], None));
    assert_eq!(again, name, "a valid name is its own form");
}

fn check_normal(data: &[u8], merge: MergeSlashes) {
    let path = [b"/", data].concat();
    let Ok(normal) = normalize(&path, merge) else {
        return;
    };
    assert!(normal.starts_with(b"/") && normal.len() <= path.len());
    assert!(!normal.contains(&0));
    for segment in normal.split(|byte| *byte == b'/') {
        assert!(segment != b"." && segment != b"..");
    }
    if merge == MergeSlashes::On {
        assert!(!normal.windows(2).any(|pair| pair == b"//"));
    }
    // A normal path, escaped, is normal.
    let escaped = escape(&normal, EscapeKind::UriComponent);
    let escaped: Vec<u8> = match &escaped {
        Cow::Borrowed(text) => text.to_vec(),
        Cow::Owned(text) => text.clone(),
    };
    let slashes = String::from_utf8_lossy(&escaped)
        .replace("%2F", "/")
        .into_bytes();
    let again = normalize(&slashes, merge);
    assert_eq!(
        again.as_deref(),
        Ok(&normal[..]),
        "normalizing twice differs"
    );
}
