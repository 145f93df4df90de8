//! URLs that scripts ask: where they lead, and what is asked there.
//!
//! 1. A host is a name or an address, so that it may stand in a field.
//! 2. A path has no blanks and no control characters, so that it may stand in a request line.

/// The longest host (RFC 1035 §2.3.4).
const MAX_HOST: usize = 255;

/// The place that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// True for `https`.
    pub is_encrypted: bool,
    /// The host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Host and port, as they were written.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

/// A proxy that passes requests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The name and the password that it is told, with a colon between them.
    pub credentials: Option<Vec<u8>>,
}

/// The port of a proxy whose URL has none (nginx's number).
const FORWARD_PORT: u16 = 3128;

impl Forward {
    /// Reads `http://[user:password@]host[:port]`; none for an empty text. The error is for people.
    pub fn read(text: &str) -> Result<Option<Forward>, &'static str> {
        if text.is_empty() {
            return Ok(None);
        }
        let rest = text
            .strip_prefix("http://")
            .ok_or("js_fetch_proxy URL must use http:// scheme")?;
        let (credentials, place) = match rest.split_once('@') {
            None => (None, rest),
            Some((given, place)) => {
                let form = "js_fetch_proxy URL credentials must be in user:password format";
                let (user, password) = given.rsplit_once(':').ok_or(form)?;
                let (user, password) = (unescaped(user), unescaped(password));
                if user.is_empty() || password.is_empty() {
                    return Err("js_fetch_proxy user or password is empty");
                }
                (Some([&user[..], b":", &password].concat()), place)
            }
        };
        let invalid = "invalid proxy URL";
        let place = place.strip_suffix('/').unwrap_or(place);
        let (host, port) = split(place).ok_or(invalid)?;
        Ok(Some(Forward {
            host: host.to_string(),
            port: port.map_or(Some(FORWARD_PORT), number).ok_or(invalid)?,
            credentials,
        }))
    }
}

/// The bytes that a text with percent escapes stands for; what is no escape stays.
fn unescaped(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut made = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let escaped = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        made.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    made
}

/// The reason why a URL is none that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme.
    #[error("unsupported URL schema (only http or https are supported)")]
    Scheme,
    /// A mistake in it.
    #[error("invalid url")]
    Invalid,
}

impl Url {
    /// Reads a URL; its path is looked at by [`Url::may_be_asked`].
    pub fn read(text: &str) -> Result<Url, UrlError> {
        let (is_encrypted, rest) = match (after(text, "http://"), after(text, "https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(UrlError::Scheme),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = split(authority).ok_or(UrlError::Invalid)?;
        let port = match port {
            None if is_encrypted => 443,
            None => 80,
            Some(digits) => number(digits).ok_or(UrlError::Invalid)?,
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Url {
            is_encrypted,
            host: host.to_string(),
            port,
            authority: authority.to_string(),
            path: format!("{slash}{path}"),
        })
    }

    /// True if the path may stand in a request line.
    pub fn may_be_asked(&self) -> bool {
        self.path.bytes().all(|byte| byte > b' ' && byte != 127)
    }
}

/// The text behind a scheme, which has letters of any case.
fn after<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// Host and port of an authority.
fn split(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let is_address = host.parse::<std::net::Ipv6Addr>().is_ok();
        return match port.strip_prefix(':') {
            _ if !is_address => None,
            None if port.is_empty() => Some((host, None)),
            None => None,
            port => Some((host, port)),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_name = (1..=MAX_HOST).contains(&host.len()) && host.bytes().all(is_of_name);
    is_name.then_some((host, port))
}

fn number(digits: &str) -> Option<u16> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let port: Option<u16> = is_number.then(|| digits.parse().ok()).flatten();
    port.filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_with_what_they_are_told() {
        let read =
            |text| Forward::read(text).map(|it| it.map(|it| (it.host, it.port, it.credentials)));
        let forward = |host: &str, port, told: Option<&str>| {
            let told = told.map(|told| told.as_bytes().to_vec());
            Ok(Some((host.to_string(), port, told)))
        };
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("http://a"), forward("a", 3128, None));
        assert_eq!(read("http://a:8/"), forward("a", 8, None));
        assert_eq!(read("http://u:p@a:8"), forward("a", 8, Some("u:p")));
        let escaped = read("http://u%40d:p%40ss%3Aw%zz@127.0.0.1:8");
        assert_eq!(escaped, forward("127.0.0.1", 8, Some("u@d:p@ss:w%zz")));
        for wrong in [
            "http:/",
            "https://a",
            "a:8",
            "http://",
            "http://u@a",
            "http://:p@a",
            "http://u:@a",
            "http://a:0x",
            "http://a b",
        ] {
            assert!(Forward::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn urls_are_read() {
        for (text, expected) in [
            ("http://a", (false, "a", 80, "a", "/")),
            ("HTTPS://a.b/x?y#z", (true, "a.b", 443, "a.b", "/x?y")),
            ("http://a:81?q", (false, "a", 81, "a:81", "/?q")),
            ("http://[::1]:81/", (false, "::1", 81, "[::1]:81", "/")),
            ("https://[::1]", (true, "::1", 443, "[::1]", "/")),
        ] {
            let url = Url::read(text).unwrap();
            let read = (
                url.is_encrypted,
                url.host.as_str(),
                url.port,
                url.authority.as_str(),
                url.path.as_str(),
            );
            assert_eq!(read, expected, "{text}");
            assert!(url.may_be_asked(), "{text}");
        }
    }

    #[test]
    fn what_could_be_taken_for_something_else_is_refused() {
        for text in [
            "http://",
            "http:///a",
            "http://a:",
            "http://a:0",
            "http://a:80800",
            "http://a:+80",
            "http://a:80:80",
            "http://a@b",
            "http://a b",
            "http://a\r\nX: y",
            "http://[::1",
            "http://[::1]x",
            "http://[a]",
            "http://\u{e9}",
        ] {
            assert_eq!(Url::read(text), Err(UrlError::Invalid), "{text:?}");
        }
        for text in ["", "a", "ftp://a", "http:/a", "htt\u{e9}://"] {
            assert_eq!(Url::read(text), Err(UrlError::Scheme), "{text:?}");
        }
        for text in [
            "http://a/ b",
            "http://a/\r\n",
            "http://a/\u{7f}",
            "http://a/\0",
        ] {
            assert!(!Url::read(text).unwrap().may_be_asked(), "{text:?}");
        }
        assert!(Url::read("http://a/%0D%0A?\u{e9}").unwrap().may_be_asked());
    }
}
