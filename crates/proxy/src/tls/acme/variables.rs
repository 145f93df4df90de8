//! `$acme_certificate`, `$acme_certificate_key`: the certificate that was ordered for a server.
//!
//! A pair of them in `ssl_certificate` and `ssl_certificate_key` is never read as a text:
//! handshakes take the certificate itself.

use crate::request::Request;
use crate::tls::acme::certificate::Slot;
use crate::var::Variable;
use millpond_acme::issued::Issued;

/// The variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "acme_certificate",
        doc: "The certificate that `acme_certificate` of the server has ordered, for \
              `ssl_certificate`: `data:` and the chain in PEM. Nothing before it is there.",
        write: |req, out| write(req, out, |issued| &issued.chain),
    },
    Variable {
        name: "acme_certificate_key",
        doc: "The key of `$acme_certificate`, for `ssl_certificate_key`.",
        write: |req, out| write(req, out, |issued| &issued.key),
    },
];

fn write(req: &Request, out: &mut Vec<u8>, text: fn(&Issued) -> &str) -> bool {
    let ordered = Slot::of_server(&req.server).ordered();
    let Some(issued) = ordered.and_then(|ordered| ordered.issued()) else {
        return false;
    };
    out.extend_from_slice(b"data:");
    out.extend_from_slice(text(&issued).as_bytes());
    true
}
