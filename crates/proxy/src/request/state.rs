//! Groups of a request's state that belong together, and begin anew or are copied as wholes.
//!
//! ```text
//! PathState     from the head, changed by rewrites and redirects
//! ErrorState    from an error to its page
//! LookupState   during one evaluation
//! Notes         kept by filters, by type
//! ```

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;

use millpond_system::address::Address;

/// The number of times that a request may be redirected inside the server before it is a loop
/// (nginx: 10).
const MAX_CHANGES: u8 = 10;

/// Fate of a request's path on its way through the server.
#[derive(Clone, Copy, Debug)]
pub struct PathState {
    /// Internal redirects left.
    pub changes_left: u8,
    /// True when the path differs from what the client asked (rewritten), so that `proxy_pass`
    /// sends the rewritten form.
    pub is_changed: bool,
    /// True when a rewrite of the location changed the path, so that the location is looked up
    /// again.
    pub is_changed_in_location: bool,
    /// True when `try_files` found a file for the alias of a location with a regular expression.
    pub adds_to_alias: bool,
    /// True when the path that the client sent had escapes: it is escaped again where it goes on.
    pub is_quoted: bool,
    /// True when the path that the client sent had escapes or plus signs: captures from it are
    /// escaped where they go into a query.
    pub has_escapes: bool,
    /// True once a rewrite ended with `break`: the path need not begin with the location's name any
    /// more, so that nothing is cut from it (nginx: `valid_location` is off).
    pub has_left_prefix: bool,
    /// True when a query was sent, or written by the configuration, be it an empty one: `$args`
    /// exists.
    pub has_query: bool,
}

impl Default for PathState {
    fn default() -> Self {
        PathState {
            changes_left: MAX_CHANGES,
            is_changed: false,
            is_changed_in_location: false,
            adds_to_alias: false,
            is_quoted: false,
            has_escapes: false,
            has_left_prefix: false,
            has_query: false,
        }
    }
}

impl PathState {
    /// The state of a copy that evaluates variables: it looks for no location.
    pub fn of_fork(self) -> Self {
        PathState {
            is_changed_in_location: false,
            ..self
        }
    }

    /// The state of a subrequest, whose path the server wrote.
    pub fn of_subrequest(self) -> Self {
        PathState {
            is_changed: true,
            is_quoted: self.is_quoted,
            ..PathState::default()
        }
    }
}

/// The error that a request is answered with.
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorState {
    /// Status chosen by `error_page … =CODE`, or the error that is being answered; 0: none.
    pub status: u16,
    /// True once an error page was chosen, so that a second error is answered plainly.
    pub had_page: bool,
}

/// State of the evaluation of a value that is made of others.
#[derive(Debug, Default)]
pub struct LookupState {
    /// Blocks that compute variables and are being evaluated, one inside the other.
    pub depth: u8,
    /// True while a cycle of such blocks is being left.
    pub has_cycle: bool,
    /// True from when a regular expression gave up until
    /// [`Request::heed_expressions`](super::Request::heed_expressions) says so. A cell: some that
    /// are matched have only a look at the request.
    pub expression_gave_up: Cell<bool>,
}

/// Lengths of a compressed answer, counted while it is sent.
#[derive(Debug, Default)]
pub struct CompressedLens {
    /// Bytes that went in.
    pub before: Cell<u64>,
    /// Bytes that came out.
    pub after: Cell<u64>,
}

/// Notes that were made of a request, at most one of each type; a copy of the request has those
/// that were made before it.
#[derive(Clone, Default)]
pub struct Notes(Vec<Rc<dyn Any>>);

impl Notes {
    /// The note of a type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.iter().find_map(|note| note.downcast_ref())
    }

    /// Puts a note in place of the one of its type.
    pub fn put<T: Any>(&mut self, note: T) {
        self.remove::<T>();
        self.0.push(Rc::new(note));
    }

    /// Removes the note of a type.
    pub fn remove<T: Any>(&mut self) {
        self.0.retain(|other| !other.is::<T>());
    }
}

/// A note of a session of `stream`: the listener that it came by, which its lines name.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The address that is bound.
    pub address: Address,
    /// True if it carries datagrams.
    pub is_datagrams: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_the_notes_from_before_and_make_their_own() {
        let mut notes = Notes::default();
        notes.put(1_u8);
        let mut copy = notes.clone();
        copy.put(2_u8);
        copy.put("other");
        assert_eq!((notes.get(), notes.get::<&str>()), (Some(&1_u8), None));
        assert_eq!((copy.get(), copy.get()), (Some(&2_u8), Some(&"other")));
    }
}
