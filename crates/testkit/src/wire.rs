//! Reading HTTP/1.x messages from a blocking socket, for the client and the origin alike.
//!
//! `Wire` is a socket with what was read ahead. It takes heads, bodies of a known length, chunked
//! bodies and what is left until the peer closes.
//!
//! 1. What a body held before it broke off is kept: readers get the bytes and how it ended.
//! 2. Heads are bounded by `MOST_HEAD` and chunk lines by `MOST_LINE`.

use crate::message::{Fields, decode_latin1};
use anyhow::{Context, Result, bail};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest head that is read.
const MOST_HEAD: usize = 1 << 20;
/// Longest chunk-size or trailer line.
const MOST_LINE: usize = 16 << 10;

/// A TCP or a unix socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
        })
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }

    /// Closes the given directions; a socket that is closed already is no error.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        let _already_closed = match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buf),
            Stream::Unix(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buf),
            Stream::Unix(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Delimiter of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delimited {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// End of reading a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The message was complete.
    Complete,
    /// The peer closed, or broke the coding, before the end; why.
    Truncated(String),
}

/// A socket with what was read ahead of it.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) stream: Stream,
    ahead: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: Stream) -> Wire {
        Wire {
            stream,
            ahead: Vec::new(),
        }
    }

    /// Reads once more from the socket; 0 means that the peer has closed.
    fn fill(&mut self) -> io::Result<usize> {
        let mut buf = [0; 16 << 10];
        let count = self.stream.read(&mut buf)?;
        self.ahead.extend(buf.iter().take(count));
        Ok(count)
    }

    /// Reads bytes; the peer closing before the last one is an error.
    pub(crate) fn read_exact(&mut self, out: &mut [u8]) -> Result<()> {
        while self.ahead.len() < out.len() {
            if self.fill()? == 0 {
                bail!("closed {} bytes early", out.len() - self.ahead.len());
            }
        }
        let len = out.len();
        for (to, from) in out.iter_mut().zip(self.ahead.drain(..len)) {
            *to = from;
        }
        Ok(())
    }

    /// Waits for the first byte; false means that the peer has closed.
    pub(crate) fn wait_for_byte(&mut self) -> io::Result<bool> {
        Ok(!self.ahead.is_empty() || self.fill()? > 0)
    }

    /// True if the next bytes are `prefix`; waits until that is known.
    pub(crate) fn begins_with(&mut self, prefix: &[u8]) -> io::Result<bool> {
        while self.ahead.len() < prefix.len() && prefix.starts_with(&self.ahead) {
            if self.fill()? == 0 {
                break;
            }
        }
        Ok(self.ahead.starts_with(prefix))
    }

    /// Takes a head, with the CRLF of its last line but without the empty line after it.
    pub(crate) fn take_head(&mut self) -> Result<Option<Vec<u8>>> {
        let mut seen = 0;
        loop {
            if let Some(at) = find(&self.ahead, b"\r\n\r\n", seen) {
                let head = self.ahead.drain(..at + 4).take(at + 2).collect();
                return Ok(Some(head));
            }
            if self.ahead.len() > MOST_HEAD {
                bail!("head is longer than {MOST_HEAD} bytes");
            }
            seen = self.ahead.len().saturating_sub(3);
            if self.fill()? == 0 {
                if self.ahead.is_empty() {
                    return Ok(None);
                }
                bail!("closed within a head: {:?}", decode_latin1(&self.ahead));
            }
        }
    }

    /// Takes a body into `body`; trailers of a chunked one into `trailers`.
    pub(crate) fn take_body(
        &mut self,
        delimited: Delimited,
        body: &mut Vec<u8>,
        trailers: &mut Fields,
    ) -> Result<End> {
        match delimited {
            Delimited::None => Ok(End::Complete),
            Delimited::Length(len) => self.take_length(len, body),
            Delimited::Chunked => self.take_chunked(body, trailers),
            Delimited::UntilClose => {
                while self.fill()? > 0 {}
                body.append(&mut self.ahead);
                Ok(End::Complete)
            }
        }
    }

    fn take_length(&mut self, len: u64, body: &mut Vec<u8>) -> Result<End> {
        let mut left = len;
        loop {
            let count = left.min(self.ahead.len() as u64);
            body.extend(self.ahead.drain(..usize::try_from(count)?));
            left -= count;
            if left == 0 {
                return Ok(End::Complete);
            }
            match self.fill() {
                Ok(0) => return Ok(End::Truncated(format!("closed {left} bytes early"))),
                Ok(_) => {}
                Err(error) if is_reset(&error) => {
                    return Ok(End::Truncated(format!("reset {left} bytes early")));
                }
                Err(error) => return Err(error).context(format!("{left} of {len} bytes left")),
            }
        }
    }

    fn take_chunked(&mut self, body: &mut Vec<u8>, trailers: &mut Fields) -> Result<End> {
        loop {
            let Some(line) = self.take_line()? else {
                return Ok(End::Truncated("closed before the last chunk".to_string()));
            };
            let digits = line.split(';').next().unwrap_or_default().trim_end();
            let Ok(len) = u64::from_str_radix(digits, 16) else {
                return Ok(End::Truncated(format!("bad chunk size {line:?}")));
            };
            if len == 0 {
                break;
            }
            if let End::Truncated(why) = self.take_length(len, body)? {
                return Ok(End::Truncated(why));
            }
            match self.take_line()? {
                Some(line) if line.is_empty() => {}
                other => return Ok(End::Truncated(format!("after a chunk came {other:?}"))),
            }
        }
        loop {
            match self.take_line()? {
                Some(line) if line.is_empty() => return Ok(End::Complete),
                Some(line) => trailers.0.append(&mut Fields::parse(&line)?.0),
                None => return Ok(End::Truncated("closed within trailers".to_string())),
            }
        }
    }

    /// Takes a line without its CRLF; `None` when the peer closed before its end.
    fn take_line(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(at) = find(&self.ahead, b"\r\n", 0) {
                let line: Vec<u8> = self.ahead.drain(..at + 2).take(at).collect();
                return Ok(Some(decode_latin1(&line)));
            }
            if self.ahead.len() > MOST_LINE {
                bail!("line is longer than {MOST_LINE} bytes");
            }
            match self.fill() {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if is_reset(&error) => return Ok(None),
                Err(error) => return Err(error).context("within a chunked body"),
            }
        }
    }
}

fn is_reset(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset
}

fn find(haystack: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    haystack
        .get(from..)?
        .windows(needle.len())
        .position(|window| window == needle)
        .map(|at| at + from)
}
