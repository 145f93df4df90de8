//! HTTP/2 in clear text, with prior knowledge, as the `h2` crate speaks it: requests as streams.
//!
//! ```text
//! Session ──clones──► Streams ─ask─► answers in the order of their requests
//!    │
//!    └── Driver: polled by one thread for all connections, and by whoever has just asked
//! ```
//!
//! 1. A request that was asked is in the socket when `ask` returns, as far as that takes it; its
//!    body follows as the server's windows let it.
//! 2. Bytes of a body are given back to a window when the test reads them, so that a test that does
//!    not read holds the server up.
//! 3. A stream that is dropped before its end is reset (CANCEL); a connection ends when nobody
//!    holds it any more.
//!
//! Does not keep interim answers, and sends no trailers.

use crate::deadline::Deadline;
use crate::message::{Fields, decode_latin1};
use crate::request::{Body, Request};
use crate::wire::End;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use h2::client::{self, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Uri};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// Room of a connection for the bodies that nobody reads; a stream has the default of its own.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Time that each step of a tunnel may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Fields of HTTP/1 connections, and the one that becomes `:authority`.
const LEFT_OUT: [&str; 2] = ["connection", "host"];

/// The thread that moves frames, and packets of HTTP/3.
#[expect(clippy::expect_used, reason = "a test cannot go on without threads")]
pub(crate) static MOVER: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("a thread for HTTP/2")
});

/// Connections that all requests to an address share.
static SHARED: LazyLock<Mutex<HashMap<SocketAddr, Session>>> = LazyLock::new(Mutex::default);

/// Waits for something, so long at most.
pub(crate) fn wait<T>(timeout: Duration, what: impl Future<Output = T>) -> Result<T> {
    let timed = async { tokio::time::timeout(timeout, what).await };
    MOVER
        .block_on(timed)
        .context("waiting for HTTP/2 or HTTP/3")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Frames = client::Connection<TcpStream, Bytes>;

/// The frames of a connection, which are moved when it is polled.
#[derive(Debug)]
struct Driver {
    /// None once the connection is over.
    frames: Mutex<Option<Frames>>,
    /// The waker of the thread that moves frames.
    waker: Mutex<Waker>,
}

impl Driver {
    /// Moves what can be moved now. INVARIANT 1.
    fn poll(&self) -> Poll<()> {
        let mut frames = lock(&self.frames);
        // Read behind the lock: the last poll is the one that is woken, and no poll with a waker
        // that wakes nobody may come behind the first one of the thread.
        let waker = lock(&self.waker).clone();
        let Some(connection) = &mut *frames else {
            return Poll::Ready(());
        };
        let outcome = Pin::new(connection).poll(&mut Context::from_waker(&waker));
        if outcome.is_ready() {
            *frames = None;
        }
        // Streams are told how the connection ended.
        outcome.map(|_| ())
    }

    async fn run(self: Arc<Driver>) {
        std::future::poll_fn(|cx| {
            lock(&self.waker).clone_from(cx.waker());
            self.poll()
        })
        .await;
    }
}

/// A connection; its clones are the same one.
#[derive(Clone)]
pub(crate) struct Session {
    send: SendRequest<Bytes>,
    driver: Arc<Driver>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// A connection of its own.
    pub(crate) fn connect(address: SocketAddr, timeout: Duration) -> Result<Session> {
        let connected = wait(timeout, async {
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            let mut builder = client::Builder::new();
            builder.initial_connection_window_size(CONNECTION_WINDOW);
            anyhow::Ok(builder.handshake(socket).await?)
        })?;
        let (send, frames) = connected.with_context(|| address.to_string())?;
        let driver = Arc::new(Driver {
            frames: Mutex::new(Some(frames)),
            waker: Mutex::new(Waker::noop().clone()),
        });
        MOVER.spawn(Arc::clone(&driver).run());
        Ok(Session { send, driver })
    }

    /// The connection that all share who ask for one to this address; a new one when that is over.
    pub(crate) fn shared(address: SocketAddr, timeout: Duration) -> Result<Session> {
        let mut all = lock(&SHARED);
        if let Some(session) = all.get(&address) {
            let mut session = session.clone();
            if session.is_of_use() {
                return Ok(session);
            }
        }
        let session = Session::connect(address, timeout)?;
        all.insert(address, session.clone());
        Ok(session)
    }

    /// True if another request may be sent.
    fn is_of_use(&mut self) -> bool {
        // What the server has said about its end is read first.
        self.driver.poll().is_pending()
            && !matches!(
                self.send
                    .poll_ready(&mut Context::from_waker(Waker::noop())),
                Poll::Ready(Err(_))
            )
    }

    /// Sends a request; its body follows.
    fn ask(&mut self, request: &Request, timeout: Duration) -> Result<ResponseFuture> {
        self.send = wait(timeout, self.send.clone().ready())??;
        let pieces = pieces(&request.body);
        let head = head_of(request, "http")?;
        let (answer, body) = self.send.send_request(head, pieces.is_empty())?;
        let _pending = self.driver.poll();
        if !pieces.is_empty() {
            // A server that wants no more of a body resets the stream, or answers.
            MOVER.spawn(async { send_body(body, pieces).await.ok() });
        }
        Ok(answer)
    }
}

/// The DATA of a body.
pub(crate) fn pieces(body: &Body) -> VecDeque<Bytes> {
    match body {
        Body::None => VecDeque::new(),
        Body::Length(bytes) => VecDeque::from([Bytes::copy_from_slice(bytes)]),
        Body::Chunked(chunks) => {
            let chunks = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk));
            // A body of no chunks has an end, too.
            chunks.chain([Bytes::new()]).collect()
        }
    }
}

pub(crate) fn head_of(request: &Request, scheme: &str) -> Result<http::Request<()>> {
    let host = request.fields.value("Host").unwrap_or_default();
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(host)
        .path_and_query(request.target.as_str())
        .build()
        .with_context(|| request.target.clone())?;
    let mut head = http::Request::builder()
        .method(request.method.as_str())
        .uri(uri);
    for (name, value) in &request.fields.0 {
        if !LEFT_OUT.contains(&name.to_ascii_lowercase().as_str()) {
            head = head.header(name, value);
        }
    }
    if let Body::Length(body) = &request.body {
        head = head.header("content-length", body.len());
    }
    Ok(head.body(())?)
}

async fn send_body(mut stream: SendStream<Bytes>, pieces: VecDeque<Bytes>) -> Result<()> {
    push(&mut stream, pieces).await?;
    Ok(stream.send_data(Bytes::new(), true)?)
}

async fn push(stream: &mut SendStream<Bytes>, mut pieces: VecDeque<Bytes>) -> Result<()> {
    while let Some(mut piece) = pieces.pop_front() {
        while !piece.is_empty() {
            stream.reserve_capacity(piece.len());
            let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
            let count = room.context("the stream has ended")??.min(piece.len());
            stream.send_data(piece.split_to(count), false)?;
        }
    }
    Ok(())
}

/// Requests of one user on a connection, and their answers in the same order.
#[derive(Debug)]
pub(crate) struct Streams {
    session: Session,
    asked: VecDeque<ResponseFuture>,
    /// The body of the answer whose head was read last.
    body: Option<RecvStream>,
    pub(crate) timeout: Duration,
}

impl Streams {
    pub(crate) fn new(session: Session, timeout: Duration) -> Streams {
        Streams {
            session,
            asked: VecDeque::new(),
            body: None,
            timeout,
        }
    }

    /// True if the connection ends within this time.
    pub(crate) fn is_closed_within(&self, timeout: Duration) -> bool {
        let driver = &self.session.driver;
        let ended = || driver.poll().is_ready().then_some(());
        Deadline::after(timeout).poll(ended).is_some()
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<()> {
        self.asked
            .push_back(self.session.ask(request, self.timeout)?);
        Ok(())
    }

    /// Status and fields of the next answer; none if the server has ended the stream.
    pub(crate) fn read_head(&mut self) -> Result<Option<(u16, Fields)>> {
        let answer = self.asked.pop_front().context("nothing was asked")?;
        match wait(self.timeout, answer)? {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                self.body = Some(body);
                Ok(Some((head.status.as_u16(), fields_of(&head.headers))))
            }
            Err(error) if is_end(&error) => Ok(None),
            Err(error) => Err(error).context("waiting for a head"),
        }
    }

    /// Reads on in the body until it has so many bytes, or to its end.
    pub(crate) fn read_body(
        &mut self,
        most: usize,
        (all, trailers): (&mut Vec<u8>, &mut Fields),
    ) -> Result<End> {
        let Some(body) = &mut self.body else {
            return Ok(End::Complete);
        };
        match read_on(body, self.timeout, most, all) {
            Ok(Rest::More) => return Ok(End::Complete),
            Ok(Rest::Trailers(came)) => *trailers = came,
            Err(error) => match error.downcast_ref() {
                Some(end) if is_end(end) => {
                    self.body = None;
                    return Ok(End::Truncated(end.to_string()));
                }
                _ => return Err(error.context("reading a body")),
            },
        }
        self.body = None;
        Ok(End::Complete)
    }
}

/// The part of a body that was not read.
enum Rest {
    More,
    Trailers(Fields),
}

fn read_on(
    body: &mut RecvStream,
    timeout: Duration,
    most: usize,
    all: &mut Vec<u8>,
) -> Result<Rest> {
    while all.len() < most {
        let Some(piece) = wait(timeout, body.data())? else {
            let trailers = wait(timeout, body.trailers())??;
            return Ok(Rest::Trailers(fields_of(&trailers.unwrap_or_default())));
        };
        let piece = piece?;
        // INVARIANT 2.
        body.flow_control().release_capacity(piece.len())?;
        all.extend_from_slice(&piece);
    }
    Ok(Rest::More)
}

/// True if the server has ended a stream or the connection, and has not only made a mistake.
fn is_end(error: &h2::Error) -> bool {
    error.is_io() || error.is_remote()
}

pub(crate) fn fields_of(headers: &HeaderMap) -> Fields {
    let text = |value: &[u8]| decode_latin1(value);
    let fields = headers.iter();
    Fields(
        fields
            .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
            .collect(),
    )
}

/// A tunnel on a stream, opened by an extended CONNECT (RFC 8441).
#[derive(Debug)]
pub struct Tunnel {
    session: Session,
    send: SendStream<Bytes>,
    body: RecvStream,
    /// Bytes that came and were not read.
    ahead: Vec<u8>,
    timeout: Duration,
    /// The status of the answer.
    pub status: u16,
    /// The fields of the answer.
    pub fields: Fields,
}

impl Tunnel {
    /// Asks for a tunnel of a protocol, on the connection that all streams of an address share.
    pub fn open(port: u16, protocol: &str, request: &Request) -> Result<Tunnel> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut session = Session::shared(address, TIMEOUT)?;
        session.send = wait(TIMEOUT, session.send.clone().ready())??;
        let is_told = || {
            let is_told = session.send.is_extended_connect_protocol_enabled();
            is_told.then_some(())
        };
        let told = Deadline::after(TIMEOUT).poll(is_told);
        told.context("no SETTINGS_ENABLE_CONNECT_PROTOCOL")?;
        let mut head = head_of(request, "http")?;
        *head.method_mut() = http::Method::CONNECT;
        head.extensions_mut()
            .insert(h2::ext::Protocol::from(protocol));
        let (answer, send) = session.send.send_request(head, false)?;
        let _pending = session.driver.poll();
        let (head, body) = wait(TIMEOUT, answer)??.into_parts();
        Ok(Tunnel {
            session,
            send,
            body,
            ahead: Vec::new(),
            timeout: TIMEOUT,
            status: head.status.as_u16(),
            fields: fields_of(&head.headers),
        })
    }

    /// Sets how long one read or write may take.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends bytes, as the server's windows let it.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let pieces = VecDeque::from([Bytes::copy_from_slice(bytes)]);
        wait(self.timeout, push(&mut self.send, pieces))??;
        let _pending = self.session.driver.poll();
        Ok(())
    }

    /// Sends the end of our direction.
    pub fn end(&mut self) -> Result<()> {
        self.send.send_data(Bytes::new(), true)?;
        let _pending = self.session.driver.poll();
        Ok(())
    }

    /// Tears the tunnel off (RST_STREAM with CANCEL).
    pub fn reset(mut self) {
        self.send.send_reset(h2::Reason::CANCEL);
        let _pending = self.session.driver.poll();
    }

    /// Reads so many bytes; fewer if the server's direction ends before.
    pub fn read(&mut self, len: usize) -> Result<Vec<u8>> {
        let rest = read_on(&mut self.body, self.timeout, len, &mut self.ahead);
        rest.map(|_| self.ahead.drain(..len.min(self.ahead.len())).collect())
    }
}
