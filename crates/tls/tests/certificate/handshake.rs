//! Handshakes of rustls with certificates that its own verifier refuses.

use std::sync::Arc;

use millpond_tls::certificate::client::ClientVerifier;
use millpond_tls::certificate::load::{authorities, certified, key};
use millpond_tls::certificate::origin::{OriginVerifier, refusal};
use millpond_tls::certificate::trust::{Anchors, Peer, Rules, Trust};
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use rustls::client::ResolvesClientCert;
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, Error, ServerConfig, ServerConnection,
    SupportedProtocolVersion, version,
};

use crate::kit::{Make, Party, ec_key};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];

fn certificate(party: &Party) -> Arc<CertifiedKey> {
    let key = key(&party.key_pem(), &[]).unwrap();
    Arc::new(certified(vec![party.der()], &key).unwrap())
}

fn trust(root: &Party, peer: Peer) -> Arc<Trust> {
    let rules = Rules {
        peer,
        depth: 1,
        time: None,
    };
    let root = root.pem();
    let anchors = Anchors {
        authorities: &[&root],
        revocations: &[],
    };
    Arc::new(Trust::new(anchors, rules).unwrap())
}

/// Moves bytes until nobody has any, or one side fails.
fn shake(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), Error> {
    while client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok(())
}

/// Two sides of a handshake.
struct Sides {
    origin: Arc<OriginVerifier>,
    clients: Arc<ClientVerifier>,
    server: Party,
    client: Option<Party>,
}

impl Sides {
    fn connect(
        &self,
        version: &'static SupportedProtocolVersion,
        name: &'static str,
    ) -> (ClientConnection, ServerConnection) {
        let versions = [version];
        let resolver: Arc<dyn ResolvesServerCert> =
            Arc::new(SingleCertAndKey::from(certificate(&self.server)));
        let server = ServerConfig::builder_with_protocol_versions(&versions)
            .with_client_cert_verifier(self.clients.clone())
            .with_cert_resolver(resolver);
        let verified = ClientConfig::builder_with_protocol_versions(&versions)
            .dangerous()
            .with_custom_certificate_verifier(self.origin.clone());
        let client = match &self.client {
            None => verified.with_no_client_auth(),
            Some(party) => {
                let resolver: Arc<dyn ResolvesClientCert> =
                    Arc::new(SingleCertAndKey::from(certificate(party)));
                verified.with_client_cert_resolver(resolver)
            }
        };
        let name = name.try_into().unwrap();
        (
            ClientConnection::new(Arc::new(client), name).unwrap(),
            ServerConnection::new(Arc::new(server)).unwrap(),
        )
    }

    /// The verdict on the client, or what ended the handshake.
    fn verdict(&self, version: &'static SupportedProtocolVersion) -> Result<String, Error> {
        let (mut client, mut server) = self.connect(version, "localhost");
        shake(&mut client, &mut server)?;
        assert!(!server.is_handshaking() && !client.is_handshaking());
        Ok(self.clients.verdict(server.peer_certificates()).to_string())
    }
}

fn sides(root: &Party, server: Party, client: Option<Party>) -> Sides {
    let named = authorities(&root.pem()).unwrap();
    Sides {
        origin: Arc::new(OriginVerifier::new(trust(root, Peer::Origin))),
        clients: Arc::new(ClientVerifier::new(trust(root, Peer::Client), &named)),
        server,
        client,
    }
}

#[test]
fn certificates_of_old_and_of_authorities_are_taken() {
    let root = Make::root("root").make();
    let keys = [
        ec_key(Nid::X9_62_PRIME256V1),
        ec_key(Nid::SECP384R1),
        PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap(),
        PKey::generate_ed25519().unwrap(),
    ];
    for version in VERSIONS {
        for key in &keys {
            let v1 = || Make::new("localhost").by(&root).v1();
            let ca = || Make::root("localhost").by(&root);
            for (server, client) in [(v1(), ca()), (ca(), v1())] {
                let signed_by_ec = |make: Make<'_>| {
                    let party = make.make();
                    assert_ne!(party.key.id(), openssl::pkey::Id::ED25519);
                    party
                };
                let server = signed_by_ec(server);
                let client = keyed(&root, &signed_by_ec(client), key);
                let sides = sides(&root, server, Some(client));
                let verdict = sides.verdict(version).unwrap();
                assert_eq!(verdict, "SUCCESS", "{version:?} {:?}", key.id());
            }
        }
    }
}

/// The same certificate for another key.
fn keyed(root: &Party, like: &Party, key: &PKey<openssl::pkey::Private>) -> Party {
    let is_v1 = like.certificate.version() == 0;
    let make = if is_v1 {
        Make::new("client").v1()
    } else {
        Make::root("client")
    };
    let mut certificate = make.by(root);
    // The signature is the root's, whatever the key is.
    certificate = certificate.key_signed_by_issuer(key.clone());
    certificate.make()
}

#[test]
fn a_client_without_a_certificate_has_no_verdict() {
    let root = Make::root("root").make();
    for version in VERSIONS {
        let server = Make::new("localhost").by(&root).make();
        let verdict = sides(&root, server, None).verdict(version).unwrap();
        assert_eq!(verdict, "NONE");
    }
}

#[test]
fn a_client_that_is_refused_ends_no_handshake() {
    let root = Make::root("root").make();
    for version in VERSIONS {
        let server = Make::new("localhost").by(&root).make();
        let stranger = Make::root("stranger").make();
        let sides = sides(&root, server, Some(stranger));
        let verdict = sides.verdict(version).unwrap();
        assert_eq!(verdict, "FAILED:self-signed certificate");
    }
}

#[test]
fn a_client_without_the_key_ends_the_handshake() {
    let root = Make::root("root").make();
    let client = Make::new("client").by(&root).make();
    let thief = Make::new("client").by(&root).v1().make();
    let stolen = Party {
        certificate: client.certificate,
        key: thief.key,
    };
    for version in VERSIONS {
        let server = Make::new("localhost").by(&root).make();
        let mut sides = sides(&root, server, None);
        let verifier = sides.clients.clone();
        sides.client = None;
        let (_, _) = sides.connect(version, "localhost");
        // rustls holds no key that does not fit: the resolver is made by hand.
        let key = key(&stolen.key_pem(), &[]).unwrap();
        let honest = certified(
            vec![Make::new("x").key(stolen.key.clone()).make().der()],
            &key,
        );
        let forged = CertifiedKey::new(vec![stolen.der()], honest.unwrap().key);
        let resolver: Arc<dyn ResolvesClientCert> =
            Arc::new(SingleCertAndKey::from(Arc::new(forged)));
        let client = ClientConfig::builder_with_protocol_versions(&[version])
            .dangerous()
            .with_custom_certificate_verifier(sides.origin.clone())
            .with_client_cert_resolver(resolver);
        let resolver: Arc<dyn ResolvesServerCert> =
            Arc::new(SingleCertAndKey::from(certificate(&sides.server)));
        let server = ServerConfig::builder_with_protocol_versions(&[version])
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(resolver);
        let mut client =
            ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        let error = shake(&mut client, &mut server).unwrap_err().to_string();
        assert_eq!(error, "invalid peer certificate: BadSignature");
    }
}

#[test]
fn origins_are_refused_in_the_words_of_nginx() {
    let root = Make::root("root").make();
    let other = Make::root("other").make();
    for version in VERSIONS {
        let good = Make::new("localhost").by(&root).make();
        let sides_of = sides(&root, good, None);
        let (mut client, mut server) = sides_of.connect(version, "other.test");
        let error = shake(&mut client, &mut server).unwrap_err();
        let expected = "upstream SSL certificate does not match \"other.test\"";
        assert_eq!(refusal(&error).unwrap().to_string(), expected);

        let stranger = Make::new("localhost").by(&other).make();
        let sides_of = sides(&root, stranger, None);
        let (mut client, mut server) = sides_of.connect(version, "localhost");
        let error = shake(&mut client, &mut server).unwrap_err();
        let expected =
            "upstream SSL certificate verify error: (21:unable to verify the first certificate)";
        assert_eq!(refusal(&error).unwrap().to_string(), expected);
    }
}

#[test]
fn origins_that_nobody_verifies_are_taken() {
    let root = Make::root("root").make();
    let server = Make::new("x").days(-9, -2).v1().make();
    let mut sides = sides(&root, server, None);
    sides.origin = Arc::new(OriginVerifier::unverified());
    for version in VERSIONS {
        assert_eq!(sides.verdict(version).unwrap(), "NONE");
    }
}

#[test]
fn authorities_are_named_once() {
    let root = Make::root("root").make();
    let again = Make::root("root").make();
    let named = [root.der(), again.der(), Make::root("b").make().der()];
    let verifier = ClientVerifier::new(trust(&root, Peer::Client), &named);
    use rustls::server::danger::ClientCertVerifier;
    assert_eq!(verifier.root_hint_subjects().len(), 2);
    assert!(!verifier.client_auth_mandatory());
}
