//! A connection waits for a request, and reads its head.
//!
//! ```text
//! Idle ──first byte──► Begun ──whole head──► Head
//!   │                    ├── refused ──────► Refused
//!   │                    └── no more ──────► Broken
//!   ├── end of stream, timeout, closing generation ──► Nothing
//!   └── nothing for a while ──► Quiet
//! ```
//!
//! All of it is one function that is polled ([`Arrivals::poll`]): for each request it is called
//! twice, once to find nothing there and once when it has come.

use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use millpond_exchange::client::Came;
use millpond_exchange::client::carrier::{CLOSING_GRACE, LARGE_READ};
use millpond_exchange::client::connection::Connection;
use millpond_exchange::client::http1::Http1;
use millpond_exchange::failure::ClientGone;
use millpond_exchange::settings::clients::head::HeadPolicy;
use millpond_exchange::settings::listen::Listen;
use millpond_exchange::stats::connections::{ConnectionShard, Counted};
use millpond_exchange::worker::Member;
use millpond_system::clock::{self, Instant};
use millpond_system::quota::Waiting;
use millpond_system::timer::Expired;
use millpond_wire::http1::request::{Progress, Refusal, RequestHead, RequestParser};

/// The time after which a connection without a request is quiet. (A client that asks again sooner
/// pays nothing for it; one that asks later pays a task and four calls of the kernel.)
const QUIET_AFTER: Duration = Duration::from_secs(2);

/// The shortest wait in which a connection may become quiet: the ends of quiet ones are looked for
/// only once a second.
const SHORTEST: Duration = Duration::from_secs(10);

/// Times for which a connection waits for a request.
#[derive(Clone, Copy)]
pub(crate) struct Idle {
    /// At most.
    timeout: Duration,
    /// At least, when the generation closes.
    min_timeout: Duration,
    /// Since when; without it, since it is waited for.
    since: Option<Instant>,
    /// The part of the time after which the connection is quiet, if it may be.
    attentive: Duration,
}

impl Idle {
    /// A wait of at most `timeout`, and of at least `min_timeout` when the generation closes.
    pub(super) fn new(timeout: Duration, min_timeout: Duration, since: Option<Instant>) -> Self {
        Idle {
            timeout,
            min_timeout,
            since,
            attentive: if timeout < SHORTEST {
                timeout
            } else {
                QUIET_AFTER
            },
        }
    }

    /// The same wait, by a connection that does not become quiet.
    pub(crate) fn attentive(self) -> Self {
        Idle {
            attentive: self.timeout,
            ..self
        }
    }

    /// The rest of the wait, by a connection that is looked after again from `now` on.
    pub(super) fn again(self, now: Instant) -> Self {
        let waited = self
            .since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        Idle {
            attentive: (waited + QUIET_AFTER).min(self.timeout),
            ..self
        }
    }

    /// The end of the wait.
    pub(super) fn end(&self) -> Option<Instant> {
        self.since?.checked_add(self.timeout)
    }
}

/// Bytes that a connection brought, or the end of its wait.
pub(super) enum Arrival {
    /// A request.
    Head(Came),
    /// Something that is none, or not one for us, and why.
    Refused(Came, Refusal),
    /// Part of a request, and why no more comes.
    Broken(Came, ClientGone),
    /// Nothing for a while: it is to be waited for without a task.
    Quiet(Idle),
    /// Nothing: it is to be closed.
    Nothing,
}

/// A connection between two requests.
struct Arrivals<'a> {
    http1: &'a Http1,
    connection: &'a Connection,
    policy: &'a HeadPolicy,
    parser: &'a mut RequestParser,
    counters: &'a ConnectionShard,
    member: &'a Member,
    /// Wakes the connection when its generation closes, as long as that ends its wait.
    watch: Option<&'a Member>,
    since: Instant,
    idle: Idle,
    deadline: Instant,
    /// Good for the first wait, which begins before the task sleeps.
    now: Option<Instant>,
    is_pipelined: bool,
    has_begun: bool,
    /// The time of the first byte, once that was there.
    started: Instant,
    reading: Option<Counted<'a>>,
}

/// Reads the next head.
pub(super) async fn read_head(
    http1: &Http1,
    listen: &Listen,
    parser: &mut RequestParser,
    (member, idle): (&Member, Idle),
) -> Arrival {
    let connection = &http1.connection;
    let worker = &connection.generation.worker;
    let since = idle.since.unwrap_or_else(clock::instant);
    let is_first = connection.requests.get() == 0;
    connection.waiting.set(Waiting::Idle(since));
    let mut arrivals = Arrivals {
        http1,
        connection,
        policy: &http1.connection.first_server(listen).settings.head,
        parser,
        counters: worker.shared.connections.shard(worker.index),
        member,
        watch: Some(member),
        since,
        idle,
        deadline: since + idle.attentive,
        now: Some(since),
        is_pipelined: !is_first && !http1.inbox.borrow().is_empty(),
        has_begun: false,
        started: since,
        reading: None,
    };
    std::future::poll_fn(|cx| arrivals.poll(cx)).await
}

impl Arrivals<'_> {
    /// Reads and parses until there is a head, or no more can come.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Arrival> {
        loop {
            if self.connection.is_displaced.get()
                && let Some(arrival) = self.make_room()
            {
                return Poll::Ready(arrival);
            }
            let is_empty = self.http1.inbox.borrow().is_empty();
            let arrival = if !is_empty {
                self.parse()
            } else if self.connection.generation.is_closing() {
                self.close()
            } else {
                None
            };
            if let Some(arrival) = arrival {
                return Poll::Ready(arrival);
            }
            let gone = match self.poll_recv(cx) {
                Poll::Ready(Ok(0)) => ClientGone::Closed,
                Poll::Ready(Ok(_)) => continue,
                Poll::Ready(Err(error)) => ClientGone::Io(error),
                Poll::Pending if self.watches() && self.connection.generation.is_closing() => {
                    continue;
                }
                Poll::Pending if self.poll_expired(cx).is_pending() => return Poll::Pending,
                Poll::Pending => match self.become_quiet() {
                    Some(quiet) => return Poll::Ready(quiet),
                    None => ClientGone::TimedOut,
                },
            };
            return Poll::Ready(self.give_up(gone));
        }
    }

    /// Reads on in a head of which something is there.
    fn parse(&mut self) -> Option<Arrival> {
        if !self.has_begun {
            self.has_begun = true;
            self.connection.waiting.set(Waiting::Answer);
            self.counters.requests.fetch_add(1, Ordering::Relaxed);
            let now = clock::instant();
            self.started = now;
            self.deadline = now + self.policy.timeout;
        }
        let limits = self.policy.limits(self.connection.generation.conf.reading);
        match self
            .parser
            .parse(&mut self.http1.inbox.borrow_mut(), &limits)
        {
            Progress::Done(head) => {
                let at = match self.reading {
                    None => self.started,
                    Some(_) => clock::instant(),
                };
                Some(Arrival::Head(self.came(head, at)))
            }
            Progress::Refuse(refused) => {
                let came = self.came(refused.head, clock::instant());
                Some(Arrival::Refused(came, refused.why))
            }
            Progress::NeedMore => {
                self.reading.get_or_insert_with(|| {
                    let began = self.started;
                    self.connection.waiting.set(Waiting::Head(began));
                    Counted::new(&self.counters.reading)
                });
                None
            }
        }
    }

    fn came(&self, head: Rc<RequestHead>, at: Instant) -> Came {
        Came {
            head,
            started: self.started,
            at,
            is_pipelined: self.is_pipelined,
        }
    }

    /// The generation closes: waits a little longer, if at all.
    #[cold]
    fn close(&mut self) -> Option<Arrival> {
        self.watch = None;
        if self.http1.transport.has_unread() {
            // The client was told that it may go on before this generation began to close.
            return None;
        }
        let at_least = self.since + self.idle.min_timeout.max(CLOSING_GRACE);
        if clock::instant() >= at_least {
            return Some(Arrival::Nothing);
        }
        self.deadline = (self.since + self.idle.timeout).min(at_least);
        None
    }

    /// The first part of the wait is over: the rest is for a quiet connection, if there is a rest.
    #[cold]
    fn become_quiet(&self) -> Option<Arrival> {
        let is_over = self.deadline >= self.since + self.idle.timeout;
        if self.has_begun || self.watch.is_none() || is_over {
            return None;
        }
        let since = Some(self.since);
        Some(Arrival::Quiet(Idle { since, ..self.idle }))
    }

    /// Makes room for another connection: ends the wait, unless a request has come meanwhile.
    #[cold]
    fn make_room(&mut self) -> Option<Arrival> {
        if !self.has_begun && self.http1.transport.has_unread() {
            self.connection.is_displaced.set(false);
            return None;
        }
        self.connection.count_displaced();
        Some(self.give_up(ClientGone::Displaced))
    }

    /// True if the connection is to be woken when the generation closes.
    fn watches(&self) -> bool {
        self.watch.is_some() && !self.has_begun
    }

    /// One read.
    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let http1 = self.http1;
        if http1.inbox.borrow().is_empty() {
            return http1.poll_arrival(cx, self.policy.buffer_size.as_usize());
        }
        let mut inbox = http1.inbox.borrow_mut();
        if inbox.capacity() == inbox.len() {
            inbox.reserve(LARGE_READ);
        }
        http1.transport.poll_recv(cx, &mut inbox)
    }

    /// Waits for what ends the wait if no byte does.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Expired> {
        let now = self.now.take();
        self.member.register(cx.waker());
        let now = now.filter(|_| !self.has_begun);
        self.http1.timer.poll_idle(cx, now, self.deadline)
    }

    /// Ends the wait with the part of a head that is there.
    #[cold]
    fn give_up(&mut self, gone: ClientGone) -> Arrival {
        match self.parser.give_up(&mut self.http1.inbox.borrow_mut()) {
            Some(head) => Arrival::Broken(self.came(head, clock::instant()), gone),
            None => {
                log_idle_end(self.connection, &gone);
                Arrival::Nothing
            }
        }
    }
}

/// The reason why a connection without a request ended, for those who log everything.
pub(super) fn log_idle_end(of: &Connection, gone: &ClientGone) {
    use crate::log::request_error::connection;
    use millpond_system::log::error::Level;
    match gone {
        ClientGone::Closed if of.requests.get() == 0 => {
            let message = format_args!("client closed connection while waiting for request");
            connection(of, Level::Info, message);
        }
        ClientGone::Closed => {
            let client = of.peer.host_text();
            let message = format_args!("client {client} closed keepalive connection");
            connection(of, Level::Info, message);
        }
        ClientGone::TimedOut | ClientGone::Displaced | ClientGone::Io(_) => {
            connection(of, Level::Info, format_args!("{gone}"));
        }
    }
}
