//! [`Session`] by rustls, in the form that has no buffers of its own.
//!
//! ```text
//! receive: [kept beginning +] records ─► process, again and again ─► plaintext, handshake bytes
//!          what was not used is kept
//! ```
//!
//! 1. What rustls has decrypted in place stays at its offset until rustls gives it up: kept bytes
//!    are only ever cut at their front, by as much as it said.
//! 2. rustls is not asked again after an error, but for the alert.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::BytesMut;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, ReadEarlyData, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{CommonState, HandshakeKind, PeerIncompatible, ProtocolVersion, SignatureScheme};

use crate::error::Error;
use crate::hello::ClientHello;
use crate::scope::{self, Learned};
use crate::session::{Ending, Facts, Received, Session};
use crate::{group, scheme, suite};

const TLSV12: ProtocolVersion = ProtocolVersion::TLSv1_2;

/// The most that a record adds to its plaintext: head, nonce, type, tag.
const RECORD_OVERHEAD: usize = 5 + 8 + 1 + 16;

/// Room for what may stand before the first record: the answer to an update of keys.
const RECORD_BEFORE: usize = 64;

/// One side of rustls, without buffers.
pub(crate) trait Side {
    type Data;

    /// The schemes of the server's and the client's signature, of our own and the peer's.
    fn sigalgs(learned: &Learned) -> [Option<SignatureScheme>; 2];

    fn process<'c, 'i>(&'c mut self, records: &'i mut [u8])
    -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn common(&self) -> &CommonState;

    fn read_early(early: ReadEarlyData<'_, '_, Self::Data>, plain: &mut BytesMut) -> usize;
}

impl Side for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn sigalgs(learned: &Learned) -> [Option<SignatureScheme>; 2] {
        [learned.sigalg, learned.peer_sigalg]
    }

    fn process<'c, 'i>(
        &'c mut self,
        records: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(records)
    }

    fn common(&self) -> &CommonState {
        self
    }

    fn read_early(mut early: ReadEarlyData<'_, '_, Self::Data>, plain: &mut BytesMut) -> usize {
        let mut discard = 0;
        while let Some(Ok(record)) = early.next_record() {
            plain.extend_from_slice(record.payload);
            discard += record.discard;
        }
        discard
    }
}

impl Side for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn sigalgs(learned: &Learned) -> [Option<SignatureScheme>; 2] {
        [learned.peer_sigalg, learned.sigalg]
    }

    fn process<'c, 'i>(
        &'c mut self,
        records: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(records)
    }

    fn common(&self) -> &CommonState {
        self
    }

    fn read_early(_: ReadEarlyData<'_, '_, Self::Data>, _: &mut BytesMut) -> usize {
        0
    }
}

/// A connection, its kept bytes, and what was learned of it.
pub(crate) struct Engine<S> {
    side: S,
    /// The beginning of a record or message that has not come whole.
    kept: Vec<u8>,
    fragment: usize,
    failure: Option<Error>,
    may_send: bool,
    has_closed: bool,
    has_early_data: bool,
    is_closed_by_peer: bool,
    learned: Learned,
    server_name: Option<Arc<str>>,
    hello: Option<Box<ClientHello>>,
}

/// Facts that a connection begins with, beside rustls's own.
#[derive(Default)]
pub(crate) struct Beginning {
    /// The longest plaintext of a record.
    pub fragment: usize,
    pub learned: Learned,
    pub server_name: Option<Arc<str>>,
    pub hello: Option<Box<ClientHello>>,
}

impl<S: Side> Engine<S> {
    pub(crate) fn new(side: S, beginning: Beginning) -> Self {
        Self {
            side,
            kept: Vec::new(),
            fragment: beginning.fragment,
            failure: None,
            may_send: false,
            has_closed: false,
            has_early_data: false,
            is_closed_by_peer: false,
            learned: beginning.learned,
            server_name: beginning.server_name,
            hello: beginning.hello,
        }
    }

    /// Lets rustls work on `records` until it needs more; returns how many bytes it has used.
    fn work(
        &mut self,
        records: &mut [u8],
        plain: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<usize, rustls::Error> {
        let mut used = 0;
        loop {
            let status = self.side.process(&mut records[used..]);
            let mut discard = status.discard;
            match status.state {
                Err(error) => {
                    used += discard;
                    self.drain_alert(&mut records[used..], out);
                    return Err(error);
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        plain.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                }
                Ok(ConnectionState::ReadEarlyData(early)) => {
                    self.has_early_data = true;
                    discard += S::read_early(early, plain);
                }
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.is_closed_by_peer = true,
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.may_send = !self.has_closed;
                    return Ok(used + discard);
                }
                Ok(_) => return Ok(used + discard),
            }
            used += discard;
        }
    }

    /// Takes the alert that follows an error, and whatever was to be said before it.
    fn drain_alert(&mut self, records: &mut [u8], out: &mut BytesMut) {
        while self.side.common().wants_write() {
            match self.side.process(records).state {
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while traffic.next_record().is_some() {}
                }
                _ => return,
            }
        }
    }

    fn work_on_all(
        &mut self,
        records: &mut [u8],
        plain: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<(), rustls::Error> {
        if self.kept.is_empty() {
            let used = self.work(records, plain, out)?;
            if !self.is_closed_by_peer {
                self.kept.extend_from_slice(&records[used..]);
            }
            return Ok(());
        }
        let mut all = std::mem::take(&mut self.kept);
        all.extend_from_slice(records);
        let used = self.work(&mut all, plain, out)?;
        if used < all.len() && !self.is_closed_by_peer {
            all.drain(..used);
            self.kept = all;
        }
        Ok(())
    }

    /// Lets `write` work with rustls's sending side, if it may send.
    fn write(
        &mut self,
        out: &mut BytesMut,
        mut write: impl FnMut(&mut WriteTraffic<'_, S::Data>, &mut BytesMut) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut kept = std::mem::take(&mut self.kept);
        let result = loop {
            let status = self.side.process(&mut kept);
            match status.state {
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => break write(&mut traffic, out),
                Ok(ConnectionState::PeerClosed) => self.is_closed_by_peer = true,
                Ok(_) => break Err(Error::ours("the session is closed")),
                Err(error) => break Err(error.into()),
            }
        };
        self.kept = kept;
        result
    }

    /// Names an error; a group that is lacking makes suites of TLS 1.2 unusable, as OpenSSL sees
    /// it.
    fn in_words(&self, error: rustls::Error) -> Error {
        let no_group = rustls::Error::from(PeerIncompatible::NoKxGroupsInCommon);
        if error == no_group && self.side.common().protocol_version() == Some(TLSV12) {
            return Error::peer(193, "no shared cipher");
        }
        error.into()
    }

    /// True if rustls has answered something of TLS 1.2 behind the handshake: it does so only to
    /// warn that it does not renegotiate, and would go on; nginx ends the connection.
    fn has_refused(&self, answer_len: usize) -> bool {
        let version = self.side.common().protocol_version();
        answer_len > 0 && version == Some(TLSV12)
    }

    fn fail(&mut self, error: Error) -> Error {
        self.kept = Vec::new();
        self.failure = Some(error.clone());
        error
    }

    fn check(&self) -> Result<(), Error> {
        match &self.failure {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

impl<S: Side> Session for Engine<S> {
    fn receive(
        &mut self,
        records: &mut [u8],
        plain: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<Received, Error> {
        self.check()?;
        let (was_handshaking, was_closed) = (self.is_handshaking(), self.is_closed_by_peer);
        let (plain_before, out_before) = (plain.len(), out.len());
        let mut learned = std::mem::take(&mut self.learned);
        let result = scope::with(&mut learned, || self.work_on_all(records, plain, out));
        self.learned = learned;
        if let Err(error) = result {
            let error = self.in_words(error);
            return Err(self.fail(error));
        }
        if !was_handshaking && self.has_refused(out.len() - out_before) {
            return Err(self.fail(Error::peer(182, "no renegotiation")));
        }
        let is_handshake_done = was_handshaking && !self.is_handshaking();
        if is_handshake_done {
            self.learned.certificates = None;
        }
        Ok(Received {
            is_handshake_done,
            is_closed: self.is_closed_by_peer && !was_closed,
            plain_len: plain.len() - plain_before,
        })
    }

    fn send(&mut self, pieces: &[IoSlice<'_>], out: &mut BytesMut) -> Result<usize, Error> {
        self.check()?;
        if !self.may_send() {
            return Ok(0);
        }
        let fragment = self.fragment;
        let result = self.write(out, |traffic, out| seal_all(traffic, pieces, fragment, out));
        match result {
            Ok(()) => Ok(pieces.iter().map(|piece| piece.len()).sum()),
            Err(error) => Err(self.fail(error)),
        }
    }

    fn close(&mut self, out: &mut BytesMut) {
        if !self.may_send() {
            return;
        }
        (self.has_closed, self.may_send) = (true, false);
        // An end that cannot be said is one that cannot be said.
        let _ = self.write(out, |traffic, out| {
            grow_until(RECORD_BEFORE + RECORD_OVERHEAD, out, |room| {
                traffic.queue_close_notify(room)
            })
        });
    }

    fn is_handshaking(&self) -> bool {
        self.side.common().is_handshaking()
    }

    fn may_send(&self) -> bool {
        self.may_send && self.failure.is_none()
    }

    fn ending(&self) -> Ending {
        if self.is_closed_by_peer {
            Ending::Closed
        } else {
            Ending::Truncated
        }
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            server_name: self.server_name.as_deref(),
            is_early: self.has_early_data && self.is_handshaking(),
            hello: self.hello.as_deref(),
            ..facts_of(self.side.common(), &self.learned, S::sigalgs(&self.learned))
        }
    }
}

/// The facts that rustls knows, and those that were learned beside it.
pub(crate) fn facts_of<'c>(
    common: &'c CommonState,
    learned: &'c Learned,
    [sigalg, client_sigalg]: [Option<SignatureScheme>; 2],
) -> Facts<'c> {
    let is_resumed = common.handshake_kind() == Some(HandshakeKind::Resumed);
    let found = learned.found.as_ref().filter(|_| is_resumed);
    // A client of TLS 1.3 learns an identifier by the ticket, after the handshake.
    let is_told = common.protocol_version() == Some(TLSV12);
    Facts {
        protocol: common.protocol_version().and_then(version_name),
        cipher: common
            .negotiated_cipher_suite()
            .and_then(|suite| suite::name(u16::from(suite.suite()))),
        curve: common
            .negotiated_key_exchange_group()
            .and_then(|group| group::name(u16::from(group.name()))),
        alpn: common.alpn_protocol(),
        sigalg: sigalg.and_then(scheme::name),
        client_sigalg: client_sigalg.and_then(scheme::name),
        session_id: match found {
            Some((id, _)) => Some(id),
            None => learned.made.as_ref().filter(|_| is_told),
        },
        is_resumed,
        peer_certificates: common.peer_certificates().unwrap_or_default(),
        note: match found {
            Some((_, note)) => note,
            None => &learned.note,
        },
        ..Facts::default()
    }
}

fn version_name(version: ProtocolVersion) -> Option<&'static str> {
    match version {
        ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
        ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
        _ => None,
    }
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, out: &mut BytesMut) {
    let result = data.encode(&mut []);
    if let Err(EncodeError::InsufficientSize(needed)) = result {
        let start = out.len();
        out.resize(start + needed.required_size, 0);
        let written = data.encode(&mut out[start..]).unwrap_or(0);
        out.truncate(start + written);
    }
}

/// Seals `pieces` as one stream, in records of `fragment` bytes.
fn seal_all<D>(
    traffic: &mut WriteTraffic<'_, D>,
    pieces: &[IoSlice<'_>],
    fragment: usize,
    out: &mut BytesMut,
) -> Result<(), Error> {
    let mut gathered: Vec<u8> = Vec::new();
    for piece in pieces {
        let mut rest: &[u8] = piece;
        while !rest.is_empty() {
            if gathered.is_empty() && rest.len() >= fragment {
                let (whole, behind) = rest.split_at(rest.len() - rest.len() % fragment);
                seal(traffic, whole, fragment, out)?;
                rest = behind;
                continue;
            }
            let (taken, behind) = rest.split_at(rest.len().min(fragment - gathered.len()));
            gathered.extend_from_slice(taken);
            rest = behind;
            if gathered.len() == fragment {
                seal(traffic, &gathered, fragment, out)?;
                gathered.clear();
            }
        }
    }
    seal(traffic, &gathered, fragment, out)
}

fn seal<D>(
    traffic: &mut WriteTraffic<'_, D>,
    plain: &[u8],
    fragment: usize,
    out: &mut BytesMut,
) -> Result<(), Error> {
    if plain.is_empty() {
        return Ok(());
    }
    let records = plain.len().div_ceil(fragment);
    let room = plain.len() + records * RECORD_OVERHEAD + RECORD_BEFORE;
    grow_until(room, out, |room| traffic.encrypt(plain, room))
}

/// Appends what `write` puts into the room that it gets: `room` bytes, or as many as it asks for.
fn grow_until(
    room: usize,
    out: &mut BytesMut,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Error> {
    let start = out.len();
    let mut room = room;
    for _ in 0..2 {
        out.resize(start + room, 0);
        match write(&mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(needed)) => room = needed.required_size,
            Err(EncryptError::EncryptExhausted) => break,
        }
    }
    out.truncate(start);
    Err(Error::ours("the keys of the connection are used up"))
}
