//! A connection waits for a request, and reads its head.
//!
//! ```text
//! Idle ──first byte──► Begun ──whole head──► Head
//!   │                    ├── refused ──────► Refused
//!   │                    └── no more ──────► Broken
//!   └── end of stream, timeout, closing generation ──► Nothing
//! ```
//!
//! All of it is one function that is polled ([`Arrivals::poll`]): for each request it is called
//! twice, once to find nothing there and once when it has come.

use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use super::connection::{Counted, HeadPolicy};
use super::{ClientGone, Downstream};
use crate::clock::{self, Instant};
use crate::http1::request::{
    InvalidNames, Limits, Progress, Refused, RequestHead, RequestParser, Underscores,
};
use crate::route::listen::Listen;
use crate::stats::connections::ConnectionShard;
use crate::worker::Member;

/// Bytes asked of the socket at once when a head does not fit into the first buffer.
pub(super) const LARGE_READ: usize = 16 * 1024;

/// How long a connection that has just been answered, or accepted, is kept when its generation
/// closes: its client was told that it may go on, and its next request may be on the way. (200 ms:
/// more than most round trips; a process that ends is hardly kept by it.)
const CLOSING_GRACE: Duration = Duration::from_millis(200);

/// How long a connection waits for a request.
#[derive(Clone, Copy)]
pub(super) struct Idle {
    /// At most.
    pub(super) timeout: Duration,
    /// At least, when the generation closes.
    pub(super) min_timeout: Duration,
    /// Since when; without it, since it is waited for.
    pub(super) since: Option<Instant>,
}

/// What a connection brought.
pub(super) enum Arrival {
    /// A request, and when its head was there.
    Head(Rc<RequestHead>, Instant),
    /// Something that is none, or not one for us.
    Refused(Refused),
    /// Part of a request, and then no more.
    Broken {
        /// What was read.
        head: Rc<RequestHead>,
        /// Why it ends.
        gone: ClientGone,
    },
    /// Nothing: it is to be closed.
    Nothing,
}

/// A connection between two requests.
struct Arrivals<'a> {
    down: &'a Downstream,
    policy: &'a HeadPolicy,
    parser: &'a mut RequestParser,
    counters: &'a ConnectionShard,
    /// Wakes the connection when its generation closes, as long as that ends its wait.
    watch: Option<&'a Member>,
    since: Instant,
    min_timeout: Duration,
    deadline: Instant,
    /// Good for the first wait, which begins before the task sleeps.
    now: Option<Instant>,
    has_begun: bool,
    reading: Option<Counted<'a>>,
}

/// Reads the next head.
pub(super) async fn read_head(
    down: &Downstream,
    listen: &Listen,
    parser: &mut RequestParser,
    (member, idle): (&Member, Idle),
) -> Arrival {
    let worker = &down.generation.worker;
    let since = idle.since.unwrap_or_else(clock::instant);
    let is_first = down.requests.get() == 0;
    down.is_pipelined
        .set(!is_first && !down.inbox.borrow().is_empty());
    let mut arrivals = Arrivals {
        down,
        policy: &listen.names.default_server().settings.head,
        parser,
        counters: worker.shared.connections.shard(worker.index),
        watch: Some(member),
        since,
        min_timeout: idle.min_timeout,
        deadline: since + idle.timeout,
        now: Some(since),
        has_begun: false,
        reading: None,
    };
    std::future::poll_fn(|cx| arrivals.poll(cx)).await
}

impl Arrivals<'_> {
    /// Reads and parses until there is a head, or no more can come.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Arrival> {
        loop {
            let is_empty = self.down.inbox.borrow().is_empty();
            let arrival = match is_empty {
                false => self.parse(),
                true if self.down.generation.is_closing() => self.close(),
                true => None,
            };
            if let Some(arrival) = arrival {
                return Poll::Ready(arrival);
            }
            let gone = match self.poll_recv(cx) {
                Poll::Ready(Ok(0)) => ClientGone::Closed,
                Poll::Ready(Ok(_)) => continue,
                Poll::Ready(Err(error)) => ClientGone::Io(error),
                Poll::Pending if self.watches() && self.down.generation.is_closing() => continue,
                Poll::Pending => match self.poll_expired(cx) {
                    Poll::Ready(gone) => gone,
                    Poll::Pending => return Poll::Pending,
                },
            };
            return Poll::Ready(self.give_up(gone));
        }
    }

    /// Reads on in a head of which something is there.
    fn parse(&mut self) -> Option<Arrival> {
        if !self.has_begun {
            self.has_begun = true;
            self.counters.requests.fetch_add(1, Ordering::Relaxed);
            let now = clock::instant();
            self.down.request_started.set(now);
            self.deadline = now + self.policy.timeout;
        }
        let limits = limits(self.policy);
        match self
            .parser
            .parse(&mut self.down.inbox.borrow_mut(), &limits)
        {
            Progress::Done(head) => {
                self.down.request_bytes.set(head.head_len() as u64);
                let at = match self.reading {
                    None => self.down.request_started.get(),
                    Some(_) => clock::instant(),
                };
                Some(Arrival::Head(head, at))
            }
            Progress::Refuse(refused) => Some(Arrival::Refused(refused)),
            Progress::NeedMore => {
                self.reading
                    .get_or_insert_with(|| Counted::new(&self.counters.reading));
                None
            }
        }
    }

    /// The generation closes: waits a little longer, if at all.
    #[cold]
    fn close(&mut self) -> Option<Arrival> {
        self.watch = None;
        if self.down.socket.has_unread() {
            // The client was told that it may go on before this generation began to close.
            return None;
        }
        let at_least = self.since + self.min_timeout.max(CLOSING_GRACE);
        if clock::instant() >= at_least {
            return Some(Arrival::Nothing);
        }
        self.deadline = self.deadline.min(at_least);
        None
    }

    /// Whether it is to be woken when the generation closes.
    fn watches(&self) -> bool {
        self.watch.is_some() && !self.has_begun
    }

    /// One read.
    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let down = self.down;
        if down.inbox.borrow().is_empty() {
            return down.poll_arrival(cx, self.policy.buffer_size.as_usize());
        }
        let mut inbox = down.inbox.borrow_mut();
        if inbox.capacity() == inbox.len() {
            inbox.reserve(LARGE_READ);
        }
        down.socket.poll_recv(cx, &mut inbox)
    }

    /// Waits for what ends the wait if no byte does.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<ClientGone> {
        let now = self.now.take();
        if let Some(member) = self.watch.filter(|_| !self.has_begun) {
            member.register(cx.waker());
        }
        let now = now.filter(|_| !self.has_begun);
        let expired = self.down.timer.poll_idle(cx, now, self.deadline);
        expired.map(|_| ClientGone::TimedOut)
    }

    /// What there is will not be more.
    #[cold]
    fn give_up(&mut self, gone: ClientGone) -> Arrival {
        match self.parser.give_up(&mut self.down.inbox.borrow_mut()) {
            Some(head) => Arrival::Broken { head, gone },
            None => {
                log_idle_end(self.down, &gone);
                Arrival::Nothing
            }
        }
    }
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
