//! The certificate that a client gets for a name, and why: for `millpond explain`.
//!
//! The name is that of the URL, as browsers tell it. Which of several certificates of a server is
//! sent depends on the client, so that all of them are told.

use std::sync::Arc;

use millpond_conf::Span;
use millpond_system::network;
use millpond_tls::certificate::facts::Certificate;

use super::contexts::Certified;
use crate::tls::contexts::Encryption;
use millpond_exchange::settings::listen::Listen;

/// A certificate, as it is explained.
#[derive(Debug)]
pub struct Shown {
    /// Subjects of the certificates that a client may get, or why there is none.
    pub what: String,
    /// The line that names them.
    pub span: Option<Span>,
    /// The reason.
    pub why: String,
}

/// The certificate of a handshake on an address, for a host; none if it is not encrypted.
pub fn certificate(listen: &Listen, host: &str) -> Option<Shown> {
    if !listen.is_encrypted {
        return None;
    }
    // RFC 6066 §3: addresses are not told.
    let told = Some(host).filter(|host| !host.is_empty() && network::ip_of(host).is_none());
    let named = told.and_then(|name| listen.names.of_host(name.as_bytes()));
    let default = listen.names.default_server();
    let server = named.unwrap_or(default);
    let who = match (told, named) {
        (None, _) => "a client tells no name for an address: the default server".to_owned(),
        (Some(name), None) => format!("no server has the name \"{name}\": the default server"),
        (Some(name), Some(_)) => format!("the server of the name \"{name}\""),
    };
    let own = Encryption::of(server);
    let Some(certified) = own.and_then(|own| own.certified_or(default)) else {
        return Some(Shown {
            what: "none: the handshake is refused".to_owned(),
            span: None,
            why: format!("{who} has \"ssl_reject_handshake\""),
        });
    };
    let has_own = own.is_some_and(|own| own.certified.is_some());
    Some(Shown {
        what: what(certified),
        span: certified.certificates.first().map(|(span, _)| *span),
        why: if has_own || Arc::ptr_eq(server, default) {
            who
        } else {
            format!("{who} has none of its own, so that of the default server is sent")
        },
    })
}

fn what(certified: &Certified) -> String {
    if let Some(ordered) = &certified.ordered {
        let (names, issuer) = (ordered.shown(), &ordered.issuer);
        return format!("that for {names}, ordered from the issuer \"{issuer}\"");
    }
    if let Some(named) = &certified.named {
        let files = named.files.iter();
        let names: Vec<&str> = files.map(|[file, _]| &*file.name.source).collect();
        return format!("{}, read at the handshake", names.join(" or "));
    }
    let subjects = certified.certificates.iter().filter_map(|(_, identity)| {
        let chain = identity.chain();
        let facts = Certificate::parse(chain.first()?)?;
        Some(format!("{}, until {}", facts.subject(), facts.not_after()))
    });
    // The client's signature schemes choose among several.
    subjects.collect::<Vec<_>>().join("; or ")
}
