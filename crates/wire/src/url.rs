//! URLs in fields of answers, read against the URL that was asked (RFC 3986 §5.2).
//!
//! Only `http` and `https` can be asked, and no URL with a name and a password in it. Bytes that
//! cannot stand in a request line are escaped; a fragment is the client's, and does not go on.

use std::fmt;

/// A URL that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The origin.
    pub place: Place,
    /// Path and query.
    pub target: Vec<u8>,
}

/// Scheme of a URL that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

impl Scheme {
    /// The port of URLs that name none.
    #[must_use]
    pub fn usual_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }

    fn begin(self) -> &'static str {
        match self {
            Scheme::Http => "http://",
            Scheme::Https => "https://",
        }
    }
}

/// Scheme, host and port: an origin by RFC 6454.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The scheme.
    pub scheme: Scheme,
    /// The host in small letters; an IPv6 address has brackets.
    pub host: String,
    /// The port, also where it is the usual one.
    pub port: u16,
}

impl Place {
    /// The place of an authority; none for one that has a name in it, or is no host.
    #[must_use]
    pub fn of(scheme: Scheme, authority: &[u8]) -> Option<Place> {
        let whole = str::from_utf8(authority).ok()?;
        let text = whole.strip_suffix(':').unwrap_or(whole);
        let colon = text.rfind(':');
        let colon_of_port = colon.filter(|at| !text.get(*at..).unwrap_or_default().contains(']'));
        let (host, port) = match colon_of_port {
            Some(at) => (text.get(..at)?, text.get(at + 1..)?.parse().ok()?),
            None => (text, scheme.usual_port()),
        };
        let is_address = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok());
        let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = !host.is_empty() && host.bytes().all(is_of_names);
        (port != 0 && (is_address || is_name)).then(|| Place {
            scheme,
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// The Host field: without a port that is the usual one.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.port == self.scheme.usual_port() {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = String::from_utf8_lossy(&self.target);
        write!(
            f,
            "{}{}{target}",
            self.place.scheme.begin(),
            self.place.authority()
        )
    }
}

impl Url {
    /// The URL that a Location names; none if it is none to be asked.
    #[must_use]
    pub fn join(&self, location: &[u8]) -> Option<Url> {
        let text = location.split(|byte| *byte == b'#').next()?.trim_ascii();
        if let Some((scheme, rest)) = absolute(text) {
            return Url::with_authority(scheme, rest);
        }
        if let Some(rest) = text.strip_prefix(b"//") {
            return Url::with_authority(self.place.scheme, rest);
        }
        if has_scheme(text) {
            return None;
        }
        let own = self.target.split(|byte| *byte == b'?').next()?;
        let target = match text {
            b"" => self.target.clone(),
            [b'?', ..] => [own, text].concat(),
            [b'/', ..] => without_dots(text),
            _ => {
                let end = own.iter().rposition(|byte| *byte == b'/')?;
                let folder = own.get(..=end)?;
                without_dots(&[folder, text].concat())
            }
        };
        Some(Url {
            place: self.place.clone(),
            target: escaped(&target),
        })
    }

    fn with_authority(scheme: Scheme, rest: &[u8]) -> Option<Url> {
        let end = rest.iter().position(|byte| b"/?".contains(byte));
        let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let target = match rest {
            [b'/', ..] => without_dots(rest),
            rest => [b"/", rest].concat(),
        };
        Some(Url {
            place: Place::of(scheme, authority)?,
            target: escaped(&target),
        })
    }
}

/// A scheme that can be asked, and the rest behind it.
fn absolute(text: &[u8]) -> Option<(Scheme, &[u8])> {
    let behind = |scheme: Scheme| {
        let (begin, rest) = text.split_at_checked(scheme.begin().len())?;
        let is_it = begin.eq_ignore_ascii_case(scheme.begin().as_bytes());
        is_it.then_some((scheme, rest))
    };
    behind(Scheme::Http).or_else(|| behind(Scheme::Https))
}

/// True for a text with a scheme before all else.
fn has_scheme(text: &[u8]) -> bool {
    let end = text.iter().position(|byte| b":/?".contains(byte));
    end.is_some_and(|at| text.get(at) == Some(&b':'))
}

/// RFC 3986 §5.2.4, of the path before a query.
fn without_dots(target: &[u8]) -> Vec<u8> {
    let end = target.iter().position(|byte| *byte == b'?');
    let (path, query) = target.split_at(end.unwrap_or(target.len()));
    let segments: Vec<&[u8]> = path.split(|byte| *byte == b'/').skip(1).collect();
    let last = segments.len().saturating_sub(1);
    let mut kept: Vec<&[u8]> = Vec::new();
    for (index, segment) in segments.into_iter().enumerate() {
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    kept.pop();
                }
                if index == last {
                    kept.push(b"");
                }
            }
            segment => kept.push(segment),
        }
    }
    [b"/", &kept.join(&b'/')[..], query].concat()
}

/// Escapes what cannot stand in a request line.
fn escaped(target: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(target.len());
    for byte in target {
        if byte.is_ascii_graphic() {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Url {
        Url {
            place: Place::of(Scheme::Https, b"a.example").unwrap(),
            target: b"/d/e?q".to_vec(),
        }
    }

    /// RFC 3986 §5.4, as far as it is about http.
    #[test]
    fn references_are_resolved() {
        for (location, expected) in [
            ("https://b.example/x?y#z", "https://b.example/x?y"),
            ("HTTP://B.example:80", "http://b.example/"),
            ("http://b.example:443/", "http://b.example:443/"),
            ("https://b.example:443?x", "https://b.example/?x"),
            ("//b.example:8080/x", "https://b.example:8080/x"),
            ("/x/../y/./z", "https://a.example/y/z"),
            ("/x/..", "https://a.example/"),
            ("../../x", "https://a.example/x"),
            ("x", "https://a.example/d/x"),
            ("./x?../y", "https://a.example/d/x?../y"),
            ("?x", "https://a.example/d/e?x"),
            ("", "https://a.example/d/e?q"),
            ("#x", "https://a.example/d/e?q"),
            ("/a b\u{e4}", "https://a.example/a%20b%C3%A4"),
            ("//b//c", "https://b//c"),
            ("http://[::1]:81/", "http://[::1]:81/"),
        ] {
            let there = base().join(location.as_bytes()).map(|url| url.to_string());
            assert_eq!(there.as_deref(), Some(expected), "{location}");
        }
    }

    #[test]
    fn what_is_no_url_of_http_is_none() {
        for location in [
            "ftp://b.example/",
            "javascript:alert(1)",
            "http:///x",
            "http://me@b.example/",
            "http://me:secret@b.example/",
            "http://b.example:0/",
            "http://b.example:99999/",
            "http://b .example/",
            "http://[::1/",
            "http://b.example\r\nX: y/",
        ] {
            assert_eq!(base().join(location.as_bytes()), None, "{location}");
        }
    }
}
