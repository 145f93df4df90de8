//! Places that a certificate or a key comes from: a file, the text itself, a store.
//!
//! `data:TEXT` is the text; `store:file:/x`, `store:file:///x` and `store:/x` name a file that
//! holds a key in any of its forms; `engine:NAME:ID` is refused. All else is a file, whose name the
//! caller makes absolute.

use super::failure::Failure;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// A file.
    File(&'a str),
    /// The text of the value itself.
    Text(&'a str),
    /// A file that is read as a store of keys.
    Store(&'a str),
}

impl<'a> Source<'a> {
    /// The place of a certificate.
    pub fn of_certificate(value: &'a str) -> Self {
        match value.strip_prefix("data:") {
            Some(text) => Self::Text(text),
            None => Self::File(value),
        }
    }

    /// The place of a key.
    pub fn of_key(value: &'a str) -> Result<Self, Failure> {
        if value.starts_with("engine:") {
            let step = "loading \"engine:...\" certificate keys is not supported";
            return Err(Failure::plain(step));
        }
        let Some(uri) = value.strip_prefix("store:") else {
            return Ok(Self::of_certificate(value));
        };
        stored(uri)
            .map(Self::Store)
            .ok_or_else(|| unknown_scheme(uri))
    }
}

/// The file of a URI, if it has the scheme `file` or none.
fn stored(uri: &str) -> Option<&str> {
    let Some(rest) = uri.strip_prefix("file:") else {
        let has_scheme = uri
            .split_once(':')
            .is_some_and(|(scheme, _)| !scheme.contains('/'));
        return (!has_scheme).then_some(uri);
    };
    let Some(with_host) = rest.strip_prefix("//") else {
        return Some(rest);
    };
    match with_host.strip_prefix("localhost") {
        Some(path) if path.starts_with('/') => Some(path),
        _ => with_host.starts_with('/').then_some(with_host),
    }
}

/// The failure of a store that nothing here can open.
fn unknown_scheme(uri: &str) -> Failure {
    let scheme = uri.split(':').next().unwrap_or_default();
    Failure::because(
        "OSSL_STORE_open() failed",
        format!("error:16000069:STORE routines::unregistered scheme:scheme={scheme}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_their_places() {
        assert_eq!(Source::of_certificate("data:x"), Source::Text("x"));
        assert_eq!(Source::of_certificate("store:x"), Source::File("store:x"));
        for (value, place) in [
            ("a.key", Source::File("a.key")),
            ("data:k", Source::Text("k")),
            ("store:file:/a", Source::Store("/a")),
            ("store:file:///a", Source::Store("/a")),
            ("store:file://localhost/a", Source::Store("/a")),
            ("store:a/b:c", Source::Store("a/b:c")),
        ] {
            assert_eq!(Source::of_key(value).unwrap(), place);
        }
    }

    #[test]
    fn engines_and_other_stores_are_refused_by_name() {
        for (value, text) in [
            (
                "engine:e:k",
                "loading \"engine:...\" certificate keys is not supported",
            ),
            (
                "store:pkcs11:token=x",
                "OSSL_STORE_open() failed (SSL: error:16000069:STORE routines::unregistered \
                 scheme:scheme=pkcs11)",
            ),
        ] {
            assert_eq!(Source::of_key(value).unwrap_err().to_string(), text);
        }
    }
}
