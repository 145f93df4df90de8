//! A connection from its accept to its protocol.
//!
//! ```text
//! accept ─► header of the PROXY protocol ─► handshake ─► HTTP/2, if both sides agreed on it (ALPN)
//!                                             │            or the client begins with its preface
//!                                             └────────► HTTP/1
//! ```

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use millpond_system::clock;
use millpond_wire::http2::ALPN;
use millpond_wire::http2::frame::PREFACE;

use super::encryption;
use super::http1::{self, Idle, quiet};
use super::http2;
use super::proxy_protocol;
use millpond_exchange::client::carrier::Carrier;
use millpond_exchange::client::connection::Connection;
use millpond_exchange::client::http1::{Http1, Quiet};
use millpond_exchange::settings::listen::{Binding, Listen};
use millpond_exchange::stats::connections::Counted;
use millpond_exchange::worker::Member;

/// The protocol in which requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Serves a connection to its end.
pub async fn serve(carrier: Carrier, binding: Arc<Binding>, member: Member) {
    let worker = Rc::clone(&carrier.connection.generation.worker);
    let _active = Counted::new(&worker.shared.connections.shard(worker.index).active);
    let Some(listen) = binding.listen_for(&carrier.connection.local).cloned() else {
        return;
    };
    if listen.has_proxy_protocol
        && !Box::pin(proxy_protocol::read(
            &carrier,
            head_timeout(&listen),
            &member,
        ))
        .await
    {
        return;
    }
    if listen.is_encrypted {
        let within = (&member, head_timeout(&listen));
        if !Box::pin(encryption::begin(&carrier, &listen, within)).await {
            return;
        }
    }
    let protocol = match agreed(&carrier.connection, &listen) {
        Some(protocol) => protocol,
        None => Box::pin(recognize(&carrier, &listen, &member)).await,
    };
    match protocol {
        Protocol::Http1 => requests(Http1::new(carrier), (binding, &listen), (member, None)).await,
        Protocol::Http2 => Box::pin(http2::serve(carrier, listen, &member)).await,
    }
}

/// Serves a connection that was quiet to its end.
pub(super) async fn go_on(http1: Http1, binding: Arc<Binding>, (member, idle): (Member, Idle)) {
    let worker = Rc::clone(&http1.connection.generation.worker);
    let _active = Counted::new(&worker.shared.connections.shard(worker.index).active);
    let Some(listen) = binding.listen_for(&http1.connection.local).cloned() else {
        return;
    };
    requests(http1, (binding, &listen), (member, Some(idle))).await;
}

/// Serves the requests of a connection of HTTP/1 until that ends, or is quiet.
async fn requests(
    http1: Http1,
    (binding, listen): (Arc<Binding>, &Listen),
    (member, mut idle): (Member, Option<Idle>),
) {
    let mut http1 = Rc::new(http1);
    while let Some(waits) = http1::serve(&http1, listen, (&member, idle)).await {
        match Quiet::new(http1) {
            Ok(quiet) => return quiet::keep(quiet, (binding, member), waits),
            Err(busy) => {
                http1 = busy;
                idle = Some(waits.attentive());
            }
        }
    }
}

/// The time that the header of the PROXY protocol and the handshake have, as the head of a request.
fn head_timeout(listen: &Listen) -> Duration {
    listen.names.default_server().settings.head.timeout
}

/// The protocol that the handshake, or the configuration, leaves; `None` if the client's first
/// bytes tell.
fn agreed(connection: &Connection, listen: &Listen) -> Option<Protocol> {
    match connection.tls.get() {
        Some(agreed) if *agreed.alpn == *ALPN => Some(Protocol::Http2),
        // nginx: without a word in the handshake it is HTTP/1.
        Some(_) => Some(Protocol::Http1),
        None if listen.is_encrypted => Some(Protocol::Http1),
        None if listen.may_be_http2(listen.names.default_server()) => None,
        None => Some(Protocol::Http1),
    }
}

/// Looks at the first bytes (RFC 9113 §3.3). What ends before they tell is HTTP/1's to log.
async fn recognize(carrier: &Carrier, listen: &Listen, member: &Member) -> Protocol {
    let deadline = clock::instant() + listen.names.default_server().settings.head.timeout;
    loop {
        {
            let came = carrier.inbox.borrow();
            let len = came.len().min(PREFACE.len());
            if came.get(..len) != PREFACE.get(..len) {
                return Protocol::Http1;
            }
            if len == PREFACE.len() {
                return Protocol::Http2;
            }
        }
        let left = deadline.saturating_duration_since(clock::instant());
        let read = proxy_protocol::more(carrier, member, PREFACE.len());
        match carrier.timer.guard_for(left, read).await {
            Ok(Ok(1..)) => {}
            _ => return Protocol::Http1,
        }
    }
}
