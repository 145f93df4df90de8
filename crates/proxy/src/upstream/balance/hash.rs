//! `hash`, `ip_hash`: a key decides.
//!
//! Three functions, all of them nginx's, so that clusters of both agree:
//!
//! - `hash KEY`: CRC-32 of the key, its upper half without the sign, modulo the sum of the weights;
//!   after a miss, the hash of the number of the miss and the key is added (Cache::Memcached's).
//! - `hash KEY consistent`: each server has 160 points for each unit of weight on a ring of 2³²
//!   (CRC-32 of host, a zero byte, port, and the point before in little endian); the first point
//!   not below the CRC-32 of the key is taken, after a miss the one behind
//!   (Cache::Memcached::Fast's).
//! - `ip_hash`: over the first three bytes of an IPv4 address or all of an IPv6 one,
//!   h ← (113 h + b) mod 6271, begun with 89; after a miss it goes round again.
//!
//! Invariant: the points of a ring are sorted, and no two have the same hash.

use bytes::Bytes;
use flate2::Crc;
use millpond_system::address::Address;
use millpond_system::clock::Instant;

use super::Selection;
use super::round_robin::turn;
use crate::upstream::group::Tier;
use crate::upstream::peer::Peer;
use std::net::IpAddr;
use std::sync::Arc;

/// Points of a server on a ring for each unit of its weight (nginx's number).
const POINTS: u32 = 160;

/// Numbers that `ip_hash` begins with, multiplies by and divides by (nginx's numbers).
const ADDRESS_SEED: u32 = 89;
const ADDRESS_FACTOR: u32 = 113;
const ADDRESS_MODULUS: u32 = 6271;

/// A point of a ring: its hash, and the server it stands for.
pub(crate) type Point = (u32, Arc<str>);

/// The bytes of a client's address that `ip_hash` goes by.
pub(crate) fn address_key(address: &Address) -> Bytes {
    match address.ip() {
        Some(IpAddr::V4(ip)) => Bytes::copy_from_slice(ip.octets().get(..3).unwrap_or_default()),
        Some(IpAddr::V6(ip)) => Bytes::copy_from_slice(&ip.octets()),
        None => Bytes::from_static(&[0; 3]),
    }
}

fn crc(parts: &[&[u8]]) -> u32 {
    let mut crc = Crc::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.sum()
}

/// The ring of a tier.
pub(crate) fn ring(peers: &[Arc<Peer>]) -> Vec<Point> {
    let mut points = Vec::new();
    for peer in peers {
        let server = &peer.settings.server;
        let (host, port) = host_and_port(server);
        let mut hash = 0u32;
        for _ in 0..peer.settings.weight.saturating_mul(POINTS) {
            let parts = [host.as_bytes(), &[0], port.as_bytes(), &hash.to_le_bytes()];
            hash = crc(&parts);
            points.push((hash, Arc::clone(server)));
        }
    }
    points.sort_by_key(|point| point.0);
    points.dedup_by_key(|point| point.0);
    points
}

/// A server's text at its last colon, when only digits follow; a socket's path has no port.
fn host_and_port(server: &str) -> (&str, &str) {
    if let Some(path) = server.get(5..)
        && server
            .get(..5)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("unix:"))
    {
        return (path, "");
    }
    match server.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
        _ => (server, ""),
    }
}

/// The peer that a hash falls to, by the weights.
fn by_weight(tier: &Tier, hash: u32) -> Option<usize> {
    tier.at_weight(u64::from(hash).checked_rem(tier.total_weight)?)
}

impl Selection {
    pub(super) fn by_hash(&mut self, tier: &Tier, now: Instant) -> Option<usize> {
        if tier.peers.len() < 2 || self.key().is_empty() {
            return self.in_turn(tier, now);
        }
        while self.misses <= super::MAX_MISSES {
            let hash = match self.rehashes {
                0 => crc(&[self.key()]),
                count => crc(&[count.to_string().as_bytes(), self.key()]),
            };
            let sum = self.place.unwrap_or(0).wrapping_add((hash >> 16) & 0x7fff);
            self.place = Some(sum);
            self.rehashes += 1;
            let index = by_weight(tier, sum)?;
            if self.may_at(tier, index, now) {
                return Some(index);
            }
            self.missed();
        }
        self.in_turn(tier, now)
    }

    pub(super) fn by_address(&mut self, tier: &Tier, now: Instant) -> Option<usize> {
        if tier.peers.len() < 2 {
            return self.in_turn(tier, now);
        }
        let mut hash = self.place.unwrap_or(ADDRESS_SEED);
        while self.misses <= super::MAX_MISSES {
            for byte in self.key() {
                hash = (hash * ADDRESS_FACTOR + u32::from(*byte)) % ADDRESS_MODULUS;
            }
            let index = by_weight(tier, hash)?;
            if self.may_at(tier, index, now) {
                self.place = Some(hash);
                return Some(index);
            }
            self.missed();
        }
        self.in_turn(tier, now)
    }

    pub(super) fn on_ring(&mut self, tier: &Tier, now: Instant) -> Option<usize> {
        if self.key().is_empty() {
            return self.in_turn(tier, now);
        }
        let ring = &tier.ring;
        while self.misses <= super::MAX_MISSES {
            let place = self.place.unwrap_or_else(|| {
                let hash = crc(&[self.key()]);
                ring.partition_point(|point| point.0 < hash) as u32
            });
            self.place = Some(place);
            let (_, server) = ring.get((place as usize).checked_rem(ring.len())?)?;
            let found = turn(tier, |index, peer| {
                self.may(index, peer, now) && peer.settings.server == *server
            });
            if found.is_some() {
                return found;
            }
            self.place = Some(place.wrapping_add(1));
            self.missed();
        }
        self.in_turn(tier, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_cut_at_a_port_of_digits() {
        for (server, expected) in [
            ("a:80", ("a", "80")),
            ("a", ("a", "")),
            ("unix:/tmp/a:1", ("/tmp/a:1", "")),
            ("[::1]:80", ("[::1]", "80")),
            ("[::1]", ("[::1]", "")),
            ("127.0.0.1:8081", ("127.0.0.1", "8081")),
        ] {
            assert_eq!(host_and_port(server), expected, "{server}");
        }
    }

    #[test]
    fn an_ip4_client_is_known_by_its_network() {
        for (address, key) in [
            ("10.1.2.3:5", &[10, 1, 2][..]),
            ("[::1]:5", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ] {
            let address = Address::Inet(address.parse().unwrap());
            assert_eq!(address_key(&address), key);
        }
        assert_eq!(address_key(&Address::Unix("/x".into())), &[0, 0, 0][..]);
    }
}
