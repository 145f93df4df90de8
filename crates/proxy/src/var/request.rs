//! Variables of the request: its line, its fields, its path now, its times.
//!
//! Fields of one name that came several times are joined: cookies with `; `, all others with `, `.
//! Names of arguments and cookies match in any case, as in nginx.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use millpond_system::chance;
use millpond_system::clock;
use millpond_system::log::stamp;
use millpond_wire::header::Known;

use super::number::{write_millis, write_number};
use super::{Variable, VariableFamily};
use crate::request::Request;

/// The nginx whose configurations are understood, for `$nginx_version`.
const NGINX_VERSION: &str = "1.31.5";

/// The begin of the names of variables of request fields.
pub(super) const FIELD_PREFIX: &str = "http_";

/// The name of the variable of the request's host.
pub(super) const HOST: &str = "host";

/// The families.
pub const FAMILIES: &[VariableFamily] = &[
    VariableFamily {
        prefix: FIELD_PREFIX,
        doc: "The request field of that name, in small letters and with underscores for hyphens.",
        write: |req, name, out| write_field((known_of(name), name), req, out),
    },
    VariableFamily {
        prefix: "arg_",
        doc: "The argument of that name in the query.",
        write: |req, name, out| write_found(argument(&req.args, name), out),
    },
    VariableFamily {
        prefix: "cookie_",
        doc: "The cookie of that name.",
        write: |req, name, out| {
            let mut lines = req.head.get_all(Known::Cookie);
            write_found(lines.find_map(|line| cookie(line, name)), out)
        },
    },
];

/// The variables of the process and of the time, which are the same for whatever asks.
pub const PROCESS: &[Variable] = &[
    Variable {
        name: "hostname",
        doc: "The name of this machine.",
        write: |_, out| write_text(hostname(), out),
    },
    Variable {
        name: "msec",
        doc: "The time now in seconds since the epoch, with milliseconds.",
        write: |_, out| {
            let now = u64::try_from(clock::now_ms()).unwrap_or(0);
            write_millis(Duration::from_millis(now), out)
        },
    },
    Variable {
        name: "nginx_version",
        doc: "The version of nginx whose configuration language is understood.",
        write: |_, out| write_text(NGINX_VERSION.as_bytes(), out),
    },
    Variable {
        name: "pid",
        doc: "The number of this process.",
        write: |_, out| write_number(u64::from(std::process::id()), out),
    },
    Variable {
        name: "time_iso8601",
        doc: "The time now, such as \"2026-11-21T03:17:22+00:00\".",
        write: write_iso_time,
    },
    Variable {
        name: "time_local",
        doc: "The time now, such as \"21/Nov/2026:03:17:22 +0000\".",
        write: write_log_time,
    },
];

/// The variables.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "args",
        doc: "The query now, without its question mark.",
        write: write_args,
    },
    Variable {
        name: "cache_args",
        doc: "The arguments of the query that `cache_args` keeps, sorted by their names.",
        write: write_cache_args,
    },
    Variable {
        name: "content_length",
        doc: "The Content-Length of the request.",
        write: write_content_length,
    },
    Variable {
        name: "content_type",
        doc: "The Content-Type of the request.",
        write: |req, out| write_field((Known::ContentType, b"content_type"), req, out),
    },
    Variable {
        name: "document_uri",
        doc: "The same as `$uri`.",
        write: write_uri,
    },
    Variable {
        name: HOST,
        doc: "The host of the request, in small letters; the server's name when it has none.",
        write: |req, out| write_text(host(req), out),
    },
    Variable {
        name: "https",
        doc: "\"on\" on a TLS connection, else empty.",
        write: |req, out| {
            if req.client.connection.is_encrypted() {
                out.extend_from_slice(b"on");
            }
            true
        },
    },
    Variable {
        name: "is_args",
        doc: "\"?\" when there is a query, else empty.",
        write: |req, out| write_text(if req.args.is_empty() { b"" } else { b"?" }, out),
    },
    Variable {
        name: "is_request_port",
        doc: "\":\" when the client named a port, else empty.",
        write: |req, out| write_text(if req.host_port.is_some() { b":" } else { b"" }, out),
    },
    Variable {
        name: "limit_rate",
        doc: "The rate at which the answer is sent, bytes a second; it may be set.",
        write: |req, out| write_number(req.limit_rate.unwrap_or(0), out),
    },
    Variable {
        name: "query_string",
        doc: "The same as `$args`.",
        write: write_args,
    },
    Variable {
        name: "request",
        doc: "The request line as it came.",
        write: |req, out| write_some(req.head.line(), out),
    },
    Variable {
        name: "request_body",
        doc: "The request body, when it was read into memory.",
        write: |req, out| match req.body.memory() {
            Some(body) => write_some(body, out),
            None => false,
        },
    },
    Variable {
        name: "request_body_file",
        doc: "The file with the request body.",
        write: |req, out| match req.body.path() {
            Some(path) => write_some(path.as_os_str().as_encoded_bytes(), out),
            None => false,
        },
    },
    Variable {
        name: "request_completion",
        doc: "\"OK\" when the answer was sent whole, else empty.",
        write: |req, out| write_text(if req.sent.is_complete { b"OK" } else { b"" }, out),
    },
    Variable {
        name: "request_id",
        doc: "A random name of the request: 32 hexadecimal digits.",
        write: |req, out| write_text(req.id(), out),
    },
    Variable {
        name: "request_length",
        doc: "Bytes of the request so far: line, fields and body.",
        write: |req, out| write_number(req.client.request_bytes.get(), out),
    },
    Variable {
        name: "request_method",
        doc: "The method of the request now; in a subrequest that of the request it is made for.",
        write: |req, out| match req.page_method().name() {
            Some(name) => write_text(name.as_bytes(), out),
            None => write_some(req.head.method_bytes(), out),
        },
    },
    Variable {
        name: "request_port",
        doc: "The port that the client named, else empty.",
        write: |req, out| match req.host_port {
            Some(port) => write_number(u64::from(port), out),
            None => true,
        },
    },
    Variable {
        name: "request_time",
        doc: "The time since the first byte of the request in seconds, with milliseconds.",
        write: |req, out| write_millis(clock::instant() - req.started, out),
    },
    Variable {
        name: "request_uri",
        doc: "Path and query as the client wrote them.",
        write: |req, out| write_some(req.unparsed_uri(), out),
    },
    Variable {
        name: "scheme",
        doc: "\"http\" or \"https\".",
        write: |req, out| write_text(req.client.connection.scheme().as_bytes(), out),
    },
    Variable {
        name: "server_name",
        doc: "The first name of the server that answers.",
        write: |req, out| write_text(&req.server.name, out),
    },
    Variable {
        name: "server_protocol",
        doc: "The version of the request, such as \"HTTP/1.1\".",
        write: |req, out| write_some(req.head.protocol(), out),
    },
    Variable {
        name: "slice_range",
        doc: "The range of the slice that is being fetched, such as \"bytes=0-1048575\".",
        write: |req, out| match &req.slice_range {
            Some(range) => write_text(range, out),
            None => true,
        },
    },
    Variable {
        name: "uri",
        doc: "The path now, normalized.",
        write: write_uri,
    },
];

/// The value of [`HOST`].
pub(super) fn host(req: &Request) -> &[u8] {
    req.host_or_name()
}

/// Appends a value that may be empty.
fn write_text(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(text);
    true
}

/// Appends a value that does not exist when it is empty.
fn write_some(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(text);
    !text.is_empty()
}

/// Appends the path; one that could not be read is empty, and without a target there is none.
fn write_uri(req: &Request, out: &mut Vec<u8>) -> bool {
    write_some(&req.uri, out) || !req.head.uri().is_empty()
}

/// Appends the query; an empty one exists where the configuration wrote it.
fn write_args(req: &Request, out: &mut Vec<u8>) -> bool {
    write_some(&req.args, out) || req.path.has_query
}

fn write_cache_args(req: &Request, out: &mut Vec<u8>) -> bool {
    let before = out.len();
    req.location
        .settings
        .cache_args
        .choice
        .write(&req.args, out);
    out.len() > before
}

fn write_found(text: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    text.is_some_and(|text| write_text(text, out))
}

/// The field that a name with underscores for hyphens is that of.
pub(super) fn known_of(name: &[u8]) -> Known {
    let hyphenated: Vec<u8> = name
        .iter()
        .map(|byte| if *byte == b'_' { b'-' } else { *byte })
        .collect();
    Known::of(&hyphenated)
}

/// Appends the values of a field, by its name with hyphens and with underscores.
pub(super) fn write_field((known, name): (Known, &[u8]), req: &Request, out: &mut Vec<u8>) -> bool {
    let separator: &[u8] = match known {
        Known::Cookie => b"; ",
        _ => b", ",
    };
    let mut is_found = false;
    for value in req.head.find_all_spelled(known, name) {
        if std::mem::replace(&mut is_found, true) {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(value);
    }
    is_found
}

fn write_content_length(req: &Request, out: &mut Vec<u8>) -> bool {
    if let Some(length) = req.field(Known::ContentLength) {
        return write_text(length, out);
    }
    // nginx: the length of a chunked body is known once it was read.
    let is_read = req.body.memory().is_some() || req.body.path().is_some();
    let is_chunked = req.field(Known::TransferEncoding).is_some();
    match req.body.len() {
        Some(length) if is_read || (length == 0 && is_chunked) => write_number(length, out),
        _ => false,
    }
}

/// The value of an argument of a query; the name matches in any case.
pub fn argument<'a>(args: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if name.is_empty() {
        return None;
    }
    args.split(|byte| *byte == b'&').find_map(|pair| {
        let (found, rest) = pair.split_at_checked(name.len())?;
        let value = rest.strip_prefix(b"=")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// The value of a cookie in a Cookie field; the name matches in any case.
pub fn cookie<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    line.split(|byte| *byte == b';').find_map(|pair| {
        let pair = trim_spaces_before(pair);
        let (found, rest) = pair.split_at_checked(name.len())?;
        let value = trim_spaces_before(rest).strip_prefix(b"=")?;
        found
            .eq_ignore_ascii_case(name)
            .then(|| trim_spaces_before(value))
    })
}

fn trim_spaces_before(text: &[u8]) -> &[u8] {
    let count = text.iter().take_while(|byte| **byte == b' ').count();
    text.get(count..).unwrap_or_default()
}

fn write_iso_time(req: &Request, out: &mut Vec<u8>) -> bool {
    stamp::append(out, stamp::Form::Iso, now_ms(req));
    true
}

fn write_log_time(req: &Request, out: &mut Vec<u8>) -> bool {
    stamp::append(out, stamp::Form::Local, now_ms(req));
    true
}

/// Wall time in milliseconds; once the answer was sent, that of its end, which was read just then.
fn now_ms(req: &Request) -> i64 {
    match req.sent.ended.filter(|_| req.sent.is_complete) {
        Some(ended) => clock::wall_us(ended).div_euclid(1000),
        None => clock::now_ms(),
    }
}

/// The machine's name, in small letters; asked for once.
pub fn hostname() -> &'static [u8] {
    static NAME: OnceLock<Vec<u8>> = OnceLock::new();
    NAME.get_or_init(|| {
        let names = rustix::system::uname();
        names.nodename().to_bytes().to_ascii_lowercase()
    })
}

impl Request {
    /// `$request_id`, made on first use.
    pub(crate) fn id(&self) -> &Bytes {
        self.request_id.get_or_init(random_id)
    }
}

/// 128 bits that nobody can guess.
pub fn random_id() -> Bytes {
    let (high, low) = (chance::word(), chance::word());
    Bytes::from(format!("{high:016x}{low:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_by_whole_names_in_any_case() {
        for (args, name, value) in [
            ("a=1&b=2", "b", Some("2")),
            ("a=1&B=2", "b", Some("2")),
            ("ab=1&b=2", "b", Some("2")),
            ("b", "b", None),
            ("b=", "b", Some("")),
            ("b=1&b=2", "b", Some("1")),
            ("b&b=2", "b", Some("2")),
            ("b=x=y", "b", Some("x=y")),
            ("", "b", None),
        ] {
            let found = argument(args.as_bytes(), name.as_bytes());
            assert_eq!(found, value.map(str::as_bytes), "{args}");
        }
    }

    #[test]
    fn cookies_are_found_by_whole_names_in_any_case() {
        for (line, name, value) in [
            ("a=1; b=2", "b", Some("2")),
            ("a=1;B=2", "b", Some("2")),
            ("ab=1; b = 2 ", "b", Some("2 ")),
            ("b", "b", None),
            ("b; b=3", "b", Some("3")),
            ("b=", "b", Some("")),
            ("", "b", None),
        ] {
            let found = cookie(line.as_bytes(), name.as_bytes());
            assert_eq!(found, value.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn random_ids_are_32_digits_and_differ() {
        let (one, two) = (random_id(), random_id());
        assert!(one.len() == 32 && one.iter().all(u8::is_ascii_hexdigit));
        assert_ne!(one, two);
    }

    #[test]
    fn times_have_three_decimals() {
        let mut out = Vec::new();
        assert!(write_millis(Duration::from_micros(12_034_999), &mut out));
        assert_eq!(out, b"12.034");
    }
}
