//! Memory of idle connections: `cargo run --release -p millpond-tls --example idle_bytes`.
//!
//! Makes connections of a server and a client of this crate in memory, each of which has carried a
//! request and an answer, and asks the system how much the process has grown by the servers' ends.
//! The clients' ends are dropped one by one, so that what they took is used again by the next.

use std::error::Error;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::BytesMut;
use millpond_tls::{
    Accepting, Acceptor, ClientContext, ClientSettings, Identity, Inside, ServerContext,
    ServerSettings, Session, Target, Tickets, Versions,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

/// Connections that are kept.
const CONNECTIONS: usize = 5000;

/// Takes everything: only the server's end is looked at.
#[derive(Debug)]
struct Trusting;

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
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // All stay, as what is freed would be used again.
    let mut idle = Vec::new();
    for versions in [Versions::Tls12, Versions::Tls13] {
        let (server, client) = contexts(versions)?;
        // What is made once is made by the first.
        idle.push(connect(&server, &client)?);
        idle.reserve(CONNECTIONS);
        let before = resident()?;
        for _ in 0..CONNECTIONS {
            idle.push(connect(&server, &client)?);
        }
        let each = resident()?.saturating_sub(before) / CONNECTIONS;
        println!("{versions:?}: {each} bytes each");
    }
    Ok(())
}

fn contexts(versions: Versions) -> Result<(ServerContext, ClientContext), Box<dyn Error>> {
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new(vec!["a".to_owned()])?.self_signed(&key)?;
    let der = PrivateKeyDer::try_from(key.serialize_der())?;
    let signing = rustls::crypto::aws_lc_rs::sign::any_supported_type(&der)?;
    let identity = Identity::new(vec![certificate.der().clone()], signing);
    let mut settings = ServerSettings::new(vec![Arc::new(identity)]);
    settings.versions = versions;
    let lifetime = settings.session_timeout;
    settings.tickets = Some(Arc::new(Tickets::rotating(lifetime)));
    let asking = ClientSettings::new(Arc::new(Trusting));
    Ok((ServerContext::new(&settings)?, ClientContext::new(&asking)?))
}

/// A connection that has served a request, and its client no more.
fn connect(
    server: &ServerContext,
    client: &ClientContext,
) -> Result<Box<dyn Session>, Box<dyn Error>> {
    let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
    let mut plain = BytesMut::new();
    let mut client = client.connect(Target::default(), &mut to_server)?;
    let Accepting::Whole(accepted) = Acceptor::new().accept(&to_server, &mut to_client)? else {
        return Err("the first message is not whole".into());
    };
    let (mut server, _) = accepted.choose((server, Inside::Usual), &mut plain, &mut to_client)?;
    to_server.clear();
    while !to_client.is_empty() || !to_server.is_empty() {
        client.receive(&mut to_client.split(), &mut plain, &mut to_server)?;
        server.receive(&mut to_server.split(), &mut plain, &mut to_client)?;
    }
    client.send(&[IoSlice::new(&[b'q'; 300])], &mut to_server)?;
    server.receive(&mut to_server, &mut plain, &mut to_client)?;
    server.send(&[IoSlice::new(&[b'a'; 40_000])], &mut to_client)?;
    client.receive(&mut to_client, &mut plain, &mut to_server)?;
    Ok(server)
}

/// Bytes of the process that are in memory.
fn resident() -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no VmRSS")?.parse::<usize>()? * 1024)
}
