//! The static table of HPACK (RFC 7541 appendix A), and the way from a known name to its place.
//!
//! 1. The place of a known name is looked up by its number: there is nothing to search.
//!
//! Places count from one, as indexes on the wire do.

use super::name::Class;
use crate::header::Known;

/// A row of the static table: class, name, value.
type Row = (Class, &'static str, &'static str);

/// The static table; index 1 is its first row.
pub(crate) const TABLE: [Row; 61] = [
    (Class::Authority, ":authority", ""),
    (Class::Method, ":method", "GET"),
    (Class::Method, ":method", "POST"),
    (Class::Path, ":path", "/"),
    (Class::Path, ":path", "/index.html"),
    (Class::Scheme, ":scheme", "http"),
    (Class::Scheme, ":scheme", "https"),
    (Class::Status, ":status", "200"),
    (Class::Status, ":status", "204"),
    (Class::Status, ":status", "206"),
    (Class::Status, ":status", "304"),
    (Class::Status, ":status", "400"),
    (Class::Status, ":status", "404"),
    (Class::Status, ":status", "500"),
    (Class::Field(Known::AcceptCharset), "accept-charset", ""),
    (
        Class::Field(Known::AcceptEncoding),
        "accept-encoding",
        "gzip, deflate",
    ),
    (Class::Field(Known::AcceptLanguage), "accept-language", ""),
    (Class::Field(Known::AcceptRanges), "accept-ranges", ""),
    (Class::Field(Known::Accept), "accept", ""),
    (
        Class::Field(Known::Other),
        "access-control-allow-origin",
        "",
    ),
    (Class::Field(Known::Age), "age", ""),
    (Class::Field(Known::Allow), "allow", ""),
    (Class::Field(Known::Authorization), "authorization", ""),
    (Class::Field(Known::CacheControl), "cache-control", ""),
    (
        Class::Field(Known::ContentDisposition),
        "content-disposition",
        "",
    ),
    (Class::Field(Known::ContentEncoding), "content-encoding", ""),
    (Class::Field(Known::ContentLanguage), "content-language", ""),
    (Class::Field(Known::ContentLength), "content-length", ""),
    (Class::Field(Known::ContentLocation), "content-location", ""),
    (Class::Field(Known::ContentRange), "content-range", ""),
    (Class::Field(Known::ContentType), "content-type", ""),
    (Class::Field(Known::Cookie), "cookie", ""),
    (Class::Field(Known::Date), "date", ""),
    (Class::Field(Known::ETag), "etag", ""),
    (Class::Field(Known::Expect), "expect", ""),
    (Class::Field(Known::Expires), "expires", ""),
    (Class::Field(Known::Other), "from", ""),
    (Class::Field(Known::Host), "host", ""),
    (Class::Field(Known::IfMatch), "if-match", ""),
    (
        Class::Field(Known::IfModifiedSince),
        "if-modified-since",
        "",
    ),
    (Class::Field(Known::IfNoneMatch), "if-none-match", ""),
    (Class::Field(Known::IfRange), "if-range", ""),
    (
        Class::Field(Known::IfUnmodifiedSince),
        "if-unmodified-since",
        "",
    ),
    (Class::Field(Known::LastModified), "last-modified", ""),
    (Class::Field(Known::Link), "link", ""),
    (Class::Field(Known::Location), "location", ""),
    (Class::Field(Known::Other), "max-forwards", ""),
    (
        Class::Field(Known::ProxyAuthenticate),
        "proxy-authenticate",
        "",
    ),
    (
        Class::Field(Known::ProxyAuthorization),
        "proxy-authorization",
        "",
    ),
    (Class::Field(Known::Range), "range", ""),
    (Class::Field(Known::Referer), "referer", ""),
    (Class::Field(Known::Refresh), "refresh", ""),
    (Class::Field(Known::RetryAfter), "retry-after", ""),
    (Class::Field(Known::Server), "server", ""),
    (Class::Field(Known::SetCookie), "set-cookie", ""),
    (
        Class::Field(Known::StrictTransportSecurity),
        "strict-transport-security",
        "",
    ),
    (
        Class::Field(Known::TransferEncoding),
        "transfer-encoding",
        "",
    ),
    (Class::Field(Known::UserAgent), "user-agent", ""),
    (Class::Field(Known::Vary), "vary", ""),
    (Class::Field(Known::Via), "via", ""),
    (Class::Field(Known::WwwAuthenticate), "www-authenticate", ""),
];

/// The index of the first row of each known name; zero for those that have none.
static PLACES: [u8; 128] = places();

const fn places() -> [u8; 128] {
    let mut places = [0; 128];
    let mut at = TABLE.len();
    // Backwards, so that the first row of a name stays.
    while at > 0 {
        if let Class::Field(known) = TABLE[at - 1].0
            && !matches!(known, Known::Other)
        {
            places[known as usize] = at as u8;
        }
        at -= 1;
    }
    places
}

/// A row by its index.
pub(crate) fn get(index: usize) -> Option<&'static Row> {
    TABLE.get(index.checked_sub(1)?)
}

/// The index of the first row of a field's name; zero if there is none.
#[inline]
pub(crate) fn place(known: Known, name: &[u8]) -> usize {
    match known {
        Known::Other => match name {
            b"access-control-allow-origin" => 20,
            b"from" => 37,
            b"max-forwards" => 47,
            _ => 0,
        },
        // There are no more than 127.
        known => usize::from(PLACES[known as usize & 127]),
    }
}

/// The index of `:status` with a value; zero if none of the rows has it.
pub(crate) fn status(status: u16) -> usize {
    match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name() {
        for (index, (class, name, _)) in TABLE.iter().enumerate() {
            let first = TABLE.iter().position(|row| row.1 == *name).unwrap();
            assert_eq!(Class::of(name.as_bytes()), *class, "{name}");
            if let Class::Field(known) = class {
                assert_eq!(place(*known, name.as_bytes()), first + 1, "{index} {name}");
            }
        }
        assert_eq!(place(Known::Connection, b"connection"), 0);
    }

    #[test]
    fn statuses_are_found_by_their_number() {
        for number in 100..=999 {
            let text = number.to_string();
            let row = TABLE
                .iter()
                .position(|row| (row.1, row.2) == (":status", &text));
            assert_eq!(status(number), row.map_or(0, |row| row + 1), "{number}");
        }
    }
}
