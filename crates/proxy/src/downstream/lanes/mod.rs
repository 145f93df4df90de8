//! Streams of a connection that carries several requests at once, as their exchanges see them: the
//! same for HTTP/2 and HTTP/3.
//!
//! ```text
//! connection's task ─events─► Lane ─► exchange: serve
//!    ▲                                   │ calls
//!    └──wake── machine (Engine) ◄────────┘
//! ```
//!
//! The connection's task (`http2/session`, `http3/session`) moves bytes, and begins exchanges. An
//! exchange that waits for nothing ends there. One that waits goes on in a task of its own
//! (`exchanges`).
//!
//! Invariants:
//! 1. A stream that the machine told of is released once, when its exchange has ended or was
//!    dropped.
//! 2. Whoever calls the machine outside the connection's task wakes that task.

pub(super) mod exchanges;
pub(super) mod head;
pub(super) mod lane;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::Waker;

use bytes::Bytes;
use millpond_wire::header::Fields;

use self::lane::Lane;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::client::send::{AnswerHead, BodyKind};
use millpond_exchange::client::wire::Broken;
use millpond_exchange::stats::connections::ConnectionShard;

/// The machine of a protocol, as exchanges use it.
pub(super) trait Engine: 'static {
    /// Number of a stream; later ones are greater.
    type Id: Copy + Ord;
    /// A fault of the client.
    type Fault: Copy + Eq + fmt::Debug + fmt::Display;

    /// Sets the bytes of a body that may be on their way.
    fn set_window(&mut self, id: Self::Id, len: u32);

    /// Notes that bytes of a body were taken.
    fn consume(&mut self, id: Self::Id, len: usize);

    /// Sends an interim answer.
    fn send_interim(&mut self, id: Self::Id, status: u16, fields: &Fields);

    /// Sends the head of an answer; returns the bytes that it takes.
    fn begin(&mut self, id: Self::Id, head: &AnswerHead<'_>, frame_len: usize) -> usize;

    /// Bytes of a body that may be pushed now.
    fn room(&mut self, id: Self::Id) -> usize;

    /// Adds a piece to a body.
    fn push(&mut self, id: Self::Id, piece: Bytes);

    /// Ends a body.
    fn finish(&mut self, id: Self::Id, trailers: Option<&Fields>);

    /// Breaks a stream off.
    fn break_off(&mut self, id: Self::Id, why: Broken);

    /// Notes that a stream's exchange is over.
    fn release(&mut self, id: Self::Id);
}

/// The part of a connection that its exchanges share.
pub(super) struct Lanes<E: Engine> {
    pub(super) connection: Rc<Connection>,
    pub(super) engine: RefCell<E>,
    /// Streams whose exchange runs, in the order of their numbers.
    lanes: RefCell<Vec<Rc<Lane<E>>>>,
    /// Wakes the connection's task.
    task: RefCell<Option<Waker>>,
    /// True while that task runs, or has been woken.
    is_awake: Cell<bool>,
    /// True if the machine was called since the task has looked.
    pub(super) is_dirty: Cell<bool>,
}

impl<E: Engine> Lanes<E> {
    /// No streams, as yet.
    pub(super) fn new(connection: Rc<Connection>, engine: E) -> Self {
        Lanes {
            connection,
            engine: RefCell::new(engine),
            lanes: RefCell::default(),
            task: RefCell::default(),
            is_awake: Cell::new(true),
            is_dirty: Cell::new(false),
        }
    }

    /// Calls the machine. INVARIANT 2.
    pub(super) fn call<T>(&self, call: impl FnOnce(&mut E) -> T) -> T {
        let outcome = call(&mut self.engine.borrow_mut());
        self.is_dirty.set(true);
        if !self.is_awake.replace(true)
            && let Some(task) = &*self.task.borrow()
        {
            task.wake_by_ref();
        }
        outcome
    }

    /// Notes that the connection's task runs.
    pub(super) fn note_awake(&self) {
        self.is_awake.set(true);
    }

    /// Notes that the connection's task waits, and how it is woken.
    pub(super) fn note_waiting(&self, waker: &Waker) {
        let mut task = self.task.borrow_mut();
        if task.as_ref().is_none_or(|task| !task.will_wake(waker)) {
            *task = Some(waker.clone());
        }
        self.is_awake.set(false);
    }

    /// True if no exchange runs.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.borrow().is_empty()
    }

    pub(super) fn lane(&self, id: E::Id) -> Option<Rc<Lane<E>>> {
        let lanes = self.lanes.borrow();
        let at = lanes.binary_search_by_key(&id, |lane| lane.id).ok()?;
        lanes.get(at).map(Rc::clone)
    }

    /// Enters a stream.
    pub(super) fn enter(&self, lane: Rc<Lane<E>>) {
        let mut lanes = self.lanes.borrow_mut();
        // Numbers of HTTP/2 only grow; streams of QUIC may come in another order.
        match lanes.binary_search_by_key(&lane.id, |other| other.id) {
            Ok(_) => {}
            Err(at) => lanes.insert(at, lane),
        }
    }

    /// Releases a stream. INVARIANT 1.
    fn release(&self, id: E::Id) {
        let mut lanes = self.lanes.borrow_mut();
        if let Ok(at) = lanes.binary_search_by_key(&id, |lane| lane.id) {
            lanes.remove(at);
        }
        drop(lanes);
        self.call(|engine| engine.release(id));
    }

    /// The counters of its worker.
    fn counters(&self) -> &ConnectionShard {
        let worker = &self.connection.generation.worker;
        worker.shared.connections.shard(worker.index)
    }

    /// The client has left: all exchanges are told.
    pub(super) fn leave(&self) {
        let lanes = self.lanes.borrow().clone();
        lanes.iter().for_each(|lane| lane.leave());
    }
}

/// True if an answer ends with its head.
pub(super) fn ends_with_head(head: &AnswerHead<'_>) -> bool {
    matches!(head.body, BodyKind::None | BodyKind::Length(0))
}
