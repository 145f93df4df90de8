//! `endpoint`: where a collector listens, and which of the two forms of OTLP it is spoken to in.
//!
//! | text | protocol |
//! |---|---|
//! | `host:port`, `http://host:port` | gRPC |
//! | `https://host:port` | gRPC over TLS |
//! | `http://host:port/path`, `https://host:port/path` | HTTP with protobuf in its body |

/// The form in which a collector is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// HTTP, to this path for spans.
    Http(String),
}

/// The place of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The host: a name, or an address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// True if the connection is encrypted.
    pub is_encrypted: bool,
    /// The form in which it is spoken to.
    pub protocol: Protocol,
}

/// The port of a host that names none, in gRPC and in HTTPS.
const PORT: u16 = 443;
/// The port of a host that names none, in HTTP.
const HTTP_PORT: u16 = 80;

impl Endpoint {
    /// Reads an endpoint.
    ///
    /// # Errors
    /// A text without a host, or with a port that is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (rest, is_encrypted) = match strip_scheme(text, "https://") {
            Some(rest) => (rest, true),
            None => (strip_scheme(text, "http://").unwrap_or(text), false),
        };
        let has_scheme = rest.len() < text.len();
        let (authority, protocol) = match rest.find('/') {
            Some(at) if has_scheme => {
                let (authority, path) = rest.split_at(at);
                (authority, Protocol::Http(path.to_owned()))
            }
            _ => (rest, Protocol::Grpc),
        };
        let usual = match protocol {
            Protocol::Http(_) if !is_encrypted => HTTP_PORT,
            _ => PORT,
        };
        let (host, port) = split(authority).ok_or_else(|| invalid(text))?;
        let port = match port {
            None => usual,
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| invalid(text))?,
        };
        let is_host = |byte: u8| byte.is_ascii_graphic() && !b"/?#@\\\"<>".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(invalid(text));
        }
        Ok(Endpoint {
            host: host.to_owned(),
            port,
            is_encrypted,
            protocol,
        })
    }

    /// Host and port, as requests name them.
    #[must_use]
    pub fn authority(&self) -> String {
        let Endpoint { host, port, .. } = self;
        if host.contains(':') {
            return format!("[{host}]:{port}");
        }
        format!("{host}:{port}")
    }
}

fn invalid(text: &str) -> String {
    format!("invalid endpoint \"{text}\"")
}

fn strip_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// Host and port of an authority.
fn split(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
        None => Some((authority, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_hosts_or_urls() {
        let http = |path: &str| Protocol::Http(path.to_owned());
        for (text, host, port, is_encrypted, protocol) in [
            ("localhost:4317", "localhost", 4317, false, Protocol::Grpc),
            ("http://a:4317", "a", 4317, false, Protocol::Grpc),
            ("HTTPS://a:4317", "a", 4317, true, Protocol::Grpc),
            ("[::1]:4317", "::1", 4317, false, Protocol::Grpc),
            ("a", "a", 443, false, Protocol::Grpc),
            (
                "http://a:4318/v1/traces",
                "a",
                4318,
                false,
                http("/v1/traces"),
            ),
            ("https://a/x?y=z", "a", 443, true, http("/x?y=z")),
            ("http://a/", "a", 80, false, http("/")),
            (
                "http://[::1]/v1/traces",
                "::1",
                80,
                false,
                http("/v1/traces"),
            ),
        ] {
            let expected = Endpoint {
                host: host.to_owned(),
                port,
                is_encrypted,
                protocol,
            };
            assert_eq!(Endpoint::parse(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "http://",
            ":4317",
            "a:",
            "a:0",
            "a:65536",
            "a:b",
            "a/b:1",
            "::1",
            "[::1",
            "[a]:1",
            "[::1]x",
            "a b:1",
            "http:///v1",
            "u@a:1",
            "a:1:2",
        ] {
            assert_eq!(Endpoint::parse(text), Err(invalid(text)), "{text}");
        }
    }

    #[test]
    fn authorities_have_brackets_again() {
        let of = |text| Endpoint::parse(text).map(|it| it.authority());
        assert_eq!(of("[::1]:4317").as_deref(), Ok("[::1]:4317"));
        assert_eq!(of("http://a:1/x").as_deref(), Ok("a:1"));
    }
}
