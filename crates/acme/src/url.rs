//! URLs of an authority: a directory, and what it names.
//!
//! They are absolute; a path is joined to the URL of the answer that it stands in.

use std::fmt;

use millpond_system::network;

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// An absolute URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    pub(crate) scheme: Scheme,
    /// The host, without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The place in `text` at which the path begins.
    path: usize,
}

impl Url {
    /// Reads an absolute URL.
    pub fn parse(text: &str) -> Result<Url, String> {
        let invalid = |why: &str| format!("invalid URL \"{text}\": {why}");
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid("it has characters that no URL has"));
        }
        let (scheme, port, start) = match text.split_once("://") {
            Some((name, _)) if name.eq_ignore_ascii_case("https") => (Scheme::Https, 443, 8),
            Some((name, _)) if name.eq_ignore_ascii_case("http") => (Scheme::Http, 80, 7),
            _ => return Err(invalid("it begins with neither https:// nor http://")),
        };
        let rest = text.get(start..).unwrap_or_default();
        let len = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = rest.get(..len).unwrap_or_default();
        if authority.contains('@') {
            return Err(invalid("it names a user"));
        }
        let (host, port) = network::split_port(authority, port).map_err(|why| invalid(&why))?;
        if host.is_empty() {
            return Err(invalid("it has no host"));
        }
        Ok(Url {
            text: text.to_owned(),
            scheme,
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            path: start + len,
        })
    }

    /// Reads a URL that an answer from here names, which may be a path.
    pub(crate) fn join(&self, reference: &str) -> Result<Url, String> {
        if !reference.starts_with('/') || reference.starts_with("//") {
            return Url::parse(reference);
        }
        let origin = self.text.get(..self.path).unwrap_or_default();
        Url::parse(&format!("{origin}{reference}"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The target of a request.
    pub(crate) fn target(&self) -> String {
        let rest = self.text.get(self.path..).unwrap_or_default();
        let target = rest.split('#').next().unwrap_or_default();
        if target.starts_with('/') {
            return target.to_owned();
        }
        format!("/{target}")
    }

    /// The authority, as it is written.
    pub(crate) fn authority(&self) -> &str {
        let start = self.text.find("://").map_or(0, |at| at + 3);
        self.text.get(start..self.path).unwrap_or_default()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_host_and_a_target() {
        for (text, expected) in [
            (
                "https://a.example/dir?x#y",
                Some(("a.example", 443, "/dir?x")),
            ),
            ("HTTP://a:81", Some(("a", 81, "/"))),
            ("https://[::1]:14000/dir", Some(("::1", 14000, "/dir"))),
            ("https://a?x", Some(("a", 443, "/?x"))),
            ("ftp://a/", None),
            ("https:///", None),
            ("https://a:x/", None),
            ("https://u@a/", None),
            ("https://a/ b", None),
            ("a/b", None),
        ] {
            let read = Url::parse(text).ok();
            let found = read.as_ref().map(|it| (&*it.host, it.port, it.target()));
            let expected = expected.map(|(host, port, path)| (host, port, path.to_owned()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn references_are_paths_or_urls() {
        let base = Url::parse("https://a:1/b/c").unwrap();
        for (reference, expected) in [
            ("/x", Some("https://a:1/x")),
            ("https://b/", Some("https://b/")),
            ("x", None),
            ("//b/", None),
        ] {
            let joined = base.join(reference).ok();
            assert_eq!(joined.as_ref().map(Url::as_str), expected, "{reference}");
        }
    }
}
