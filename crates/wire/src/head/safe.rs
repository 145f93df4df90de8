//! The head of a safe request for the same target, for what is known of a URI by its keys.
//!
//! It was never sent: the request line stays what the client wrote, for logs, and the fields are
//! those of the client but for what is about its content (RFC 9110 §8).

use bytes::{BufMut, Bytes, BytesMut};

use super::Method;
use super::place::Extent;
use super::request::RequestHead;
use crate::header::{Known, KnownSet};

/// Fields that a request without content has not.
const ABOUT_CONTENT: KnownSet = KnownSet::of(&[
    Known::ContentEncoding,
    Known::ContentLength,
    Known::ContentType,
    Known::TransferEncoding,
]);

impl RequestHead {
    /// The same head with a safe method and without content.
    #[must_use]
    pub fn as_safe(&self, method: Method) -> RequestHead {
        let mut head = self.without(ABOUT_CONTENT);
        let name = method.name().unwrap_or_default().as_bytes();
        let mut text = BytesMut::with_capacity(head.buf.len() + name.len());
        text.put_slice(&head.buf);
        text.put_slice(name);
        head.parts.method = method;
        // The bounds of heads are far below 4 GiB.
        head.parts.method_bytes = Extent {
            start: (text.len() - name.len()) as u32,
            end: text.len() as u32,
        };
        head.buf = Bytes::from(text);
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Limits;
    use crate::http1::request::{Progress, RequestParser};

    fn parsed(text: &[u8]) -> RequestHead {
        let mut parser = RequestParser::new();
        match parser.parse(&mut BytesMut::from(text), &Limits::default()) {
            Progress::Done(head) => (*head).clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn content_is_gone_and_the_rest_stays() {
        let text = b"POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nX: y\r\n\r\n";
        let head = parsed(text);
        let safe = head.as_safe(Method::Get);
        assert_eq!(
            (safe.method(), safe.method_bytes()),
            (Method::Get, &b"GET"[..])
        );
        assert_eq!(
            (safe.uri(), safe.find(b"x")),
            (&b"/a?b"[..], Some(&b"y"[..]))
        );
        assert_eq!(safe.get(Known::ContentLength), None);
        assert_eq!(head.method_bytes(), b"POST");
    }
}
