//! Handshakes inside of QUIC (RFC 9001): messages in CRYPTO frames instead of records, and keys
//! that QUIC encrypts its packets with.
//!
//! ```text
//! CRYPTO bytes ─► Reading ─ClientHello─► Chooser ─┬─ Serve ──► Running: rustls
//!                                                 ├─ Wait ───► Waiting ── Desk::give ──► Running
//!                                                 └─ Refuse ─► the alert as an error of QUIC
//! ```
//!
//! quinn-proto owns the connection and calls the session; the session owns rustls. What was agreed
//! is asked through `handshake_data`, as an [`Agreement`].
//!
//! 1. No bytes of a peer make anything here panic.
//! 2. rustls sees no byte before the context is chosen.
//! 3. A session that waits says nothing; a client that has heard nothing of its handshake asks
//!    again (RFC 9002 §6.2.2.1), and is answered then.

use std::any::Any;
use std::fmt;
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::{hkdf, hmac, rand};
use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn_proto::crypto::{
    ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair, Keys, PacketKey,
    ServerConfig as StartsSessions, Session as QuicSession, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::CertificateDer;
use rustls::quic::{KeyChange, Secrets, ServerConnection, Suite, Version};

use crate::engine::facts_of;
use crate::error::Error;
use crate::hello::{ClientHello, Reading};
use crate::identity::{self, Identity};
use crate::scope::{self, Learned, SessionId};
use crate::server::{self, Offers, ServerContext};
use crate::session::Facts;
use crate::tap::{self, PacketKind, Watch, Watcher};

/// The one version that is spoken: QUIC 1 (RFC 9000).
pub const VERSION: u32 = 1;

/// The alert for failures of ours: internal_error.
const INTERNAL_ERROR: u8 = 80;

/// The way in which a handshake goes on after the client's first message.
#[derive(Debug)]
pub enum Choice {
    /// By this context, with certificates of its own if there are some.
    Serve(Box<ServerContext>, Option<Vec<Arc<Identity>>>),
    /// Not before [`Desk::give`] says how.
    Wait,
    /// Not at all: the alert.
    Refuse(u8),
}

/// Chooses contexts.
pub trait Chooser: Send + Sync {
    /// Chooses for a client's first message.
    fn choose(&self, hello: &ClientHello) -> Choice;
}

/// A place where a session and whoever decides for it meet.
#[derive(Debug, Default)]
pub struct Desk(Mutex<Option<Choice>>);

impl Desk {
    /// Says how the handshake goes on.
    pub fn give(&self, choice: Choice) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(choice);
    }

    /// True if it was said and not yet heard.
    pub fn has_choice(&self) -> bool {
        let choice = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        choice.is_some()
    }

    fn take(&self) -> Option<Choice> {
        let mut choice = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        choice.take()
    }
}

/// The keys of a process that tokens and stateless resets are made with (RFC 9000 §8.1, §10.3).
#[derive(Clone)]
pub struct HostKey {
    reset: Arc<dyn HmacKey>,
    token: Arc<dyn HandshakeTokenKey>,
}

/// Secrets are not shown.
impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostKey")
    }
}

impl HostKey {
    /// The keys that follow from a secret.
    pub fn new(secret: &[u8]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let reset = hmac::sign(&root, b"millpond quic reset");
        let token = hmac::sign(&root, b"millpond quic token");
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"millpond quic");
        Self {
            reset: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, reset.as_ref())),
            token: Arc::new(salt.extract(token.as_ref())),
        }
    }

    /// Keys that nobody knows.
    pub fn random() -> Result<Self, Error> {
        let mut secret = [0; 64];
        rand::fill(&mut secret).map_err(|_| Error::ours("the system has no random numbers"))?;
        Ok(Self::new(&secret))
    }

    /// The key of stateless resets.
    pub fn reset(&self) -> Arc<dyn HmacKey> {
        Arc::clone(&self.reset)
    }

    /// The key of tokens.
    pub fn token(&self) -> Arc<dyn HandshakeTokenKey> {
        Arc::clone(&self.token)
    }
}

/// Starts the sessions of an address.
pub struct Starter {
    /// The keys of first packets, which depend on no context.
    initial: QuicServerConfig,
    suite: Suite,
    chooser: Arc<dyn Chooser>,
    watch: Option<Arc<Watch>>,
}

impl Starter {
    /// A starter whose sessions ask `chooser`, and whose packets `watch` sees.
    pub fn new(chooser: Arc<dyn Chooser>, watch: Option<Arc<Watch>>) -> Result<Self, Error> {
        let failed = |_: NoInitialCipherSuite| Error::ours("a cipher suite is lacking");
        let suite = provider::cipher_suite::TLS13_AES_128_GCM_SHA256
            .tls13()
            .and_then(|suite| suite.quic_suite())
            .ok_or(Error::ours("a cipher suite is lacking"))?;
        let bare = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
        Ok(Self {
            initial: QuicServerConfig::with_initial(Arc::new(bare), suite).map_err(failed)?,
            suite,
            chooser,
            watch,
        })
    }
}

impl StartsSessions for Starter {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        let keys = self.initial.initial_keys(version, dst_cid)?;
        Ok(match &self.watch {
            Some(watch) => watch.begin(dst_cid, keys),
            None => keys,
        })
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.initial.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        _version: u32,
        params: &TransportParameters,
    ) -> Box<dyn QuicSession> {
        let mut parameters = Vec::new();
        params.write(&mut parameters);
        Box::new(Handshake {
            suite: self.suite,
            chooser: Arc::clone(&self.chooser),
            parameters,
            server_name: None,
            hello: None,
            learned: Learned::default(),
            next_secrets: None,
            watcher: self.watch.as_ref().and_then(|watch| watch.take()),
            state: State::Reading(Vec::new()),
        })
    }
}

/// The state of a session; the module's doc has the diagram.
enum State {
    /// The bytes of the first message, as far as they came.
    Reading(Vec<u8>),
    /// The first message, for a context that is not there yet.
    Waiting(Vec<u8>, Arc<Desk>),
    /// rustls.
    Running(Box<ServerConnection>),
    /// The alert that ended it.
    Failed(u8, String),
}

/// One connection's handshake.
struct Handshake {
    suite: Suite,
    chooser: Arc<dyn Chooser>,
    /// Our transport parameters, as they go out.
    parameters: Vec<u8>,
    server_name: Option<Box<str>>,
    hello: Option<Box<ClientHello>>,
    learned: Learned,
    next_secrets: Option<Secrets>,
    watcher: Option<Arc<dyn Watcher>>,
    state: State,
}

/// Everything that a handshake has agreed on so far.
#[derive(Debug)]
pub enum Progress {
    /// The client's first message has not come whole.
    Reading,
    /// The first message is there, and waits for its context at the desk.
    Waiting(Box<ClientHello>, Arc<Desk>),
    /// A context serves it.
    Running(Box<Agreement>),
    /// The end of a handshake that failed.
    Failed,
}

/// The facts of a handshake, on their own.
#[derive(Debug)]
pub struct Agreement {
    facts: Facts<'static>,
    alpn: Option<Box<[u8]>>,
    server_name: Option<Box<str>>,
    session_id: Option<SessionId>,
    peer_certificates: Vec<CertificateDer<'static>>,
    note: Box<[u8]>,
    hello: Option<Box<ClientHello>>,
}

impl Agreement {
    /// The facts.
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            alpn: self.alpn.as_deref(),
            server_name: self.server_name.as_deref(),
            session_id: self.session_id.as_ref(),
            peer_certificates: &self.peer_certificates,
            note: &self.note,
            hello: self.hello.as_deref(),
            ..self.facts
        }
    }
}

impl Handshake {
    /// Goes on with a choice; `bytes` are the client's so far.
    fn obey(&mut self, choice: Choice, bytes: Vec<u8>) {
        match choice {
            Choice::Wait => self.state = State::Waiting(bytes, Arc::default()),
            Choice::Refuse(alert) => {
                self.state = State::Failed(alert, String::from("handshake refused"));
            }
            Choice::Serve(context, identities) => match self.begin(*context, identities) {
                Ok(connection) => {
                    self.state = State::Running(connection);
                    // The failure stays, for whoever looks next.
                    let _ = self.feed(&bytes);
                }
                Err((alert, why)) => self.state = State::Failed(alert, why),
            },
        }
    }

    fn begin(
        &mut self,
        context: ServerContext,
        identities: Option<Vec<Arc<Identity>>>,
    ) -> Result<Box<ServerConnection>, (u8, String)> {
        let hello = self.hello.as_deref();
        if let Some((alert, error)) = hello.and_then(|it| server::flaw(it, context.versions)) {
            return Err((alert, error.to_string()));
        }
        let Some(config) = context.quic else {
            return Err((server::UNRECOGNIZED_NAME, String::from("no QUIC here")));
        };
        if context.offers == Offers::Forget {
            self.hello = None;
        }
        self.learned.certificates = identities.map(|own| identity::certificates(&own));
        let parameters = std::mem::take(&mut self.parameters);
        ServerConnection::new(config, Version::V1, parameters)
            .map(Box::new)
            .map_err(|error| (INTERNAL_ERROR, error.to_string()))
    }

    /// Gives rustls bytes of the client.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let State::Running(connection) = &mut self.state else {
            return self.check();
        };
        let read = scope::with(&mut self.learned, || connection.read_hs(bytes));
        if let Err(error) = read {
            let alert = connection.alert().map_or(INTERNAL_ERROR, u8::from);
            self.state = State::Failed(alert, Error::from(error).to_string());
        }
        self.check()
    }

    fn check(&self) -> Result<(), TransportError> {
        match &self.state {
            State::Failed(alert, why) => Err(TransportError {
                code: TransportErrorCode::crypto(*alert),
                frame: None,
                reason: why.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn read_hello(&mut self, mut bytes: Vec<u8>) {
        match ClientHello::read_message(&bytes) {
            Ok(Reading::Partial) => self.state = State::Reading(bytes),
            Err(error) => self.state = State::Failed(10, error.to_string()),
            Ok(Reading::Whole(hello)) => {
                let choice = self.chooser.choose(&hello);
                self.server_name = hello.server_name().map(Box::from);
                self.hello = Some(hello);
                self.obey(choice, std::mem::take(&mut bytes));
            }
        }
    }

    /// Looks at the desk, if the session waits there.
    fn look(&mut self) {
        let State::Waiting(bytes, desk) = &mut self.state else {
            return;
        };
        if let Some(choice) = desk.take() {
            let bytes = std::mem::take(bytes);
            self.obey(choice, bytes);
        }
    }

    /// Keys, watched if somebody wants that.
    fn watched(&self, keys: Keys, kind: PacketKind) -> Keys {
        match &self.watcher {
            Some(watcher) => tap::watched(keys, (watcher, kind)),
            None => keys,
        }
    }

    fn agreement(&self, connection: &ServerConnection) -> Agreement {
        let learned = &self.learned;
        let facts = facts_of(connection, learned, [learned.sigalg, learned.peer_sigalg]);
        Agreement {
            alpn: facts.alpn.map(Box::from),
            server_name: self.server_name.clone(),
            session_id: facts.session_id.copied(),
            peer_certificates: facts.peer_certificates.to_vec(),
            note: facts.note.into(),
            hello: self.hello.clone(),
            facts: Facts {
                protocol: facts.protocol,
                cipher: facts.cipher,
                curve: facts.curve,
                sigalg: facts.sigalg,
                client_sigalg: facts.client_sigalg,
                is_resumed: facts.is_resumed,
                ..Facts::default()
            },
        }
    }
}

impl QuicSession for Handshake {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        let side = match side {
            Side::Client => rustls::Side::Client,
            Side::Server => rustls::Side::Server,
        };
        let made = keys(self.suite.keys(dst_cid, side, Version::V1));
        self.watched(made, PacketKind::Initial)
    }

    /// A [`Progress`].
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(match &self.state {
            State::Reading(_) => Progress::Reading,
            State::Failed(..) => Progress::Failed,
            State::Waiting(_, desk) => {
                Progress::Waiting(self.hello.clone().unwrap_or_default(), Arc::clone(desk))
            }
            State::Running(connection) => Progress::Running(Box::new(self.agreement(connection))),
        }))
    }

    /// None: [`Agreement`] has the certificates.
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let State::Running(connection) = &self.state else {
            return None;
        };
        let keys = connection.zero_rtt_keys()?;
        let packet: Box<dyn PacketKey> = match &self.watcher {
            Some(watcher) => tap::tapped(Box::new(keys.packet), (watcher, PacketKind::Early)),
            None => Box::new(keys.packet),
        };
        Some((Box::new(keys.header), packet))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        match &self.state {
            State::Running(connection) => connection.is_handshaking(),
            _ => true,
        }
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        match &mut self.state {
            State::Reading(kept) => {
                let mut kept = std::mem::take(kept);
                kept.extend_from_slice(bytes);
                self.read_hello(kept);
                self.check()?;
            }
            // Nothing may follow the first message before it is answered; rustls says so.
            State::Waiting(kept, _) => kept.extend_from_slice(bytes),
            _ => self.feed(bytes)?,
        }
        Ok(false)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let State::Running(connection) = &self.state else {
            return Ok(None);
        };
        let Some(bytes) = connection.quic_transport_parameters() else {
            return Ok(None);
        };
        Ok(Some(TransportParameters::read(
            Side::Server,
            &mut Cursor::new(bytes),
        )?))
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        self.look();
        let State::Running(connection) = &mut self.state else {
            return None;
        };
        let change = scope::with(&mut self.learned, || connection.write_hs(out));
        if !connection.is_handshaking() {
            self.learned.certificates = None;
        }
        let (made, kind) = match change? {
            KeyChange::Handshake { keys } => (keys, PacketKind::Handshake),
            KeyChange::OneRtt { keys, next } => {
                self.next_secrets = Some(next);
                (keys, PacketKind::Data)
            }
        };
        Some(self.watched(keys(made), kind))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next_secrets.as_mut()?.next_packet_keys();
        let pair: KeyPair<Box<dyn PacketKey>> = KeyPair {
            local: Box::new(keys.local),
            remote: Box::new(keys.remote),
        };
        Some(match &self.watcher {
            Some(watcher) => tap::tapped_pair(pair, (watcher, PacketKind::Data)),
            None => pair,
        })
    }

    /// False: servers get no Retry.
    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false
    }

    /// Nothing: nobody here asks for it.
    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

fn keys(keys: rustls::quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(keys.local.header),
            remote: Box::new(keys.remote.header),
        },
        packet: KeyPair {
            local: Box::new(keys.local.packet),
            remote: Box::new(keys.remote.packet),
        },
    }
}
