//! Variables of the connection and of the client behind it.
//!
//! Addresses are written without a port, IPv6 without brackets; a Unix client is `unix:`. The
//! numbers of connections are those of `stub_status`.

use std::net::{IpAddr, SocketAddr};

use millpond_system::address::Address;
use millpond_system::clock;

use super::Variable;
use super::number::{write_millis, write_number};
use crate::request::Request;
use millpond_exchange::stats::connections::ConnectionCount;
use millpond_wire::head::Version;
use millpond_wire::http3;

/// The variables of both ends of a connection, whatever it carries.
pub const ENDS: &[Variable] = &[
    Variable {
        name: "binary_remote_addr",
        doc: "The client's address as 4 or 16 bytes.",
        write: |req, out| write_binary(&req.client.remote.borrow(), out),
    },
    Variable {
        name: "connection",
        doc: "The number of the connection, from 1.",
        write: |req, out| write_number(req.client.connection.number, out),
    },
    Variable {
        name: "realip_remote_addr",
        doc: "The client's address as the kernel knows it.",
        write: |req, out| write_host(&req.client.connection.peer, out),
    },
    Variable {
        name: "realip_remote_port",
        doc: "The client's port as the kernel knows it.",
        write: |req, out| write_port(&req.client.connection.peer, out),
    },
    Variable {
        name: "remote_addr",
        doc: "The client's address, as the realip module may have changed it.",
        write: |req, out| write_host(&req.client.remote.borrow(), out),
    },
    Variable {
        name: "remote_port",
        doc: "The client's port.",
        write: |req, out| write_port(&req.client.remote.borrow(), out),
    },
    Variable {
        name: "server_addr",
        doc: "The address that the client connected to.",
        write: |req, out| write_host(&req.client.connection.local, out),
    },
    Variable {
        name: "server_port",
        doc: "The port that the client connected to.",
        write: |req, out| write_port(&req.client.connection.local, out),
    },
];

/// The variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "connection_requests",
        doc: "The number of requests on the connection so far, this one included.",
        write: |req, out| write_number(u64::from(req.client.number), out),
    },
    Variable {
        name: "connection_time",
        doc: "The age of the connection in seconds, with milliseconds.",
        write: |req, out| write_millis(clock::instant() - req.client.connection.accepted, out),
    },
    Variable {
        name: "connections_active",
        doc: "The number of open client connections.",
        write: |req, out| write_number(connections(req).active, out),
    },
    Variable {
        name: "connections_reading",
        doc: "The number of connections whose request head is being read.",
        write: |req, out| write_number(connections(req).reading, out),
    },
    Variable {
        name: "connections_waiting",
        doc: "The number of idle connections.",
        write: |req, out| write_number(connections(req).waiting(), out),
    },
    Variable {
        name: "connections_writing",
        doc: "The number of connections whose request is being answered.",
        write: |req, out| write_number(connections(req).writing, out),
    },
    Variable {
        name: "http2",
        doc: "\"h2\" for HTTP/2 over TLS, \"h2c\" for HTTP/2 in clear text, else empty.",
        write: |req, out| {
            if req.head.version() == Version::Http2 {
                let is_encrypted = req.client.connection.is_encrypted();
                out.extend_from_slice(if is_encrypted { b"h2" } else { b"h2c" });
            }
            true
        },
    },
    Variable {
        name: "http3",
        doc: "\"h3\" for HTTP/3, \"hq\" for HTTP/0.9 over QUIC, else empty.",
        write: |req, out| {
            let mut agreed = req.client.connection.tls.get().into_iter();
            if req.head.version() == Version::Http3 {
                out.extend_from_slice(b"h3");
            } else if agreed.any(|it| *it.alpn == *http3::PLAIN_ALPN) {
                out.extend_from_slice(b"hq");
            }
            true
        },
    },
    Variable {
        name: "pipe",
        doc: "\"p\" for a request that was sent before the last one was answered, else \".\".",
        write: |req, out| {
            out.push(if req.client.is_pipelined { b'p' } else { b'.' });
            true
        },
    },
];

/// Numbers of connections at one moment.
fn connections(req: &Request) -> ConnectionCount {
    req.worker().shared.connections.snapshot()
}

fn write_host(address: &Address, out: &mut Vec<u8>) -> bool {
    use std::io::Write as _;
    // Writing into a vector never fails.
    let _ = match address {
        Address::Inet(SocketAddr::V4(address)) => {
            write_ipv4(address.ip().octets(), out);
            Ok(())
        }
        Address::Inet(address) => write!(out, "{}", address.ip()),
        Address::Unix(_) => write!(out, "{}", address.host_text()),
    };
    true
}

/// Every line of most logs begins with one, and formatting it in general takes ten times as long.
fn write_ipv4(octets: [u8; 4], out: &mut Vec<u8>) {
    let mut text = [0; 16];
    let mut at = 0;
    for octet in octets {
        let (digits, len) = OCTETS[usize::from(octet)];
        // At most three digits and a dot for each of four.
        text[at..at + 4].copy_from_slice(&digits);
        at += usize::from(len);
    }
    out.extend_from_slice(&text[..at - 1]);
}

/// The text of each octet, with a dot behind it, and the count of its bytes.
const OCTETS: [([u8; 4], u8); 256] = {
    let mut all = [([b'.'; 4], 2); 256];
    let mut octet = 0;
    while octet < 256 {
        let (text, len) = &mut all[octet];
        // Three digits at most, each less than ten.
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        *len = if octet < 10 {
            2
        } else if octet < 100 {
            3
        } else {
            4
        };
        let mut at = 0;
        while at + 1 < *len as usize {
            text[at] = b'0' + digits[4 - *len as usize + at] as u8;
            at += 1;
        }
        octet += 1;
    }
    all
};

fn write_port(address: &Address, out: &mut Vec<u8>) -> bool {
    match address.port() {
        0 => true,
        port => write_number(u64::from(port), out),
    }
}

fn write_binary(address: &Address, out: &mut Vec<u8>) -> bool {
    match address.ip() {
        Some(IpAddr::V4(ip)) => out.extend_from_slice(&ip.octets()),
        Some(IpAddr::V6(ip)) => out.extend_from_slice(&ip.octets()),
        None => return write_host(address, out),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in [
            "0.0.0.0",
            "1.2.3.4",
            "10.20.99.100",
            "127.0.0.1",
            "255.255.255.255",
            "::1",
            "2001:db8::ff00:1",
        ] {
            let address = Address::Inet(SocketAddr::new(text.parse().unwrap(), 80));
            let mut out = Vec::new();
            assert!(write_host(&address, &mut out));
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn binary_addresses_are_their_bytes() {
        for (address, expected) in [
            (
                Address::Inet("1.2.3.4:5".parse().unwrap()),
                &b"\x01\x02\x03\x04"[..],
            ),
            (Address::Unix(Default::default()), b"unix:"),
        ] {
            let mut out = Vec::new();
            assert!(write_binary(&address, &mut out));
            assert_eq!(out, expected);
        }
    }
}
