//! The handshake of a client's connection, and whether its requests may be answered.
//!
//! ```text
//! first byte ──► neither a handshake's nor SSLv2's: plain HTTP, whose requests are refused (497)
//!    ▼
//! ClientHello ──name──► server ──► refused by `ssl_reject_handshake`: alert, closed
//!    ▼
//! handshake ──► what was agreed stays with the connection
//! ```
//!
//! Requests that come on it must be for the server that the handshake was for wherever a client's
//! certificate matters: 421 else.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use millpond_acme::Ordered;
use millpond_system::clock::{self, Instant};
use millpond_system::log::error::{self, Level};
use millpond_system::quota::Waiting;
use millpond_system::side_task::{self, Running};
use millpond_system::tls_socket::{HandshakeError, TlsSocket};
use millpond_tls::certificate::verdict::{Refusal, Verdict};
use millpond_tls::{
    Accepted, Accepting, Acceptor, CertificateDer, ClientHello, Error, Facts, Fault, Inside,
    UNRECOGNIZED_NAME,
};

use super::proxy_protocol;
use crate::log::request_error;
use crate::request::Request;
use crate::tls::acme::{Orders, handshake};
use crate::tls::agreed;
use crate::tls::contexts::Encryption;
use crate::tls::named::Identities;
use crate::tls::settings::SslPolicy;
use crate::tls::stapling::Stapler;
use millpond_exchange::client::agreed::Agreed;
use millpond_exchange::client::carrier::Carrier;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::settings::Server;
use millpond_exchange::settings::listen::Listen;
use millpond_exchange::stats::connections::Happened;
use millpond_exchange::worker::Member;

/// Questions to responders that a worker asks at a time (arbitrary).
const MOST_ASKED: u32 = 16;

thread_local! {
    static ASKING: side_task::Count = const { side_task::Count::new(0) };
}

/// The alert for a client whose certificate could not be read: internal_error.
const INTERNAL_ERROR: u8 = 80;

/// Bytes asked of a client that has not said hello.
const HELLO: usize = 2 * 1024;

/// The end of a handshake that did not lead to an encrypted connection.
enum Failure {
    /// The time is over.
    TimedOut,
    /// Nothing came, and it is to be closed.
    Quiet,
    /// The handshake.
    Handshake(HandshakeError),
    /// A certificate could not be read.
    Certificate(String),
    /// No name is validated.
    Unvalidated(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Handshake(error.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Handshake(error.into())
    }
}

/// Makes an encrypted connection of one that was accepted, unless the client speaks plainly; false
/// when it is to be closed.
pub async fn begin(
    carrier: &Carrier,
    listen: &Listen,
    (member, timeout): (&Member, Duration),
) -> bool {
    let now = clock::instant();
    let deadline = now + timeout;
    carrier.connection.waiting.set(Waiting::Idle(now));
    match handshake(carrier, listen, (member, deadline)).await {
        Ok(()) => true,
        Err(failure) => {
            if !matches!(failure, Failure::Quiet) {
                count(&carrier.connection, Happened::HandshakeFailed);
            }
            log(&carrier.connection, &failure);
            false
        }
    }
}

async fn handshake(
    carrier: &Carrier,
    listen: &Listen,
    (member, deadline): (&Member, Instant),
) -> Result<(), Failure> {
    let Some(tls) = carrier.transport.tls() else {
        return Ok(());
    };
    let Some(accepted) = read_hello(carrier, tls, (member, deadline)).await? else {
        return Ok(());
    };
    carrier
        .connection
        .waiting
        .set(Waiting::Head(clock::instant()));
    let conf = &carrier.connection.generation.conf;
    if !conf.parts.of::<Orders>().is_empty() && handshake::is_asked_for(accepted.hello()) {
        return validate(tls, carrier, (accepted, deadline)).await;
    }
    let server = Arc::clone(choose(listen, accepted.hello()));
    let left = deadline.saturating_duration_since(clock::instant());
    let certified = with_certificates(carrier, listen, (&server, accepted));
    let accepted = match carrier.timer.guard_for(left, certified).await {
        Err(_) => return Err(Failure::TimedOut),
        Ok(Err((accepted, why))) => {
            let mut alert = BytesMut::new();
            accepted.reject(INTERNAL_ERROR, &mut alert);
            tls.refuse(&alert);
            return Err(Failure::Certificate(why));
        }
        Ok(Ok(accepted)) => accepted,
    };
    begin_session(tls, listen, &server, accepted)?;
    let connection = &carrier.connection;
    let done = std::future::poll_fn(|cx| {
        if connection.is_displaced.get() {
            connection.count_displaced();
            return Poll::Ready(Err(Failure::Quiet));
        }
        member.register(cx.waker());
        tls.poll_handshake(cx).map_err(Failure::Handshake)
    });
    let left = deadline.saturating_duration_since(clock::instant());
    match carrier.timer.guard_for(left, done).await {
        Err(_) => return Err(Failure::TimedOut),
        Ok(outcome) => outcome?,
    }
    let agreed = tls.with_facts(|facts| Box::new(agreed::of(&facts, server)));
    if let Some(mut agreed) = agreed {
        if agreed.verdict == Verdict::Success {
            let owned = |facts: Facts<'_>| {
                let chain = facts.peer_certificates.iter();
                chain.map(|it| it.clone().into_owned()).collect::<Vec<_>>()
            };
            let chain = tls.with_facts(owned).unwrap_or_default();
            let judged = check_status(connection, &chain, &mut agreed);
            let left = deadline.saturating_duration_since(clock::instant());
            let outcome = carrier.timer.guard_for(left, judged).await;
            outcome.map_err(|_| Failure::TimedOut)?;
        }
        count(connection, end_of(&agreed));
        // The cell is empty: a connection has one handshake.
        let _ = connection.tls.set(agreed);
    }
    Ok(())
}

/// Has a client's certificate, if it is good so far, judged by those who know its status.
pub(super) async fn check_status(
    connection: &Connection,
    chain: &[CertificateDer<'_>],
    agreed: &mut Agreed,
) {
    let server = Arc::clone(&agreed.server);
    let own = Encryption::of(&server);
    let Some(check) = own.and_then(|own| own.status.as_ref()) else {
        return;
    };
    if agreed.verdict != Verdict::Success {
        return;
    }
    let owned = chain.iter().map(|it| it.clone().into_owned());
    let chain: Vec<_> = owned.collect();
    if let Err((fault, why)) = check.check(&chain).await {
        agreed.verdict = Verdict::Failed(fault);
        if let Some(why) = why {
            let message = format_args!("{why} while requesting certificate status");
            request_error::connection(connection, Level::Error, message);
        }
    }
}

/// Shows an authority that a name is ours, and closes the connection.
async fn validate(
    tls: &TlsSocket,
    carrier: &Carrier,
    (accepted, deadline): (Accepted, Instant),
) -> Result<(), Failure> {
    let (mut plain, mut told) = (BytesMut::new(), BytesMut::new());
    let (context, identity) = match handshake::answer(accepted.hello()) {
        Ok(found) => found,
        Err(why) => {
            accepted.reject(INTERNAL_ERROR, &mut told);
            tls.refuse(&told);
            return Err(Failure::Unvalidated(why));
        }
    };
    let accepted = accepted.with_identities(&[identity]);
    match accepted.choose((context, Inside::Usual), &mut plain, &mut told) {
        Ok((session, _)) => tls.begin(session, plain, told),
        Err(error) => {
            tls.refuse(&told);
            return Err(error.into());
        }
    }
    let done = std::future::poll_fn(|cx| tls.poll_handshake(cx));
    let left = deadline.saturating_duration_since(clock::instant());
    match carrier.timer.guard_for(left, done).await {
        Err(_) => Err(Failure::TimedOut),
        Ok(outcome) => outcome.map_err(Failure::Handshake).and(Err(Failure::Quiet)),
    }
}

pub(super) fn end_of(agreed: &Agreed) -> Happened {
    match (agreed.protocol, agreed.is_resumed) {
        ("TLSv1.2", false) => Happened::New12,
        ("TLSv1.2", true) => Happened::Resumed12,
        (_, false) => Happened::New13,
        (_, true) => Happened::Resumed13,
    }
}

fn count(connection: &Connection, end: Happened) {
    let worker = &connection.generation.worker;
    let shard = worker.shared.connections.shard(worker.index);
    shard.count(end);
}

/// Reads what a client begins with; none if that is plain HTTP.
async fn read_hello(
    carrier: &Carrier,
    tls: &TlsSocket,
    (member, deadline): (&Member, Instant),
) -> Result<Option<Accepted>, Failure> {
    let mut acceptor = Acceptor::new();
    let mut has_begun = false;
    loop {
        let came = std::mem::take(&mut *carrier.inbox.borrow_mut());
        match came.first() {
            Some(0x16 | 0x80..) => has_begun = true,
            Some(_) if !has_begun => {
                *carrier.inbox.borrow_mut() = came;
                return Ok(None);
            }
            _ => {}
        }
        let mut alert = BytesMut::new();
        acceptor = match acceptor.accept(&came, &mut alert) {
            Ok(Accepting::Partial(acceptor)) => acceptor,
            Ok(Accepting::Whole(accepted)) => return Ok(Some(accepted)),
            Err(error) => {
                tls.refuse(&alert);
                return Err(error.into());
            }
        };
        let left = deadline.saturating_duration_since(clock::instant());
        let read = proxy_protocol::more(carrier, member, HELLO);
        match carrier.timer.guard_for(left, read).await {
            Ok(Ok(0)) if has_begun => return Err(Failure::Handshake(HandshakeError::Closed)),
            Ok(Ok(0)) => return Err(Failure::Quiet),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(Failure::TimedOut),
        }
    }
}

/// Gives a connection the certificates whose names depend on it.
async fn with_certificates(
    carrier: &Carrier,
    listen: &Listen,
    (server, accepted): (&Arc<Server>, Accepted),
) -> Result<Accepted, (Accepted, String)> {
    let hello = accepted.hello();
    match certificates(&carrier.connection, listen, (server, hello)).await {
        Ok(Some(identities)) => Ok(accepted.with_identities(&identities)),
        Ok(None) => Ok(accepted),
        Err(why) => Err((accepted, why)),
    }
}

/// The certificates whose names depend on a connection, if those of a server do. They are read
/// elsewhere: the handshake waits, and the worker does not.
pub(super) async fn certificates(
    connection: &Connection,
    listen: &Listen,
    (server, hello): (&Arc<Server>, &ClientHello),
) -> Result<Option<Identities>, String> {
    let own = Encryption::of(server);
    let certified = own.and_then(|own| own.certified_or(listen.names.default_server()));
    if let Some(ordered) = certified.and_then(|certified| certified.ordered.as_ref()) {
        let issued = ordered.issued().ok_or_else(|| waiting(ordered))?;
        return Ok(Some(Arc::from([Arc::clone(&issued.identity)])));
    }
    let Some(named) = certified.and_then(|certified| certified.named.as_ref()) else {
        return Ok(None);
    };
    let names = {
        let asked = agreed::asked(hello, Arc::clone(server));
        let asking = Rc::new(connection.asking(asked));
        let mut req = Request::before_any(asking, Arc::clone(server));
        named.names(|template| req.eval(template))
    };
    named.load(names?).await.map(Some)
}

/// The reason for which a certificate that was ordered is not there.
fn waiting(ordered: &Ordered) -> String {
    let (names, issuer, why) = (ordered.shown(), &ordered.issuer, ordered.why());
    format!("no certificate for {names} from issuer \"{issuer}\" as yet: {why}")
}

/// Has the context of a server, or that of the default one, answer the first message.
fn begin_session(
    tls: &TlsSocket,
    listen: &Listen,
    server: &Server,
    accepted: Accepted,
) -> Result<(), Error> {
    let (mut plain, mut told) = (BytesMut::new(), BytesMut::new());
    let own = Encryption::of(server);
    let begun = match own.and_then(|own| own.certified_or(listen.names.default_server())) {
        Some(own) => {
            refresh_staples(&own.staplers);
            let inside = if listen.may_be_http2(server) {
                Inside::Optional
            } else {
                Inside::Usual
            };
            accepted.choose((&own.context, inside), &mut plain, &mut told)
        }
        None => Err(accepted.reject(UNRECOGNIZED_NAME, &mut told)),
    };
    match begun {
        Ok((session, _)) => {
            tls.begin(session, plain, told);
            Ok(())
        }
        Err(error) => {
            tls.refuse(&told);
            Err(error)
        }
    }
}

/// Has responders asked about certificates, where it is time.
pub(super) fn refresh_staples(staplers: &[Arc<Stapler>]) {
    let now = clock::instant();
    for turn in staplers.iter().filter_map(|stapler| stapler.turn(now)) {
        // Without a place, the question is asked after a while.
        let Some(running) = Running::enter(&ASKING, MOST_ASKED) else {
            continue;
        };
        // Nobody waits for it at a shutdown.
        running.spawn((), async move {
            if let Err(why) = turn.ask().await {
                error::process(
                    Level::Error,
                    format_args!("{why} while requesting a staple"),
                );
            }
        });
    }
}

/// The server that a hello asks for, or the default one.
pub(super) fn choose<'l>(listen: &'l Listen, hello: &ClientHello) -> &'l Arc<Server> {
    named(listen, hello.server_name())
}

/// The server of a name, or the default one.
pub(super) fn named<'l>(listen: &'l Listen, name: Option<&str>) -> &'l Arc<Server> {
    let named = name.and_then(|name| listen.names.of_host(name.as_bytes()));
    named.unwrap_or_else(|| listen.names.default_server())
}

/// nginx: what clients do wrong, and what networks do, interests few.
fn log(connection: &Connection, failure: &Failure) {
    let (level, message) = match failure {
        Failure::Quiet => return,
        Failure::TimedOut => (
            Level::Info,
            String::from("client timed out (110: Connection timed out)"),
        ),
        Failure::Handshake(HandshakeError::Tls(error)) => {
            let level = match error.fault() {
                Fault::Peer => Level::Info,
                Fault::Ours => Level::Crit,
            };
            (level, format!("SSL_do_handshake() failed {error}"))
        }
        Failure::Handshake(error) => (Level::Info, error.to_string()),
        Failure::Certificate(why) => (Level::Error, why.clone()),
        Failure::Unvalidated(why) => (Level::Info, why.clone()),
    };
    request_error::connection(
        connection,
        level,
        format_args!("{message} while SSL handshaking"),
    );
}

/// Refuses a request that its connection does not entitle to an answer.
pub(super) fn check(req: &Request) -> Result<(), (u16, String)> {
    let Some(agreed) = req.client.connection.tls.get() else {
        return Err((
            497,
            String::from("client sent plain HTTP request to HTTPS port"),
        ));
    };
    let demand = req.server.parts.of::<SslPolicy>().demand();
    if demand.is_none() {
        return Ok(());
    }
    if !Arc::ptr_eq(&agreed.server, &req.server) {
        let why = "client attempted to request the server name different from the one that was \
                   negotiated";
        return Err((421, String::from(why)));
    }
    match demand.and_then(|demand| agreed.verdict.refusal(demand)) {
        None => Ok(()),
        Some(refusal @ Refusal::BadCertificate(_)) => Err((495, refusal.to_string())),
        Some(refusal @ Refusal::NoCertificate) => Err((496, refusal.to_string())),
    }
}
