//! A span: a piece of work with its begin and its end, encoded as it is told.
//!
//! | field of `Span` | number | | field | number |
//! |---|---|---|---|---|
//! | `trace_id` | 1 | | `start_time_unix_nano` | 7 |
//! | `span_id` | 2 | | `end_time_unix_nano` | 8 |
//! | `trace_state` | 3 | | `attributes` | 9 |
//! | `parent_span_id` | 4 | | `links` | 13 |
//! | `name` | 5 | | `status` | 15 |
//! | `kind` | 6 | | `flags` | 16 |

use bytes::Bytes;
use millpond_semantics::trace_context::{SpanId, TraceId};

use crate::attribute::{self, Value};
use crate::protobuf::{put_bytes, put_fixed32, put_fixed64, put_message, put_text, put_varint};

/// The longest value of an attribute and the longest name of a span (arbitrary: a URI of the usual
/// longest request line fits); what is longer is cut.
pub const TEXT_MAX: usize = 8192;
/// The flag of a trace that is sampled.
const SAMPLED: u32 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// The part that a span plays in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work inside of the process.
    Internal = 1,
    /// The answer to a request.
    Server = 2,
    /// A request to another server.
    Client = 3,
}

/// The place of a span in its trace.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// The span that it is a part of, if there is one.
    pub parent: Option<SpanId>,
    /// The state of the trace, as others have written it.
    pub state: &'a [u8],
}

/// A span that is written.
#[derive(Debug)]
pub struct Span(Vec<u8>);

impl Span {
    /// A span from one time to another, in microseconds since 1970.
    #[must_use]
    pub fn new(
        place: &Place<'_>,
        (name, kind): (&[u8], Kind),
        (start_us, end_us): (i64, i64),
    ) -> Self {
        let mut out = Vec::with_capacity(256);
        put_bytes(&mut out, 1, &place.trace.0);
        put_bytes(&mut out, 2, &place.span.0);
        if !place.state.is_empty() {
            put_text(&mut out, 3, place.state);
        }
        if let Some(parent) = place.parent {
            put_bytes(&mut out, 4, &parent.0);
        }
        put_text(&mut out, 5, cut(name));
        put_varint(&mut out, 6, kind as u64);
        put_fixed64(&mut out, 7, nanos(start_us));
        // A clock that was set back makes no span of less than nothing.
        put_fixed64(&mut out, 8, nanos(end_us.max(start_us)));
        put_fixed32(&mut out, 16, SAMPLED);
        Span(out)
    }

    /// Adds an attribute.
    pub fn add(&mut self, key: &str, value: Value<'_>) {
        let value = match value {
            Value::Text(text) => Value::Text(cut(text)),
            Value::List(text) => Value::List(cut(text)),
            short => short,
        };
        attribute::put(&mut self.0, 9, (key, value));
    }

    /// Adds a text.
    pub fn text(&mut self, key: &str, text: impl AsRef<[u8]>) {
        self.add(key, Value::Text(text.as_ref()));
    }

    /// Adds a number; one that is too large is the largest.
    pub fn number(&mut self, key: &str, number: impl TryInto<i64>) {
        self.add(key, Value::Number(number.try_into().unwrap_or(i64::MAX)));
    }

    /// Adds a link to a span that is no part of this one's tree.
    pub fn link(&mut self, trace: TraceId, span: SpanId) {
        put_message(&mut self.0, 13, |out| {
            put_bytes(out, 1, &trace.0);
            put_bytes(out, 2, &span.0);
        });
    }

    /// Says that the work has failed; once, and why if that is not empty.
    pub fn fail(&mut self, why: &str) {
        put_message(&mut self.0, 15, |out| {
            if !why.is_empty() {
                put_text(out, 2, why.as_bytes());
            }
            put_varint(out, 3, ERROR);
        });
    }

    /// The bytes of the span.
    #[must_use]
    pub fn finish(self) -> Bytes {
        Bytes::from(self.0)
    }
}

fn cut(text: &[u8]) -> &[u8] {
    text.get(..TEXT_MAX).unwrap_or(text)
}

fn nanos(us: i64) -> u64 {
    u64::try_from(us).unwrap_or(0).saturating_mul(1000)
}
