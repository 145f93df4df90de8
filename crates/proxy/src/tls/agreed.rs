//! Agreements of handshakes, taken out of their sessions when those are over, or out of the
//! client's first message before.
//!
//! A client's certificate is judged here by the rules of the server that the handshake was for.

use std::sync::Arc;

use millpond_tls::certificate::facts::Certificate;
use millpond_tls::certificate::verdict::Verdict;
use millpond_tls::{ClientHello, Facts};

use crate::tls::contexts::Encryption;
use millpond_exchange::client::agreed::Agreed;
use millpond_exchange::settings::Server;

/// Everything that is known before an agreement: the client's first message.
pub(crate) fn asked(hello: &ClientHello, server: Arc<Server>) -> Agreed {
    let facts = Facts {
        // A name of a file may be made of it.
        server_name: hello.server_name().filter(|name| !name.contains('/')),
        hello: Some(hello),
        ..Facts::default()
    };
    of(&facts, server)
}

/// The agreement of a session, for a server.
pub(crate) fn of(facts: &Facts<'_>, server: Arc<Server>) -> Agreed {
    let certificate = facts.peer_certificates.first();
    let own = Encryption::of(&server);
    let verifier = own.and_then(|own| own.verifier.as_ref());
    let verdict = verifier.map(|it| it.verdict(Some(facts.peer_certificates)));
    Agreed {
        server,
        protocol: facts.protocol.unwrap_or_default(),
        cipher: facts.cipher.unwrap_or_default(),
        curve: facts.curve.unwrap_or_default(),
        alpn: facts.alpn.unwrap_or_default().into(),
        server_name: facts.server_name.unwrap_or_default().into(),
        sigalg: facts.sigalg.unwrap_or_default(),
        client_sigalg: facts.client_sigalg.unwrap_or_default(),
        session_id: facts.session_id.copied(),
        is_resumed: facts.is_resumed,
        certificate: certificate.and_then(|der| Certificate::parse(der)),
        verdict: verdict.unwrap_or(Verdict::None),
        offered: facts.hello.map(|hello| {
            let texts = [
                hello.suites_text(),
                hello.groups_text(),
                hello.schemes_text(),
            ];
            Box::new(texts)
        }),
    }
}
