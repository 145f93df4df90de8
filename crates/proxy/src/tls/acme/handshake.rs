//! Handshakes with `acme-tls/1`, by which an authority validates a name (RFC 8737).
//!
//! They end with the connection: no request is taken on it.

use std::sync::{Arc, LazyLock};

use millpond_acme::challenge;
use millpond_tls::{CacheMode, ClientHello, Identity, ServerContext, ServerSettings};

/// The context of such handshakes: nothing else is spoken in them, and no session is kept.
static CONTEXT: LazyLock<Option<ServerContext>> = LazyLock::new(|| {
    let mut settings = ServerSettings::new(Vec::new());
    settings.alpn = vec![challenge::ALPN.to_vec()];
    settings.cache = CacheMode::default();
    settings.tickets = None;
    settings.ticket_count = 0;
    ServerContext::new(&settings).ok()
});

/// True if a client wants to validate a name.
pub fn is_asked_for(hello: &ClientHello) -> bool {
    hello.alpn().any(|protocol| protocol == challenge::ALPN)
}

/// The context and the certificate of such a handshake; why not, if nothing is validated.
pub fn answer(hello: &ClientHello) -> Result<(&'static ServerContext, Arc<Identity>), String> {
    let name = hello.server_name().unwrap_or_default();
    let certificate = challenge::certificate(name);
    match (CONTEXT.as_ref(), certificate) {
        (Some(context), Some(certificate)) => Ok((context, certificate)),
        _ => Err(format!(
            "no validation of \"{name}\" by tls-alpn-01 is going on"
        )),
    }
}
