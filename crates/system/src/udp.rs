//! UDP sockets for QUIC and for sessions of packets: packets in and out by the batch, and the
//! choice of the socket that gets a packet.
//!
//! Several sockets share an address (SO_REUSEPORT), one for each worker. The kernel chooses by the
//! addresses of a packet; a client whose address changes would come to another worker then. So a
//! group of QUIC has a program ([`choose_by_number`]) that reads a number in the packet:
//!
//! ```text
//! byte 0, bit 7 set    a long header: the begin of a connection; chosen by the addresses
//! byte 0, bit 7 clear  a short header: bytes 1 and 2, big-endian, are the socket's number
//! ```
//!
//! A number that no socket has is chosen by the addresses, too. Numbers are places in the group, in
//! which the kernel keeps sockets in the order of their binding, as long as none is closed.
//!
//! 1. The descriptor is non-blocking.
//! 2. Readiness is cleared only after the kernel said that there is no more.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;

use crate::socket;

pub use quinn_udp::{EcnCodepoint, Transmit};

/// Messages that are received at once. (Guessed: with packets joined by the kernel that is up to
/// 512 of them, more than a worker should take before it does something else.)
const MESSAGES: usize = 8;

/// Bytes of a message: the kernel joins packets up to the longest datagram that there is.
const MESSAGE: usize = 64 * 1024;

/// Bytes of packets that the kernel may hold for a socket. (Guessed: 20 ms at 1 Gbit/s; the kernel
/// allows less without its `net.core.rmem_max` raised.)
const RECEIVE_BUFFER: usize = 2 * 1024 * 1024;

/// A socket on the worker's event loop.
#[derive(Debug)]
pub struct UdpSocket {
    fd: AsyncFd<OwnedFd>,
    state: UdpSocketState,
}

/// Memory that packets are received into, for all sockets of a worker.
#[derive(Debug)]
pub struct ReceiveSpace {
    bytes: Box<[u8]>,
    metas: [RecvMeta; MESSAGES],
}

/// A packet that has come.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The sender.
    pub remote: SocketAddr,
    /// Our address that it was sent to, if the kernel says so.
    pub local: Option<IpAddr>,
    /// The bits of explicit congestion notification.
    pub ecn: Option<EcnCodepoint>,
    /// The payload.
    pub bytes: &'a [u8],
}

impl Default for ReceiveSpace {
    fn default() -> Self {
        ReceiveSpace {
            bytes: vec![0; MESSAGES * MESSAGE].into(),
            metas: [RecvMeta::default(); MESSAGES],
        }
    }
}

/// Permission to share an address with sockets that are bound to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// No: another socket on it is an error. Later ones of ours may join.
    Exclusive,
    /// Yes.
    Joined,
}

/// Addresses of version 4 at a socket of version 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Their packets come, too, as nginx's `ipv6only=off` has it.
    Taken,
    /// Their packets go elsewhere.
    Left,
}

/// Binds a socket to an address.
pub fn bind(address: SocketAddr, share: Share, mapped: Mapped) -> io::Result<OwnedFd> {
    let kind = Domain::for_address(address);
    let socket = Socket::new(kind, Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(mapped == Mapped::Left)?;
    }
    if share == Share::Joined {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(&address.into())?;
    // After an exclusive bind, so that it saw the sockets of others, and ours may join.
    socket.set_reuse_port(true)?;
    Ok(socket.into())
}

/// Has the kernel choose among the sockets of a group, of which `fd` is one, by the number in each
/// packet. There must be two at least: one alone is no group.
pub fn choose_by_number(fd: &OwnedFd) -> io::Result<()> {
    const LONG_HEADER: u32 = 0x80;
    const NONE: u32 = u32::MAX;
    let filter = |code: u32, k, jt| libc::sock_filter {
        // The codes of classic programs have 16 bits.
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let mut program = [
        filter(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0),
        filter(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, LONG_HEADER, 2),
        filter(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 1, 0),
        filter(libc::BPF_RET | libc::BPF_A, 0, 0),
        filter(libc::BPF_RET | libc::BPF_K, NONE, 0),
    ];
    let attached = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    setsockopt(fd, sockopt::AttachReusePortCbpf, &attached).map_err(io::Error::from)
}

impl UdpSocket {
    /// Takes a bound socket onto the current runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&fd))?;
        Ok(UdpSocket {
            fd: socket::watch(fd)?,
            state,
        })
    }

    /// The address that it is bound to.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let any = rustix::net::getsockname(self.fd.as_fd())?;
        SocketAddr::try_from(any).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Packets of equal length that [`UdpSocket::poll_send`] takes at once.
    pub fn segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// True if packets may be cut on their way, so that the longest that passes cannot be found.
    pub fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// Receives a batch of packets, at least one, and hands on each.
    pub fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        space: &mut ReceiveSpace,
        mut each: impl FnMut(Packet<'_>),
    ) -> Poll<io::Result<()>> {
        let ReceiveSpace { bytes, metas } = space;
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            let mut chunks = bytes.chunks_exact_mut(MESSAGE).map(IoSliceMut::new);
            // There are as many chunks.
            let mut messages: [IoSliceMut<'_>; MESSAGES] =
                std::array::from_fn(|_| chunks.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
            let socket = UdpSockRef::from(self.fd.get_ref());
            match self.state.recv(socket, &mut messages, metas) {
                Ok(count) => {
                    for (meta, message) in metas.iter().zip(&messages).take(count) {
                        cut(meta, message, &mut each);
                    }
                    return Poll::Ready(Ok(()));
                }
                // INVARIANT 2.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends a packet, or several of equal length to one address. An error concerns these packets
    /// only, which are lost then, as any may be.
    pub fn poll_send(&self, cx: &mut Context<'_>, transmit: &Transmit<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.fd.poll_write_ready(cx))?;
            let socket = UdpSockRef::from(self.fd.get_ref());
            match self.state.try_send(socket, transmit) {
                // INVARIANT 2.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

/// Hands on the packets that the kernel has joined to a message.
fn cut(meta: &RecvMeta, message: &[u8], each: &mut impl FnMut(Packet<'_>)) {
    let received = message.get(..meta.len).unwrap_or(message);
    let mut hand_on = |bytes| {
        each(Packet {
            remote: meta.addr,
            local: meta.dst_ip,
            ecn: meta.ecn,
            bytes,
        });
    };
    if received.is_empty() {
        return hand_on(received);
    }
    received.chunks(meta.stride.max(1)).for_each(hand_on);
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as Plain;

    use super::*;

    /// Sockets of one address, the first in the group first.
    fn group(count: usize) -> (Vec<Plain>, SocketAddr) {
        let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut sockets = Vec::new();
        for index in 0..count {
            let share = if index == 0 {
                Share::Exclusive
            } else {
                Share::Joined
            };
            let socket = Plain::from(bind(address, share, Mapped::Left).unwrap());
            address = socket.local_addr().unwrap();
            sockets.push(socket);
        }
        (sockets, address)
    }

    /// The place of the socket that the next packet has come to.
    fn receiver(sockets: &[Plain]) -> Option<usize> {
        let mut room = [0; 64];
        sockets.iter().position(|it| it.recv(&mut room).is_ok())
    }

    #[test]
    fn packet_with_a_number_comes_to_its_socket_whatever_its_sender() {
        let (sockets, address) = group(3);
        choose_by_number(&sockets[0].try_clone().unwrap().into()).unwrap();
        for number in 0..3u8 {
            for _ in 0..8 {
                let sender = Plain::bind("127.0.0.1:0").unwrap();
                sender.send_to(&[0x41, 0, number, 7], address).unwrap();
                assert_eq!(receiver(&sockets), Some(usize::from(number)));
            }
        }
    }

    #[test]
    fn packets_without_a_number_of_ours_come_to_some_socket_and_always_the_same() {
        let (sockets, address) = group(3);
        choose_by_number(&sockets[0].try_clone().unwrap().into()).unwrap();
        let sender = Plain::bind("127.0.0.1:0").unwrap();
        let cases: [&[u8]; 4] = [
            &[0xc0, 0, 1, 7],
            &[0xc0, 0, 2, 7],
            &[0xe0],
            &[0x41, 9, 9, 7],
        ];
        let mut places = cases.map(|bytes| {
            sender.send_to(bytes, address).unwrap();
            receiver(&sockets).unwrap()
        });
        places.sort_unstable();
        assert_eq!(places[0], places[3]);
    }

    #[test]
    fn an_address_that_another_has_is_refused_to_the_first_socket() {
        let (_theirs, address) = group(1);
        let error = bind(address, Share::Exclusive, Mapped::Left).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn packets_go_out_joined_and_come_in_one_by_one() {
        let (sockets, address) = group(1);
        let receiving = UdpSocket::new(sockets[0].try_clone().unwrap().into()).unwrap();
        assert_eq!(receiving.address().unwrap(), address);
        let sending = Plain::bind("127.0.0.1:0").unwrap();
        let remote = sending.local_addr().unwrap();
        let sending = UdpSocket::new(sending.into()).unwrap();
        let contents: Vec<u8> = (0..25).collect();
        let transmit = Transmit {
            destination: address,
            ecn: None,
            contents: &contents,
            segment_size: Some(10),
            src_ip: None,
        };
        std::future::poll_fn(|cx| sending.poll_send(cx, &transmit))
            .await
            .unwrap();
        let (mut space, mut came) = (ReceiveSpace::default(), Vec::new());
        while came.concat() != contents {
            std::future::poll_fn(|cx| {
                receiving.poll_recv(cx, &mut space, |packet| {
                    assert_eq!(packet.remote, remote);
                    assert_eq!(packet.local, Some(address.ip()));
                    came.push(packet.bytes.to_vec());
                })
            })
            .await
            .unwrap();
        }
        let lens: Vec<usize> = came.iter().map(Vec::len).collect();
        assert_eq!(lens, [10, 10, 5]);
    }
}
