//! HTTP/1: one client's connection, which brings one request after another.
//!
//! ```text
//!            ┌────────────── next request (kept alive, body consumed) ◄──┐
//!            ▼                                                           │
//! accept ► Head ──head──► serve (phases, filters, writer) ───────────► Rest ──► Linger ► closed
//!            │ end of stream, timeout, closing generation                          ▲
//!            └── refused head ──► refuse (error page) ─────────────────────────────┘
//! ```
//!
//! `arrival` reads heads, `answer` and `writer` send answers, `keep_alive` decides what becomes of
//! the connection, `quiet` keeps it while nothing comes. Its state, with the request's body, stands
//! in `client/http1`.
//!
//! Invariants:
//! 1. One request at a time: what a pipelining client sent ahead waits in the inbox, which is
//!    bounded.
//! 2. The socket is closed when its task ends, unless `quiet` keeps it: work in the background has
//!    no share in it.

pub(crate) mod answer;
mod arrival;
pub(crate) mod keep_alive;
pub mod quiet;
pub(crate) mod tunnel;
pub(crate) mod writer;

use std::rc::Rc;
use std::time::Duration;

pub(crate) use self::arrival::Idle;
use self::arrival::{Arrival, read_head};
use self::keep_alive::After;
use super::serve::{self, Refusal, Served};
use millpond_exchange::client::Came;
use millpond_exchange::client::Client;
use millpond_exchange::client::carrier::linger;
use millpond_exchange::client::http1::Http1;
use millpond_exchange::client::http1::behind::Patience;
use millpond_exchange::client::wire::Wire;
use millpond_exchange::failure::ClientGone;
use millpond_exchange::settings::listen::Listen;
use millpond_exchange::stats::connections::Counted;
use millpond_exchange::worker::Member;
use millpond_wire::http1::request::{self as head, Connect, Framing, RequestParser};

/// Serves a connection to its end, or until it has been quiet for a while: then the times are
/// returned for which it waits on.
pub(super) async fn serve(
    http1: &Rc<Http1>,
    listen: &Listen,
    (member, idle): (&Member, Option<Idle>),
) -> Option<Idle> {
    let worker = &http1.connection.generation.worker;
    let counters = worker.shared.connections.shard(worker.index);
    let mut turns = Turns {
        http1,
        listen,
        client: None,
    };
    let mut parser = RequestParser::default();
    let mut idle = idle.unwrap_or_else(|| {
        let timeout = http1.connection.first_server(listen).settings.head.timeout;
        Idle::new(timeout, Duration::ZERO, None)
    });
    loop {
        let arrival = read_head(http1, listen, &mut parser, (member, idle)).await;
        let writing = Counted::new(&counters.writing);
        let after = match arrival {
            Arrival::Head(came) => turns.exchange(came).await,
            Arrival::Refused(came, why) => Box::pin(turns.refuse(came, why)).await,
            Arrival::Broken(came, gone) => {
                turns.record_broken(came, &gone);
                return None;
            }
            Arrival::Quiet(waits) => return Some(waits),
            Arrival::Nothing => return None,
        };
        drop(writing);
        match after {
            After::NextRequest(next) => idle = next,
            After::Close(patience) => {
                Box::pin(http1.settle(patience)).await;
                return None;
            }
            After::Linger { time, timeout } => {
                Box::pin(linger(http1, member, time, timeout)).await;
                return None;
            }
        }
        if !http1.inbox.borrow().is_empty() {
            // nginx: a request that came with the one before it waits for its turn, too.
            tokio::task::yield_now().await;
        }
    }
}

/// The requests of a connection, one after another.
struct Turns<'a> {
    http1: &'a Rc<Http1>,
    listen: &'a Listen,
    /// The client of the last request; the next one's, if nobody has kept a share in it.
    client: Option<Rc<Client>>,
}

impl Turns<'_> {
    fn client(&mut self, came: &Came) -> Rc<Client> {
        let mut last = self.client.take();
        match last.as_mut().and_then(Rc::get_mut) {
            Some(client) => client.begin_anew(came),
            None => last = None,
        }
        let client = last.unwrap_or_else(|| {
            let wire = Wire::Http1(Rc::clone(self.http1));
            Rc::new(Client::next(Rc::clone(&self.http1.connection), wire, came))
        });
        self.client = Some(Rc::clone(&client));
        client
    }

    /// Answers a request.
    async fn exchange(&mut self, came: Came) -> After {
        let client = self.client(&came);
        match came.head.check(Connect::Refuse) {
            Ok(framing) => {
                let body = self.http1.begin(&came.head, framing);
                let served = serve::serve(client, self.listen, came, body).await;
                match self.decide(&served) {
                    Some(after) => after,
                    None => Box::pin(self.discard(served)).await,
                }
            }
            Err(head::Refusal::ConnectNotAllowed) => Box::pin(self.connect(client, came)).await,
            Err(why) => {
                let refusal = Refusal::from(why);
                Box::pin(self.answer_refused(client, came, refusal)).await
            }
        }
    }

    /// Answers a CONNECT.
    async fn connect(&mut self, client: Rc<Client>, came: Came) -> After {
        self.http1.begin(&came.head, Framing::None);
        let served = serve::connect(client, self.listen, came).await;
        self.end(served).await
    }

    /// Answers a head that could not be understood.
    async fn refuse(&mut self, came: Came, why: head::Refusal) -> After {
        let client = self.client(&came);
        self.answer_refused(client, came, Refusal::from(why)).await
    }

    /// Decides how the connection goes on after an exchange; `None` if that is to be waited for.
    fn decide(&self, served: &Served) -> Option<After> {
        match served.request() {
            Some(req) => keep_alive::after_answer(self.http1, req, served.end),
            None => Some(After::Close(Patience::Brief)),
        }
    }

    /// Reads the rest of the request's body first.
    async fn discard(&self, served: Served) -> After {
        match served.request() {
            Some(req) => keep_alive::after_discard(self.http1, req).await,
            None => After::Close(Patience::Brief),
        }
    }

    async fn answer_refused(&self, client: Rc<Client>, came: Came, refusal: Refusal) -> After {
        let served = serve::refuse(client, self.listen, came, refusal).await;
        self.end(served).await
    }

    /// Decides how the connection goes on, when the rest of the request's body is read.
    async fn end(&self, served: Served) -> After {
        match self.decide(&served) {
            Some(after) => after,
            None => self.discard(served).await,
        }
    }

    /// Logs a request whose head did not come whole. nginx: 408 when it took too long, else 400;
    /// neither is sent.
    fn record_broken(&mut self, came: Came, gone: &ClientGone) {
        let client = self.client(&came);
        self.http1.keep_alive.set(false);
        serve::record_broken(client, self.listen, came, gone);
    }
}
