//! The PROXY protocol (`listen … proxy_protocol`): what the balancer in front says of a
//! connection, before its first request.
//!
//! ```text
//! version 1   "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n"      "PROXY UNKNOWN …\r\n"
//! version 2   12 bytes │ 2,command │ family,transport │ length │ addresses │ type,length,value …
//! ```
//!
//! 1. Nothing of a connection is answered before its header was read and understood; one whose
//!    header is broken is closed, and logged.
//! 2. A header has at most `LINE_MAX` or `BINARY_MAX` bytes and is waited for as long as for
//!    the head of a request.
//!
//! A balancer that asks for itself (`UNKNOWN`, `LOCAL`), or for something that is no TCP over IP,
//! says nothing; its requests are those of the connection's peer. The checksum that version 2 may
//! have is not compared; nginx does not, either.
//!
//! Source: HAProxy, doc/proxy-protocol.txt.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::Poll;
use std::time::Duration;

use millpond_system::clock;
use millpond_system::log::error::Level;
use millpond_system::quota::Waiting;

use crate::log::request_error;
use crate::request::Request;
use crate::var::number::write_number;
use crate::var::{Variable, VariableFamily};
use millpond_exchange::client::carrier::Carrier;
use millpond_exchange::client::connection::Told;
use millpond_exchange::worker::Member;

/// The longest header of version 1 (given by the protocol).
const LINE_MAX: usize = 107;
/// The longest header of version 2 (nginx's bound).
const BINARY_MAX: usize = 4096;
/// Begin of a header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before the addresses.
const FIXED: usize = 16;

/// Values of version 2 that have names, by their numbers.
const NAMED: [(&[u8], u8); 5] = [
    (b"alpn", 0x01),
    (b"authority", 0x02),
    (b"unique_id", 0x05),
    (b"ssl", 0x20),
    (b"netns", 0x30),
];
/// Names of the values inside of `ssl`.
const NAMED_SSL: [(&[u8], u8); 5] = [
    (b"version", 0x21),
    (b"cn", 0x22),
    (b"cipher", 0x23),
    (b"sig_alg", 0x24),
    (b"key_alg", 0x25),
];
/// Bytes of `ssl` before what is inside of it: one of flags, four of the verification's result.
const SSL_FIXED: usize = 5;

/// Progress of reading a header.
#[derive(Debug, PartialEq, Eq)]
enum Header {
    /// The header is not whole.
    Partial,
    /// The header has so many bytes.
    Whole(usize, Option<Told>),
    /// The bytes are no header.
    Broken(&'static str),
}

/// The variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "proxy_protocol_addr",
        doc: "The client's address from the header of the PROXY protocol.",
        write: |req, out| write_ip(req, out, |told| told.source),
    },
    Variable {
        name: "proxy_protocol_port",
        doc: "The client's port from the header of the PROXY protocol.",
        write: |req, out| write_port(req, out, |told| told.source),
    },
    Variable {
        name: "proxy_protocol_server_addr",
        doc: "The address that the client connected to, from the header of the PROXY protocol.",
        write: |req, out| write_ip(req, out, |told| told.server),
    },
    Variable {
        name: "proxy_protocol_server_port",
        doc: "The port that the client connected to, from the header of the PROXY protocol.",
        write: |req, out| write_port(req, out, |told| told.server),
    },
];

/// The family.
pub const FAMILIES: &[VariableFamily] = &[VariableFamily {
    prefix: "proxy_protocol_tlv_",
    doc: "A value from the header of the PROXY protocol (version 2): `alpn`, `authority`, \
          `unique_id`, `ssl`, `netns`, inside of `ssl` `ssl_version`, `ssl_cn`, `ssl_cipher`, \
          `ssl_sig_alg`, `ssl_key_alg` and `ssl_verify`, or a number as `0x` and hexadecimal digits.",
    write: |req, name, out| match req.client.connection.told.get() {
        Some(told) => write_value(&told.values, name, out),
        None => false,
    },
}];

/// Reads the header where the address wants one, within `timeout`; false when the connection is to
/// be closed.
pub async fn read(carrier: &Carrier, timeout: Duration, member: &Member) -> bool {
    let now = clock::instant();
    let deadline = now + timeout;
    carrier.connection.waiting.set(Waiting::Idle(now));
    loop {
        let header = parse(&carrier.inbox.borrow());
        match header {
            Header::Whole(len, told) => {
                let _ = carrier.inbox.borrow_mut().split_to(len);
                if let Some(told) = told {
                    // The cell is empty: a connection has one header.
                    let _ = carrier.connection.told.set(Box::new(told));
                }
                return true;
            }
            Header::Broken(why) => {
                let message = format_args!("{why} while reading PROXY protocol");
                request_error::connection(&carrier.connection, Level::Error, message);
                return false;
            }
            Header::Partial => {}
        }
        let left = deadline.saturating_duration_since(clock::instant());
        match carrier
            .timer
            .guard_for(left, more(carrier, member, BINARY_MAX))
            .await
        {
            Ok(Ok(0)) | Err(_) => return false,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                let message = format_args!("{error} while reading PROXY protocol");
                request_error::connection(&carrier.connection, Level::Info, message);
                return false;
            }
        }
    }
}

/// Reads on, at least `size` bytes within reason; 0 at the end, also when the generation closes
/// before a byte was there.
pub async fn more(carrier: &Carrier, member: &Member, size: usize) -> io::Result<usize> {
    std::future::poll_fn(|cx| {
        if !carrier.inbox.borrow().is_empty() {
            let mut inbox = carrier.inbox.borrow_mut();
            if inbox.capacity() == inbox.len() {
                inbox.reserve(size);
            }
            return carrier.transport.poll_recv(cx, &mut inbox);
        }
        let read = carrier.poll_arrival(cx, size);
        if read.is_pending() {
            if carrier.connection.generation.is_closing() {
                return Poll::Ready(Ok(0));
            }
            if carrier.connection.is_displaced.get() {
                carrier.connection.count_displaced();
                return Poll::Ready(Ok(0));
            }
            member.register(cx.waker());
        }
        read
    })
    .await
}

fn parse(bytes: &[u8]) -> Header {
    let begun = bytes.len().min(SIGNATURE.len());
    if bytes.get(..begun) == SIGNATURE.get(..begun) {
        return match bytes.get(..FIXED) {
            None => Header::Partial,
            Some(fixed) => parse_binary(bytes, fixed),
        };
    }
    let line = bytes.get(..LINE_MAX).unwrap_or(bytes);
    match memchr::memmem::find(line, b"\r\n") {
        Some(end) => match parse_line(line.get(..end).unwrap_or_default()) {
            Some(told) => Header::Whole(end + 2, told),
            None => Header::Broken("broken header"),
        },
        None if line.len() < LINE_MAX && is_begun(line) => Header::Partial,
        None => Header::Broken("broken header"),
    }
}

/// True if a header of version 1 may begin so.
fn is_begun(line: &[u8]) -> bool {
    let begun = line.len().min(6);
    line.get(..begun) == b"PROXY ".get(..begun) && !line.contains(&b'\n')
}

/// Reads a line without its end; `Some(None)` if it says nothing.
fn parse_line(line: &[u8]) -> Option<Option<Told>> {
    let rest = line.strip_prefix(b"PROXY ")?;
    if rest.starts_with(b"UNKNOWN") {
        return Some(None);
    }
    let rest = match rest.strip_prefix(b"TCP4 ") {
        Some(rest) => rest,
        None => rest.strip_prefix(b"TCP6 ")?,
    };
    let mut words = str::from_utf8(rest).ok()?.split(' ');
    let mut ip = || words.next()?.parse::<IpAddr>().ok();
    let (source, server) = (ip()?, ip()?);
    let mut port = || {
        let word = words.next()?;
        let is_digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        is_digits.then(|| word.parse::<u16>().ok()).flatten()
    };
    let (source_port, server_port) = (port()?, port()?);
    if words.next().is_some() {
        return None;
    }
    Some(Some(Told {
        source: SocketAddr::new(source, source_port),
        server: SocketAddr::new(server, server_port),
        values: Box::default(),
    }))
}

fn parse_binary(bytes: &[u8], fixed: &[u8]) -> Header {
    let &[.., version_and_command, family_and_transport, high, low] = fixed else {
        return Header::Partial;
    };
    if version_and_command >> 4 != 2 {
        return Header::Broken("unknown PROXY protocol version");
    }
    let len = FIXED + usize::from(u16::from_be_bytes([high, low]));
    if len > BINARY_MAX {
        return Header::Broken("header is too large");
    }
    let Some(rest) = bytes.get(FIXED..len) else {
        return Header::Partial;
    };
    // The command PROXY, and a stream.
    if version_and_command & 0x0f != 1 || family_and_transport & 0x0f != 1 {
        return Header::Whole(len, None);
    }
    let told = match family_and_transport >> 4 {
        1 => addresses(rest, |octets: [u8; 4]| Ipv4Addr::from(octets).into()),
        2 => addresses(rest, |octets: [u8; 16]| Ipv6Addr::from(octets).into()),
        _ => return Header::Whole(len, None),
    };
    match told {
        Some(told) => Header::Whole(len, Some(told)),
        None => Header::Broken("broken header"),
    }
}

/// Two addresses, two ports, and values.
fn addresses<const N: usize>(rest: &[u8], ip: fn([u8; N]) -> IpAddr) -> Option<Told> {
    let (source, rest) = rest.split_first_chunk::<N>()?;
    let (server, rest) = rest.split_first_chunk::<N>()?;
    let (source_port, rest) = rest.split_first_chunk::<2>()?;
    let (server_port, values) = rest.split_first_chunk::<2>()?;
    Some(Told {
        source: SocketAddr::new(ip(*source), u16::from_be_bytes(*source_port)),
        server: SocketAddr::new(ip(*server), u16::from_be_bytes(*server_port)),
        values: values.into(),
    })
}

fn write_ip(req: &Request, out: &mut Vec<u8>, of: fn(&Told) -> SocketAddr) -> bool {
    let Some(told) = req.client.connection.told.get() else {
        return false;
    };
    out.extend_from_slice(of(told).ip().to_string().as_bytes());
    true
}

fn write_port(req: &Request, out: &mut Vec<u8>, of: fn(&Told) -> SocketAddr) -> bool {
    let Some(told) = req.client.connection.told.get() else {
        return false;
    };
    match of(told).port() {
        0 => true,
        port => write_number(u64::from(port), out),
    }
}

fn write_value(values: &[u8], name: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(inside) = name.strip_prefix(b"ssl_") else {
        return write_found(number(name, &NAMED).and_then(|it| find(values, it)), out);
    };
    let Some((fixed, rest)) =
        find(values, 0x20).and_then(|ssl| ssl.split_first_chunk::<SSL_FIXED>())
    else {
        return false;
    };
    if inside == b"verify" {
        let [_, verify @ ..] = *fixed;
        out.extend_from_slice(u32::from_be_bytes(verify).to_string().as_bytes());
        return true;
    }
    write_found(
        number(inside, &NAMED_SSL).and_then(|it| find(rest, it)),
        out,
    )
}

fn write_found(value: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(value.unwrap_or_default());
    value.is_some()
}

/// The number of a type, by its name or as it is written.
fn number(name: &[u8], named: &[(&[u8], u8)]) -> Option<u8> {
    if let Some(digits) = name.strip_prefix(b"0x") {
        let digits = str::from_utf8(digits)
            .ok()
            .filter(|it| !it.starts_with('+'))?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        return u8::try_from(number).ok();
    }
    let found = named.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number)
}

/// The first value of a type.
fn find(mut values: &[u8], wanted: u8) -> Option<&[u8]> {
    // Each round takes three bytes at least.
    loop {
        let (&[kind, high, low], rest) = values.split_first_chunk::<3>()?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
        if kind == wanted {
            return Some(value);
        }
        values = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(source: &str, server: &str) -> Option<Told> {
        Some(Told {
            source: source.parse().unwrap(),
            server: server.parse().unwrap(),
            values: Box::default(),
        })
    }

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = (rest.len() as u16).to_be_bytes();
        [SIGNATURE, &[command, family][..], &len, rest].concat()
    }

    /// 192.0.2.1:123 to 192.0.2.2:5678.
    const V4: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 0x16, 0x2e];

    #[test]
    fn lines_are_read_with_their_ends() {
        let v4 = told("192.0.2.1:123", "192.0.2.2:5678");
        let v6 = told("[2001:db8::1]:123", "[2001:db8::2]:5678");
        let broken = Header::Broken("broken header");
        for (text, expected) in [
            (
                "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\nGET",
                Header::Whole(41, v4),
            ),
            (
                "PROXY TCP6 2001:Db8::1 2001:Db8::2 123 5678\r\n",
                Header::Whole(45, v6),
            ),
            ("PROXY UNKNOWN\r\n", Header::Whole(15, None)),
            ("PROXY UNKNOWN 1 2 3 4 5 6\r\nGET", Header::Whole(27, None)),
            ("", Header::Partial),
            ("PRO", Header::Partial),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r", Header::Partial),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
        for text in [
            "GET / HTTP/1.1\r\n",
            "GET",
            "PROXY\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 123\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 123 65536\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 123 +1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678 9\r\n",
            "PROXY TCP4 192.0.2.1 x 123 5678\r\n",
            "PROXY TCP5 192.0.2.1 192.0.2.2 123 5678\r\n",
        ] {
            assert_eq!(parse(text.as_bytes()), broken, "{text}");
        }
        let long = format!("PROXY UNKNOWN {}", "x".repeat(LINE_MAX));
        assert_eq!(parse(long.as_bytes()), broken);
    }

    #[test]
    fn binary_headers_are_read_with_what_follows_their_addresses() {
        let whole = binary(0x21, 0x11, &V4);
        let expected = Header::Whole(28, told("192.0.2.1:123", "192.0.2.2:5678"));
        assert_eq!(parse(&whole), expected);
        for end in 1..whole.len() {
            assert_eq!(parse(&whole[..end]), Header::Partial, "{end}");
        }
        let mut v6 = vec![0; 36];
        (v6[15], v6[31], v6[33]) = (1, 2, 9);
        let expected = Header::Whole(52, told("[::1]:9", "[::2]:0"));
        assert_eq!(parse(&binary(0x21, 0x21, &v6)), expected);
        for (command, family, rest, expected) in [
            (0x20, 0x00, &[][..], Header::Whole(16, None)),
            (0x21, 0x12, &V4[..], Header::Whole(28, None)),
            (0x21, 0x31, &[1, 2][..], Header::Whole(18, None)),
            (0x21, 0x11, &V4[..11], Header::Broken("broken header")),
            (
                0x31,
                0x11,
                &V4[..],
                Header::Broken("unknown PROXY protocol version"),
            ),
            (
                0x21,
                0x11,
                &[0; 4081][..],
                Header::Broken("header is too large"),
            ),
        ] {
            assert_eq!(parse(&binary(command, family, rest)), expected);
        }
    }

    #[test]
    fn values_are_found_by_name_and_number() {
        let value = |kind: u8, text: &[u8]| [&[kind, 0, text.len() as u8], text].concat();
        let ssl = [&[1, 0, 0, 1, 0][..], &value(0x22, b"example.com")].concat();
        let values = [value(0x01, b"h2"), value(0x20, &ssl), value(0xae, b"")].concat();
        for (name, expected) in [
            ("alpn", Some("h2")),
            ("0x1", Some("h2")),
            ("0x00001", Some("h2")),
            ("ssl_cn", Some("example.com")),
            ("ssl_0x22", Some("example.com")),
            ("ssl_verify", Some("256")),
            ("0xae", Some("")),
            ("0x1ae", None),
            ("0x+1", None),
            ("0x", None),
            ("authority", None),
            ("ssl_version", None),
            ("none", None),
        ] {
            let mut out = Vec::new();
            let is_found = write_value(&values, name.as_bytes(), &mut out);
            let found = is_found.then(|| String::from_utf8(out).unwrap());
            assert_eq!(found.as_deref(), expected, "{name}");
        }
        // One that is cut off ends the search.
        assert_eq!(find(&[1, 0, 9, 1], 1), None);
    }
}
