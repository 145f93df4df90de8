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

use super::lane::Lane;
use super::{Engine, Lanes};
use crate::downstream::serve::{self, Refusal};
use millpond_exchange::client::Came;
use millpond_exchange::client::Client;
use millpond_exchange::client::body::RequestBody;
use millpond_exchange::settings::listen::Listen;

/// A request that has come.
pub(in crate::downstream) struct Begun {
    pub(in crate::downstream) client: Rc<Client>,
    pub(in crate::downstream) came: Came,
    /// The body, or why there is no answer but a refusal.
    pub(in crate::downstream) body: Result<RequestBody, Refusal>,
}

/// An exchange in the connection's task.
struct Fresh<E: Engine> {
    lane: Rc<Lane<E>>,
    exchange: Pin<Box<dyn Future<Output = ()>>>,
}

/// The exchanges of a connection.
pub(in crate::downstream) struct Exchanges<E: Engine> {
    fresh: Vec<Fresh<E>>,
    answered: Vec<Fresh<E>>,
    waiting: JoinSet<()>,
}

impl<E: Engine> Default for Exchanges<E> {
    fn default() -> Self {
        Exchanges {
            fresh: Vec::new(),
            answered: Vec::new(),
            waiting: JoinSet::new(),
        }
    }
}

impl<E: Engine> Exchanges<E> {
    /// Adds the exchange of a request.
    pub(in crate::downstream) fn add(
        &mut self,
        lanes: &Rc<Lanes<E>>,
        lane: Rc<Lane<E>>,
        listen: &Arc<Listen>,
        begun: Begun,
    ) {
        let open = Open {
            lanes: Rc::clone(lanes),
            id: lane.id,
        };
        let exchange = Box::pin(exchange(
            (open, Rc::clone(&lane)),
            Arc::clone(listen),
            begun,
        ));
        self.fresh.push(Fresh { lane, exchange });
    }

    /// Polls those that have just come; the answers that are there go to the machine.
    pub(in crate::downstream) fn begin(&mut self) {
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
    pub(in crate::downstream) fn conclude(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for mut answered in self.answered.drain(..) {
            if answered.exchange.as_mut().poll(&mut cx).is_pending() {
                self.waiting.spawn_local(answered.exchange);
            }
        }
    }

    /// Forgets those that are over.
    pub(in crate::downstream) fn reap(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(_)) = self.waiting.poll_join_next(cx) {}
    }

    /// Waits for all of them.
    pub(in crate::downstream) async fn finish(mut self) {
        self.begin();
        self.conclude();
        while self.waiting.join_next().await.is_some() {}
    }
}

/// A stream whose exchange runs; released when it is dropped.
struct Open<E: Engine> {
    lanes: Rc<Lanes<E>>,
    id: E::Id,
}

impl<E: Engine> Drop for Open<E> {
    fn drop(&mut self) {
        self.lanes.release(self.id);
    }
}

async fn exchange<E: Engine>(
    (open, lane): (Open<E>, Rc<Lane<E>>),
    listen: Arc<Listen>,
    begun: Begun,
) {
    let Begun { client, came, body } = begun;
    // Also where nobody would read the body: the request is malformed as a whole (RFC 9114 §4.1.2).
    let body = body.and_then(|body| match lane.fault() {
        Some(fault) => Err(Refusal::from((400, format!("client sent {fault}")))),
        None => Ok(body),
    });
    let served = match body {
        Ok(body) => serve::serve(client, &listen, came, body).await,
        Err(refusal) => Box::pin(serve::refuse(client, &listen, came, refusal)).await,
    };
    // The request is dropped before its stream is released.
    drop(served);
    drop(open);
}
