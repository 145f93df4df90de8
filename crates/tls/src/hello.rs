//! The message with which a client begins: what it asks for and what it can do.
//!
//! ```text
//! record  type 22 | version 2 | length 2 | piece of a handshake message
//! message type 1 | length 3 | version 2 | random 32 | session id ‹1 | suites ‹2 | compression ‹1
//!         | extensions ‹2 of: type 2 | data ‹2                        (‹n: n bytes of length)
//! ```
//!
//! It is read here before rustls reads it again, because the name decides which context serves the
//! connection, and variables print what was offered.
//!
//! 1. No bytes make this panic; at most [`HELLO_MAX`] bytes are kept.
//! 2. What is wrong with a message that can be delimited is left to rustls to say: fields that
//!    cannot be read are empty.
//!
//! Sources: RFC 8446 §4.1.2, §5.1; RFC 6066 §3; RFC 7301 §3.1.

use crate::error::Error;
use crate::{group, suite};

/// The longest beginning of a connection that is kept, in bytes: rustls takes no handshake message
/// of more than 64 KiB, and each of its records has a head.
pub const HELLO_MAX: usize = 72 * 1024;

const RECORD_HEAD: usize = 5;
const MESSAGE_HEAD: usize = 4;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// Everything that a client asks for and offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    server_name: Option<Box<str>>,
    alpn: Vec<Box<[u8]>>,
    suites: Vec<u16>,
    groups: Vec<u16>,
    schemes: Vec<u16>,
    versions: Vec<u16>,
}

/// The first bytes of a connection, as far as they were read.
#[derive(Debug, PartialEq, Eq)]
pub enum Reading {
    /// More is needed.
    Partial,
    /// The whole message.
    Whole(Box<ClientHello>),
}

impl ClientHello {
    /// Reads the message in the first bytes of a connection.
    pub fn read(bytes: &[u8]) -> Result<Reading, Error> {
        Ok(match first_message(bytes)? {
            First::Needs(_) => Reading::Partial,
            First::Whole(message) => Reading::Whole(Box::new(parse(&message))),
        })
    }

    /// The count of bytes from which on it makes sense to read again, if more are needed.
    pub(crate) fn needed(bytes: &[u8]) -> usize {
        match first_message(bytes) {
            Ok(First::Needs(count)) => count,
            _ => 0,
        }
    }

    /// The name that the client asks for, in lower case.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The protocols inside that the client offers, most preferred first.
    pub fn alpn(&self) -> impl Iterator<Item = &[u8]> {
        self.alpn.iter().map(|name| &**name)
    }

    /// Numbers of the cipher suites.
    pub fn suites(&self) -> &[u16] {
        &self.suites
    }

    /// Numbers of the groups.
    pub fn groups(&self) -> &[u16] {
        &self.groups
    }

    /// Numbers of the signature schemes.
    pub fn schemes(&self) -> &[u16] {
        &self.schemes
    }

    /// Numbers of the versions: 0x0304 is TLS 1.3, 0x0303 TLS 1.2.
    pub fn versions(&self) -> &[u16] {
        &self.versions
    }

    /// True if all versions are older than TLS 1.2: of such a message rustls only says that it
    /// lacks what those versions have not.
    pub(crate) fn is_outdated(&self) -> bool {
        const TLS12: u16 = 0x0303;
        !self.versions.is_empty() && self.versions.iter().all(|version| *version < TLS12)
    }

    /// The cipher suites as `$ssl_ciphers` prints them.
    pub fn suites_text(&self) -> String {
        join(&self.suites, |number| {
            suite::name(number).map_or_else(|| format!("0x{number:04x}"), str::to_owned)
        })
    }

    /// The groups as `$ssl_curves` prints them.
    pub fn groups_text(&self) -> String {
        join(&self.groups, |number| {
            group::name(number).map_or_else(|| format!("0x{number:04x}"), str::to_owned)
        })
    }

    /// The signature schemes as `$ssl_sigalgs` prints them.
    pub fn schemes_text(&self) -> String {
        join(&self.schemes, |number| format!("0x{number:04x}"))
    }
}

fn join(numbers: &[u16], name: impl Fn(u16) -> String) -> String {
    let names: Vec<String> = numbers.iter().map(|number| name(*number)).collect();
    names.join(":")
}

/// The first handshake message, or the bytes that it lacks.
enum First {
    /// No less than these bytes, counted from the connection's first.
    Needs(usize),
    /// Without its head.
    Whole(Vec<u8>),
}

fn first_message(bytes: &[u8]) -> Result<First, Error> {
    let mut message = Vec::new();
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_first_chunk::<RECORD_HEAD>() {
        check_record(head)?;
        let len = usize::from(u16::from_be_bytes([head[3], head[4]]));
        let Some((record, next)) = behind.split_at_checked(len) else {
            return within_bound(bytes, len - behind.len());
        };
        message.extend_from_slice(record);
        if let Some(whole) = cut_message(&message)? {
            return Ok(First::Whole(whole));
        }
        rest = next;
    }
    within_bound(bytes, RECORD_HEAD - rest.len())
}

fn within_bound(bytes: &[u8], missing: usize) -> Result<First, Error> {
    if bytes.len() > HELLO_MAX {
        return Err(Error::peer(152, "excessive message size"));
    }
    Ok(First::Needs(bytes.len() + missing))
}

fn cut_message(message: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let Some((head, body)) = message.split_first_chunk::<MESSAGE_HEAD>() else {
        return Ok(None);
    };
    if head[0] != CLIENT_HELLO {
        return Err(Error::peer(244, "unexpected message"));
    }
    let len = usize::from(head[1]) << 16 | usize::from(head[2]) << 8 | usize::from(head[3]);
    if len > HELLO_MAX {
        return Err(Error::peer(152, "excessive message size"));
    }
    Ok(body.get(..len).map(<[u8]>::to_vec))
}

/// Says what a connection is that does not begin with TLS, in OpenSSL's sequence.
fn check_record(head: &[u8; RECORD_HEAD]) -> Result<(), Error> {
    const METHODS: [&[u8; RECORD_HEAD]; 4] = [b"GET /", b"POST ", b"HEAD ", b"PUT /"];
    let is_ssl2 = head[0] & 0x80 != 0 && head[2] == CLIENT_HELLO;
    match head {
        _ if is_ssl2 => Err(Error::peer(258, "unsupported protocol")),
        [HANDSHAKE, 3, ..] => Ok(()),
        [_, 3, ..] => Err(Error::peer(244, "unexpected message")),
        _ if METHODS.contains(&head) => Err(Error::peer(156, "http request")),
        b"CONNE" => Err(Error::peer(155, "https proxy request")),
        _ => Err(Error::peer(267, "wrong version number")),
    }
}

/// Bytes that are read from the front.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        let taken = self.take(bytes)?;
        Some(
            taken
                .iter()
                .fold(0, |number, byte| number << 8 | usize::from(*byte)),
        )
    }

    /// The bytes behind a length that takes `bytes` itself.
    fn vector(&mut self, bytes: usize) -> Option<Reader<'b>> {
        let len = self.number(bytes)?;
        self.take(len).map(Reader)
    }

    fn numbers(self) -> Vec<u16> {
        self.0
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect()
    }
}

fn parse(message: &[u8]) -> ClientHello {
    let mut hello = ClientHello::default();
    // What could be read stays.
    let _ = parse_into(&mut hello, message);
    hello
}

fn parse_into(hello: &mut ClientHello, message: &[u8]) -> Option<()> {
    let mut reader = Reader(message);
    let version = reader.number(2)?;
    hello.versions = vec![u16::try_from(version).ok()?];
    reader.take(32)?;
    reader.vector(1)?;
    hello.suites = reader.vector(2)?.numbers();
    reader.vector(1)?;
    let mut extensions = reader.vector(2)?;
    while let Some(kind) = extensions.number(2) {
        let data = extensions.vector(2)?;
        // What is wrong in one extension does not hide the others.
        let _ = read_extension(hello, kind, data);
    }
    Some(())
}

fn read_extension(hello: &mut ClientHello, kind: usize, mut data: Reader<'_>) -> Option<()> {
    match kind {
        0 => hello.server_name = read_server_name(data),
        10 => hello.groups = data.vector(2)?.numbers(),
        13 => hello.schemes = data.vector(2)?.numbers(),
        16 => {
            let mut names = data.vector(2)?;
            while let Some(name) = names.vector(1) {
                hello.alpn.push(name.0.into());
            }
        }
        43 => hello.versions = data.vector(1)?.numbers(),
        _ => {}
    }
    Some(())
}

fn read_server_name(mut data: Reader<'_>) -> Option<Box<str>> {
    let mut names = data.vector(2)?;
    while let Some(kind) = names.number(1) {
        let name = names.vector(2)?;
        if kind == 0 {
            let name = std::str::from_utf8(name.0).ok()?;
            return Some(name.to_ascii_lowercase().into());
        }
    }
    None
}
