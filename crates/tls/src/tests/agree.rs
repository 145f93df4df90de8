//! Facts on which two ends agree.
//!
//! Each test has a server and a client of its own, and certificates that it makes.

use std::sync::Arc;

use bytes::BytesMut;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};

use super::pair::{Kind, Pair, Trusting, client, client_settings, identity, server, target};
use crate::{
    Accepted, Accepting, Acceptor, Ciphers, Compression, Fault, Groups, Inside, Offers, Preference,
    ServerSettings, Sni, UNRECOGNIZED_NAME, Versions,
};

#[test]
fn both_versions_carry_plaintext() {
    for (versions, name) in [(Versions::Tls12, "TLSv1.2"), (Versions::Both, "TLSv1.3")] {
        for kind in [Kind::Rsa, Kind::Ecdsa] {
            let mut settings = ServerSettings::new(vec![identity(kind, "localhost")]);
            settings.versions = versions;
            let mut pair = Pair::new(
                &server(&settings),
                &client(&client_settings()),
                target("localhost"),
            );
            assert_eq!(pair.server.facts().protocol, Some(name));
            assert_eq!(pair.client.facts().protocol, Some(name));
            assert!(!pair.server.is_handshaking() && !pair.client.is_handshaking());
            pair.ask(&[b"ping"]);
            pair.answer(&[b"po", b"ng"]);
            assert_eq!(&pair.at_server[..], b"ping");
            assert_eq!(&pair.at_client[..], b"pong");
        }
    }
}

#[test]
fn each_suite_is_agreed_on_by_its_name() {
    let both = vec![identity(Kind::Rsa, "a"), identity(Kind::Ecdsa, "a")];
    let suites_12 = Ciphers::default().names();
    assert_eq!(suites_12.len(), 9);
    for name in suites_12 {
        let mut settings = ServerSettings::new(both.clone());
        if name.starts_with("TLS_") {
            settings.ciphers = settings.ciphers.with_ciphersuites(name).unwrap();
        } else {
            settings.versions = Versions::Tls12;
            settings.ciphers = Ciphers::parse(name).unwrap();
        }
        let pair = Pair::new(&server(&settings), &client(&client_settings()), target("a"));
        assert_eq!(pair.server.facts().cipher, Some(name));
        assert_eq!(pair.client.facts().cipher, Some(name));
    }
}

#[test]
fn each_group_is_agreed_on_by_its_name() {
    let identity = identity(Kind::Ecdsa, "a");
    for (list, name) in [
        ("X25519MLKEM768", "X25519MLKEM768"),
        ("X25519", "X25519"),
        ("P-256", "prime256v1"),
        ("secp384r1", "secp384r1"),
        ("SecP256r1MLKEM768", "SecP256r1MLKEM768"),
        ("auto", "X25519MLKEM768"),
    ] {
        let mut settings = ServerSettings::new(vec![identity.clone()]);
        settings.groups = Groups::parse(list).unwrap();
        let pair = Pair::new(&server(&settings), &client(&client_settings()), target("a"));
        assert_eq!(pair.server.facts().curve, Some(name), "{list}");
        assert_eq!(pair.client.facts().curve, Some(name), "{list}");
    }
}

#[test]
fn order_of_suites_is_the_clients_unless_the_server_prefers_its_own() {
    let mut asking = client_settings();
    asking.versions = Versions::Tls12;
    asking.ciphers = Ciphers::parse("CHACHA20:AES").unwrap();
    let mut settings = ServerSettings::new(vec![identity(Kind::Rsa, "a")]);
    settings.ciphers = Ciphers::parse("AES128:AES256:CHACHA20").unwrap();
    for (preference, name) in [
        (Preference::Client, "ECDHE-RSA-CHACHA20-POLY1305"),
        (Preference::Server, "ECDHE-RSA-AES128-GCM-SHA256"),
    ] {
        settings.preference = preference;
        let pair = Pair::new(&server(&settings), &client(&asking), target("a"));
        assert_eq!(pair.server.facts().cipher, Some(name));
    }
}

#[test]
fn certificate_is_chosen_by_what_the_client_can_verify() {
    let (rsa, ecdsa) = (identity(Kind::Rsa, "a"), identity(Kind::Ecdsa, "a"));
    let settings = ServerSettings::new(vec![rsa.clone(), ecdsa.clone()]);
    let server = server(&settings);
    for (list, chosen, sigalg) in [
        ("aRSA", &rsa, "rsa_pss_rsae_sha512"),
        ("aECDSA", &ecdsa, "ecdsa_secp256r1_sha256"),
    ] {
        let mut asking = client_settings();
        asking.versions = Versions::Tls12;
        asking.ciphers = Ciphers::parse(list).unwrap();
        let pair = Pair::new(&server, &client(&asking), target("a"));
        assert_eq!(pair.client.facts().peer_certificates, chosen.chain());
        assert_eq!(pair.server.facts().sigalg, Some(sigalg));
        assert_eq!(pair.client.facts().sigalg, Some(sigalg));
    }
}

/// OpenSSL: suites of TLS 1.3 say nothing of keys, so the order of the client's schemes does.
#[test]
fn certificate_is_the_one_that_the_client_likes_best_unless_the_server_prefers_its_own() {
    let (rsa, ecdsa) = (identity(Kind::Rsa, "a"), identity(Kind::Ecdsa, "a"));
    // The client's schemes have those of ECDSA first.
    let client = client(&client_settings());
    for (preference, chosen) in [(Preference::Client, &ecdsa), (Preference::Server, &rsa)] {
        let mut settings = ServerSettings::new(vec![rsa.clone(), ecdsa.clone()]);
        settings.preference = preference;
        let pair = Pair::new(&server(&settings), &client, target("a"));
        assert_eq!(pair.client.facts().protocol, Some("TLSv1.3"));
        assert_eq!(pair.client.facts().peer_certificates, chosen.chain());
    }
}

#[test]
fn alpn_is_the_servers_preference() {
    let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    settings.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let (server, client) = (server(&settings), client(&client_settings()));
    for (offered, agreed) in [
        (vec!["http/1.1", "h2"], Some("h2")),
        (vec!["http/1.1"], Some("http/1.1")),
        (vec![], None),
    ] {
        let mut target = target("a");
        target.alpn = offered
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let pair = Pair::new(&server, &client, target);
        assert_eq!(pair.server.facts().alpn, agreed.map(str::as_bytes));
        assert_eq!(pair.client.facts().alpn, agreed.map(str::as_bytes));
    }
    let mut target = target("a");
    target.alpn = vec![b"imap".to_vec()];
    let failed = Pair::try_new(&server, &client, target).err().unwrap();
    let error = failed.server.unwrap();
    assert_eq!(error.reason(), "no application protocol");
    assert_eq!(error.fault(), Fault::Peer);
    assert_eq!(failed.client.unwrap().alert_received(), Some(120));
}

/// The first message of a client that asks for a name.
fn hello_of(name: &str, out: &mut BytesMut) -> (Box<dyn crate::Session>, Accepted) {
    let mut asking = client_settings();
    asking.sni = Sni::On;
    let mut records = BytesMut::new();
    let session = client(&asking).connect(target(name), &mut records).unwrap();
    let Ok(Accepting::Whole(accepted)) = Acceptor::new().accept(&records, out) else {
        panic!("a whole message");
    };
    (session, accepted)
}

#[test]
fn first_message_says_what_is_asked_for_and_offered() {
    let (_, accepted) = hello_of("Www.Example.COM", &mut BytesMut::new());
    let hello = accepted.hello();
    assert_eq!(hello.server_name(), Some("www.example.com"));
    assert_eq!(hello.versions(), [0x0304, 0x0303]);
    assert_eq!(
        hello.suites_text(),
        "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:\
         ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:\
         ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:\
         ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
         TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
    );
    assert!(
        hello
            .groups_text()
            .starts_with("X25519MLKEM768:X25519:prime256v1:")
    );
    assert!(
        hello.schemes_text().contains("0x0804"),
        "{}",
        hello.schemes_text()
    );
}

#[test]
fn names_are_sent_only_if_wanted_and_only_those_of_dns() {
    let settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    let server = server(&settings);
    for (sni, name, sent) in [
        (Sni::On, "example.com", Some("example.com")),
        (Sni::On, "under_score.example", Some("under_score.example")),
        (Sni::On, "x8081x", Some("x8081x")),
        (Sni::On, "127.0.0.1", None),
        (Sni::On, "not a name!", None),
        (Sni::Off, "example.com", None),
    ] {
        let mut asking = client_settings();
        asking.sni = sni;
        let pair = Pair::new(&server, &client(&asking), target(name));
        assert_eq!(pair.server.facts().server_name, sent, "{name}");
        assert_eq!(pair.client.facts().server_name, sent, "{name}");
    }
}

#[test]
fn context_may_be_chosen_later_by_the_name() {
    let (one, other) = (identity(Kind::Ecdsa, "one"), identity(Kind::Ecdsa, "other"));
    for (name, chosen) in [("one", &one), ("other", &other)] {
        let mut to_client = BytesMut::new();
        let (client, accepted) = hello_of(name, &mut to_client);
        assert!(to_client.is_empty(), "nothing is said before the choice");
        let settings = match accepted.hello().server_name() {
            Some("one") => ServerSettings::new(vec![one.clone()]),
            _ => ServerSettings::new(vec![other.clone()]),
        };
        let mut plain = BytesMut::new();
        let chosen_now = accepted.choose(
            (&server(&settings), Inside::Usual),
            &mut plain,
            &mut to_client,
        );
        let mut pair = Pair {
            client,
            server: chosen_now.unwrap().0,
            at_client: BytesMut::new(),
            at_server: plain,
        };
        pair.exchange(BytesMut::new(), to_client).unwrap();
        assert_eq!(pair.client.facts().peer_certificates, chosen.chain());
    }
}

#[test]
fn rejected_client_is_told_so() {
    let mut to_client = BytesMut::new();
    let (mut client, accepted) = hello_of("nobody", &mut to_client);
    let error = accepted.reject(UNRECOGNIZED_NAME, &mut to_client);
    assert_eq!(
        error.to_string(),
        "(SSL: error:0A0000EA:SSL routines::callback failed)"
    );
    let (mut plain, mut out) = (BytesMut::new(), BytesMut::new());
    let told = client.receive(&mut to_client, &mut plain, &mut out);
    assert_eq!(
        told.unwrap_err().to_string(),
        "(SSL: error:0A000458:SSL routines::tlsv1 unrecognized name:SSL alert number 112)"
    );
}

#[test]
fn offers_are_kept_if_wanted() {
    let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    for offers in [Offers::Forget, Offers::Keep] {
        settings.offers = offers;
        let pair = Pair::new(&server(&settings), &client(&client_settings()), target("a"));
        assert_eq!(pair.server.facts().hello.is_some(), offers == Offers::Keep);
    }
}

#[test]
fn certificates_are_compressed_if_wanted() {
    let mut settings = ServerSettings::new(vec![identity(Kind::Rsa, "a")]);
    let mut lens = Vec::new();
    for compression in [Compression::Off, Compression::Zlib] {
        settings.compression = compression;
        let mut to_client = BytesMut::new();
        let (_, accepted) = hello_of("a", &mut to_client);
        let mut plain = BytesMut::new();
        let _ = accepted.choose(
            (&server(&settings), Inside::Usual),
            &mut plain,
            &mut to_client,
        );
        lens.push(to_client.len());
        Pair::new(&server(&settings), &client(&client_settings()), target("a"));
    }
    assert!(lens[1] < lens[0], "{lens:?}");
}

#[test]
fn staple_is_that_of_the_moment() {
    let identity = identity(Kind::Ecdsa, "a");
    let context = server(&ServerSettings::new(vec![identity.clone()]));
    let lens: Vec<usize> = [vec![], vec![7; 300], vec![]]
        .into_iter()
        .map(|staple| {
            identity.set_staple(staple);
            let (mut plain, mut to_client) = (BytesMut::new(), BytesMut::new());
            let (_, accepted) = hello_of("a", &mut to_client);
            let _ = accepted.choose((&context, Inside::Usual), &mut plain, &mut to_client);
            to_client.len()
        })
        .collect();
    assert!(lens[1] >= lens[0] + 300 && lens[2] < lens[1], "{lens:?}");
}

/// Takes any certificate of a client and notes its length.
#[derive(Debug)]
pub(super) struct Noting;

impl ClientCertVerifier for Noting {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        crate::note(format!("{} bytes", end_entity.len()).as_bytes());
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        use rustls::client::danger::ServerCertVerifier;
        Trusting.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        use rustls::client::danger::ServerCertVerifier;
        Trusting.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        use rustls::client::danger::ServerCertVerifier;
        Trusting.supported_verify_schemes()
    }
}

#[test]
fn clients_certificate_and_the_verdict_on_it_are_facts() {
    let mine = identity(Kind::Ecdsa, "client");
    let mut settings = ServerSettings::new(vec![identity(Kind::Ecdsa, "a")]);
    settings.verifier = Some(Arc::new(Noting));
    let mut asking = client_settings();
    for versions in [Versions::Tls12, Versions::Tls13] {
        asking.versions = versions;
        asking.identities = vec![mine.clone()];
        let pair = Pair::new(&server(&settings), &client(&asking), target("a"));
        let facts = pair.server.facts();
        let note = format!("{} bytes", mine.chain()[0].len());
        assert_eq!(facts.peer_certificates, mine.chain());
        assert_eq!(facts.note, note.as_bytes());
        assert_eq!(facts.client_sigalg, Some("ecdsa_secp256r1_sha256"));
        asking.identities = Vec::new();
        let pair = Pair::new(&server(&settings), &client(&asking), target("a"));
        let facts = pair.server.facts();
        assert!(facts.peer_certificates.is_empty() && facts.note.is_empty());
        assert_eq!(facts.client_sigalg, None);
    }
}
