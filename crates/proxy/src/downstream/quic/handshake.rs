//! A QUIC connection's own task: its handshake, then the protocol inside, which begins before the
//! end of the handshake where the client sends early data.
//!
//! quinn-proto and the session of TLS make the handshake; this waits for its end, for at most
//! `client_header_timeout`, and reads certificates where their names depend on the connection. A
//! client that waits for those asks again, and is answered then (`millpond_tls::quic`).

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use millpond_system::clock::{self, Instant};
use millpond_system::log::error::Level;
use millpond_system::quota::Waiting;
use millpond_tls::quic::{Agreement, Choice, Desk, Progress};
use millpond_tls::{ClientHello, UNRECOGNIZED_NAME};
use quinn_proto::{ConnectionError, Event};

use super::carrier::{NO_ERROR, QuicCarrier};
use super::link::Link;
use crate::downstream::http3::early::Early;
use crate::downstream::{encryption, http3};
use crate::log::request_error;
use crate::tls::agreed;
use crate::tls::contexts::Encryption;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::settings::listen::Listen;
use millpond_exchange::stats::connections::{Counted, Happened};
use millpond_exchange::worker::Member;

/// The alert for a client whose certificate could not be read: internal_error.
const INTERNAL_ERROR: u8 = 80;

/// The end of a handshake that did not lead to a connection.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("client timed out (110: Connection timed out)")]
    TimedOut,
    #[error("{0}")]
    Lost(ConnectionError),
    #[error("{0}")]
    Certificate(String),
}

/// The next thing that a handshake waits for.
enum Step {
    /// Its context.
    Context(Box<ClientHello>, Arc<Desk>),
    /// Nothing: it is over.
    Over(Box<Agreement>),
    /// Its end, beside which the client's early data is read.
    Early(Box<Agreement>),
}

/// Serves a connection to its end.
pub(super) async fn serve(
    link: Rc<Link>,
    (connection, listen): (Rc<Connection>, Arc<Listen>),
    member: Member,
) {
    let worker = Rc::clone(&connection.generation.worker);
    let counters = worker.shared.connections.shard(worker.index);
    let _active = Counted::new(&counters.active);
    let under_way = link.count_handshake();
    let carrier = QuicCarrier::new(connection, link);
    match begin(&carrier, &listen).await {
        Ok(until) => {
            let early = until.map(|until| Early::new(until, under_way));
            http3::serve(&carrier, (&listen, early), &member).await;
        }
        Err(why) => {
            counters.count(Happened::HandshakeFailed);
            log(&carrier.connection, &why);
        }
    }
    carrier.close(NO_ERROR, b"");
    carrier.flushed().await;
}

/// nginx: what clients do wrong, and what networks do, interests few.
fn log(connection: &Connection, why: &Failure) {
    let level = match why {
        Failure::Certificate(_) => Level::Error,
        Failure::TimedOut | Failure::Lost(_) => Level::Info,
    };
    let message = format_args!("{why} while SSL handshaking");
    request_error::connection(connection, level, message);
}

/// Makes the agreement; returns the time by which the handshake has to be over, if it is not.
async fn begin(carrier: &QuicCarrier, listen: &Listen) -> Result<Option<Instant>, Failure> {
    let connection = &carrier.connection;
    let now = clock::instant();
    connection.waiting.set(Waiting::Head(now));
    let deadline = now + listen.names.default_server().settings.head.timeout;
    let (agreement, until) = loop {
        let step = std::future::poll_fn(|cx| poll_step(carrier, cx));
        match within(carrier, deadline, step).await?? {
            Step::Over(agreement) => break (agreement, None),
            Step::Early(agreement) => break (agreement, Some(deadline)),
            Step::Context(hello, desk) => {
                let choice = choose(connection, listen, &hello);
                let (choice, outcome) = within(carrier, deadline, choice).await?;
                desk.give(choice);
                outcome?;
            }
        }
    };
    let facts = agreement.facts();
    let server = encryption::named(listen, facts.server_name);
    let mut agreed = Box::new(agreed::of(&facts, Arc::clone(server)));
    let chain = facts.peer_certificates;
    let judged = encryption::check_status(connection, chain, &mut agreed);
    within(carrier, deadline, judged).await?;
    let worker = &connection.generation.worker;
    let counters = worker.shared.connections.shard(worker.index);
    counters.count(encryption::end_of(&agreed));
    // The cell is empty: a connection has one handshake.
    let _ = connection.tls.set(agreed);
    connection.is_early.set(until.is_some());
    Ok(until)
}

async fn within<F: Future>(
    carrier: &QuicCarrier,
    deadline: Instant,
    future: F,
) -> Result<F::Output, Failure> {
    let left = deadline.saturating_duration_since(clock::instant());
    let outcome = carrier.timer.guard_for(left, future).await;
    outcome.map_err(|_| Failure::TimedOut)
}

/// Waits for the next step.
fn poll_step(carrier: &QuicCarrier, cx: &Context<'_>) -> Poll<Result<Step, Failure>> {
    let link = &carrier.link;
    let mut is_connected = false;
    while let Some(event) = link.drive(quinn_proto::Connection::poll) {
        match event {
            Event::Connected => is_connected = true,
            Event::ConnectionLost { reason } => return Poll::Ready(Err(Failure::Lost(reason))),
            // Streams that are there already are looked for when their client is known.
            Event::Stream(event) => carrier.keep(event),
            _ => {}
        }
    }
    let data = link.look(|machine| machine.crypto_session().handshake_data());
    let progress = data.and_then(|data| data.downcast::<Progress>().ok());
    match progress.map(|progress| *progress) {
        Some(Progress::Running(agreement)) if is_connected => {
            return Poll::Ready(Ok(Step::Over(agreement)));
        }
        Some(Progress::Running(agreement)) if link.look(quinn_proto::Connection::has_0rtt) => {
            return Poll::Ready(Ok(Step::Early(agreement)));
        }
        Some(Progress::Waiting(hello, desk)) if !desk.has_choice() => {
            return Poll::Ready(Ok(Step::Context(hello, desk)));
        }
        _ => {}
    }
    if link.look(quinn_proto::Connection::is_drained) {
        return Poll::Ready(Err(Failure::Lost(ConnectionError::LocallyClosed)));
    }
    link.register(cx);
    Poll::Pending
}

/// Chooses the context of a client whose certificates depend on the connection.
async fn choose(
    connection: &Connection,
    listen: &Listen,
    hello: &ClientHello,
) -> (Choice, Result<(), Failure>) {
    let server = encryption::choose(listen, hello);
    let own = Encryption::of(server);
    let Some(own) = own.and_then(|own| own.certified_or(listen.names.default_server())) else {
        return (Choice::Refuse(UNRECOGNIZED_NAME), Ok(()));
    };
    match encryption::certificates(connection, listen, (server, hello)).await {
        Ok(identities) => {
            let identities = identities.map(|all| all.to_vec());
            (
                Choice::Serve(Box::new(own.context.clone()), identities),
                Ok(()),
            )
        }
        Err(why) => (
            Choice::Refuse(INTERNAL_ERROR),
            Err(Failure::Certificate(why)),
        ),
    }
}
