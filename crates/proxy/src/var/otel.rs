//! `$otel_trace_id`, `$otel_span_id`, `$otel_parent_id`, `$otel_parent_sampled`: the place of a
//! request in its trace.
//!
//! A request that has none yet gets one, whether or not it is recorded.

use super::Variable;
use crate::otel;

/// The variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "otel_trace_id",
        doc: "The id of the trace, 32 hexadecimal digits: the client's where `otel_trace_context` \
              reads it, else a random one.",
        write: |req, out| {
            otel::place(req).trace.write(out);
            true
        },
    },
    Variable {
        name: "otel_span_id",
        doc: "The id of the request's span, 16 hexadecimal digits.",
        write: |req, out| {
            otel::place(req).span.write(out);
            true
        },
    },
    Variable {
        name: "otel_parent_id",
        doc: "The id of the span that the client names, where `otel_trace_context` reads it.",
        write: |req, out| {
            let parent = otel::parent_of(req);
            parent.inspect(|parent| parent.span.write(out)).is_some()
        },
    },
    Variable {
        name: "otel_parent_sampled",
        doc: "\"1\" if the client says that the trace is sampled, and `otel_trace_context` reads \
              that; else \"0\".",
        write: |req, out| {
            let is_sampled = otel::parent_of(req).is_some_and(|parent| parent.is_sampled);
            out.push(if is_sampled { b'1' } else { b'0' });
            true
        },
    },
];
