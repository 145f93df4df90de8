//! Packets between two processes that read the same sockets, while a binary is changed.
//!
//! A message is a packet with what is known of it:
//!
//! | bytes | |
//! |---|---|
//! | 0 | congestion notification: 0 to 3 |
//! | 1 to 19 | the sender: 4 or 6, the address in 16 bytes, the port big-endian |
//! | 20 to 38 | the address of the socket, in the same form |
//! | 39 to 57 | our address that it was sent to, in the same form with port 0; zeros if unknown |
//! | 58 … | the packet |
//!
//! Valid is a message of at least 58 bytes whose addresses begin with 4 or 6. Either process writes
//! and reads them. What the other one does not read in time is lost, as packets may be.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixDatagram as Plain;

use millpond_system::udp::{EcnCodepoint, Packet};
use tokio::net::UnixDatagram;

/// Bytes of an address.
const ADDRESS: usize = 19;
/// Bytes before the packet.
const HEAD: usize = 1 + 3 * ADDRESS;
/// Bytes of the longest message.
const MOST: usize = HEAD + 65_535;

/// The other process.
#[derive(Debug)]
pub(super) struct Kin(UnixDatagram);

impl Kin {
    /// The process at the other end of a socket.
    pub(super) fn new(socket: Plain) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        UnixDatagram::from_std(socket).map(Kin)
    }

    /// Sends a packet that came to the socket of an address; false if the process is gone.
    pub(super) fn send(&self, address: SocketAddr, packet: &Packet<'_>) -> bool {
        match self.0.try_send(&message(address, packet)) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    /// Receives packets, without an end: that the process is gone shows when something is sent.
    pub(super) async fn receive(&self, take: impl Fn(SocketAddr, &Packet<'_>)) {
        let mut room = vec![0; MOST];
        while let Ok(len) = self.0.recv(&mut room).await {
            let read = room.get(..len).and_then(read);
            if let Some((address, packet)) = read {
                take(address, &packet);
            }
        }
    }
}

fn message(address: SocketAddr, packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + packet.bytes.len());
    out.push(packet.ecn.map_or(0, |ecn| ecn as u8));
    write(&mut out, packet.remote);
    write(&mut out, address);
    match packet.local {
        Some(ip) => write(&mut out, SocketAddr::new(ip, 0)),
        None => out.extend_from_slice(&[0; ADDRESS]),
    }
    out.extend_from_slice(packet.bytes);
    out
}

fn write(out: &mut Vec<u8>, address: SocketAddr) {
    let (version, ip) = match address.ip() {
        IpAddr::V4(ip) => (4, ip.to_ipv6_mapped()),
        IpAddr::V6(ip) => (6, ip),
    };
    out.push(version);
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&address.port().to_be_bytes());
}

fn read(message: &[u8]) -> Option<(SocketAddr, Packet<'_>)> {
    let (head, bytes) = message.split_at_checked(HEAD)?;
    let (ecn, addresses) = head.split_first()?;
    let mut addresses = addresses.chunks_exact(ADDRESS).map(address);
    let remote = addresses.next()??;
    let bound = addresses.next()??;
    let local = addresses.next()?;
    let packet = Packet {
        remote,
        local: local.map(|address| address.ip()),
        ecn: EcnCodepoint::from_bits(*ecn),
        bytes,
    };
    Some((bound, packet))
}

fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let (version, rest) = bytes.split_first()?;
    let (octets, port) = rest.split_first_chunk::<16>()?;
    let number = u16::from_be_bytes(port.try_into().ok()?);
    let wide = Ipv6Addr::from(*octets);
    match version {
        4 => {
            let narrow = wide.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED);
            Some(SocketAddr::new(IpAddr::V4(narrow), number))
        }
        6 => Some(SocketAddr::new(IpAddr::V6(wide), number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in() {
        let of_four: SocketAddr = "192.0.2.1:443".parse().unwrap();
        let of_six: SocketAddr = "[2001:db8::1]:443".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:7".parse().unwrap();
        for (remote, bound, local) in [
            (of_four, of_four, Some(of_four.ip())),
            (of_six, of_six, None),
            (mapped, of_six, Some(mapped.ip())),
        ] {
            let packet = Packet {
                remote,
                local,
                ecn: EcnCodepoint::from_bits(2),
                bytes: b"a packet",
            };
            let sent = message(bound, &packet);
            let (address, came) = read(&sent).unwrap();
            assert_eq!(address, bound);
            let facts = (came.remote, came.local, came.ecn, came.bytes);
            assert_eq!(facts, (remote, local, packet.ecn, packet.bytes));
        }
    }

    #[test]
    fn what_is_no_message_is_none() {
        assert!(read(&[]).is_none());
        assert!(read(&[0; HEAD - 1]).is_none());
        assert!(read(&[0; HEAD]).is_none(), "no address");
    }

    #[tokio::test]
    async fn nothing_is_sent_to_a_process_that_is_gone() {
        let (ours, theirs) = Plain::pair().unwrap();
        let kin = Kin::new(ours).unwrap();
        let packet = Packet {
            remote: ([127, 0, 0, 1], 1).into(),
            local: None,
            ecn: None,
            bytes: b"a packet",
        };
        // Until the socket is known to be writable nothing is tried.
        kin.0.writable().await.unwrap();
        assert!(kin.send(packet.remote, &packet));
        drop(theirs);
        assert!(!kin.send(packet.remote, &packet));
    }
}
