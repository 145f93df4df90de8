//! A socket of datagrams that is connected to one peer, on the worker's event loop.
//!
//! 1. The descriptor is non-blocking.
//! 2. Readiness is cleared only after the kernel said that there is no more: a short datagram says
//!    nothing about the next one.
//! 3. Nothing waits to write, so that a socket that becomes writable again tells of an error.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, SendFlags, SocketAddrAny};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

use crate::socket;

/// A connected socket of datagrams.
#[derive(Debug)]
pub struct DatagramSocket {
    fd: AsyncFd<OwnedFd>,
}

impl DatagramSocket {
    /// Takes a connected, non-blocking socket onto the current runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let fd = socket::watch(fd)?;
        Ok(DatagramSocket { fd })
    }

    /// Receives a datagram, which may be empty; what of it has no room is lost.
    pub fn poll_recv(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            // An error of the peer makes the socket writable only (INVARIANT 3).
            let ready = [self.fd.poll_read_ready(cx)?, self.fd.poll_write_ready(cx)?];
            if ready.iter().all(Poll::is_pending) {
                return Poll::Pending;
            }
            match rustix::net::recv(self.fd.as_fd(), &mut *room, RecvFlags::empty()) {
                Ok((count, _)) => return Poll::Ready(Ok(count)),
                // INVARIANT 2.
                Err(rustix::io::Errno::AGAIN) => clear(ready),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    /// Sends a datagram now, or not at all.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(
            self.fd.as_fd(),
            bytes,
            SendFlags::NOSIGNAL,
        )?)
    }

    /// The local address that the kernel gave it.
    pub fn local_address(&self) -> io::Result<SocketAddrAny> {
        Ok(rustix::net::getsockname(self.fd.as_fd())?)
    }
}

fn clear(ready: [Poll<AsyncFdReadyGuard<'_, OwnedFd>>; 2]) {
    for guard in ready {
        if let Poll::Ready(mut guard) = guard {
            guard.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[tokio::test]
    async fn datagrams_come_one_by_one_the_empty_ones_too() {
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        here.connect(there.local_addr().unwrap()).unwrap();
        here.set_nonblocking(true).unwrap();
        let own = here.local_addr().unwrap();
        let socket = DatagramSocket::new(here.into()).unwrap();
        assert_eq!(socket.try_send(b"question").unwrap(), 8);
        for sent in [&b"one"[..], b"", b"three"] {
            there.send_to(sent, own).unwrap();
        }
        let mut room = [0; 16];
        for expected in [3, 0, 5] {
            let count = std::future::poll_fn(|cx| socket.poll_recv(cx, &mut room)).await;
            assert_eq!(count.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn peer_that_is_away_is_an_error_for_one_that_waits() {
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        here.connect(there.local_addr().unwrap()).unwrap();
        here.set_nonblocking(true).unwrap();
        let socket = DatagramSocket::new(here.into()).unwrap();
        let mut room = [0; 16];
        drop(there);
        socket.try_send(b"question").unwrap();
        let error = std::future::poll_fn(|cx| socket.poll_recv(cx, &mut room)).await;
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
