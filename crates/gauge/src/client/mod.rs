//! A client that believes nothing: it checks every byte of every answer.
//!
//! ```text
//! Ask ──► connection (kept) ──► head: status, fields ──► body: each byte ──► Answer, or the Fault
//! ```
//!
//! - `head`, `body` – HTTP/1.1 as it comes
//! - `fault` – what can be wrong
//! - `truth` – what a body must be
//!
//! 1. A body is compared as it arrives, and never held.
//! 2. A request is sent again only if a kept connection ended before any byte of an answer, as
//!    RFC 9112, section 9.3.1 allows; times count from the first attempt.
//! 3. After a fault the connection is not used again.

mod body;
mod fault;
mod head;
mod truth;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::body::{Body, Next};
pub use self::fault::Fault;
pub(crate) use self::fault::OF_BYTES;
use self::head::Method;
pub use self::head::{Framing, Head};
use self::truth::{Piece, Truth};
use crate::resource::Resource;

/// Bytes that are read at one time.
const READ: usize = 256 << 10;
/// The longest body that is read whole.
const FETCH_MAX: usize = 64 << 20;
/// The longest head.
const HEAD_MAX: usize = 256 << 10;

/// Server that is asked, and the manner of asking.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address that the server listens on.
    pub address: SocketAddr,
    /// Value of `Host`.
    pub host: String,
    /// The field that tells the cache status.
    pub status_field: String,
    /// The longest that an answer may take.
    pub timeout: Duration,
    /// Rate at which a client reads a body, in bytes a second; none: as it comes.
    pub read_rate: Option<u64>,
}

/// Part of a resource that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All.
    Whole,
    /// The bytes from an offset up to another (excluded).
    Part(u64, u64),
    /// The bytes from an offset to the end.
    From(u64),
    /// The last so many bytes.
    Last(u64),
}

impl Want {
    /// Start and end (excluded) of what must come of `len` bytes.
    pub fn piece(self, len: u64) -> (u64, u64) {
        match self {
            Self::Whole => (0, len),
            Self::Part(start, end) => (start.min(len), end.min(len)),
            Self::From(start) => (start.min(len), len),
            Self::Last(count) => (len.saturating_sub(count), len),
        }
    }

    /// Value of `Range`.
    fn field(self) -> Option<String> {
        match self {
            Self::Whole => None,
            Self::Part(start, end) => Some(format!("bytes={start}-{}", end.saturating_sub(1))),
            Self::From(start) => Some(format!("bytes={start}-")),
            Self::Last(count) => Some(format!("bytes=-{count}")),
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Resource that is asked for.
    pub resource: Resource,
    /// Part of the resource that is wanted.
    pub want: Want,
    /// Method; only the answers of GET have a body that is compared.
    pub method: std::borrow::Cow<'static, str>,
    /// Further fields of the request: whole lines with their ends.
    pub fields: String,
    /// Cache statuses that are right; empty: any.
    pub statuses: &'static [&'static str],
    /// The oldest generation that is right.
    pub oldest: u64,
    /// Bytes of the whole body, if it is not the built-in origin's.
    pub given: Option<Arc<Vec<u8>>>,
}

impl Ask {
    /// A GET of the whole.
    pub fn get(resource: &Resource) -> Self {
        Self {
            resource: resource.clone(),
            want: Want::Whole,
            method: "GET".into(),
            fields: String::new(),
            statuses: &[],
            oldest: 0,
            given: None,
        }
    }

    /// Request for a piece of a resource.
    pub fn part(resource: &Resource, want: Want) -> Self {
        Self {
            want,
            ..Self::get(resource)
        }
    }

    fn text(&self, host: &str) -> String {
        let path = self.resource.path();
        let range = self.want.field();
        let range = range
            .map(|range| format!("Range: {range}\r\n"))
            .unwrap_or_default();
        let Self { method, fields, .. } = self;
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{range}{fields}\r\n")
    }
}

/// An answer that was read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Head of the answer.
    pub head: Head,
    /// Number of bytes of the body.
    pub body_bytes: u64,
    /// Time from the request to the first byte of the head.
    pub first_byte: Duration,
    /// Time from the request to the last byte of the body.
    pub total: Duration,
}

/// Result of a request.
#[derive(Debug)]
pub struct Outcome {
    /// Answer, as far as it came.
    pub answer: Option<Answer>,
    /// Fault of the answer.
    pub fault: Option<Fault>,
}

/// One user: one connection.
#[derive(Debug)]
pub struct Client {
    target: Arc<Target>,
    stream: Option<TcpStream>,
    buf: BytesMut,
}

impl Client {
    /// A client without a connection yet.
    pub fn new(target: Arc<Target>) -> Self {
        Self {
            target,
            stream: None,
            buf: BytesMut::new(),
        }
    }

    /// Ends the connection, so that the next request makes one.
    pub fn hang_up(&mut self) {
        self.stream = None;
        self.buf.clear();
    }

    /// Asks, and reads and checks the answer.
    pub async fn ask(&mut self, ask: &Ask) -> Outcome {
        let timeout = self.target.timeout;
        let mut reading = Reading::new(Instant::now());
        let exchange = self.exchange(ask, &mut reading);
        let ended = tokio::time::timeout(timeout, exchange).await;
        let fault = ended.unwrap_or(Err(Fault::Timeout(timeout))).err();
        let total = reading.began.elapsed();
        let is_last = reading.head.as_ref().is_none_or(|head| head.is_last);
        if fault.is_some() || is_last {
            self.hang_up();
        }
        let first_byte = reading.first_byte.unwrap_or(total);
        let answer = reading.head.map(|head| Answer {
            head,
            body_bytes: reading.body_bytes,
            first_byte,
            total,
        });
        Outcome { answer, fault }
    }

    /// Asks for something that the server itself knows, and reads it whole: status and body.
    pub async fn fetch(&mut self, method: &str, path: &str) -> Result<(u16, Vec<u8>), Fault> {
        let timeout = self.target.timeout;
        let host = &self.target.host;
        let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        // What was kept may be closed by now, and is of no use afterwards.
        self.hang_up();
        let fetched = tokio::time::timeout(timeout, self.fetched(&text)).await;
        self.hang_up();
        fetched.unwrap_or(Err(Fault::Timeout(timeout)))
    }

    async fn fetched(&mut self, text: &str) -> Result<(u16, Vec<u8>), Fault> {
        let mut reading = Reading::new(Instant::now());
        self.send_and_wait(text, &mut reading).await?;
        let head = self.read_head(Method::Other).await?;
        let mut body = Body::new(head.framing);
        let mut out = Vec::new();
        loop {
            match body.next(&mut self.buf)? {
                Next::Over => break,
                Next::Bytes(count) => out.extend_from_slice(&self.buf.split_to(count)),
                Next::Read => match self.read().await {
                    Ok(()) => {}
                    Err(_) if body.may_end() => break,
                    Err(error) => return Err(Fault::NoHead(error)),
                },
            }
            if out.len() > FETCH_MAX {
                return Err(Fault::TooLong {
                    wanted: FETCH_MAX as u64,
                });
            }
        }
        Ok((head.status, out))
    }

    async fn exchange(&mut self, ask: &Ask, reading: &mut Reading) -> Result<(), Fault> {
        let text = ask.text(&self.target.host);
        let is_kept = self.stream.is_some();
        let mut sent = self.send_and_wait(&text, reading).await;
        if matches!(sent, Err(Fault::NoHead(_))) && is_kept && self.buf.is_empty() {
            // INVARIANT 2.
            self.hang_up();
            sent = self.send_and_wait(&text, reading).await;
        }
        sent?;
        let method = match &*ask.method {
            "HEAD" => Method::Head,
            _ => Method::Other,
        };
        let head = self.read_head(method).await?;
        let status = head.status;
        let checked = check_head(&head, ask);
        let mut body = Body::new(head.framing);
        reading.head = Some(head);
        let piece = match checked {
            Ok(piece) => piece,
            // An error page is read to its end, so that the connection can be used again.
            Err(Fault::Status(_)) => None,
            Err(fault) => return Err(fault),
        };
        self.read_body(&mut body, piece.as_ref(), reading).await?;
        if !self.buf.is_empty() {
            return Err(Fault::Behind);
        }
        if checked_status(status, ask) {
            Ok(())
        } else {
            Err(Fault::Status(status))
        }
    }

    /// Sends the request, and waits for the first byte of an answer.
    async fn send_and_wait(&mut self, text: &str, reading: &mut Reading) -> Result<(), Fault> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(self.target.address)
                .await
                .map_err(Fault::Connect)?;
            stream.set_nodelay(true).map_err(Fault::Connect)?;
            self.stream = Some(stream);
        }
        let Some(stream) = self.stream.as_mut() else {
            return Err(Fault::NoHead(io::ErrorKind::NotConnected.into()));
        };
        stream
            .write_all(text.as_bytes())
            .await
            .map_err(Fault::NoHead)?;
        self.read().await.map_err(Fault::NoHead)?;
        reading.first_byte = Some(reading.began.elapsed());
        Ok(())
    }

    /// Reads more; an end is an error.
    async fn read(&mut self) -> io::Result<()> {
        let Some(stream) = self.stream.as_mut() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        self.buf.reserve(READ.saturating_sub(self.buf.len()).max(1));
        match stream.read_buf(&mut self.buf).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
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
            self.read().await.map_err(Fault::NoHead)?;
        }
    }

    async fn read_body(
        &mut self,
        body: &mut Body,
        piece: Option<&Piece>,
        reading: &mut Reading,
    ) -> Result<(), Fault> {
        loop {
            match body.next(&mut self.buf)? {
                Next::Over => break,
                Next::Bytes(count) => {
                    let bytes = self.buf.split_to(count);
                    reading.take(&bytes, piece)?;
                    self.hold_back(reading).await;
                }
                Next::Read => match self.read().await {
                    Ok(()) => {}
                    Err(_) if body.may_end() => break,
                    Err(_) => return Err(reading.truncated(piece)),
                },
            }
        }
        match piece {
            Some(wanted) if reading.body_bytes != wanted.len() => Err(reading.truncated(piece)),
            _ => Ok(()),
        }
    }

    /// Waits until a slow client would want more.
    async fn hold_back(&self, reading: &Reading) {
        if let Some(rate) = self.target.read_rate.filter(|rate| *rate > 0) {
            let due = Duration::from_secs_f64(reading.body_bytes as f64 / rate as f64);
            tokio::time::sleep_until((reading.began + due).into()).await;
        }
    }
}

/// Progress in reading an answer.
#[derive(Debug)]
struct Reading {
    began: Instant,
    first_byte: Option<Duration>,
    head: Option<Head>,
    body_bytes: u64,
}

impl Reading {
    fn new(began: Instant) -> Self {
        Self {
            began,
            first_byte: None,
            head: None,
            body_bytes: 0,
        }
    }

    fn take(&mut self, bytes: &[u8], piece: Option<&Piece>) -> Result<(), Fault> {
        if let Some(piece) = piece {
            let wanted = piece.len();
            if self.body_bytes + bytes.len() as u64 > wanted {
                return Err(Fault::TooLong { wanted });
            }
            piece.check(self.body_bytes, bytes)?;
        }
        self.body_bytes += bytes.len() as u64;
        Ok(())
    }

    fn truncated(&self, piece: Option<&Piece>) -> Fault {
        Fault::Truncated {
            got: self.body_bytes,
            wanted: piece.map_or(0, Piece::len),
        }
    }
}

/// True if a status is one that is right for a request.
fn checked_status(status: u16, ask: &Ask) -> bool {
    match (&*ask.method, ask.want) {
        ("GET" | "HEAD", Want::Whole) => status == 200,
        ("GET" | "HEAD", _) => status == 206,
        _ => (200..300).contains(&status) || status == 404,
    }
}

/// Checks a head; returns what must come of the body.
fn check_head(head: &Head, ask: &Ask) -> Result<Option<Piece>, Fault> {
    if !checked_status(head.status, ask) {
        return Err(Fault::Status(head.status));
    }
    if let [wanted, ..] = ask.statuses {
        let found = head.cache_status.as_deref().unwrap_or("-");
        if !ask.statuses.contains(&found) {
            return Err(Fault::CacheStatus {
                found: found.to_owned(),
                wanted: (*wanted).to_owned(),
            });
        }
    }
    if ask.method != "GET" {
        return Ok(None);
    }
    let truth = truth(head, ask)?;
    let (start, end) = ask.want.piece(truth.len());
    let wanted = match head.status {
        206 => Some((start, end.saturating_sub(1), truth.len())),
        _ => None,
    };
    if head.content_range != wanted {
        return Err(Fault::Field {
            name: "Content-Range",
            found: format!("{:?}", head.content_range),
            wanted: format!("{wanted:?}"),
        });
    }
    match head.framing {
        Framing::Length(length) if length != end - start => Err(Fault::Field {
            name: "Content-Length",
            found: length.to_string(),
            wanted: (end - start).to_string(),
        }),
        _ => Ok(Some(Piece { truth, start, end })),
    }
}

/// Bytes that the whole body must have.
fn truth(head: &Head, ask: &Ask) -> Result<Truth, Fault> {
    if let Some(body) = &ask.given {
        return Ok(Truth::Given(Arc::clone(body)));
    }
    let Some(generation) = head.generation else {
        return Err(Fault::Field {
            name: crate::origin::GENERATION_FIELD,
            found: "nothing".to_owned(),
            wanted: "the generation that the origin said".to_owned(),
        });
    };
    if generation < ask.oldest {
        Err(Fault::TooOld {
            found: generation,
            wanted: ask.oldest,
        })
    } else {
        Ok(Truth::Computed(ask.resource.content(generation)))
    }
}
