//! Use-As-Dictionary and Available-Dictionary: a pattern that is a plain path is for that path, and
//! what has a wildcard in its place is for it, too.

use millpond_semantics::dictionary::{Offer, available, id};

/// Reads an offer for a path, and compares a target with it.
pub fn run(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (field, path, target) = (part(), part(), part());
    let origin = b"https://shop.example";
    if let Some(hash) = available(field) {
        assert_eq!(hash.len(), 32);
    }
    let _ = id(field);
    if let Some(offer) = Offer::parse([field], (origin, path)) {
        let _ = offer.is_for(target);
    }
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'.');
    let is_relative = path.starts_with(b"/") && !path.starts_with(b"//");
    if is_relative && path.iter().all(is_plain) && path.len() < 1000 {
        let text = String::from_utf8_lossy(path);
        for pattern in [format!("match=\"{text}\""), format!("match=\"{text}*\"")] {
            let offer = Offer::parse([pattern.as_bytes()], (origin, b"/other"));
            assert!(offer.is_some_and(|it| it.is_for(path)));
        }
    }
}
