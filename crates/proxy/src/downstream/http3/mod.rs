//! HTTP/3: one client's connection of QUIC, whose streams bring requests side by side.
//!
//! ```text
//! carrier ─streams─► machine (millpond_wire::http3) ─events─► Session ─► Lane ─► exchange: serve
//!    ▲                                                                              │ calls
//!    └───────────────── machine ◄───────────────────────────────────────────────────┘
//! ```
//!
//! The connection's task (`session`) reads streams and writes to them, and begins exchanges.
//! Packets are the endpoint's business: what was written goes out after this task's turn.
//!
//! Invariants:
//! 1. The connection's task ends after its exchanges, and after the client has acknowledged all
//!    answers, unless that takes too long.

pub(super) mod early;
mod engine;
mod session;

use std::sync::Arc;

use millpond_wire::http3;

use self::early::Early;
use self::session::Session;
use super::lanes::Lanes;
use super::quic::carrier::QuicCarrier;
use millpond_exchange::settings::listen::Listen;
use millpond_exchange::worker::Member;

/// The part of a connection that its exchanges share.
type Http3 = Lanes<http3::Connection>;

/// Serves a connection to its end; its handshake may not be over.
pub(super) async fn serve(
    carrier: &QuicCarrier,
    (listen, early): (&Arc<Listen>, Option<Early>),
    member: &Member,
) {
    let worker = &carrier.connection.generation.worker;
    let counters = worker.shared.connections.shard(worker.index);
    let mut session = Session::new(carrier, (Arc::clone(listen), early), (member, counters));
    std::future::poll_fn(|cx| session.poll(cx)).await;
    // INVARIANT 1.
    session.into_exchanges().finish().await;
}
