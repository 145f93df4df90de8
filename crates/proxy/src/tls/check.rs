//! Warnings about certificates: those that end soon, and names of a server for which it has none,
//! and orders that cannot succeed.
//!
//! They are given where a configuration is tested, not where it is put into force. A certificate
//! whose name has variables is not looked at: it is not there before a handshake.

use std::collections::HashSet;
use std::sync::Arc;

use millpond_acme::challenge::Way;
use millpond_conf::Diagnostics;
use millpond_system::address::Address;
use millpond_tls::certificate::facts::Certificate;
use millpond_tls::certificate::host;

use crate::tls::acme::Orders;
use crate::tls::acme::certificate::Slot;
use crate::tls::contexts::Encryption;
use crate::tls::settings::SslPolicy;
use millpond_exchange::settings::names::ServerName;
use millpond_exchange::settings::{Conf, Server};

/// The days before the end of a certificate on which it is time to renew it: those of 90 days are
/// renewed then.
const DAYS: i64 = 30;

const DAY_S: i64 = 86_400;

/// The ports that authorities ask (RFC 8555 §8.3, RFC 8737 §3).
const HTTP_PORT: u16 = 80;
const TLS_PORT: u16 = 443;

/// Looks at the certificates of all servers with encrypted addresses; it is `now_s`, in seconds
/// since 1970.
pub fn certificates(conf: &Conf, now_s: i64, diagnostics: &mut Diagnostics) {
    let sockets = conf.sockets();
    let listens = sockets.iter().flat_map(|binding| &binding.listens);
    let mut seen = HashSet::new();
    for listen in listens.filter(|listen| listen.is_encrypted) {
        for server in listen.names.servers() {
            if seen.insert(Arc::as_ptr(server)) {
                ends(server, now_s, diagnostics);
                names(server, diagnostics);
                variables(server, diagnostics);
            }
        }
    }
    validations(conf, diagnostics);
}

/// Warns of the variable of a certificate that is not ordered.
fn variables(server: &Server, diagnostics: &mut Diagnostics) {
    let all = &server.parts.of::<SslPolicy>().certificates;
    let found = all
        .iter()
        .find(|file| *file.name.source == *"$acme_certificate");
    if let (Some(file), None) = (found, Slot::of_server(server).ordered()) {
        let message = "\"$acme_certificate\" has no value in a server without \"acme_certificate\": \
                       its handshakes are refused";
        diagnostics.push_warning(file.span, message);
    }
}

/// Warns of orders whose authority would ask where nobody listens.
fn validations(conf: &Conf, diagnostics: &mut Diagnostics) {
    let mut warned = HashSet::new();
    for order in conf.parts.of::<Orders>().iter() {
        let way = order.issuer.challenge;
        let (port, what) = match way {
            Way::Http => (HTTP_PORT, "plain HTTP"),
            Way::Tls => (TLS_PORT, "TLS"),
        };
        let mut listens = conf.bindings.iter().flat_map(|binding| &binding.listens);
        let is_heard = listens.any(|listen| {
            let is_port = matches!(&listen.address, Address::Inet(at) if at.port() == port);
            is_port && !listen.is_quic && listen.is_encrypted == (way == Way::Tls)
        });
        if !is_heard && warned.insert(order.issuer.name.clone()) {
            let message = format!(
                "names are validated by {} on port {port}, where nothing listens for {what}: the \
                 issuer \"{}\" gives no certificate unless it is led here",
                way.name(),
                order.issuer.name
            );
            diagnostics.push_warning(order.span, message);
        }
    }
}

fn ends(server: &Server, now_s: i64, diagnostics: &mut Diagnostics) {
    let own = Encryption::of(server).and_then(|own| own.certified.as_ref());
    for (span, identity) in own.into_iter().flat_map(|own| &own.certificates) {
        let chain = identity.chain();
        let Some(facts) = chain.first().and_then(|leaf| Certificate::parse(leaf)) else {
            continue;
        };
        let subject = facts.subject();
        let message = match facts.remaining_s(now_s) {
            Some(left) if left <= 0 => {
                format!("the certificate \"{subject}\" has ended: clients refuse it")
            }
            Some(left) if left < DAYS * DAY_S => {
                let days = left / DAY_S;
                format!("the certificate \"{subject}\" ends in {days} days")
            }
            _ => continue,
        };
        let is_known = diagnostics
            .iter()
            .any(|known| known.span == Some(*span) && known.message == message);
        if !is_known {
            diagnostics.push_warning(*span, message);
        }
    }
}

/// Warns of names that clients would not find in any of the server's certificates.
fn names(server: &Server, diagnostics: &mut Diagnostics) {
    let own = Encryption::of(server).and_then(|own| own.certified.as_ref());
    let Some(own) = own.filter(|own| own.named.is_none() && own.ordered.is_none()) else {
        return;
    };
    for name in &server.names {
        // Of names under a domain, any will do.
        let (host, shown) = match name {
            ServerName::Exact(name) => {
                let name = String::from_utf8_lossy(name).into_owned();
                (name.clone(), name)
            }
            ServerName::Under(domain) => {
                let domain = String::from_utf8_lossy(domain);
                (format!("any{domain}"), format!("*{domain}"))
            }
            _ => continue,
        };
        let is_good = own.certificates.iter().any(|(_, identity)| {
            let chain = identity.chain();
            let leaf = chain.first();
            leaf.is_some_and(|leaf| host::is_good_for(leaf, &host))
        });
        // Names without a dot are those of a local network, and "_" is none.
        if !is_good && host.contains('.') {
            let message = format!("no certificate of this server is for the name \"{shown}\"");
            let span = own.certificates.first().map(|(span, _)| *span);
            diagnostics.push_warning(span.unwrap_or(server.span), message);
        }
    }
}
