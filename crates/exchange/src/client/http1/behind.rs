//! Updates of the cache that go on behind the requests of a connection.
//!
//! No answer waits for them, and no client; fills are not even counted here. But a client that has
//! asked for its connection to be closed may take the close for a sign that what its request began
//! is done: nginx closes only when an update has ended, however long that takes. Here the close
//! comes when the update has ended, when the client has left, or after [`Patience`], whichever is
//! first. A client of HTTP/1.1 knows by itself where its answer ends, so the close may be long in
//! coming; one of HTTP/1.0 may be reading to the end of the connection.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use millpond_system::clock;
use tokio::sync::Notify;

use super::Http1;

/// Time that a close waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// For a client that may be reading to the end of the connection.
    Brief,
    /// For a client that has all it wants.
    Long,
}

impl Patience {
    fn time(self) -> Duration {
        match self {
            // Many times what an origin nearby takes.
            Patience::Brief => Duration::from_millis(200),
            // Arbitrarily; no descriptor is to be held for long.
            Patience::Long => Duration::from_secs(10),
        }
    }
}

/// Count of the work that runs behind the requests of a connection.
#[derive(Default)]
pub struct Behind {
    running: Cell<u32>,
    ended: Notify,
}

impl Behind {
    /// The count of such work.
    pub(super) fn running(&self) -> u32 {
        self.running.get()
    }
}

/// A piece of such work, for as long as it lives. It has no share in the connection.
pub struct Task(Rc<Behind>);

impl Task {
    /// Work begins behind a request of this connection.
    pub fn begin(http1: &Http1) -> Task {
        let running = &http1.behind.running;
        running.set(running.get() + 1);
        Task(Rc::clone(&http1.behind))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let Behind { running, ended } = &*self.0;
        running.set(running.get().saturating_sub(1));
        if running.get() == 0 {
            ended.notify_one();
        }
    }
}

impl Http1 {
    /// Waits for what goes on behind the connection, within reason.
    pub async fn settle(&self, patience: Patience) {
        if self.behind.running.get() == 0 {
            return;
        }
        let ended = async {
            while self.behind.running.get() > 0 {
                self.behind.ended.notified().await;
            }
        };
        tokio::select! {
            () = ended => {}
            () = self.left() => {}
            () = clock::pause(patience.time()) => {}
        }
    }
}
