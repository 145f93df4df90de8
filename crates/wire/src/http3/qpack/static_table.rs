//! The static table of QPACK (RFC 9204 appendix A), and the way from a known name to its place.
//!
//! 1. The place of a known name is looked up by its number; rows of one name are on a chain.
//!
//! Places count from zero, as indexes on the wire do.

use crate::header::Known;
use crate::http2::hpack::name::Class;

/// A row of the static table: class, name, value.
type Row = (Class, &'static str, &'static str);

/// The static table.
pub(crate) const TABLE: [Row; 99] = [
    (Class::Authority, ":authority", ""),
    (Class::Path, ":path", "/"),
    (Class::Field(Known::Age), "age", "0"),
    (
        Class::Field(Known::ContentDisposition),
        "content-disposition",
        "",
    ),
    (Class::Field(Known::ContentLength), "content-length", "0"),
    (Class::Field(Known::Cookie), "cookie", ""),
    (Class::Field(Known::Date), "date", ""),
    (Class::Field(Known::ETag), "etag", ""),
    (
        Class::Field(Known::IfModifiedSince),
        "if-modified-since",
        "",
    ),
    (Class::Field(Known::IfNoneMatch), "if-none-match", ""),
    (Class::Field(Known::LastModified), "last-modified", ""),
    (Class::Field(Known::Link), "link", ""),
    (Class::Field(Known::Location), "location", ""),
    (Class::Field(Known::Referer), "referer", ""),
    (Class::Field(Known::SetCookie), "set-cookie", ""),
    (Class::Method, ":method", "CONNECT"),
    (Class::Method, ":method", "DELETE"),
    (Class::Method, ":method", "GET"),
    (Class::Method, ":method", "HEAD"),
    (Class::Method, ":method", "OPTIONS"),
    (Class::Method, ":method", "POST"),
    (Class::Method, ":method", "PUT"),
    (Class::Scheme, ":scheme", "http"),
    (Class::Scheme, ":scheme", "https"),
    (Class::Status, ":status", "103"),
    (Class::Status, ":status", "200"),
    (Class::Status, ":status", "304"),
    (Class::Status, ":status", "404"),
    (Class::Status, ":status", "503"),
    (Class::Field(Known::Accept), "accept", "*/*"),
    (
        Class::Field(Known::Accept),
        "accept",
        "application/dns-message",
    ),
    (
        Class::Field(Known::AcceptEncoding),
        "accept-encoding",
        "gzip, deflate, br",
    ),
    (Class::Field(Known::AcceptRanges), "accept-ranges", "bytes"),
    (
        Class::Field(Known::Other),
        "access-control-allow-headers",
        "cache-control",
    ),
    (
        Class::Field(Known::Other),
        "access-control-allow-headers",
        "content-type",
    ),
    (
        Class::Field(Known::Other),
        "access-control-allow-origin",
        "*",
    ),
    (
        Class::Field(Known::CacheControl),
        "cache-control",
        "max-age=0",
    ),
    (
        Class::Field(Known::CacheControl),
        "cache-control",
        "max-age=2592000",
    ),
    (
        Class::Field(Known::CacheControl),
        "cache-control",
        "max-age=604800",
    ),
    (
        Class::Field(Known::CacheControl),
        "cache-control",
        "no-cache",
    ),
    (
        Class::Field(Known::CacheControl),
        "cache-control",
        "no-store",
    ),
    (
        Class::Field(Known::CacheControl),
        "cache-control",
        "public, max-age=31536000",
    ),
    (
        Class::Field(Known::ContentEncoding),
        "content-encoding",
        "br",
    ),
    (
        Class::Field(Known::ContentEncoding),
        "content-encoding",
        "gzip",
    ),
    (
        Class::Field(Known::ContentType),
        "content-type",
        "application/dns-message",
    ),
    (
        Class::Field(Known::ContentType),
        "content-type",
        "application/javascript",
    ),
    (
        Class::Field(Known::ContentType),
        "content-type",
        "application/json",
    ),
    (
        Class::Field(Known::ContentType),
        "content-type",
        "application/x-www-form-urlencoded",
    ),
    (
        Class::Field(Known::ContentType),
        "content-type",
        "image/gif",
    ),
    (
        Class::Field(Known::ContentType),
        "content-type",
        "image/jpeg",
    ),
    (
        Class::Field(Known::ContentType),
        "content-type",
        "image/png",
    ),
    (Class::Field(Known::ContentType), "content-type", "text/css"),
    (
        Class::Field(Known::ContentType),
        "content-type",
        "text/html; charset=utf-8",
    ),
    (
        Class::Field(Known::ContentType),
        "content-type",
        "text/plain",
    ),
    (
        Class::Field(Known::ContentType),
        "content-type",
        "text/plain;charset=utf-8",
    ),
    (Class::Field(Known::Range), "range", "bytes=0-"),
    (
        Class::Field(Known::StrictTransportSecurity),
        "strict-transport-security",
        "max-age=31536000",
    ),
    (
        Class::Field(Known::StrictTransportSecurity),
        "strict-transport-security",
        "max-age=31536000; includesubdomains",
    ),
    (
        Class::Field(Known::StrictTransportSecurity),
        "strict-transport-security",
        "max-age=31536000; includesubdomains; preload",
    ),
    (Class::Field(Known::Vary), "vary", "accept-encoding"),
    (Class::Field(Known::Vary), "vary", "origin"),
    (
        Class::Field(Known::Other),
        "x-content-type-options",
        "nosniff",
    ),
    (
        Class::Field(Known::Other),
        "x-xss-protection",
        "1; mode=block",
    ),
    (Class::Status, ":status", "100"),
    (Class::Status, ":status", "204"),
    (Class::Status, ":status", "206"),
    (Class::Status, ":status", "302"),
    (Class::Status, ":status", "400"),
    (Class::Status, ":status", "403"),
    (Class::Status, ":status", "421"),
    (Class::Status, ":status", "425"),
    (Class::Status, ":status", "500"),
    (Class::Field(Known::AcceptLanguage), "accept-language", ""),
    (
        Class::Field(Known::Other),
        "access-control-allow-credentials",
        "FALSE",
    ),
    (
        Class::Field(Known::Other),
        "access-control-allow-credentials",
        "TRUE",
    ),
    (
        Class::Field(Known::Other),
        "access-control-allow-headers",
        "*",
    ),
    (
        Class::Field(Known::Other),
        "access-control-allow-methods",
        "get",
    ),
    (
        Class::Field(Known::Other),
        "access-control-allow-methods",
        "get, post, options",
    ),
    (
        Class::Field(Known::Other),
        "access-control-allow-methods",
        "options",
    ),
    (
        Class::Field(Known::Other),
        "access-control-expose-headers",
        "content-length",
    ),
    (
        Class::Field(Known::Other),
        "access-control-request-headers",
        "content-type",
    ),
    (
        Class::Field(Known::Other),
        "access-control-request-method",
        "get",
    ),
    (
        Class::Field(Known::Other),
        "access-control-request-method",
        "post",
    ),
    (Class::Field(Known::Other), "alt-svc", "clear"),
    (Class::Field(Known::Authorization), "authorization", ""),
    (
        Class::Field(Known::Other),
        "content-security-policy",
        "script-src 'none'; object-src 'none'; base-uri 'none'",
    ),
    (Class::Field(Known::Other), "early-data", "1"),
    (Class::Field(Known::Other), "expect-ct", ""),
    (Class::Field(Known::Forwarded), "forwarded", ""),
    (Class::Field(Known::IfRange), "if-range", ""),
    (Class::Field(Known::Origin), "origin", ""),
    (Class::Field(Known::Other), "purpose", "prefetch"),
    (Class::Field(Known::Server), "server", ""),
    (Class::Field(Known::Other), "timing-allow-origin", "*"),
    (Class::Field(Known::Other), "upgrade-insecure-requests", "1"),
    (Class::Field(Known::UserAgent), "user-agent", ""),
    (Class::Field(Known::XForwardedFor), "x-forwarded-for", ""),
    (Class::Field(Known::Other), "x-frame-options", "deny"),
    (Class::Field(Known::Other), "x-frame-options", "sameorigin"),
];

/// A place that there is not.
const NONE: u8 = u8::MAX;

/// The first row of each known name.
static PLACES: [u8; 128] = places();

const fn places() -> [u8; 128] {
    let mut places = [NONE; 128];
    let mut at = TABLE.len();
    // Backwards, so that the first row of a name stays.
    while at > 0 {
        at -= 1;
        if let Class::Field(known) = TABLE[at].0
            && !matches!(known, Known::Other)
        {
            places[known as usize] = at as u8;
        }
    }
    places
}

/// The next row of the same name, behind each row.
static NEXT: [u8; TABLE.len()] = next_rows();

const fn next_rows() -> [u8; TABLE.len()] {
    let mut next = [NONE; TABLE.len()];
    let mut at = 0;
    while at < TABLE.len() {
        let mut other = at + 1;
        while other < TABLE.len() {
            if is_same(TABLE[at].1.as_bytes(), TABLE[other].1.as_bytes()) {
                next[at] = other as u8;
                break;
            }
            other += 1;
        }
        at += 1;
    }
    next
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// A row by its index.
#[inline]
pub(crate) fn get(index: u64) -> Option<&'static Row> {
    TABLE.get(usize::try_from(index).ok()?)
}

/// The index of the first row of a field's name.
#[inline]
pub(crate) fn place(known: Known, name: &[u8]) -> Option<u8> {
    let place = match known {
        Known::Other => match name {
            b"access-control-allow-headers" => 33,
            b"access-control-allow-origin" => 35,
            b"x-content-type-options" => 61,
            b"x-xss-protection" => 62,
            b"access-control-allow-credentials" => 73,
            b"access-control-allow-methods" => 76,
            b"access-control-expose-headers" => 79,
            b"access-control-request-headers" => 80,
            b"access-control-request-method" => 81,
            b"alt-svc" => 83,
            b"content-security-policy" => 85,
            b"early-data" => 86,
            b"expect-ct" => 87,
            b"purpose" => 91,
            b"timing-allow-origin" => 93,
            b"upgrade-insecure-requests" => 94,
            b"x-frame-options" => 97,
            _ => NONE,
        },
        // There are no more than 127.
        known => PLACES[known as usize & 127],
    };
    (place != NONE).then_some(place)
}

/// The index of the row of a value, of those that have the name of the row `first`.
#[inline]
pub(crate) fn find(first: u8, value: &[u8]) -> Option<u8> {
    let mut at = first;
    while let Some((_, _, own)) = TABLE.get(usize::from(at)) {
        if own.as_bytes() == value {
            return Some(at);
        }
        at = NEXT.get(usize::from(at)).copied()?;
    }
    None
}

/// The first row of `:status`.
pub(crate) const STATUS: u8 = 24;

/// The index of `:status` with a value, if one of the rows has it.
pub(crate) fn status(status: u16) -> Option<u8> {
    Some(match status {
        100 => 63,
        103 => 24,
        200 => 25,
        204 => 64,
        206 => 65,
        302 => 66,
        304 => 26,
        400 => 67,
        403 => 68,
        404 => 27,
        421 => 69,
        425 => 70,
        500 => 71,
        503 => 28,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name_and_value() {
        for (index, (class, name, value)) in TABLE.iter().enumerate() {
            let first = TABLE.iter().position(|row| row.1 == *name).unwrap() as u8;
            assert_eq!(Class::of(name.as_bytes()), *class, "{name}");
            if let Class::Field(known) = class {
                assert_eq!(
                    place(*known, name.as_bytes()),
                    Some(first),
                    "{index} {name}"
                );
            }
            assert_eq!(
                find(first, value.as_bytes()),
                Some(index as u8),
                "{name} {value}"
            );
            assert_eq!(find(first, b"no such value"), None);
        }
        assert_eq!(place(Known::Connection, b"connection"), None);
        assert_eq!(place(Known::Other, b"x-other"), None);
    }

    #[test]
    fn statuses_are_found_by_their_number() {
        for number in 100..=999 {
            let text = number.to_string();
            assert_eq!(status(number), find(STATUS, text.as_bytes()), "{number}");
        }
    }
}
