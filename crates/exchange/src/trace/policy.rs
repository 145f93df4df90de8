//! `otel_trace`, `otel_trace_context`, `otel_span_name`, `otel_span_attr`: what is traced, and how.
//!
//! Here they are only declared; `otel` obeys them.

use millpond_conf::value::{ArgError, Args, FromArgs};
use millpond_conf::{Template, Words};

/// The way of the fields `traceparent` and `tracestate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Propagation {
    /// Neither is done.
    #[word("ignore")]
    Ignore,
    /// The fields are read: the client's span is the parent of ours.
    #[word("extract")]
    Extract,
    /// The fields are written: our span is the parent of the origin's.
    #[word("inject")]
    Inject,
    /// Both.
    #[word("propagate")]
    Propagate,
}

impl Propagation {
    /// True if the client's fields are read.
    pub fn extracts(self) -> bool {
        matches!(self, Propagation::Extract | Propagation::Propagate)
    }

    /// True if fields are written for the origin.
    pub fn injects(self) -> bool {
        matches!(self, Propagation::Inject | Propagation::Propagate)
    }
}

/// The way in which requests are traced.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct TracePolicy {
    /// Records requests as spans: `on`, `off`, or a value with variables, which is yes if it is
    /// `on` or `1`. It is asked for in the location that a request comes to first, before that
    /// location's `rewrite` and `set`; internal redirects change nothing.
    ///
    /// ```nginx
    /// split_clients $otel_trace_id $sampled { 10% on; * off; }
    /// otel_trace $sampled;
    /// ```
    ///
    /// Beside the span of a request there is one for each exchange with an origin (kind CLIENT),
    /// and inside of the cache `cache lookup`, `cache wait` (for another's fill), `cache read` (a
    /// look-up that waits for the disk), `cache fill` and in it `cache store`. An update in the
    /// background is a trace of its own, linked to the request that began it.
    ///
    /// # Differs from nginx
    ///
    /// nginx has the span of the request only. Spans have the cache's part as
    /// `millpond.cache.status` and `millpond.cache.reason` besides nginx's attributes.
    #[directive(name = "otel_trace")]
    pub trace: Option<Template>,
    /// The treatment of `traceparent` and `tracestate` (W3C Trace Context): `extract` takes the
    /// client's span as the parent of ours, `inject` writes ours into the request as it goes on,
    /// in place of the client's fields; `propagate` does both, `ignore` neither: then the client's
    /// fields go on as they came.
    ///
    /// # Differs from nginx
    ///
    /// An origin is told the span of the exchange with it, which is inside of the request's; nginx
    /// has no such span and tells the request's. Malformed fields are judged by the
    /// Recommendation: digits must be small, ids not zero, a field of a later version is read as
    /// far as it is known, several `traceparent` are none, and a malformed `tracestate` is dropped.
    #[directive(name = "otel_trace_context", default = "ignore")]
    pub context: Propagation,
    /// The name of the span of a request; without it the name of the location.
    #[directive(name = "otel_span_name")]
    pub name: Option<Template>,
    /// An attribute of the span of a request. Inherited only where none is set.
    #[directive(name = "otel_span_attr", repeat)]
    pub attributes: Vec<SpanAttribute>,
}

/// One attribute.
#[derive(Clone, Debug)]
pub struct SpanAttribute {
    /// The attribute.
    pub name: String,
    /// The value, with variables.
    pub value: Template,
}

impl FromArgs for SpanAttribute {
    const SYNTAX: &'static str = "name value";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let [name, _] = args.words else {
            return Err(ArgError::Count);
        };
        Ok(SpanAttribute {
            name: name.text.clone(),
            value: args.word(1)?,
        })
    }
}
