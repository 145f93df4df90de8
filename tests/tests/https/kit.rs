//! Certificates, and pairs of servers that speak HTTPS with each other.

use anyhow::{Context, Result};
use millpond_testkit::{Deadline, Kind, LogCheck, Origin, Proxy};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme, StreamOwned,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for something that must come.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// An authority, and the certificates that it signs.
pub(crate) struct Authority {
    /// Its certificate.
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// An authority of a name.
    pub(crate) fn new(name: &str) -> Result<Authority> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority {
            pem,
            issuer: Issuer::new(params, key),
        })
    }

    /// Its key.
    pub(crate) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate for a name, and its key.
    pub(crate) fn sign(&self, name: &str) -> Result<[String; 2]> {
        let key = KeyPair::generate()?;
        self.sign_as((name, &key), CertificateParams::new(vec![name.to_owned()])?)
    }

    /// A certificate with a key of RSA.
    pub(crate) fn sign_rsa(&self, name: &str) -> Result<[String; 2]> {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        self.sign_as((name, &key), CertificateParams::new(vec![name.to_owned()])?)
    }

    /// A certificate with a number.
    pub(crate) fn sign_numbered(&self, name: &str, number: u8) -> Result<[String; 2]> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.serial_number = Some(vec![number].into());
        let key = KeyPair::generate()?;
        self.sign_as((name, &key), params)
    }

    fn sign_as(
        &self,
        (name, key): (&str, &KeyPair),
        mut params: CertificateParams,
    ) -> Result<[String; 2]> {
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(key, &self.issuer)?;
        Ok([certificate.pem(), key.serialize_pem()])
    }
}

/// A server with encrypted addresses, and one that asks it: both of these lines.
pub(crate) fn pair(
    kinds: [Kind; 2],
    [front, back]: [&str; 2],
    origin: &Origin,
) -> Result<[Proxy; 2]> {
    let authority = Authority::new("root")?;
    let others = Authority::new("others")?;
    let [cert, key] = authority.sign("back.example")?;
    let [client_cert, client_key] = authority.sign("client")?;
    let [strange_cert, strange_key] = others.sign("stranger")?;
    let start = |kind, conf: &str, port: &str| {
        Proxy::new(kind, conf)
            .origin(origin)
            .value("BACK", port)
            .file("ca.pem", &authority.pem)
            .file("others.pem", &others.pem)
            .file("cert.pem", &cert)
            .file("key.pem", &key)
            .file("client.pem", &client_cert)
            .file("client.key", &client_key)
            .file("stranger.pem", &strange_cert)
            .file("stranger.key", &strange_key)
            .log_check(LogCheck::Off)
            .start()
    };
    let back = start(kinds[1], back, "0")?;
    let front = start(kinds[0], front, &back.port().to_string())?;
    Ok([front, back])
}

/// Waits until a server's log has a text.
pub(crate) fn says(proxy: &Proxy, text: &str) -> Result<()> {
    let is_there = || proxy.error_log().contains(text).then_some(());
    let found = Deadline::after(WAIT).poll(is_there);
    found.with_context(|| format!("nobody says {text}: {}", proxy.error_log()))
}

/// An encrypted connection of a client.
pub(crate) type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// A client's settings: an authority that it trusts, and a certificate with its key that it shows.
pub(crate) fn client_config(
    authority: &Authority,
    own: Option<&[String; 2]>,
) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes())?)?;
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match own {
        Some([certificate, key]) => builder.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(key.as_bytes())?,
        )?,
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::in_memory_sessions(64);
    Ok(Arc::new(config))
}

/// An origin's settings.
pub(crate) fn server_config([certificate, key]: &[String; 2]) -> Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let config = ServerConfig::builder().with_no_client_auth();
    Ok(Arc::new(config.with_single_cert(vec![certificate], key)?))
}

/// Makes an encrypted connection to a port, for a name.
pub(crate) fn encrypted(config: &Arc<ClientConfig>, port: u16, name: &str) -> Result<Encrypted> {
    let name = ServerName::try_from(name.to_owned())?;
    let session = ClientConnection::new(Arc::clone(config), name)?;
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(WAIT))?;
    let mut stream = StreamOwned::new(session, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Sends a request, and reads its answer up to a text that it ends with.
pub(crate) fn ask(stream: &mut Encrypted, request: &str, end: &str) -> Result<String> {
    stream.write_all(request.as_bytes())?;
    read_to(stream, end)
}

/// Reads up to a text.
pub(crate) fn read_to(stream: &mut Encrypted, end: &str) -> Result<String> {
    let mut told = Vec::new();
    while !told.ends_with(end.as_bytes()) {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece)?;
        anyhow::ensure!(count > 0, "it ends: {}", String::from_utf8_lossy(&told));
        told.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    Ok(String::from_utf8(told)?)
}

/// Takes any certificate: for clients whose subject is something else.
#[derive(Debug)]
pub(crate) struct Trusting;

impl ServerCertVerifier for Trusting {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let algorithms = provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
