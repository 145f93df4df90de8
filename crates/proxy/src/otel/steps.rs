//! Spans of the steps of a request's walk through the cache: look-ups, and what they wait for.
//!
//! The first look-up of most requests is none of a walk: whoever makes it records it.

use crate::request::Request;
use millpond_exchange::trace::span::{Child, Scope};

/// The steps of a walk: each ends when the next begins. A walk that is not recorded has no room for
/// them.
#[derive(Debug)]
pub(crate) struct Steps(Option<Box<Recorded>>);

#[derive(Debug)]
struct Recorded {
    scope: Scope,
    running: Option<Child>,
}

impl Steps {
    /// The steps of a request; they are not noted where it is not recorded.
    pub(crate) fn of(req: &Request) -> Self {
        let scope = req
            .tracing
            .get()
            .filter(|scope| scope.tracing.sink().is_some());
        Steps(scope.map(|scope| {
            Box::new(Recorded {
                scope: scope.clone(),
                running: None,
            })
        }))
    }

    /// Notes that a step begins.
    pub(crate) fn note(&mut self, step: &'static str) {
        let Some(recorded) = &mut self.0 else {
            return;
        };
        recorded.running = None;
        let name = match step {
            "lookup" => "cache lookup",
            "wait" => "cache wait",
            "read" => "cache read",
            // A fetch has spans of its own.
            _ => return,
        };
        let tracing = &recorded.scope.tracing;
        recorded.running = Child::below(tracing, tracing.span, name);
    }
}
