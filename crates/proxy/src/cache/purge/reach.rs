//! `Purge-Fleet`, `Purge-Wait`: purges of zones with a fleet, on their way to all of its nodes.
//!
//! | `Purge-Wait` of the request | answered when |
//! |---|---|
//! | none, `log` | the purge is in force here, and the log has acknowledged it |
//! | `fleet` | it is in force on all nodes: all have said so, or `max_lag` is over |
//!
//! | `Purge-Fleet` of the answer | the purge is in force |
//! |---|---|
//! | `acknowledged` | here, and everywhere after `max_lag` at the latest |
//! | `everywhere` | on all nodes |
//! | `local` | here; nobody else is known to have it, and the status is 503 |
//!
//! 1. A purge that no log has acknowledged is never answered as done, whatever the reason.

use millpond_cache::zone::CacheZone;
use millpond_fleet::Fleets;
use millpond_fleet::node::{Await, Node, Reach};
use std::sync::Arc;

use super::answer::Outcome;
use super::order::Order;

/// The node that hands a purge on; none where there is nothing to hand on.
enum Way {
    None,
    Node(Arc<Node>),
    /// INVARIANT 1.
    Closed,
}

fn way(fleets: &Fleets, zone: &CacheZone, outcome: Outcome) -> Way {
    if !matches!(outcome, Outcome::Purged { .. }) || zone.purges.lag.max_lag().is_none() {
        return Way::None;
    }
    fleets.of_zone(&zone.name).map_or(Way::Closed, Way::Node)
}

fn closed() -> Reach {
    Reach::Local("nobody follows the log of the fleet".to_owned())
}

/// Hands a purge on to the fleet of its zone, if that has one, where it is in force already.
pub(super) async fn spread(
    fleets: &Fleets,
    zone: &CacheZone,
    (order, outcome): (&Order, Outcome),
) -> Option<Reach> {
    let purge = (order.target.clone(), order.mode);
    match way(fleets, zone, outcome) {
        Way::None => None,
        Way::Node(node) => Some(node.publish(&zone.name, purge, order.wait).await),
        Way::Closed => Some(closed()),
    }
}

/// Hands a purge on as a request does, on a thread that may wait.
pub fn spread_and_wait(
    fleets: &Fleets,
    zone: &CacheZone,
    (order, outcome): (&Order, Outcome),
) -> Option<Reach> {
    let purge = (order.target.clone(), order.mode);
    match way(fleets, zone, outcome) {
        Way::None => None,
        Way::Node(node) => Some(node.publish_and_wait(&zone.name, purge, order.wait)),
        Way::Closed => Some(closed()),
    }
}

/// The outcome of a purge that all nodes obey: what one of them had says nothing of the others.
pub fn of_all(outcome: Outcome, reach: Option<&Reach>) -> Outcome {
    match (outcome, reach) {
        (Outcome::Purged { serial, .. }, Some(_)) => Outcome::Purged {
            serial,
            was_there: None,
        },
        _ => outcome,
    }
}

/// Reads the value of `Purge-Wait`; the error says what is wrong.
pub(super) fn wait(value: Option<&[u8]>) -> Result<Await, String> {
    match value {
        None | Some(b"log") => Ok(Await::Log),
        Some(b"fleet") => Ok(Await::Fleet),
        Some(other) => Err(format!("unknown Purge-Wait \"{}\"", other.escape_ascii())),
    }
}
