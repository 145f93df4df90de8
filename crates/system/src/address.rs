//! Addresses of clients, listeners and peers: an IP socket or a Unix path.
//!
//! Written as nginx writes them in logs and variables: `1.2.3.4:80`, `[::1]:80`, `unix:/path`, and
//! `unix:` for a client that has no path.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use rustix::net::{SocketAddrAny, SocketAddrUnix};

/// An address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A Unix socket; the path is empty for an unnamed client.
    Unix(PathBuf),
}

impl Address {
    /// An address as the kernel gave it; IPv4 that came through an IPv6 socket becomes IPv4.
    pub fn of_kernel(any: &SocketAddrAny) -> Self {
        if let Ok(mut address) = SocketAddr::try_from(any.clone()) {
            address.set_ip(address.ip().to_canonical());
            return Address::Inet(address);
        }
        let unix = SocketAddrUnix::try_from(any.clone()).ok();
        let path = unix.as_ref().and_then(SocketAddrUnix::path);
        let text = path.as_deref().and_then(|path| path.to_str().ok());
        Address::Unix(text.map(PathBuf::from).unwrap_or_default())
    }

    /// The IP address, unless it is a Unix socket.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Address::Inet(address) => Some(address.ip()),
            Address::Unix(_) => None,
        }
    }

    /// The port; 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        match self {
            Address::Inet(address) => address.port(),
            Address::Unix(_) => 0,
        }
    }

    /// The host part as `$remote_addr` and `$server_addr` show it: an IP without brackets, or
    /// `unix:`.
    pub fn host_text(&self) -> String {
        match self {
            Address::Inet(address) => address.ip().to_string(),
            Address::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

/// As in a configuration and in `$upstream_addr`: `127.0.0.1:80`, `[::1]:80`, `unix:/path`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Inet(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_nginx_writes_them() {
        let cases = [
            (
                Address::Inet("127.0.0.1:80".parse().unwrap()),
                "127.0.0.1:80",
                "127.0.0.1",
            ),
            (
                Address::Inet("[::1]:8080".parse().unwrap()),
                "[::1]:8080",
                "::1",
            ),
            (Address::Unix("/run/x".into()), "unix:/run/x", "unix:/run/x"),
        ];
        for (address, whole, host) in cases {
            assert_eq!(address.to_string(), whole);
            assert_eq!(address.host_text(), host);
        }
    }
}
