//! The URL of an entry, as far as its key and its host tell it.
//!
//! A key is what a configuration makes of a request: most have the path in them, some have a scheme
//! before it, and any byte of a client's may be there.

/// The path is what begins with the first slash of the key, behind a scheme; what can be no part of
/// a URL (RFC 3986 §2) is escaped.
pub(super) fn url(key: &[u8], host: &str) -> Option<String> {
    let schemes = ["http://", "https://"];
    let scheme = schemes
        .into_iter()
        .find(|scheme| key.starts_with(scheme.as_bytes()));
    let rest = key.get(scheme.unwrap_or_default().len()..)?;
    let path = rest.get(rest.iter().position(|byte| *byte == b'/')?..)?;
    if host.is_empty() {
        return None;
    }
    let mut url = format!("{}{host}", scheme.unwrap_or("//"));
    for byte in path {
        if byte.is_ascii_graphic() {
            url.push(char::from(*byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_told_if_host_and_key_tell_it() {
        for (key, host, expected) in [
            ("shop/a?b", "shop", Some("//shop/a?b")),
            ("http://origin/a", "shop", Some("http://shop/a")),
            ("https://shop/", "shop", Some("https://shop/")),
            ("httporigin:80/a/b", "shop", Some("//shop/a/b")),
            ("http://shop", "shop", None),
            ("no path", "shop", None),
            ("/a", "", None),
        ] {
            assert_eq!(url(key.as_bytes(), host).as_deref(), expected, "{key}");
        }
    }

    /// RFC 3986 §2: a URL that is listed can be asked for, whatever bytes are in the key.
    #[test]
    fn bytes_that_no_url_has_are_escaped() {
        for (key, expected) in [
            (&b"http://k/a?b=%20"[..], Some("http://h/a?b=%20")),
            (b"host/\xff /\xc3\xa9\r", Some("//h/%FF%20/%C3%A9%0D")),
            (b"no slash", None),
        ] {
            assert_eq!(url(key, "h").as_deref(), expected);
        }
        assert_eq!(url(b"/a", ""), None);
    }
}
