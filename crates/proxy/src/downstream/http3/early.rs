//! `ssl_early_data` over QUIC: requests that come before the handshake is over (RFC 8470).
//!
//! | | |
//! |---|---|
//! | methods that are safe to repeat (RFC 9110 §9.2.1) | answered at once; origins are told (`Early-Data: 1`) |
//! | others, and tunnels | wait until the handshake is over, which nobody can bring about who only repeats it |
//!
//! Invariants:
//! 1. A handshake is waited for until a deadline, whatever its client has asked.

use std::rc::Rc;

use millpond_system::clock::Instant;
use millpond_wire::head::{Method, RequestHead};
use millpond_wire::header::Known;
use millpond_wire::http3;

use crate::downstream::lanes::exchanges::Begun;
use crate::downstream::lanes::lane::Lane;
use crate::downstream::quic::UnderWay;

/// A request that waits.
type Held = (Rc<Lane<http3::Connection>>, Begun);

/// The rest of a handshake.
pub(in crate::downstream) struct Early {
    /// The time by which it has to be over. INVARIANT 1.
    pub(super) until: Instant,
    held: Vec<Held>,
    /// The count of those under way.
    _under_way: UnderWay,
}

impl Early {
    /// A handshake that has until then.
    pub(in crate::downstream) fn new(until: Instant, under_way: UnderWay) -> Self {
        Early {
            until,
            held: Vec::new(),
            _under_way: under_way,
        }
    }

    /// Lets a request wait. There are no more of them than streams.
    pub(super) fn hold(&mut self, lane: Rc<Lane<http3::Connection>>, begun: Begun) {
        self.held.push((lane, begun));
    }

    /// The requests that have waited.
    pub(super) fn into_held(self) -> Vec<Held> {
        self.held
    }
}

/// True for a request that may be answered although somebody may have repeated it.
pub(super) fn may_be_early(head: &RequestHead) -> bool {
    let is_safe = matches!(head.method(), Method::Get | Method::Head | Method::Options);
    // A request for a tunnel has become a GET.
    is_safe && !head.has(Known::Upgrade)
}
