//! The endpoints of all workers, by the connection ids that they give: packets that come to one and
//! belong to another are handed over.
//!
//! That is seldom: the kernel reads the number of the socket in a packet, but for the first ones of
//! a connection, and for a while after the sockets of an address have changed. While a binary is
//! changed, two processes read the same sockets: what belongs to nobody here may be theirs (`kin`).
//!
//! Invariants:
//! 1. No two endpoints of the process have the same [`Owner`].
//! 2. What an endpoint does not take off its channel is bounded by [`HANDED_MOST`], and lost beyond
//!    that, as packets may be.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use millpond_system::chance;
use millpond_system::udp::{EcnCodepoint, Packet};
use millpond_tls::Error;
use millpond_tls::quic::HostKey;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::identifier::Owner;
use super::kin::Kin;
use super::tokens::UsedTokens;
use millpond_exchange::worker::Shared;

/// Packets that wait for their endpoint (guessed: some batches).
const HANDED_MOST: usize = 256;

/// A packet that has come to another endpoint.
#[derive(Debug)]
pub(super) struct Handed {
    remote: SocketAddr,
    local: Option<IpAddr>,
    ecn: Option<EcnCodepoint>,
    bytes: Box<[u8]>,
}

/// All endpoints of the process.
#[derive(Debug, Default)]
pub struct Directory {
    places: Mutex<Vec<Place>>,
    /// The keys where none are configured.
    key: OnceLock<HostKey>,
    /// Tokens that clients have used.
    pub(super) tokens: Arc<UsedTokens>,
    /// The process that reads the same sockets, while there is one.
    kin: Mutex<Option<(Arc<Kin>, AbortHandle)>>,
}

/// The connections that an endpoint serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// New ones and old ones.
    New,
    /// Those that it has.
    Old,
}

/// An endpoint.
#[derive(Debug)]
struct Place {
    owner: Owner,
    address: SocketAddr,
    serving: Serving,
    sender: mpsc::Sender<Handed>,
}

impl Handed {
    fn new(packet: &Packet<'_>) -> Self {
        Handed {
            remote: packet.remote,
            local: packet.local,
            ecn: packet.ecn,
            bytes: packet.bytes.into(),
        }
    }

    /// The packet as it came.
    pub(super) fn packet(&self) -> Packet<'_> {
        Packet {
            remote: self.remote,
            local: self.local,
            ecn: self.ecn,
            bytes: &self.bytes,
        }
    }
}

impl Directory {
    /// The directory of a process.
    pub(super) fn of(shared: &Shared) -> Arc<Self> {
        shared.guests.of()
    }

    /// Enters an endpoint of a socket; it gets what is handed over. INVARIANT 1.
    pub(super) fn enter(
        &self,
        socket: u16,
        address: SocketAddr,
    ) -> (Owner, mpsc::Receiver<Handed>) {
        let (sender, receiver) = mpsc::channel(HANDED_MOST);
        let mut places = self.places();
        let first = chance::word() as u16;
        let turns = (0..=u16::MAX).map(|step| first.wrapping_add(step));
        let owners = turns.map(|turn| Owner { socket, turn });
        let is_free = |owner: &Owner| places.iter().all(|place| place.owner != *owner);
        let free = owners.clone().find(is_free);
        let owner = free.unwrap_or(Owner {
            socket,
            turn: first,
        });
        places.push(Place {
            owner,
            address,
            serving: Serving::Old,
            sender,
        });
        (owner, receiver)
    }

    /// Notes that an endpoint takes new connections, or takes none.
    pub(super) fn note(&self, owner: Owner, serving: Serving) {
        let mut places = self.places();
        if let Some(place) = places.iter_mut().find(|place| place.owner == owner) {
            place.serving = serving;
        }
    }

    /// Forgets an endpoint.
    pub(super) fn leave(&self, owner: Owner) {
        self.places().retain(|place| place.owner != owner);
    }

    /// Hands a packet to its owner; false if that is nobody here. INVARIANT 2.
    pub(super) fn hand_over(&self, owner: Owner, packet: &Packet<'_>) -> bool {
        self.hand(packet, |place| place.owner == owner)
    }

    /// Hands the first packet of a connection to an endpoint that takes it; false if there is none.
    pub(super) fn hand_to_serving(&self, address: SocketAddr, packet: &Packet<'_>) -> bool {
        self.hand(packet, |place| {
            place.address == address && place.serving == Serving::New
        })
    }

    /// Hands a packet that is nobody's here to the other process; false if there is none.
    pub(super) fn hand_to_kin(&self, address: SocketAddr, packet: &Packet<'_>) -> bool {
        let mut kin = self.kin();
        let is_sent = kin
            .as_ref()
            .is_some_and(|(kin, _)| kin.send(address, packet));
        if !is_sent && let Some((_, task)) = kin.take() {
            task.abort();
        }
        is_sent
    }

    /// Takes a packet from the other process: for its owner, or for who serves the address.
    fn take(&self, address: SocketAddr, packet: &Packet<'_>) {
        let owner = Owner::of_packet(packet.bytes);
        if !owner.is_some_and(|owner| self.hand_over(owner, packet)) {
            self.hand_to_serving(address, packet);
        }
    }

    /// Shares sockets with another process, at the other end of `socket`, until that is gone. To be
    /// called on a runtime.
    ///
    /// # Errors
    /// The runtime cannot watch it.
    pub fn join(shared: &Shared, socket: UnixDatagram) -> io::Result<()> {
        let kin = Arc::new(Kin::new(socket)?);
        let (receiving, own) = (Arc::clone(&kin), Directory::of(shared));
        let directory = Arc::clone(&own);
        let task = tokio::spawn(async move {
            let take = |address, packet: &Packet<'_>| directory.take(address, packet);
            receiving.receive(take).await;
        });
        let before = own.kin().replace((kin, task.abort_handle()));
        if let Some((_, task)) = before {
            task.abort();
        }
        Ok(())
    }

    fn kin(&self) -> MutexGuard<'_, Option<(Arc<Kin>, AbortHandle)>> {
        self.kin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand(&self, packet: &Packet<'_>, is_meant: impl Fn(&Place) -> bool) -> bool {
        let places = self.places();
        let place = places.iter().find(|place| is_meant(place));
        // One that is full loses it.
        place.is_some_and(|place| {
            let _ = place.sender.try_send(Handed::new(packet));
            true
        })
    }

    /// The keys of the process.
    pub(super) fn key(&self) -> Result<HostKey, Error> {
        if let Some(key) = self.key.get() {
            return Ok(key.clone());
        }
        let key = HostKey::random()?;
        Ok(self.key.get_or_init(|| key).clone())
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: &[u8]) -> Packet<'_> {
        Packet {
            remote: ([127, 0, 0, 1], 1).into(),
            local: None,
            ecn: None,
            bytes,
        }
    }

    #[test]
    fn a_packet_comes_to_its_owner_until_that_leaves() {
        let directory = Directory::default();
        let address = ([127, 0, 0, 1], 443).into();
        let (one, mut for_one) = directory.enter(3, address);
        let (other, mut for_other) = directory.enter(3, address);
        assert_ne!(one, other, "the same socket, twice");
        assert!(directory.hand_over(other, &packet(b"a")));
        assert_eq!(for_other.try_recv().unwrap().packet().bytes, b"a");
        assert!(for_one.try_recv().is_err());
        directory.leave(other);
        assert!(!directory.hand_over(other, &packet(b"b")));
        assert!(directory.hand_over(one, &packet(b"c")));
        assert_eq!(for_one.try_recv().unwrap().packet().bytes, b"c");
    }

    #[test]
    fn first_packets_come_to_who_serves_the_address() {
        let directory = Directory::default();
        let address = ([127, 0, 0, 1], 443).into();
        let (_old, mut for_old) = directory.enter(0, address);
        assert!(!directory.hand_to_serving(address, &packet(b"a")));
        let (new, mut for_new) = directory.enter(0, address);
        directory.note(new, Serving::New);
        assert!(directory.hand_to_serving(address, &packet(b"b")));
        assert!(for_old.try_recv().is_err());
        assert_eq!(for_new.try_recv().unwrap().packet().bytes, b"b");
        let elsewhere = ([127, 0, 0, 1], 444).into();
        assert!(!directory.hand_to_serving(elsewhere, &packet(b"c")));
    }

    #[test]
    fn no_more_packets_wait_than_the_bound() {
        let directory = Directory::default();
        let (owner, mut waiting) = directory.enter(0, ([127, 0, 0, 1], 443).into());
        for _ in 0..2 * HANDED_MOST {
            assert!(directory.hand_over(owner, &packet(b"a")));
        }
        let count = std::iter::from_fn(|| waiting.try_recv().ok()).count();
        assert_eq!(count, HANDED_MOST);
    }
}
