//! The client: HTTP/1.1 over blocking sockets, with every byte under the test's control, or HTTP/2
//! or HTTP/3.
//!
//! [`Client`] makes one request per connection; [`Connection`] keeps one open, sends raw bytes
//! (pipelined, in pieces, half of a message) and reads head and body separately. A [`Response`]
//! keeps what came, in order, with the instants of its first and last byte, and whether it was
//! complete. A test that says requests and not bytes runs with each [`Protocol`].
//!
//! 1. Nothing is repaired or retried; a truncated body is an [`End::Truncated`], not an error.
//! 2. Every read and write ends after `TIMEOUT` with an error.
//! 3. Interim responses (1xx, but not 101) are kept in `interim` and skipped.
//! 4. A response that does not begin with `HTTP/` is one of HTTP/0.9: status 0, and all is body.

use crate::deadline::Deadline;
use crate::http2::{Session, Streams};
use crate::http3;
use crate::message::{Fields, ResponseHead};
use crate::origin::offset_bytes;
use crate::request::Request;
use crate::wire::{Delimited, Stream, Wire};
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

pub use crate::wire::End;

/// Time that one read or write may take; longer than anything that a test waits for.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// HTTP/2, on one connection for all who ask an address: a [`Connection`] is streams of it.
    Streams,
    /// HTTP/3, on one connection for all who ask an address.
    Http3,
}

impl Protocol {
    /// A client of 127.0.0.1 on `port`.
    pub fn client(self, port: u16) -> Client {
        Client {
            protocol: self,
            ..Client::new(port)
        }
    }
}

/// Makes tests of functions that take a [`Protocol`]: one for each, in a module for each protocol.
/// Tests that take long are made for those that are named first.
#[macro_export]
macro_rules! each_protocol {
    ([$($protocol:ident),+] $($test:ident),+ $(,)?) => {
        $crate::each_protocol!(@each [$($protocol)+] [$($test)+]);
    };
    (@each [] $tests:tt) => {};
    (@each [$protocol:ident $($more:ident)*] $tests:tt) => {
        $crate::each_protocol!(@ $protocol $tests);
        $crate::each_protocol!(@each [$($more)*] $tests);
    };
    (@ Http1 $tests:tt) => { $crate::each_protocol!(@ http1 Http1 $tests); };
    (@ Http2 $tests:tt) => { $crate::each_protocol!(@ http2 Http2 $tests); };
    (@ Streams $tests:tt) => { $crate::each_protocol!(@ streams Streams $tests); };
    (@ Http3 $tests:tt) => { $crate::each_protocol!(@ http3 Http3 $tests); };
    (@ $name:ident $protocol:ident [$($test:ident)+]) => {
        mod $name {
            $(#[test]
            fn $test() -> ::anyhow::Result<()> {
                super::$test($crate::Protocol::$protocol)
            })+
        }
    };
    ($($test:ident),+ $(,)?) => {
        $crate::each_protocol!([Http1, Http2, Streams, Http3] $($test),+);
    };
}

/// Makes requests to one address, each on a connection of its own unless asked otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    address: SocketAddr,
    protocol: Protocol,
}

impl Client {
    /// A client of 127.0.0.1 on `port`.
    pub fn new(port: u16) -> Client {
        Client::at(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// A client of any address.
    pub fn at(address: SocketAddr) -> Client {
        Client {
            address,
            protocol: Protocol::Http1,
        }
    }

    /// Opens a connection.
    pub fn connect(&self) -> Result<Connection> {
        let session = match self.protocol {
            Protocol::Http1 => return self.connect_http1(),
            Protocol::Http2 => Session::connect(self.address, TIMEOUT)?,
            Protocol::Streams => Session::shared(self.address, TIMEOUT)?,
            Protocol::Http3 => {
                let session = http3::Session::shared(self.address, TIMEOUT)?;
                return Ok(Connection {
                    way: Way::Http3(Box::new(http3::Streams::new(session, TIMEOUT))),
                });
            }
        };
        Ok(Connection {
            way: Way::Http2(Streams::new(session, TIMEOUT)),
        })
    }

    fn connect_http1(&self) -> Result<Connection> {
        let stream = TcpStream::connect_timeout(&self.address, TIMEOUT)
            .with_context(|| self.address.to_string())?;
        let stream = Stream::Tcp(stream);
        stream.set_timeout(TIMEOUT)?;
        Ok(Connection {
            way: Way::Http1(Wire::new(stream)),
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

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    way: Way,
}

#[derive(Debug)]
enum Way {
    Http1(Wire),
    Http2(Streams),
    Http3(Box<http3::Streams>),
}

impl Connection {
    /// The bytes of HTTP/1; who asks for them does not speak HTTP/2 or HTTP/3.
    fn wire(&mut self) -> Result<&mut Wire> {
        match &mut self.way {
            Way::Http1(wire) => Ok(wire),
            Way::Http2(_) | Way::Http3(_) => {
                bail!("only a connection of HTTP/1 has bytes that a test can touch")
            }
        }
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.wire()?.stream.write_all(bytes).context("sending")
    }

    /// Sends a request, and reads nothing.
    pub fn ask(&mut self, request: &Request) -> Result<()> {
        match &mut self.way {
            Way::Http1(_) => self.send_raw(&request.encode()),
            Way::Http2(streams) => streams.ask(request),
            Way::Http3(streams) => streams.ask(request),
        }
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
        self.ask(request)?;
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
        let (version, head) = match &mut self.way {
            Way::Http1(_) => return self.read_head_http1(method),
            Way::Http2(streams) => {
                let head = streams.read_head()?;
                ("HTTP/2.0", head.map(|head| (head, Instant::now())))
            }
            Way::Http3(streams) => ("HTTP/3.0", streams.read_head()?),
        };
        Ok(head.map(|((status, fields), first_byte)| {
            let head = ResponseHead {
                version: version.to_string(),
                status,
                reason: String::new(),
                fields,
            };
            Response::begin((head, Delimited::None), Vec::new(), first_byte)
        }))
    }

    fn read_head_http1(&mut self, method: &str) -> Result<Option<Response>> {
        let mut interim = Vec::new();
        loop {
            let is_open = match self.wire()?.wait_for_byte() {
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
            let response = Response::begin((head, delimited), interim, first_byte);
            return Ok(Some(response));
        }
    }

    fn take_head(&mut self, method: &str) -> Result<(ResponseHead, Delimited)> {
        let wire = self.wire()?;
        if !wire.begins_with(b"HTTP/")? {
            // INVARIANT 4.
            let head = ResponseHead {
                version: "HTTP/0.9".to_string(),
                status: 0,
                reason: String::new(),
                fields: Fields::default(),
            };
            return Ok((head, Delimited::UntilClose));
        }
        let bytes = wire.take_head()?.context("closed within a head")?;
        let head = ResponseHead::parse(&bytes)?;
        let delimited = delimited(&head, method)?;
        Ok((head, delimited))
    }

    /// Reads the body of a response whose head was read.
    pub fn read_body(&mut self, response: &mut Response) -> Result<()> {
        let (body, trailers) = (&mut response.body, &mut response.trailers);
        response.end = match &mut self.way {
            Way::Http1(wire) => wire.take_body(response.delimited, body, trailers)?,
            Way::Http2(streams) => streams.read_body(usize::MAX, (body, trailers))?,
            Way::Http3(streams) => streams.read_body(usize::MAX, (body, trailers))?,
        };
        response.last_byte = Instant::now();
        Ok(())
    }

    /// Reads until at least `len` bytes of a body of known length or until close have come, and
    /// leaves the rest; `read_body` then reads on.
    pub fn read_some(&mut self, response: &mut Response, len: usize) -> Result<()> {
        let most = response.body.len() + len;
        let (body, trailers) = (&mut response.body, &mut response.trailers);
        let end = match &mut self.way {
            Way::Http1(_) => None,
            Way::Http2(streams) => Some(streams.read_body(most, (body, trailers))?),
            Way::Http3(streams) => Some(streams.read_body(most, (body, trailers))?),
        };
        if let Some(end) = end {
            response.end = end;
            response.last_byte = Instant::now();
            return Ok(());
        }
        let Delimited::Length(total) = response.delimited else {
            bail!("only a body of known length can be read in part");
        };
        let some = total.min(len as u64);
        response.end = self.wire()?.take_body(
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
        match self.wire()?.wait_for_byte() {
            Ok(false) => Ok(()),
            Ok(true) => bail!("bytes came where a close was expected"),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(error).context("waiting for a close"),
        }
    }

    /// True if the server has closed by now, or does within `timeout`.
    pub fn is_closed_within(&mut self, timeout: Duration) -> Result<bool> {
        let wire = match &mut self.way {
            Way::Http1(wire) => wire,
            Way::Http2(streams) => return Ok(streams.is_closed_within(timeout)),
            Way::Http3(streams) => return Ok(streams.is_closed_within(timeout)),
        };
        wire.stream.set_timeout(timeout)?;
        let closed = match wire.wait_for_byte() {
            Ok(any) => !any,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        wire.stream.set_timeout(TIMEOUT)?;
        Ok(closed)
    }

    /// Sets how long one read or write may take.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<()> {
        match &mut self.way {
            Way::Http1(wire) => wire.stream.set_timeout(timeout)?,
            Way::Http2(streams) => streams.timeout = timeout,
            Way::Http3(streams) => streams.timeout = timeout,
        }
        Ok(())
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
    fn begin(
        (head, delimited): (ResponseHead, Delimited),
        interim: Vec<ResponseHead>,
        first_byte: Instant,
    ) -> Response {
        Response {
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
        }
    }

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
