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
//! How a head is read stands in `arrival.rs`, how it is answered in `exchange.rs`.
//!
//! Invariants:
//! 1. One request at a time: what a pipelining client sent ahead waits in the inbox, which is
//!    bounded.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use millpond_conf::ByteSize;

use super::Downstream;
use super::arrival::{Arrival, Idle, LARGE_READ, read_head};
use super::exchange::{After, exchange, record_broken, refuse};
use super::proxy_protocol;
use crate::clock::{self, Instant};
use crate::header::Known;
use crate::http1::request::RequestParser;
use crate::request::Request;
use crate::route::listen::Binding;
use crate::worker::Member;

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
    if listen.has_proxy_protocol && !Box::pin(proxy_protocol::read(down, &listen, &member)).await {
        return;
    }
    let mut parser = RequestParser::default();
    let mut idle = Idle {
        timeout: listen.names.default_server().settings.head.timeout,
        min_timeout: Duration::ZERO,
        since: None,
    };
    loop {
        let head = match read_head(down, &listen, &mut parser, (&member, idle)).await {
            Arrival::Head(head, at) => Ok((head, at)),
            Arrival::Refused(refused) => Err(refused),
            Arrival::Broken { head, gone } => return record_broken(down, &listen, head, &gone),
            Arrival::Nothing => return,
        };
        let writing = Counted::new(&counters.writing);
        let after = match head {
            Ok(head) => exchange(down, &listen, head).await,
            Err(refused) => Box::pin(refuse(down, &listen, refused)).await,
        };
        drop(writing);
        match after {
            After::NextRequest(next) => idle = next,
            After::Close(patience) => return Box::pin(down.settle(patience)).await,
            After::Linger { time, timeout } => return Box::pin(linger(down, time, timeout)).await,
        }
        if !down.inbox.borrow().is_empty() {
            // nginx: a request that came with the one before it waits for its turn, too.
            tokio::task::yield_now().await;
        }
    }
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

    pub(super) fn idle(&self, since: Option<Instant>) -> Idle {
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
        let is_post = req.method == crate::http1::Method::Post;
        let distrusts_msie = is_post && self.disable.contains(DistrustedBrowser::Msie6);
        let distrusts_safari = self.disable.contains(DistrustedBrowser::Safari);
        // Most requests are told without a look at who asks.
        if !distrusts_msie && !distrusts_safari {
            return false;
        }
        let Some(agent) = req.field(Known::UserAgent) else {
            return false;
        };
        let has = |text: &[u8]| memchr::memmem::find(agent, text).is_some();
        if has(b"MSIE ") && !has(b"Opera") {
            return distrusts_msie && is_old_msie(agent);
        }
        distrusts_safari && has(b"Safari/") && has(b"Mac OS X") && !has(b"Chrome/")
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
