//! The side of clients: the first message, the context that it chooses, and what follows.
//!
//! ```text
//! Acceptor ──accept(bytes)──► Accepted ──choose(context)──► Session
//!    │                           │
//!    │ error                     │ reject(alert)
//!    ▼                           ▼
//!  alert in `out`              alert in `out`
//! ```
//!
//! Between `accept` and `choose` any time may pass: a certificate can be loaded meanwhile. Bytes
//! that come then are left in the socket, or given to the session afterwards.
//!
//! 1. A context is made once and serves any number of connections on any threads.
//! 2. A session resumes only in a context with equal certificates and equal
//!    [`ServerSettings::session_context`].

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::BytesMut;
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello as TlsHello, NoClientAuth, ResolvesServerCert, UnbufferedServerConnection,
};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{KeyLog, NamedGroup, NoKeyLog, ServerConfig, SignatureScheme, SupportedCipherSuite};

use crate::engine::{Beginning, Engine};
use crate::error::Error;
use crate::group::Groups;
use crate::hello::{ClientHello, Reading};
use crate::identity::{self, Identity, Otherwise};
use crate::resumption::{
    CacheMode, ContextCache, ContextId, ContextTickets, Rules, SessionCache, Tickets, UseCount,
};
use crate::session::{Received, Session};
use crate::suite::Ciphers;
use crate::verifier::NotedClient;
use crate::version::Versions;
use crate::{FRAGMENT_MAX, scope, suite};

/// The alert that OpenSSL sends for `ssl_reject_handshake`: unrecognized_name.
pub const UNRECOGNIZED_NAME: u8 = 112;

/// The alert for clients of other versions.
const PROTOCOL_VERSION: u8 = 70;

/// The alert for clients that have nothing in common with us.
const HANDSHAKE_FAILURE: u8 = 40;

/// The alert for clients that leave out what they must send.
const MISSING_EXTENSION: u8 = 109;

/// The alert for clients that speak less than they and we could.
const INAPPROPRIATE_FALLBACK: u8 = 86;

/// Early data of a connection that is taken, in bytes: OpenSSL's default is one record, too.
const EARLY_DATA_MAX: u32 = 16 * 1024;

/// Sessions of a context that takes early data and names no cache: rustls takes it only from
/// sessions that are kept. About 4,000 of them.
const EARLY_CACHE_BYTES: usize = 1024 * 1024;

/// Settings that a context is made of.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Certificates, of which the first is sent that the client can verify.
    pub identities: Vec<Arc<Identity>>,
    /// `ssl_protocols`.
    pub versions: Versions,
    /// `ssl_ciphers`, and the command `Ciphersuites`.
    pub ciphers: Ciphers,
    /// `ssl_ecdh_curve`.
    pub groups: Groups,
    /// `ssl_prefer_server_ciphers`.
    pub preference: Preference,
    /// Protocols inside, most preferred first; if empty, none is agreed.
    pub alpn: Vec<Vec<u8>>,
    /// A protocol that is preferred to those, where a connection may speak it.
    pub optional_alpn: Option<Vec<u8>>,
    /// Protocols inside of QUIC, most preferred first; if empty, the context serves no QUIC.
    pub quic_alpn: Vec<Vec<u8>>,
    /// `ssl_verify_client`; none asks for no certificate.
    pub verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Bytes that must be equal, too, for a session to be resumed: the settings of verification.
    pub session_context: Vec<u8>,
    /// `ssl_session_cache`.
    pub cache: CacheMode,
    /// `ssl_session_tickets`; none is off.
    pub tickets: Option<Arc<Tickets>>,
    /// Tickets that a client of TLS 1.3 gets.
    pub ticket_count: usize,
    /// `ssl_session_timeout`.
    pub session_timeout: Duration,
    /// `ssl_buffer_size`: the longest plaintext of a record; at least [`crate::FRAGMENT_MIN`].
    pub fragment: usize,
    /// `ssl_certificate_compression`.
    pub compression: Compression,
    /// `ssl_early_data`.
    pub early_data: EarlyData,
    /// Keeping what clients offered, for variables.
    pub offers: Offers,
    /// A log of the connections' secrets, for a debugger.
    pub key_log: Option<Arc<dyn KeyLog>>,
    /// The time.
    pub time: Arc<dyn TimeProvider>,
}

/// The side whose order of cipher suites counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The client's.
    #[default]
    Client,
    /// Ours.
    Server,
}

/// Compression of certificates (RFC 8879), by zlib.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Certificates go out as they are.
    #[default]
    Off,
    /// Certificates are compressed for clients that ask for it.
    Zlib,
}

/// Data of a client in its first flight (RFC 8446 §2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyData {
    /// Refused.
    #[default]
    Refuse,
    /// Taken from sessions that are kept, each once; there are no tickets then.
    Accept,
}

/// Keeping of what clients offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offers {
    /// Forgotten when the context is chosen.
    #[default]
    Forget,
    /// Kept as long as the connection.
    Keep,
}

impl ServerSettings {
    /// Settings with nginx's defaults.
    pub fn new(identities: Vec<Arc<Identity>>) -> Self {
        Self {
            identities,
            versions: Versions::default(),
            ciphers: Ciphers::default(),
            groups: Groups::default(),
            preference: Preference::default(),
            alpn: Vec::new(),
            optional_alpn: None,
            quic_alpn: Vec::new(),
            verifier: None,
            session_context: Vec::new(),
            cache: CacheMode::default(),
            tickets: None,
            ticket_count: 2,
            session_timeout: Duration::from_secs(300),
            fragment: FRAGMENT_MAX,
            compression: Compression::default(),
            early_data: EarlyData::default(),
            offers: Offers::default(),
            key_log: None,
            time: Arc::new(DefaultTimeProvider),
        }
    }

    fn context_id(&self) -> ContextId {
        let mut digest = digest::Context::new(&digest::SHA256);
        for identity in &self.identities {
            for certificate in identity.chain() {
                digest.update(&certificate.len().to_be_bytes());
                digest.update(&certificate);
            }
            digest.update(&[0; 8]);
        }
        digest.update(&self.session_context);
        let digest = digest.finish();
        let first = digest.as_ref().first_chunk();
        first.copied().unwrap_or_default()
    }

    fn rules(&self) -> Rules {
        Rules {
            context: self.context_id(),
            timeout: self.session_timeout,
            time: Arc::clone(&self.time),
            use_count: match self.early_data {
                EarlyData::Refuse => UseCount::Any,
                EarlyData::Accept => UseCount::Once,
            },
        }
    }
}

/// Everything that serves connections of one configuration.
#[derive(Clone, Debug)]
pub struct ServerContext {
    config: Arc<ServerConfig>,
    /// The same with the optional protocol.
    with_optional: Option<Arc<ServerConfig>>,
    /// The same for QUIC.
    pub(crate) quic: Option<Arc<ServerConfig>>,
    pub(crate) versions: Versions,
    fragment: usize,
    pub(crate) offers: Offers,
}

impl ServerContext {
    /// Makes a context.
    pub fn new(settings: &ServerSettings) -> Result<Self, Error> {
        let suites = settings.versions.filter(settings.ciphers.suites());
        let provider = CryptoProvider {
            cipher_suites: suites.clone(),
            kx_groups: settings.groups.groups.clone(),
            ..provider::default_provider()
        };
        let verifier: Arc<dyn ClientCertVerifier> = match &settings.verifier {
            Some(verifier) => Arc::new(NotedClient(Arc::clone(verifier))),
            None => Arc::new(NoClientAuth),
        };
        let identities = settings.identities.clone();
        let mut config =
            ServerConfig::builder_with_details(Arc::new(provider), Arc::clone(&settings.time))
                .with_protocol_versions(settings.versions.supported())?
                .with_client_cert_verifier(verifier)
                .with_cert_resolver(Arc::new(Resolver {
                    identities,
                    suites,
                    preference: settings.preference,
                }));
        apply(settings, &mut config);
        let with_optional = settings.optional_alpn.clone().map(|protocol| {
            let mut config = config.clone();
            config.alpn_protocols.insert(0, protocol);
            Arc::new(config)
        });
        let has_quic = !settings.quic_alpn.is_empty() && settings.versions != Versions::Tls12;
        let quic = has_quic.then(|| Arc::new(for_quic(settings, &config)));
        Ok(Self {
            config: Arc::new(config),
            with_optional,
            quic,
            versions: settings.versions,
            fragment: crate::fragment(settings.fragment),
            offers: settings.offers,
        })
    }
}

impl ServerContext {
    /// True if TLS 1.3 may be spoken.
    pub fn has_tls13(&self) -> bool {
        self.versions != Versions::Tls12
    }
}

/// The protocols that a connection may speak inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Those of [`ServerSettings::alpn`].
    Usual,
    /// [`ServerSettings::optional_alpn`], too.
    Optional,
}

fn apply(settings: &ServerSettings, config: &mut ServerConfig) {
    config.ignore_client_order = settings.preference == Preference::Server;
    config.alpn_protocols = settings.alpn.clone();
    config.max_fragment_size = crate::message_size(settings.fragment);
    config.send_tls13_tickets = settings.ticket_count;
    // Records behind the handshake are ours.
    config.enable_secret_extraction = true;
    if settings.compression == Compression::Off {
        config.cert_compressors = Vec::new();
    }
    // What clients send compressed would have to be bounded; OpenSSL does not ask for it either.
    config.cert_decompressors = Vec::new();
    let key_log = settings.key_log.clone();
    config.key_log = key_log.unwrap_or_else(|| Arc::new(NoKeyLog {}));
    let rules = settings.rules();
    let (mut mode, mut tickets) = (settings.cache.clone(), settings.tickets.clone());
    if settings.early_data == EarlyData::Accept {
        config.max_early_data_size = EARLY_DATA_MAX;
        config.send_half_rtt_data = true;
        if tickets.take().is_some() && !matches!(mode, CacheMode::Cache(_)) {
            mode = CacheMode::Cache(Arc::new(SessionCache::new(EARLY_CACHE_BYTES)));
        }
    }
    config.ticketer = Arc::new(ContextTickets {
        tickets,
        rules: rules.clone(),
    });
    config.session_storage = Arc::new(ContextCache { mode, rules });
}

/// The settings as QUIC has them: its frames bound messages and early data (RFC 9001 §4.6.1).
fn for_quic(settings: &ServerSettings, config: &ServerConfig) -> ServerConfig {
    let mut config = config.clone();
    config.alpn_protocols = settings.quic_alpn.clone();
    config.max_fragment_size = None;
    config.max_early_data_size = match settings.early_data {
        EarlyData::Refuse => 0,
        EarlyData::Accept => u32::MAX,
    };
    config
}

/// The certificates of a context.
#[derive(Debug)]
struct Resolver {
    identities: Vec<Arc<Identity>>,
    suites: Vec<SupportedCipherSuite>,
    preference: Preference,
}

impl Resolver {
    /// True if both sides speak TLS 1.3.
    fn has_tls13(&self, hello: &TlsHello<'_>) -> bool {
        let offered = hello.cipher_suites();
        let mut suites = self.suites.iter().filter(|suite| suite.tls13().is_some());
        suites.any(|suite| offered.contains(&suite.suite()))
    }

    /// True if both sides have a suite that takes this key; those of TLS 1.3 take all.
    fn has_suite(&self, hello: &TlsHello<'_>, key: &dyn SigningKey) -> bool {
        let offered = hello.cipher_suites();
        self.suites.iter().any(|suite| {
            offered.contains(&suite.suite())
                && suite::takes_key(suite, key.algorithm())
                && (suite.tls13().is_some() || has_curve(hello, key))
        })
    }
}

impl ResolvesServerCert for Resolver {
    /// The one whose key can sign what the client can verify, with a suite that both have. In TLS
    /// 1.3 suites say nothing of keys, and the client's order of schemes decides between several
    /// (OpenSSL), unless the server's own order does.
    fn resolve(&self, hello: TlsHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let by_scheme = self.preference == Preference::Client && self.has_tls13(&hello);
        let rank = |certificate: &CertifiedKey| {
            let key = certificate.key.as_ref();
            key.choose_scheme(schemes)?;
            self.has_suite(&hello, key).then_some(())?;
            Some(if by_scheme { place_of(key, schemes) } else { 0 })
        };
        identity::choose(&self.identities, rank, Otherwise::First)
    }
}

/// The place of the first scheme that a key can sign with in TLS 1.3 (RFC 8446 §4.2.3: none of
/// PKCS #1).
fn place_of(key: &dyn SigningKey, schemes: &[SignatureScheme]) -> usize {
    const OLD: [SignatureScheme; 3] = [
        SignatureScheme::RSA_PKCS1_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512,
    ];
    let signs = |scheme: &SignatureScheme| {
        !OLD.contains(scheme) && key.choose_scheme(std::slice::from_ref(scheme)).is_some()
    };
    schemes.iter().position(signs).unwrap_or(schemes.len())
}

/// RFC 8422 §5.1: in TLS 1.2 a client takes certificates with the curves that it names only.
fn has_curve(hello: &TlsHello<'_>, key: &dyn SigningKey) -> bool {
    const CURVES: [(SignatureScheme, NamedGroup); 3] = [
        (
            SignatureScheme::ECDSA_NISTP256_SHA256,
            NamedGroup::secp256r1,
        ),
        (
            SignatureScheme::ECDSA_NISTP384_SHA384,
            NamedGroup::secp384r1,
        ),
        (
            SignatureScheme::ECDSA_NISTP521_SHA512,
            NamedGroup::secp521r1,
        ),
    ];
    let is_of = |scheme| key.choose_scheme(&[scheme]).is_some();
    let found = CURVES.iter().find(|(scheme, _)| is_of(*scheme));
    match (found, hello.named_groups()) {
        (Some((_, curve)), Some(groups)) => groups.contains(curve),
        _ => true,
    }
}

/// A connection whose first message has not come whole.
#[derive(Debug, Default)]
pub struct Acceptor {
    bytes: Vec<u8>,
    /// The count of bytes below which there is nothing new to read.
    needed: usize,
}

/// The state of a connection whose first bytes have come.
#[derive(Debug)]
pub enum Accepting {
    /// More are needed.
    Partial(Acceptor),
    /// The message is whole.
    Whole(Accepted),
}

impl Acceptor {
    /// A connection of which nothing has come.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes of the socket. After an error, `out` is to be sent and the connection to be
    /// closed.
    pub fn accept(mut self, bytes: &[u8], out: &mut BytesMut) -> Result<Accepting, Error> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() < self.needed {
            return Ok(Accepting::Partial(self));
        }
        match ClientHello::read(&self.bytes) {
            Ok(Reading::Partial) => {
                self.needed = ClientHello::needed(&self.bytes);
                Ok(Accepting::Partial(self))
            }
            Ok(Reading::Whole(hello)) => Ok(Accepting::Whole(Accepted {
                bytes: self.bytes,
                hello,
                certificates: None,
            })),
            Err(error) => {
                if let Some(alert) = alert_of(&error) {
                    put_alert(alert, out);
                }
                Err(error)
            }
        }
    }
}

/// The alert that goes with what cannot be read; none to who does not speak TLS.
fn alert_of(error: &Error) -> Option<u8> {
    match error.reason() {
        "unexpected message" => Some(10),
        "packet length too long" => Some(22),
        "excessive message size" => Some(47),
        "unsupported protocol" => Some(PROTOCOL_VERSION),
        _ => None,
    }
}

/// The reason for which a whole message begins no handshake with these versions, and its alert,
/// where rustls has another one or none.
pub(crate) fn flaw(hello: &ClientHello, versions: Versions) -> Option<(u8, Error)> {
    if hello.is_outdated() {
        return Some((PROTOCOL_VERSION, Error::peer(258, "unsupported protocol")));
    }
    if hello.has_fallen_below(versions) {
        let error = Error::peer(373, "inappropriate fallback");
        return Some((INAPPROPRIATE_FALLBACK, error));
    }
    if hello.is_renegotiating() {
        return Some((
            HANDSHAKE_FAILURE,
            Error::peer(337, "renegotiation mismatch"),
        ));
    }
    hello
        .lacks(versions)
        .map(|error| (MISSING_EXTENSION, error))
}

/// Appends a fatal alert that is not encrypted.
fn put_alert(alert: u8, out: &mut BytesMut) {
    out.extend_from_slice(&[21, 3, 3, 0, 2, 2, alert]);
}

/// A connection whose first message has come, and which waits for its context.
#[derive(Debug)]
pub struct Accepted {
    bytes: Vec<u8>,
    hello: Box<ClientHello>,
    certificates: Option<Arc<[Arc<CertifiedKey>]>>,
}

impl Accepted {
    /// The client's message.
    pub fn hello(&self) -> &ClientHello {
        &self.hello
    }

    /// Gives the connection certificates of its own, in place of the context's. What they depend on
    /// has to stand in [`ServerSettings::session_context`].
    #[must_use]
    pub fn with_identities(self, identities: &[Arc<Identity>]) -> Self {
        Self {
            certificates: Some(identity::certificates(identities)),
            ..self
        }
    }

    /// Serves the connection by a context: appends early data to `plain` and the answer to `out`.
    pub fn choose(
        mut self,
        (context, inside): (&ServerContext, Inside),
        plain: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<(Box<dyn Session>, Received), Error> {
        if let Some((alert, error)) = flaw(&self.hello, context.versions) {
            put_alert(alert, out);
            return Err(error);
        }
        let config = match (inside, &context.with_optional) {
            (Inside::Optional, Some(config)) => config,
            _ => &context.config,
        };
        let connection = UnbufferedServerConnection::new(Arc::clone(config))?;
        let server_name = self.hello.server_name().map(Arc::from);
        let beginning = Beginning {
            fragment: context.fragment,
            learned: scope::Learned {
                certificates: self.certificates,
                ..scope::Learned::default()
            },
            server_name,
            hello: (context.offers == Offers::Keep).then_some(self.hello),
        };
        let mut session: Box<dyn Session> = Box::new(Engine::new(connection, beginning));
        let received = session.receive(&mut self.bytes, plain, out)?;
        Ok((session, received))
    }

    /// Refuses the connection by an alert, as [`UNRECOGNIZED_NAME`].
    pub fn reject(self, alert: u8, out: &mut BytesMut) -> Error {
        put_alert(alert, out);
        Error::peer(234, "callback failed")
    }
}
