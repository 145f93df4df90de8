//! The body of a request on its way to a peer, as the peer's windows let it.
//!
//! ```text
//! Whole(piece) ──all pushed──┐
//! Client(…) ─────its end─────┴─► Done
//! ```
//!
//! 1. The client is asked for more only when there is room for it, so that a slow peer slows the
//!    client down.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use millpond_system::body::Piece;

use super::super::request::{OutBody, READY_MAX};
use super::carrier::Carrier;
use crate::request::Request;
use millpond_exchange::client::Client;
use millpond_exchange::client::body::Remains;
use millpond_exchange::failure::Failure;

/// The part of a body that has not gone to the engine.
pub(super) enum Upload {
    /// None: the engine knows the end.
    Done,
    /// The rest of a body that is there.
    Whole(Piece),
    /// A body that the client still sends.
    Client(FromClient),
}

/// A body while its client sends it.
pub(super) struct FromClient {
    client: Rc<Client>,
    /// Time that the client may be silent.
    timeout: Duration,
    /// Bytes that the body may have; 0: any number.
    max: u64,
    received: u64,
    next: Option<NextChunk>,
    /// Bytes that came with the head.
    first: Option<Bytes>,
    /// True once bytes were taken from the client that nobody keeps.
    has_taken: bool,
}

/// The wait for a client's next bytes.
type NextChunk = Pin<Box<dyn Future<Output = Result<Bytes, Failure>>>>;

/// The end that must do something before a body goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nobody: it is with the engine.
    ForNobody,
    /// The client.
    ForClient,
    /// The peer, or the socket.
    ForPeer,
}

impl Upload {
    /// The body of a request, whose head has gone to the engine.
    pub(super) fn new(req: &Request, body: &OutBody) -> Self {
        match body {
            OutBody::Client { first, .. } if !body.is_empty() => {
                let policy = &req.location.settings.body;
                Upload::Client(FromClient {
                    client: Rc::clone(&req.client),
                    timeout: policy.timeout,
                    max: policy.max_size.0,
                    received: 0,
                    next: None,
                    first: Some(first.clone()).filter(|first| !first.is_empty()),
                    has_taken: false,
                })
            }
            body => body.whole().map_or(Upload::Done, Upload::Whole),
        }
    }

    /// True when all of the body has gone to the engine.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Upload::Done)
    }

    /// True if the body, of which this is the rest, can be sent once more from its begin.
    pub(super) fn is_kept(&self, body: &OutBody) -> bool {
        match self {
            Upload::Client(from) => !from.has_taken,
            Upload::Done | Upload::Whole(_) => {
                !matches!(body, OutBody::Client { .. }) || body.is_empty()
            }
        }
    }

    /// Gives the engine what there is room for.
    ///
    /// # Errors
    /// The client's body, or a file of ours, failed.
    pub(super) fn poll_push(
        &mut self,
        cx: &mut Context<'_>,
        (carrier, stream): (&mut Carrier, u32),
    ) -> Result<Waits, Failure> {
        loop {
            if self.is_done() {
                return Ok(Waits::ForNobody);
            }
            if carrier.room(stream) == 0 {
                return Ok(Waits::ForPeer);
            }
            let (bytes, remains) = match self {
                Upload::Done => return Ok(Waits::ForNobody),
                Upload::Whole(piece) => {
                    let taken = piece.take_memory();
                    let bytes = taken.map_err(|error| Failure::Internal(error.to_string()))?;
                    if piece.is_empty() {
                        (bytes, Remains::Nothing)
                    } else {
                        (bytes, Remains::More)
                    }
                }
                Upload::Client(from) => match from.poll_next(cx) {
                    Poll::Pending => return Ok(Waits::ForClient),
                    Poll::Ready(came) => came?,
                },
            };
            carrier.push(stream, bytes);
            if remains == Remains::Nothing {
                carrier.finish(stream);
                *self = Upload::Done;
            }
        }
    }
}

impl FromClient {
    /// The next bytes, and whether they are the last.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Bytes, Remains), Failure>> {
        let bytes = match self.first.take() {
            Some(first) => first,
            None => {
                let next = self.next.get_or_insert_with(|| {
                    let (client, timeout) = (Rc::clone(&self.client), self.timeout);
                    Box::pin(async move { client.next_chunk(timeout).await })
                });
                let chunk = ready!(next.as_mut().poll(cx));
                self.next = None;
                self.has_taken = true;
                self.with_ready(chunk?)?
            }
        };
        self.received += bytes.len() as u64;
        if self.max > 0 && self.received > self.max {
            return Poll::Ready(Err(Failure::too_large(format!(
                "client intended to send too large body: {} bytes",
                self.received
            ))));
        }
        let remains = if bytes.is_empty() || self.client.is_body_done() {
            Remains::Nothing
        } else {
            Remains::More
        };
        Poll::Ready(Ok((bytes, remains)))
    }

    /// Adds what else has come: pieces that came together go on as one.
    fn with_ready(&self, chunk: Bytes) -> Result<Bytes, Failure> {
        if chunk.is_empty() {
            return Ok(chunk);
        }
        let (more, _) = self.client.take_ready(READY_MAX)?;
        if more.is_empty() {
            return Ok(chunk);
        }
        Ok(Bytes::from([&chunk[..], &more[..]].concat()))
    }
}
