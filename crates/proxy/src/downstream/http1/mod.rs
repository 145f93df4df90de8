//! HTTP/1: one client's connection, which brings one request after another.
//!
//! ```text
//!            ┌────────────── next request (kept alive, body consumed) ◄──┐
//!            ▼                                                           │
//! accept ► Head ──head──► serve (phases, filters, writer) ───────────► Rest ──► Linger ► closed
//!            │ end of stream, timeout, closing generation                          ▲
//!            └── refused head ──► refuse (error page) ─────────────────────────────┘
//! ```
//!
//! `arrival` reads heads, `body` request bodies, `answer` and `writer` send answers,
//! `keep_alive` decides what becomes of the connection.
//!
//! Invariants:
//! 1. One request at a time: what a pipelining client sent ahead waits in the inbox, which is
//!    bounded.
//! 2. The socket is closed when its task ends: work in the background has no share in it.

pub(crate) mod answer;
mod arrival;
pub mod behind;
mod body;
mod inform;
pub mod keep_alive;
pub(crate) mod tunnel;
pub mod writer;

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use millpond_system::clock;
use millpond_system::quota::{Seat, Waiting};
use millpond_system::timer::Timer;
use millpond_system::transport::Transport;

use self::arrival::{Arrival, Idle, LARGE_READ, read_head};
use self::behind::{Behind, Patience};
use self::body::Incoming;
use self::keep_alive::After;
use super::client::Client;
use super::connection::Connection;
use super::encryption;
use super::proxy_protocol;
use super::serve::{self, Came, Refusal, Served};
use super::wire::Wire;
use crate::failure::ClientGone;
use crate::route::listen::{Binding, Listen};
use crate::worker::Member;
use millpond_wire::http1::request::{self as head, Connect, RequestParser};

/// Bytes of the buffer that requests arrive in, and so the most that a request that takes long may
/// keep of it: some heads of the usual length, and most of those with cookies.
const ARRIVAL: usize = 4 * 1024;

/// An HTTP/1 connection's transport, and the state of the one request that is on it.
pub struct Http1 {
    /// Facts about it.
    pub(crate) connection: Rc<Connection>,
    /// The way of its bytes.
    pub(crate) transport: Transport,
    /// Bytes received and not yet consumed.
    pub(crate) inbox: RefCell<BytesMut>,
    /// The connection's one timer.
    pub(crate) timer: Timer,
    /// True when the connection may serve another request after the current one.
    pub(crate) keep_alive: Cell<bool>,
    /// The part of the current request's body that is still to come.
    incoming: RefCell<Incoming>,
    /// True while the client waits for `100 Continue` before it sends its body.
    wants_continue: Cell<bool>,
    /// Work that goes on behind its requests.
    behind: Rc<Behind>,
    /// Its place among the worker's connections, for as long as the socket is open.
    _seat: Option<Seat>,
}

/// A wait for the end of a client's side.
///
/// A client that has sent more than was read is not watched any more: its end could not be seen
/// behind that.
pub struct Left<'a>(Option<&'a Http1>);

impl Left<'_> {
    /// A wait without an end.
    pub(super) fn never() -> Self {
        Left(None)
    }
}

impl Future for Left<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(http1) = self.0 else {
            return Poll::Pending;
        };
        // A transport that fails says so to the next read as well.
        let _ = ready!(http1.transport.poll_readable(cx));
        if http1.transport.is_closed_by_peer() {
            return Poll::Ready(());
        }
        // There is no second wait: bytes that are there would end it at once.
        self.0 = None;
        Poll::Pending
    }
}

impl Http1 {
    /// A connection that was accepted, before its first byte.
    pub fn new(connection: Rc<Connection>, transport: Transport, seat: Option<Seat>) -> Self {
        Http1 {
            connection,
            transport,
            inbox: RefCell::default(),
            timer: Timer::new(),
            keep_alive: Cell::new(false),
            incoming: RefCell::default(),
            wants_continue: Cell::new(false),
            behind: Rc::default(),
            _seat: seat,
        }
    }

    /// Reads the begin of a request, of which nothing is there yet, into the inbox; 0 at the
    /// client's end of stream. At least `size` bytes are asked for, within reason.
    ///
    /// While there is nothing, the connection holds no memory for it.
    pub(super) fn poll_arrival(
        &self,
        cx: &mut Context<'_>,
        size: usize,
    ) -> Poll<io::Result<usize>> {
        let mut inbox = self.inbox.borrow_mut();
        if inbox.capacity() > 0 {
            *inbox = BytesMut::new();
        }
        let mut arrivals = self.connection.generation.worker.arrivals.borrow_mut();
        if arrivals.capacity() < size.clamp(256, ARRIVAL) {
            arrivals.reserve(ARRIVAL);
        }
        let count = ready!(self.transport.poll_recv(cx, &mut arrivals))?;
        *inbox = arrivals.split();
        Poll::Ready(Ok(count))
    }

    /// Reads more bytes into the inbox within `timeout`.
    ///
    /// Returns false at the client's end of stream.
    async fn fill_inbox(&self, size: usize, timeout: Duration) -> Result<bool, ClientGone> {
        let read = std::future::poll_fn(|cx| {
            let mut inbox = self.inbox.borrow_mut();
            if inbox.capacity() == inbox.len() {
                inbox.reserve(size);
            }
            self.transport.poll_recv(cx, &mut inbox)
        });
        match self.timer.guard_for(timeout, read).await {
            Ok(Ok(count)) => Ok(count > 0),
            Ok(Err(error)) => Err(ClientGone::Io(error)),
            Err(_) => Err(ClientGone::TimedOut),
        }
    }

    /// Waits until the client has closed its side.
    pub(super) fn left(&self) -> Left<'_> {
        Left(Some(self))
    }

    /// True when the client has sent more than was read.
    fn has_unread(&self) -> bool {
        !self.inbox.borrow().is_empty() || self.transport.has_unread()
    }
}

/// One more in a gauge, for as long as it lives.
pub(super) struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    pub(super) fn new(gauge: &'a AtomicU64) -> Self {
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
pub async fn serve(http1: Rc<Http1>, binding: Arc<Binding>, member: Member) {
    let worker = Rc::clone(&http1.connection.generation.worker);
    let counters = worker.shared.connections.shard(worker.index);
    let _active = Counted::new(&counters.active);
    let Some(listen) = binding.listen_for(&http1.connection.local).cloned() else {
        return;
    };
    if listen.has_proxy_protocol && !Box::pin(proxy_protocol::read(&http1, &listen, &member)).await
    {
        return;
    }
    if listen.is_encrypted && !Box::pin(encryption::begin(&http1, &listen, &member)).await {
        return;
    }
    let mut turns = Turns {
        http1: &http1,
        listen: &listen,
        client: None,
    };
    let mut parser = RequestParser::default();
    let mut idle = Idle {
        timeout: http1.connection.first_server(&listen).settings.head.timeout,
        min_timeout: Duration::ZERO,
        since: None,
    };
    loop {
        let arrival = read_head(&http1, &listen, &mut parser, (&member, idle)).await;
        let writing = Counted::new(&counters.writing);
        let after = match arrival {
            Arrival::Head(came) => turns.exchange(came).await,
            Arrival::Refused(came, why) => Box::pin(turns.refuse(came, why)).await,
            Arrival::Broken(came, gone) => return turns.record_broken(came, &gone),
            Arrival::Nothing => return,
        };
        drop(writing);
        match after {
            After::NextRequest(next) => idle = next,
            After::Close(patience) => return Box::pin(http1.settle(patience)).await,
            After::Linger { time, timeout } => {
                return Box::pin(linger(&http1, &member, time, timeout)).await;
            }
        }
        if !http1.inbox.borrow().is_empty() {
            // nginx: a request that came with the one before it waits for its turn, too.
            tokio::task::yield_now().await;
        }
    }
}

/// The requests of a connection, one after another.
struct Turns<'a> {
    http1: &'a Rc<Http1>,
    listen: &'a Listen,
    /// The client of the last request; the next one's, if nobody has kept a share in it.
    client: Option<Rc<Client>>,
}

impl Turns<'_> {
    fn client(&mut self, came: &Came) -> Rc<Client> {
        let mut last = self.client.take();
        match last.as_mut().and_then(Rc::get_mut) {
            Some(client) => client.begin_anew(came),
            None => last = None,
        }
        let client = last.unwrap_or_else(|| {
            let wire = Wire::Http1(Rc::clone(self.http1));
            Rc::new(Client::next(Rc::clone(&self.http1.connection), wire, came))
        });
        self.client = Some(Rc::clone(&client));
        client
    }

    /// Answers a request.
    async fn exchange(&mut self, came: Came) -> After {
        let client = self.client(&came);
        match came.head.check(Connect::Refuse) {
            Ok(framing) => {
                let body = self.http1.begin(&came.head, framing);
                let served = serve::serve(client, self.listen, came, body).await;
                match self.decide(&served) {
                    Some(after) => after,
                    None => Box::pin(self.discard(served)).await,
                }
            }
            Err(why) => {
                let refusal = Refusal::from(why);
                Box::pin(self.answer_refused(client, came, refusal)).await
            }
        }
    }

    /// Answers a head that could not be understood.
    async fn refuse(&mut self, came: Came, why: head::Refusal) -> After {
        let client = self.client(&came);
        self.answer_refused(client, came, Refusal::from(why)).await
    }

    /// Decides how the connection goes on after an exchange; `None` if that is to be waited for.
    fn decide(&self, served: &Served) -> Option<After> {
        match served.request() {
            Some(req) => keep_alive::after_answer(self.http1, req, served.end),
            None => Some(After::Close(Patience::Brief)),
        }
    }

    /// Reads the rest of the request's body first.
    async fn discard(&self, served: Served) -> After {
        match served.request() {
            Some(req) => keep_alive::after_discard(self.http1, req).await,
            None => After::Close(Patience::Brief),
        }
    }

    async fn answer_refused(&self, client: Rc<Client>, came: Came, refusal: Refusal) -> After {
        let served = serve::refuse(client, self.listen, came, refusal).await;
        match self.decide(&served) {
            Some(after) => after,
            None => self.discard(served).await,
        }
    }

    /// Logs a request whose head did not come whole. nginx: 408 when it took too long, else 400;
    /// neither is sent.
    fn record_broken(&mut self, came: Came, gone: &ClientGone) {
        let client = self.client(&came);
        self.http1.keep_alive.set(false);
        serve::record_broken(client, self.listen, came, gone);
    }
}

/// Ends the sending side and reads on for a while, so that the client can read the answer before a
/// reset.
async fn linger(http1: &Http1, member: &Member, time: Duration, timeout: Duration) {
    http1.transport.shutdown_write();
    http1
        .connection
        .waiting
        .set(Waiting::Idle(clock::instant()));
    let displaced = std::future::poll_fn(|cx| {
        member.register(cx.waker());
        match http1.connection.is_displaced.get() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    });
    let ended = drain(http1, time, timeout);
    tokio::select! {
        biased;
        () = displaced => http1.connection.count_displaced(),
        () = ended => {}
    }
}

/// Reads what a client sends that will get no more answers.
async fn drain(http1: &Http1, time: Duration, timeout: Duration) {
    let end = clock::instant() + time;
    while clock::instant() < end {
        *http1.inbox.borrow_mut() = BytesMut::new();
        let wait = timeout.min(end.saturating_duration_since(clock::instant()));
        match http1.fill_inbox(LARGE_READ, wait).await {
            Ok(true) => {}
            _ => return,
        }
    }
}
