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
//! same read. Streams are `lanes`, as in HTTP/3.
//!
//! Invariants:
//! 1. The connection's task ends after its exchanges. The socket is closed before that, if the
//!    client has left or nothing is to come.

mod engine;
mod session;

use std::rc::Rc;
use std::sync::Arc;

use millpond_wire::http2;

use self::session::{Ended, Session};
use super::lanes::Lanes;
use millpond_exchange::client::carrier::{Carrier, linger};
use millpond_exchange::settings::clients::keep_alive::LingeringClose;
use millpond_exchange::settings::listen::Listen;
use millpond_exchange::worker::Member;

/// The part of a connection that its exchanges share.
type Http2 = Lanes<http2::Connection>;

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
    // INVARIANT 1.
    drop(carrier);
    exchanges.finish().await;
}
