//! Events of connections: what happened beside the answers.
//!
//! A connection writes them down as they happen, and whoever asks takes them out afterwards and
//! records them. Users that share a connection share its journal, and each event is taken once.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::fault::Fault;

/// Kind of a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// Keys and certificate were exchanged.
    Full,
    /// An earlier session was resumed.
    Resumed,
}

/// Event of a connection.
#[derive(Debug)]
pub enum Event {
    /// A connection was opened.
    Opened,
    /// TLS was agreed on in so much time.
    Handshake(Session, Duration),
    /// A request was sent again, because the connection that it was sent on took none any more.
    Repeated,
    /// A connection ended wrongly while nobody waited for an answer on it.
    Ended(Fault),
}

/// Events that nobody has taken yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    events: Rc<RefCell<Vec<Event>>>,
}

impl Journal {
    /// Writes an event down.
    pub(super) fn add(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }

    /// Takes all events out.
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.borrow_mut())
    }
}
