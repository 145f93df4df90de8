//! The client: HTTP/1.1 over blocking sockets, with every byte under the test's control.
//!
//! [`Client`] makes one request per connection; [`Connection`] keeps one open, sends raw bytes
//! (pipelined, in pieces, half of a message) and reads head and body separately. A [`Response`]
//! keeps what came, in order, with the instants of its first and last byte, and whether it was
//! complete.
//!
//! 1. Nothing is repaired or retried; a truncated body is an [`End::Truncated`], not an error.
//! 2. Every read and write ends after `TIMEOUT` with an error.
//! 3. Interim responses (1xx, but not 101) are kept in `interim` and skipped.
//! 4. A response that does not begin with `HTTP/` is one of HTTP/0.9: status 0, and all is body.

use crate::deadline::Deadline;
use crate::message::{Fields, ResponseHead, encode_latin1};
use crate::origin::offset_bytes;
use crate::wire::{Delimited, Stream, Wire};
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

pub use crate::wire::End;

/// Time that one read or write may take; longer than anything that a test waits for.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Makes requests to one address, each on a connection of its own unless asked otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    address: SocketAddr,
}

impl Client {
    /// A client of 127.0.0.1 on `port`.
    pub fn new(port: u16) -> Client {
        Client {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
        }
    }

    /// A client of any address.
    pub fn at(address: SocketAddr) -> Client {
        Client { address }
    }

    /// Opens a connection.
    pub fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect_timeout(&self.address, TIMEOUT)
            .with_context(|| self.address.to_string())?;
        let stream = Stream::Tcp(stream);
        stream.set_timeout(TIMEOUT)?;
        Ok(Connection {
            wire: Wire::new(stream),
        })
    }

    /// `GET path`, on a connection that closes after it.
    pub fn get(&self, path: &str) -> Result<Response> {
        self.send(&Request::get(path))
    }

    /// Sends `request` with `Connection: close` added, and reads its response.
    pub fn send(&self, request: &Request) -> Result<Response> {
        let request = request.clone().header("Connection", "close");
        self.connect()?.exchange(&request)
    }

    /// Sends raw bytes, half-closes nothing, and reads responses until the server closes.
    pub fn send_raw(&self, bytes: &[u8]) -> Result<Vec<Response>> {
        let mut connection = self.connect()?;
        connection.send_raw(bytes)?;
        let mut responses = Vec::new();
        while let Some(response) = connection.next_response("GET")? {
            responses.push(response);
        }
        Ok(responses)
    }
}

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method as it is written in the request line.
    pub method: String,
    /// Path and query, as they are written.
    pub target: String,
    fields: Fields,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    None,
    Length(Vec<u8>),
    Chunked(Vec<Vec<u8>>),
}

impl Request {
    /// A request without fields but `Host: localhost`.
    pub fn new(method: &str, target: &str) -> Request {
        Request {
            method: method.to_string(),
            target: target.to_string(),
            fields: Fields(vec![("Host".to_string(), "localhost".to_string())]),
            body: Body::None,
        }
    }

    /// A GET request.
    pub fn get(target: &str) -> Request {
        Request::new("GET", target)
    }

    /// A HEAD request.
    pub fn head(target: &str) -> Request {
        Request::new("HEAD", target)
    }

    /// A POST request with a body of known length.
    pub fn post(target: &str, body: impl AsRef<[u8]>) -> Request {
        Request::new("POST", target).body(body)
    }

    /// Adds a field.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.fields.push(name, value);
        self
    }

    /// Replaces the Host field.
    pub fn host(mut self, host: &str) -> Request {
        self.fields.0.retain(|(name, _)| name != "Host");
        self.fields
            .0
            .insert(0, ("Host".to_string(), host.to_string()));
        self
    }

    /// Sends a body with Content-Length.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Request {
        self.body = Body::Length(body.as_ref().to_vec());
        self
    }

    /// Sends a body as these chunks.
    pub fn chunks(mut self, chunks: &[&str]) -> Request {
        self.body = Body::Chunked(chunks.iter().map(|c| c.as_bytes().to_vec()).collect());
        self
    }

    /// The request's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = encode_latin1(&format!("{} {} HTTP/1.1\r\n", self.method, self.target));
        self.fields.encode(&mut out);
        match &self.body {
            Body::None => out.extend(b"\r\n"),
            Body::Length(body) => {
                out.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
                out.extend(body);
            }
            Body::Chunked(chunks) => {
                out.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for chunk in chunks {
                    out.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    out.extend(chunk);
                    out.extend(b"\r\n");
                }
                out.extend(b"0\r\n\r\n");
            }
        }
        out
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
}

impl Connection {
    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.wire.stream.write_all(bytes).context("sending")
    }

    /// Sends bytes in pieces of `size`, with a pause after each.
    pub fn send_slowly(&mut self, bytes: &[u8], size: usize, pause: Duration) -> Result<()> {
        for piece in bytes.chunks(size.max(1)) {
            self.send_raw(piece)?;
            Deadline::after(pause).pass();
        }
        Ok(())
    }

    /// Sends a request and reads its response.
    pub fn exchange(&mut self, request: &Request) -> Result<Response> {
        self.send_raw(&request.encode())?;
        self.read_response(&request.method)
    }

    /// Reads the response to a request of `method`; the server closing instead is an error.
    pub fn read_response(&mut self, method: &str) -> Result<Response> {
        self.next_response(method)?
            .context("closed without a response")
    }

    /// Reads a response, or learns that the server has closed.
    pub fn next_response(&mut self, method: &str) -> Result<Option<Response>> {
        let Some(mut response) = self.read_head(method)? else {
            return Ok(None);
        };
        self.read_body(&mut response)?;
        Ok(Some(response))
    }

    /// Reads a response's head only; `read_body` reads the rest.
    pub fn read_head(&mut self, method: &str) -> Result<Option<Response>> {
        let mut interim = Vec::new();
        loop {
            let is_open = match self.wire.wait_for_byte() {
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
                other => other.context("waiting for a response")?,
            };
            let first_byte = Instant::now();
            if !is_open {
                return Ok(None);
            }
            let (head, delimited) = self.take_head(method)?;
            if (100..200).contains(&head.status) && head.status != 101 {
                interim.push(head);
                continue;
            }
            return Ok(Some(Response {
                status: head.status,
                version: head.version,
                reason: head.reason,
                headers: head.fields,
                body: Vec::new(),
                trailers: Fields::default(),
                interim,
                first_byte,
                last_byte: first_byte,
                end: End::Complete,
                delimited,
            }));
        }
    }

    fn take_head(&mut self, method: &str) -> Result<(ResponseHead, Delimited)> {
        if !self.wire.begins_with(b"HTTP/")? {
            // INVARIANT 4.
            let head = ResponseHead {
                version: "HTTP/0.9".to_string(),
                status: 0,
                reason: String::new(),
                fields: Fields::default(),
            };
            return Ok((head, Delimited::UntilClose));
        }
        let bytes = self.wire.take_head()?.context("closed within a head")?;
        let head = ResponseHead::parse(&bytes)?;
        let delimited = delimited(&head, method)?;
        Ok((head, delimited))
    }

    /// Reads the body of a response whose head was read.
    pub fn read_body(&mut self, response: &mut Response) -> Result<()> {
        let (body, trailers) = (&mut response.body, &mut response.trailers);
        response.end = self.wire.take_body(response.delimited, body, trailers)?;
        response.last_byte = Instant::now();
        Ok(())
    }

    /// Reads until at least `len` bytes of a body of known length or until close have come, and
    /// leaves the rest; `read_body` then reads on.
    pub fn read_some(&mut self, response: &mut Response, len: usize) -> Result<()> {
        let Delimited::Length(total) = response.delimited else {
            anyhow::bail!("only a body of known length can be read in part");
        };
        let some = total.min(len as u64);
        response.end = self.wire.take_body(
            Delimited::Length(some),
            &mut response.body,
            &mut response.trailers,
        )?;
        response.delimited = Delimited::Length(total - some);
        response.last_byte = Instant::now();
        Ok(())
    }

    /// Waits until the server closes; bytes that come instead are an error.
    pub fn expect_close(&mut self) -> Result<()> {
        match self.wire.wait_for_byte() {
            Ok(false) => Ok(()),
            Ok(true) => anyhow::bail!("bytes came where a close was expected"),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(error).context("waiting for a close"),
        }
    }

    /// True if the server has closed by now, or does within `timeout`.
    pub fn is_closed_within(&mut self, timeout: Duration) -> Result<bool> {
        self.wire.stream.set_timeout(timeout)?;
        let closed = match self.wire.wait_for_byte() {
            Ok(any) => !any,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        self.wire.stream.set_timeout(TIMEOUT)?;
        Ok(closed)
    }

    /// Sets how long one read or write may take.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<()> {
        Ok(self.wire.stream.set_timeout(timeout)?)
    }
}

/// Reads from a bare connection until what came ends with `text`, and gives all that came; each
/// read may take ten seconds.
pub fn read_until(stream: &mut TcpStream, text: &str) -> Result<String> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut came = Vec::new();
    let mut buf = [0; 4096];
    while !came.ends_with(text.as_bytes()) {
        let len = stream.read(&mut buf)?;
        ensure!(len > 0, "the end came first");
        came.extend_from_slice(&buf[..len]);
    }
    Ok(String::from_utf8(came)?)
}

/// A response as it came.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The version of the status line.
    pub version: String,
    /// The words after the status.
    pub reason: String,
    /// Header fields.
    pub headers: Fields,
    /// Body of the response, without its transfer coding.
    pub body: Vec<u8>,
    /// Trailer fields of a chunked body.
    pub trailers: Fields,
    /// Interim responses that came before.
    pub interim: Vec<ResponseHead>,
    /// Time when the first byte of the head was there.
    pub first_byte: Instant,
    /// Time when the last byte of the body was there.
    pub last_byte: Instant,
    /// End of the body: complete or not.
    pub end: End,
    delimited: Delimited,
}

impl Response {
    /// The first value of a header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.value(name)
    }

    /// The version of a generated body whose ETag is its version, when every byte of it is right:
    /// it is the beginning of `range`, and all of that if it is complete. None if the status is
    /// neither 200 nor 206.
    pub fn checked_version(&self, range: Range<u64>) -> Result<Option<u16>> {
        if !matches!(self.status, 200 | 206) {
            return Ok(None);
        }
        let tag = self.header("ETag").unwrap_or_default();
        let version: u16 = tag.trim_matches('"').parse().context("an ETag")?;
        let wanted = offset_bytes(range, version);
        ensure!(wanted.starts_with(&self.body), "other bytes");
        let is_right = !self.is_complete() || self.body.len() == wanted.len();
        ensure!(is_right, "{} bytes are called complete", self.body.len());
        Ok(Some(version))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// True if the body came to its proper end.
    pub fn is_complete(&self) -> bool {
        self.end == End::Complete
    }

    /// True if the body was sent in chunks.
    pub fn is_chunked(&self) -> bool {
        self.delimited == Delimited::Chunked
    }
}

fn delimited(head: &ResponseHead, method: &str) -> Result<Delimited> {
    if method == "HEAD" || head.status == 204 || head.status == 304 || head.status == 101 {
        return Ok(Delimited::None);
    }
    if head.fields.has_token("Transfer-Encoding", "chunked") {
        return Ok(Delimited::Chunked);
    }
    match head.fields.value("Content-Length") {
        Some(len) => Ok(Delimited::Length(
            len.parse().context("bad Content-Length")?,
        )),
        None => Ok(Delimited::UntilClose),
    }
}
