//! HTTP/2: one client's connection, whose streams bring requests side by side.
//!
//! ```text
//! socket ─bytes─► machine (millpond_wire::http2) ─events─► Session ─► Lane ─► exchange: serve
//!    ▲                                                                           │ calls
//!    └──────bytes──── output ◄── machine ◄───────────────────────────────────────┘
//! ```
//!
//! The connection's task (`session`) reads and writes, and begins exchanges. An exchange that
//! waits for nothing ends there: its answer goes out with those of all requests that came in the
//! same read. One that waits goes on in a task of its own (`exchanges`).
//!
//! Invariants:
//! 1. A stream that the machine told of is released once, when its exchange has ended or was
//!    dropped.
//! 2. Whoever calls the machine outside the connection's task wakes that task.
//! 3. The connection's task ends after its exchanges. The socket is closed before that, if the
//!    client has left or nothing is to come.

mod exchanges;
mod head;
mod lane;
pub mod policy;
mod session;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use millpond_wire::http2;

use self::lane::Lane;
use self::session::{Ended, Session};
use super::carrier::{Carrier, linger};
use super::connection::Connection;
use super::http1::keep_alive::LingeringClose;
use crate::route::listen::Listen;
use crate::stats::connections::ConnectionShard;
use crate::worker::Member;

/// The part of a connection that its exchanges share.
struct Http2 {
    connection: Rc<Connection>,
    engine: RefCell<http2::Connection>,
    /// Streams whose exchange runs, in the order in which they came.
    lanes: RefCell<Vec<Rc<Lane>>>,
    /// Wakes the connection's task.
    task: RefCell<Option<Waker>>,
    /// True while that task runs, or has been woken.
    is_awake: Cell<bool>,
    /// True if the machine was called since the task has looked.
    is_dirty: Cell<bool>,
}

impl Http2 {
    /// Calls the machine. INVARIANT 2.
    fn call<T>(&self, call: impl FnOnce(&mut http2::Connection) -> T) -> T {
        let outcome = call(&mut self.engine.borrow_mut());
        self.is_dirty.set(true);
        if !self.is_awake.replace(true)
            && let Some(task) = &*self.task.borrow()
        {
            task.wake_by_ref();
        }
        outcome
    }

    fn lane(&self, id: u32) -> Option<Rc<Lane>> {
        let lanes = self.lanes.borrow();
        let at = lanes.binary_search_by_key(&id, |lane| lane.id).ok()?;
        lanes.get(at).map(Rc::clone)
    }

    /// Enters a stream; numbers only grow.
    fn enter(&self, lane: Rc<Lane>) {
        self.lanes.borrow_mut().push(lane);
    }

    /// Releases a stream. INVARIANT 1.
    fn release(&self, id: u32) {
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
    fn leave(&self) {
        let lanes = self.lanes.borrow().clone();
        lanes.iter().for_each(|lane| lane.leave());
    }
}

/// Serves a connection to its end.
pub(super) async fn serve(carrier: Carrier, listen: Arc<Listen>, member: &Member) {
    let worker = Rc::clone(&carrier.connection.generation.worker);
    let counters = worker.shared.connections.shard(worker.index);
    let mut session = Session::new(carrier, Arc::clone(&listen), (member, counters));
    let ended = std::future::poll_fn(|cx| session.poll(cx)).await;
    let (carrier, exchanges) = session.part();
    if ended == Ended::Told {
        let policy = &carrier
            .connection
            .first_server(&listen)
            .location
            .settings
            .keep_alive;
        if policy.lingering_close != LingeringClose::Off {
            let (time, timeout) = (policy.lingering_time, policy.lingering_timeout);
            Box::pin(linger(&carrier, member, time, timeout)).await;
        }
    }
    // INVARIANT 3.
    drop(carrier);
    exchanges.finish().await;
}
