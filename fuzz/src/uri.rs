//! URIs: a normal path stays below the root and is normal; escaping and unescaping are inverse.

use std::borrow::Cow;

use millpond_semantics::host::validate_host;
use millpond_semantics::uri::{
    EscapeKind, MergeSlashes, escape, escape_html, is_unsafe_path, normalize, parse_target,
    safe_uri, unescape, unescape_redirect, unescape_uri,
};

/// Reads a value as target, path, host and text.
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
    if let Ok(target) = parse_target(data)
        && let Some(parts) = target.path_and_query()
    {
        assert!(!parts.path.is_empty() && !parts.raw.is_empty());
        assert!(!parts.path.contains(&b'?') && !parts.path.contains(&b'#'));
    }
    if let Ok(host) = validate_host(data) {
        assert!(!host.name.is_empty() && !host.name.iter().any(u8::is_ascii_uppercase));
        let again = validate_host(&host.name).map(|host| host.name.into_owned());
        assert_eq!(
            again.as_deref(),
            Ok(&host.name[..]),
            "a valid host is its own form"
        );
    }
    if safe_uri(data).is_ok() {
        assert!(!is_unsafe_path(data));
    }
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
