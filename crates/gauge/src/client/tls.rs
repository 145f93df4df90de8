//! TLS towards the server: whom it trusts, the name it asks for, and sessions that are resumed.
//!
//! Each connection that is kept, and all that follow it in its place, have sessions of their own,
//! as each user of a browser has.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Protocol;

/// Files in which systems keep the certificates that they trust: Debian and Alpine, Fedora, SUSE.
const SYSTEM: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Certificates that a server's certificate must lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those of the system.
    System,
    /// Those of a file, in PEM.
    File(PathBuf),
    /// One certificate, in DER.
    Certificate(Vec<u8>),
    /// Any: the certificate is not checked.
    Anyone,
}

/// Use of earlier sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// Resumed where the server lets them.
    Resumed,
    /// Every handshake is a full one.
    Forgotten,
}

/// TLS towards one server.
#[derive(Debug)]
pub struct Tls {
    config: ClientConfig,
    name: ServerName<'static>,
    sessions: Sessions,
}

impl Tls {
    /// TLS with a server of that name (or address).
    ///
    /// Fails if the name is none, or if there are no certificates to trust.
    pub fn new(trust: &Trust, name: &str, sessions: Sessions) -> Result<Self> {
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let trusting = match roots(trust)? {
            Some(roots) => config.with_root_certificates(roots),
            None => config
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Unchecked(provider))),
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned())
            .with_context(|| format!("{name}: no name of a server"))?;
        Ok(Self {
            config: trusting.with_no_client_auth(),
            name,
            sessions,
        })
    }

    /// Maker of handshakes that agree on a protocol, with sessions of its own.
    pub(super) fn connector(&self, protocol: Protocol) -> Connector {
        let mut config = self.config.clone();
        config.alpn_protocols = vec![protocol.alpn().to_vec()];
        config.resumption = match self.sessions {
            Sessions::Resumed => Resumption::in_memory_sessions(SESSIONS_MAX),
            Sessions::Forgotten => Resumption::disabled(),
        };
        Connector {
            connector: TlsConnector::from(Arc::new(config)),
            name: self.name.clone(),
        }
    }
}

/// Servers whose sessions are remembered; there is one.
const SESSIONS_MAX: usize = 1;

/// Maker of handshakes.
#[derive(Clone)]
pub(super) struct Connector {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connector({:?})", self.name)
    }
}

impl Connector {
    /// Agrees on TLS.
    pub(super) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

/// Certificates that are trusted; none if the server's is not checked.
fn roots(trust: &Trust) -> Result<Option<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Anyone => return Ok(None),
        Trust::Certificate(der) => roots.add(CertificateDer::from(der.clone()))?,
        Trust::File(path) => add_file(&mut roots, path)?,
        Trust::System => {
            let mut files = SYSTEM.iter().map(Path::new);
            let Some(path) = files.find(|path| path.exists()) else {
                bail!("this system has no certificates to trust; say --ca FILE or --insecure");
            };
            add_file(&mut roots, path)?;
        }
    }
    Ok(Some(roots))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<()> {
    let wrong = || format!("cannot read certificates of {}", path.display());
    let all = CertificateDer::pem_file_iter(path).with_context(wrong)?;
    for certificate in all {
        // Systems have some that no rule of today takes; all others are of use.
        let _ = roots.add(certificate.with_context(wrong)?);
    }
    if roots.is_empty() {
        bail!("{}: no certificate that can be trusted", path.display());
    }
    Ok(())
}

/// Taking of any certificate; the server must have its key all the same.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
