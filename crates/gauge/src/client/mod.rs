//! A client that believes nothing: it checks every byte of every answer.
//!
//! ```text
//! Ask ──► connection (kept) ──► head: status, fields ──► body: each byte ──► Answer, or the Fault
//! ```
//!
//! - `ask` – what is asked for
//! - `stream`, `tls` – a connection, encrypted or not
//! - `http1`, with `head` and `body` – HTTP/1.1 as it comes
//! - `http2` – HTTP/2, whose connection several users may share
//! - `protocol` – one of both
//! - `reader` – one for bodies that nobody knows
//! - `check` – what is checked of an answer
//! - `fault` – what can be wrong
//! - `journal` – what happened beside the answers
//! - `truth` – what a body must be
//!
//! 1. A body is compared as it arrives, and never held.
//! 2. A request is sent again only if a kept connection ended by I/O before any byte of an answer,
//!    as RFC 9112, section 9.3.1 allows; in HTTP/2 also if the server refused the stream, or went
//!    away without an error below it. Times count from the first attempt. What TLS or HTTP/2 find
//!    wrong is a fault, and no end of a connection.
//! 3. After a fault the connection is not used again.

mod ask;
mod body;
mod check;
mod fault;
mod head;
mod http1;
mod http2;
mod journal;
mod protocol;
mod reader;
mod stream;
mod tls;
mod truth;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub use self::ask::{Ask, Want};
use self::check::Reading;
pub use self::fault::Fault;
pub(crate) use self::fault::OF_BYTES;
pub use self::head::{Framing, Head};
use self::http1::Http1;
use self::http2::{Http2, Lane};
use self::journal::Journal;
pub use self::journal::{Event, Session};
pub use self::protocol::Protocol;
pub use self::reader::Reader;
pub use self::tls::{Sessions, Tls, Trust};

/// The longest body that is read whole.
const FETCH_MAX: usize = 64 << 20;
/// The longest head.
const HEAD_MAX: usize = 256 << 10;

/// Lifetime of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// A connection is used again.
    Kept,
    /// Each request has a new one.
    Once,
}

/// Server that is asked, and the manner of asking.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address that the server listens on.
    pub address: SocketAddr,
    /// Value of `Host`.
    pub host: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Streams of HTTP/2 at one time on a connection: users that share it.
    pub streams: usize,
    /// TLS; none: requests are sent in clear text.
    pub tls: Option<Arc<Tls>>,
    /// Lifetime of connections.
    pub lifetime: Lifetime,
    /// The field that tells the cache status.
    pub status_field: String,
    /// The longest that an answer may take.
    pub timeout: Duration,
    /// Rate at which a client reads a body, in bytes a second; none: as it comes.
    pub read_rate: Option<u64>,
}

impl Target {
    /// A server that is asked in clear text, over connections that are kept.
    pub fn new(address: SocketAddr, host: String) -> Self {
        Self {
            address,
            host,
            protocol: Protocol::Http1,
            streams: 1,
            tls: None,
            lifetime: Lifetime::Kept,
            status_field: "X-Cache-Status".to_owned(),
            timeout: Duration::from_secs(60),
            read_rate: None,
        }
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

/// One user: one request at a time.
#[derive(Debug)]
pub struct Client {
    target: Arc<Target>,
    journal: Journal,
    link: Link,
}

/// Connection of a user, in the target's protocol.
#[derive(Debug)]
enum Link {
    Http1(Http1),
    Http2(Http2),
}

impl Link {
    fn hang_up(&mut self) {
        match self {
            Self::Http1(link) => link.hang_up(),
            Self::Http2(link) => link.hang_up(),
        }
    }

    async fn exchange(&mut self, ask: &Ask, reading: &mut Reading) -> Result<(), Fault> {
        match self {
            Self::Http1(link) => link.exchange(ask, reading).await,
            Self::Http2(link) => link.exchange(ask, reading).await,
        }
    }

    async fn fetch(&mut self, method: &str, path: &str) -> Result<(u16, Vec<u8>), Fault> {
        match self {
            Self::Http1(link) => link.fetch(method, path).await,
            Self::Http2(link) => link.fetch(method, path).await,
        }
    }
}

/// Maker of users of one thread, of whom as many share a connection as it may have streams.
#[derive(Debug)]
pub struct Clients {
    target: Arc<Target>,
    /// Connection that users share, with its journal, and how many may still join.
    lane: Option<(Rc<Lane>, Journal, usize)>,
}

impl Clients {
    /// A maker of users without a connection yet.
    pub fn new(target: Arc<Target>) -> Self {
        Self { target, lane: None }
    }

    /// One more user.
    pub fn make(&mut self) -> Client {
        let target = Arc::clone(&self.target);
        if target.protocol == Protocol::Http1 {
            let journal = Journal::default();
            let link = Http1::new(Arc::clone(&target), journal.clone());
            return Client {
                target,
                journal,
                link: Link::Http1(link),
            };
        }
        let (lane, journal, left) = self.lane.take().unwrap_or_else(|| {
            let journal = Journal::default();
            let lane = Lane::new(Arc::clone(&target), journal.clone());
            (Rc::new(lane), journal, target.streams.max(1))
        });
        if left > 1 {
            self.lane = Some((Rc::clone(&lane), journal.clone(), left - 1));
        }
        Client {
            target,
            journal,
            link: Link::Http2(Http2::new(lane)),
        }
    }
}

impl Client {
    /// A client with a connection of its own, which it has not opened yet. HTTP/2 must be asked
    /// within a `LocalSet`.
    pub fn new(target: Arc<Target>) -> Self {
        Clients::new(target).make()
    }

    /// Ends the connection, so that the next request makes one.
    pub fn hang_up(&mut self) {
        self.link.hang_up();
    }

    /// Ends the connection and waits, but not for long, until it has; what it ended by is among the
    /// events then.
    pub async fn end(&mut self) {
        match &mut self.link {
            Link::Http1(link) => link.hang_up(),
            Link::Http2(link) => link.end().await,
        }
    }

    /// Takes what happened beside the answers.
    pub fn events(&mut self) -> Vec<Event> {
        self.journal.take()
    }

    /// Asks, and reads and checks the answer.
    pub async fn ask(&mut self, ask: &Ask) -> Outcome {
        let timeout = self.target.timeout;
        let mut reading = Reading::new(self.target.read_rate);
        let exchange = self.link.exchange(ask, &mut reading);
        let ended = tokio::time::timeout(timeout, exchange).await;
        let fault = ended.unwrap_or(Err(Fault::Timeout(timeout))).err();
        let total = reading.began.elapsed();
        let is_last = reading.head.as_ref().is_none_or(|head| head.is_last);
        if fault.is_some() || is_last || self.target.lifetime == Lifetime::Once {
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
        // What was kept may be closed by now, and is of no use afterwards.
        self.hang_up();
        let fetched = tokio::time::timeout(timeout, self.link.fetch(method, path)).await;
        self.hang_up();
        fetched.unwrap_or(Err(Fault::Timeout(timeout)))
    }
}
