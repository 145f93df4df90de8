//! Descriptors that were left open across the start of this program, by their numbers.
//!
//! Invariants:
//! 1. A descriptor is taken at most once, and only if it was left open on purpose: what this
//!    program opens closes on exec, and so does what was taken.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use millpond_proxy::downstream::listener;
use millpond_system::address::Address;

/// The listening socket that a descriptor number is, if it is one that another process left us.
pub(crate) fn listener(number: RawFd) -> Option<(Address, OwnedFd)> {
    let fd = take(number)?;
    if !rustix::net::sockopt::socket_acceptconn(&fd).ok()? {
        return None;
    }
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok()?;
    rustix::io::ioctl_fionbio(&fd, true).ok()?;
    let address = Address::of_kernel(&rustix::net::getsockname(&fd).ok()?);
    if matches!(address, Address::Inet(_)) {
        // So that sockets of further workers may join it.
        rustix::net::sockopt::set_socket_reuseport(&fd, true).ok()?;
    }
    listener::prepare(&fd, &address).ok()?;
    Some((address, fd))
}

/// The socket that a descriptor number is, of TCP or of UDP, if it is one that another process left
/// us; true for one of UDP.
pub(crate) fn any(number: RawFd) -> Option<(Address, bool, OwnedFd)> {
    if !is_datagram(number)? {
        let (address, fd) = listener(number)?;
        return Some((address, false, fd));
    }
    if is_local(number)? {
        return None;
    }
    let fd = take(number)?;
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok()?;
    rustix::io::ioctl_fionbio(&fd, true).ok()?;
    // So that sockets of further workers may join it.
    rustix::net::sockopt::set_socket_reuseport(&fd, true).ok()?;
    let address = Address::of_kernel(&rustix::net::getsockname(&fd).ok()?);
    matches!(address, Address::Inet(_)).then_some((address, true, fd))
}

/// The end of a way of packets between two processes that a descriptor number is.
pub(crate) fn packets(number: RawFd) -> Option<UnixDatagram> {
    if !is_datagram(number)? || !is_local(number)? {
        return None;
    }
    let fd = take(number)?;
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok()?;
    Some(fd.into())
}

/// The connected socket that a descriptor number is, if it is one that another process left us.
pub(crate) fn stream(number: RawFd) -> Option<OwnedFd> {
    let fd = take(number)?;
    rustix::net::getpeername(&fd).ok()?;
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok()?;
    Some(fd)
}

/// True for a socket of datagrams; none for what is no socket, or was not left open on purpose.
#[allow(unsafe_code)]
fn is_datagram(number: RawFd) -> Option<bool> {
    if number <= 2 {
        return None;
    }
    // SAFETY: the number is only asked about here, which is an error if nothing is open there.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let kind = rustix::net::sockopt::socket_type(borrowed).ok()?;
    Some(kind == rustix::net::SocketType::DGRAM)
}

/// True for a socket that leads to processes of this machine only.
#[allow(unsafe_code)]
fn is_local(number: RawFd) -> Option<bool> {
    // SAFETY: the number is only asked about here, which is an error if nothing is open there.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let domain = rustix::net::sockopt::socket_domain(borrowed).ok()?;
    Some(domain == rustix::net::AddressFamily::UNIX)
}

/// Takes a descriptor that was left open across the start of this program. The standard streams
/// and what this program opened are not such: the latter all close on exec.
#[allow(unsafe_code)]
fn take(number: RawFd) -> Option<OwnedFd> {
    if number <= 2 {
        return None;
    }
    // SAFETY: the number is only asked about here, which is an error if nothing is open there.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = rustix::io::fcntl_getfd(borrowed).ok()?;
    if flags.contains(rustix::io::FdFlags::CLOEXEC) {
        return None;
    }
    // SAFETY: it is open, and nobody in this program owns it: what was opened here closes on exec,
    // as does each inherited one as soon as it is taken, so that none is taken twice.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
