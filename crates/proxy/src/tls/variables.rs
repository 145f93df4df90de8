//! `$ssl_…`: the agreement of a client and this server, and the client's certificate.
//!
//! Without encryption none of them has a value. What a client offered is known when a session is
//! new, and not when it is resumed.

use millpond_semantics::hex::Hex;
use millpond_system::clock;
use millpond_tls::certificate::facts::Certificate;

use crate::request::Request;
use crate::var::Variable;
use millpond_exchange::client::agreed::Agreed;

/// The variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "ssl_protocol",
        doc: "The version of TLS, such as \"TLSv1.3\".",
        write: |req, out| write(req, out, |agreed| Some(agreed.protocol)),
    },
    Variable {
        name: "ssl_cipher",
        doc: "The cipher suite, by its name in OpenSSL.",
        write: |req, out| write(req, out, |agreed| Some(agreed.cipher)),
    },
    Variable {
        name: "ssl_ciphers",
        doc: "The cipher suites that the client offered; those that are not known by number. Known \
              on new sessions only.",
        write: |req, out| write_offered(req, out, |[ciphers, ..]| ciphers),
    },
    Variable {
        name: "ssl_curve",
        doc: "The group of the key exchange, by its name in OpenSSL.",
        write: |req, out| write(req, out, |agreed| Some(agreed.curve)),
    },
    Variable {
        name: "ssl_curves",
        doc: "The groups that the client offered; those that are not known by number. Known on new \
              sessions only.",
        write: |req, out| write_offered(req, out, |[_, curves, _]| curves),
    },
    Variable {
        name: "ssl_sigalg",
        doc: "The scheme of the server's signature. Known on new sessions only.",
        write: |req, out| write(req, out, |agreed| Some(agreed.sigalg)),
    },
    Variable {
        name: "ssl_sigalgs",
        doc: "The schemes of signatures that the client offered. Known on new sessions only.",
        write: |req, out| write_offered(req, out, |[.., schemes]| schemes),
    },
    Variable {
        name: "ssl_session_id",
        doc: "The identifier of the session, in hexadecimal digits.",
        write: write_session_id,
    },
    Variable {
        name: "ssl_session_reused",
        doc: "\"r\" if a session was resumed, else \".\".",
        write: |req, out| {
            write(req, out, |agreed| {
                Some(if agreed.is_resumed { "r" } else { "." })
            })
        },
    },
    Variable {
        name: "ssl_early_data",
        doc: "\"1\" as long as the handshake is not over that the request came before, else empty.",
        write: |req, out| {
            let is_early = req.client.connection.is_early.get();
            if is_early {
                out.extend_from_slice(b"1");
            }
            is_early
        },
    },
    Variable {
        name: "ssl_server_name",
        doc: "The name that the client asked for in the handshake.",
        write: |req, out| write(req, out, |agreed| Some(&agreed.server_name)),
    },
    Variable {
        name: "ssl_alpn_protocol",
        doc: "The protocol that was chosen in the handshake (ALPN).",
        write: |req, out| match req.client.connection.tls.get() {
            Some(agreed) => {
                out.extend_from_slice(&agreed.alpn);
                !agreed.alpn.is_empty()
            }
            None => false,
        },
    },
    Variable {
        name: "ssl_client_verify",
        doc: "\"SUCCESS\", \"FAILED:\" and why, or \"NONE\" without a certificate of the client.",
        write: write_verdict,
    },
    Variable {
        name: "ssl_client_sigalg",
        doc: "The scheme of the client's signature. Known on new sessions only.",
        write: |req, out| write(req, out, |agreed| Some(agreed.client_sigalg)),
    },
    Variable {
        name: "ssl_client_cert",
        doc: "The client's certificate in PEM, with a tab before each line but the first.",
        write: |req, out| write_certificate(req, out, |it| it.folded_pem()),
    },
    Variable {
        name: "ssl_client_raw_cert",
        doc: "The client's certificate in PEM.",
        write: |req, out| write_certificate(req, out, |it| it.pem()),
    },
    Variable {
        name: "ssl_client_escaped_cert",
        doc: "The client's certificate in PEM, escaped for a URL.",
        write: |req, out| write_certificate(req, out, |it| it.escaped_pem()),
    },
    Variable {
        name: "ssl_client_s_dn",
        doc: "The subject of the client's certificate (RFC 2253).",
        write: |req, out| write_certificate(req, out, |it| it.subject()),
    },
    Variable {
        name: "ssl_client_i_dn",
        doc: "The issuer of the client's certificate (RFC 2253).",
        write: |req, out| write_certificate(req, out, |it| it.issuer()),
    },
    Variable {
        name: "ssl_client_s_dn_legacy",
        doc: "The subject of the client's certificate in one line with slashes.",
        write: |req, out| write_certificate(req, out, |it| it.legacy_subject()),
    },
    Variable {
        name: "ssl_client_i_dn_legacy",
        doc: "The issuer of the client's certificate in one line with slashes.",
        write: |req, out| write_certificate(req, out, |it| it.legacy_issuer()),
    },
    Variable {
        name: "ssl_client_serial",
        doc: "The serial number of the client's certificate.",
        write: |req, out| write_certificate(req, out, |it| it.serial()),
    },
    Variable {
        name: "ssl_client_fingerprint",
        doc: "The SHA-1 fingerprint of the client's certificate.",
        write: |req, out| write_certificate(req, out, |it| it.fingerprint()),
    },
    Variable {
        name: "ssl_client_v_start",
        doc: "The time from which the client's certificate is valid.",
        write: |req, out| write_certificate(req, out, |it| it.not_before()),
    },
    Variable {
        name: "ssl_client_v_end",
        doc: "The time until which the client's certificate is valid.",
        write: |req, out| write_certificate(req, out, |it| it.not_after()),
    },
    Variable {
        name: "ssl_client_v_remain",
        doc: "The days until the client's certificate ends.",
        write: |req, out| write_certificate(req, out, |it| it.remaining_days(now_s())),
    },
];

/// Writes a text; an empty one is none.
fn write(
    req: &Request,
    out: &mut Vec<u8>,
    text: impl for<'a> FnOnce(&'a Agreed) -> Option<&'a str>,
) -> bool {
    let agreed = req.client.connection.tls.get();
    let text = agreed.and_then(|agreed| text(agreed)).unwrap_or_default();
    out.extend_from_slice(text.as_bytes());
    !text.is_empty()
}

fn write_offered(
    req: &Request,
    out: &mut Vec<u8>,
    text: impl for<'a> FnOnce(&'a [String; 3]) -> &'a String,
) -> bool {
    write(req, out, |agreed| {
        let offered = agreed.offered.as_deref().filter(|_| !agreed.is_resumed);
        offered.map(|offered| text(offered).as_str())
    })
}

fn write_session_id(req: &Request, out: &mut Vec<u8>) -> bool {
    let agreed = req.client.connection.tls.get();
    let Some(id) = agreed.and_then(|agreed| agreed.session_id) else {
        return false;
    };
    out.extend_from_slice(Hex(&id).to_string().as_bytes());
    true
}

fn write_verdict(req: &Request, out: &mut Vec<u8>) -> bool {
    let Some(agreed) = req.client.connection.tls.get() else {
        return false;
    };
    out.extend_from_slice(agreed.verdict.to_string().as_bytes());
    true
}

/// Writes something of the client's certificate.
fn write_certificate(
    req: &Request,
    out: &mut Vec<u8>,
    text: impl FnOnce(&Certificate) -> String,
) -> bool {
    let agreed = req.client.connection.tls.get();
    let Some(certificate) = agreed.and_then(|agreed| agreed.certificate.as_ref()) else {
        return false;
    };
    let text = text(certificate);
    out.extend_from_slice(text.as_bytes());
    !text.is_empty()
}

/// The time now, in seconds since 1970.
fn now_s() -> i64 {
    clock::wall_us(clock::instant()).div_euclid(1_000_000)
}
