//! Variables of the response: what was answered, as far as it is known when they are read.
//!
//! Before the answer is sent they have no value, or that of the error that is being answered.

use millpond_wire::header::Known;
use millpond_wire::http1::Version;

use super::Variable;
use super::VariableFamily;
use super::number::number;

/// The variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "status",
        doc: "Status code of the answer, three digits.",
        write: |req, out| {
            // nginx: that of the error, also where its page was sent in part or not at all (304).
            let status = match (req.error.status, req.sent.status) {
                (0, 0) if req.head.version() == Version::Http09 => 9,
                (0, status) | (status, _) => status,
            };
            number(out, u64::from(status), 3)
        },
    },
    Variable {
        name: "bytes_sent",
        doc: "Bytes sent to the client, head included.",
        write: |req, out| number(out, req.sent.head_bytes + req.sent.body_bytes, 1),
    },
    Variable {
        name: "body_bytes_sent",
        doc: "Bytes sent to the client, without the head.",
        write: |req, out| number(out, req.sent.body_bytes, 1),
    },
    Variable {
        name: "sent_http_content_type",
        doc: "The Content-Type field of the answer, but none that `add_header` has added.",
        write: |req, out| {
            let content_type = req.sent.fields.get(Known::ContentType);
            out.extend_from_slice(content_type.map_or(&[], |value| &value[..]));
            content_type.is_some_and(|value| !value.is_empty())
        },
    },
    Variable {
        name: "sent_http_content_length",
        doc: "The Content-Length field of the answer.",
        write: |req, out| match req.sent.length {
            Some(length) if !req.sent.is_chunked => number(out, length, 1),
            _ => false,
        },
    },
    Variable {
        name: "sent_http_transfer_encoding",
        doc: "The Transfer-Encoding field of the answer.",
        write: |req, out| {
            if req.sent.is_chunked {
                out.extend_from_slice(b"chunked");
            }
            req.sent.is_chunked
        },
    },
    Variable {
        name: "sent_http_connection",
        doc: "The Connection field of the answer.",
        write: |req, out| {
            out.extend_from_slice(match (req.sent.status, req.client.keeps_connection()) {
                (101, _) => b"upgrade",
                (_, true) => b"keep-alive",
                (_, false) => b"close",
            });
            true
        },
    },
    Variable {
        name: "sent_http_keep_alive",
        doc: "The Keep-Alive field of the answer.",
        write: |req, out| {
            let seconds = req.location.settings.keep_alive.header_timeout();
            match seconds.filter(|_| req.client.keeps_connection()) {
                Some(seconds) => {
                    out.extend_from_slice(b"timeout=");
                    number(out, seconds, 1)
                }
                None => false,
            }
        },
    },
];

/// The families.
pub const FAMILIES: &[VariableFamily] = &[
    VariableFamily {
        prefix: "sent_http_",
        doc: "A field of the answer; several of one name are joined with commas.",
        write: |req, name, out| {
            joined(
                out,
                req.sent
                    .fields
                    .find_all_underscored(name)
                    .map(|value| &value[..]),
            )
        },
    },
    VariableFamily {
        prefix: "sent_trailer_",
        doc: "A trailer field of the answer; several of one name are joined with commas.",
        write: |req, name, out| {
            joined(
                out,
                req.sent
                    .trailers
                    .find_all_underscored(name)
                    .map(|value| &value[..]),
            )
        },
    },
];

fn joined<'a>(out: &mut Vec<u8>, values: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut is_found = false;
    for value in values {
        if is_found {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
        is_found = true;
    }
    is_found
}
