//! Expressions that are asked for a request.
//!
//! Their captures are the request's, and one that gives up ends it.

use bytes::Bytes;
use millpond_system::log::error::Level;

use crate::log::request_error;
use crate::request::{Request, Value};
use millpond_exchange::expression::{Captures, GaveUp, Regex};

impl Request {
    /// Logs that an expression gave up, and remembers it.
    pub fn note_gave_up(&self, gave_up: &GaveUp) {
        request_error::write(self, Level::Alert, format_args!("{gave_up}"));
        self.lookup.expression_gave_up.set(true);
    }
}

/// Matches on behalf of a request.
pub(crate) trait RequestRegex {
    /// True if the expression matches, for a request, which is over if the expression gives up.
    fn is_match_for(&self, req: &Request, subject: &[u8]) -> bool;

    /// Matches the path of a request and sets its captures.
    fn capture(&self, req: &mut Request) -> bool;

    /// Matches `subject` and, when it matches, makes its groups the request's captures and sets the
    /// variables of named groups. If the expression gives up, the request is over.
    fn capture_from(&self, req: &mut Request, subject: Bytes) -> bool;

    /// Makes the groups of a match the request's captures and sets the variables of named groups.
    fn keep(&self, req: &mut Request, captures: Captures);
}

impl RequestRegex for Regex {
    fn is_match_for(&self, req: &Request, subject: &[u8]) -> bool {
        let found = self.is_match(subject);
        found.unwrap_or_else(|gave_up| {
            req.note_gave_up(&gave_up);
            false
        })
    }

    fn capture(&self, req: &mut Request) -> bool {
        let subject = req.uri.clone();
        self.capture_from(req, subject)
    }

    fn capture_from(&self, req: &mut Request, subject: Bytes) -> bool {
        match self.captures(&subject) {
            Ok(Some(captures)) => {
                self.keep(req, captures);
                true
            }
            Ok(None) => false,
            Err(gave_up) => {
                req.note_gave_up(&gave_up);
                false
            }
        }
    }

    fn keep(&self, req: &mut Request, captures: Captures) {
        for (group, variable) in self.named_groups() {
            let span = captures.groups.get(*group as usize).copied().flatten();
            let value = match span {
                Some((start, end)) => captures.subject.slice(start as usize..end as usize),
                // nginx: a group that took no part is an empty value.
                None => Bytes::new(),
            };
            req.set_value(*variable, Value::Found(value));
        }
        req.captures = captures;
    }
}
