//! The tunnel of a WebSocket on a stream (RFC 8441 §5): DATA are bytes, both ways, until both sides
//! have ended or one is torn off.
//!
//! ```text
//! client ──DATA──► waiting ──► upstream        END_STREAM ─► end of what is sent (TCP: FIN)
//! client ◄──DATA── inbox of the connection ◄── upstream    END_STREAM ◄─ end of what comes
//! ```
//!
//! Invariants:
//! 1. A side is read only when what it sent before was passed on: no more than a frame and a read
//!    are held, and a side that is slow slows the other one down. Frames that have come are passed
//!    on together, since messages may have a few bytes each.
//! 2. The end of one direction is passed on behind its bytes, and leaves the other one open.
//! 3. A side that is torn off tears the other one off: RST_STREAM with CANCEL is a reset of TCP.
//!
//! `proxy_read_timeout` is the longest time without a byte in any direction, as for HTTP/1; nginx
//! knows no such tunnels.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use millpond_system::clock;
use millpond_system::log::error::{self, Level};
use millpond_system::socket::More;
use millpond_system::timer::Timer;
use millpond_system::transport::Transport;

use crate::log::request_error;
use crate::request::Request;
use millpond_exchange::client::wire::{Broken, Stream, Wire};
use millpond_exchange::response::{Switched, Tunnel};

/// Bytes asked of a socket at once (arbitrary: several segments).
const READ_SIZE: usize = 16 * 1024;

/// The outcome of a look at both directions.
enum Step {
    /// Something went through.
    Moved,
    /// Both sides have ended, and what they sent is passed on.
    Ended,
}

/// The side that was torn off.
enum Torn {
    Client,
    Upstream(io::Error),
}

/// A direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// More may come.
    #[default]
    Open,
    /// All has come, and some of it waits to be passed on.
    Ending,
    /// The end was passed on.
    Ended,
}

/// Both directions of a tunnel.
#[derive(Default)]
struct Flows {
    forth: Way,
    back: Way,
    /// Bytes of the client that the upstream has not taken.
    waiting: BytesMut,
}

/// Passes bytes until both sides have ended, one is torn off, or both are silent; counts what went
/// to the client.
pub(crate) async fn run(mut tunnel: Tunnel, req: &mut Request) {
    let client = Rc::clone(&req.client);
    let Wire::Stream(stream) = &client.wire else {
        return;
    };
    stream.become_tunnel();
    let timer = Timer::new();
    let mut flows = Flows::default();
    let why = loop {
        let deadline = clock::instant() + tunnel.idle;
        let sent = &mut req.sent.body_bytes;
        let step = poll_fn(|cx| flows.poll(cx, (&**stream, &mut *tunnel.upstream), sent));
        match timer.guard(deadline, step).await {
            Ok(Ok(Step::Moved)) => {}
            Ok(Ok(Step::Ended)) => {
                // It ends with the stream, or with nobody who reads it.
                let all_sent = poll_fn(|cx| stream.poll_sent(cx));
                let _ = timer.guard_for(tunnel.idle, all_sent).await;
                return;
            }
            Ok(Err(torn)) => break tear_off(&**stream, &mut *tunnel.upstream, torn),
            Err(_) => {
                if flows.back != Way::Ended {
                    stream.end(None);
                }
                break "upstream timed out (110: Connection timed out)".to_owned();
            }
        }
    };
    let message = format_args!("{why} while proxying upgraded connection");
    request_error::write(req, Level::Info, message);
}

/// INVARIANT 3.
fn tear_off(stream: &dyn Stream, upstream: &mut dyn Switched, torn: Torn) -> String {
    match torn {
        Torn::Client => {
            if let Some((connection, _)) = upstream.connection() {
                connection.reset_on_close();
            }
            "client canceled stream".to_owned()
        }
        Torn::Upstream(error) => {
            stream.reset(Broken::Torn);
            format!("connection failed ({})", error::os_error(&error))
        }
    }
}

impl Flows {
    /// Passes on what is there in both directions.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        (stream, upstream): (&dyn Stream, &mut dyn Switched),
        sent: &mut u64,
    ) -> Poll<Result<Step, Torn>> {
        if stream.poll_left(cx).is_ready() {
            return Poll::Ready(Err(Torn::Client));
        }
        let Some((connection, inbox)) = upstream.connection() else {
            return Poll::Ready(Ok(Step::Ended));
        };
        let before = (self.forth, self.back);
        let forth = self.poll_forth(cx, stream, connection)?;
        let back = self.poll_back(cx, stream, (connection, inbox))?;
        *sent += back.passed as u64;
        upstream.note_tunnelled(forth.passed, back.read);
        let has_moved = forth.has_moved() || back.has_moved() || before != (self.forth, self.back);
        match (self.forth, self.back) {
            (Way::Ended, Way::Ended) => Poll::Ready(Ok(Step::Ended)),
            _ if has_moved => Poll::Ready(Ok(Step::Moved)),
            _ => Poll::Pending,
        }
    }

    /// From the client to the upstream.
    fn poll_forth(
        &mut self,
        cx: &mut Context<'_>,
        stream: &dyn Stream,
        to: &Transport,
    ) -> Result<Moved, Torn> {
        let mut moved = Moved::default();
        // INVARIANT 1.
        if self.waiting.is_empty() {
            moved.read = self.gather(cx, stream)?;
        }
        if !self.waiting.is_empty()
            && let Poll::Ready(count) =
                to.poll_send(cx, &[IoSlice::new(&self.waiting)], More::Nothing)
        {
            moved.passed = count.map_err(Torn::Upstream)?;
            self.waiting.advance(moved.passed);
        }
        // INVARIANT 2.
        if self.waiting.is_empty() && self.forth == Way::Ending {
            to.shutdown_write();
            self.forth = Way::Ended;
        }
        Ok(moved)
    }

    /// Takes what has come of the client, up to a read's size and a frame.
    fn gather(&mut self, cx: &mut Context<'_>, stream: &dyn Stream) -> Result<usize, Torn> {
        while self.forth == Way::Open && self.waiting.len() < READ_SIZE {
            match stream.poll_body(cx) {
                Poll::Ready(Ok(bytes)) if bytes.is_empty() => self.forth = Way::Ending,
                Poll::Ready(Ok(bytes)) => self.waiting.extend_from_slice(&bytes),
                Poll::Ready(Err(_)) => return Err(Torn::Client),
                Poll::Pending => break,
            }
        }
        Ok(self.waiting.len())
    }

    /// From the upstream to the client.
    fn poll_back(
        &mut self,
        cx: &mut Context<'_>,
        stream: &dyn Stream,
        (from, inbox): (&Transport, &mut BytesMut),
    ) -> Result<Moved, Torn> {
        let mut moved = Moved::default();
        // INVARIANT 1.
        if inbox.is_empty() && self.back == Way::Open {
            inbox.reserve(READ_SIZE);
            match from.poll_recv(cx, inbox) {
                Poll::Ready(Ok(0)) => self.back = Way::Ending,
                Poll::Ready(Ok(count)) => moved.read = count,
                Poll::Ready(Err(error)) => return Err(Torn::Upstream(error)),
                Poll::Pending => {}
            }
        }
        if !inbox.is_empty()
            && let Poll::Ready(room) = stream.poll_room(cx)
        {
            let room = room.map_err(|_| Torn::Client)?;
            let bytes = inbox.split_to(room.min(inbox.len()));
            moved.passed = bytes.len();
            stream.push(bytes.freeze());
        }
        // INVARIANT 2.
        if inbox.is_empty() && self.back == Way::Ending {
            stream.end(None);
            self.back = Way::Ended;
        }
        Ok(moved)
    }
}

/// Bytes that moved in one direction.
#[derive(Default)]
struct Moved {
    read: usize,
    passed: usize,
}

impl Moved {
    fn has_moved(&self) -> bool {
        self.read + self.passed > 0
    }
}
