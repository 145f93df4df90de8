//! The span of an exchange with an origin, and the `traceparent` that goes to it.
//!
//! The head of a request is written once for all peers that may be asked; it has the request's own
//! span in it where that was injected. Each exchange has a copy with its own id in that place,
//! which has the same length.

use std::rc::Rc;

use bytes::Bytes;
use millpond_otlp::span::{Kind, Place, Span};
use millpond_semantics::trace_context::SpanId;
use millpond_system::clock;

use crate::request::Request;
use millpond_exchange::trace::span::{Sink, Tracing, random_span};
use millpond_exchange::trace::{Attempt, UpstreamTrace, asked};

/// The span of an exchange that runs.
#[derive(Debug)]
pub(crate) struct ExchangeSpan {
    tracing: Rc<Tracing>,
    sink: Rc<Sink>,
    id: SpanId,
    parent: SpanId,
    started_us: i64,
}

/// The head for an exchange that begins, with its own span; none where the head has no span of
/// ours.
pub(crate) fn address(req: &mut Request, head: &Bytes) -> Option<Bytes> {
    let scope = req.tracing.get_mut()?;
    scope.tracing.sink()?;
    let id = random_span();
    scope.exchange = Some(id);
    let mut digits = Vec::new();
    scope.tracing.trace.write(&mut digits);
    digits.push(b'-');
    let offset = digits.len();
    scope.tracing.span.write(&mut digits);
    let mut places = memchr::memmem::find_iter(head, &digits).peekable();
    places.peek()?;
    let mut own = head.to_vec();
    let mut written = Vec::new();
    id.write(&mut written);
    for place in places {
        let start = place + offset;
        if let Some(place) = own.get_mut(start..start + written.len()) {
            place.copy_from_slice(&written);
        }
    }
    Some(Bytes::from(own))
}

impl ExchangeSpan {
    /// The exchange begins; nothing where the request is not recorded.
    pub(crate) fn begin(req: &mut Request) -> Option<Box<Self>> {
        let scope = req.tracing.get_mut()?;
        let sink = scope.tracing.sink()?;
        // An exchange that is not recorded has no room for it.
        Some(Box::new(ExchangeSpan {
            tracing: Rc::clone(&scope.tracing),
            sink,
            id: scope.exchange.take().unwrap_or_else(random_span),
            parent: scope.under(),
            started_us: clock::now_us(),
        }))
    }

    /// The exchange is over.
    pub(crate) fn end(self, attempt: &Attempt, trace: &UpstreamTrace) {
        let place = Place {
            trace: self.tracing.trace,
            span: self.id,
            parent: Some(self.parent),
            state: &self.tracing.state,
        };
        let method = asked::method(&attempt.head);
        let name = method.unwrap_or(attempt.protocol.scheme().as_bytes());
        let times = (self.started_us, clock::now_us());
        let mut span = Span::new(&place, (name, Kind::Client), times);
        if let Some(method) = method {
            span.text("http.method", method);
            span.text("http.url", attempt.to_string());
        }
        if let Some(host) = &trace.host {
            span.text("net.peer.name", host.as_bytes());
        }
        add_peer(&mut span, &attempt.peer);
        span.text("millpond.upstream.reason", attempt.why.as_str());
        span.number("http.response_content_length", attempt.body_bytes);
        match attempt.header {
            Some(_) => span.number("http.status_code", attempt.status),
            None if attempt.status == 504 => span.fail("timed out"),
            None => span.fail("no answer"),
        }
        // The conventions: of those who ask, an answer that blames them is a failure, too.
        if attempt.header.is_some() && attempt.status >= 400 {
            span.fail("");
        }
        self.sink.add(span);
    }
}

fn add_peer(span: &mut Span, peer: &str) {
    match peer.parse::<std::net::SocketAddr>() {
        Ok(address) => {
            span.text("net.sock.peer.addr", address.ip().to_string());
            span.number("net.sock.peer.port", address.port());
        }
        Err(_) => span.text("net.sock.peer.addr", peer),
    }
}
