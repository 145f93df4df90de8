//! The stream of one request, from the answer's head to its end: the body that comes, and the rest
//! of the one that goes.
//!
//! 1. Bytes of a body are room for the peer again when they are handed out.
//! 2. What stands behind a piece is looked at before the piece is handed out: whoever reads no
//!    further than the length that was announced leaves a connection that can be used again, and
//!    an answer that is taken back at once is not taken for one.

use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use millpond_system::body::BodyError;
use millpond_wire::header::Fields;
use millpond_wire::http2::{BodyLength, Code, Event, Gone};

use super::super::request::OutBody;
use super::carrier::Carrier;
use super::upload::{Upload, Waits};
use super::words;
use millpond_exchange::client::Client;
use millpond_exchange::client::wire::Wire;
use millpond_exchange::failure::Failure;

/// A stream whose answer has begun.
pub struct StreamBody {
    id: u32,
    upload: Upload,
    /// Bytes that are to come, if that was announced.
    left: Option<u64>,
    /// Bytes that came behind those that were handed out.
    ahead: Option<Bytes>,
    /// The client without whom nobody wants the answer.
    client: Option<Rc<Client>>,
    is_bare: bool,
    /// Bytes of the request that were sent when that was last asked.
    sent: u64,
    /// True while the peer has said nothing of the request.
    pub(super) is_silent: bool,
}

/// A part of a body.
pub struct Part {
    /// The bytes; none for need of more.
    pub bytes: Bytes,
    /// The end, if it stands behind them.
    pub end: Option<StreamEnd>,
}

/// The end of a stream.
pub struct StreamEnd {
    /// Fields behind the body.
    pub trailers: Option<Fields>,
    /// True if the connection can be used again.
    pub is_clean: bool,
}

/// Meaning of the stream's next events.
enum Came {
    Data(Bytes),
    End(Option<Fields>),
    Nothing,
}

impl StreamBody {
    /// The stream of a request whose head is on its way.
    pub(super) fn new(id: u32, upload: Upload) -> Self {
        StreamBody {
            id,
            upload,
            left: None,
            ahead: None,
            client: None,
            is_bare: false,
            sent: 0,
            is_silent: true,
        }
    }

    /// The stream's number.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Notes what the answer's head says of its body.
    pub(super) fn begin(&mut self, body: BodyLength) {
        self.is_bare = body == BodyLength::None;
        self.left = match body {
            BodyLength::None => Some(0),
            BodyLength::Known(length) => Some(length),
            BodyLength::Unknown => None,
        };
    }

    /// Has the answer end with its client, also while the peer is silent: an answer of gRPC may be
    /// so for hours. Only a client that has streams can be seen to give one up.
    pub(super) fn watch(&mut self, client: Rc<Client>) {
        self.client = matches!(client.wire, Wire::Stream(_)).then_some(client);
    }

    /// True if the request can be sent once more as it was.
    pub(super) fn may_begin_again(&self, body: &OutBody) -> bool {
        self.upload.is_kept(body)
    }

    /// True if the client has left without whom nobody wants the answer.
    pub fn is_left(&self, cx: &mut Context<'_>) -> bool {
        let left = self.client.as_ref().map(|client| client.left());
        left.is_some_and(|left| pin!(left).poll(cx).is_ready())
    }

    /// Bytes of the body that are to come, if that is known.
    pub fn left(&self) -> Option<u64> {
        self.left
    }

    /// True if the head of the answer says that nothing follows.
    pub fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// Sends what can be sent: the rest of the request, and words to the peer. Gives the number of
    /// bytes, and who must do something before there is more of the request.
    ///
    /// # Errors
    /// The client's body failed. A socket that fails is found when it is read.
    pub(in super::super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        carrier: &mut Carrier,
    ) -> Result<(u64, Waits), Failure> {
        let before = carrier.sent();
        loop {
            let waits = self.upload.poll_push(cx, (&mut *carrier, self.id))?;
            let is_flushed = matches!(carrier.poll_flush(cx), Poll::Ready(Ok(())));
            // What was sent may have made room.
            let goes_on = waits == Waits::ForPeer && carrier.room(self.id) > 0;
            if !is_flushed || !goes_on {
                return Ok((carrier.sent() - before, waits));
            }
        }
    }

    /// True if more of the request was sent since that was last asked.
    pub(super) fn has_sent_more(&mut self, carrier: &mut Carrier) -> bool {
        let sent = carrier.sent_of(self.id);
        std::mem::replace(&mut self.sent, sent) != sent
    }

    /// Gives the stream up: the peer is told why, if it was its fault (RFC 9113 §5.4).
    pub(super) fn give_up(&self, carrier: &mut Carrier) {
        carrier.release(self.id);
        carrier.flush_now();
    }

    /// Takes what the inbox has of the body.
    ///
    /// # Errors
    /// The peer has broken the stream off, or HTTP's rules.
    pub fn take(&mut self, carrier: &mut Carrier) -> Result<Part, BodyError> {
        let part = self.take_part(carrier);
        if part.is_err() {
            self.give_up(carrier);
        }
        part
    }

    fn take_part(&mut self, carrier: &mut Carrier) -> Result<Part, BodyError> {
        let came = match self.ahead.take() {
            Some(bytes) => Came::Data(bytes),
            None => self.next(carrier)?,
        };
        let (bytes, behind) = match came {
            Came::Data(bytes) => {
                // INVARIANT 1.
                carrier.consume(self.id, bytes.len());
                if let Some(left) = &mut self.left {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                // INVARIANT 2.
                (bytes, self.next(carrier)?)
            }
            other => (Bytes::new(), other),
        };
        let end = match behind {
            Came::Data(more) => {
                self.ahead = Some(more);
                None
            }
            Came::Nothing => None,
            Came::End(trailers) => {
                self.left = Some(0);
                let is_clean = self.end(carrier)?;
                carrier.flush_now();
                Some(StreamEnd { trailers, is_clean })
            }
        };
        Ok(Part { bytes, end })
    }

    /// The next event that is about the stream.
    fn next(&self, carrier: &mut Carrier) -> Result<Came, BodyError> {
        while let Some(event) = carrier.next_event(self.id) {
            match event {
                Event::Data { bytes, .. } => return Ok(Came::Data(bytes)),
                Event::End { trailers, .. } => return Ok(Came::End(trailers)),
                Event::Malformed { fault, .. } | Event::Failed(fault) => {
                    return Err(BodyError::Broken(words::of_fault(fault)));
                }
                Event::Gone { why, .. } => {
                    return Err(BodyError::Broken(words::of_end(why, carrier.farewell())));
                }
                _ => {}
            }
        }
        Ok(Came::Nothing)
    }

    /// Reads what stands behind the end; true if the connection can be used again.
    ///
    /// nginx: an answer that is broken off behind its end is one that failed.
    fn end(&mut self, carrier: &mut Carrier) -> Result<bool, BodyError> {
        let is_sent = self.upload.is_done() && carrier.is_sent(self.id);
        while let Some(event) = carrier.next_event(self.id) {
            match event {
                Event::Gone {
                    why: Gone::ByPeer(Code::NO_ERROR),
                    ..
                } => {}
                Event::Gone { why, .. } => {
                    return Err(BodyError::Broken(words::of_end(why, carrier.farewell())));
                }
                Event::Failed(fault) => return Err(BodyError::Broken(words::of_fault(fault))),
                _ => {}
            }
        }
        // RFC 9113 §8.1: the rest of the request is not wanted any more.
        self.upload = Upload::Done;
        carrier.release(self.id);
        // INVARIANT 3 of the module.
        Ok(is_sent && carrier.may_carry_another())
    }
}
