//! Spans of the steps of a request's walk through the cache: look-ups, and what they wait for.
//!
//! The first look-up of most requests is none of a walk: whoever makes it records it.

use std::rc::Rc;

use crate::request::Request;
use crate::trace::span::{Child, Scope};

/// The steps of a walk: each ends when the next begins.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    scope: Option<Scope>,
    running: Option<Child>,
}

impl Steps {
    /// The steps of a request; they are not noted where it is not recorded.
    pub(crate) fn of(req: &Request) -> Self {
        let scope = req
            .tracing
            .get()
            .filter(|scope| scope.tracing.sink().is_some());
        Steps {
            scope: scope.cloned(),
            running: None,
        }
    }

    /// Notes that a step begins.
    pub(crate) fn note(&mut self, step: &'static str) {
        self.running = None;
        let Some(Scope { tracing, .. }) = &self.scope else {
            return;
        };
        let name = match step {
            "lookup" => "cache lookup",
            "wait" => "cache wait",
            "read" => "cache read",
            // A fetch has spans of its own.
            _ => return,
        };
        self.running = Child::below(&Rc::clone(tracing), tracing.span, name);
    }
}
