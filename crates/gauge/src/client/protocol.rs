//! Protocol in which a server is asked, and its name in ALPN (RFC 7301).
//!
//! Over TLS it must be agreed on; in clear text the server knows HTTP/2 beforehand (RFC 9113,
//! section 3.3).

/// Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// Name in ALPN.
    pub(super) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }

    /// True if a server that agreed on this is asked in the protocol; servers from before ALPN
    /// speak HTTP/1.1.
    pub(super) fn is_agreed(self, agreed: Option<&[u8]>) -> bool {
        match agreed {
            Some(agreed) => agreed == self.alpn(),
            None => self == Self::Http1,
        }
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        })
    }
}
