//! Addresses that an origin may send this server to.
//!
//! An origin, or whoever can write to it, names any host in a redirect. So all addresses that the
//! internet does not route, or that a cloud answers on with keys and secrets, are refused, in each
//! form in which IPv6 can carry one of IPv4.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks that no origin sends anybody to, as base and bits (RFC 6890, and what clouds use).
const INNER_V4: [([u8; 4], u8); 17] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    // RFC 6598; Alibaba's metadata, too.
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    // Link-local, and the metadata of most clouds.
    ([169, 254, 0, 0], 16),
    // Azure's wire server.
    ([168, 63, 129, 16], 32),
    ([172, 16, 0, 0], 12),
    // RFC 6890; Oracle's metadata, too.
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    // Relays of 6to4, RFC 7526.
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    // Multicast, reserved and broadcast.
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
    ([255, 255, 255, 255], 32),
];

/// The networks of IPv6 that the internet routes: 2000::/3.
const ROUTED_V6: (u128, u32) = (0x2000 << 112, 3);
/// Networks within that it does not.
const INNER_V6: [(u128, u32); 5] = [
    // RFC 4380: Teredo has an address of IPv4 in it, masked.
    (0x2001_0000 << 96, 32),
    // RFC 5180, RFC 4843.
    (0x2001_0002 << 96, 48),
    (0x2001_0010 << 96, 28),
    // RFC 3849, RFC 9637.
    (0x2001_0db8 << 96, 32),
    (0x3fff << 112, 20),
];

/// True for an address that the internet routes.
pub(super) fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => match inside(ip) {
            Some(ip) => is_public_v4(ip),
            None => is_public_v6(ip),
        },
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let bits = ip.to_bits();
    let has = |(base, len): &([u8; 4], u8)| {
        let base = Ipv4Addr::from(*base).to_bits();
        (bits ^ base).leading_zeros() >= u32::from(*len)
    };
    !INNER_V4.iter().any(has)
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let bits = ip.to_bits();
    let has = |(base, len): &(u128, u32)| (bits ^ base).leading_zeros() >= *len;
    has(&ROUTED_V6) && !INNER_V6.iter().any(has)
}

/// The address of IPv4 that one of IPv6 carries: mapped, translated (RFC 6052) or of 6to4.
fn inside(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let of =
        |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => of(g, h),
        [0x2002, high, low, ..] => of(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_addresses_are_not_public_in_any_form() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "168.63.129.16",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:1::1",
            "2001:db8::1",
            "fd00:ec2::254",
            "fc00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn addresses_of_the_internet_are_public() {
        for text in [
            "1.1.1.1",
            "9.9.9.9",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "168.63.129.17",
            "192.0.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
