//! The end of a block with `otel_trace` and its like: an exporter is asked for, and requests get
//! what the lines say.
//!
//! The lines themselves are declared in `trace/policy.rs`, for settings stand below requests.

use std::sync::Arc;

use millpond_exchange::scope::block::Draft;
use millpond_exchange::settings::level::{Closing, OwnFamily};
use millpond_exchange::trace::policy::{Propagation, TracePolicy};

/// The settings of requests' traces.
pub const FAMILY: OwnFamily = OwnFamily::of::<TracePolicy>();

/// Keeps for requests what a block says, and asks for an exporter where one is needed.
pub fn close(level: &mut Closing<'_>) {
    let policy: TracePolicy = level.own();
    if policy.trace.is_some()
        && level.builder.of::<HasExporter>().0.is_none()
        && let Some(span) = level.span_of_own::<TracePolicy>("otel_trace")
    {
        level.error_once(span, "\"otel_exporter\" block is missing");
    }
    let is_silent = policy.trace.is_none()
        && policy.context == Propagation::Ignore
        && policy.name.is_none()
        && policy.attributes.is_empty();
    if !is_silent {
        level.draft.put(Arc::new(policy));
    }
}

/// True if requests of a block may have a place in a trace.
pub(crate) fn is_due(draft: &Draft) -> bool {
    let policy: Option<&Arc<TracePolicy>> = draft.get();
    policy.is_some_and(|policy| policy.trace.is_some() || policy.context != Propagation::Ignore)
}

/// A mark that `otel_exporter` was read.
#[derive(Default)]
pub(crate) struct HasExporter(pub(crate) Option<millpond_conf::Span>);
