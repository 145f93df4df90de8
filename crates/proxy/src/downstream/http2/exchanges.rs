//! The exchanges of a connection: those that have just begun, and those that wait for something.
//!
//! ```text
//! begun ──first poll──► answered: its answer is in the machine ──written──► second poll ──► over
//!   └── waits, or its answer is not taken at once ──► a task of its own ──► over
//! ```
//!
//! The first polls are made with a waker that wakes nobody: another poll follows in any case.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::task::JoinSet;

use super::Http2;
use super::lane::Lane;
use crate::downstream::body::RequestBody;
use crate::downstream::client::Client;
use crate::downstream::serve::{self, Came, Refusal};
use crate::route::listen::Listen;

/// A request that has come.
pub(super) struct Begun {
    pub(super) client: Rc<Client>,
    pub(super) came: Came,
    /// The body, or why there is no answer but a refusal.
    pub(super) body: Result<RequestBody, Refusal>,
}

/// An exchange in the connection's task.
struct Fresh {
    lane: Rc<Lane>,
    exchange: Pin<Box<dyn Future<Output = ()>>>,
}

/// The exchanges of a connection.
#[derive(Default)]
pub(super) struct Exchanges {
    fresh: Vec<Fresh>,
    answered: Vec<Fresh>,
    waiting: JoinSet<()>,
}

impl Exchanges {
    /// Adds the exchange of a request.
    pub(super) fn add(
        &mut self,
        http2: &Rc<Http2>,
        lane: Rc<Lane>,
        listen: &Arc<Listen>,
        begun: Begun,
    ) {
        let open = Open {
            http2: Rc::clone(http2),
            id: lane.id,
        };
        let exchange = Box::pin(exchange(open, Arc::clone(listen), begun));
        self.fresh.push(Fresh { lane, exchange });
    }

    /// Polls those that have just come; the answers that are there go to the machine.
    pub(super) fn begin(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for mut fresh in self.fresh.drain(..) {
            if fresh.exchange.as_mut().poll(&mut cx).is_ready() {
                continue;
            }
            if fresh.lane.has_ended() {
                self.answered.push(fresh);
            } else {
                self.waiting.spawn_local(fresh.exchange);
            }
        }
    }

    /// Polls those whose answers were made, and may have been written.
    pub(super) fn conclude(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for mut answered in self.answered.drain(..) {
            if answered.exchange.as_mut().poll(&mut cx).is_pending() {
                self.waiting.spawn_local(answered.exchange);
            }
        }
    }

    /// Forgets those that are over.
    pub(super) fn reap(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(_)) = self.waiting.poll_join_next(cx) {}
    }

    /// Waits for all of them.
    pub(super) async fn finish(mut self) {
        self.begin();
        self.conclude();
        while self.waiting.join_next().await.is_some() {}
    }
}

/// A stream whose exchange runs; released when it is dropped.
struct Open {
    http2: Rc<Http2>,
    id: u32,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.http2.release(self.id);
    }
}

async fn exchange(open: Open, listen: Arc<Listen>, begun: Begun) {
    let Begun { client, came, body } = begun;
    let served = match body {
        Ok(body) => serve::serve(client, &listen, came, body).await,
        Err(refusal) => Box::pin(serve::refuse(client, &listen, came, refusal)).await,
    };
    // The request is dropped before its stream is released.
    drop(served);
    drop(open);
}
