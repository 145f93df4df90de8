//! Both ends of a connection, and the certificates that they need.
//!
//! Bytes are carried by hand, so that a test can change, cut and withhold them.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::BytesMut;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::DigitallySignedStruct;
use rustls::SignatureScheme;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::{
    Accepting, Acceptor, ClientContext, ClientSettings, Error, Identity, Inside, Received,
    ServerContext, ServerSettings, Session, Target,
};

/// The kind of a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rsa,
    Ecdsa,
}

/// A certificate of a new key.
pub(super) fn identity(kind: Kind, name: &str) -> Arc<Identity> {
    let algorithm = match kind {
        Kind::Rsa => &PKCS_RSA_SHA256,
        Kind::Ecdsa => &PKCS_ECDSA_P256_SHA256,
    };
    let key = KeyPair::generate_for(algorithm).unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let signing = provider::sign::any_supported_type(&der).unwrap();
    Arc::new(Identity::new(vec![certificate.der().clone()], signing))
}

/// Takes every certificate, and verifies signatures by it.
#[derive(Debug)]
pub(super) struct Trusting;

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
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = provider::default_provider().signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

pub(super) fn server(settings: &ServerSettings) -> ServerContext {
    ServerContext::new(settings).unwrap()
}

pub(super) fn client_settings() -> ClientSettings {
    ClientSettings::new(Arc::new(Trusting))
}

pub(super) fn client(settings: &ClientSettings) -> ClientContext {
    ClientContext::new(settings).unwrap()
}

pub(super) fn target(name: &str) -> Target {
    Target {
        name: name.into(),
        ..Target::default()
    }
}

/// Both ends of a connection.
pub(super) struct Pair {
    pub client: Box<dyn Session>,
    pub server: Box<dyn Session>,
    /// Plaintext that the client has got.
    pub at_client: BytesMut,
    /// Plaintext that the server has got.
    pub at_server: BytesMut,
}

/// The first error of a handshake, at the server or at the client.
#[derive(Debug)]
pub(super) struct Failed {
    pub server: Option<Error>,
    pub client: Option<Error>,
}

impl Pair {
    /// Connects, and finishes the handshake.
    pub(super) fn new(server: &ServerContext, client: &ClientContext, target: Target) -> Self {
        Self::try_new(server, client, target).unwrap()
    }

    pub(super) fn try_new(
        server: &ServerContext,
        client: &ClientContext,
        target: Target,
    ) -> Result<Self, Failed> {
        let mut to_server = BytesMut::new();
        let mut client = client.connect(target, &mut to_server).unwrap();
        let mut to_client = BytesMut::new();
        let Ok(Accepting::Whole(accepted)) = Acceptor::new().accept(&to_server, &mut to_client)
        else {
            panic!("the client's first message is one");
        };
        let (mut at_client, mut at_server) = (BytesMut::new(), BytesMut::new());
        let chosen = accepted.choose((server, Inside::Usual), &mut at_server, &mut to_client);
        let (server, _) = match chosen {
            Ok(chosen) => chosen,
            Err(error) => {
                let mut none = BytesMut::new();
                let told = client.receive(&mut to_client, &mut at_client, &mut none);
                return Err(Failed {
                    server: Some(error),
                    client: told.err(),
                });
            }
        };
        let mut pair = Self {
            client,
            server,
            at_client,
            at_server,
        };
        pair.exchange(BytesMut::new(), to_client)?;
        Ok(pair)
    }

    /// Carries bytes to and fro until both are quiet.
    pub(super) fn exchange(
        &mut self,
        mut to_server: BytesMut,
        mut to_client: BytesMut,
    ) -> Result<(), Failed> {
        while !to_server.is_empty() || !to_client.is_empty() {
            let mut bytes = to_client.split();
            let client = self
                .client
                .receive(&mut bytes, &mut self.at_client, &mut to_server);
            let mut bytes = to_server.split();
            let server = self
                .server
                .receive(&mut bytes, &mut self.at_server, &mut to_client);
            let (client, server) = (client.err(), server.err());
            if client.is_some() || server.is_some() {
                return Err(Failed { server, client });
            }
        }
        Ok(())
    }

    /// Sends from the client to the server.
    pub(super) fn ask(&mut self, pieces: &[&[u8]]) -> Received {
        let mut records = seal(&mut *self.client, pieces);
        let mut out = BytesMut::new();
        self.server
            .receive(&mut records, &mut self.at_server, &mut out)
            .unwrap()
    }

    /// Sends from the server to the client.
    pub(super) fn answer(&mut self, pieces: &[&[u8]]) -> Received {
        let mut records = seal(&mut *self.server, pieces);
        let mut out = BytesMut::new();
        self.client
            .receive(&mut records, &mut self.at_client, &mut out)
            .unwrap()
    }
}

/// The records of some plaintext.
pub(super) fn seal(session: &mut dyn Session, pieces: &[&[u8]]) -> BytesMut {
    let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut records = BytesMut::new();
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    assert_eq!(session.send(&slices, &mut records).unwrap(), len);
    records
}
