//! `gunzip`, `gunzip_buffers`: compressed answers of upstreams for clients that do not take them.
//!
//! An answer with `Content-Encoding: gzip` is decompressed while it is sent, unless the client
//! takes gzip. Parts of a page are always decompressed.
//!
//! Invariants:
//! 1. Not more than one input piece and `OUTPUT_SIZE` of output are held, however much comes out of
//!    little.
//! 2. A broken stream, or one that ends early, ends the answer, so that the client sees it.
//!
//! Sources: RFC 1952; nginx ngx_http_gunzip_filter.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use millpond_conf::Buffers;
use millpond_system::body::{Body, BodyError, BodyStream, FILE_READ_SIZE, Piece};
use millpond_wire::header::{Fields, Known};

use super::gzip;
use crate::filter::settings::FilterSettings;
use crate::request::Request;
use millpond_exchange::response::Response;

/// Amount of decompressed data that is handed on at once: as much as one read of a file.
const OUTPUT_SIZE: usize = FILE_READ_SIZE;
/// The largest window that gzip knows.
const WINDOW_BITS: u8 = 15;

/// Settings of the decompression of answers.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct GunzipPolicy {
    /// Decompresses compressed answers for clients that do not take them.
    #[directive(name = "gunzip", default = "off")]
    pub enabled: bool,
    /// Number and size of buffers.
    ///
    /// # Differs from nginx
    ///
    /// The memory of one answer is bounded without it; the value is only checked.
    #[directive(name = "gunzip_buffers", default = "32 4k")]
    pub buffers: Buffers,
}

/// Says whether the answer is decompressed, and changes its head.
pub(crate) fn run(req: &Request, response: &mut Response) -> bool {
    if !req.location.settings.of::<FilterSettings>().gunzip.enabled || response.changes.are_barred {
        return false;
    }
    if !is_gzip(&response.fields) {
        return false;
    }
    response.changes.are_by_coding = true;
    if !req.is_subrequest() && gzip::is_taken(req, &response.fields) {
        return false;
    }
    response.fields.remove(Known::ContentEncoding);
    response.body_changes();
    true
}

/// True if gzip is the one coding. RFC 9110 §5.3: a further line is a further coding, around it.
fn is_gzip(fields: &Fields) -> bool {
    let mut codings = fields.get_all(Known::ContentEncoding);
    let first = codings.next();
    first.is_some_and(|coding| coding.eq_ignore_ascii_case(b"gzip")) && codings.next().is_none()
}

/// Decompresses a body while it is sent.
pub(crate) fn decompress_body(body: Body) -> Body {
    Body::stream(GunzipBody {
        inner: body,
        current: None,
        input: Bytes::new(),
        decompressor: Decompress::new_gzip(WINDOW_BITS),
        state: State::BetweenMembers,
    })
}

/// Place at which the compressed stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first member or behind one: the end may come.
    BetweenMembers,
    /// Within a member.
    InMember,
    /// Something went wrong, or all was read.
    Ended,
}

/// A body that is decompressed.
struct GunzipBody {
    inner: Body,
    /// Rest of the last piece.
    current: Option<Piece>,
    input: Bytes,
    decompressor: Decompress,
    state: State,
}

impl BodyStream for GunzipBody {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let this = &mut *self;
        // Each round takes input or gives output; the stream ends with either.
        while this.state != State::Ended {
            // Bytes in the window come out before more is read.
            match this.inflate() {
                Ok(output) if output.is_empty() => {}
                Ok(output) => return Poll::Ready(Some(Ok(Piece::Memory(output)))),
                Err(error) => return this.fail(error),
            }
            if !this.input.is_empty() {
                continue;
            }
            match ready!(this.poll_input(cx)) {
                Ok(()) => {}
                Err(error) => return this.fail(error),
            }
        }
        Poll::Ready(None)
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        super::trailers_of_changed(self.inner.take_trailers())
    }
}

impl GunzipBody {
    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Piece, BodyError>>> {
        self.state = State::Ended;
        Poll::Ready(Some(Err(error)))
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if self.current.is_none() {
            match ready!(self.inner.poll_next(cx)) {
                Some(piece) => self.current = Some(piece?),
                None if self.state == State::InMember => {
                    return Poll::Ready(Err(broken("the compressed answer ends early")));
                }
                None => self.state = State::Ended,
            }
        }
        if let Some(piece) = &mut self.current {
            self.input = piece.split_to(FILE_READ_SIZE as u64).take_memory()?;
            if piece.is_empty() {
                self.current = None;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Decompressed bytes that the input gives, at most `OUTPUT_SIZE`; empty when more of it is
    /// needed.
    fn inflate(&mut self) -> Result<Bytes, BodyError> {
        if self.input.is_empty() && self.state == State::BetweenMembers {
            return Ok(Bytes::new());
        }
        let mut output = Vec::with_capacity(OUTPUT_SIZE);
        let before = self.decompressor.total_in();
        let status =
            self.decompressor
                .decompress_vec(&self.input, &mut output, FlushDecompress::None);
        let taken = self.decompressor.total_in() - before;
        self.input.advance((taken as usize).min(self.input.len()));
        match status {
            Ok(Status::StreamEnd) => {
                // nginx: several members are one after another.
                self.decompressor = Decompress::new_gzip(WINDOW_BITS);
                self.state = State::BetweenMembers;
            }
            Ok(Status::Ok) => self.state = State::InMember,
            Ok(Status::BufError) if self.input.is_empty() => self.state = State::InMember,
            Ok(Status::BufError) | Err(_) => return Err(broken("the compressed answer is broken")),
        }
        Ok(Bytes::from(output))
    }
}

fn broken(what: &str) -> BodyError {
    BodyError::Broken(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::collections::VecDeque;
    use std::io::Write;
    use std::task::Waker;

    fn compress(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn run(pieces: &[&[u8]]) -> Result<Vec<u8>, BodyError> {
        let pieces = pieces.iter().filter(|piece| !piece.is_empty());
        let pieces: VecDeque<Piece> = pieces
            .map(|piece| Piece::Memory(Bytes::copy_from_slice(piece)))
            .collect();
        let mut body = decompress_body(Body::from(pieces));
        let mut out = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(piece)) = body.poll_next(&mut cx) {
            let piece = piece?.take_memory()?;
            assert!(!piece.is_empty() && piece.len() <= OUTPUT_SIZE);
            out.extend_from_slice(&piece);
        }
        Ok(out)
    }

    #[test]
    fn text_comes_out_wherever_the_input_is_split() {
        let compressed = compress(b"the pond, the pond, the pond");
        for at in 0..=compressed.len() {
            let (one, other) = compressed.split_at(at);
            assert_eq!(run(&[one, other]).unwrap(), b"the pond, the pond, the pond");
        }
        let single: Vec<&[u8]> = compressed.chunks(1).collect();
        assert_eq!(run(&single).unwrap(), b"the pond, the pond, the pond");
    }

    #[test]
    fn members_follow_one_another() {
        let (one, other) = (compress(b"one,"), compress(b"other"));
        assert_eq!(run(&[&one, &other]).unwrap(), b"one,other");
        assert_eq!(run(&[&[one, other].concat()]).unwrap(), b"one,other");
        assert_eq!(run(&[&compress(b"")]).unwrap(), b"");
        assert_eq!(run(&[]).unwrap(), b"");
    }

    #[test]
    fn little_input_may_give_much_output() {
        let text = vec![b'x'; 10_000_000];
        assert!(run(&[&compress(&text)]).unwrap() == text);
    }

    #[test]
    fn broken_and_early_ends_are_errors() {
        let compressed = compress(b"the pond, the mill");
        for len in 1..compressed.len() {
            assert!(run(&[&compressed[..len]]).is_err(), "{len}");
        }
        let mut changed = compressed.clone();
        changed[12] ^= 0x55;
        assert!(run(&[&changed]).is_err());
        assert!(run(&[b"no gzip at all"]).is_err());
        assert!(run(&[&[&compressed[..], b"rubbish"].concat()]).is_err());
    }
}
