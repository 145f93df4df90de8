//! URLs of a command line and of lists: what is needed to ask for them.
//!
//! Only `http` and `https`, as ASCII that is encoded already: what a URL says is sent as it stands.

use anyhow::{Result, bail, ensure};

/// Scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// A URL, as far as it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    /// Scheme.
    pub(crate) scheme: Scheme,
    /// Host and port, as the field Host has them.
    pub(crate) authority: &'a str,
    /// Path and query.
    pub(crate) path: &'a str,
}

impl<'a> Url<'a> {
    /// Takes a URL apart; an error if it is none that can be asked for.
    pub(crate) fn parse(url: &'a str) -> Result<Url<'a>> {
        let (scheme, rest) = match url.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            _ => bail!("the URL is not http:// nor https://"),
        };
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        ensure!(!authority.is_empty(), "the URL has no host");
        let is_plain = |c: char| c.is_ascii_graphic();
        ensure!(
            url.chars().all(is_plain),
            "the URL has spaces or letters to be encoded"
        );
        let path = if path.is_empty() { "/" } else { path };
        Ok(Url {
            scheme,
            authority,
            path,
        })
    }

    /// Host and port to connect to.
    pub(crate) fn address(&self) -> String {
        match (self.has_port(), self.scheme) {
            (true, _) => self.authority.to_string(),
            (false, Scheme::Http) => format!("{}:80", self.authority),
            (false, Scheme::Https) => format!("{}:443", self.authority),
        }
    }

    fn has_port(&self) -> bool {
        let port = self.authority.rsplit_once(':').map(|(_, port)| port);
        port.is_some_and(|port| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()))
    }

    /// The host alone, without the brackets of an address.
    pub(crate) fn host(&self) -> &str {
        let host = match self.authority.rsplit_once(':') {
            Some((host, _)) if self.has_port() => host,
            _ => self.authority,
        };
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (url, authority, path, address, host) in [
            (
                "http://a.example/x?y",
                "a.example",
                "/x?y",
                "a.example:80",
                "a.example",
            ),
            (
                "http://127.0.0.1:81",
                "127.0.0.1:81",
                "/",
                "127.0.0.1:81",
                "127.0.0.1",
            ),
            ("https://[::1]/a", "[::1]", "/a", "[::1]:443", "::1"),
            ("http://[::1]:81/", "[::1]:81", "/", "[::1]:81", "::1"),
        ] {
            let target = Url::parse(url).unwrap();
            assert_eq!((target.authority, target.path), (authority, path));
            assert_eq!((target.address().as_str(), target.host()), (address, host));
        }
        for url in ["ftp://a/", "a.example", "http:///x", "http://a/b c"] {
            assert!(Url::parse(url).is_err(), "{url}");
        }
    }
}
