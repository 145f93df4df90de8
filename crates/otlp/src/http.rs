//! OTLP over HTTP: a POST on a connection that is kept.
//!
//! An answer of success has what was not taken, any other the reason, both as protobuf.

use std::future::poll_fn;
use std::io::IoSlice;

use bytes::{Buf, BytesMut};
use millpond_system::log::error::os_error;
use millpond_system::socket::More;
use millpond_system::transport::Transport;
use millpond_wire::head::Method;
use millpond_wire::header::Known;
use millpond_wire::http1::chunked::{ChunkEvent, ChunkedDecoder, Strictness, TrailerLimits};
use millpond_wire::http1::response::{
    Framing, MAX_INTERIM, Progress, ResponseHead, ResponseParser,
};

use crate::connect::{Failed, poll_receive};
use crate::grpc::Call;
use crate::message;

/// The longest head of an answer (arbitrary: they have a few fields).
const HEAD_MAX: usize = 16 * 1024;
/// The longest answer that is read (arbitrary: it has a count and a sentence).
const ANSWER_MAX: usize = 64 * 1024;

/// A connection.
pub(crate) struct Http {
    transport: Transport,
    buf: BytesMut,
    /// True once a request was answered on it.
    is_kept: bool,
    is_usable: bool,
}

impl Http {
    pub(crate) fn new(transport: Transport) -> Self {
        Http {
            transport,
            buf: BytesMut::new(),
            is_kept: false,
            is_usable: true,
        }
    }

    /// True if the connection bears another request.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// Posts a message.
    pub(crate) async fn call(
        &mut self,
        call: &Call<'_>,
        message: &[u8],
    ) -> Result<Vec<u8>, Failed> {
        // Until it has ended well.
        self.is_usable = false;
        let head = head(call, message.len());
        let mut parts = [head.as_bytes(), message];
        for part in &mut parts {
            while !part.is_empty() {
                let slices = [IoSlice::new(part)];
                let sending = poll_fn(|cx| self.transport.poll_send(cx, &slices, More::Nothing));
                let sent = sending.await.map_err(|why| self.broken(os_error(&why)))?;
                part.advance(sent);
            }
        }
        let head = self.head().await?;
        let told = head.framing(Method::Post);
        let framing = told.map_err(|why| Failed::from(why.to_string()))?;
        let body = self.body(framing).await?;
        let connection = head.fields.get(Known::Connection);
        let closes = connection.is_some_and(|value| value.eq_ignore_ascii_case(b"close"));
        self.is_usable = !closes && self.buf.is_empty() && framing != Framing::UntilClose;
        self.is_kept = true;
        match head.status {
            200..=299 => Ok(body),
            status => {
                let text = message::status_text(&body);
                Err(format!("it answers with {status} {text}")
                    .trim_end()
                    .to_owned()
                    .into())
            }
        }
    }

    fn broken(&self, why: String) -> Failed {
        if self.is_kept && self.buf.is_empty() {
            Failed::Stale
        } else {
            Failed::Because(why)
        }
    }

    async fn head(&mut self) -> Result<ResponseHead, Failed> {
        let mut parser = ResponseParser::new();
        let mut interim_left = MAX_INTERIM;
        loop {
            match parser.parse(&mut self.buf, HEAD_MAX) {
                // RFC 9110 §15.2: interim answers come before the one that counts.
                Progress::Done(head) if head.status < 200 && interim_left > 0 => interim_left -= 1,
                Progress::Done(head) if head.status < 200 => {
                    return Err("it sends nothing but interim answers".to_owned().into());
                }
                Progress::Done(head) => return Ok(head),
                Progress::NotHttp => return Err("the answer is no HTTP".to_owned().into()),
                Progress::Refuse(fault) => return Err(fault.to_string().into()),
                Progress::NeedMore => self.receive().await?,
            }
        }
    }

    async fn body(&mut self, framing: Framing) -> Result<Vec<u8>, Failed> {
        match framing {
            Framing::None | Framing::Switched => Ok(Vec::new()),
            Framing::Length(length) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                within_limit(length)?;
                while self.buf.len() < length {
                    self.receive().await?;
                }
                Ok(self.buf.split_to(length).to_vec())
            }
            Framing::Chunked => self.chunks().await,
            // What it says is worth no more than its status.
            Framing::UntilClose => Ok(Vec::new()),
        }
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, Failed> {
        let mut decoder = ChunkedDecoder::new(Strictness::Upstream, TrailerLimits::default());
        let mut body = Vec::new();
        loop {
            let event = decoder.decode(&mut self.buf);
            match event.map_err(|error| Failed::from(error.to_string()))? {
                ChunkEvent::Data(bytes) => {
                    within_limit(body.len() + bytes.len())?;
                    body.extend_from_slice(&bytes);
                }
                ChunkEvent::End { .. } => return Ok(body),
                ChunkEvent::NeedMore => self.receive().await?,
            }
        }
    }

    async fn receive(&mut self) -> Result<(), Failed> {
        let received = poll_fn(|cx| poll_receive(&self.transport, cx, &mut self.buf)).await;
        match received {
            Ok(0) => Err(self.broken("the connection was closed".to_owned())),
            Ok(_) => Ok(()),
            Err(why) => Err(self.broken(os_error(&why))),
        }
    }
}

fn head(call: &Call<'_>, len: usize) -> String {
    let mut text = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {}\r\n\
         Content-Type: application/x-protobuf\r\nContent-Length: {len}\r\n",
        call.path,
        call.authority,
        message::AGENT,
    );
    for (name, value) in call.headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + "\r\n"
}

fn within_limit(len: usize) -> Result<(), Failed> {
    match len {
        0..=ANSWER_MAX => Ok(()),
        _ => Err(format!("the answer is longer than {ANSWER_MAX} bytes").into()),
    }
}
