//! WebSockets over HTTP/2 (RFC 8441): the words of their handshake at both ends.
//!
//! ```text
//! client                                   this server                        origin
//! CONNECT, :protocol websocket  ─►  GET, Upgrade, a key of our own  ─►  (RFC 6455 §4.2)
//! 200, no END_STREAM            ◄─  the answer to the key is right  ◄─  101
//! DATA                         ◄──────────── a tunnel ────────────►     bytes
//! ```
//!
//! All between the two ends sees the request that HTTP/1 would have brought, so that configurations
//! and variables (`$http_upgrade`) need not know of HTTP/2.

use millpond_system::chance;
use millpond_wire::base64;
use millpond_wire::head::{self, RequestHead};
use millpond_wire::header::{Fields, Known};
use sha1::{Digest, Sha1};

use crate::request::Request;

/// The field with the key, in small letters.
const KEY: &[u8] = b"sec-websocket-key";
/// The field with the answer to it.
const ACCEPT: &[u8] = b"sec-websocket-accept";
/// The text that the answer is made with (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// True if a request is to become a WebSocket of HTTP/2.
pub(crate) fn is_asked(head: &RequestHead) -> bool {
    !head.connect_protocol().is_empty()
}

/// The request that HTTP/1 would have brought.
pub(crate) fn to_upgrade(head: &RequestHead) -> RequestHead {
    let words = [chance::word().to_be_bytes(), chance::word().to_be_bytes()];
    head::to_upgrade(head, base64::encode(words.as_flattened()).as_bytes())
}

/// True if an upstream may switch to a WebSocket with such an answer: always, where the client
/// judges it itself.
pub(crate) fn is_accepted(req: &Request, answer: &Fields) -> bool {
    if !is_asked(&req.head) {
        return true;
    }
    let key = req.head.find(KEY).unwrap_or_default();
    let upgrade = answer.get(Known::Upgrade);
    let is_websocket = upgrade.is_some_and(|it| it.eq_ignore_ascii_case(b"websocket"));
    let accepted = answer
        .find(ACCEPT)
        .is_some_and(|it| *it == *answer_to(key).as_bytes());
    is_websocket && accepted
}

/// The answer to a key (RFC 6455 §4.2.2).
fn answer_to(key: &[u8]) -> String {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    base64::encode(&digest)
}

/// Leaves those fields of a 101 that mean something to a client of HTTP/2.
pub(crate) fn drop_words_of_http1(fields: &mut Fields) {
    fields.retain_mut(|field| {
        field.known != Known::Upgrade && !field.name.eq_ignore_ascii_case(ACCEPT)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6455 §1.3.
    #[test]
    fn the_answer_to_a_key_is_that_of_the_rfc() {
        let answer = answer_to(b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
