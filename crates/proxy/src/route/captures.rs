//! Expressions that are asked for a request.
//!
//! Their captures are the request's, and one that gives up ends it.

use bytes::Bytes;
use millpond_system::log::error::Level;

use crate::expression::{Captures, GaveUp, Regex};
use crate::log::request_error;
use crate::request::{Request, Value};

impl Request {
    /// Logs that an expression gave up, and remembers it.
    pub fn note_gave_up(&self, gave_up: &GaveUp) {
        request_error::write(self, Level::Alert, format_args!("{gave_up}"));
        self.lookup.expression_gave_up.set(true);
    }
}

impl Regex {
    /// True if the expression matches, as in [`Self::is_match`], for a request, which is over if
    /// the expression gives up.
    pub fn is_match_for(&self, req: &Request, subject: &[u8]) -> bool {
        let found = self.is_match(subject);
        found.unwrap_or_else(|gave_up| {
            req.note_gave_up(&gave_up);
            false
        })
    }

    /// Matches the path of a request and sets its captures.
    pub fn capture(&self, req: &mut Request) -> bool {
        let subject = req.uri.clone();
        self.capture_from(req, subject)
    }

    /// Matches `subject` and, when it matches, makes its groups the request's captures and sets the
    /// variables of named groups. If the expression gives up, the request is over.
    pub fn capture_from(&self, req: &mut Request, subject: Bytes) -> bool {
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

    /// Makes the groups of a match the request's captures and sets the variables of named groups.
    pub fn keep(&self, req: &mut Request, captures: Captures) {
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
