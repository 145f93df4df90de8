//! Sources of connections, and the limit of descriptors.
//!
//! An address has some 28,000 ports for connections to one server (`ip_local_port_range`), so a
//! crowd comes from many addresses of the loopback network, which need no set-up on Linux.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect as rustix_connect};
use rustix::net::{socket_with, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections from one address: a third of its ports, so that a free one is found at once.
const EACH: usize = 10_000;

/// The address that a connection comes from: 127.0.0.2 and those behind it.
pub(super) fn source(index: usize) -> Ipv4Addr {
    let number = u32::try_from(index / EACH).unwrap_or(0);
    Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + 1 + number)
}

/// A socket that is being connected, or is already.
pub(super) fn connect(source: Ipv4Addr, to: SocketAddrV4) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    if to.ip().is_loopback() {
        bind(&socket, &SocketAddrV4::new(source, 0))?;
    }
    match rustix_connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// Makes room for so many descriptors, in this process and in those that it starts, or for as many
/// as may be; returns how many there may be now.
pub fn make_room(count: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= count);
    let set = |current, maximum| setrlimit(Resource::Nofile, Rlimit { current, maximum }).is_ok();
    let all = Some(count);
    if is_enough(limit.current)
        || is_enough(limit.maximum) && set(all, limit.maximum)
        // Who may (CAP_SYS_RESOURCE) raises both.
        || set(all, all)
    {
        return count;
    }
    match limit.maximum {
        Some(most) if set(Some(most), Some(most)) => most,
        _ => limit.current.unwrap_or(count),
    }
}
