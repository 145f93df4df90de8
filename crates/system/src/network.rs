//! Networks: sets of addresses as `allow`, `geo`, `set_real_ip_from` and their like write them.
//!
//! ```text
//! 192.0.2.0/24   2001:db8::/32   192.0.2.1   unix:
//! ```
//!
//! Invariants:
//! 1. A network's address has no bits beyond its prefix.
//! 2. An IPv4 address that came in IPv6's form (`::ffff:192.0.2.1`) is treated as IPv4.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use crate::address::Address;

/// A set of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// All clients of Unix sockets.
    Unix,
    /// IPv4 addresses with a common prefix.
    V4 {
        /// The prefix.
        base: u32,
        /// Length of the prefix, up to 32.
        bits: u8,
    },
    /// IPv6 addresses with a common prefix.
    V6 {
        /// The prefix.
        base: u128,
        /// Length of the prefix, up to 128.
        bits: u8,
    },
}

/// State of the bits beyond the prefix in a network as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowBits {
    /// No bits beyond the prefix were set.
    Clear,
    /// Bits beyond the prefix were set; they mean nothing.
    Set,
}

impl Network {
    /// Reads a network; `None` if it is none.
    pub fn parse(text: &str) -> Option<(Network, LowBits)> {
        if text == "unix:" {
            return Some((Network::Unix, LowBits::Clear));
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(parse_bits(bits)?)),
            None => (text, None),
        };
        let address = read_ip(address)?;
        let network = match address {
            IpAddr::V4(ip) => Network::v4(ip, bits.unwrap_or(32))?,
            IpAddr::V6(ip) => Network::v6(ip, bits.unwrap_or(128))?,
        };
        let is_clear = match (network, address) {
            (Network::V4 { base, .. }, IpAddr::V4(ip)) => base == ip.to_bits(),
            (Network::V6 { base, .. }, IpAddr::V6(ip)) => base == ip.to_bits(),
            _ => true,
        };
        let low = if is_clear {
            LowBits::Clear
        } else {
            LowBits::Set
        };
        Some((network, low))
    }

    /// The network of one address.
    pub fn of(ip: IpAddr) -> Network {
        match ip {
            IpAddr::V4(ip) => Network::V4 {
                base: ip.to_bits(),
                bits: 32,
            },
            IpAddr::V6(ip) => Network::V6 {
                base: ip.to_bits(),
                bits: 128,
            },
        }
    }

    fn v4(ip: Ipv4Addr, bits: u8) -> Option<Network> {
        let base = ip.to_bits() & mask_v4(bits)?;
        Some(Network::V4 { base, bits })
    }

    fn v6(ip: Ipv6Addr, bits: u8) -> Option<Network> {
        let base = ip.to_bits() & mask_v6(bits)?;
        Some(Network::V6 { base, bits })
    }

    /// True if the address is in the network.
    pub fn contains(&self, address: &Address) -> bool {
        match (self, address) {
            (Network::Unix, Address::Unix(_)) => true,
            (Network::Unix, _) | (_, Address::Unix(_)) => false,
            (_, Address::Inet(address)) => self.contains_ip(address.ip()),
        }
    }

    /// True if the IP address is in the network.
    pub fn contains_ip(&self, ip: IpAddr) -> bool {
        // INVARIANT 2.
        match (self, ip.to_canonical()) {
            (Network::V4 { base, bits }, IpAddr::V4(ip)) => {
                mask_v4(*bits).is_some_and(|mask| ip.to_bits() & mask == *base)
            }
            (Network::V6 { base, bits }, IpAddr::V6(ip)) => {
                mask_v6(*bits).is_some_and(|mask| ip.to_bits() & mask == *base)
            }
            _ => false,
        }
    }
}

/// The bits of an IPv4 prefix; none if there are no so many.
pub fn mask_v4(bits: u8) -> Option<u32> {
    let shift = 32u32.checked_sub(u32::from(bits))?;
    Some(u32::MAX.checked_shl(shift).unwrap_or(0))
}

/// The bits of an IPv6 prefix; none if there are no so many.
pub fn mask_v6(bits: u8) -> Option<u128> {
    let shift = 128u32.checked_sub(u32::from(bits))?;
    Some(u128::MAX.checked_shl(shift).unwrap_or(0))
}

/// An IP address of a configuration.
///
/// nginx: the four parts of IPv4 are decimal whatever they begin with, and an empty one is 0.
pub fn read_ip(text: &str) -> Option<IpAddr> {
    match read_v4(text) {
        Some(ip) => Some(IpAddr::V4(ip)),
        None => text.parse().ok(),
    }
}

/// An IPv4 address of a configuration, as [`read_ip`] reads it.
pub fn read_v4(text: &str) -> Option<Ipv4Addr> {
    let mut parts = text.split('.').map(read_part);
    let mut part = || parts.next().flatten();
    let read = [part()?, part()?, part()?, part()?];
    parts.next().is_none().then(|| Ipv4Addr::from(read))
}

fn read_part(text: &str) -> Option<u8> {
    text.bytes().try_fold(0_u8, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

fn parse_bits(text: &str) -> Option<u8> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

/// Choice between the word of the last proxy only, and that of all trusted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recursive {
    /// The last address of the list is the client's.
    No,
    /// The last one that is not a trusted proxy's.
    Yes,
}

/// The client's address behind trusted proxies, from lists of addresses such as X-Forwarded-For.
///
/// `lists` are the values of all fields, in order; `peer` is who sent them. `None` if the peer is
/// not trusted or the list's end is no address.
pub fn forwarded<'a>(
    peer: &Address,
    lists: impl DoubleEndedIterator<Item = &'a [u8]>,
    trusted: &[Network],
    recursive: Recursive,
) -> Option<Address> {
    let is_trusted = |address: &Address| trusted.iter().any(|network| network.contains(address));
    let mut found: Option<Address> = None;
    for list in lists.rev() {
        let items = list.rsplit(|byte| matches!(byte, b' ' | b','));
        for item in items.filter(|item| !item.is_empty()) {
            if !is_trusted(found.as_ref().unwrap_or(peer)) {
                return found;
            }
            let Some(address) = parse_address(item) else {
                return found;
            };
            found = Some(address);
            if recursive == Recursive::No {
                return found;
            }
        }
        if recursive == Recursive::No {
            return found;
        }
    }
    found
}

/// The addresses of a host, asked of the system; this may take as long as its resolver waits.
///
/// For names in a configuration that are looked up when it is read. Under a fuzzer, which makes
/// names up, no name is known.
pub fn look_up(host: &str, port: u16) -> io::Result<impl Iterator<Item = SocketAddr>> {
    if cfg!(fuzzing) && host.parse::<IpAddr>().is_err() {
        return Err(io::ErrorKind::NotFound.into());
    }
    (host, port).to_socket_addrs()
}

/// The addresses of `host[:port]` or `unix:path`.
pub fn resolve(text: &str, default_port: u16) -> Result<Vec<Address>, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return match path {
            "" => Err("no path".to_string()),
            path => Ok(vec![Address::Unix(path.into())]),
        };
    }
    let (host, port) = split_port(text, default_port)?;
    if host.is_empty() {
        return Err("no host".to_string());
    }
    let found = look_up(bare(host), port).map_err(|_| "host not found".to_string())?;
    let mut addresses: Vec<Address> = Vec::new();
    for address in found.map(Address::Inet) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        Err("host not found".to_string())
    } else {
        Ok(addresses)
    }
}

/// The IP address that a host is, if it is one.
pub fn ip_of(host: &str) -> Option<IpAddr> {
    bare(host).parse().ok()
}

/// A host without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Host and port of an authority.
pub fn split_port(text: &str, default_port: u16) -> Result<(&str, u16), String> {
    let colon = match text.rfind(':') {
        Some(colon) if !text.get(colon..).unwrap_or_default().contains(']') => colon,
        _ => return Ok((text, default_port)),
    };
    let (host, port) = text.split_at(colon);
    match port.get(1..).unwrap_or_default().parse() {
        Ok(0) | Err(_) => Err("invalid port".to_string()),
        Ok(port) => Ok((host, port)),
    }
}

/// An IP address with or without a port; an IPv6 address with a port has brackets.
pub fn parse_address(text: &[u8]) -> Option<Address> {
    let text = str::from_utf8(text).ok()?;
    if text == "unix:" {
        return Some(Address::Unix(Default::default()));
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
        return Some(Address::Inet(SocketAddr::new(ip, 0)));
    }
    text.parse().ok().map(Address::Inet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::parse(text).unwrap().0
    }

    fn address(text: &str) -> Address {
        parse_address(text.as_bytes()).unwrap()
    }

    #[test]
    fn networks_contain_what_shares_their_prefix() {
        for (net, ip, expected) in [
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("::/0", "1.2.3.4", false),
            ("192.0.2.0/24", "192.0.2.255", true),
            ("192.0.2.0/24", "192.0.3.0", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("unix:", "unix:", true),
            ("unix:", "1.2.3.4", false),
            ("0.0.0.0/0", "unix:", false),
        ] {
            assert_eq!(network(net).contains(&address(ip)), expected, "{net} {ip}");
        }
    }

    #[test]
    fn low_bits_are_cut_and_told() {
        let (net, low) = Network::parse("192.0.2.1/24").unwrap();
        assert_eq!((net, low), (network("192.0.2.0/24"), LowBits::Set));
        for text in [
            "",
            "x",
            "1.2.3",
            "1.2.3.4/33",
            "1.2.3.4/",
            "::/129",
            "1.2.3.4/+1",
            "1.2.3.4.",
            "1.2.3.256",
            "1.2.3.-",
            "all",
        ] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }

    /// ngx_inet_addr(): digits add up, dots count.
    #[test]
    fn parts_of_networks_may_be_empty_or_begin_with_0() {
        for (text, expected) in [
            ("10.0.0./8", "10.0.0.0/8"),
            ("10..0.0/8", "10.0.0.0/8"),
            ("010.0.0.08", "10.0.0.8"),
            ("...", "0.0.0.0"),
        ] {
            assert_eq!(network(text), network(expected), "{text}");
        }
    }

    #[test]
    fn forwarded_addresses_are_taken_from_trusted_peers_only() {
        let trusted = [network("10.0.0.0/8"), network("127.0.0.1")];
        for (peer, lists, recursive, expected) in [
            (
                "127.0.0.1",
                &["192.0.2.1"][..],
                Recursive::No,
                Some("192.0.2.1"),
            ),
            ("192.0.2.9", &["192.0.2.1"], Recursive::No, None),
            (
                "127.0.0.1",
                &["192.0.2.1, 10.1.1.1"],
                Recursive::No,
                Some("10.1.1.1"),
            ),
            (
                "127.0.0.1",
                &["192.0.2.1, 10.1.1.1"],
                Recursive::Yes,
                Some("192.0.2.1"),
            ),
            (
                "127.0.0.1",
                &["1.1.1.1, 192.0.2.1,10.1.1.1"],
                Recursive::Yes,
                Some("192.0.2.1"),
            ),
            (
                "127.0.0.1",
                &["192.0.2.1", "10.1.1.1"],
                Recursive::Yes,
                Some("192.0.2.1"),
            ),
            (
                "127.0.0.1",
                &["192.0.2.1", "10.1.1.1"],
                Recursive::No,
                Some("10.1.1.1"),
            ),
            (
                "127.0.0.1",
                &["x, 10.1.1.1"],
                Recursive::Yes,
                Some("10.1.1.1"),
            ),
            ("127.0.0.1", &["x"], Recursive::Yes, None),
            (
                "127.0.0.1",
                &["192.0.2.1:80, "],
                Recursive::No,
                Some("192.0.2.1:80"),
            ),
            ("127.0.0.1", &[""], Recursive::No, None),
        ] {
            let lists = lists.iter().map(|list| list.as_bytes());
            let found = forwarded(&address(peer), lists, &trusted, recursive);
            assert_eq!(found, expected.map(address), "{peer} {expected:?}");
        }
    }

    #[test]
    fn authorities_are_split_at_their_port() {
        let cases = [
            ("a", Ok(("a", 80))),
            ("a:81", Ok(("a", 81))),
            ("[::1]", Ok(("[::1]", 80))),
            ("[::1]:82", Ok(("[::1]", 82))),
            ("a:", Err("invalid port".to_string())),
            ("a:0", Err("invalid port".to_string())),
            ("a:99999", Err("invalid port".to_string())),
        ];
        for (text, expected) in cases {
            assert_eq!(split_port(text, 80), expected, "{text}");
        }
    }
}
