//! A server's TLS: whatever comes is answered by an error at most; a client's plaintext arrives as
//! it was, however its records are cut; what is put between them is never taken for plaintext.

use std::io::IoSlice;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use bytes::BytesMut;
use millpond_tls::{
    Accepting, Acceptor, ClientContext, ClientSettings, Identity, Inside, Offers, ServerContext,
    ServerSettings, Session, Target, Tickets,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{DigitallySignedStruct, SignatureScheme};

use crate::pieces;

/// Contexts of both ends; nobody reads the certificate, so it is none.
static CONTEXTS: LazyLock<(ServerContext, ClientContext)> = LazyLock::new(|| {
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let der = PrivateKeyDer::Pkcs8(key.expect("a key").as_ref().to_vec().into());
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&der).expect("a key that signs");
    let identity = Identity::new(vec![CertificateDer::from(vec![0; 300])], key);
    let mut settings = ServerSettings::new(vec![Arc::new(identity)]);
    settings.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    settings.offers = Offers::Keep;
    settings.tickets = Some(Arc::new(Tickets::rotating(Duration::from_secs(300))));
    settings.time = Arc::new(Standing);
    let server = ServerContext::new(&settings).expect("a context");
    let client = ClientContext::new(&ClientSettings::new(Arc::new(Trusting))).expect("a context");
    (server, client)
});

/// A clock that stands.
#[derive(Debug)]
struct Standing;

impl TimeProvider for Standing {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(1 << 30)))
    }
}

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

/// Feeds bytes as a connection's first, as plaintext, or behind a handshake; the second byte says
/// how they are cut.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = pieces::split(data) else {
        return;
    };
    let Some((how, bytes)) = pieces::split(rest) else {
        return;
    };
    match mode % 3 {
        0 => begin(how, bytes),
        1 => carry(how, bytes),
        _ => interject(how, bytes),
    }
}

/// A connection that begins with these bytes.
fn begin(how: u8, bytes: &[u8]) {
    let (mut plain, mut out) = (BytesMut::new(), BytesMut::new());
    let mut acceptor = Acceptor::new();
    let mut pieces = pieces::cut(how, bytes);
    let accepted = loop {
        let Some(piece) = pieces.next() else {
            return;
        };
        match acceptor.accept(piece, &mut out) {
            Ok(Accepting::Partial(more)) => acceptor = more,
            Ok(Accepting::Whole(accepted)) => break accepted,
            Err(_) => return,
        }
    };
    let hello = accepted.hello().clone();
    let _ = (hello.suites_text(), hello.groups_text());
    let Ok((mut session, _)) =
        accepted.choose((&CONTEXTS.0, Inside::Optional), &mut plain, &mut out)
    else {
        return;
    };
    for piece in pieces {
        let mut piece = piece.to_vec();
        if session.receive(&mut piece, &mut plain, &mut out).is_err() {
            break;
        }
    }
    assert!(plain.is_empty(), "nobody has keys");
    assert_eq!(session.facts().hello, Some(&hello));
    session.close(&mut out);
}

/// Both ends after their handshake.
fn connected() -> [Box<dyn Session>; 2] {
    let (server, client) = &*CONTEXTS;
    let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
    let mut plain = BytesMut::new();
    let mut client = client
        .connect(Target::default(), &mut to_server)
        .expect("a client");
    let Ok(Accepting::Whole(accepted)) = Acceptor::new().accept(&to_server.split(), &mut to_client)
    else {
        panic!("a client's first message is whole");
    };
    let (mut server, _) = accepted
        .choose((server, Inside::Usual), &mut plain, &mut to_client)
        .expect("a server");
    while !to_client.is_empty() || !to_server.is_empty() {
        client
            .receive(&mut to_client.split(), &mut plain, &mut to_server)
            .expect("a handshake");
        server
            .receive(&mut to_server.split(), &mut plain, &mut to_client)
            .expect("a handshake");
    }
    [server, client]
}

/// Plaintext that is given in pieces, and whose records arrive in others.
fn carry(how: u8, bytes: &[u8]) {
    let [mut server, mut client] = connected();
    let (mut records, mut plain) = (BytesMut::new(), BytesMut::new());
    let slices: Vec<IoSlice<'_>> = pieces::cut(how, bytes).map(IoSlice::new).collect();
    assert_eq!(client.send(&slices, &mut records), Ok(bytes.len()));
    client.close(&mut records);
    let mut out = BytesMut::new();
    let mut is_closed = false;
    for piece in pieces::cut(how.wrapping_add(1), &records) {
        let mut piece = piece.to_vec();
        let received = server.receive(&mut piece, &mut plain, &mut out);
        is_closed |= received.expect("honest records").is_closed;
    }
    assert!(is_closed && plain[..] == *bytes);
}

/// Bytes that somebody puts behind a handshake.
fn interject(how: u8, bytes: &[u8]) {
    let [mut server, mut client] = connected();
    let (mut records, mut plain) = (BytesMut::new(), BytesMut::new());
    client
        .send(&[IoSlice::new(b"first")], &mut records)
        .expect("an open session");
    let mut out = BytesMut::new();
    server
        .receive(&mut records, &mut plain, &mut out)
        .expect("honest records");
    for piece in pieces::cut(how, bytes) {
        let mut piece = piece.to_vec();
        if server.receive(&mut piece, &mut plain, &mut out).is_err() {
            break;
        }
    }
    assert_eq!(&plain[..], b"first");
}
