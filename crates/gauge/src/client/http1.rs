//! One connection of HTTP/1.1, and the request that is on it.
//!
//! ```text
//! send_and_wait ──► read_head ──► read_body, each piece to the check
//! ```
//!
//! 1. A connection that ends is the end of a body only if nothing else tells that, and only if the
//!    server ended it in order: over TLS with close_notify (RFC 9112, section 9.8).

use std::io;
use std::sync::Arc;

use bytes::BytesMut;

use super::ask::Ask;
use super::body::{Body, Next};
use super::check::Reading;
use super::fault::Fault;
use super::head::{self, Head, Method};
use super::journal::{Event, Journal};
use super::stream::{Opener, Stream};
use super::{FETCH_MAX, HEAD_MAX, Target};

/// Bytes that are read at one time.
const READ: usize = 256 << 10;

/// A connection of HTTP/1.1, as far as there is one.
#[derive(Debug)]
pub(super) struct Http1 {
    target: Arc<Target>,
    journal: Journal,
    opener: Opener,
    stream: Option<Stream>,
    buf: BytesMut,
}

impl Http1 {
    /// No connection yet.
    pub(super) fn new(target: Arc<Target>, journal: Journal) -> Self {
        Self {
            opener: Opener::new(&target, journal.clone()),
            target,
            journal,
            stream: None,
            buf: BytesMut::new(),
        }
    }

    /// Ends the connection, so that the next request makes one.
    pub(super) fn hang_up(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.end();
        }
        self.buf.clear();
    }

    /// Asks, and reads and checks the answer.
    pub(super) async fn exchange(&mut self, ask: &Ask, reading: &mut Reading) -> Result<(), Fault> {
        let text = text(ask, &self.target.host);
        self.send_again_if_kept(&text).await?;
        reading.handle_begin();
        let head = self.read_head(ask.kind()).await?;
        let mut body = Body::new(head.framing);
        reading.handle_head(head, ask)?;
        self.read_body(&mut body, reading).await?;
        if !self.buf.is_empty() {
            return Err(Fault::Behind);
        }
        reading.handle_end(ask)
    }

    /// Asks on a connection that ends with the answer; status and body.
    pub(super) async fn fetch(
        &mut self,
        method: &str,
        path: &str,
    ) -> Result<(u16, Vec<u8>), Fault> {
        let mut out = Vec::new();
        let fields = ["Connection: close".to_owned()];
        let mut keep = |piece: &[u8]| {
            out.extend_from_slice(piece);
            let is_short = out.len() <= FETCH_MAX;
            let wanted = FETCH_MAX as u64;
            is_short.then_some(()).ok_or(Fault::TooLong { wanted })
        };
        let head = self.visit((method, path), &fields, &mut keep).await?;
        Ok((head.status, out))
    }

    /// Asks with field lines of its own, and gives each piece of the body away.
    pub(super) async fn visit(
        &mut self,
        (method, path): (&str, &str),
        fields: &[String],
        each: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<Head, Fault> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.target.host);
        for field in fields {
            text.push_str(field);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        self.send_again_if_kept(&text).await?;
        let head = self.read_head(Method::Other).await?;
        let mut body = Body::new(head.framing);
        loop {
            match body.next(&mut self.buf)? {
                Next::Over => return Ok(head),
                Next::Bytes(count) => each(&self.buf.split_to(count))?,
                Next::Read => match self.read().await {
                    Ok(0) if body.may_end() => return Ok(head),
                    Ok(0) => return Err(Fault::NoHead(io::ErrorKind::UnexpectedEof.into())),
                    Ok(_) => {}
                    Err(error) => return Err(Fault::ended(error)),
                },
            }
        }
    }

    /// Sends a request; once more on a new connection if the kept one was at its end (INVARIANT 2
    /// of the client).
    async fn send_again_if_kept(&mut self, text: &str) -> Result<(), Fault> {
        let is_kept = self.stream.is_some();
        let sent = self.send_and_wait(text).await;
        if matches!(sent, Err(Fault::NoHead(_))) && is_kept && self.buf.is_empty() {
            self.hang_up();
            self.journal.add(Event::Repeated);
            return self.send_and_wait(text).await;
        }
        sent
    }

    /// Sends the request, and waits for the first byte of an answer.
    async fn send_and_wait(&mut self, text: &str) -> Result<(), Fault> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(self.opener.open().await?),
        };
        let sent = stream.write_all(text.as_bytes()).await;
        sent.map_err(Fault::ended)?;
        self.read_more().await
    }

    /// Reads more; none at the end, if that is in order.
    async fn read(&mut self) -> io::Result<usize> {
        let Some(stream) = self.stream.as_mut() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        self.buf.reserve(READ.saturating_sub(self.buf.len()).max(1));
        stream.read_buf(&mut self.buf).await
    }

    /// Reads more of a head; an end is a fault.
    async fn read_more(&mut self) -> Result<(), Fault> {
        match self.read().await {
            Ok(0) => Err(Fault::NoHead(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(error) => Err(Fault::ended(error)),
        }
    }

    async fn read_head(&mut self, method: Method) -> Result<Head, Fault> {
        loop {
            let field = &self.target.status_field;
            if let Some((head, used)) = head::parse(&self.buf, method, field)? {
                // What was parsed is in the buffer.
                drop(self.buf.split_to(used));
                if head.status >= 200 {
                    return Ok(head);
                }
                continue;
            }
            if self.buf.len() > HEAD_MAX {
                return Err(Fault::Head("too long".to_owned()));
            }
            self.read_more().await?;
        }
    }

    async fn read_body(&mut self, body: &mut Body, reading: &mut Reading) -> Result<(), Fault> {
        loop {
            match body.next(&mut self.buf)? {
                Next::Over => return Ok(()),
                Next::Bytes(count) => {
                    let bytes = self.buf.split_to(count);
                    reading.handle_bytes(&bytes).await?;
                }
                Next::Read => match self.read().await {
                    Ok(0) if body.may_end() => return Ok(()),
                    Ok(0) => return Err(reading.truncated()),
                    Ok(_) => {}
                    Err(error) => match Fault::ended(error) {
                        Fault::NoHead(_) => return Err(reading.truncated()),
                        fault => return Err(fault),
                    },
                },
            }
        }
    }
}

/// A request as HTTP/1.1 has it.
fn text(ask: &Ask, host: &str) -> String {
    let (method, path) = (&ask.method, ask.resource.path());
    let range = ask
        .want
        .field()
        .map(|range| format!("Range: {range}\r\n"))
        .unwrap_or_default();
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{range}\r\n")
}
