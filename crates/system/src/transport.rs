//! A connection's transport: the way of its bytes, for clients and upstreams alike.
//!
//! The bytes go as they are, or encrypted. Whoever sends asks [`Transport::sends_files`]: a
//! transport that changes bytes on their way has no use for `sendfile`.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, RawFd};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;

use crate::body::FileRegion;
use crate::socket::{More, Socket};
use crate::tls_socket::TlsSocket;

/// The way of a connection's bytes.
pub enum Transport {
    /// The bytes as they are.
    Plain(Socket),
    /// TLS, or what may become it.
    Tls(Box<TlsSocket>),
}

impl Transport {
    /// The socket, where the transport is nothing more.
    pub fn into_socket(self) -> Result<Socket, Self> {
        match self {
            Transport::Plain(socket) => Ok(socket),
            Transport::Tls(_) => Err(self),
        }
    }

    /// True if bodies go out of files without a copy in this process.
    pub fn sends_files(&self) -> bool {
        match self {
            Transport::Plain(_) => true,
            Transport::Tls(socket) => !socket.is_encrypted(),
        }
    }

    /// Reads into the spare capacity of `buf`, which has some; 0 at the peer's end.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => socket.poll_recv(cx, buf),
            Transport::Tls(socket) => socket.poll_recv(cx, buf),
        }
    }

    /// Reads into `room`, which is not empty; 0 at the peer's end.
    pub fn poll_recv_into(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => socket.poll_recv_into(cx, room),
            Transport::Tls(socket) => socket.poll_recv_into(cx, room),
        }
    }

    /// Sends as much of `slices` as is taken.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: More,
    ) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => socket.poll_send(cx, slices, more),
            Transport::Tls(socket) => socket.poll_send(cx, slices, more),
        }
    }

    /// Sends bytes of a file; returns how many. The disk is waited for, if they are not in memory.
    pub fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        region: &FileRegion,
    ) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => socket.poll_sendfile(cx, region),
            Transport::Tls(socket) => socket.poll_sendfile(cx, region),
        }
    }

    /// Sends as many of the bytes as are taken now; returns how many.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.try_send(bytes),
            Transport::Tls(socket) => socket.try_send(bytes, &[]),
        }
    }

    /// As [`Self::try_send`], for bytes that stand in two places.
    pub fn try_send_both(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.try_send_both(first, second),
            Transport::Tls(socket) => socket.try_send(first, second),
        }
    }

    /// Sends as many of the bytes as are taken now, and all of them later if the transport has
    /// begun with them; returns how many are none of the caller's any more.
    pub fn offer(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.try_send(bytes),
            Transport::Tls(socket) => socket.offer(bytes),
        }
    }

    /// True when the peer's bytes ended in a way that lets something be missing.
    pub fn is_truncated(&self) -> bool {
        match self {
            Transport::Plain(_) => false,
            Transport::Tls(socket) => socket.is_truncated(),
        }
    }

    /// The socket with its session, if it has or may get one.
    pub fn tls(&self) -> Option<&TlsSocket> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(socket) => Some(socket),
        }
    }

    /// Waits until the peer has closed its side (true), or has sent what was not read (false).
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<bool> {
        match self {
            Transport::Plain(socket) => {
                // A socket that fails is closed.
                let _ = ready!(socket.poll_readable(cx));
                Poll::Ready(socket.is_closed_by_peer())
            }
            Transport::Tls(socket) => socket.poll_gone(cx),
        }
    }

    /// True when the peer has sent something that was not read; never waits.
    pub fn has_unread(&self) -> bool {
        match self {
            Transport::Plain(socket) => socket.has_unread(),
            Transport::Tls(socket) => socket.has_unread(),
        }
    }

    /// The first bytes that were received and not read, left in their place; see [`Socket::peek`].
    pub fn peek<'b>(&self, buf: &'b mut [u8]) -> io::Result<&'b [u8]> {
        match self {
            Transport::Plain(socket) => socket.peek(buf),
            Transport::Tls(socket) => socket.peek(buf),
        }
    }

    /// True when something was received, or the peer has closed its side, as far as the event loop
    /// has heard by now.
    pub fn has_heard(&self) -> bool {
        match self {
            Transport::Plain(socket) => socket.has_heard(),
            Transport::Tls(socket) => socket.has_heard(),
        }
    }

    /// Waits until the peer closes its side or sends something.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(socket) => socket.poll_readable(cx),
            Transport::Tls(socket) => socket.poll_readable(cx),
        }
    }

    /// Ends the sending side: the peer sees the end of the stream.
    pub fn shutdown_write(&self) {
        match self {
            Transport::Plain(socket) => socket.shutdown_write(),
            Transport::Tls(socket) => socket.shutdown_write(),
        }
    }

    /// Makes the close a reset.
    pub fn reset_on_close(&self) {
        match self {
            Transport::Plain(socket) => socket.reset_on_close(),
            Transport::Tls(socket) => socket.reset_on_close(),
        }
    }

    /// The descriptor's number, for logs.
    pub fn raw(&self) -> RawFd {
        match self {
            Transport::Plain(socket) => socket.raw(),
            Transport::Tls(socket) => socket.socket().raw(),
        }
    }

    /// The descriptor, for socket options.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Transport::Plain(socket) => socket.as_fd(),
            Transport::Tls(socket) => socket.socket().as_fd(),
        }
    }
}
