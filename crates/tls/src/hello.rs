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
//! Sources: RFC 8446 §4.1.2, §5.1, §9.2; RFC 5746 §3.6; RFC 6066 §3; RFC 7301 §3.1; RFC 7507.

use crate::error::Error;
use crate::version::Versions;
use crate::{group, suite};

/// The longest beginning of a connection that is kept, in bytes: rustls takes no handshake message
/// of more than 64 KiB, and each of its records has a head.
pub const HELLO_MAX: usize = 72 * 1024;

/// The longest message that rustls takes; of a longer one it would say nothing to the client.
const MESSAGE_MAX: usize = 0xffff;

/// RFC 8446 §5.1: the longest content of a record that is not encrypted.
const RECORD_MAX: usize = 1 << 14;

const RECORD_HEAD: usize = 5;
const MESSAGE_HEAD: usize = 4;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// Numbers of extensions.
const SERVER_NAME: u16 = 0;
const GROUPS: u16 = 10;
const SCHEMES: u16 = 13;
const ALPN: u16 = 16;
const PRE_SHARED_KEY: u16 = 41;
const VERSIONS: u16 = 43;
const PSK_MODES: u16 = 45;
const KEY_SHARE: u16 = 51;
const RENEGOTIATION: u16 = 0xff01;

/// Everything that a client asks for and offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    server_name: Option<Box<str>>,
    alpn: Vec<Box<[u8]>>,
    suites: Vec<u16>,
    groups: Vec<u16>,
    schemes: Vec<u16>,
    versions: Vec<u16>,
    legacy_version: u16,
    /// Numbers of the extensions; none of a message that cannot be read to its end.
    kinds: Vec<u16>,
    /// True if there is a list of versions, whether or not it can be read.
    lists_versions: bool,
    is_renegotiating: bool,
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

    /// Reads the message in the first bytes of a stream of handshake messages, without records:
    /// QUIC's.
    pub(crate) fn read_message(bytes: &[u8]) -> Result<Reading, Error> {
        Ok(match cut_message(bytes)? {
            None => Reading::Partial,
            Some(message) => Reading::Whole(Box::new(parse(&message))),
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

    /// The version in the place where TLS 1.2 and older have theirs.
    pub fn legacy_version(&self) -> u16 {
        self.legacy_version
    }

    /// True if the client lists its versions, as those do that know TLS 1.3.
    pub fn lists_versions(&self) -> bool {
        self.lists_versions
    }

    /// True if all versions are older than TLS 1.2: of such a message rustls only says that it
    /// lacks what those versions have not. True as well if the message has the form of SSL,
    /// whatever it says elsewhere (RFC 8446 §D.5).
    pub(crate) fn is_outdated(&self) -> bool {
        const SSL3: u16 = 0x0300;
        const TLS12: u16 = 0x0303;
        if self.legacy_version <= SSL3 {
            return true;
        }
        !self.versions.is_empty() && self.versions.iter().all(|version| *version < TLS12)
    }

    /// True if the client says that it has tried a newer version before (TLS_FALLBACK_SCSV), and
    /// offers less than these versions: somebody on the way has kept it from what both speak
    /// (RFC 7507 §3).
    pub(crate) fn has_fallen_below(&self, versions: Versions) -> bool {
        const FALLBACK: u16 = 0x5600;
        // Others are there so that nobody counts on knowing all (RFC 8701).
        let known = self.versions.iter().filter(|version| **version >> 8 == 3);
        let newest = known.max();
        self.suites.contains(&FALLBACK)
            && newest.is_some_and(|offered| *offered < versions.newest())
    }

    /// True if the client begins as if there had been a handshake on this connection (RFC 5746
    /// §3.6).
    pub(crate) fn is_renegotiating(&self) -> bool {
        self.is_renegotiating
    }

    /// The extension that a client of TLS 1.3 must send with those that it sends, and has not
    /// (RFC 8446 §9.2, §4.2.9), in OpenSSL's words. rustls goes on, or has another alert for it.
    pub(crate) fn lacks(&self, versions: Versions) -> Option<Error> {
        const TLS13: u16 = 0x0304;
        let has = |kind| self.kinds.contains(&kind);
        let is_meant = has(VERSIONS) && self.versions.contains(&TLS13);
        if !is_meant || versions.newest() < TLS13 {
            return None;
        }
        match (has(PRE_SHARED_KEY), has(GROUPS), has(KEY_SHARE)) {
            (true, ..) if !has(PSK_MODES) => {
                Some(Error::peer(310, "missing psk kex modes extension"))
            }
            (false, ..) if !has(SCHEMES) => Some(Error::peer(112, "missing sigalgs extension")),
            (false, false, _) | (_, false, true) => {
                Some(Error::peer(209, "missing supported groups extension"))
            }
            (_, true, false) => Some(Error::peer(101, "no suitable key share")),
            _ => None,
        }
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
        if len > RECORD_MAX {
            return Err(Error::peer(198, "packet length too long"));
        }
        // RFC 8446 §5.1: a piece of a message has a length.
        if len == 0 {
            return Err(Error::peer(244, "unexpected message"));
        }
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
    if len > MESSAGE_MAX {
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
    hello.legacy_version = u16::try_from(version).ok()?;
    hello.versions = vec![hello.legacy_version];
    reader.take(32)?;
    reader.vector(1)?;
    hello.suites = reader.vector(2)?.numbers();
    reader.vector(1)?;
    let mut extensions = reader.vector(2)?;
    let mut kinds = Vec::new();
    while let Some(kind) = extensions.number(2) {
        let kind = u16::try_from(kind).ok()?;
        hello.lists_versions |= kind == VERSIONS;
        let data = extensions.vector(2)?;
        kinds.push(kind);
        // What is wrong in one extension does not hide the others.
        let _ = read_extension(hello, kind, data);
    }
    if extensions.0.is_empty() && reader.0.is_empty() {
        hello.kinds = kinds;
    }
    Some(())
}

fn read_extension(hello: &mut ClientHello, kind: u16, mut data: Reader<'_>) -> Option<()> {
    match kind {
        SERVER_NAME => hello.server_name = read_server_name(data),
        GROUPS => hello.groups = data.vector(2)?.numbers(),
        SCHEMES => hello.schemes = data.vector(2)?.numbers(),
        ALPN => {
            let mut names = data.vector(2)?;
            while let Some(name) = names.vector(1) {
                hello.alpn.push(name.0.into());
            }
        }
        VERSIONS => hello.versions = data.vector(1)?.numbers(),
        RENEGOTIATION => hello.is_renegotiating = !data.vector(1)?.0.is_empty(),
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
