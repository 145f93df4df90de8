//! The agreement of a client and this server in a handshake, for as long as the connection lasts.
//!
//! It is taken out of the session when the handshake is over: variables, logs and the check of
//! requests read it, whatever protocol they come in.

use std::sync::Arc;

use millpond_tls::certificate::facts::Certificate;
use millpond_tls::certificate::verdict::Verdict;
use millpond_tls::{ClientHello, Facts, SessionId};

use crate::settings::Server;
use crate::tls::contexts::Encryption;

/// An agreement.
pub struct Agreed {
    /// The server that the handshake was for.
    pub server: Arc<Server>,
    /// The version, as in `TLSv1.3`.
    pub protocol: &'static str,
    /// The cipher suite.
    pub cipher: &'static str,
    /// The group of the key exchange.
    pub curve: &'static str,
    /// The protocol inside.
    pub alpn: Box<[u8]>,
    /// The name that the client asked for.
    pub server_name: Box<str>,
    /// The scheme of the server's signature.
    pub sigalg: &'static str,
    /// The scheme of the client's signature.
    pub client_sigalg: &'static str,
    /// The session, if both sides know one.
    pub session_id: Option<SessionId>,
    /// True if a session was resumed.
    pub is_resumed: bool,
    /// The client's certificate.
    pub certificate: Option<Certificate>,
    /// Judgement of it.
    pub verdict: Verdict,
    /// The client's offer: suites, groups, signature schemes.
    pub offered: Option<Box<[String; 3]>>,
}

impl Agreed {
    /// Everything that is known before an agreement: the client's first message.
    pub fn asked(hello: &ClientHello, server: Arc<Server>) -> Agreed {
        let facts = Facts {
            // A name of a file may be made of it.
            server_name: hello.server_name().filter(|name| !name.contains('/')),
            hello: Some(hello),
            ..Facts::default()
        };
        Agreed::of(&facts, server)
    }

    /// The agreement of a session, for a server.
    pub fn of(facts: &Facts<'_>, server: Arc<Server>) -> Agreed {
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
}
