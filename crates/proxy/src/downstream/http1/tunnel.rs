//! Connections that an upstream has switched to another protocol (101, RFC 9110 §15.2.2): bytes go
//! both ways until one side ends.
//!
//! ```text
//! client ──► inbox of the client's connection ──► upstream
//! client ◄── inbox of the upstream's connection ◄── upstream
//! ```
//!
//! A side is read only when what it sent before was passed on, so that back-pressure reaches the
//! other one.
//!
//! Invariants:
//! 1. A tunnel exists only for a client that asked for one with Upgrade.
//! 2. What was read of a side before it ended is passed on.
//! 3. Memory is bounded by one read a side.
//!
//! As in nginx, the end of either side ends both, and `proxy_read_timeout` is the longest time
//! without a byte in any direction.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use millpond_system::clock;
use millpond_system::log::error::{self, Level};
use millpond_system::socket::More;
use millpond_system::transport::Transport;

use crate::log::request_error;
use crate::request::Request;
use millpond_exchange::client::http1::Http1;
use millpond_exchange::response::{Switched, Tunnel};

/// Bytes asked of a socket at once (arbitrary: several segments).
const READ_SIZE: usize = 16 * 1024;

/// The way in which a step of a tunnel ended.
enum Step {
    /// Bytes went through.
    Moved,
    /// A side has ended, and what it sent is passed on.
    Ended,
}

/// Passes bytes until a side ends or fails, or both are silent; counts what went to the client.
pub(crate) async fn run(mut tunnel: Tunnel, req: &mut Request) {
    let client = Rc::clone(&req.client);
    let Some(http1) = client.http1() else {
        // INVARIANT 1: without a client's connection nobody has asked. Streams have tunnels of
        // their own.
        return;
    };
    let mut ends = [false; 2];
    loop {
        let deadline = clock::instant() + tunnel.idle;
        let sent = &mut req.sent.body_bytes;
        let step = poll_fn(|cx| poll_step(&mut *tunnel.upstream, cx, http1, &mut ends, sent));
        let why = match http1.timer.guard(deadline, step).await {
            Ok(Ok(Step::Moved)) => continue,
            Ok(Ok(Step::Ended)) => return,
            Ok(Err(broken)) => format!("connection failed ({})", error::os_error(&broken)),
            Err(_) => "upstream timed out (110: Connection timed out)".to_string(),
        };
        let message = format_args!("{why} while proxying upgraded connection");
        return request_error::write(req, Level::Info, message);
    }
}

/// Passes on what is there in both directions.
fn poll_step(
    upstream: &mut dyn Switched,
    cx: &mut Context<'_>,
    http1: &Http1,
    [client_ended, upstream_ended]: &mut [bool; 2],
    sent: &mut u64,
) -> Poll<io::Result<Step>> {
    let Some((up, inbox)) = upstream.connection() else {
        return Poll::Ready(Ok(Step::Ended));
    };
    let mut from_client = http1.inbox.borrow_mut();
    let forth = poll_flow(cx, (&http1.transport, up), &mut from_client, client_ended)?;
    let back = poll_flow(cx, (up, &http1.transport), inbox, upstream_ended)?;
    *sent += back.sent as u64;
    upstream.note_tunnelled(forth.sent, back.received);
    match () {
        () if forth.is_over || back.is_over => Poll::Ready(Ok(Step::Ended)),
        () if forth.has_moved() || back.has_moved() => Poll::Ready(Ok(Step::Moved)),
        () => Poll::Pending,
    }
}

/// Outcome of one look at one direction.
#[derive(Default)]
struct Flow {
    received: usize,
    sent: usize,
    /// The source has ended and all it said is passed on.
    is_over: bool,
}

impl Flow {
    fn has_moved(&self) -> bool {
        self.received + self.sent > 0
    }
}

/// Sends what waits, and reads more when nothing does.
fn poll_flow(
    cx: &mut Context<'_>,
    (from, to): (&Transport, &Transport),
    waiting: &mut BytesMut,
    has_ended: &mut bool,
) -> io::Result<Flow> {
    let mut flow = Flow::default();
    // One round a step: a busy direction does not keep the other one waiting.
    if waiting.is_empty() && !*has_ended {
        waiting.reserve(READ_SIZE);
        match from.poll_recv(cx, waiting) {
            Poll::Ready(Ok(0)) => *has_ended = true,
            Poll::Ready(Ok(count)) => flow.received = count,
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => {}
        }
    }
    if !waiting.is_empty()
        && let Poll::Ready(count) = to.poll_send(cx, &[IoSlice::new(waiting)], More::Nothing)
    {
        flow.sent = count?;
        waiting.advance(flow.sent);
    }
    flow.is_over = *has_ended && waiting.is_empty();
    Ok(flow)
}
