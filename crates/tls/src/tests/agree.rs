//! What two ends agree on.

use super::pair::{Kind, Pair, client, client_settings, identity, server, target};
use crate::{ServerSettings, Versions};

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
            pair.ask(&[b"ping"]);
            pair.answer(&[b"po", b"ng"]);
            assert_eq!(&pair.at_server[..], b"ping");
            assert_eq!(&pair.at_client[..], b"pong");
        }
    }
}
