//! gRPC, as far as a call with one message each way needs it: a stream of HTTP/2 on a connection
//! that is kept.
//!
//! | bytes of a message | contents |
//! |---|---|
//! | 0 | 0: not compressed |
//! | 1..5 | length, the highest byte first |
//! | 5.. | the message |
//!
//! The outcome is `grpc-status` of the trailers, or of the head where the answer has no more.
//!
//! Source: gRPC over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md).

use std::future::poll_fn;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::os_error;
use millpond_system::socket::More;
use millpond_system::transport::Transport;
use millpond_wire::header::Fields;
use millpond_wire::http2::{Config, Connection as Engine, End, Event, RequestLine, Role};

use crate::connect::{Failed, poll_receive};
use crate::message::AGENT;

/// Bytes before a message.
pub(crate) const HEAD_LEN: usize = 5;
/// The longest answer that is read (arbitrary: it has a count and a sentence).
const ANSWER_MAX: usize = 64 * 1024;
/// Bytes that are put into frames at once (arbitrary: a few reads of the peer).
const BUDGET: usize = 256 * 1024;

/// A call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) authority: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(String, String)],
}

/// A connection.
pub(crate) struct Grpc {
    transport: Transport,
    engine: Engine,
    buf: BytesMut,
    began: Instant,
    /// True while nothing was answered on it since the last call began.
    is_silent: bool,
    /// True once a call has succeeded on it.
    is_kept: bool,
}

/// An answer while it is read.
#[derive(Default)]
struct Answer {
    status: u16,
    fields: Fields,
    trailers: Option<Fields>,
    body: Vec<u8>,
    is_whole: bool,
}

impl Grpc {
    pub(crate) fn new(transport: Transport) -> Self {
        let config = Config {
            // Nothing of an answer's fields is worth to be kept for the next one.
            table_size: 0,
            chunk_len: 16 * 1024,
            ..Config::default()
        };
        Grpc {
            transport,
            engine: Engine::new(Role::Client, config),
            buf: BytesMut::new(),
            began: clock::instant(),
            is_silent: true,
            is_kept: false,
        }
    }

    /// True if the connection bears another call.
    pub(crate) fn is_usable(&self) -> bool {
        self.engine.may_open()
    }

    /// Calls with a message, whose first [`HEAD_LEN`] bytes are free.
    pub(crate) async fn call(
        &mut self,
        call: &Call<'_>,
        mut message: Vec<u8>,
    ) -> Result<Vec<u8>, Failed> {
        self.is_silent = true;
        // A batch has a bound far below 4 GiB.
        let len = u32::try_from(message.len().saturating_sub(HEAD_LEN)).unwrap_or(u32::MAX);
        if let Some(place) = message.get_mut(1..HEAD_LEN) {
            place.copy_from_slice(&len.to_be_bytes());
        }
        let line = RequestLine {
            method: b"POST",
            scheme: call.scheme.as_bytes(),
            authority: call.authority.as_bytes(),
            path: call.path.as_bytes(),
        };
        let opened = self.engine.open(&line, End::Later, |head| {
            head.any(b"te", b"trailers");
            head.any(b"content-type", b"application/grpc");
            head.any(b"user-agent", AGENT.as_bytes());
            for (name, value) in call.headers {
                head.any(name.as_bytes(), value.as_bytes());
            }
        });
        let stream = opened.ok_or(Failed::Stale)?;
        self.engine.push(stream, Bytes::from(message));
        self.engine.finish(stream, None);
        let answered = self.answer(stream).await;
        self.engine.release(stream);
        let answer = answered?.judged()?;
        self.is_kept = true;
        Ok(answer)
    }

    async fn answer(&mut self, stream: u32) -> Result<Answer, Failed> {
        let mut answer = Answer::default();
        loop {
            let now = clock::instant() - self.began;
            while let Some(event) = self.engine.next_event(&mut self.buf, now) {
                self.take(event, stream, &mut answer)?;
            }
            self.engine.produce(BUDGET);
            if answer.is_whole && self.engine.output().is_empty() {
                return Ok(answer);
            }
            match self.go_on().await {
                Ok(true) => {}
                Ok(false) if self.is_kept && self.is_silent => return Err(Failed::Stale),
                Ok(false) => return Err("the connection was closed".to_owned().into()),
                Err(_) if self.is_kept && self.is_silent => return Err(Failed::Stale),
                Err(why) => return Err(os_error(&why).into()),
            }
        }
    }

    fn take(&mut self, event: Event, stream: u32, answer: &mut Answer) -> Result<(), Failed> {
        match event {
            Event::Answer { status, fields, .. } => {
                self.is_silent = false;
                (answer.status, answer.fields) = (status, fields);
            }
            Event::Data { stream, bytes } => {
                self.engine.consume(stream, bytes.len());
                if answer.body.len() + bytes.len() > ANSWER_MAX {
                    let why = format!("the answer is longer than {ANSWER_MAX} bytes");
                    return Err(why.into());
                }
                answer.body.extend_from_slice(&bytes);
            }
            Event::End { trailers, .. } => {
                answer.trailers = trailers;
                answer.is_whole = true;
            }
            Event::Gone { why, .. } if why.is_safe_to_retry() && self.is_kept => {
                return Err(Failed::Stale);
            }
            Event::Gone { .. } | Event::Malformed { .. } if answer.is_whole => {}
            Event::Gone { stream: gone, .. } if gone == stream => {
                return Err("the call was reset".to_owned().into());
            }
            Event::Malformed { .. } | Event::Failed(_) => {
                return Err("the answer is no HTTP/2".to_owned().into());
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends and receives what can be; false at the peer's end.
    async fn go_on(&mut self) -> std::io::Result<bool> {
        poll_fn(|cx| {
            let output = self.engine.output();
            if !output.is_empty() {
                let sent =
                    output.poll_write(|slices| self.transport.poll_send(cx, slices, More::Nothing));
                if let Poll::Ready(sent) = sent {
                    return Poll::Ready(sent.map(|_| true));
                }
            }
            poll_receive(&self.transport, cx, &mut self.buf).map_ok(|count| count > 0)
        })
        .await
    }
}

impl Answer {
    /// The message of an answer of success.
    fn judged(self) -> Result<Vec<u8>, Failed> {
        let find = |name: &[u8]| {
            let trailers = self.trailers.as_ref().and_then(|it| it.find(name));
            trailers
                .or_else(|| self.fields.find(name))
                .map(|value| &value[..])
        };
        let Some(code) = find(b"grpc-status") else {
            let why = format!("the answer has status {} and no grpc-status", self.status);
            return Err(why.into());
        };
        if code != b"0" {
            let code = String::from_utf8_lossy(code);
            let text = find(b"grpc-message").map(unescape).unwrap_or_default();
            return Err(format!("grpc-status {code}: {text}").into());
        }
        Ok(self.body.get(HEAD_LEN..).unwrap_or_default().to_vec())
    }
}

/// The text of `grpc-message`, which is percent-encoded.
fn unescape(text: &[u8]) -> String {
    let digit = |at: usize| {
        let byte = text.get(at)?;
        char::from(*byte).to_digit(16)
    };
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                // Two digits are a byte.
                out.push((high << 4 | low) as u8);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn messages_are_percent_encoded() {
        for (text, expected) in [
            ("", ""),
            ("no", "no"),
            ("a%20b%25", "a b%"),
            ("100%", "100%"),
            ("%zz", "%zz"),
            ("%e2%82%ac", "\u{20ac}"),
        ] {
            assert_eq!(unescape(text.as_bytes()), expected);
        }
    }
}
