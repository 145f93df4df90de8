//! `ssl_preread`: the first message of a client that speaks TLS, looked at and left as it is.
//!
//! ```text
//! bytes ─► no handshake: nothing is known ─┐
//!      ├─► a whole message: Hello ─────────┼─► the session goes on, with all bytes
//!      └─► a part: more is read, up to `preread_buffer_size` and `preread_timeout`
//! ```
//!
//! 1. No bytes make this panic, and none are taken out.

use millpond_proxy::request::Request;
use millpond_proxy::var::Variable;
use millpond_tls::{ClientHello, Reading};

/// Bytes of the head of a record.
const RECORD_HEAD: usize = 5;
/// The type of records with handshakes.
const HANDSHAKE: u8 = 0x16;

/// The first message of a client, for variables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The name of the version that it asks for, as OpenSSL calls it.
    version: &'static str,
    /// The name of the server that it asks for; empty for none.
    pub(crate) server_name: String,
    /// The protocols inside that it offers, with commas between.
    protocols: Vec<u8>,
}

/// Contents of the first bytes of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// More is needed.
    Partial,
    /// No handshake of TLS.
    Other,
    /// The first message.
    Hello(Hello),
}

/// The variables.
pub(crate) const VARIABLES: &[Variable] = &[
    Variable {
        name: "ssl_preread_alpn_protocols",
        doc: "The protocols that a client offers in the handshake that `ssl_preread` looks at, \
              with commas between.",
        write: |req, out| of_hello(req, |hello| out.extend_from_slice(&hello.protocols)),
    },
    Variable {
        name: "ssl_preread_protocol",
        doc: "The newest version of TLS that a client asks for in the handshake that `ssl_preread` \
              looks at.",
        write: |req, out| of_hello(req, |hello| out.extend_from_slice(hello.version.as_bytes())),
    },
    Variable {
        name: "ssl_preread_server_name",
        doc: "The name of the server that a client asks for in the handshake that `ssl_preread` \
              looks at.",
        write: |req, out| {
            of_hello(req, |hello| {
                out.extend_from_slice(hello.server_name.as_bytes());
            })
        },
    },
];

fn of_hello(req: &Request, write: impl FnOnce(&Hello)) -> bool {
    let hello = req.notes.get::<Hello>();
    hello.map(write).is_some()
}

/// Looks at the first bytes of a client.
pub(crate) fn look(bytes: &[u8]) -> Look {
    let Some(&[first, second, third, fourth, fifth]) = bytes.first_chunk::<RECORD_HEAD>() else {
        return Look::Partial;
    };
    // The first message of SSL 2, which has no name in it.
    if first & 0x80 != 0 && third == 1 && matches!(fourth, 0 | 3) {
        return Look::Hello(Hello {
            version: version(u16::from_be_bytes([fourth, fifth])),
            ..Hello::default()
        });
    }
    if first != HANDSHAKE || second != 3 {
        return Look::Other;
    }
    match ClientHello::read(bytes) {
        Ok(Reading::Partial) => Look::Partial,
        Ok(Reading::Whole(hello)) => Look::Hello(Hello::of(&hello)),
        Err(_) => Look::Other,
    }
}

impl Hello {
    fn of(hello: &ClientHello) -> Hello {
        let protocols: Vec<&[u8]> = hello.alpn().collect();
        Hello {
            // nginx: whoever lists its versions knows TLS 1.3.
            version: if hello.lists_versions() {
                "TLSv1.3"
            } else {
                version(hello.legacy_version())
            },
            server_name: hello.server_name().unwrap_or_default().to_owned(),
            protocols: protocols.join(&b','),
        }
    }
}

/// The name of a version by its number; empty for one that has none.
fn version(number: u16) -> &'static str {
    match number {
        0x0002 => "SSLv2",
        0x0300 => "SSLv3",
        0x0301 => "TLSv1",
        0x0302 => "TLSv1.1",
        0x0303 => "TLSv1.2",
        0x0304 => "TLSv1.3",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_a_part_a_hello_or_something_else() {
        let ssl2 = |version: &'static str| {
            Look::Hello(Hello {
                version,
                ..Hello::default()
            })
        };
        for (bytes, expected) in [
            (&b""[..], Look::Partial),
            (b"\x16\x03\x01\x01", Look::Partial),
            (b"\x16\x03\x01\x00\x05\x01\x00", Look::Partial),
            (b"GET / HTTP/1.0", Look::Other),
            (b"\x16\x02\x01\x00\x05", Look::Other),
            // A handshake message that is no ClientHello.
            (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", Look::Other),
            (b"\x80\x2e\x01\x00\x02", ssl2("SSLv2")),
            (b"\x80\x2e\x01\x03\x01", ssl2("TLSv1")),
        ] {
            assert_eq!(look(bytes), expected, "{bytes:?}");
        }
    }
}
