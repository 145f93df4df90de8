//! `proxy_read_timeout`, `proxy_send_timeout`, `proxy_buffer_size`: one request to an upstream, over as many peers as it takes.
//!
//! ```text
//! prepare ─► pick a peer ─► idle connection, else connect ─► send and read ─► head ─► Fetched
//!               ▲                                                 │
//!               └──── failure that proxy_next_upstream names ◄────┘
//! ```
//!
//! Invariants:
//! 1. A peer is asked once for each request, but for an idle connection that turned out dead, which is replaced once.
//! 2. A body that was read from the client while it was sent is never sent twice.
//! 3. Every way out of a try is noted in the trace.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use millpond_conf::{ByteSize, OffOr};

use super::connect::{self, Connection};
use super::group::{Group, Tried};
use super::next::{NextCause, Tries};
use super::pass::{PassTarget, Resolved};
use super::receive::{UpstreamBody, upstream_error};
use super::request::{self, OutBody, Prepared};
use super::trace::{Attempt, UpstreamTrace};
use crate::body::{FileRegion, Piece};
use crate::clock::{self, Instant};
use crate::downstream::body;
use crate::failure::{Failure, UpstreamFailure, UpstreamKind};
use crate::header::{Fields, Known, KnownSet};
use crate::http1::chunked;
use crate::http1::response::{Progress, ResponseHead, ResponseParser};
use crate::request::Request;
use crate::socket::{More, Socket};

/// How long a peer may be silent, and how large its head may be.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct ExchangePolicy {
    /// The time between two reads of an answer, after which the peer has failed.
    #[directive(name = "proxy_read_timeout", default = "60s")]
    pub read_timeout: Duration,
    /// The time between two writes of a request, after which the peer has failed.
    #[directive(name = "proxy_send_timeout", default = "60s")]
    pub send_timeout: Duration,
    /// The most that the head of an answer may take.
    #[directive(name = "proxy_buffer_size", default = "4k")]
    pub head_size: ByteSize,
}

/// What is asked besides what the client asked.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// The answer is for the cache: the client's conditions and ranges are not sent.
    pub is_for_cache: bool,
    /// HEAD becomes GET.
    pub is_get_for_head: bool,
    /// If-None-Match, of a stale entry.
    pub if_none_match: Option<Bytes>,
    /// If-Modified-Since, of a stale entry.
    pub if_modified_since: Option<Bytes>,
}

/// An answer whose head was read.
pub struct Fetched {
    /// The head.
    pub head: ResponseHead,
    /// Length of the body, when announced.
    pub length: Option<u64>,
    /// The body.
    pub body: UpstreamBody,
}

/// Asks the upstream, until the client leaves, unless the answer is wanted without it.
pub async fn fetch(req: &mut Request, target: &PassTarget, ask: &Ask) -> Result<Fetched, Failure> {
    let ignores_client =
        ask.is_for_cache || req.is_background || req.location.settings.pass_buffer.ignore_abort;
    if ignores_client {
        return fetch_with(req, target, ask).await;
    }
    let down = Rc::clone(&req.down);
    let mut left = std::pin::pin!(down.left());
    let mut fetching = std::pin::pin!(fetch_with(req, target, ask));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(outcome) = fetching.as_mut().poll(cx) {
            return Poll::Ready(outcome);
        }
        // While its body is still to come, the reader of the body sees that the client has left.
        if !down.incoming.borrow().is_done() {
            return Poll::Pending;
        }
        left.as_mut()
            .poll(cx)
            .map(|()| Err(Failure::Status(CLIENT_LEFT)))
    })
    .await
}

/// nginx's status of a request whose client left before its answer.
const CLIENT_LEFT: u16 = 499;

async fn fetch_with(req: &mut Request, target: &PassTarget, ask: &Ask) -> Result<Fetched, Failure> {
    let resolved = target.resolve(req)?;
    let prepared = request::prepare(req, target, &resolved, ask).await?;
    begin_trace(req, &resolved);
    let location = Arc::clone(&req.location);
    let settings = &location.settings;
    let group = &resolved.group;
    let mut tries = Tries::new(&settings.pass_next, group.tries());
    let mut tried = Tried::default();
    loop {
        let Some(peer) = group.pick(&mut tried) else {
            return Err(no_live(req, group));
        };
        tries.spend();
        let mut run = Try {
            req,
            group,
            peer,
            prepared: &prepared,
            was_sent: false,
        };
        let outcome = run.run().await;
        let was_sent = run.was_sent;
        let (cause, outcome) = match outcome {
            Ok(fetched) => match NextCause::of_status(fetched.head.status) {
                Some(cause) => (cause, Ok(fetched)),
                None => {
                    group.answered(peer);
                    return Ok(fetched);
                }
            },
            Err(failure) => (NextCause::of_kind(failure.kind), Err(failure)),
        };
        let is_status = outcome.is_ok();
        // nginx: 403 and 404 are no failures of the peer.
        if !matches!(cause, NextCause::Http403 | NextCause::Http404)
            && (!is_status || may_next(req, cause, was_sent))
        {
            group.failed(peer);
        }
        let may_repeat = !(was_sent && matches!(prepared.body, OutBody::Client { .. }));
        if !(may_repeat && tries.is_left() && may_next(req, cause, was_sent)) {
            return outcome.map_err(Failure::Upstream);
        }
        if let Err(failure) = outcome {
            crate::log::error::failure(req, &Failure::Upstream(failure));
        }
    }
}

fn may_next(req: &Request, cause: NextCause, was_sent: bool) -> bool {
    req.location
        .settings
        .pass_next
        .allows(cause, req.method, was_sent)
}

fn begin_trace(req: &Request, resolved: &Resolved) {
    let mut trace = req.upstream.borrow_mut();
    if let Some(last) = trace.attempts.last_mut() {
        last.ends_group = true;
    }
    trace.fields = None;
    trace.host = Some(Rc::from(resolved.host.as_str()));
    trace.port = resolved.port;
}

fn no_live(req: &Request, group: &Group) -> Failure {
    req.upstream.borrow_mut().attempts.push(Attempt {
        peer: group.name.clone(),
        status: 502,
        response: Some(Duration::ZERO),
        ..Attempt::default()
    });
    Failure::Upstream(UpstreamFailure {
        kind: UpstreamKind::NoLive,
        message: "no live upstreams while connecting to upstream".to_string(),
    })
}

/// A try's place among a peer's connections; given back however the try ends, with the time it took.
struct Lease {
    group: Option<Arc<Group>>,
    peer: usize,
    trace: Rc<RefCell<UpstreamTrace>>,
    index: usize,
    started: Instant,
}

impl Lease {
    /// The answer's body gives the place back instead.
    fn hand_over(mut self) {
        self.group = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            group.release(self.peer);
            if let Some(attempt) = self.trace.borrow_mut().attempts.get_mut(self.index) {
                attempt.response = Some(clock::instant() - self.started);
            }
        }
    }
}

/// One try with one peer.
struct Try<'a> {
    req: &'a mut Request,
    group: &'a Arc<Group>,
    peer: usize,
    prepared: &'a Prepared,
    was_sent: bool,
}

impl Try<'_> {
    async fn run(&mut self) -> Result<Fetched, UpstreamFailure> {
        let started = clock::instant();
        let address = self
            .group
            .peers
            .get(self.peer)
            .map(|peer| peer.address.to_string());
        self.req.upstream.borrow_mut().attempts.push(Attempt {
            peer: address.unwrap_or_default(),
            ..Attempt::default()
        });
        let index = self.req.upstream.borrow().attempts.len() - 1;
        let lease = Lease {
            group: Some(Arc::clone(self.group)),
            peer: self.peer,
            trace: Rc::clone(&self.req.upstream),
            index,
            started,
        };
        let outcome = self.ask(started).await;
        let trace = Rc::clone(&self.req.upstream);
        let mut trace = trace.borrow_mut();
        match &outcome {
            Ok(fetched) => {
                lease.hand_over();
                trace.fields = Some(Rc::new(fetched.head.fields.clone()));
                if let Some(attempt) = trace.attempts.get_mut(index) {
                    attempt.status = fetched.head.status;
                    attempt.header = Some(clock::instant() - started);
                    attempt.bytes_received += fetched.head.head_len as u64;
                }
            }
            Err(failure) => {
                if let Some(attempt) = trace.attempts.get_mut(index) {
                    attempt.status = if failure.kind == UpstreamKind::Timeout {
                        504
                    } else {
                        502
                    };
                }
            }
        }
        outcome
    }

    async fn ask(&mut self, started: Instant) -> Result<Fetched, UpstreamFailure> {
        let idle = self.req.down.generation.worker.idle_peers.take(
            self.group,
            self.peer,
            &self.req.location,
        );
        if let Some(connection) = idle {
            self.note_connected(started);
            match self.talk(connection, started).await {
                Ok(fetched) => return Ok(fetched),
                // nginx: a kept connection that dies before it says anything is no failure of the peer.
                Err(Broken {
                    is_silent: true, ..
                }) if self.may_retry_idle() => {}
                Err(broken) => return Err(broken.failure),
            }
        }
        let from = self.local_address();
        let location = Arc::clone(&self.req.location);
        let connected = connect::connect(self.group, self.peer, &location, from).await;
        let connection = connected.map_err(|error| self.connect_failed(error))?;
        self.note_connected(started);
        self.talk(connection, started)
            .await
            .map_err(|broken| broken.failure)
    }

    fn may_retry_idle(&self) -> bool {
        !matches!(self.prepared.body, OutBody::Client { .. })
    }

    /// An address that cannot be read is none, as in nginx.
    fn local_address(&mut self) -> Option<SocketAddr> {
        let location = Arc::clone(&self.req.location);
        let OffOr::On(bind) = &location.settings.pass_connect.bind else {
            return None;
        };
        let text = self.req.eval(&bind.0);
        let text = std::str::from_utf8(&text).ok()?;
        let bare = text.parse().ok().map(|ip| SocketAddr::new(ip, 0));
        bare.or_else(|| text.parse().ok())
    }

    fn note_connected(&self, started: Instant) {
        let mut trace = self.req.upstream.borrow_mut();
        if let Some(attempt) = trace.attempts.last_mut() {
            attempt.connect = Some(clock::instant() - started);
        }
    }

    fn connect_failed(&self, error: connect::ConnectError) -> UpstreamFailure {
        let (kind, message) = match error {
            connect::ConnectError::TimedOut => (
                UpstreamKind::Timeout,
                "upstream timed out (110: Connection timed out)".to_string(),
            ),
            connect::ConnectError::Io(error) => {
                let text = crate::log::error::os_error(&error);
                (UpstreamKind::Error, format!("connect() failed ({text})"))
            }
        };
        UpstreamFailure {
            kind,
            message: format!("{message} while connecting to upstream"),
        }
    }

    /// Sends the request and reads the head of the answer, both as the peer lets it.
    async fn talk(
        &mut self,
        mut connection: Connection,
        started: Instant,
    ) -> Result<Fetched, Broken> {
        connection.requests += 1;
        let location = Arc::clone(&self.req.location);
        let policy = &location.settings.pass_exchange;
        let mut outgoing = Outgoing::new(self.prepared);
        let mut parser = ResponseParser::new();
        loop {
            outgoing.fetch_more(self.req).await.map_err(Broken::said)?;
            let deadline = clock::instant()
                + if outgoing.is_done() {
                    policy.read_timeout
                } else {
                    policy.send_timeout
                };
            let Connection {
                socket,
                inbox,
                timer,
                ..
            } = &mut connection;
            let step = std::future::poll_fn(|cx| outgoing.poll_talk(cx, socket, inbox));
            let happened = match timer.guard(deadline, step).await {
                Err(_) => return Err(Broken::timed_out()),
                Ok(happened) => happened,
            };
            self.was_sent |= outgoing.has_sent;
            match happened {
                Happened::Sent => {}
                Happened::Failed(error) => {
                    return Err(Broken::io(&error, &connection, outgoing.has_sent));
                }
                Happened::Received(0) => return Err(Broken::closed(&connection)),
                Happened::Received(_) => {
                    let size = policy.head_size.as_usize();
                    if let Some(head) = parse_head(&mut parser, &mut connection, size)? {
                        self.note_sent(&outgoing);
                        let is_sent = outgoing.is_done();
                        return self.fetched(head, connection, is_sent, started);
                    }
                }
            }
        }
    }

    fn note_sent(&self, outgoing: &Outgoing) {
        if let Some(attempt) = self.req.upstream.borrow_mut().attempts.last_mut() {
            attempt.bytes_sent += outgoing.sent;
        }
    }

    fn fetched(
        &self,
        mut head: ResponseHead,
        connection: Connection,
        is_sent: bool,
        started: Instant,
    ) -> Result<Fetched, Broken> {
        let framing = head
            .framing(self.prepared.method)
            .map_err(|fault| Broken::said(UpstreamFailure {
                kind: UpstreamKind::InvalidHeader,
                message: format!("upstream sent invalid header: {fault} while reading response header from upstream"),
            }))?;
        drop_duplicates(&mut head.fields);
        let timeout = self.req.location.settings.pass_exchange.read_timeout;
        let may_reuse = is_sent && head.keeps_alive();
        let trace = (Rc::clone(&self.req.upstream), started);
        let generation = Rc::clone(&self.req.down.generation);
        let body = UpstreamBody::new(connection, framing, may_reuse, timeout, (trace, generation));
        Ok(Fetched {
            length: body.length(),
            head,
            body,
        })
    }
}

/// nginx: of these fields an answer has one; later ones are ignored.
fn drop_duplicates(fields: &mut Fields) {
    const UNIQUE: KnownSet = KnownSet::of(&[
        Known::Status,
        Known::ContentType,
        Known::Date,
        Known::LastModified,
        Known::ETag,
        Known::Server,
        Known::Location,
        Known::Refresh,
        Known::Expires,
        Known::XAccelExpires,
        Known::XAccelRedirect,
        Known::XAccelLimitRate,
        Known::XAccelBuffering,
        Known::XAccelCharset,
    ]);
    let mut seen = KnownSet::default();
    fields.retain(|field| {
        let is_first = !UNIQUE.contains(field.known) || !seen.contains(field.known);
        seen.insert(field.known);
        is_first
    });
}

/// How a conversation broke.
struct Broken {
    failure: UpstreamFailure,
    /// The peer had said nothing.
    is_silent: bool,
}

impl Broken {
    fn said(failure: UpstreamFailure) -> Self {
        Broken {
            failure,
            is_silent: false,
        }
    }

    fn timed_out() -> Self {
        Broken::said(UpstreamFailure {
            kind: UpstreamKind::Timeout,
            message: "upstream timed out (110: Connection timed out) while reading response header from upstream"
                .to_string(),
        })
    }

    fn io(error: &std::io::Error, connection: &Connection, has_sent: bool) -> Self {
        let doing = if has_sent {
            "reading response header from upstream"
        } else {
            "sending request to upstream"
        };
        Broken {
            failure: upstream_error(error, doing),
            is_silent: connection.inbox.is_empty(),
        }
    }

    fn closed(connection: &Connection) -> Self {
        let failure = UpstreamFailure {
            kind: UpstreamKind::Error,
            message:
                "upstream prematurely closed connection while reading response header from upstream"
                    .to_string(),
        };
        Broken {
            failure,
            is_silent: connection.inbox.is_empty(),
        }
    }
}

/// The head of the answer, once it is there; interim answers are passed over.
fn parse_head(
    parser: &mut ResponseParser,
    connection: &mut Connection,
    max: usize,
) -> Result<Option<ResponseHead>, Broken> {
    let invalid = |what: String| {
        Broken::said(UpstreamFailure {
            kind: UpstreamKind::InvalidHeader,
            message: format!("{what} while reading response header from upstream"),
        })
    };
    // A peer that sends nothing but interim answers runs out of the buffer's bytes each time, so this ends.
    loop {
        match parser.parse(&mut connection.inbox, max) {
            Progress::NeedMore => return Ok(None),
            Progress::Refuse(fault) => return Err(invalid(fault.to_string())),
            Progress::NotHttp => {
                return Err(invalid(
                    "upstream sent no valid HTTP/1.0 header".to_string(),
                ));
            }
            Progress::Done(head) if head.status == 101 => {
                return Err(invalid(
                    "upstream switched protocols, which is not supported".to_string(),
                ));
            }
            Progress::Done(head) if head.status >= 200 => return Ok(Some(head)),
            Progress::Done(_) => *parser = ResponseParser::new(),
        }
    }
}

/// What one look at the connection brought.
enum Happened {
    /// Bytes went out.
    Sent,
    /// So many bytes came; 0 at the peer's end.
    Received(usize),
    /// The socket failed.
    Failed(std::io::Error),
}

/// Bytes asked of the socket at once while a head is read.
const HEAD_READ: usize = 16 * 1024;

/// The request on its way out.
struct Outgoing {
    queue: VecDeque<Piece>,
    /// True while the client has more of the body.
    from_client: bool,
    is_chunked: bool,
    has_sent: bool,
    sent: u64,
    /// Sending failed; the peer may still have answered.
    failed: Option<std::io::Error>,
}

impl Outgoing {
    fn new(prepared: &Prepared) -> Self {
        let mut queue = VecDeque::from([Piece::Memory(prepared.head.clone())]);
        let mut outgoing = Outgoing {
            queue: VecDeque::new(),
            from_client: false,
            is_chunked: false,
            has_sent: false,
            sent: 0,
            failed: None,
        };
        match &prepared.body {
            OutBody::None => {}
            OutBody::Memory(bytes) if bytes.is_empty() => {}
            OutBody::Memory(bytes) => queue.push_back(Piece::Memory(bytes.clone())),
            OutBody::File(file) => queue.push_back(Piece::File(FileRegion {
                file: Arc::clone(&file.file),
                offset: 0,
                len: file.len,
            })),
            OutBody::Client { length } => {
                outgoing.from_client = true;
                outgoing.is_chunked = length.is_none();
            }
        }
        outgoing.queue = queue;
        outgoing
    }

    fn is_done(&self) -> bool {
        self.queue.is_empty() && !self.from_client
    }

    /// Reads the next part of the body from the client, once everything before it is sent.
    async fn fetch_more(&mut self, req: &mut Request) -> Result<(), UpstreamFailure> {
        if !self.queue.is_empty() || !self.from_client {
            return Ok(());
        }
        let timeout = req.location.settings.body.timeout;
        let chunk = body::next_chunk(&req.down, timeout)
            .await
            .map_err(|failure| UpstreamFailure {
                kind: UpstreamKind::Error,
                message: format!("{failure} while sending request to upstream"),
            })?;
        let is_last = chunk.is_empty() || req.down.incoming.borrow().is_done();
        if !chunk.is_empty() {
            if self.is_chunked {
                let head = chunked::chunk_head(chunk.len() as u64);
                self.queue
                    .push_back(Piece::Memory(Bytes::copy_from_slice(head.as_ref())));
            }
            self.queue.push_back(Piece::Memory(chunk));
            if self.is_chunked {
                self.queue
                    .push_back(Piece::Memory(Bytes::from_static(chunked::CHUNK_END)));
            }
        }
        if is_last {
            self.from_client = false;
            if self.is_chunked {
                self.queue
                    .push_back(Piece::Memory(Bytes::from_static(chunked::LAST_CHUNK)));
            }
        }
        Ok(())
    }

    /// Sends what can be sent, else reads what has come.
    fn poll_talk(
        &mut self,
        cx: &mut Context<'_>,
        socket: &Socket,
        inbox: &mut BytesMut,
    ) -> Poll<Happened> {
        if let Poll::Ready(outcome) = self.poll_send(cx, socket) {
            match outcome {
                Ok(count) => {
                    self.consume(count);
                    return Poll::Ready(Happened::Sent);
                }
                Err(error) => {
                    self.queue.clear();
                    self.from_client = false;
                    self.failed = Some(error);
                }
            }
        }
        if inbox.capacity() - inbox.len() < HEAD_READ / 4 {
            inbox.reserve(HEAD_READ);
        }
        match std::task::ready!(socket.poll_recv(cx, inbox)) {
            Ok(0) => match self.failed.take() {
                Some(error) => Poll::Ready(Happened::Failed(error)),
                None => Poll::Ready(Happened::Received(0)),
            },
            Ok(count) => Poll::Ready(Happened::Received(count)),
            Err(error) => Poll::Ready(Happened::Failed(self.failed.take().unwrap_or(error))),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, socket: &Socket) -> Poll<std::io::Result<u64>> {
        match self.queue.front() {
            None => Poll::Pending,
            Some(Piece::File(region)) => socket
                .poll_sendfile(cx, region)
                .map_ok(|count| count as u64),
            Some(Piece::Memory(_)) => {
                let slices: smallvec::SmallVec<[IoSlice<'_>; 4]> = self
                    .queue
                    .iter()
                    .map_while(|piece| match piece {
                        Piece::Memory(bytes) => Some(IoSlice::new(bytes.chunk())),
                        Piece::File(_) => None,
                    })
                    .take(4)
                    .collect();
                let more = if slices.len() < self.queue.len() {
                    More::Follows
                } else {
                    More::Nothing
                };
                socket
                    .poll_send(cx, &slices, more)
                    .map_ok(|count| count as u64)
            }
        }
    }

    fn consume(&mut self, mut count: u64) {
        self.has_sent |= count > 0;
        self.sent += count;
        while count > 0 {
            let Some(front) = self.queue.front_mut() else {
                return;
            };
            count -= front.split_to(count).len();
            if front.is_empty() {
                self.queue.pop_front();
            }
        }
    }
}
