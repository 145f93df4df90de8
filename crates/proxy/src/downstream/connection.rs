//! `keepalive_timeout`, `keepalive_requests`, `keepalive_time`, `keepalive_disable`,
//! `client_header_timeout`, `client_header_buffer_size`, `large_client_header_buffers`,
//! `lingering_close` and their like: one client's connection.
//!
//! ```text
//!            ┌────────────── next request (kept alive, body consumed) ◄──┐
//!            ▼                                                           │
//! accept ► Head ──head──► Answer (phases, filters, writer) ──────────► Rest ──► Linger ► closed
//!            │ end of stream, timeout, closing generation                          ▲
//!            └── refused head ──► Answer (error page) ─────────────────────────────┘
//! ```
//!
//! Invariants:
//! 1. A connection is reused only when the whole body of the last request was consumed and its
//!    answer was sent whole.
//! 2. A refused head ends the connection after its answer.
//! 3. One request at a time: what a pipelining client sent ahead waits in the inbox, which is
//!    bounded.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use millpond_conf::ByteSize;

use super::behind::Patience;
use super::body::{self, Incoming, RequestBody};
use super::writer::SendError;
use super::{ClientGone, Downstream};
use crate::clock::{self, Instant};
use crate::header::Known;
use crate::http1::Version;
use crate::http1::request::{
    Connect, Framing, InvalidNames, Limits, Progress, Refused, RequestHead, RequestParser,
    Underscores,
};
use crate::phase;
use crate::request::Request;
use crate::respond::{self, CLOSE_WITHOUT_ANSWER};
use crate::route::listen::{Binding, Listen};
use crate::route::target;
use crate::stats::status_zone::{self, Visit};
use crate::worker::Member;

/// Bytes asked of the socket at once when a head does not fit into the first buffer.
const LARGE_READ: usize = 16 * 1024;

/// How long a connection that has just been answered, or accepted, is kept when its generation
/// closes: its client was told that it may go on, and its next request may be on the way. (200 ms:
/// more than most round trips; a process that ends is hardly kept by it.)
const CLOSING_GRACE: Duration = Duration::from_millis(200);

/// How heads are read; obeyed before the server is known, so the default server's values count.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server)]
pub struct HeadPolicy {
    /// The time in which a client must send a whole request head.
    #[directive(name = "client_header_timeout", default = "60s")]
    pub timeout: Duration,
    /// The first buffer of a request head; enough for most.
    #[directive(name = "client_header_buffer_size", default = "1k")]
    pub buffer_size: ByteSize,
    /// Number and size of the buffers of long heads: a request line or a field must fit into one,
    /// the whole head into all of them.
    #[directive(name = "large_client_header_buffers", default = "4 8k")]
    pub large_buffers: millpond_conf::Buffers,
    /// Whether fields with invalid names are ignored; else the request is refused.
    #[directive(name = "ignore_invalid_headers", default = "on")]
    pub ignore_invalid: bool,
    /// Whether names with underscores are valid.
    #[directive(name = "underscores_in_headers", default = "off")]
    pub underscores: bool,
    /// The largest number of fields of a request.
    #[directive(name = "max_headers", default = "1000")]
    pub max_fields: u32,
    /// Whether adjacent slashes of a path are merged into one.
    #[directive(name = "merge_slashes", default = "on")]
    pub merge_slashes: bool,
}

/// Browsers whose keep-alive is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum DistrustedBrowser {
    /// None.
    #[word("none")]
    None,
    /// Old MSIE, after a POST.
    #[word("msie6")]
    Msie6,
    /// Safari, on macOS.
    #[word("safari")]
    Safari,
}

/// When a connection may serve another request, and how it is closed.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct KeepAlivePolicy {
    /// How long an idle connection is kept, and optionally what the Keep-Alive field says; 0 closes
    /// after each answer.
    #[directive(name = "keepalive_timeout", default = "75s")]
    pub timeout: Vec<Duration>,
    /// Requests after which a connection is closed.
    #[directive(name = "keepalive_requests", default = "1000")]
    pub requests: u32,
    /// Age of a connection after which it is closed with its next answer.
    #[directive(name = "keepalive_time", default = "1h")]
    pub time: Duration,
    /// The time that an idle connection is kept when the configuration or the process ends, at
    /// least: a client that was just told that it may send another request finds somebody there.
    ///
    /// # Differs from nginx
    ///
    /// It is never less than 200 ms, so that a request that follows an answer at once is not lost.
    #[directive(name = "keepalive_min_timeout", default = "0")]
    pub min_timeout: Duration,
    /// Browsers whose connections are not kept alive.
    #[directive(name = "keepalive_disable", default = "msie6")]
    pub disable: millpond_conf::Flags<DistrustedBrowser>,
    /// Whether the server goes on reading from a client that it has answered early, so that the
    /// answer is not lost.
    #[directive(name = "lingering_close", default = "on")]
    pub lingering_close: LingeringClose,
    /// The longest time for which such reading goes on.
    #[directive(name = "lingering_time", default = "30s")]
    pub lingering_time: Duration,
    /// The longest wait for more in such reading.
    #[directive(name = "lingering_timeout", default = "5s")]
    pub lingering_timeout: Duration,
    /// Whether a connection whose request timed out, or was answered with 444, is closed with a
    /// reset, so that nothing of it stays in the kernel. Idle connections are closed in the
    /// ordinary way.
    #[directive(name = "reset_timedout_connection", default = "off")]
    pub reset_timed_out: bool,
}

/// When a connection lingers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, millpond_conf::Words)]
pub enum LingeringClose {
    /// Never.
    #[word("off")]
    Off,
    /// When the client may still be sending.
    #[word("on")]
    On,
    /// Always.
    #[word("always")]
    Always,
}

/// Whether a connection goes on after an answer.
enum After {
    NextRequest(Idle),
    Close(Patience),
    Linger { time: Duration, timeout: Duration },
}

/// How long a connection waits for a request.
#[derive(Clone, Copy)]
struct Idle {
    /// At most.
    timeout: Duration,
    /// At least, when the generation closes.
    min_timeout: Duration,
    /// Since when; without it, since it is waited for.
    since: Option<Instant>,
}

/// What a connection brought.
enum Arrival {
    /// A request.
    Head(Rc<RequestHead>),
    /// Something that is none, or not one for us.
    Refused(Refused),
    /// Part of a request, and then no more.
    Broken {
        head: Rc<RequestHead>,
        gone: ClientGone,
    },
    /// Nothing: it is to be closed.
    Nothing,
}

/// One more in a gauge, for as long as it lives.
struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn new(gauge: &'a AtomicU64) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Counted(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection to its end.
pub async fn serve(down: Rc<Downstream>, binding: Arc<Binding>, member: Member) {
    let ending = Ending(down);
    serve_requests(&ending.0, binding, member).await;
}

/// A connection that ends with its task, however that ends: what still runs in the background for a
/// request of its, such as an update of the cache, has a share in the socket, and the client is not
/// to wait for that.
struct Ending(Rc<Downstream>);

impl Drop for Ending {
    fn drop(&mut self) {
        if Rc::strong_count(&self.0) > 1 {
            self.0.socket.shutdown_write();
        }
    }
}

async fn serve_requests(down: &Rc<Downstream>, binding: Arc<Binding>, member: Member) {
    let worker = Rc::clone(&down.generation.worker);
    let counters = worker.shared.connections.shard(worker.index);
    let _active = Counted::new(&counters.active);
    let Some(listen) = binding.listen_for(&down.local).cloned() else {
        return;
    };
    let mut parser = RequestParser::default();
    let mut idle = Idle {
        timeout: listen.names.default_server().settings.head.timeout,
        min_timeout: Duration::ZERO,
        since: None,
    };
    loop {
        let head = match read_head(down, &listen, &mut parser, (&member, idle)).await {
            Arrival::Head(head) => Ok(head),
            Arrival::Refused(refused) => Err(refused),
            Arrival::Broken { head, gone } => return record_broken(down, &listen, head, &gone),
            Arrival::Nothing => return,
        };
        let writing = Counted::new(&counters.writing);
        let after = Box::pin(exchange(down, &listen, head)).await;
        drop(writing);
        match after {
            After::NextRequest(next) => idle = next,
            After::Close(patience) => return Box::pin(down.settle(patience)).await,
            After::Linger { time, timeout } => return Box::pin(linger(down, time, timeout)).await,
        }
    }
}

type Head = Result<Rc<RequestHead>, Refused>;

/// Reads the next head.
async fn read_head(
    down: &Rc<Downstream>,
    listen: &Listen,
    parser: &mut RequestParser,
    (member, idle): (&Member, Idle),
) -> Arrival {
    let worker = &down.generation.worker;
    let counters = worker.shared.connections.shard(worker.index);
    let policy = &listen.names.default_server().settings.head;
    let limits = limits(policy);
    let since = idle.since.unwrap_or_else(clock::instant);
    let mut deadline = since + idle.timeout;
    // Good for the first wait, which begins before the task sleeps.
    let mut now = Some(since);
    let mut has_begun = false;
    let mut reading = None;
    let mut watch = Some(member);
    let is_first = down.requests.get() == 0;
    down.is_pipelined
        .set(!is_first && !down.inbox.borrow().is_empty());
    loop {
        if !down.inbox.borrow().is_empty() {
            if !has_begun {
                has_begun = true;
                counters.requests.fetch_add(1, Ordering::Relaxed);
                let now = clock::instant();
                down.request_started.set(now);
                deadline = now + policy.timeout;
            }
            match parser.parse(&mut down.inbox.borrow_mut(), &limits) {
                Progress::Done(head) => {
                    down.request_bytes.set(head.head_len() as u64);
                    return Arrival::Head(head);
                }
                Progress::Refuse(refused) => return Arrival::Refused(refused),
                Progress::NeedMore => {
                    reading.get_or_insert_with(|| Counted::new(&counters.reading));
                }
            }
        } else if down.generation.is_closing() && down.socket.has_unread() {
            // The client was told that it may go on before this generation began to close.
            watch = None;
        } else if down.generation.is_closing() {
            let at_least = since + idle.min_timeout.max(CLOSING_GRACE);
            if clock::instant() >= at_least {
                return Arrival::Nothing;
            }
            deadline = deadline.min(at_least);
            watch = None;
        }
        let watch = watch.filter(|_| !has_begun);
        let read = recv_head(down, policy.buffer_size.as_usize(), watch);
        let now = now.take().filter(|_| !has_begun);
        let gone = match down.timer.guard_idle((now, deadline), read).await {
            Ok(Ok(())) => continue,
            Ok(Err(gone)) => gone,
            Err(_) => ClientGone::TimedOut,
        };
        let head = parser.give_up(&mut down.inbox.borrow_mut());
        return match head {
            Some(head) => Arrival::Broken { head, gone },
            None => {
                log_idle_end(down, &gone);
                Arrival::Nothing
            }
        };
    }
}

/// One read for a head; also ends when the generation starts to close, if that is watched.
async fn recv_head(
    down: &Downstream,
    size: usize,
    watch: Option<&Member>,
) -> Result<(), ClientGone> {
    std::future::poll_fn(|cx| match (poll_recv_head(cx, down, size), watch) {
        (Poll::Ready(Ok(0)), _) => Poll::Ready(Err(ClientGone::Closed)),
        (Poll::Ready(Ok(_)), _) => Poll::Ready(Ok(())),
        (Poll::Ready(Err(error)), _) => Poll::Ready(Err(ClientGone::Io(error))),
        (Poll::Pending, None) => Poll::Pending,
        (Poll::Pending, Some(_)) if down.generation.is_closing() => Poll::Ready(Ok(())),
        (Poll::Pending, Some(member)) => {
            member.register(cx.waker());
            Poll::Pending
        }
    })
    .await
}

/// One read for a head.
fn poll_recv_head(cx: &mut Context<'_>, down: &Downstream, size: usize) -> Poll<io::Result<usize>> {
    if down.inbox.borrow().is_empty() {
        return down.poll_arrival(cx, size);
    }
    let mut inbox = down.inbox.borrow_mut();
    if inbox.capacity() == inbox.len() {
        inbox.reserve(LARGE_READ);
    }
    down.socket.poll_recv(cx, &mut inbox)
}

/// Why a connection without a request ended, for those who log everything.
fn log_idle_end(down: &Downstream, gone: &ClientGone) {
    use crate::log::error::{Level, connection};
    match gone {
        ClientGone::Closed if down.requests.get() == 0 => {
            let message = format_args!("client closed connection while waiting for request");
            connection(down, Level::Info, message);
        }
        ClientGone::Closed => {
            let client = down.remote.borrow().host_text();
            let message = format_args!("client {client} closed keepalive connection");
            connection(down, Level::Info, message);
        }
        ClientGone::TimedOut | ClientGone::Io(_) => {
            connection(down, Level::Info, format_args!("{gone}"));
        }
    }
}

/// Logs a request whose head did not come whole. nginx: 408 when it took too long, else 400;
/// neither is sent.
fn record_broken(down: &Rc<Downstream>, listen: &Listen, head: Rc<RequestHead>, gone: &ClientGone) {
    down.requests.set(down.requests.get() + 1);
    let conf = Arc::clone(&down.generation.conf);
    let server = Arc::clone(listen.names.default_server());
    let mut req = Request::new(conf, Rc::clone(down), head, server);
    req.sent.status = match gone {
        ClientGone::TimedOut => 408,
        ClientGone::Closed | ClientGone::Io(_) => 400,
    };
    let visit = Visit::begin(&req);
    crate::log::error::refused(&req, &gone.to_string());
    crate::log::access::write(&mut req);
    status_zone::ended(&req, visit);
    if let ClientGone::TimedOut = gone {
        reset(&req);
    }
}

/// Has the connection closed with a reset, if that is wanted.
fn reset(req: &Request) {
    if req.location.settings.keep_alive.reset_timed_out {
        req.down.socket.reset_on_close();
    }
}

/// Whether an answer was not sent because of the time that its client took, or on purpose.
fn is_for_reset(req: &Request, error: &SendError) -> bool {
    match error {
        SendError::Client(ClientGone::TimedOut) => true,
        _ => matches!(req.sent.status, CLOSE_WITHOUT_ANSWER | 408) && req.sent.head_bytes == 0,
    }
}

/// The bounds of a request head.
pub(crate) fn limits(policy: &HeadPolicy) -> Limits {
    let line = policy.large_buffers.size.0 as usize;
    Limits {
        first: policy.buffer_size.0 as usize,
        line,
        total: line.saturating_mul(policy.large_buffers.count as usize),
        fields: policy.max_fields as usize,
        underscores: if policy.underscores {
            Underscores::Allow
        } else {
            Underscores::Ignore
        },
        invalid: if policy.ignore_invalid {
            InvalidNames::Ignore
        } else {
            InvalidNames::Keep
        },
    }
}

/// Answers one request.
async fn exchange(down: &Rc<Downstream>, listen: &Listen, head: Head) -> After {
    down.requests.set(down.requests.get() + 1);
    let conf = std::sync::Arc::clone(&down.generation.conf);
    let server = std::sync::Arc::clone(listen.names.default_server());
    let (head, refusal) = match head {
        Ok(head) => (head, None),
        Err(refused) => (refused.head, Some(refused.why)),
    };
    let mut req = Request::new(conf, Rc::clone(down), head, server);
    let refused = match refusal {
        Some(refusal) => Some((refusal.status(), refusal.to_string())),
        None => open(&mut req, listen).err(),
    };
    let was_refused = refused.is_some();
    let visit;
    let mut response = match refused {
        None => {
            visit = Visit::begin(&req);
            phase::answer(&mut req).await
        }
        Some((status, why)) => {
            // What is not to be read is told by the status already.
            let _ = find_server(&mut req, listen);
            visit = Visit::begin(&req);
            crate::log::error::refused(&req, &why);
            req.keep_alive = false;
            // What follows a refused head cannot be told apart from a body.
            *down.incoming.borrow_mut() = Incoming::None;
            Box::pin(phase::answer_refused(&mut req, status)).await
        }
    };
    let sent = respond::send(&mut req, &mut response).await;
    let tunnel = response.tunnel.take().filter(|_| sent.is_ok());
    let was_switched = tunnel.is_some();
    if let Some(tunnel) = tunnel {
        Box::pin(tunnel.run(&mut req)).await;
    }
    crate::log::access::write(&mut req);
    status_zone::ended(&req, visit);
    if let Err(error) = &sent
        && is_for_reset(&req, error)
    {
        reset(&req);
    }
    if sent.is_err() || was_switched {
        return After::Close(Patience::Brief);
    }
    after_answer(&req, was_refused).await
}

/// Sets up framing and target of a parsed head; the error is a status and why.
fn open(req: &mut Request, listen: &Listen) -> Result<(), (u16, String)> {
    let framing = req
        .head
        .check(Connect::Refuse)
        .map_err(|why| (why.status(), why.to_string()))?;
    let down = &req.down;
    down.wants_continue.set(req.head.expects_continue());
    *down.incoming.borrow_mut() = Incoming::begin(framing);
    req.body = match framing {
        Framing::None => RequestBody::None,
        Framing::Length(length) => RequestBody::Unread {
            length: Some(length),
        },
        _ => RequestBody::Unread { length: None },
    };
    req.keep_alive = req.head.keep_alive_wanted();
    find_server(req, listen)
}

/// Takes the target apart and finds the server that it is for.
pub(crate) fn find_server(req: &mut Request, listen: &Listen) -> Result<(), (u16, String)> {
    target::apply(req)?;
    req.server = listen.names.find(req);
    req.location = std::sync::Arc::clone(&req.server.location);
    Ok(())
}

/// Reads what is left of the request and decides how the connection goes on.
async fn after_answer(req: &Request, was_refused: bool) -> After {
    let policy = &req.location.settings.keep_alive;
    let linger = match policy.lingering_close {
        LingeringClose::Off => After::Close(patience(req)),
        _ => After::Linger {
            time: policy.lingering_time,
            timeout: policy.lingering_timeout,
        },
    };
    if was_refused {
        return linger;
    }
    let is_consumed = req.down.incoming.borrow().is_done();
    if !is_consumed && (!req.keep_alive || discard(req, policy).await.is_err()) {
        return linger;
    }
    if req.keep_alive {
        // What was waited for after the answer is no part of the idle time.
        let since = req.sent.ended.filter(|_| is_consumed);
        return After::NextRequest(policy.idle(since));
    }
    match policy.lingering_close {
        LingeringClose::Always => linger,
        // What a close leaves unread resets the connection, and the answer on its way may be lost
        // with it.
        LingeringClose::On if has_unread(&req.down) => linger,
        _ => After::Close(patience(req)),
    }
}

/// A body without length or chunks is over when the connection is.
fn patience(req: &Request) -> Patience {
    match req.head.version() == Version::Http11 && req.location.settings.chunked.enabled {
        true => Patience::Long,
        false => Patience::Brief,
    }
}

/// True when the client has sent more than was read.
fn has_unread(down: &Downstream) -> bool {
    !down.inbox.borrow().is_empty() || down.socket.has_unread()
}

/// Reads a body that no handler wanted, within the limits of lingering.
async fn discard(req: &Request, policy: &KeepAlivePolicy) -> Result<(), crate::failure::Failure> {
    let end = clock::instant() + policy.lingering_time;
    while !req.down.incoming.borrow().is_done() {
        if clock::instant() >= end {
            return Err(ClientGone::TimedOut.into());
        }
        body::next_chunk(&req.down, policy.lingering_timeout).await?;
    }
    Ok(())
}

/// Ends the sending side and reads on for a while, so that the client can read the answer before a
/// reset.
async fn linger(down: &Downstream, time: Duration, timeout: Duration) {
    down.socket.shutdown_write();
    let end = clock::instant() + time;
    while clock::instant() < end {
        *down.inbox.borrow_mut() = BytesMut::new();
        let wait = timeout.min(end.saturating_duration_since(clock::instant()));
        match down.fill_inbox(LARGE_READ, wait).await {
            Ok(true) => {}
            _ => return,
        }
    }
}

impl KeepAlivePolicy {
    /// How long an idle connection is kept; zero when it is not.
    pub fn idle_timeout(&self) -> Duration {
        self.timeout.first().copied().unwrap_or_default()
    }

    fn idle(&self, since: Option<Instant>) -> Idle {
        Idle {
            timeout: self.idle_timeout(),
            min_timeout: self.min_timeout,
            since,
        }
    }

    /// The value of the Keep-Alive field, seconds.
    pub fn header_timeout(&self) -> Option<u64> {
        self.timeout
            .get(1)
            .map(Duration::as_secs)
            .filter(|seconds| *seconds > 0)
    }

    /// True when the connection of `req` may serve another request under this policy.
    pub fn allows(&self, req: &Request) -> bool {
        let down = &req.down;
        !self.idle_timeout().is_zero()
            && down.requests.get() < self.requests
            && is_younger(down, self.time)
            && (!down.generation.is_closing() || !self.min_timeout.is_zero())
            && !is_body_in_doubt(down)
            && !self.distrusts(req)
    }

    fn distrusts(&self, req: &Request) -> bool {
        let Some(agent) = req.field(Known::UserAgent) else {
            return false;
        };
        let has = |text: &[u8]| memchr::memmem::find(agent, text).is_some();
        if memchr::memmem::find(agent, b"MSIE ").is_some() && !has(b"Opera") {
            let is_post = req.method == crate::http1::Method::Post;
            return self.disable.contains(DistrustedBrowser::Msie6)
                && is_post
                && is_old_msie(agent);
        }
        self.disable.contains(DistrustedBrowser::Safari)
            && has(b"Safari/")
            && has(b"Mac OS X")
            && !has(b"Chrome/")
    }
}

/// Whether a connection was not older than that when its request began.
fn is_younger(down: &Downstream, time: Duration) -> bool {
    let end = down.accepted.checked_add(time);
    end.is_none_or(|end| down.request_started.get() < end)
}

/// True when the client was not asked for its body: nobody knows whether it will send it (RFC 9110
/// §10.1.1).
fn is_body_in_doubt(down: &Downstream) -> bool {
    down.wants_continue.get() && !down.incoming.borrow().is_done()
}

/// MSIE 4 to 6, but not 6 with the security update (SV1) that repaired it.
fn is_old_msie(agent: &[u8]) -> bool {
    let Some(start) = memchr::memmem::find(agent, b"MSIE ") else {
        return false;
    };
    match agent.get(start + 5..).unwrap_or_default() {
        [b'4' | b'5', b'.', ..] => true,
        [b'6', b'.', rest @ ..] => memchr::memmem::find(rest, b"SV1").is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_browsers_are_told_by_their_version() {
        let cases = [
            ("Mozilla/4.0 (compatible; MSIE 5.0; Windows)", true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows)", true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows; SV1)", false),
            ("MSIE 7.0", false),
            ("MSIE ", false),
            ("Firefox", false),
        ];
        for (agent, expected) in cases {
            assert_eq!(is_old_msie(agent.as_bytes()), expected, "{agent}");
        }
    }
}
