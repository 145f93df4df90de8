//! Proxy-Status (RFC 9209): the reason why an intermediary answered in place of an origin.
//!
//! ```text
//! Proxy-Status: origin-side; error=dns_timeout, millpond; error=connection_refused
//!               └ nearer the origin              └ this server, at the end (§2)
//! ```
//!
//! 1. The name of the server is a token where it can be one, else a string (§2).
//! 2. Text that a string cannot hold is left out.

use sfv::{ItemSerializer, KeyRef, StringRef, TokenRef};

/// Kind of an error (§2.3), as far as this server tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyError {
    /// The name of the origin could not be resolved.
    Dns,
    /// No live origin is left.
    DestinationUnavailable,
    /// There is no way to the origin's address.
    DestinationUnroutable,
    /// The origin refused the connection.
    ConnectionRefused,
    /// The connection ended before the answer had come.
    ConnectionTerminated,
    /// The connection was not made in time.
    ConnectionTimeout,
    /// Nothing came over the connection for too long.
    ReadTimeout,
    /// TLS failed.
    TlsProtocol,
    /// The certificate of the origin was refused.
    TlsCertificate,
    /// The answer of the origin was not HTTP.
    HttpProtocol,
    /// The request is wrong.
    HttpRequest,
    /// This server failed.
    Internal,
    /// The request has gone round in a circle.
    Loop,
}

impl ProxyError {
    /// The token (§2.3).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ProxyError::Dns => "dns_error",
            ProxyError::DestinationUnavailable => "destination_unavailable",
            ProxyError::DestinationUnroutable => "destination_ip_unroutable",
            ProxyError::ConnectionRefused => "connection_refused",
            ProxyError::ConnectionTerminated => "connection_terminated",
            ProxyError::ConnectionTimeout => "connection_timeout",
            ProxyError::ReadTimeout => "connection_read_timeout",
            ProxyError::TlsProtocol => "tls_protocol_error",
            ProxyError::TlsCertificate => "tls_certificate_error",
            ProxyError::HttpProtocol => "http_protocol_error",
            ProxyError::HttpRequest => "http_request_error",
            ProxyError::Internal => "proxy_internal_error",
            ProxyError::Loop => "proxy_loop_detected",
        }
    }
}

/// This server's member of the list: its name, the error, and details in words of its own (§2.1.5).
#[must_use]
pub fn member(name: &str, error: ProxyError, details: Option<&str>) -> Option<String> {
    let item = ItemSerializer::new();
    let mut parameters = match TokenRef::from_str(name) {
        Ok(token) => item.bare_item(token),
        Err(_) => item.bare_item(StringRef::from_str(name).ok()?),
    };
    let key = KeyRef::from_str("error").ok()?;
    parameters = parameters.parameter(key, TokenRef::from_str(error.as_str()).ok()?);
    // INVARIANT 2.
    if let Some(details) = details.and_then(|text| StringRef::from_str(text).ok()) {
        parameters = parameters.parameter(KeyRef::from_str("details").ok()?, details);
    }
    Some(parameters.finish())
}

/// True if a text may be the name of a server: one that a string can hold.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && StringRef::from_str(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tokens_where_they_can_be() {
        let cases = [
            ("edge", None, "edge;error=dns_error"),
            ("1 edge", None, "\"1 edge\";error=dns_error"),
            (
                "edge",
                Some("a \"b\""),
                "edge;error=dns_error;details=\"a \\\"b\\\"\"",
            ),
            ("edge", Some("é"), "edge;error=dns_error"),
        ];
        for (name, details, expected) in cases {
            let written = member(name, ProxyError::Dns, details);
            assert_eq!(written.as_deref(), Some(expected));
        }
        assert_eq!(member("é", ProxyError::Dns, None), None);
        assert!(is_name("a b") && !is_name("é") && !is_name(""));
    }

    /// Each kind is a token of the registry (§2.3).
    #[test]
    fn kinds_are_tokens() {
        for error in [
            ProxyError::ReadTimeout,
            ProxyError::Loop,
            ProxyError::Internal,
        ] {
            assert!(TokenRef::from_str(error.as_str()).is_ok());
        }
    }
}
