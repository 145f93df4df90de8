//! `http3_advertise`: the field that tells clients of other versions of HTTP where HTTP/3 is.
//!
//! The directive is declared with those of QUIC (`downstream/quic/policy.rs`).

use bytes::Bytes;
use millpond_conf::Span;
use millpond_system::address::Address;
use millpond_wire::head::Version;
use millpond_wire::header::Field;

use crate::request::Request;
use millpond_exchange::response::Response;
use millpond_exchange::scope::build::Builder;
use millpond_exchange::settings::listen::Binding;

/// The name of the field (RFC 7838 §3).
const NAME: &[u8] = b"Alt-Svc";

/// The time for which clients may keep it, in seconds: a day, which is the default.
const MAX_AGE: u32 = 86_400;

/// Makes the fields of all servers that tell of their address.
pub fn settle(builder: &mut Builder, bindings: &[Binding]) {
    let listens = bindings.iter().flat_map(|binding| &binding.listens);
    let mut silent: Vec<Span> = Vec::new();
    for server in listens.clone().flat_map(|listen| listen.names.servers()) {
        if !server.settings.quic.is_advertised || server.alternative.get().is_some() {
            continue;
        }
        let is_of = |servers: &millpond_exchange::settings::names::ServerNames| {
            servers
                .servers()
                .any(|other| std::ptr::eq(&**other, &**server))
        };
        let mut all = listens.clone().filter(|listen| is_of(&listen.names));
        let port = all.find_map(|listen| match &listen.address {
            Address::Inet(address) if listen.is_quic => Some(address.port()),
            _ => None,
        });
        match port.filter(|_| server.settings.quic.is_on) {
            Some(port) => {
                let value = format!("h3=\":{port}\"; ma={MAX_AGE}");
                // Nobody else sets it.
                let _ = server.alternative.set(Bytes::from(value));
            }
            None if silent.contains(&server.span) => {}
            None => silent.push(server.span),
        }
    }
    for span in silent {
        let message = "\"http3_advertise\" has nothing to tell of: the server has no \
                       \"listen ... quic\", or \"http3\" is off";
        builder.cx.diagnostics.push_warning(span, message);
    }
}

/// Adds the field to an answer that goes over TLS, unless it has one.
pub fn run(req: &Request, response: &mut Response) {
    let Some(value) = req.server.alternative.get() else {
        return;
    };
    let is_told = req.client.connection.is_encrypted() && req.head.version() != Version::Http3;
    if is_told && response.fields.find(NAME).is_none() {
        let field = Field::new(Bytes::from_static(NAME), value.clone());
        response.fields.push(field);
    }
}
