//! Variables of the response: what was answered, as far as it is known when they are read.
//!
//! Before the answer is sent they have no value, or that of the error that is being answered.

use super::Variable;
use super::VariableFamily;
use crate::http1::Version;

/// The variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "status",
        doc: "Status code of the answer, three digits.",
        write: |req, out| {
            let status = match (req.sent.status, req.error_status) {
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
            out.extend_from_slice(match (req.sent.status, req.keep_alive) {
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
            match seconds.filter(|_| req.keep_alive) {
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

/// Appends a decimal number of at least `width` digits.
pub(super) fn number(out: &mut Vec<u8>, mut value: u64, width: usize) -> bool {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    for digit in digits.iter_mut().rev() {
        if value == 0 && at + width <= 20 {
            break;
        }
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        at -= 1;
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
    true
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_least_width() {
        let cases = [
            (0, 1, "0"),
            (0, 3, "000"),
            (9, 3, "009"),
            (200, 3, "200"),
            (12_345, 3, "12345"),
        ];
        for (value, width, expected) in cases {
            let mut out = Vec::new();
            number(&mut out, value, width);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let mut out = Vec::new();
        number(&mut out, u64::MAX, 1);
        assert_eq!(out, u64::MAX.to_string().as_bytes());
    }
}
