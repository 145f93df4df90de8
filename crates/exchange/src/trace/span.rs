//! The place of a request in a trace, and the spans that are inside of its own.
//!
//! A span is encoded when it ends, and handed to the exporter; one that is cut off ends when it is
//! dropped.
//!
//! Invariant: nothing is recorded of a request that is not sampled: it has no `Sink`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_otlp::Exporter;
use millpond_otlp::attribute::Value;
use millpond_otlp::exporter::Process;
use millpond_otlp::span::{Kind, Place, Span};
use millpond_semantics::trace_context::{SpanId, TraceId, TraceParent};
use millpond_system::{chance, clock};

/// The place of a request in its trace.
#[derive(Debug)]
pub struct Tracing {
    /// The span of the one who asks, as far as it was to be read.
    pub parent: Option<TraceParent>,
    /// The list of `tracestate`, as it goes on.
    pub state: Bytes,
    /// The trace.
    pub trace: TraceId,
    /// The span of the request.
    pub span: SpanId,
    /// The way of spans, for a request that is sampled.
    pub sink: RefCell<Option<Rc<Sink>>>,
}

/// The way of spans to their collector.
#[derive(Debug)]
pub struct Sink {
    /// The queue to the collector.
    pub exporter: Arc<Exporter>,
    /// The process that spans are told of.
    pub process: Process,
}

/// A request's view of its trace; copies of the request have their own.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The place of the request.
    pub tracing: Rc<Tracing>,
    /// The span that others are parts of now, besides that of the request.
    pub under: Option<SpanId>,
    /// The span of the exchange that begins.
    pub exchange: Option<SpanId>,
    /// The span of an update in the background, which ends with the last who works for it.
    pub update: Option<Rc<Child>>,
}

impl Scope {
    /// The view of a request that has just been given its place.
    pub fn new(tracing: Tracing) -> Self {
        Scope {
            tracing: Rc::new(tracing),
            under: None,
            exchange: None,
            update: None,
        }
    }

    /// The span that a new one is a part of.
    pub fn under(&self) -> SpanId {
        self.under.unwrap_or(self.tracing.span)
    }
}

impl Tracing {
    /// A place below that of a parent, or in a trace of its own; not sampled yet.
    pub fn below(parent: Option<TraceParent>, state: Bytes) -> Self {
        Tracing {
            trace: parent.map_or_else(random_trace, |parent| parent.trace),
            span: random_span(),
            parent,
            state,
            sink: RefCell::default(),
        }
    }

    /// The way of spans; none for a request that is not sampled.
    pub fn sink(&self) -> Option<Rc<Sink>> {
        self.sink.borrow().clone()
    }
}

/// Ids of a span and those around it.
#[derive(Clone, Copy, Debug)]
pub struct ChildPlace {
    /// The trace.
    pub trace: TraceId,
    /// The span itself.
    pub span: SpanId,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
}

/// A span inside of a request's; it ends when it is dropped.
#[derive(Debug)]
pub struct Child {
    /// The ids of the span.
    pub place: ChildPlace,
    /// The list of `tracestate`.
    pub state: Bytes,
    /// The way to the collector.
    pub sink: Rc<Sink>,
    /// The name of the step.
    pub name: &'static str,
    /// The side of an exchange that it is told from.
    pub kind: Kind,
    /// Wall time of its beginning: microseconds.
    pub started_us: i64,
    /// The span of the request that an update in the background was begun by.
    pub link: Option<(TraceId, SpanId)>,
    /// Facts that are known before its end.
    pub note: RefCell<Note>,
}

/// Facts that are told of a span until it ends.
#[derive(Debug, Default)]
pub struct Note {
    /// An attribute and its value.
    pub word: Option<(&'static str, &'static str)>,
    /// The status of an answer.
    pub status: Option<u16>,
    /// True if an answer was stored.
    pub is_stored: Option<bool>,
    /// The reason of a failure.
    pub failure: Option<&'static str>,
}

impl Child {
    /// A span below another one of the same trace; none for a request that is not sampled.
    pub fn below(tracing: &Tracing, parent: SpanId, name: &'static str) -> Option<Self> {
        Some(Child {
            place: ChildPlace {
                trace: tracing.trace,
                span: random_span(),
                parent: Some(parent),
            },
            state: tracing.state.clone(),
            sink: tracing.sink()?,
            name,
            kind: Kind::Internal,
            started_us: clock::now_us(),
            link: None,
            note: RefCell::default(),
        })
    }

    /// A span that begins inside of this one.
    pub fn inner(&self, name: &'static str) -> Self {
        Child {
            place: ChildPlace {
                span: random_span(),
                parent: Some(self.place.span),
                ..self.place
            },
            state: self.state.clone(),
            sink: Rc::clone(&self.sink),
            name,
            kind: self.kind,
            started_us: clock::now_us(),
            link: None,
            note: RefCell::default(),
        }
    }

    /// Notes a word under a name.
    pub fn word(&self, key: &'static str, word: &'static str) {
        self.note.borrow_mut().word = Some((key, word));
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let place = Place {
            trace: self.place.trace,
            span: self.place.span,
            parent: self.place.parent,
            state: &self.state,
        };
        let times = (self.started_us, clock::now_us());
        let mut span = Span::new(&place, (self.name.as_bytes(), self.kind), times);
        if let Some((trace, linked)) = self.link {
            span.link(trace, linked);
        }
        let note = self.note.get_mut();
        if let Some((key, word)) = note.word {
            span.text(key, word);
        }
        if let Some(status) = note.status {
            span.number("http.status_code", status);
        }
        if let Some(is_stored) = note.is_stored {
            span.add("millpond.cache.stored", Value::Flag(is_stored));
        }
        if let Some(why) = note.failure {
            span.fail(why);
        }
        self.sink.add(span);
    }
}

impl Sink {
    /// Sends a span on its way.
    pub fn add(&self, span: Span) {
        self.exporter.add(span.finish(), &self.process);
    }
}

pub(crate) fn random_trace() -> TraceId {
    let (high, low) = (chance::word(), chance::word());
    // All zeros are no id.
    let id = u128::from(high) << 64 | u128::from(low);
    TraceId(id.max(1).to_be_bytes())
}

/// An id that no other span has.
pub fn random_span() -> SpanId {
    SpanId(chance::word().max(1).to_be_bytes())
}
