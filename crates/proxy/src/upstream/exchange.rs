//! `proxy_read_timeout`, `proxy_send_timeout`, `proxy_buffer_size`: one request to an upstream,
//! over as many peers as it takes.
//!
//! ```text
//! prepare ─► pick a peer ─► idle connection, else connect ─► send and read ─► head ─► Fetched
//!               ▲                                                 │
//!               └──── failure that proxy_next_upstream names ◄────┘
//! ```
//!
//! Invariants:
//! 1. A peer is asked once for each request, but for an idle connection that turned out dead, which
//!    is replaced once.
//! 2. A body that was read from the client while it was sent is never sent twice.
//! 3. Every way out of a try is noted in the trace.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use millpond_cache::conformance::Conformance;
use millpond_conf::{ByteSize, OffOr};
use millpond_system::body::{Body, BodyError, BodyStream, Piece};
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::Level;
use millpond_wire::header::Fields;
use millpond_wire::http1::Method;
use millpond_wire::http1::response::ResponseHead;

use super::ask::Ask;
use super::balance::Selection;
use super::broken::Broken;
use super::connect::{Connection, Maker, Source, Way};
use super::ended::Ended;
use super::group::Group;
use super::head::{BodyPlan, Coding, HeadStep, Switching, drop_duplicates};
use super::hints::Hints;
use super::http2::carrier::Carrier;
use super::next::{self, NextCause, Tries};
use super::own_head;
use super::pass::{PassTarget, Resolved};
use super::pass_settings::PassSettings;
use super::peer::Peer;
use super::queue;
use super::receive::{BodyContext, StderrMessage, UpstreamBody};
use super::redirect_follow;
use super::request::{self, OutBody, Prepared, READY_MAX};
use super::send::{Happened, Outgoing};
use super::store::StoreTarget;
use crate::log::request_error;
use crate::request::Request;
use crate::upstream::by_rfc;
use crate::upstream::keepalive::IdlePeers;
use crate::upstream::pass_settings::SettingsByProtocol as _;
use crate::upstream::record;
use crate::upstream::settings::UpstreamSettings;
use crate::{request_body, websocket};
use millpond_exchange::client::body::Remains;
use millpond_exchange::failure::{CLIENT_LEFT, Failure, UpstreamFailure, UpstreamKind};
use millpond_exchange::protocol::Protocol;
use millpond_exchange::settings::location::LocationSettings;
use millpond_exchange::trace::{Attempt, UpstreamTrace};

/// Limits of an exchange: the time that a peer may be silent, and the size of its head.
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

/// An answer whose head was read. It goes through many hands, in the box that is its body's in the
/// end.
pub struct Fetched {
    /// The head, until it is taken.
    pub head: ResponseHead,
    /// Length of the body, when announced.
    pub length: Option<u64>,
    /// The body.
    pub body: UpstreamBody,
}

impl Fetched {
    /// The body for a client.
    pub fn into_body(self: Box<Self>) -> Body {
        Body::Stream(Pin::from(self))
    }
}

impl BodyStream for Fetched {
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }

    fn take_whole(mut self: Pin<&mut Self>) -> Option<Bytes> {
        self.body.take_whole()
    }

    fn take_trailers(mut self: Pin<&mut Self>) -> Option<Fields> {
        Pin::new(&mut self.body).take_trailers()
    }
}

/// Asks the upstream, until the client leaves, unless the answer is wanted without it.
pub(crate) async fn fetch(
    req: &mut Request,
    target: &PassTarget,
    ask: &Ask,
) -> Result<Box<Fetched>, Failure> {
    let ignores_client = ignores_client(req, target.protocol, ask);
    let client = Rc::clone(&req.client);
    let mut left = std::pin::pin!(client.left());
    let mut fetching = std::pin::pin!(fetch_with(req, target, ask));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(outcome) = fetching.as_mut().poll(cx) {
            return Poll::Ready(outcome);
        }
        // While its body is still to come, the reader of the body sees that the client has left.
        if ignores_client || !client.is_body_done() {
            return Poll::Pending;
        }
        left.as_mut()
            .poll(cx)
            .map(|()| Err(Failure::Status(CLIENT_LEFT)))
    })
    .await
}

/// True if the answer is wanted whether or not its client waits for it.
pub(super) fn ignores_client(req: &Request, protocol: Protocol, ask: &Ask) -> bool {
    let settings = req.location.settings.pass(protocol);
    ask.is_for_cache
        || req.is_background
        || settings.buffer.ignore_abort
        || settings.store.target != StoreTarget::Off
}

/// Asks the peers of an upstream, until one answers.
pub(super) async fn fetch_with(
    req: &mut Request,
    target: &PassTarget,
    ask: &Ask,
) -> Result<Box<Fetched>, Failure> {
    let own;
    let resolved = match target.fixed() {
        Some(resolved) => resolved,
        None => {
            own = Box::new(Box::pin(target.resolve(req)).await?);
            &*own
        }
    };
    read_body(req, target.protocol).await?;
    let prepared = Box::new(prepare(req, (target, resolved), ask)?);
    let location = Arc::clone(&req.location);
    let settings = location.settings.pass(target.protocol);
    let group = &resolved.group;
    let mut selection = Selection::new(group, group.wish(req));
    let mut tries = Tries::new(&settings.next, selection.tries());
    let mut first = queue::first(group, &mut selection).await;
    loop {
        let started = clock::instant();
        let Some(peer) = first.take().or_else(|| selection.pick(started)) else {
            return Err(prepared.no_live(req, &selection, target.protocol, ask));
        };
        tries.spend();
        note_sticky(req, (group, &peer));
        let own = own_head::of_try(req, target.protocol, (&prepared, ask)).await?;
        let mut run = Try {
            req,
            settings: &location.settings,
            pass: settings,
            protocol: target.protocol,
            group,
            peer: &peer,
            prepared: own.as_deref().unwrap_or(&prepared),
            ask,
            started,
            queued: selection.queued.take(),
            was_sent: false,
            client_failure: None,
        };
        let (outcome, was_sent) = (run.run().await, run.was_sent);
        if let Some(failure) = run.client_failure.take() {
            return Err(*failure);
        }
        let (cause, outcome) = match outcome {
            Ok(fetched) => match NextCause::of_status(fetched.head.status) {
                Some(cause) => (cause, Ok(fetched)),
                None => {
                    group.answered(&peer);
                    let fetched = learnt(req, (group, &peer), fetched);
                    return redirect_follow::followed(req, (target, resolved), ask, fetched).await;
                }
            },
            // nginx: the next peer would get no socket either.
            Err(failure) if failure.kind == UpstreamKind::NoSocket => return Err(failure.into()),
            Err(failure) => (NextCause::of_kind(failure.kind), Err(failure)),
        };
        let may_repeat = !(was_sent && matches!(prepared.body, OutBody::Client { .. }));
        let goes_on =
            may_repeat && tries.is_left() && settings.next.allows(cause, req.method, was_sent);
        match &outcome {
            Ok(_) if !goes_on => group.answered(&peer),
            Ok(_) | Err(_) => next::note_failed(req, (group, &peer), cause),
        }
        if !goes_on {
            let outcome = outcome.map(|fetched| learnt(req, (group, &peer), fetched));
            return outcome.map_err(Failure::Upstream);
        }
        if let Err(failure) = outcome {
            request_error::failure(req, &Failure::Upstream(failure));
        }
    }
}

/// Reads the client's body whole, where the request cannot be made without it.
async fn read_body(req: &mut Request, protocol: Protocol) -> Result<(), Failure> {
    if request::must_read_body(req, protocol) {
        Box::pin(request_body::read_all(req)).await?;
    }
    Ok(())
}

/// The cookie that binds the client to a peer goes out with the answer.
fn note_sticky(req: &mut Request, (group, peer): (&Group, &Peer)) {
    if let Some(sticky) = &group.sticky
        && let Some(cookie) = sticky.cookie(req, peer)
    {
        req.upstream.borrow_mut().sticky_cookie = Some(cookie);
    }
}

/// Lets the group learn from an answer that the client gets.
fn learnt(
    req: &mut Request,
    (group, peer): (&Group, &Peer),
    mut fetched: Box<Fetched>,
) -> Box<Fetched> {
    let lesson = group
        .sticky
        .as_ref()
        .and_then(|sticky| sticky.lesson(req, peer));
    if let Some(lesson) = lesson {
        fetched.body.learn_at_end(lesson);
    }
    fetched
}

/// Makes the request that a peer is sent, and begins its trace.
fn prepare(
    req: &mut Request,
    (target, resolved): (&PassTarget, &Resolved),
    ask: &Ask,
) -> Result<Prepared, Failure> {
    let mut prepared = match &ask.peer {
        Some(peer) => (peer.encode)(req, peer, ask),
        None => request::prepare(req, target, resolved, ask)?,
    };
    prepared.encryption = match &ask.peer {
        Some(peer) => peer.encryption.clone().map(Box::new),
        None => target.encryption(req, resolved)?,
    };
    begin_trace(req, resolved);
    Ok(prepared)
}

fn begin_trace(req: &Request, resolved: &Resolved) {
    let mut trace = req.upstream.borrow_mut();
    if let Some(last) = trace.attempts.last_mut() {
        last.ends_group = true;
    }
    trace.fields = None;
    // Usually it was noted when the request was passed here.
    if !trace
        .host
        .as_ref()
        .is_some_and(|host| Arc::ptr_eq(host, &resolved.host))
    {
        trace.host = Some(Arc::clone(&resolved.host));
    }
    trace.port = resolved.port;
}

impl Prepared {
    /// The head that a peer is sent, where it says what is asked for.
    fn asked_head(&self, protocol: Protocol) -> Bytes {
        if protocol.has_heads_of_http() {
            self.head.clone()
        } else {
            Bytes::new()
        }
    }

    /// Notes a try that finds no live peer of a group.
    fn no_live(&self, req: &Request, of: &Selection, protocol: Protocol, ask: &Ask) -> Failure {
        let worker = req.worker();
        let why = ask.why(req.is_background);
        worker.shared.times.found_no_peer(worker.index, why);
        req.upstream.borrow_mut().attempts.push(Attempt {
            peer: Arc::from(of.group.name.as_str()),
            queued: of.queued,
            protocol,
            head: self.asked_head(protocol),
            status: 502,
            response: Some(Duration::ZERO),
            ..Attempt::default()
        });
        Failure::Upstream(UpstreamFailure::new(
            UpstreamKind::NoLive,
            "no live upstreams while connecting to upstream",
        ))
    }
}

/// A try's place among a peer's connections; given back however the try ends, with the time it
/// took.
struct Lease<'a> {
    group: Option<&'a Group>,
    peer: &'a Peer,
    trace: Rc<RefCell<UpstreamTrace>>,
    index: usize,
    started: Instant,
}

impl Lease<'_> {
    /// The answer's body gives the place back instead.
    fn hand_over(mut self) {
        self.group = None;
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            let took = clock::instant() - self.started;
            group.ended(self.peer, None, took);
            if let Some(attempt) = self.trace.borrow_mut().attempts.get_mut(self.index) {
                attempt.response = Some(took);
            }
        }
    }
}

/// One try with one peer.
pub(super) struct Try<'a> {
    pub(super) req: &'a mut Request,
    settings: &'a LocationSettings,
    pub(super) pass: &'a PassSettings,
    pub(super) protocol: Protocol,
    pub(super) group: &'a Arc<Group>,
    pub(super) peer: &'a Arc<Peer>,
    pub(super) prepared: &'a Prepared,
    pub(super) ask: &'a Ask,
    pub(super) started: Instant,
    queued: Option<Duration>,
    pub(super) was_sent: bool,
    /// Failure of the client's body while it was sent.
    pub(super) client_failure: Option<Box<Failure>>,
}

/// The part of a request that was sent when the head of its answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    Part,
    /// The rest goes on beside the answer's body.
    AsTheStreamSays,
}

impl Try<'_> {
    async fn run(&mut self) -> Result<Box<Fetched>, UpstreamFailure> {
        let index = self.begin();
        // Before the lease, which drops first: what is logged has the time that it took.
        let ended = Ended::begin(self.req, (self.group, self.peer));
        let lease = Lease {
            group: Some(self.group),
            peer: self.peer,
            trace: Rc::clone(&self.req.upstream),
            index,
            started: self.started,
        };
        let mut outcome = self.ask().await;
        match &mut outcome {
            Ok(fetched) => {
                lease.hand_over();
                self.head_came(fetched, ended);
            }
            Err(failure) => {
                let mut trace = self.req.upstream.borrow_mut();
                if let Some(attempt) = trace.attempts.get_mut(index) {
                    attempt.status = match failure.kind {
                        UpstreamKind::Timeout => 504,
                        // nginx: nobody was asked.
                        UpstreamKind::NoSocket => 0,
                        _ => 502,
                    };
                }
            }
        }
        outcome
    }

    /// Notes the head of the answer.
    fn head_came(&self, fetched: &mut Fetched, mut ended: Ended) {
        let took = fetched.body.read_at() - self.started;
        self.group.head_came(self.peer, took);
        let mut trace = self.req.upstream.borrow_mut();
        // Variables read them, logs, and who made this request of his own.
        let is_asked_for = self.req.conf.uses_upstream_fields || !self.req.is_clients_own();
        if is_asked_for || ended.is_logged() {
            let fields = Rc::new(fetched.head.fields.clone());
            ended.head_came(&fields);
            trace.fields = Some(fields);
        }
        fetched.body.set_ended(ended);
        if let Some(attempt) = trace.attempts.last_mut() {
            attempt.status = fetched.head.status;
            attempt.header = Some(took);
            attempt.bytes_received += fetched.head.head_len as u64;
        }
    }

    /// Begins the trace of the try; its place there.
    fn begin(&self) -> usize {
        let attempt = Attempt {
            peer: Arc::clone(&self.peer.name),
            protocol: self.protocol,
            is_encrypted: self.prepared.encryption.is_some(),
            why: self.ask.why(self.req.is_background),
            redirects: self.ask.hop.map_or(0, |hop| hop.number.into()),
            head: self.prepared.asked_head(self.protocol),
            range: self.ask.range.clone(),
            queued: self.queued,
            started_ms: clock::wall_us(self.started).div_euclid(1000),
            clients: u32::from(!self.req.is_background),
            ..Attempt::default()
        };
        let attempts = &mut self.req.upstream.borrow_mut().attempts;
        attempts.push(attempt);
        attempts.len() - 1
    }

    async fn ask(&mut self) -> Result<Box<Fetched>, UpstreamFailure> {
        let source = self.source();
        if record::of(self.protocol).is_clients {
            return Box::pin(self.open_tunnel(source)).await;
        }
        if self.is_on_line() {
            return Box::pin(self.ask_on_line(source)).await;
        }
        let idle = self.req.worker().of::<IdlePeers>().take(
            (self.group, self.peer),
            (&self.req.location, self.way(source)),
            self.started,
        );
        if let Some(connection) = idle {
            self.note_connected(self.started);
            match self.talk(connection, self.started).await {
                Ok(fetched) => return Ok(fetched),
                // nginx: a kept connection that dies before it says anything is no failure of the
                // peer.
                Err(Broken {
                    is_silent: true, ..
                }) if self.may_retry_idle() => {}
                Err(broken) => return Err(broken.failure),
            }
        }
        let made = Box::pin(self.maker(source).make()).await;
        let connection = made?;
        let now = clock::instant();
        self.note_connected(now);
        self.talk(connection, now)
            .await
            .map_err(|broken| broken.failure)
    }

    /// The maker of the request's connection.
    pub(super) fn maker(&self, source: Option<Source>) -> Maker {
        let way = self.way(source);
        Maker {
            worker: Rc::clone(self.req.worker()),
            group: Arc::clone(self.group),
            peer: Arc::clone(self.peer),
            location: Arc::clone(&self.req.location),
            protocol: self.protocol,
            source,
            encryption: way.encryption.cloned(),
            is_http2: way.is_http2,
        }
    }

    /// The way that the request's connection is made.
    pub(super) fn way(&self, source: Option<Source>) -> Way<'_> {
        Way {
            source,
            encryption: self.prepared.encryption.as_deref(),
            is_http2: (record::of(self.protocol).is_in_streams)(self.settings),
        }
    }

    /// RFC 9110 §9.2.2: a connection that dies does not tell whether the request was acted on, so
    /// one that changes something is not repeated by itself.
    pub(super) fn may_retry_idle(&self) -> bool {
        let has_body_left = !matches!(self.prepared.body, OutBody::Client { .. });
        self.may_repeat_sent() || (!self.was_sent && has_body_left)
    }

    fn may_repeat_sent(&self) -> bool {
        let has_body_left = !matches!(self.prepared.body, OutBody::Client { .. });
        has_body_left && self.pass.next.may_repeat(self.req.method)
    }

    /// Local address that a new connection comes from, if one is set.
    fn source(&mut self) -> Option<Source> {
        let OffOr::On(bind) = &self.pass.connect.bind else {
            return None;
        };
        bind.source(&self.req.eval(&bind.address))
    }

    pub(super) fn note_connected(&self, now: Instant) {
        let mut trace = self.req.upstream.borrow_mut();
        if let Some(attempt) = trace.attempts.last_mut() {
            attempt.connect = Some(now - self.started);
        }
    }

    /// Sends the request and reads the head of the answer, both as the peer lets it; it is `now`.
    /// (An `async fn` has room for its arguments twice.)
    #[expect(
        clippy::manual_async_fn,
        reason = "the future has room for its arguments once"
    )]
    fn talk(
        &mut self,
        mut connection: Box<Connection>,
        mut now: Instant,
    ) -> impl Future<Output = Result<Box<Fetched>, Broken>> {
        async move {
            if connection.http2.is_some() {
                let carrier = Carrier::Own(connection);
                return Box::pin(self.talk_http2(carrier, now)).await;
            }
            connection.requests += 1;
            let max = self.pass.exchange.head_size.as_usize();
            let mut outgoing = Outgoing::new(self.prepared);
            let begin = record::of(self.protocol).head;
            let mut reader = begin(Switching::of(self.req), self.prepared, self.settings);
            let mut hints = Hints::new(max);
            let mut is_silent = true;
            loop {
                let happened = if outgoing.wants_client() {
                    Box::pin(self.step_with_client(&mut outgoing, &mut connection)).await
                } else {
                    self.step(&mut outgoing, &mut connection, now).await
                };
                self.was_sent |= outgoing.has_sent;
                now = clock::instant();
                match happened? {
                    Happened::Sent | Happened::More => continue,
                    Happened::Failed(error) => {
                        return Err(Broken::io(&error, is_silent, outgoing.has_sent));
                    }
                    Happened::Received(0) => return Err(Broken::closed(is_silent)),
                    Happened::Received(_) => is_silent = false,
                }
                // Each round but the last takes a record or an interim answer from the inbox.
                loop {
                    let interim = match reader.read(&mut connection.inbox, max) {
                        HeadStep::NeedMore => break,
                        HeadStep::Done(head, coding) => {
                            let sent = self.note_sent(&outgoing);
                            let carrier = Carrier::Own(connection);
                            return self.fetched((head, coding), carrier, (sent, now));
                        }
                        HeadStep::Refuse(what) => return Err(Broken::invalid(&what)),
                        HeadStep::Interim(head) => head,
                        HeadStep::Stderr(message) => {
                            self.take_stderr(&message)?;
                            continue;
                        }
                    };
                    self.ask
                        .peer
                        .iter()
                        .for_each(|peer| peer.is_alive.set(true));
                    Box::pin(hints.pass_on(self.req, self.protocol, interim)).await;
                }
            }
        }
    }

    /// Logs what an application wrote to its error stream; it may be one that fails the try.
    fn take_stderr(&self, message: &[u8]) -> Result<(), Broken> {
        let text = StderrMessage(message);
        let doing = "while reading response header from upstream";
        request_error::write(self.req, Level::Error, format_args!("{text} {doing}"));
        if self
            .settings
            .of::<UpstreamSettings>()
            .fastcgi_app
            .catches(message)
        {
            Err(Broken::invalid("FastCGI application sent a caught error"))
        } else {
            Ok(())
        }
    }

    /// Waits until something can be sent, or something comes; it is `now`. When everything could be
    /// sent at once, what comes is waited for.
    fn step(
        &self,
        outgoing: &mut Outgoing,
        connection: &mut Connection,
        now: Instant,
    ) -> impl Future<Output = Result<Happened, Broken>> {
        let mut has_waited = false;
        std::future::poll_fn(move |cx| {
            let waited = std::mem::replace(&mut has_waited, true);
            self.poll_step(cx, (&mut *outgoing, &mut *connection), (now, waited))
        })
    }

    /// Polls for the next thing that happens on the connection, if anything does.
    fn poll_step(
        &self,
        cx: &mut Context<'_>,
        (outgoing, connection): (&mut Outgoing, &mut Connection),
        (now, has_waited): (Instant, bool),
    ) -> Poll<Result<Happened, Broken>> {
        let Connection {
            socket,
            inbox,
            timer,
            ..
        } = connection;
        let mut happened = outgoing.poll_talk(cx, socket, inbox);
        if !has_waited && matches!(happened, Poll::Ready(Happened::Sent)) && outgoing.is_done() {
            happened = outgoing.poll_talk(cx, socket, inbox);
        }
        if let Poll::Ready(happened) = happened {
            return Poll::Ready(Ok(happened));
        }
        let policy = &self.pass.exchange;
        let timeout = if outgoing.is_done() {
            policy.read_timeout
        } else {
            policy.send_timeout
        };
        let expired = timer.poll_expired(cx, now + timeout);
        expired.map(|_| Err(Broken::timed_out()))
    }

    /// Waits like [`Self::step`], while the client has more of its body.
    async fn step_with_client(
        &mut self,
        outgoing: &mut Outgoing,
        connection: &mut Connection,
    ) -> Result<Happened, Broken> {
        let Connection { socket, inbox, .. } = connection;
        let client = Rc::clone(&self.req.client);
        let timeout = self.settings.body.timeout;
        let mut chunk = std::pin::pin!(client.next_chunk(timeout));
        let came = std::future::poll_fn(|cx| match outgoing.poll_talk(cx, socket, inbox) {
            Poll::Ready(happened) => Poll::Ready(Err(happened)),
            Poll::Pending => chunk.as_mut().poll(cx).map(Ok),
        })
        .await;
        match came {
            Err(happened) => Ok(happened),
            Ok(chunk) => self.take_chunk(outgoing, chunk),
        }
    }

    fn take_chunk(
        &mut self,
        outgoing: &mut Outgoing,
        chunk: Result<Bytes, Failure>,
    ) -> Result<Happened, Broken> {
        let received = outgoing.received;
        let checked = chunk.and_then(|chunk| {
            let chunk = self.with_ready(outgoing, chunk)?;
            request_body::check_received(self.req, received + chunk.len() as u64)?;
            Ok(chunk)
        });
        match checked {
            Ok(chunk) => {
                let is_last = chunk.is_empty() || self.req.client.is_body_done();
                let remains = if is_last {
                    Remains::Nothing
                } else {
                    Remains::More
                };
                outgoing.push_body(chunk, remains);
                Ok(Happened::More)
            }
            Err(failure) => {
                self.client_failure = Some(Box::new(failure));
                Err(Broken::said(UpstreamFailure::new(
                    UpstreamKind::Error,
                    "the client's body ended early",
                )))
            }
        }
    }

    /// Adds what else has come of a body that goes out in chunks or records: pieces that came
    /// together go on as one.
    fn with_ready(&self, outgoing: &Outgoing, chunk: Bytes) -> Result<Bytes, Failure> {
        if !outgoing.is_framed() || chunk.is_empty() {
            return Ok(chunk);
        }
        let (more, _) = self.req.client.take_ready(READY_MAX)?;
        if more.is_empty() {
            Ok(chunk)
        } else {
            Ok(Bytes::from([&chunk[..], &more[..]].concat()))
        }
    }

    fn note_sent(&self, outgoing: &Outgoing) -> Sent {
        if let Some(attempt) = self.req.upstream.borrow_mut().attempts.last_mut() {
            attempt.bytes_sent += outgoing.sent;
        }
        if outgoing.is_done() {
            Sent::Whole
        } else {
            Sent::Part
        }
    }

    pub(super) fn fetched(
        &self,
        (mut head, coding): (ResponseHead, Coding),
        carrier: Carrier,
        (sent, now): (Sent, Instant),
    ) -> Result<Box<Fetched>, Broken> {
        let record = record::of(self.protocol);
        let method = if record.heeds_method {
            self.prepared.method
        } else {
            Method::Get
        };
        if head.status == 101 && !websocket::is_accepted(self.req, &head.fields) {
            let what = "upstream sent no valid answer to the key of a WebSocket";
            return Err(Broken::invalid(what));
        }
        let plan = coding
            .plan(&head, method)
            .map_err(|fault| Broken::invalid(&format!("upstream sent invalid header: {fault}")))?;
        drop_duplicates(&mut head.fields);
        if self.pass.conformance.rules == Conformance::Rfc9111 {
            by_rfc::receive(&mut head, clock::wall_us(now).div_euclid(1_000_000));
            if self.protocol == Protocol::Http {
                by_rfc::add_via(&mut head);
            }
        }
        let keeps = sent == Sent::AsTheStreamSays || (record.keeps)(self.settings, &head);
        let context = BodyContext {
            trace: Rc::clone(&self.req.upstream),
            started: self.started,
            generation: Rc::clone(self.req.generation()),
            timeout: self.pass.exchange.read_timeout,
            log: (!matches!(plan, BodyPlan::Framed(_))).then(|| request_error::remember(self.req)),
        };
        let may_reuse = sent != Sent::Part && keeps;
        let body = UpstreamBody::new((carrier, now), plan, may_reuse, context);
        Ok(Box::new(Fetched {
            length: body.length(),
            head,
            body,
        }))
    }
}

#[cfg(test)]
mod tests;
