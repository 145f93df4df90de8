//! [`Session`] by rustls, in the form that has no buffers of its own, and by records of our own
//! behind the handshake.
//!
//! ```text
//! Handshake ──the record that ends it──► Established (keys of rustls, records of ours)
//!
//! receive: [kept beginning +] record ─► rustls, again and again ─► handshake bytes, early data
//!          what was not used is kept
//! ```
//!
//! 1. What rustls has decrypted in place stays at its offset until rustls gives it up: kept bytes
//!    are only ever cut at their front, by as much as it said.
//! 2. rustls is not asked again after an error, but for the alert.
//! 3. rustls gets one record after the other, and none behind the one that ends the handshake: what
//!    it would make of that, such as an answer that it keeps for later, would be lost.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use bytes::BytesMut;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, ReadEarlyData, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{
    CommonState, ExtractedSecrets, HandshakeKind, PeerIncompatible, ProtocolVersion,
    SignatureScheme,
};

use crate::error::Error;
use crate::established::{Agreed, Established, Secrets};
use crate::hello::ClientHello;
use crate::scope::{self, Learned};
use crate::session::{Ending, Facts, Filled, Received, Session};
use crate::{group, record, scheme, suite};

const TLSV12: ProtocolVersion = ProtocolVersion::TLSv1_2;

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

    /// The keys, and the secrets that new ones come from.
    fn into_keys(self) -> Result<(ExtractedSecrets, Box<dyn Secrets>), rustls::Error>;
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

    fn into_keys(self) -> Result<(ExtractedSecrets, Box<dyn Secrets>), rustls::Error> {
        let (keys, secrets) = self.dangerous_into_kernel_connection()?;
        Ok((keys, Box::new(secrets)))
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

    fn into_keys(self) -> Result<(ExtractedSecrets, Box<dyn Secrets>), rustls::Error> {
        let (keys, secrets) = self.dangerous_into_kernel_connection()?;
        Ok((keys, Box::new(secrets)))
    }
}

/// The state of a connection.
enum State<S> {
    Handshake(Box<Handshake<S>>),
    Established(Box<Established>),
    /// The handshake could not be followed by anything; there is a failure.
    Broken,
}

/// A connection, its kept bytes, and what was learned of it.
pub(crate) struct Engine<S> {
    state: State<S>,
    /// The beginning of a record or message that has not come whole.
    kept: Vec<u8>,
    fragment: usize,
    failure: Option<Error>,
    has_closed: bool,
    is_closed_by_peer: bool,
    learned: Learned,
    server_name: Option<Arc<str>>,
    hello: Option<Box<ClientHello>>,
}

/// A connection that shakes hands.
struct Handshake<S> {
    side: S,
    /// Kept bytes that rustls was given before, and has changed perhaps: no heads of records are
    /// looked for in them.
    given: usize,
    may_send: bool,
    has_early_data: bool,
    is_closed_by_peer: bool,
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

impl<S: Side> Handshake<S> {
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
                    self.may_send = true;
                    return Ok(used + discard);
                }
                Ok(_) => return Ok(used + discard),
            }
            used += discard;
        }
    }

    /// The same record by record, as far as they are whole and the handshake is not over.
    /// INVARIANT 3.
    fn work_by_record(
        &mut self,
        bytes: &mut [u8],
        plain: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<usize, rustls::Error> {
        let (mut used, mut end) = (0, self.given);
        loop {
            // The first time without anything new: a client begins by itself.
            used += self.work(bytes.get_mut(used..end).unwrap_or_default(), plain, out)?;
            if !self.side.common().is_handshaking() {
                break;
            }
            let rest = bytes.get(end..).unwrap_or_default();
            // What is no record is rustls's to refuse.
            let len = record::record_len(rest).unwrap_or(Some(rest.len()));
            match len.filter(|len| *len <= rest.len()) {
                Some(len) => end += len,
                None => break,
            }
        }
        self.given = end.saturating_sub(used);
        Ok(used)
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

    /// Lets `write` work with rustls's sending side, if it may send.
    fn write(
        &mut self,
        kept: &mut [u8],
        out: &mut BytesMut,
        mut write: impl FnMut(&mut WriteTraffic<'_, S::Data>, &mut BytesMut) -> Result<(), Error>,
    ) -> Result<(), Error> {
        loop {
            let status = self.side.process(kept);
            match status.state {
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => return write(&mut traffic, out),
                Ok(ConnectionState::PeerClosed) => self.is_closed_by_peer = true,
                Ok(_) => return Err(Error::ours("the session is closed")),
                Err(error) => return Err(error.into()),
            }
        }
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

    /// The connection behind the handshake.
    fn establish(self, fragment: usize) -> Result<Established, Error> {
        let lost = || Error::ours("the keys of the connection are not to be had");
        let agreed = Agreed::of(self.side.common()).ok_or_else(lost)?;
        let keys = self.side.into_keys()?;
        Established::new(agreed, keys, fragment).ok_or_else(lost)
    }
}

impl<S: Side> Engine<S> {
    pub(crate) fn new(side: S, beginning: Beginning) -> Self {
        Self {
            state: State::Handshake(Box::new(Handshake {
                side,
                given: 0,
                may_send: false,
                has_early_data: false,
                is_closed_by_peer: false,
            })),
            kept: Vec::new(),
            fragment: beginning.fragment,
            failure: None,
            has_closed: false,
            is_closed_by_peer: false,
            learned: beginning.learned,
            server_name: beginning.server_name,
            hello: beginning.hello,
        }
    }

    /// Works on what has come, and keeps what it has no use for as yet.
    fn work_on_all(
        &mut self,
        records: &mut [u8],
        plain: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<(), Error> {
        if self.kept.is_empty() {
            let used = self.work(records, plain, out)?;
            let rest = records.get(used..).unwrap_or_default();
            if !self.is_closed_by_peer {
                self.kept.extend_from_slice(rest);
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

    /// Works on `records` until more is needed; returns how many bytes were used.
    fn work(
        &mut self,
        records: &mut [u8],
        plain: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<usize, Error> {
        let mut used = 0;
        if let State::Handshake(handshake) = &mut self.state {
            let worked = handshake.work_by_record(records, plain, out);
            used = worked.map_err(|error| handshake.in_words(error))?;
            self.is_closed_by_peer = handshake.is_closed_by_peer;
            self.go_on()?;
        }
        if let State::Established(established) = &mut self.state {
            let rest = records.get_mut(used..).unwrap_or_default();
            used += established.receive(rest, plain, out)?;
            self.is_closed_by_peer = established.is_closed();
        }
        Ok(used)
    }

    /// Leaves the handshake behind, if it is over.
    fn go_on(&mut self) -> Result<(), Error> {
        let is_over = |handshake: &Handshake<S>| !handshake.side.common().is_handshaking();
        self.state = match std::mem::replace(&mut self.state, State::Broken) {
            State::Handshake(handshake) if is_over(&handshake) => {
                let established = handshake.establish(self.fragment)?;
                State::Established(Box::new(established))
            }
            state => state,
        };
        Ok(())
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
        let plain_before = plain.len();
        let mut learned = std::mem::take(&mut self.learned);
        let result = scope::with(&mut learned, || self.work_on_all(records, plain, out));
        self.learned = learned;
        result.map_err(|error| self.fail(error))?;
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
        let result = match &mut self.state {
            State::Established(established) => established.send(pieces, out),
            State::Handshake(handshake) => handshake.write(&mut self.kept, out, |traffic, out| {
                seal_all(traffic, pieces, fragment, out)
            }),
            State::Broken => return Ok(0),
        };
        match result {
            Ok(()) => Ok(pieces.iter().map(|piece| piece.len()).sum()),
            Err(error) => Err(self.fail(error)),
        }
    }

    fn may_fill(&self) -> bool {
        matches!(self.state, State::Established(_)) && self.may_send()
    }

    fn send_filled(
        &mut self,
        len: usize,
        fill: &mut dyn FnMut(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
        room: &mut [u8],
        out: &mut BytesMut,
    ) -> io::Result<Filled> {
        self.check().map_err(io::Error::other)?;
        match &mut self.state {
            State::Established(established) if !self.has_closed => {
                established.send_filled(len, fill, room, out)
            }
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn close(&mut self, out: &mut BytesMut) {
        if !self.may_send() {
            return;
        }
        self.has_closed = true;
        match &mut self.state {
            State::Established(established) => established.close(out),
            State::Handshake(handshake) => {
                // An end that cannot be said is one that cannot be said.
                let _ = handshake.write(&mut self.kept, out, |traffic, out| {
                    grow_until(RECORD_BEFORE + record::OVERHEAD, out, |room| {
                        traffic.queue_close_notify(room)
                    })
                });
            }
            State::Broken => {}
        }
    }

    fn is_handshaking(&self) -> bool {
        match &self.state {
            State::Handshake(handshake) => handshake.side.common().is_handshaking(),
            State::Established(_) | State::Broken => false,
        }
    }

    fn may_send(&self) -> bool {
        let may_send = match &self.state {
            State::Handshake(handshake) => handshake.may_send,
            State::Established(_) => true,
            State::Broken => false,
        };
        may_send && !self.has_closed && self.failure.is_none()
    }

    fn ending(&self) -> Ending {
        if self.is_closed_by_peer {
            Ending::Closed
        } else {
            Ending::Truncated
        }
    }

    fn facts(&self) -> Facts<'_> {
        let agreed = match &self.state {
            State::Handshake(handshake) => handshake.facts(),
            State::Established(established) => established.agreed().facts(),
            State::Broken => Facts::default(),
        };
        Facts {
            server_name: self.server_name.as_deref(),
            hello: self.hello.as_deref(),
            ..with_learned(agreed, &self.learned, S::sigalgs(&self.learned))
        }
    }
}

impl<S: Side> Handshake<S> {
    /// The facts that rustls knows of.
    fn facts(&self) -> Facts<'_> {
        let common = self.side.common();
        Facts {
            is_early: self.has_early_data && common.is_handshaking(),
            ..agreed_facts(common)
        }
    }
}

impl Agreed {
    fn facts(&self) -> Facts<'_> {
        Facts {
            protocol: version_name(self.version),
            cipher: self.cipher(),
            curve: self.curve,
            alpn: self.alpn.as_deref(),
            is_resumed: self.is_resumed,
            peer_certificates: &self.peer_certificates,
            ..Facts::default()
        }
    }
}

/// The facts that rustls knows, and those that were learned beside it.
pub(crate) fn facts_of<'c>(
    common: &'c CommonState,
    learned: &'c Learned,
    sigalgs: [Option<SignatureScheme>; 2],
) -> Facts<'c> {
    with_learned(agreed_facts(common), learned, sigalgs)
}

/// The facts that both ends agreed on, as rustls knows them.
fn agreed_facts(common: &CommonState) -> Facts<'_> {
    Facts {
        protocol: common.protocol_version().and_then(version_name),
        cipher: common
            .negotiated_cipher_suite()
            .and_then(|suite| suite::name(u16::from(suite.suite()))),
        curve: common
            .negotiated_key_exchange_group()
            .and_then(|group| group::name(u16::from(group.name()))),
        alpn: common.alpn_protocol(),
        is_resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
        peer_certificates: common.peer_certificates().unwrap_or_default(),
        ..Facts::default()
    }
}

/// Facts with those that were learned beside rustls: schemes, the session, the note in it.
fn with_learned<'c>(
    agreed: Facts<'c>,
    learned: &'c Learned,
    [sigalg, client_sigalg]: [Option<SignatureScheme>; 2],
) -> Facts<'c> {
    let found = learned.found.as_ref().filter(|_| agreed.is_resumed);
    // A client of TLS 1.3 learns an identifier by the ticket, after the handshake.
    let is_told = agreed.protocol == version_name(TLSV12);
    Facts {
        sigalg: sigalg.and_then(scheme::name),
        client_sigalg: client_sigalg.and_then(scheme::name),
        session_id: match found {
            Some((id, _)) => Some(id),
            None => learned.made.as_ref().filter(|_| is_told),
        },
        note: match found {
            Some((_, note)) => note,
            None => &learned.note,
        },
        ..agreed
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
    let room = plain.len() + records * record::OVERHEAD + RECORD_BEFORE;
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
