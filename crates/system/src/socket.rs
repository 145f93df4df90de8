//! A connected stream socket (TCP or Unix) on the worker's event loop.
//!
//! The calls follow readiness strictly: a read that returned less than was asked for clears it, so
//! that the next read waits for the kernel instead of asking it for nothing. A hit on a kept-alive
//! connection costs one `recv` and one `send`.
//!
//! Invariants:
//! 1. The descriptor is non-blocking.
//! 2. Readiness is cleared only after the kernel said, or implied by a short count, that there is
//!    no more.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::body::FileRegion;

/// Bytes that are copied together and sent as one piece: up to here the copy costs less than what
/// the kernel does to read a list of pieces (measured over loopback: 180 ns less for 1 KiB, 120 for
/// 4 KiB, nothing for 8 KiB).
pub const JOINED: usize = 4 * 1024;

thread_local! {
    /// Memory in which the bytes are copied together.
    static TOGETHER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Statement of the caller whether more bytes follow at once (the kernel may hold back a short
/// packet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// The caller will send more before it waits for anything.
    Follows,
    /// Send what there is.
    Nothing,
}

/// A non-blocking stream socket.
pub struct Socket {
    fd: AsyncFd<OwnedFd>,
}

impl Socket {
    /// Takes a connected or connecting socket onto the current runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Socket::accepted(fd)
    }

    /// Takes a socket that was accepted as a non-blocking one.
    pub fn accepted(fd: OwnedFd) -> io::Result<Self> {
        Ok(Socket { fd: watch(fd)? })
    }

    /// Takes the socket off the runtime.
    pub fn into_fd(self) -> OwnedFd {
        self.fd.into_inner()
    }

    /// The descriptor's number, for logs.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Reads into the spare capacity of `buf`; 0 at the peer's end.
    ///
    /// `buf` must have spare capacity.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.poll_read(cx, |fd| recv_spare(fd, buf))
    }

    /// Reads into `room`, which is not empty; 0 at the peer's end.
    pub fn poll_recv_into(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read(cx, |fd| {
            let (count, _) = rustix::net::recv(fd, &mut *room, RecvFlags::empty())?;
            Ok((count, room.len()))
        })
    }

    /// Reads what is there now into `room`, which is not empty; 0 at the peer's end.
    pub fn try_recv_into(&self, room: &mut [u8]) -> io::Result<usize> {
        let (count, _) = rustix::net::recv(self.fd.as_fd(), &mut *room, RecvFlags::DONTWAIT)?;
        Ok(count)
    }

    /// Reads into the spare capacity of `buf`; 0 at the peer's end.
    pub async fn recv(&self, buf: &mut BytesMut) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_recv(cx, buf)).await
    }

    /// Sends as much of `slices` as the socket takes.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: More,
    ) -> Poll<io::Result<usize>> {
        let flags = match more {
            More::Follows => SendFlags::NOSIGNAL | SendFlags::MORE,
            More::Nothing => SendFlags::NOSIGNAL,
        };
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if let [first, rest @ ..] = slices
            && (rest.is_empty() || len <= JOINED)
        {
            if rest.is_empty() {
                return self.poll_write(cx, |fd| rustix::net::send(fd, first, flags));
            }
            let mut joined = TOGETHER.take();
            joined.clear();
            for slice in slices {
                joined.extend_from_slice(slice);
            }
            let sent = self.poll_write(cx, |fd| rustix::net::send(fd, &joined, flags));
            TOGETHER.set(joined);
            return sent;
        }
        self.poll_write(cx, |fd| {
            let mut control = rustix::net::SendAncillaryBuffer::default();
            rustix::net::sendmsg(fd, slices, &mut control, flags)
        })
    }

    /// Sends as many of the bytes as the socket takes now; returns how many.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        until_full(|| rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL))
    }

    /// Sends like [`Self::try_send`], for bytes that stand in two places.
    pub fn try_send_both(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        let slices = [IoSlice::new(first), IoSlice::new(second)];
        until_full(|| {
            let mut control = rustix::net::SendAncillaryBuffer::default();
            rustix::net::sendmsg(&self.fd, &slices, &mut control, SendFlags::NOSIGNAL)
        })
    }

    /// Sends bytes of a file; returns how many.
    pub fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        region: &FileRegion,
    ) -> Poll<io::Result<usize>> {
        // Linux transfers at most 2 GiB less a page in one call.
        let count = region.len.min(0x7fff_f000) as usize;
        let file = match region.file.file() {
            Ok(file) => file,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let sent = std::task::ready!(self.poll_write(cx, |fd| {
            let mut offset = region.offset;
            rustix::fs::sendfile(fd, file, Some(&mut offset), count)
        }));
        if let Ok(count) = sent {
            region.file.note_taken(count as u64);
        }
        Poll::Ready(sent)
    }

    /// Waits until a connecting socket is connected, or says why it is not.
    pub async fn connected(&self) -> io::Result<()> {
        let _ready = self.fd.writable().await?;
        match rustix::net::sockopt::socket_error(self.fd.as_fd())? {
            Ok(()) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// True when the peer has closed its side and nothing is left to read; never waits.
    pub fn is_closed_by_peer(&self) -> bool {
        let mut byte = [0u8; 1];
        match rustix::net::recv(self.fd.as_fd(), &mut byte[..], RecvFlags::PEEK) {
            Ok((_, 0)) => true,
            Ok(_) => false,
            Err(errno) => errno != rustix::io::Errno::AGAIN,
        }
    }

    /// True when the peer has sent something that was not read; never waits.
    pub fn has_unread(&self) -> bool {
        has_unread(self.fd.as_fd())
    }

    /// The first bytes that were received and not read, left where they are, as many as fit: none
    /// when the peer has closed its side, or why there are none. Never waits.
    pub fn peek<'b>(&self, buf: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let (count, _) = rustix::net::recv(self.fd.as_fd(), &mut *buf, RecvFlags::PEEK)?;
        Ok(buf.get(..count).unwrap_or_default())
    }

    /// True when something was received, or the peer has closed its side, as far as the event loop
    /// has heard by now: a socket that is quiet costs no call. What arrived since the loop was last
    /// asked is not known.
    pub fn has_heard(&self) -> bool {
        let mut byte = [0u8; 1];
        let peeked = self.fd.try_io(Interest::READABLE, |fd| {
            Ok(rustix::net::recv(fd, &mut byte[..], RecvFlags::PEEK)?)
        });
        !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits until the peer closes its side or sends something.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            let mut byte = [0u8; 1];
            match rustix::net::recv(self.fd.as_fd(), &mut byte[..], RecvFlags::PEEK) {
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                _ => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Ends the sending side (the peer sees the end of the stream).
    pub fn shutdown_write(&self) {
        // A peer that is gone already is no news.
        let _ = rustix::net::shutdown(self.fd.as_fd(), rustix::net::Shutdown::Write);
    }

    /// Makes the close a reset: what was sent and not yet received is thrown away, and the kernel
    /// keeps nothing of the connection.
    pub fn reset_on_close(&self) {
        // A socket that is in trouble already is closed in any case.
        let _ = rustix::net::sockopt::set_socket_linger(self.fd.as_fd(), Some(Duration::ZERO));
    }

    /// The descriptor, for socket options.
    pub fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads when the socket is ready; `call` says how much came, and how much was asked for.
    fn poll_read(
        &self,
        cx: &mut Context<'_>,
        mut call: impl FnMut(std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<(usize, usize)>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            match call(self.fd.as_fd()) {
                Ok((count, asked)) => {
                    if count > 0 && count < asked {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    /// Writes first and asks for readiness only when the socket is full, which it seldom is.
    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        mut call: impl FnMut(std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match call(self.fd.as_fd()) {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(rustix::io::Errno::AGAIN) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
            // INVARIANT 2: readiness that is known by now is older than the kernel's word, since
            // the event loop runs on this thread, and not during a call.
            ready!(self.fd.poll_write_ready(cx))?.clear_ready();
            ready!(self.fd.poll_write_ready(cx))?.retain_ready();
        }
    }
}

/// One write that does not wait; 0 when the socket is full.
fn until_full(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Ok(count) => return Ok(count),
            Err(rustix::io::Errno::AGAIN) => return Ok(0),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Lets a socket of TCP wait for more before it sends a short packet; one of another kind stays as
/// it is.
pub fn delay_packets(fd: BorrowedFd<'_>) {
    // A socket that is in trouble already ends soon.
    let _ = rustix::net::sockopt::set_tcp_nodelay(fd, false);
}

/// Puts a descriptor on the current runtime's event loop.
#[allow(unsafe_code)]
pub fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps its one descriptor open until it is dropped, and the `AsyncFd`
    // that owns it ends the registration before that.
    unsafe { AsyncFd::register(fd) }.map_err(|error| error.into_parts().1)
}

/// True when the peer of a socket has sent something that was not read; never waits.
pub fn has_unread(fd: BorrowedFd<'_>) -> bool {
    rustix::io::ioctl_fionread(fd).is_ok_and(|count| count > 0)
}

/// One `recv` into the spare capacity; returns the count and what was asked for.
#[allow(unsafe_code)]
fn recv_spare(
    fd: std::os::fd::BorrowedFd<'_>,
    buf: &mut BytesMut,
) -> rustix::io::Result<(usize, usize)> {
    let spare = buf.spare_capacity_mut();
    let asked = spare.len();
    debug_assert!(asked > 0, "the caller reserves space before it reads");
    let ((filled, _), _) = rustix::net::recv(fd, spare, RecvFlags::empty())?;
    let count = filled.len();
    let len = buf.len() + count;
    // SAFETY: `recv` has initialised the first `count` bytes of the spare capacity, which begins
    // at the old length.
    unsafe { buf.set_len(len) };
    Ok((count, asked))
}
