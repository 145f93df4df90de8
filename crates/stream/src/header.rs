//! `proxy_protocol`: the header that tells a peer who the client is.
//!
//! Source: HAProxy, doc/proxy-protocol.txt; version 2 with the checksum that nginx adds
//! (PP2_TYPE_CRC32C).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bytes::{BufMut, BytesMut};
use millpond_conf::Words;
use millpond_proxy::request::Request;
use millpond_system::address::Address;

/// Begin of a header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The type of a checksum.
const CHECKSUM: u8 = 0x03;
/// Bytes of a checksum with its type and length.
const CHECKSUM_LEN: usize = 7;
/// The polynomial of CRC-32C, its bits in the order in which they are used.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The header of the PROXY protocol that a peer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum HeaderVersion {
    /// None.
    #[word("off")]
    Off,
    /// Version 1.
    #[word("on")]
    Line,
    /// Version 2.
    #[word("v2")]
    Binary,
}

/// The header that a peer is sent before a session's bytes.
pub(crate) fn of(req: &Request, version: HeaderVersion) -> Option<BytesMut> {
    let write = match version {
        HeaderVersion::Off => return None,
        HeaderVersion::Line => write_line,
        HeaderVersion::Binary => write_binary,
    };
    let mut out = BytesMut::new();
    // nginx: the client's address is that of `set_real_ip_from`.
    let client = req.client.remote.borrow();
    write(&client, &req.client.connection.local, &mut out);
    Some(out)
}

/// Appends a header of version 1.
fn write_line(client: &Address, local: &Address, out: &mut BytesMut) {
    let text = match (client, local) {
        (Address::Inet(client), Address::Inet(local)) => {
            let family = if client.is_ipv4() { 4 } else { 6 };
            format!(
                "PROXY TCP{family} {} {} {} {}\r\n",
                client.ip(),
                local.ip(),
                client.port(),
                local.port()
            )
        }
        // nginx: a client of a Unix socket has no address that could be told.
        _ => "PROXY UNKNOWN\r\n".to_string(),
    };
    out.extend_from_slice(text.as_bytes());
}

/// Appends a header of version 2.
fn write_binary(client: &Address, local: &Address, out: &mut BytesMut) {
    let start = out.len();
    out.extend_from_slice(SIGNATURE);
    match (client, local) {
        (Address::Inet(client), Address::Inet(local)) => write_addresses(client, local, out),
        _ => {
            // The command LOCAL; no family, no addresses.
            out.extend_from_slice(&[0x20, 0]);
            out.put_u16(CHECKSUM_LEN as u16);
        }
    }
    out.extend_from_slice(&[CHECKSUM, 0, 4]);
    let at = out.len();
    out.put_u32(0);
    let sum = crc32c(out.get(start..).unwrap_or_default());
    if let Some(place) = out.get_mut(at..) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Appends the command PROXY, family and transport, length, addresses and ports.
fn write_addresses(client: &SocketAddr, local: &SocketAddr, out: &mut BytesMut) {
    match (client.ip(), local.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend_from_slice(&[0x21, 0x11]);
            out.put_u16((12 + CHECKSUM_LEN) as u16);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        // nginx: the family is the higher one of both; an IPv4 address is written as a mapped one.
        (from, to) => {
            out.extend_from_slice(&[0x21, 0x21]);
            out.put_u16((36 + CHECKSUM_LEN) as u16);
            out.extend_from_slice(&mapped(from).octets());
            out.extend_from_slice(&mapped(to).octets());
        }
    }
    out.put_u16(client.port());
    out.put_u16(local.port());
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// The checksum of RFC 9260, appendix A.
fn crc32c(bytes: &[u8]) -> u32 {
    let round = |crc: u32| {
        let carry = POLYNOMIAL & (crc & 1).wrapping_neg();
        (crc >> 1) ^ carry
    };
    let sum = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| round(crc))
    });
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inet(text: &str) -> Address {
        Address::Inet(text.parse().unwrap())
    }

    #[test]
    fn lines_name_the_family_and_both_ends() {
        for (client, local, expected) in [
            (
                inet("192.0.2.1:123"),
                inet("192.0.2.2:80"),
                "PROXY TCP4 192.0.2.1 192.0.2.2 123 80\r\n",
            ),
            (
                inet("[::1]:1"),
                inet("[::2]:2"),
                "PROXY TCP6 ::1 ::2 1 2\r\n",
            ),
            (
                Address::Unix("/x".into()),
                Address::Unix("/y".into()),
                "PROXY UNKNOWN\r\n",
            ),
        ] {
            let mut out = BytesMut::new();
            write_line(&client, &local, &mut out);
            assert_eq!(&out[..], expected.as_bytes());
        }
    }

    /// RFC 3720, appendix B.4.
    #[test]
    fn checksums_are_the_published_ones() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn binary_headers_have_lengths_that_fit() {
        for (client, local, family, len) in [
            (inet("1.2.3.4:5"), inet("6.7.8.9:10"), 0x11, 16 + 12 + 7),
            (inet("[::1]:1"), inet("6.7.8.9:10"), 0x21, 16 + 36 + 7),
            (Address::Unix("/x".into()), inet("1.1.1.1:1"), 0, 16 + 7),
        ] {
            let mut out = BytesMut::new();
            write_binary(&client, &local, &mut out);
            assert_eq!((out.len(), out[13]), (len, family));
            assert_eq!(
                usize::from(u16::from_be_bytes([out[14], out[15]])),
                len - 16
            );
        }
    }
}
