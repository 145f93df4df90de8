//! The requests of one answer: a page, and each request's place in it.
//!
//! A request that makes no other is of no page. The parts of a page share what they keep for each
//! other by its type.
//!
//! Invariants:
//! 1. No more than `MOST_RUNNING` parts of a page are fetched ahead of their turn.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use millpond_wire::header::{Known, KnownSet};
use millpond_wire::http1::Method;
use millpond_wire::http1::request::RequestHead;

use millpond_exchange::provenance::Tally;
use millpond_exchange::scope::slots::Slots;

/// The most parts of a page that are fetched before it is their turn (arbitrary: enough to hide
/// the time of one origin behind that of another).
const MOST_RUNNING: u32 = 16;

/// Fields of the client's that are about its answer as a whole, and not about parts of it.
const ABOUT_THE_WHOLE: KnownSet = KnownSet::of(&[
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
    Known::IfNoneMatch,
    Known::IfMatch,
    Known::Range,
    Known::IfRange,
]);

/// The kind of a request among those of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The client's own.
    Main,
    /// A subrequest whose answer is a part of the page.
    Shown,
    /// A subrequest whose answer is a part of the page, but something stands ready to take its
    /// place should it fail.
    Replaceable,
    /// A subrequest whose answer becomes a value.
    Kept,
    /// A subrequest whose status decides about the client's request.
    Asked,
    /// A subrequest whose answer nobody reads.
    Mirrored,
}

/// The requests of one answer.
#[derive(Default)]
pub struct Page {
    /// Subrequests made so far.
    pub(crate) made: Cell<u32>,
    running: Cell<u32>,
    /// True while what the client gets next is worked on, and not what comes later.
    is_active: Cell<bool>,
    /// The client's head without what is about the whole answer.
    head: OnceCell<Rc<RequestHead>>,
    /// The things that its requests keep for each other.
    kept: RefCell<Slots>,
    /// The account of the bytes that the page is made of, once it has a body.
    pub tally: RefCell<Option<Rc<Tally>>>,
}

/// A request's place in a page.
#[derive(Clone)]
pub struct Role {
    /// The page.
    pub page: Rc<Page>,
    /// The kind of the request among those of its answer.
    pub kind: Kind,
    /// The method of the page's own request when it made this one.
    pub(crate) method: Method,
    /// The count of levels that subrequests may still be nested.
    pub(crate) nested_left: u8,
    /// The form of dates that its text has chosen.
    pub time_format: Option<Bytes>,
}

#[cfg(feature = "script")]
impl Role {
    /// The count of subrequests around the request.
    pub(crate) fn depth(&self) -> u8 {
        match self.kind {
            Kind::Main => 0,
            _ => u8::MAX - self.nested_left,
        }
    }

    /// Takes another method for what `$request_method` is.
    pub(crate) fn set_method(&mut self, method: Method) {
        self.method = method;
    }
}

impl Role {
    /// True for a subrequest whose answer is a part of the page.
    pub fn is_shown(&self) -> bool {
        matches!(self.kind, Kind::Shown | Kind::Replaceable)
    }
}

/// A place among the parts that run; given back when dropped.
pub struct Running(Rc<Page>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get().saturating_sub(1));
    }
}

impl Page {
    /// Works on what the requests of the page keep of a type.
    pub fn with<T: Any + Default, R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(self.kept.borrow_mut().of())
    }

    /// A place for a part that begins to run: always there for what the client gets next, else
    /// as long as there are few (invariant 1).
    pub fn enter(self: &Rc<Self>) -> Option<Running> {
        let running = self.running.get();
        if running >= MOST_RUNNING && !self.is_active.get() {
            return None;
        }
        self.running.set(running + 1);
        Some(Running(Rc::clone(self)))
    }

    /// Works on what the client gets next.
    pub fn now<T>(&self, work: impl FnOnce() -> T) -> T {
        self.with_activity(true, work)
    }

    /// Works on what comes later.
    pub fn ahead<T>(&self, work: impl FnOnce() -> T) -> T {
        self.with_activity(false, work)
    }

    fn with_activity<T>(&self, is_active: bool, work: impl FnOnce() -> T) -> T {
        let before = self.is_active.replace(is_active);
        let made = work();
        self.is_active.set(before);
        made
    }

    /// The client's head for a part.
    pub(crate) fn part_head(&self, head: &Rc<RequestHead>) -> Rc<RequestHead> {
        let shared = self.head.get_or_init(|| {
            let is_about_the_whole = |known: Known| ABOUT_THE_WHOLE.contains(known);
            if head.fields().any(|field| is_about_the_whole(field.known)) {
                Rc::new(head.without(ABOUT_THE_WHOLE))
            } else {
                Rc::clone(head)
            }
        });
        Rc::clone(shared)
    }
}
