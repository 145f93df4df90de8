//! Header fields: the names that the proxy knows, and a list of fields that can be changed.
//!
//! [`Known`] turns a name into one byte, once, when the field is parsed; everything after that
//! compares bytes with bytes. [`Fields`] is an ordered list of owned fields: what an origin
//! answered, what is about to be answered, trailers. The fields of a request are not copied
//! into it; they stay in [`crate::http1::request::RequestHead`].
//!
//! 1. `Known::of` is a pure function of the name without regard to case: `of(n) == k` if and
//!    only if `n` equals `k.canonical()` in any case. `Known::Other` stands for all the rest.
//! 2. `Fields` keeps the order in which fields were added; fields of one name keep theirs.
//! 3. A field's `known` always agrees with its `name`; the constructors see to it.
//!
//! It does not join lists, and it does not judge values: that is the business of whoever reads
//! the field. It does not check what is put in; the writer in [`crate::http1::encode`] makes
//! every value harmless.
//!
//! Sources: RFC 9110 §5 and §18.4 (names).

use bytes::Bytes;

use crate::block::Block;

mod fields;

pub use fields::{Fields, Iter, SharedFields};

/// Declares [`Known`] and its tables from one list.
macro_rules! known {
    ($($variant:ident $canonical:literal $lower:literal,)*) => {
        /// A field name that some part of the proxy treats by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Known {
            /// Any name that is not in this list.
            Other = 0,
            $(
                #[doc = concat!("`", $canonical, "`")]
                $variant,
            )*
        }

        impl Known {
            /// Every known name, without `Other`.
            pub const ALL: &'static [Known] = &[$(Known::$variant,)*];

            /// The name as it is usually written (`Content-Type`, `ETag`); empty for `Other`.
            #[must_use]
            pub fn canonical(self) -> &'static str {
                match self {
                    Known::Other => "",
                    $(Known::$variant => $canonical,)*
                }
            }

            /// The name in small letters, as HTTP/2 writes it; empty for `Other`.
            #[must_use]
            pub fn lower(self) -> &'static str {
                match self {
                    Known::Other => "",
                    $(Known::$variant => $lower,)*
                }
            }
        }

        /// Names in small letters beside their variant, for building the table of names.
        const NAMES: &[(&[u8], Known)] = &[$(($lower.as_bytes(), Known::$variant),)*];
    };
}

known! {
    Host "Host" "host",
    Connection "Connection" "connection",
    ContentLength "Content-Length" "content-length",
    ContentType "Content-Type" "content-type",
    TransferEncoding "Transfer-Encoding" "transfer-encoding",
    Date "Date" "date",
    Server "Server" "server",
    ETag "ETag" "etag",
    LastModified "Last-Modified" "last-modified",
    IfModifiedSince "If-Modified-Since" "if-modified-since",
    IfUnmodifiedSince "If-Unmodified-Since" "if-unmodified-since",
    IfMatch "If-Match" "if-match",
    IfNoneMatch "If-None-Match" "if-none-match",
    IfRange "If-Range" "if-range",
    Range "Range" "range",
    ContentRange "Content-Range" "content-range",
    AcceptRanges "Accept-Ranges" "accept-ranges",
    Accept "Accept" "accept",
    AcceptEncoding "Accept-Encoding" "accept-encoding",
    AcceptLanguage "Accept-Language" "accept-language",
    AcceptCharset "Accept-Charset" "accept-charset",
    ContentEncoding "Content-Encoding" "content-encoding",
    ContentDisposition "Content-Disposition" "content-disposition",
    ContentLanguage "Content-Language" "content-language",
    ContentLocation "Content-Location" "content-location",
    ContentDigest "Content-Digest" "content-digest",
    ContentMd5 "Content-MD5" "content-md5",
    ReprDigest "Repr-Digest" "repr-digest",
    Digest "Digest" "digest",
    CacheControl "Cache-Control" "cache-control",
    Expires "Expires" "expires",
    Pragma "Pragma" "pragma",
    Age "Age" "age",
    Vary "Vary" "vary",
    Location "Location" "location",
    Refresh "Refresh" "refresh",
    SetCookie "Set-Cookie" "set-cookie",
    Cookie "Cookie" "cookie",
    UserAgent "User-Agent" "user-agent",
    Referer "Referer" "referer",
    Authorization "Authorization" "authorization",
    WwwAuthenticate "WWW-Authenticate" "www-authenticate",
    ProxyAuthenticate "Proxy-Authenticate" "proxy-authenticate",
    ProxyAuthorization "Proxy-Authorization" "proxy-authorization",
    ProxyConnection "Proxy-Connection" "proxy-connection",
    KeepAlive "Keep-Alive" "keep-alive",
    Te "TE" "te",
    Trailer "Trailer" "trailer",
    Upgrade "Upgrade" "upgrade",
    Http2Settings "HTTP2-Settings" "http2-settings",
    Expect "Expect" "expect",
    Via "Via" "via",
    Forwarded "Forwarded" "forwarded",
    Link "Link" "link",
    Origin "Origin" "origin",
    Allow "Allow" "allow",
    RetryAfter "Retry-After" "retry-after",
    Warning "Warning" "warning",
    CacheStatus "Cache-Status" "cache-status",
    CdnCacheControl "CDN-Cache-Control" "cdn-cache-control",
    SurrogateControl "Surrogate-Control" "surrogate-control",
    SurrogateKey "Surrogate-Key" "surrogate-key",
    CacheTag "Cache-Tag" "cache-tag",
    XForwardedFor "X-Forwarded-For" "x-forwarded-for",
    XForwardedProto "X-Forwarded-Proto" "x-forwarded-proto",
    XForwardedHost "X-Forwarded-Host" "x-forwarded-host",
    XRealIp "X-Real-IP" "x-real-ip",
    XAccelExpires "X-Accel-Expires" "x-accel-expires",
    XAccelRedirect "X-Accel-Redirect" "x-accel-redirect",
    XAccelBuffering "X-Accel-Buffering" "x-accel-buffering",
    XAccelLimitRate "X-Accel-Limit-Rate" "x-accel-limit-rate",
    XAccelCharset "X-Accel-Charset" "x-accel-charset",
    XPad "X-Pad" "x-pad",
    Status "Status" "status",
    Traceparent "Traceparent" "traceparent",
    Depth "Depth" "depth",
    Destination "Destination" "destination",
    Overwrite "Overwrite" "overwrite",
    StrictTransportSecurity "Strict-Transport-Security" "strict-transport-security",
    XCacheStatus "X-Cache-Status" "x-cache-status",
}

/// Places in the table of names: three times the number of names, so that most names are found
/// at their first place. A power of two, so that a mask keeps an index inside.
const TABLE_LEN: usize = 256;

/// Places that a lookup may try. The table is checked against it when it is built.
const PROBES: usize = 8;

/// All known names, placed by [`place`], with linear probing.
static TABLE: [Known; TABLE_LEN] = build_table();

// A set of known names fits in the 128 bits of `KnownSet`, and the table stays sparse.
const _: () = assert!(NAMES.len() < 127);

impl Known {
    /// Finds the known name that equals `name` in any case.
    #[must_use]
    pub fn of(name: &[u8]) -> Known {
        Known::spelled(name).0
    }

    /// Finds a name as [`Known::of`] does, and says if the name is known to be spelled as usual.
    #[must_use]
    pub(crate) fn spelled(name: &[u8]) -> (Known, bool) {
        let Some(at) = place(name) else {
            return (Known::Other, false);
        };
        // Masked, so inside the table.
        let known = TABLE[at & (TABLE_LEN - 1)];
        if known == Known::Other {
            return (known, false);
        }
        // Most are written in the usual way.
        if known.canonical().as_bytes() == name {
            return (known, true);
        }
        if known.is(name) {
            (known, false)
        } else {
            (Known::of_later_place(name, at), false)
        }
    }

    /// Finds a name that is not at its first place, if it is anywhere.
    #[cold]
    fn of_later_place(name: &[u8], first: usize) -> Known {
        for at in first + 1..first + PROBES {
            // Masked, so inside the table.
            let known = TABLE[at & (TABLE_LEN - 1)];
            if known == Known::Other || known.is(name) {
                return known;
            }
        }
        Known::Other
    }

    /// True if `name` is this one, in any case.
    fn is(self, name: &[u8]) -> bool {
        self.canonical().as_bytes().eq_ignore_ascii_case(name)
    }
}

/// The factor that spreads names over the table: with it, two of the names have the same first
/// place. (The best of some hundred thousand random numbers.)
const SPREAD: u32 = 0x433f_43bd;

/// First place of a name in the table, from its length and three of its letters in small case.
const fn place(name: &[u8]) -> Option<usize> {
    let (Some(first), Some(last)) = (name.first(), name.last()) else {
        return None;
    };
    // `len / 2 < len` since the name is not empty.
    let middle = name[name.len() / 2];
    let letters = u32::from_le_bytes([name.len() as u8, *first, *last, middle]) | 0x2020_2000;
    // The highest bits of a product depend on all bits of its factors.
    Some(letters.wrapping_mul(SPREAD) as usize >> (u32::BITS - TABLE_LEN.ilog2()))
}

/// Places every name; fails to compile if some name would need more than `PROBES` tries.
const fn build_table() -> [Known; TABLE_LEN] {
    let mut table = [Known::Other; TABLE_LEN];
    let mut index = 0;
    while index < NAMES.len() {
        let (name, known) = NAMES[index];
        let Some(mut at) = place(name) else {
            panic!("a known name is empty");
        };
        let mut tries = 0;
        while !matches!(table[at], Known::Other) {
            at = (at + 1) & (TABLE_LEN - 1);
            tries += 1;
            assert!(tries < PROBES, "a known name is too far from its place");
        }
        table[at] = known;
        index += 1;
    }
    table
}

/// A set of known names, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownSet([u64; 2]);

impl KnownSet {
    /// The set of the given names.
    #[must_use]
    pub const fn of(names: &[Known]) -> Self {
        let mut bits = [0; 2];
        let mut index = 0;
        while index < names.len() {
            let (half, bit) = Self::place(names[index]);
            bits[half] |= bit;
            index += 1;
        }
        Self(bits)
    }

    /// The half of the set that has the name, and the name's bit there. No more than 127 names are
    /// known.
    const fn place(known: Known) -> (usize, u64) {
        let number = known as usize;
        ((number >> 6) & 1, 1 << (number & 63))
    }

    /// Adds a name.
    pub fn insert(&mut self, known: Known) {
        let (half, bit) = Self::place(known);
        self.0[half] |= bit;
    }

    /// Takes a name out.
    pub(crate) fn remove(&mut self, known: Known) {
        let (half, bit) = Self::place(known);
        self.0[half] &= !bit;
    }

    /// The names that are in both.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    /// The names that are in one of the two sets at least.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// The names of this one that are not in the other.
    #[must_use]
    pub(crate) const fn less(self, other: Self) -> Self {
        Self([self.0[0] & !other.0[0], self.0[1] & !other.0[1]])
    }

    /// True if no name is in the set.
    #[must_use]
    pub(crate) const fn is_empty(self) -> bool {
        self.0[0] | self.0[1] == 0
    }

    /// True if the name is in the set.
    #[must_use]
    pub const fn contains(self, known: Known) -> bool {
        let (half, bit) = Self::place(known);
        self.0[half] & bit != 0
    }
}

/// One field: its name as written, and its value without the space around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The known name; `Other` for any that is not known.
    pub known: Known,
    /// The name as it was written.
    pub name: Bytes,
    /// The value; bytes, since HTTP does not promise text.
    pub value: Bytes,
}

impl Field {
    /// A field by name and value.
    #[must_use]
    pub fn new(name: Bytes, value: Bytes) -> Self {
        Self {
            known: Known::of(&name),
            name,
            value,
        }
    }

    /// A field with a known name, written in its usual form. `known` must not be `Other`.
    #[must_use]
    pub fn known(known: Known, value: Bytes) -> Self {
        Self {
            known,
            name: Bytes::from_static(known.canonical().as_bytes()),
            value,
        }
    }
}

/// Bytes of the block that short values are cut from (arbitrary: some dozens of them).
const VALUES_BLOCK: usize = 1024;

thread_local! {
    static VALUES: Block = Block::new(VALUES_BLOCK);
}

/// A short value as bytes that live no longer than a request: it is cut from a block, which all of
/// its values keep.
#[must_use]
pub fn short_value(text: &[u8]) -> Bytes {
    VALUES.with(|block| block.cut(text))
}

/// True if `name`, in small letters and with `_` for `-`, equals `wanted`.
#[must_use]
pub(crate) fn is_underscored(name: &[u8], wanted: &[u8]) -> bool {
    name.len() == wanted.len()
        && name.iter().zip(wanted).all(|(byte, wanted)| {
            let byte = if *byte == b'-' { b'_' } else { *byte };
            byte.eq_ignore_ascii_case(wanted)
        })
}

/// True if a comma-separated list holds `token`, in any case.
#[must_use]
pub(crate) fn list_has(value: &[u8], token: &[u8]) -> bool {
    value
        .split(|byte| *byte == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&'static str, &'static str)]) -> Fields {
        list.iter()
            .map(|(name, value)| Field::new(Bytes::from_static(name.as_bytes()), (*value).into()))
            .collect()
    }

    #[test]
    fn every_known_name_is_found_in_any_case() {
        for known in Known::ALL {
            assert_eq!(Known::of(known.canonical().as_bytes()), *known);
            assert_eq!(Known::of(known.lower().as_bytes()), *known);
            let upper = known.canonical().to_ascii_uppercase();
            assert_eq!(Known::of(upper.as_bytes()), *known);
            assert_eq!(known.canonical().to_ascii_lowercase(), known.lower());
        }
    }

    #[test]
    fn known_names_are_plain_and_short() {
        // So a parser may take one that it finds within so many bytes as it is.
        for known in Known::ALL {
            let name = known.canonical();
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            assert!(name.len() < 32 && name.bytes().all(is_plain), "{name}");
        }
    }

    #[test]
    fn short_values_stay_as_they_were_made() {
        let texts: Vec<String> = (0..500).map(|number| "x".repeat(number % 90)).collect();
        let values: Vec<Bytes> = texts
            .iter()
            .map(|text| short_value(text.as_bytes()))
            .collect();
        assert!(texts.iter().zip(&values).all(|(text, value)| text == value));
    }

    #[test]
    fn near_misses_are_other() {
        for name in [
            "",
            "H",
            "Hos",
            "Hostt",
            "Content_Length",
            "Content-Lengtj",
            "\u{e4}",
            "@ge",
        ] {
            assert_eq!(Known::of(name.as_bytes()), Known::Other, "{name}");
        }
    }

    #[test]
    fn a_byte_that_only_differs_in_the_case_bit_is_another_name() {
        // `-` and CR differ by 0x20, as do `@` and backquote: neither pair is one letter.
        assert_eq!(Known::of(b"Keep\rAlive"), Known::Other);
    }

    #[test]
    fn set_keeps_the_first_place_and_drops_the_rest() {
        let mut list = fields(&[("Via", "a"), ("ETag", "x"), ("via", "b")]);
        list.set(Known::Via, "c");
        assert_eq!(list, fields(&[("Via", "c"), ("ETag", "x")]));
        list.set(Known::Age, "1");
        assert_eq!(list, fields(&[("Via", "c"), ("ETag", "x"), ("Age", "1")]));
    }

    #[test]
    fn removal_is_by_name_in_any_case_and_says_how_many() {
        let mut list = fields(&[("X-A", "1"), ("x-a", "2"), ("Age", "3")]);
        assert_eq!(list.remove_name(b"X-a"), 2);
        assert_eq!(list.remove(Known::Age), 1);
        assert_eq!(list.remove(Known::Age), 0);
        assert!(list.is_empty());
    }

    #[test]
    fn variables_find_names_with_underscores() {
        let list = fields(&[("X-Real-IP", "1"), ("X_Real_IP", "2")]);
        let found: Vec<_> = list.find_all_underscored(b"x_real_ip").collect();
        assert_eq!(found, ["1", "2"]);
        assert!(list.find_underscored(b"x_real_i").is_none());
        assert_eq!(list.find(b"x-real-ip"), Some(&Bytes::from("1")));
    }

    #[test]
    fn a_list_has_its_tokens_and_no_parts_of_them() {
        for (value, token, expected) in [
            ("close", "close", true),
            ("keep-alive, Upgrade", "upgrade", true),
            ("a ,\tclose ,b", "close", true),
            ("not-close", "close", false),
            ("", "close", false),
        ] {
            assert_eq!(
                list_has(value.as_bytes(), token.as_bytes()),
                expected,
                "{value}"
            );
        }
    }
}
