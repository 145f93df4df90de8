//! Servers of a group that are changed, added and removed while the program runs.
//!
//! ```text
//! settings ──set──► the same peer in a new roster, with the standing and the counters that it has
//! address ──add──► a new peer with a number of its own          number ──remove──► gone
//! ```
//!
//! Requests that run keep to the roster that they began with, so what is removed answers what it
//! was asked. What is changed lasts as long as the configuration: the next one has its own servers.
//!
//! 1. One change at a time: none is made from a roster that another one has replaced.
//! 2. A group has at most [`MOST_ADDRESSES`] servers.

use std::sync::{Arc, PoisonError};

use millpond_system::address::Address;

use super::{Group, MOST_ADDRESSES, Roster};
use crate::upstream::peer::{Peer, PeerSettings};

/// The reason why a server is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the group has {MOST_ADDRESSES} servers")]
pub struct Full;

/// Server that a group is to have.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Address of the server.
    pub address: Address,
    /// Settings of the server.
    pub settings: PeerSettings,
}

impl Group {
    /// The peer with a number.
    pub fn peer(&self, number: usize) -> Option<Arc<Peer>> {
        let roster = self.roster();
        let mut peers = roster.peers();
        peers.find(|peer| peer.number == number).map(Arc::clone)
    }

    /// Adds a server.
    pub fn add(&self, wanted: Wanted) -> Result<Arc<Peer>, Full> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut peers: Vec<Arc<Peer>> = self.roster().peers().map(Arc::clone).collect();
        if peers.len() >= MOST_ADDRESSES {
            return Err(Full);
        }
        let added = self.numbered(Peer::new(wanted.address, wanted.settings, None));
        peers.push(Arc::clone(&added));
        self.take(peers);
        Ok(added)
    }

    /// Changes a server to what is made of it, unless that is refused; none if there is no such
    /// server.
    pub fn set<R>(
        &self,
        number: usize,
        make: impl FnOnce(&Peer) -> Result<Wanted, R>,
    ) -> Option<Result<Arc<Peer>, R>> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.peer(number)?;
        let wanted = match make(&old) {
            Ok(wanted) => wanted,
            Err(refused) => return Some(Err(refused)),
        };
        let mut new = if wanted.address == old.address {
            old.changed(wanted.settings)
        } else {
            Peer::new(wanted.address, wanted.settings, old.origin)
        };
        new.number = number;
        let new = Arc::new(new);
        let roster = self.roster();
        let peers = roster.peers().map(|peer| {
            if peer.number == number {
                Arc::clone(&new)
            } else {
                Arc::clone(peer)
            }
        });
        self.take(peers.collect());
        Some(Ok(new))
    }

    /// Removes a server; false if there is none.
    pub fn remove(&self, number: usize) -> bool {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let roster = self.roster();
        let others = roster.peers().filter(|peer| peer.number != number);
        let others: Vec<Arc<Peer>> = others.map(Arc::clone).collect();
        let is_there = others.len() < roster.peers().count();
        if is_there {
            self.take(others);
        }
        is_there
    }

    /// Requests choose among these from now on; the caller holds the lock of changes.
    pub(super) fn take(&self, peers: Vec<Arc<Peer>>) {
        let roster = Roster::new(peers, &self.method);
        self.roster.store(Arc::new(roster));
    }
}
