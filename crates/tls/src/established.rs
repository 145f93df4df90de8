//! A connection behind its handshake: records by keys of our own, and what is said in them.
//!
//! rustls hands its keys over once the handshake is done (`kernel`), and keeps the secrets that new
//! keys come from. What it would have done with alerts and messages is done here:
//!
//! | record | of TLS 1.3 | of TLS 1.2 |
//! |---|---|---|
//! | data | plaintext | plaintext |
//! | close_notify | the end | the end |
//! | warning | failed, but for user_canceled | nothing |
//! | fatal alert | failed | failed |
//! | handshake | KeyUpdate; a client's ticket | `no_renegotiation`, and failed |
//!
//! 1. A key seals no more records than its cipher allows: TLS 1.3 changes it before that, a
//!    connection of TLS 1.2 sends no more data.
//! 2. However often the peer asks for new keys, it gets one update before the next data.
//! 3. Messages, updates, warnings and records without content in a row have bounds.
//!
//! Sealing in place ([`Established::send_filled`]) is for bytes that the caller can put where they
//! are to stand, such as those of a file.

use std::io::{self, IoSlice, IoSliceMut};

use bytes::BytesMut;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, CommonState, ConnectionTrafficSecrets, ExtractedSecrets, HandshakeKind,
    InvalidMessage, PeerMisbehaved, ProtocolVersion, SupportedCipherSuite,
};

use crate::error::Error;
use crate::record::{self, Direction, Flaw, Kind};
use crate::session::Filled;
use crate::{group, suite};

/// Updates of keys without data between them, warnings of a connection, and records without
/// content in a row that are taken: those that rustls and BoringSSL take.
const UPDATES_MAX: u8 = 32;
const WARNINGS_MAX: u8 = 4;
const EMPTY_MAX: u8 = 32;

/// The longest message behind the handshake (a ticket).
const MESSAGE_MAX: usize = 0xffff;

/// Places that are filled at once (arbitrary: of 1 KiB each 64 KiB; the kernel takes 1024).
const PLACES_MAX: usize = 64;

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const CLIENT_HELLO: u8 = 1;
const HELLO_REQUEST: u8 = 0;

const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// The parts of rustls that new keys and tickets still need.
pub(crate) trait Secrets {
    fn next_of_ours(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;

    fn next_of_peer(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;

    /// Keeps a session; `None` if this side gets none.
    fn keep_ticket(&mut self, payload: &[u8]) -> Option<Result<(), rustls::Error>>;
}

impl Secrets for KernelConnection<ServerConnectionData> {
    fn next_of_ours(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_tx_secret()
    }

    fn next_of_peer(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_rx_secret()
    }

    fn keep_ticket(&mut self, _: &[u8]) -> Option<Result<(), rustls::Error>> {
        None
    }
}

impl Secrets for KernelConnection<ClientConnectionData> {
    fn next_of_ours(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_tx_secret()
    }

    fn next_of_peer(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_rx_secret()
    }

    fn keep_ticket(&mut self, payload: &[u8]) -> Option<Result<(), rustls::Error>> {
        Some(self.handle_new_session_ticket(payload))
    }
}

/// Everything that a handshake has agreed on.
pub(crate) struct Agreed {
    pub version: ProtocolVersion,
    pub suite: SupportedCipherSuite,
    pub curve: Option<&'static str>,
    pub alpn: Option<Box<[u8]>>,
    pub is_resumed: bool,
    pub peer_certificates: Box<[CertificateDer<'static>]>,
}

impl Agreed {
    /// The outcome of a handshake that is done.
    pub(crate) fn of(common: &CommonState) -> Option<Self> {
        let chain = common.peer_certificates().unwrap_or_default();
        Some(Self {
            version: common.protocol_version()?,
            suite: common.negotiated_cipher_suite()?,
            curve: common
                .negotiated_key_exchange_group()
                .and_then(|group| group::name(u16::from(group.name()))),
            alpn: common.alpn_protocol().map(Into::into),
            is_resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            peer_certificates: chain
                .iter()
                .cloned()
                .map(CertificateDer::into_owned)
                .collect(),
        })
    }

    pub(crate) fn cipher(&self) -> Option<&'static str> {
        suite::name(u16::from(self.suite.suite()))
    }
}

/// A connection behind its handshake.
pub(crate) struct Established {
    ours: Direction,
    peers: Direction,
    secrets: Box<dyn Secrets>,
    agreed: Agreed,
    fragment: usize,
    /// Records that a key of ours may seal.
    limit: u64,
    /// The begin of a message whose rest is to come in other records.
    message: Vec<u8>,
    must_update: bool,
    is_closed: bool,
    updates: u8,
    warnings: u8,
    empty: u8,
}

/// A failure, and the alert that tells the peer of it.
struct Failed {
    error: Error,
    alert: Option<[u8; 2]>,
}

impl Failed {
    fn of(alert: AlertDescription, error: impl Into<rustls::Error>) -> Self {
        Self {
            error: error.into().into(),
            alert: Some([FATAL, alert.into()]),
        }
    }

    fn unexpected() -> Self {
        Self {
            error: Error::peer(244, "unexpected message"),
            alert: Some([FATAL, AlertDescription::UnexpectedMessage.into()]),
        }
    }

    /// One that the peer is not told of.
    fn silent(error: impl Into<rustls::Error>) -> Self {
        Self {
            error: error.into().into(),
            alert: None,
        }
    }
}

impl From<Flaw> for Failed {
    fn from(flaw: Flaw) -> Self {
        use AlertDescription as Alert;
        match flaw {
            Flaw::Head(why) => Failed::of(Alert::DecodeError, why),
            Flaw::Sealed => Failed::of(Alert::BadRecordMac, rustls::Error::DecryptError),
            Flaw::TooLong => Failed::of(
                Alert::RecordOverflow,
                rustls::Error::PeerSentOversizedRecord,
            ),
            Flaw::Kind => Failed::unexpected(),
        }
    }
}

impl Established {
    /// The connection of a handshake that is done; records have at most `fragment` bytes.
    pub(crate) fn new(
        agreed: Agreed,
        secrets: (ExtractedSecrets, Box<dyn Secrets>),
        fragment: usize,
    ) -> Option<Self> {
        let (keys, secrets) = secrets;
        let limit = limit(agreed.suite);
        Some(Self {
            ours: Direction::new(agreed.version, keys.tx)?,
            peers: Direction::new(agreed.version, keys.rx)?,
            secrets,
            agreed,
            fragment,
            limit,
            message: Vec::new(),
            must_update: false,
            is_closed: false,
            updates: 0,
            warnings: 0,
            empty: 0,
        })
    }

    pub(crate) fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// True once the peer has said its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn is_tls13(&self) -> bool {
        self.agreed.version == ProtocolVersion::TLSv1_3
    }

    /// Takes the whole records at the begin of `bytes`: appends their plaintext to `plain` and what
    /// the peer must be told to `out`; returns how many bytes were used.
    pub(crate) fn receive(
        &mut self,
        bytes: &mut [u8],
        plain: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<usize, Error> {
        let mut used = 0;
        while !self.is_closed {
            match self.take_record(&mut bytes[used..], plain) {
                Ok(0) => break,
                Ok(len) => used += len,
                Err(failed) => {
                    if let Some(alert) = failed.alert {
                        // Whoever cannot be told is not told.
                        let _ = self.put(Kind::Alert, &alert, out);
                    }
                    return Err(failed.error);
                }
            }
        }
        Ok(used)
    }

    /// Takes one record, if it is whole; returns its length.
    fn take_record(&mut self, bytes: &mut [u8], plain: &mut BytesMut) -> Result<usize, Failed> {
        let len = record::record_len(bytes)?.unwrap_or(0);
        let Some(record) = bytes.get_mut(..len).filter(|_| len > 0) else {
            return Ok(0);
        };
        let (kind, at) = self.peers.open(record)?;
        let content = record.get(at).unwrap_or_default();
        if kind != Kind::Handshake && !self.message.is_empty() {
            // RFC 8446 §5.1: nothing stands between the parts of a message.
            let why = PeerMisbehaved::MessageInterleavedWithHandshakeMessage;
            return Err(Failed::of(AlertDescription::UnexpectedMessage, why));
        }
        self.empty = if content.is_empty() {
            self.empty + 1
        } else {
            0
        };
        if self.empty > EMPTY_MAX {
            return Err(Failed::silent(PeerMisbehaved::TooManyEmptyFragments));
        }
        match kind {
            Kind::Data => {
                plain.extend_from_slice(content);
                self.updates = 0;
            }
            Kind::Alert => self.take_alert(content)?,
            Kind::Handshake => {
                self.message.extend_from_slice(content);
                self.take_messages()?;
            }
            Kind::ChangeCipherSpec => {
                let why = PeerMisbehaved::IllegalMiddleboxChangeCipherSpec;
                return Err(Failed::of(AlertDescription::UnexpectedMessage, why));
            }
        }
        Ok(len)
    }

    fn take_alert(&mut self, content: &[u8]) -> Result<(), Failed> {
        let &[level, number] = content else {
            let why = InvalidMessage::MessageTooShort;
            return Err(Failed::of(AlertDescription::DecodeError, why));
        };
        let alert = AlertDescription::from(number);
        let error = rustls::Error::AlertReceived(alert);
        if !(WARNING..=FATAL).contains(&level) {
            return Err(Failed::of(AlertDescription::IllegalParameter, error));
        }
        if alert == AlertDescription::CloseNotify {
            self.is_closed = true;
            return Ok(());
        }
        if level == FATAL {
            return Err(Failed::silent(error));
        }
        self.warnings += 1;
        if self.warnings > WARNINGS_MAX {
            let why = PeerMisbehaved::TooManyWarningAlertsReceived;
            return Err(Failed::silent(why));
        }
        // RFC 8446 §6: all others are errors, whatever their level.
        if self.is_tls13() && alert != AlertDescription::UserCanceled {
            return Err(Failed::of(AlertDescription::DecodeError, error));
        }
        Ok(())
    }

    /// Takes the messages that are whole.
    fn take_messages(&mut self) -> Result<(), Failed> {
        while let Some(&[kind, high, middle, low]) = self.message.first_chunk::<4>() {
            let len = u32::from_be_bytes([0, high, middle, low]) as usize;
            self.check_message(kind, len)?;
            if self.message.len() < 4 + len {
                break;
            }
            let rest = self.message.split_off(4 + len);
            let message = std::mem::replace(&mut self.message, rest);
            let payload = message.get(4..).unwrap_or_default();
            match kind {
                KEY_UPDATE => self.take_key_update(payload)?,
                _ => match self.secrets.keep_ticket(payload) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        return Err(Failed::of(AlertDescription::DecodeError, error));
                    }
                    None => return Err(Failed::unexpected()),
                },
            }
        }
        if self.message.is_empty() {
            self.message = Vec::new();
        }
        Ok(())
    }

    /// Refuses messages that have no place behind the handshake before all of them has come.
    fn check_message(&self, kind: u8, len: usize) -> Result<(), Failed> {
        if !self.is_tls13() {
            if !matches!(kind, CLIENT_HELLO | HELLO_REQUEST) {
                return Err(Failed::unexpected());
            }
            return Err(Failed {
                error: Error::peer(182, "no renegotiation"),
                alert: Some([WARNING, AlertDescription::NoRenegotiation.into()]),
            });
        }
        if len > MESSAGE_MAX {
            let why = InvalidMessage::HandshakePayloadTooLarge;
            return Err(Failed::of(AlertDescription::DecodeError, why));
        }
        match kind {
            KEY_UPDATE if len == 1 => Ok(()),
            KEY_UPDATE => {
                let why = InvalidMessage::InvalidKeyUpdate;
                Err(Failed::of(AlertDescription::DecodeError, why))
            }
            NEW_SESSION_TICKET => Ok(()),
            _ => Err(Failed::unexpected()),
        }
    }

    /// RFC 8446 §4.6.3.
    fn take_key_update(&mut self, payload: &[u8]) -> Result<(), Failed> {
        if !self.message.is_empty() {
            // RFC 8446 §5.1: no message stands before and behind a change of keys.
            let why = PeerMisbehaved::KeyEpochWithPendingFragment;
            return Err(Failed::of(AlertDescription::UnexpectedMessage, why));
        }
        self.updates += 1;
        if self.updates > UPDATES_MAX {
            return Err(Failed::silent(PeerMisbehaved::TooManyKeyUpdateRequests));
        }
        match payload {
            [0] => {}
            // INVARIANT 2.
            [1] => self.must_update = true,
            _ => {
                let why = InvalidMessage::InvalidKeyUpdate;
                return Err(Failed::of(AlertDescription::IllegalParameter, why));
            }
        }
        let next = self.secrets.next_of_peer().map_err(Failed::silent)?;
        let direction = Direction::new(self.agreed.version, next);
        self.peers = direction.ok_or_else(|| Failed::silent(rustls::Error::DecryptError))?;
        Ok(())
    }

    /// Appends the records of all `pieces`, as one stream.
    pub(crate) fn send(&mut self, pieces: &[IoSlice<'_>], out: &mut BytesMut) -> Result<(), Error> {
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let records = left.div_ceil(self.fragment);
        out.reserve(left + records * record::OVERHEAD);
        let mut pieces = pieces.iter().map(|piece| &**piece);
        let mut piece: &[u8] = &[];
        while left > 0 {
            self.make_way(1, out)?;
            let len = left.min(self.fragment);
            let start = self.begin_record(out);
            let mut missing = len;
            while missing > 0 {
                let (part, rest) = piece.split_at(missing.min(piece.len()));
                out.extend_from_slice(part);
                missing -= part.len();
                piece = rest;
                if missing > 0 {
                    piece = pieces.next().ok_or_else(used_up)?;
                }
            }
            self.end_record(Kind::Data, start, out)?;
            left -= len;
        }
        Ok(())
    }

    /// Seals bytes that `fill` puts in their places in `room`: `len`, or as many as fit there. What
    /// must be said before them is appended to `out`.
    pub(crate) fn send_filled(
        &mut self,
        len: usize,
        fill: &mut dyn FnMut(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
        room: &mut [u8],
        out: &mut BytesMut,
    ) -> io::Result<Filled> {
        self.make_way(len.div_ceil(self.fragment), out)
            .map_err(io::Error::other)?;
        // A new key has the same places.
        let (before, behind) = (self.ours.before(), self.ours.behind());
        let mut missing = len;
        let mut places: Vec<IoSliceMut<'_>> = room
            .chunks_mut(before + self.fragment + behind)
            .filter_map(|chunk| {
                let len = missing.min(chunk.len().saturating_sub(before + behind));
                missing -= len;
                chunk.get_mut(before..before + len).map(IoSliceMut::new)
            })
            .filter(|place| !place.is_empty())
            .take(PLACES_MAX)
            .collect();
        let plain = fill(&mut places)?;
        let (mut left, mut sealed) = (plain, 0);
        while left > 0 {
            let len = left.min(self.fragment);
            let end = sealed + before + len + behind;
            let place = room.get_mut(sealed..end);
            let made = place.and_then(|place| self.ours.seal(Kind::Data, place));
            made.ok_or_else(|| io::Error::other(used_up()))?;
            (left, sealed) = (left - len, end);
        }
        Ok(Filled { plain, sealed })
    }

    /// Says the end of our plaintext.
    pub(crate) fn close(&mut self, out: &mut BytesMut) {
        // An end that cannot be said is one that cannot be said.
        let _ = self.put(Kind::Alert, &[WARNING, 0], out);
    }

    /// Sees to it that so many records of data may follow. INVARIANT 1, 2.
    fn make_way(&mut self, records: usize, out: &mut BytesMut) -> Result<(), Error> {
        let is_used_up = self.ours.sequence().saturating_add(records as u64) > self.limit;
        if !self.must_update && !is_used_up {
            return Ok(());
        }
        if !self.is_tls13() {
            return Err(used_up());
        }
        self.put(Kind::Handshake, &[KEY_UPDATE, 0, 0, 1, 0], out)?;
        let next = self.secrets.next_of_ours()?;
        self.ours = Direction::new(self.agreed.version, next).ok_or_else(used_up)?;
        self.must_update = false;
        Ok(())
    }

    /// Appends a record.
    fn put(&mut self, kind: Kind, content: &[u8], out: &mut BytesMut) -> Result<(), Error> {
        let start = self.begin_record(out);
        out.extend_from_slice(content);
        self.end_record(kind, start, out)
    }

    /// Leaves room for what stands before the plaintext; returns where the record begins.
    fn begin_record(&self, out: &mut BytesMut) -> usize {
        let start = out.len();
        out.extend_from_slice(&[0; record::OVERHEAD][..self.ours.before()]);
        start
    }

    /// Seals the record that begins at `start`.
    fn end_record(&mut self, kind: Kind, start: usize, out: &mut BytesMut) -> Result<(), Error> {
        out.extend_from_slice(&[0; record::OVERHEAD][..self.ours.behind()]);
        let record = out.get_mut(start..);
        let sealed = record.and_then(|record| self.ours.seal(kind, record));
        sealed.ok_or_else(used_up)
    }
}

fn used_up() -> Error {
    Error::ours("the keys of the connection are used up")
}

/// The records that a key of a suite may seal.
fn limit(suite: SupportedCipherSuite) -> u64 {
    #[cfg(test)]
    if let Some(limit) = LIMIT.get() {
        return limit;
    }
    match suite {
        SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
    }
}

#[cfg(test)]
thread_local! {
    /// A limit in place of that of the suites.
    pub(crate) static LIMIT: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}
