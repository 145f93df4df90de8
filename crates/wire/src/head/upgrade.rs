//! An extended CONNECT in the words of HTTP/1 (RFC 8441 §5): a GET that asks to switch protocols.
//!
//! ```text
//! CONNECT, :protocol websocket ─► GET, Upgrade: websocket, Connection: upgrade, Sec-WebSocket-Key
//! ```
//!
//! 1. The request line stays what the client wrote, for logs; everything else is that of the GET.

use bytes::Bytes;
use smallvec::SmallVec;

use super::Method;
use super::place::{Extent, Span};
use super::request::RequestHead;
use crate::header::Known;

/// The field that HTTP/2 has no use for, and HTTP/1 must have.
const KEY: &[u8] = b"sec-websocket-key";

/// The same request as a GET that asks for the protocol of an extended CONNECT, under a key.
#[must_use]
pub fn to_upgrade(head: &RequestHead, key: &[u8]) -> RequestHead {
    let mut text = head.buf.to_vec();
    let mut push = |bytes: &[u8]| {
        let start = text.len();
        text.extend_from_slice(bytes);
        // The bounds of heads are far below 4 GiB.
        Extent {
            start: start as u32,
            end: text.len() as u32,
        }
    };
    let mut parts = head.parts.clone();
    parts.method = Method::Get;
    parts.method_bytes = push(b"GET");
    let name = push(b"upgrade");
    let protocol = push(head.connect_protocol());
    let mut added: SmallVec<[Span; 3]> = SmallVec::new();
    added.extend(Span::of(name, protocol, Known::Upgrade));
    let name = push(b"connection");
    added.extend(Span::of(name, push(b"upgrade"), Known::Connection));
    let name = push(KEY);
    added.extend(Span::of(name, push(key), Known::Other));
    parts
        .spans
        .retain(|span| !span.name(&head.buf).eq_ignore_ascii_case(KEY));
    for span in added {
        parts.present.insert(span.known);
        parts.spans.push(span);
    }
    RequestHead {
        buf: Bytes::from(text),
        parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::builder::HeadBuilder;
    use crate::head::place::NameKind;
    use crate::head::{Limits, Version};

    fn connect() -> RequestHead {
        let mut builder = HeadBuilder::new();
        let mut open = builder.open();
        open.parts.version = Version::Http2;
        open.parts.method = Method::Connect;
        open.parts.method_bytes = open.push(b"CONNECT");
        open.parts.connect_protocol = open.push(b"websocket");
        open.parts.target = open.push(b"/chat");
        open.parts.uri = open.parts.target;
        open.parts.line = open.push(b"CONNECT /chat HTTP/2.0");
        for (name, value) in [("sec-websocket-version", "13"), ("Sec-WebSocket-Key", "no")] {
            let pair = (name.as_bytes(), value.as_bytes());
            let kind = (Known::Other, NameKind::Plain);
            open.add_field(kind, pair, &Limits::default()).unwrap();
        }
        (*builder.finish(40)).clone()
    }

    /// RFC 8441 §5; RFC 6455 §4.1.
    #[test]
    fn a_connect_becomes_a_get_that_asks_to_switch() {
        let head = to_upgrade(&connect(), b"key");
        assert_eq!(head.method(), Method::Get);
        assert_eq!(head.method_bytes(), b"GET");
        assert_eq!((head.target(), head.uri()), (&b"/chat"[..], &b"/chat"[..]));
        assert_eq!(head.line(), b"CONNECT /chat HTTP/2.0");
        assert_eq!(head.connect_protocol(), b"websocket");
        assert_eq!(head.get(Known::Upgrade), Some(&b"websocket"[..]));
        assert_eq!(head.get(Known::Connection), Some(&b"upgrade"[..]));
        assert_eq!(head.find_all(KEY).collect::<Vec<_>>(), [b"key"]);
        assert_eq!(head.find(b"sec-websocket-version"), Some(&b"13"[..]));
        assert_eq!(head.head_len(), 40);
    }
}
