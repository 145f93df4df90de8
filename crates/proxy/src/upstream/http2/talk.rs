//! One request on a connection of HTTP/2: its head goes out, its body as far as the peer lets it,
//! and the head of the answer comes.
//!
//! 1. A peer that goes away in peace before it has looked at the request has not been asked: a kept
//!    connection is replaced then, as one that died.
//! 2. A request counts as sent, whatever the peer did with it, once bytes of its body are gone that
//!    nobody keeps: no other peer is asked with the rest of it.
//! 3. Among streams that share a connection, the peer's reason to go away is none of this one's: it
//!    is asked again whatever that is.
//! 4. The peer has a timeout from the last thing that was sent of the request, or came of the
//!    answer: words about the connection keep nobody waiting.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use millpond_system::clock::{self, Instant};
use millpond_wire::header::Fields;
use millpond_wire::http1::Version;
use millpond_wire::http1::response::{MAX_INTERIM, ResponseHead};
use millpond_wire::http2::{Code, Event, Gone};

use super::super::broken::Broken;
use super::super::exchange::{Fetched, Sent, Try, ignores_client};
use super::super::head::Coding;
use super::super::hints::Hints;
use super::body::StreamBody;
use super::carrier::Carrier;
use super::request;
use super::upload::{Upload, Waits};
use super::words;
use millpond_exchange::failure::{UpstreamFailure, UpstreamKind};

/// Step on the way to an answer's head.
enum Step {
    /// An interim answer.
    Interim(ResponseHead),
    /// The head of the answer.
    Answer(ResponseHead),
}

impl Try<'_> {
    /// Sends the request and reads the head of the answer, both as the peer lets it; it is `now`.
    /// INVARIANT 4.
    pub(in super::super) async fn talk_http2(
        &mut self,
        mut carrier: Carrier,
        mut now: Instant,
    ) -> Result<Box<Fetched>, Broken> {
        let max = self.pass.exchange.head_size.as_usize();
        let mut stream = self.open(&mut carrier, max)?;
        let mut hints = Hints::new(max);
        let mut interim_left = MAX_INTERIM;
        loop {
            let step = std::future::poll_fn(|cx| {
                self.poll_step_http2(cx, (&mut stream, &mut carrier), &mut now)
            })
            .await;
            now = clock::instant();
            let step = step.map_err(|mut broken| {
                broken.is_silent &= carrier.may_be_repeated();
                stream.give_up(&mut carrier);
                broken
            });
            match step? {
                Step::Answer(head) => {
                    let coding = Coding::Stream(Box::new(stream));
                    return self.fetched((head, coding), carrier, (Sent::AsTheStreamSays, now));
                }
                Step::Interim(_) if interim_left == 0 => {
                    return Err(Broken::invalid("upstream sent too many interim answers"));
                }
                Step::Interim(head) => {
                    interim_left -= 1;
                    let protocol = self.protocol;
                    Box::pin(hints.pass_on(self.req, protocol, head)).await;
                }
            }
        }
    }

    /// Opens the stream of the request.
    fn open(&self, carrier: &mut Carrier, max: usize) -> Result<StreamBody, Broken> {
        let opened = carrier.open(max, |engine| request::open(engine, self.prepared));
        match opened {
            Some(id) => {
                let upload = Upload::new(self.req, &self.prepared.body);
                let mut stream = StreamBody::new(id, upload);
                if !ignores_client(self.req, self.protocol, self.ask) {
                    stream.watch(Rc::clone(&self.req.client));
                }
                Ok(stream)
            }
            None => Err(Broken::closed(true)),
        }
    }

    /// Polls for the next part of the answer's head, waited for since `last`; sends what can be
    /// sent meanwhile.
    fn poll_step_http2(
        &mut self,
        cx: &mut Context<'_>,
        (stream, carrier): (&mut StreamBody, &mut Carrier),
        last: &mut Instant,
    ) -> Poll<Result<Step, Broken>> {
        loop {
            self.was_sent |= carrier.was_sent(0);
            if let Some(step) = self.next_step(stream, carrier)? {
                return Poll::Ready(Ok(step));
            }
            let waits = self.send_http2(cx, (&mut *stream, &mut *carrier))?;
            if stream.has_sent_more(carrier) {
                *last = clock::instant();
            }
            match carrier.poll_head(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(Broken::closed(stream.is_silent))),
                Poll::Ready(Err(error)) => {
                    let broken = Broken::io(&error, stream.is_silent, self.was_sent);
                    return Poll::Ready(Err(broken));
                }
                Poll::Pending => {
                    let policy = &self.pass.exchange;
                    let timeout = match waits {
                        // The client has a time of its own.
                        Waits::ForClient => return Poll::Pending,
                        Waits::ForNobody => policy.read_timeout,
                        Waits::ForPeer => policy.send_timeout,
                    };
                    ready!(carrier.timer().poll_expired(cx, *last + timeout));
                    carrier.note_silence();
                    return Poll::Ready(Err(Broken::timed_out()));
                }
            }
        }
    }

    /// Sends what can be sent, and notes it.
    fn send_http2(
        &mut self,
        cx: &mut Context<'_>,
        (stream, carrier): (&mut StreamBody, &mut Carrier),
    ) -> Result<Waits, Broken> {
        let (sent, waits) = stream.poll_send(cx, carrier).map_err(|failure| {
            self.client_failure = Some(Box::new(failure));
            Broken::said(UpstreamFailure::new(
                UpstreamKind::Error,
                "the client's body ended early",
            ))
        })?;
        self.was_sent |= carrier.was_sent(sent);
        if let Some(attempt) = self.req.upstream.borrow_mut().attempts.last_mut() {
            attempt.bytes_sent += sent;
        }
        Ok(waits)
    }

    /// The next part of the answer's head, as far as the bytes that have come tell.
    fn next_step(
        &mut self,
        stream: &mut StreamBody,
        carrier: &mut Carrier,
    ) -> Result<Option<Step>, Broken> {
        while let Some(event) = carrier.next_event(stream.id()) {
            match event {
                Event::Interim { status, fields, .. } => {
                    stream.is_silent = false;
                    let lines = fields.iter();
                    let len = lines
                        .map(|field| field.name.len() + field.value.len())
                        .sum();
                    return Ok(Some(Step::Interim(head((status, fields), len))));
                }
                Event::Answer {
                    status,
                    fields,
                    body,
                    head_len,
                    ..
                } => {
                    stream.begin(body);
                    return Ok(Some(Step::Answer(head((status, fields), head_len))));
                }
                Event::Gone { why, .. } => {
                    return Err(self.gone(stream, carrier, why));
                }
                Event::Malformed { fault, .. } => {
                    return Err(Broken::invalid(&words::of_fault(fault)));
                }
                Event::Failed(fault) => {
                    let mut broken = Broken::invalid(&words::of_fault(fault));
                    // It may be another stream's.
                    broken.is_silent = carrier.is_shared() && stream.is_silent;
                    return Err(broken);
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// The end of the stream before its answer. INVARIANTS 1 and 2.
    fn gone(&mut self, stream: &StreamBody, carrier: &Carrier, why: Gone) -> Broken {
        let mut broken = Broken::invalid(&words::of_end(why, carrier.farewell()));
        let is_calm = why != Gone::Unprocessed || carrier.farewell() == Code::NO_ERROR;
        let is_whole = stream.may_begin_again(&self.prepared.body);
        if !why.is_safe_to_retry() || !is_whole {
            return broken;
        }
        if carrier.is_shared() {
            // INVARIANT 3.
            broken.untouched = Some(why);
            self.was_sent = false;
        } else if is_calm {
            broken.is_silent = true;
            self.was_sent = false;
        }
        broken
    }
}

/// A head as answers of all protocols have it.
fn head((status, fields): (u16, Fields), head_len: usize) -> ResponseHead {
    ResponseHead {
        version: Version::Http2,
        status,
        status_line: Bytes::new(),
        fields,
        head_len,
    }
}
