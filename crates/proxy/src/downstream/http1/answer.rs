//! Heads of HTTP/1 answers, and answers that the socket takes whole with their head.
//!
//! Invariants:
//! 1. A body whose length is unknown is chunked for HTTP/1.1 and ends with the connection before
//!    that (RFC 9112 §6.3).

use std::cell::Cell;
use std::io;

use bytes::BytesMut;
use millpond_system::body::{Body, Piece};
use millpond_system::clock;
use millpond_system::socket::JOINED;

use super::keep_alive;
use super::writer::{Framing, Unsent};
use crate::cache::loaded::ready_len;
use crate::downstream::respond;
use crate::request::Request;
use millpond_exchange::client::http1::Http1;
use millpond_exchange::client::send::{AnswerHead, BodyKind, SendLimits, SentBytes};
use millpond_exchange::response::Response;
use millpond_wire::header::Known;
use millpond_wire::http1::{Version, encode};

/// Bytes of the block that heads are written into, one behind the other; it is used again when they
/// were all sent. (Arbitrary: a short answer or some heads, and no more than a slow client may
/// keep.)
const HEADS_BLOCK: usize = 8192;
/// Space for all of a head but the fields that it shares with others: most fit without growing.
const HEAD_RESERVE: usize = 512;

thread_local! {
    static HEADS: Cell<Option<BytesMut>> = const { Cell::new(None) };
}

/// Makes room for a head, and a short body.
fn reserve_head(block: &mut BytesMut, response: &Response) {
    let mut needed = HEAD_RESERVE + response.fields.shared_len();
    if let Body::One(Piece::Memory(bytes)) = &response.body {
        needed += bytes.len().min(JOINED);
    }
    if block.capacity() < needed {
        block.reserve(needed.max(HEADS_BLOCK));
    }
}

/// An answer whose head is encoded.
pub(crate) struct Encoded {
    /// The head, and room for a short body behind it.
    block: BytesMut,
    head_len: usize,
    /// The end of its body.
    pub(crate) framing: Framing,
}

/// The point up to which an answer came with its head.
pub(crate) enum Written {
    /// To its end, or to an error of the socket.
    Whole(SentBytes, io::Result<()>),
    /// The rest is for [`super::writer::send`].
    Part(Unsent),
}

/// The way that the first bytes of an answer go out.
#[derive(Debug, PartialEq, Eq)]
enum FirstWrite<'a> {
    /// By the writer: a file, a body that is not there yet, a limited rate.
    Later,
    /// Head and body in one block.
    Joined,
    /// Head and a long body in memory, in one call.
    Both(&'a [u8]),
}

/// Encodes the head of an answer, and decides whether the connection goes on behind it.
pub(crate) fn encode(http1: &Http1, req: &Request, response: &Response, kind: BodyKind) -> Encoded {
    let framing = framing(req, response, kind);
    let goes_on = http1.keep_alive.get()
        && keep_alive::allows(&req.location.settings.keep_alive, http1, req)
        && !response.delivery.must_close
        && framing != Framing::UntilClose;
    http1.keep_alive.set(goes_on);
    let mut block = HEADS.with(Cell::take).unwrap_or_default();
    reserve_head(&mut block, response);
    if req.head.version() != Version::Http09 {
        write_head(&mut block, &respond::head(req, response, kind), framing);
        encode_end(&mut block, req, response.status);
    }
    Encoded {
        head_len: block.len(),
        block,
        framing,
    }
}

impl Encoded {
    /// Has the socket take the head, with the body if that is there.
    pub(crate) fn write(
        mut self,
        http1: &Http1,
        response: &Response,
        limits: &SendLimits,
    ) -> Written {
        let sent = match self.first_write(response, limits) {
            FirstWrite::Later => Ok(0),
            FirstWrite::Joined => http1.transport.try_send(&self.block),
            FirstWrite::Both(body) => http1.transport.try_send_both(&self.block, body),
        };
        let head_len = self.head_len as u64;
        let whole = match self.framing {
            Framing::Length(len) => Some(head_len + len),
            Framing::NoBody => Some(head_len),
            Framing::Chunked | Framing::UntilClose => None,
        };
        match sent {
            Ok(count) if Some(count as u64) != whole => {
                self.block.truncate(self.head_len);
                let head = self.block.split().freeze();
                HEADS.with(|it| it.set(Some(self.block)));
                Written::Part(Unsent {
                    head,
                    framing: self.framing,
                    taken: count as u64,
                })
            }
            sent => {
                self.block.clear();
                HEADS.with(|it| it.set(Some(self.block)));
                let count = *sent.as_ref().unwrap_or(&0) as u64;
                Written::Whole(SentBytes::of(count, head_len), sent.map(|_| ()))
            }
        }
    }

    /// Plans the first write; a short body is put behind the head for it.
    fn first_write<'a>(&mut self, response: &'a Response, limits: &SendLimits) -> FirstWrite<'a> {
        if limits.rate > 0 {
            return FirstWrite::Later;
        }
        match body_at_once(response, self.framing) {
            Some(body) if self.block.len() + body.len() <= JOINED => {
                self.block.extend_from_slice(body);
                FirstWrite::Joined
            }
            Some(body) => FirstWrite::Both(body),
            None if join_file(response, self.framing, &mut self.block) => FirstWrite::Joined,
            None => FirstWrite::Later,
        }
    }
}

fn framing(req: &Request, response: &Response, kind: BodyKind) -> Framing {
    match kind {
        BodyKind::None => Framing::NoBody,
        BodyKind::Length(length) => Framing::Length(length),
        // RFC 9110 §9.3.6: bytes of the tunnel follow the head of a 2xx to CONNECT.
        BodyKind::Unknown if response.delivery.tunnel.is_some() => Framing::NoBody,
        BodyKind::Unknown if may_chunk(req) => Framing::Chunked,
        BodyKind::Unknown => Framing::UntilClose,
    }
}

/// True when the client reads chunks.
pub(super) fn may_chunk(req: &Request) -> bool {
    req.head.version() == Version::Http11 && req.location.settings.chunked.enabled
}

/// The body, if all of it is there and goes out as it is.
fn body_at_once(response: &Response, framing: Framing) -> Option<&[u8]> {
    match (framing, &response.body) {
        (Framing::NoBody | Framing::Length(0), _) => Some(&[]),
        (Framing::Length(len), Body::One(Piece::Memory(bytes))) => Some(bytes)
            .filter(|bytes| bytes.len() as u64 == len)
            .map(|bytes| &**bytes),
        _ => None,
    }
}

/// Reads a short body from its file to behind the head, if no disk must be waited for: that costs
/// less than a call of its own to send it. What cannot be read is left to who sends files.
fn join_file(response: &Response, framing: Framing, block: &mut BytesMut) -> bool {
    let (Framing::Length(len), Body::One(Piece::File(region))) = (framing, &response.body) else {
        return false;
    };
    let head_len = block.len();
    let is_short = len == region.len && len <= JOINED.saturating_sub(head_len) as u64;
    let ready = &response.parts.first_look.ready;
    let is_ready = ready.start <= region.offset && region.offset + len <= ready.end;
    if !is_short || !is_ready && ready_len(region, len) < len {
        return false;
    }
    block.resize(head_len + len as usize, 0);
    let is_read = match block.get_mut(head_len..) {
        Some(place) => region.read_into(place).is_ok(),
        None => false,
    };
    if !is_read {
        block.truncate(head_len);
    }
    is_read
}

fn write_head(block: &mut BytesMut, head: &AnswerHead<'_>, framing: Framing) {
    match head.status_text {
        Some(text) => encode::write_status_text(block, text),
        None => encode::write_status(block, head.status),
    }
    let server = head.server.map_or(&[][..], |tokens| tokens.server_line());
    match head.date_us {
        Some(us) => clock::with_date_line(us, server, |lines| encode::write_line(block, lines)),
        None => encode::write_line(block, server),
    }
    encode::write_fields(block, head.fields);
    if framing == Framing::Chunked {
        encode::write_line(block, b"Transfer-Encoding: chunked\r\n");
    } else if let Some(length) = head.content_length() {
        encode::write_content_length(block, length);
    }
}

/// The fields about the connection, and the end of the head.
fn encode_end(head: &mut BytesMut, req: &Request, status: u16) {
    let keep_alive = &req.location.settings.keep_alive;
    match (status, req.client.keeps_connection()) {
        (101, _) => encode::write_line(head, b"Connection: upgrade\r\n\r\n"),
        (_, false) => encode::write_line(head, b"Connection: close\r\n\r\n"),
        (_, true) => match keep_alive.header_timeout() {
            None => encode::write_line(head, b"Connection: keep-alive\r\n\r\n"),
            Some(seconds) => {
                encode::write_line(head, b"Connection: keep-alive\r\n");
                let timeout = format!("timeout={seconds}");
                encode::write_known(head, Known::KeepAlive, timeout.as_bytes());
                encode::end_head(head);
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

    fn limits(rate: u64) -> SendLimits {
        SendLimits {
            timeout: Duration::from_secs(60),
            rate,
            rate_after: 0,
            file_chunk: u64::MAX,
        }
    }

    /// The first write of an answer with that body, and the bytes of its block.
    fn plan(body: Body, framing: Framing, rate: u64) -> (&'static str, usize) {
        let response = Response {
            body,
            ..Response::default()
        };
        let mut encoded = Encoded {
            block: BytesMut::from(HEAD),
            head_len: HEAD.len(),
            framing,
        };
        let first = match encoded.first_write(&response, &limits(rate)) {
            FirstWrite::Later => "later",
            FirstWrite::Joined => "joined",
            FirstWrite::Both(_) => "both",
        };
        (first, encoded.block.len() - HEAD.len())
    }

    #[test]
    fn first_write_follows_the_body_and_the_rate() {
        let memory = |len: usize| Body::from(Bytes::from(vec![1; len]));
        let length = |len: usize| Framing::Length(len as u64);
        let fits = JOINED - HEAD.len();
        let cases = [
            (memory(0), Framing::NoBody, 0, ("joined", 0)),
            (memory(0), length(0), 0, ("joined", 0)),
            (memory(fits), length(fits), 0, ("joined", fits)),
            (memory(fits + 1), length(fits + 1), 0, ("both", 0)),
            // A rate is counted by the writer.
            (memory(10), length(10), 1, ("later", 0)),
            // A body that is not whole, or is framed in chunks, comes piece by piece.
            (memory(9), length(10), 0, ("later", 0)),
            (memory(10), Framing::Chunked, 0, ("later", 0)),
            (memory(10), Framing::UntilClose, 0, ("later", 0)),
        ];
        for (body, framing, rate, expected) in cases {
            assert_eq!(plan(body, framing, rate), expected, "{framing:?} {rate}");
        }
    }
}
