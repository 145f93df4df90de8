//! Spans of a fill: from the question to the origin until the answer is stored, or is not.
//!
//! ```text
//! begin ─► exchange (CLIENT, inside) ─► head ─► first bytes are read ─► cache store ─► drop
//!                └─ failure ─► drop
//! ```

use millpond_cache::exchange::Outcome;

use crate::request::Request;
use millpond_exchange::failure::Failure;
use millpond_exchange::trace::Why;
use millpond_exchange::trace::span::Child;

/// A fill that runs.
#[derive(Debug)]
pub(crate) struct FillSpan {
    // Before the fill: what is inside ends first.
    store: Option<Child>,
    fill: Child,
}

/// Begins the span of a question to an origin for the cache; the exchange is inside of it. A
/// question for a client alone, which has no reason, has no span.
pub(crate) fn begin(req: &mut Request, why: Option<Why>) -> Option<Box<FillSpan>> {
    let scope = req.tracing.get_mut()?;
    scope.under = None;
    let why = why?;
    let fill = Child::below(&scope.tracing, scope.tracing.span, "cache fill")?;
    scope.under = Some(fill.place.span);
    fill.word("millpond.upstream.reason", why.as_str());
    Some(Box::new(FillSpan { store: None, fill }))
}

/// Notes that the exchange has begun its answer: what begins now is inside of the request's span.
pub(crate) fn leave(req: &mut Request) {
    if let Some(scope) = req.tracing.get_mut() {
        scope.under = None;
    }
}

impl FillSpan {
    /// Notes the status of the answer.
    pub(crate) fn answered(&self, status: u16) {
        self.fill.note.borrow_mut().status = Some(status);
    }

    /// Ends a fill that has no answer.
    pub(crate) fn failed(self, failure: &Failure) {
        let why = match failure.status() {
            504 => "timed out",
            _ => "no answer",
        };
        self.fill.note.borrow_mut().failure = Some(why);
    }

    /// Notes that bytes of the answer are read.
    pub(crate) fn stores(&mut self) {
        if self.store.is_none() {
            self.store = Some(self.fill.inner("cache store"));
        }
    }

    /// Notes what became of the answer.
    pub(crate) fn ended(&self, outcome: &Outcome) {
        let is_stored = outcome.entry.is_some();
        for child in self.store.iter().chain([&self.fill]) {
            child.note.borrow_mut().is_stored = Some(is_stored);
        }
    }
}
