//! `otel_trace` and its like: requests as spans of a trace.
//!
//! ```text
//! traceparent ─extract─► begin (location's rewrite phase) ─inject─► head of the request
//!                          │
//! SERVER span              ├─ cache lookup, cache wait, cache read      steps of the cache
//!  of the request          ├─ cache fill ─┬─ CLIENT span ─► traceparent to the origin
//!  (`server`)              │              └─ cache store
//!                          └─ CLIENT span: an exchange that nothing is stored of (`exchange`)
//! cache update: a trace of its own, linked to the request's span, with the same inside
//! ```
//!
//! A request without `otel_trace` and `otel_trace_context` has no [`Scope`], and costs nothing.
//! A span that ends is encoded and handed to the exporter (`collector.rs`); spans that are cut
//! off end when they are dropped.
//!
//! Invariants:
//! 1. A request is sampled or not by the location that it came to first (nginx: an internal
//!    redirect changes nothing), and has one SERVER span at most.
//! 2. Nothing is recorded of a request that is not sampled.
//!
//! Source: nginx-otel (`http_module.cpp`); the semantic conventions for HTTP of OpenTelemetry 1.16,
//! which it names its attributes by.

pub mod exchange;
pub mod fill;
pub mod policy;
pub mod server;
pub mod steps;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_otlp::exporter::Process;
use millpond_otlp::span::Kind;
use millpond_semantics::trace_context::{self, PARENT_LEN, TraceParent};
use millpond_system::clock;
use millpond_wire::header::Known;

use crate::request::Request;
use millpond_exchange::trace::policy::Propagation;
use millpond_exchange::trace::span::{Child, ChildPlace, Scope, Sink, Tracing};

/// The names of the fields.
const PARENT: &[u8] = b"traceparent";
const STATE: &[u8] = b"tracestate";

/// Notes where a request stands in a trace, and if it is recorded: the handler of the location's
/// rewrite phase.
pub(crate) fn begin(req: &mut Request) {
    // INVARIANT 1.
    if req.is_internal {
        return;
    }
    let Some(policy) = req.location.otel.clone() else {
        return;
    };
    let is_sampled = match &policy.trace {
        Some(trace) => matches!(&*req.eval(trace), b"on" | b"1"),
        None => false,
    };
    if !is_sampled && policy.context == Propagation::Ignore {
        return;
    }
    let sink = match &req.conf.declared.otel {
        Some(exporter) if is_sampled => Some(Rc::new(Sink {
            exporter: Arc::clone(exporter),
            process: Process {
                among: req.worker().shared.guests.of(),
                workers: req.conf.main.process.worker_count(),
            },
        })),
        _ => None,
    };
    scope(req).tracing.sink.replace(sink);
    if policy.context.injects() {
        inject(req);
    }
}

/// The place of a request in a trace, found now if it had none.
fn scope(req: &Request) -> &Scope {
    req.tracing.get_or_init(|| {
        let policy = req.location.otel.as_ref();
        let reads = policy.is_some_and(|policy| policy.context.extracts());
        let parent = reads.then(|| parent(req)).flatten();
        let state = match parent {
            // §3.3.1: the state goes with the parent.
            Some(_) => trace_context::join_state(req.head.find_all(STATE)),
            None => Vec::new(),
        };
        Scope::new(Tracing::below(parent, Bytes::from(state)))
    })
}

/// The place of a request in a trace, for variables.
pub(crate) fn place(req: &Request) -> TraceParent {
    let tracing = &scope(req).tracing;
    TraceParent {
        trace: tracing.trace,
        span: tracing.span,
        is_sampled: tracing.sink.borrow().is_some(),
    }
}

/// The span of the one who asks, for variables.
pub(crate) fn parent_of(req: &Request) -> Option<TraceParent> {
    scope(req).tracing.parent
}

/// The parent that the client names; one who names several names none.
fn parent(req: &Request) -> Option<TraceParent> {
    let mut values = req.head.get_all(Known::Traceparent);
    let parent = TraceParent::parse(values.next()?)?;
    values.next().is_none().then_some(parent)
}

/// Puts the request's own span into its head, for all who read that: upstreams of each protocol,
/// and variables.
fn inject(req: &mut Request) {
    let mut value = Vec::with_capacity(PARENT_LEN);
    place(req).write(&mut value);
    let tracing = &scope(req).tracing;
    let fields: [(Known, &[u8], &[u8]); 2] = [
        (Known::Traceparent, PARENT, &value),
        (Known::Other, STATE, &tracing.state),
    ];
    req.head = Rc::new(req.head.with(&fields));
}

/// Gives an update in the background, which no client waits for, a trace of its own, linked to the
/// span of the request that began it.
pub(crate) fn begin_update(req: &mut Request) {
    let Some(Scope { tracing, .. }) = req.tracing.take() else {
        return;
    };
    let Some(sink) = tracing.sink() else {
        return;
    };
    let own = Tracing::below(None, Bytes::new());
    let child = Child {
        place: ChildPlace {
            trace: own.trace,
            span: own.span,
            parent: None,
        },
        state: Bytes::new(),
        sink: Rc::clone(&sink),
        name: "cache update",
        kind: Kind::Internal,
        started_us: clock::now_us(),
        link: Some((tracing.trace, tracing.span)),
        note: std::cell::RefCell::default(),
    };
    own.sink.replace(Some(sink));
    let mut scope = Scope::new(own);
    scope.update = Some(Rc::new(child));
    // It was empty.
    let _ = req.tracing.set(scope);
    let policy = req.location.otel.as_ref();
    if policy.is_some_and(|policy| policy.context.injects()) {
        inject(req);
    }
}

/// A span that begins inside of a request's, if that is recorded.
pub(crate) fn child(req: &Request, name: &'static str) -> Option<Child> {
    let scope = req.tracing.get()?;
    Child::below(&scope.tracing, scope.under(), name)
}
