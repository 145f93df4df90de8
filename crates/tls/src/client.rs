//! The side of upstreams: what a connection to one begins with.
//!
//! 1. A context is made once and serves any number of connections on any threads.
//! 2. A session is resumed only under the key that it was made under, and only by the context that
//!    made it.
//!
//! Whether the upstream's certificate is good is the verifier's to say: there is none of ours.

use std::sync::Arc;

use bytes::BytesMut;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ResolvesClientCert, Resumption, UnbufferedClientConnection};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{IpAddr, Ipv4Addr, ServerName};
use rustls::sign::CertifiedKey;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{ClientConfig, KeyLog, NoKeyLog, SignatureScheme};

use crate::FRAGMENT_MAX;
use crate::engine::{Beginning, Engine};
use crate::error::Error;
use crate::group::Groups;
use crate::identity::{self, Identity, Otherwise};
use crate::resumption::ClientSessions;
use crate::scope::{self, Learned};
use crate::session::Session;
use crate::suite::Ciphers;
use crate::verifier::NotedServer;
use crate::version::Versions;

/// Settings that a context is made of.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// `proxy_ssl_verify`: it decides about the upstream's certificate.
    pub verifier: Arc<dyn ServerCertVerifier>,
    /// `proxy_ssl_certificate`: certificates to be shown if the upstream asks for one.
    pub identities: Vec<Arc<Identity>>,
    /// `proxy_ssl_protocols`.
    pub versions: Versions,
    /// `proxy_ssl_ciphers`.
    pub ciphers: Ciphers,
    /// Groups of the key exchange.
    pub groups: Groups,
    /// `proxy_ssl_server_name`.
    pub sni: Sni,
    /// `proxy_ssl_session_reuse`; none is off.
    pub sessions: Option<Arc<ClientSessions>>,
    /// The longest plaintext of a record; at least [`crate::FRAGMENT_MIN`].
    pub fragment: usize,
    /// A log of the connections' secrets, for a debugger.
    pub key_log: Option<Arc<dyn KeyLog>>,
    /// The time.
    pub time: Arc<dyn TimeProvider>,
}

/// The name that is sent to the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sni {
    /// None.
    #[default]
    Off,
    /// That of the connection, unless it is an address.
    On,
}

impl ClientSettings {
    /// Settings with nginx's defaults.
    pub fn new(verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self {
            verifier,
            identities: Vec::new(),
            versions: Versions::default(),
            ciphers: Ciphers::default(),
            groups: Groups::default(),
            sni: Sni::default(),
            sessions: None,
            fragment: FRAGMENT_MAX,
            key_log: None,
            time: Arc::new(DefaultTimeProvider),
        }
    }
}

/// Everything that connects to the upstreams of one configuration.
#[derive(Clone, Debug)]
pub struct ClientContext {
    config: Arc<ClientConfig>,
    fragment: usize,
}

/// One connection to an upstream.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The name that is sent and verified, without a port.
    pub name: Arc<str>,
    /// Protocols inside, most preferred first; if empty, none is agreed.
    pub alpn: Vec<Vec<u8>>,
    /// The key under which sessions are kept: of the peer and of what it depends on.
    pub session_key: Option<Arc<[u8]>>,
    /// Certificates of this connection alone, in place of the context's.
    pub identities: Option<Arc<[Arc<Identity>]>>,
}

impl ClientContext {
    /// Makes a context.
    pub fn new(settings: &ClientSettings) -> Result<Self, Error> {
        let provider = CryptoProvider {
            cipher_suites: settings.versions.filter(settings.ciphers.suites()),
            kx_groups: settings.groups.groups.clone(),
            ..provider::default_provider()
        };
        let verifier = Arc::new(NotedServer(Arc::clone(&settings.verifier)));
        let identities = settings.identities.clone();
        let mut config =
            ClientConfig::builder_with_details(Arc::new(provider), Arc::clone(&settings.time))
                .with_protocol_versions(settings.versions.supported())?
                .dangerous()
                .with_custom_certificate_verifier(verifier)
                .with_client_cert_resolver(Arc::new(Resolver { identities }));
        config.enable_sni = settings.sni == Sni::On;
        // Records behind the handshake are ours.
        config.enable_secret_extraction = true;
        config.max_fragment_size = crate::message_size(settings.fragment);
        config.resumption = match &settings.sessions {
            Some(sessions) => Resumption::store(Arc::clone(sessions) as Arc<_>),
            None => Resumption::disabled(),
        };
        let key_log = settings.key_log.clone();
        config.key_log = key_log.unwrap_or_else(|| Arc::new(NoKeyLog {}));
        Ok(Self {
            config: Arc::new(config),
            fragment: crate::fragment(settings.fragment),
        })
    }

    /// Begins a connection: appends the first message to `out`.
    pub fn connect(&self, target: Target, out: &mut BytesMut) -> Result<Box<dyn Session>, Error> {
        let name = server_name(&target.name);
        let is_sent = self.config.enable_sni && matches!(name, ServerName::DnsName(_));
        let mut learned = Learned {
            server_name: Some(Arc::clone(&target.name)),
            session_key: target.session_key,
            certificates: target.identities.as_deref().map(identity::certificates),
            ..Learned::default()
        };
        let connection = scope::with(&mut learned, || {
            let config = Arc::clone(&self.config);
            UnbufferedClientConnection::new_with_alpn(config, name, target.alpn)
        })?;
        let beginning = Beginning {
            fragment: self.fragment,
            learned,
            server_name: is_sent.then_some(target.name),
            hello: None,
        };
        let mut session: Box<dyn Session> = Box::new(Engine::new(connection, beginning));
        session.receive(&mut [], &mut BytesMut::new(), out)?;
        Ok(session)
    }
}

/// The name as rustls takes it. One that is none of DNS's becomes an address, which is never sent;
/// verifiers ask [`crate::server_name`] for what was configured.
fn server_name(name: &str) -> ServerName<'static> {
    let address = IpAddr::V4(Ipv4Addr::from([0; 4]));
    ServerName::try_from(name.to_owned()).unwrap_or(ServerName::IpAddress(address))
}

/// The certificates of a context.
#[derive(Debug)]
struct Resolver {
    identities: Vec<Arc<Identity>>,
}

impl ResolvesClientCert for Resolver {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let rank = |certificate: &CertifiedKey| certificate.key.choose_scheme(schemes).map(|_| 0);
        identity::choose(&self.identities, rank, Otherwise::None)
    }

    fn has_certs(&self) -> bool {
        !self.identities.is_empty() || scope::ask(|learned| learned.certificates.clone()).is_some()
    }
}
