//! The span of a request: its attributes are nginx's, and what the cache did.
//!
//! The span is made when the answer was sent, or could not be, of what the request is then: after
//! an internal redirect, name and attributes are those of the location that answered.

use millpond_otlp::attribute::Value;
use millpond_otlp::span::{Kind, Place, Span};
use millpond_system::address::Address;
use millpond_system::clock;
use millpond_wire::head::content_length;
use millpond_wire::header::Known;

use crate::request::Request;
use millpond_exchange::trace::policy::SpanAttribute;
use millpond_exchange::trace::span::Scope;

/// Begins of names of attributes that are lists: fields may come several times.
const LISTS: [&str; 2] = ["http.request.header.", "http.response.header."];

/// Ends the span of a request whose answer was sent, or could not be.
pub(crate) fn end(req: &mut Request) {
    let Some(Scope { tracing, .. }) = req.tracing.get() else {
        return;
    };
    let tracing = std::rc::Rc::clone(tracing);
    let Some(sink) = tracing.sink() else {
        return;
    };
    let policy = req.location.otel.clone();
    let name = match policy.as_ref().and_then(|policy| policy.name.as_ref()) {
        Some(name) => req.eval(name),
        None => req.location.name.clone(),
    };
    let place = Place {
        trace: tracing.trace,
        span: tracing.span,
        parent: tracing.parent.map(|parent| parent.span),
        state: &tracing.state,
    };
    let times = (req.started_us, clock::now_us());
    let mut span = Span::new(&place, (&name, Kind::Server), times);
    describe_request(req, &mut span);
    describe_answer(req, &mut span);
    describe_ends(req, &mut span);
    for attribute in policy.iter().flat_map(|policy| &policy.attributes) {
        add_own(req, &mut span, attribute);
    }
    sink.add(span);
}

fn describe_request(req: &Request, span: &mut Span) {
    span.text("http.method", req.head.method_bytes());
    span.text("http.target", req.unparsed_uri());
    if !req.location.name.is_empty() {
        span.text("http.route", &req.location.name);
    }
    span.text("http.scheme", req.client.connection.scheme());
    if let Some(version) = req.head.protocol().strip_prefix(b"HTTP/") {
        span.text("http.flavor", version);
    }
    if let Some(agent) = req.field(Known::UserAgent) {
        span.text("http.user_agent", agent);
    }
    let received = req.field(Known::ContentLength).and_then(content_length);
    span.number("http.request_content_length", received.unwrap_or(0));
}

fn describe_answer(req: &Request, span: &mut Span) {
    span.number("http.response_content_length", req.sent.body_bytes);
    if req.sent.status != 0 {
        span.number("http.status_code", req.sent.status);
    }
    if req.sent.status >= 500 {
        span.fail("");
    }
    let trace = req.upstream.borrow();
    if let Some(status) = trace.cache_status {
        span.text("millpond.cache.status", status);
    }
    if let Some(reason) = trace.account.word() {
        span.text("millpond.cache.reason", reason);
    }
}

fn describe_ends(req: &Request, span: &mut Span) {
    let connection = &req.client.connection;
    let name = if req.server.name.is_empty() {
        &req.host
    } else {
        &req.server.name
    };
    span.text("net.host.name", name);
    let usual = if connection.is_encrypted() { 443 } else { 80 };
    if let Address::Inet(local) = &connection.local
        && local.port() != usual
    {
        span.number("net.host.port", local.port());
    }
    add_peer(span, &req.client.remote.borrow());
}

fn add_peer(span: &mut Span, peer: &Address) {
    match peer {
        Address::Inet(peer) => {
            span.text("net.sock.peer.addr", peer.ip().to_canonical().to_string());
            span.number("net.sock.peer.port", peer.port());
        }
        Address::Unix(_) => span.text("net.sock.peer.addr", "unix:"),
    }
}

fn add_own(req: &mut Request, span: &mut Span, attribute: &SpanAttribute) {
    let text = req.eval(&attribute.value);
    let name = attribute.name.as_str();
    let is_list = LISTS.iter().any(|start| name.starts_with(start));
    let value = if is_list {
        Value::List(&text)
    } else {
        Value::Text(&text)
    };
    span.add(name, value);
}
