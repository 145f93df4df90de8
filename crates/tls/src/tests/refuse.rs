//! Bytes that are refused: with which words, which alert, and whose mistake it was.
//!
//! Mutations come from a generator with a fixed seed, so that a failure comes again.

use bytes::BytesMut;

use super::pair::{
    Failed, Kind, Pair, Trusting, client, client_settings, identity, seal, server, target,
};
use crate::{
    Accepting, Acceptor, Ciphers, Error, Fault, Groups, Inside, ServerContext, ServerSettings,
    Versions,
};

fn first(bytes: &[u8]) -> (Option<Error>, BytesMut) {
    let mut out = BytesMut::new();
    let accepting = Acceptor::new().accept(bytes, &mut out);
    (accepting.err(), out)
}

#[test]
fn connections_that_do_not_begin_with_tls_are_named() {
    for (bytes, reason, alert) in [
        (&b"GET / HTTP/1.1\r\n"[..], "http request", None),
        (b"POST /x", "http request", None),
        (b"CONNECT a:443", "https proxy request", None),
        (b"SSH-2.0-x", "wrong version number", None),
        (b"\x00\x00\x00\x00\x00\x00", "wrong version number", None),
        (b"\x16\x02\x00\x00\x10\x01", "wrong version number", None),
        (
            b"\x80\x2e\x01\x00\x02\x00\x15",
            "unsupported protocol",
            Some(70),
        ),
        (b"\x17\x03\x03\x00\x10data", "unexpected message", Some(10)),
        (
            b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
            "unexpected message",
            Some(10),
        ),
        (
            b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
            "excessive message size",
            Some(47),
        ),
    ] {
        let (error, out) = first(bytes);
        let error = error.unwrap();
        assert_eq!(error.reason(), reason);
        assert_eq!(error.fault(), Fault::Peer);
        let told = alert.map(|alert| vec![21, 3, 3, 0, 2, 2, alert]);
        assert_eq!(out[..], told.unwrap_or_default());
    }
}

#[test]
fn first_message_has_a_bound() {
    let mut out = BytesMut::new();
    let mut acceptor = Acceptor::new();
    // Records of one byte each, of a message that never ends.
    let record = [22, 3, 1, 0, 1, 0];
    let head = [22, 3, 1, 0, 4, 1, 0, 255, 255];
    let Ok(Accepting::Partial(next)) = acceptor.accept(&head, &mut out) else {
        panic!("more is needed");
    };
    acceptor = next;
    for _ in 0..crate::HELLO_MAX {
        match acceptor.accept(&record.repeat(100), &mut out) {
            Ok(Accepting::Partial(next)) => acceptor = next,
            Ok(Accepting::Whole(_)) => panic!("there is no end"),
            Err(error) => {
                assert_eq!(error.reason(), "excessive message size");
                return;
            }
        }
    }
    panic!("no bound");
}

fn failed(settings: &ServerSettings, asking: &crate::ClientSettings) -> Failed {
    let pair = Pair::try_new(&server(settings), &client(asking), target("a"));
    pair.err().unwrap()
}

#[test]
fn ends_that_have_nothing_in_common_part_with_openssls_words() {
    let settings = ServerSettings::new(vec![identity(Kind::Rsa, "a")]);
    let mut asking = client_settings();
    asking.versions = Versions::Tls12;
    asking.ciphers = Ciphers::parse("aECDSA").unwrap();
    let parted = failed(&settings, &asking);
    assert_eq!(parted.server.unwrap().reason(), "no shared cipher");
    let told = parted.client.unwrap().to_string();
    assert!(
        told.contains("alert handshake failure:SSL alert number 40"),
        "{told}"
    );

    let mut modern = settings.clone();
    modern.versions = Versions::Tls13;
    asking.ciphers = Ciphers::default();
    let parted = failed(&modern, &asking);
    assert_eq!(parted.server.unwrap().reason(), "unsupported protocol");
    assert_eq!(parted.client.unwrap().alert_received(), Some(70));

    let mut groups = settings.clone();
    groups.groups = Groups::parse("P-384").unwrap();
    asking.groups = Groups::parse("X25519").unwrap();
    asking.versions = Versions::Both;
    let parted = failed(&groups, &asking);
    assert_eq!(parted.server.unwrap().reason(), "no suitable key share");
    asking.versions = Versions::Tls12;
    let parted = failed(&groups, &asking);
    assert_eq!(parted.server.unwrap().reason(), "no shared cipher");
}

#[test]
fn client_of_tls_11_is_told_its_version() {
    let mut hello = vec![22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    hello.extend_from_slice(&[7; 32]);
    hello.extend_from_slice(&[0, 0, 2, 0, 47, 1, 0]);
    let (mut plain, mut out) = (BytesMut::new(), BytesMut::new());
    let Ok(Accepting::Whole(accepted)) = Acceptor::new().accept(&hello, &mut out) else {
        panic!("a whole message");
    };
    assert_eq!(accepted.hello().versions(), [0x0302]);
    let context = server(&ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]));
    let error = accepted
        .choose((&context, Inside::Usual), &mut plain, &mut out)
        .err();
    assert_eq!(error.unwrap().reason(), "unsupported protocol");
    assert_eq!(out[..], [21, 3, 3, 0, 2, 2, 70]);
}

/// Refuses every certificate.
#[derive(Debug)]
struct Doubting;

impl rustls::client::danger::ServerCertVerifier for Doubting {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        let name = crate::server_name().expect("a connection");
        assert_eq!(&*name, "a");
        Err(rustls::CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Trusting.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Trusting.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        Trusting.supported_verify_schemes()
    }
}

#[test]
fn certificate_that_is_refused_is_told_as_an_alert() {
    let settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    let context = server(&settings);
    let asking = crate::ClientSettings::new(std::sync::Arc::new(Doubting));
    let mut to_server = BytesMut::new();
    let mut session = client(&asking)
        .connect(target("a"), &mut to_server)
        .unwrap();
    let (mut plain, mut to_client) = (BytesMut::new(), BytesMut::new());
    let Ok(Accepting::Whole(accepted)) = Acceptor::new().accept(&to_server, &mut to_client) else {
        panic!("a whole message");
    };
    let chosen = accepted.choose((&context, Inside::Usual), &mut plain, &mut to_client);
    let mut serving = chosen.unwrap().0;
    to_server.clear();
    let error = session
        .receive(&mut to_client, &mut plain, &mut to_server)
        .unwrap_err();
    assert_eq!(error.reason(), "certificate verify failed");
    let again = session.receive(&mut [], &mut plain, &mut to_client);
    assert_eq!(again.unwrap_err(), error, "it stays");
    let told = serving
        .receive(&mut to_server, &mut plain, &mut to_client)
        .unwrap_err();
    assert_eq!(
        told.to_string(),
        "(SSL: error:0A000418:SSL routines::tlsv1 alert unknown ca:SSL alert number 48)"
    );
    assert_eq!(told.fault(), Fault::Peer);
}

#[test]
fn record_that_was_changed_ends_the_connection() {
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
        settings.versions = versions;
        let mut pair = Pair::new(&server(&settings), &client(&client_settings()), target("a"));
        let mut records = seal(&mut *pair.client, &[b"x"]);
        let last = records.len() - 1;
        records[last] ^= 1;
        let mut out = BytesMut::new();
        let error = pair
            .server
            .receive(&mut records, &mut pair.at_server, &mut out)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "(SSL: error:0A000119:SSL routines::decryption failed or bad record mac)"
        );
        let told = pair
            .client
            .receive(&mut out, &mut BytesMut::new(), &mut BytesMut::new());
        assert_eq!(told.unwrap_err().alert_received(), Some(20));
        assert!(!pair.server.may_send());
    }
}

/// The first flight of rustls's own client, of TLS 1.2 with AES-128, whose keys can be had.
fn open_client() -> rustls::ClientConnection {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites =
        vec![rustls::crypto::aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256];
    let mut config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(std::sync::Arc::new(Trusting))
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    rustls::ClientConnection::new(config.into(), "a".try_into().unwrap()).unwrap()
}

/// A record of the handshake in TLS 1.2 by AES-128-GCM (RFC 5288 §3).
fn handshake_record(client: rustls::ClientConnection, message: &[u8]) -> Vec<u8> {
    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let (number, secrets) = client.dangerous_extract_secrets().unwrap().tx;
    let rustls::ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
        panic!("the suite that was asked for");
    };
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap());
    let mut nonce = [9; 12];
    nonce[..4].copy_from_slice(&iv.as_ref()[..4]);
    let len = u16::try_from(message.len()).unwrap();
    let mut aad = number.to_be_bytes().to_vec();
    aad.extend_from_slice(&[22, 3, 3]);
    aad.extend_from_slice(&len.to_be_bytes());
    let mut sealed = message.to_vec();
    let nonce_of = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce_of, Aad::from(aad), &mut sealed)
        .unwrap();
    let mut record = vec![22, 3, 3];
    record.extend_from_slice(&(len + 24).to_be_bytes());
    record.extend_from_slice(&nonce[4..]);
    record.extend_from_slice(&sealed);
    record
}

#[test]
fn client_that_renegotiates_is_parted_with() {
    let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    settings.versions = Versions::Tls12;
    let mut client = open_client();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    let (mut plain, mut out) = (BytesMut::new(), BytesMut::new());
    let Ok(Accepting::Whole(accepted)) = Acceptor::new().accept(&hello, &mut out) else {
        panic!("a whole message");
    };
    let chosen = accepted.choose((&server(&settings), Inside::Usual), &mut plain, &mut out);
    let mut session = chosen.unwrap().0;
    while session.is_handshaking() || !out.is_empty() {
        client.read_tls(&mut &out.split()[..]).unwrap();
        client.process_new_packets().unwrap();
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).unwrap();
        }
        session.receive(&mut flight, &mut plain, &mut out).unwrap();
    }
    // The first message again, without the head of its record.
    let mut record = handshake_record(client, &hello[5..]);
    let received = session.receive(&mut record, &mut plain, &mut out);
    let error = received.unwrap_err();
    assert_eq!(error.reason(), "no renegotiation");
    assert_eq!(error.fault(), Fault::Peer);
    assert!(!out.is_empty(), "the client is told");
}

/// A generator of numbers, by xorshift.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }

    /// Changes, cuts or repeats some of the bytes.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.next(3) {
            let at = self.next(bytes.len());
            match self.next(4) {
                0 => bytes[at] = self.next(256) as u8,
                1 => bytes[at] ^= 1 << self.next(8),
                2 => bytes.truncate(at + 1),
                _ => {
                    let end = (at + self.next(40)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
    }
}

/// Feeds a server; whatever comes, it answers with an error at most.
fn feed(context: &ServerContext, bytes: &[u8]) {
    let (mut plain, mut out) = (BytesMut::new(), BytesMut::new());
    let Ok(Accepting::Whole(accepted)) = Acceptor::new().accept(bytes, &mut out) else {
        return;
    };
    let Ok((mut session, _)) = accepted.choose((context, Inside::Usual), &mut plain, &mut out)
    else {
        return;
    };
    let mut more = bytes.to_vec();
    let _ = session.receive(&mut more, &mut plain, &mut out);
    let _ = session.facts();
    session.close(&mut out);
}

#[test]
fn mutated_first_messages_never_panic() {
    let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    settings.alpn = vec![b"h2".to_vec()];
    let context = server(&settings);
    let mut asking = client_settings();
    asking.sni = crate::Sni::On;
    let mut target = target("example.com");
    target.alpn = vec![b"h2".to_vec()];
    let mut hello = BytesMut::new();
    let _ = client(&asking).connect(target, &mut hello).unwrap();
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    for _ in 0..2000 {
        let mut bytes = hello.to_vec();
        numbers.mutate(&mut bytes);
        feed(&context, &bytes);
    }
    for end in 0..hello.len() {
        feed(&context, &hello[..end]);
    }
}

#[test]
fn mutated_records_never_panic_and_give_no_plaintext() {
    let mut numbers = Numbers(0xD1B5_4A32_D192_ED03);
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
        settings.versions = versions;
        let (server, client) = (server(&settings), client(&client_settings()));
        for _ in 0..150 {
            let mut pair = Pair::new(&server, &client, target("a"));
            let original = seal(&mut *pair.client, &[b"plaintext"]);
            let mut records = original.to_vec();
            numbers.mutate(&mut records);
            let mut out = BytesMut::new();
            let _ = pair
                .server
                .receive(&mut records, &mut pair.at_server, &mut out);
            assert!(
                pair.at_server.is_empty() || pair.at_server[..] == *b"plaintext",
                "what was changed is not given out"
            );
            let _ = pair
                .server
                .receive(&mut [1; 50], &mut pair.at_server, &mut out);
            pair.server.close(&mut out);
        }
    }
}

#[test]
fn mutated_flights_of_servers_never_panic() {
    let mut numbers = Numbers(0x2545_F491_4F6C_DD1D);
    let settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    let context = server(&settings);
    let asking = client(&client_settings());
    for _ in 0..300 {
        let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
        let mut session = asking.connect(target("a"), &mut to_server).unwrap();
        let accepting = Acceptor::new().accept(&to_server, &mut to_client);
        let Ok(Accepting::Whole(accepted)) = accepting else {
            panic!("a whole message");
        };
        let mut plain = BytesMut::new();
        let _ = accepted.choose((&context, Inside::Usual), &mut plain, &mut to_client);
        let mut bytes = to_client.to_vec();
        numbers.mutate(&mut bytes);
        let _ = session.receive(&mut bytes, &mut plain, &mut to_server);
        assert!(plain.is_empty());
    }
}
