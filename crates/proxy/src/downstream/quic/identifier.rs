//! Connection ids that we give.
//!
//! | bytes | |
//! |---|---|
//! | 0, 1 | number of the socket, big-endian: packets with a short header come to it |
//! | 2, 3 | number that tells endpoints of the same socket apart, in this process and others |
//! | 4 to 11 | random |
//!
//! Valid is an id of this length. The endpoint of a socket makes it, the kernel and the endpoints
//! read it ([decision 16](../../../../../docs/decisions/0016-quic-packets-find-their-worker.md)).

use std::time::Duration;

use millpond_system::chance;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

/// Bytes of an id.
const LEN: usize = 12;

/// The part of an id that says whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The socket of its endpoint, by its place in the group.
    pub socket: u16,
    /// The number that tells endpoints of this socket apart.
    pub turn: u16,
}

impl Owner {
    /// The owner that the id in a packet names, if it has the length of ours. In the first packets
    /// of a connection the id is the client's choice.
    pub(super) fn of_packet(packet: &[u8]) -> Option<Owner> {
        let id = match packet {
            // RFC 9000 §17.2: behind a version of four bytes comes the length of the id.
            [first, _, _, _, _, len, rest @ ..] if first & 0x80 != 0 => {
                rest.get(..LEN).filter(|_| usize::from(*len) == LEN)
            }
            [_, rest @ ..] => rest.get(..LEN),
            [] => None,
        };
        match id? {
            [a, b, c, d, ..] => Some(Owner {
                socket: u16::from_be_bytes([*a, *b]),
                turn: u16::from_be_bytes([*c, *d]),
            }),
            _ => None,
        }
    }
}

impl ConnectionIdGenerator for Owner {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&self.socket.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.turn.to_be_bytes());
        bytes[4..].copy_from_slice(&chance::word().to_be_bytes());
        ConnectionId::new(&bytes)
    }

    /// An id that nobody owns any more gets a stateless reset: another process may have given it.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        (id.len() == LEN).then_some(()).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_header_tells_the_owner_of_its_id() {
        let mut owner = Owner {
            socket: 0x0102,
            turn: 7,
        };
        let id = owner.generate_cid();
        assert!(owner.validate(&id).is_ok());
        let packet = [&[0x41][..], &id, b"more"].concat();
        assert_eq!(Owner::of_packet(&packet), Some(owner));
        assert_eq!(Owner::of_packet(&packet[..LEN]), None);
        assert_eq!(Owner::of_packet(&[]), None);
    }

    #[test]
    fn a_long_header_tells_it_if_its_id_is_as_long_as_ours() {
        let owner = Owner { socket: 1, turn: 2 };
        let id = [0, 1, 0, 2, 9, 9, 9, 9, 9, 9, 9, 9];
        let packet = |len: u8| [&[0xc0, 0, 0, 0, 1, len][..], &id, b"more"].concat();
        assert_eq!(Owner::of_packet(&packet(12)), Some(owner));
        assert_eq!(Owner::of_packet(&packet(8)), None);
        assert_eq!(Owner::of_packet(&packet(12)[..17]), None);
    }

    #[test]
    fn no_two_ids_are_equal() {
        let mut owner = Owner { socket: 0, turn: 0 };
        let mut ids: Vec<_> = (0..1000).map(|_| owner.generate_cid().to_vec()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 1000);
    }
}
