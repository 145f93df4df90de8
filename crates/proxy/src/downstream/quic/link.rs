//! One connection's machine, between the endpoint's task, which brings packets and takes packets
//! away, and the connection's own task, which reads and writes streams.
//!
//! Invariants:
//! 1. Whoever changes the machine outside of the endpoint's task has it queued there, so that what
//!    it has to say goes out.
//! 2. The connection's task is woken after each packet and alarm of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use millpond_system::clock::Instant;
use millpond_system::quota::Seat;
use quinn_proto::{Connection as Machine, ConnectionHandle};

use super::endpoint::{Endpoint, UnderWay};
use super::qlog::{Metrics, Record};

/// A connection at its endpoint.
pub(super) struct Link {
    pub(super) handle: ConnectionHandle,
    machine: RefCell<Machine>,
    endpoint: Rc<Endpoint>,
    /// Wakes the connection's task.
    task: RefCell<Option<Waker>>,
    /// True while it waits for its turn to send.
    pub(super) is_queued: Cell<bool>,
    /// True while the connection's task waits for that turn to be over.
    wants_flush: Cell<bool>,
    /// The alarm that is set for it.
    pub(super) alarm: Cell<Option<Instant>>,
    /// The record of what it says, where one is kept.
    pub(super) record: Option<Arc<Record>>,
    /// Its place among the worker's connections.
    _seat: Seat,
}

impl Link {
    pub(super) fn new(
        (handle, machine): (ConnectionHandle, Machine),
        endpoint: Rc<Endpoint>,
        (seat, record): (Seat, Option<Arc<Record>>),
    ) -> Rc<Self> {
        Rc::new(Link {
            handle,
            machine: RefCell::new(machine),
            endpoint,
            task: RefCell::default(),
            is_queued: Cell::default(),
            wants_flush: Cell::default(),
            alarm: Cell::default(),
            record,
            _seat: seat,
        })
    }

    /// Looks at the machine.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.machine.borrow())
    }

    /// Changes the machine in the endpoint's task.
    pub(super) fn drive<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        change(&mut self.machine.borrow_mut())
    }

    /// Changes the machine. INVARIANT 1.
    pub(super) fn change<T>(self: &Rc<Self>, change: impl FnOnce(&mut Machine) -> T) -> T {
        let outcome = change(&mut self.machine.borrow_mut());
        self.endpoint.queue(self);
        outcome
    }

    /// Leaves word how to wake the connection's task.
    pub(super) fn register(&self, cx: &Context<'_>) {
        let mut task = self.task.borrow_mut();
        if task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }

    /// Ready when nothing waits for its turn to be sent.
    pub(super) fn poll_flushed(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_queued.get() {
            return Poll::Ready(());
        }
        self.wants_flush.set(true);
        self.register(cx);
        Poll::Pending
    }

    /// Notes the path's numbers in the record.
    pub(super) fn note_metrics(&self) {
        if let Some(record) = &self.record {
            let path = self.look(Machine::stats).path;
            record.note(Metrics {
                rtt: path.rtt,
                min_rtt: path.min_rtt,
                window: path.cwnd,
            });
        }
    }

    /// Notes that all was sent that could be.
    pub(super) fn note_flushed(&self) {
        if self.wants_flush.take() {
            self.wake();
        }
    }

    /// Counts the handshake as under way until the guard is dropped.
    pub(super) fn count_handshake(&self) -> UnderWay {
        UnderWay::new(&self.endpoint)
    }

    /// Wakes the connection's task. INVARIANT 2.
    pub(super) fn wake(&self) {
        let task = self.task.borrow().clone();
        task.iter().for_each(Waker::wake_by_ref);
    }
}
