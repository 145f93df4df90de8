//! `secure_link_hmac`, `secure_link_hmac_message`, `secure_link_hmac_secret`,
//! `secure_link_hmac_algorithm`: links that somebody else has signed, with a key.
//!
//! ```text
//! secure_link_hmac  $arg_st,$arg_ts,$arg_e;      token, and perhaps begin and lifetime
//! secure_link_hmac_secret   word;
//! secure_link_hmac_message  $uri$arg_ts$arg_e;   what the token must be made of
//! ──► $secure_link_hmac   ""  the token is another   "0"  the time is over   "1"  all is right
//! ```
//!
//! The variable only tells; the configuration says what becomes of the request. The message should
//! have the begin and the lifetime in it, or anybody can give a link another one.
//!
//! Invariants:
//! 1. A token is compared in the same time whether or where it differs.
//!
//! Source: ngx_http_hmac_secure_link_module.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use millpond_conf::{Template, Words};
use millpond_system::clock;
use millpond_wire::base64;
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};

use super::secure_link;
use crate::handler::settings::HandlerSettings;
use crate::request::Request;
use crate::var::ComposedVariable;

/// Settings of links that are signed with a key.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct SecureLinkHmacPolicy {
    /// The value in which a request has the token of its link (Base64 as it is for URLs), and
    /// after commas, where the link is good for a time only, the time of its begin (seconds since
    /// 1970, or `2026-01-31T12:00:00+01:00`) and the seconds after it: `$arg_st,$arg_ts,$arg_e`.
    ///
    /// # Differs from nginx
    ///
    /// The directives are those of ngx_http_hmac_secure_link_module. It takes the year of a date
    /// for a count of seconds, and tells the token as `$secure_link_hmac_expires`.
    #[directive(name = "secure_link_hmac")]
    pub link: Option<Template>,
    /// The text that the token must be made of; begin and lifetime belong into it.
    #[directive(name = "secure_link_hmac_message")]
    pub message: Option<Template>,
    /// The key.
    #[directive(name = "secure_link_hmac_secret")]
    pub secret: Option<Template>,
    /// The digest function.
    #[directive(name = "secure_link_hmac_algorithm", default = "sha256")]
    pub algorithm: Algorithm,
}

/// A digest function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Algorithm {
    /// MD5.
    #[word("md5")]
    Md5,
    /// SHA-1.
    #[word("sha1")]
    Sha1,
    /// SHA-2 of 224 bits.
    #[word("sha224")]
    Sha224,
    /// SHA-2 of 256 bits.
    #[word("sha256")]
    Sha256,
    /// SHA-2 of 384 bits.
    #[word("sha384")]
    Sha384,
    /// SHA-2 of 512 bits.
    #[word("sha512")]
    Sha512,
}

impl Algorithm {
    /// The code that a key gives to a message.
    fn tag(self, key: &[u8], message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Algorithm::Md5 => tag::<Hmac<Md5>>(key, message),
            Algorithm::Sha1 => tag::<Hmac<Sha1>>(key, message),
            Algorithm::Sha224 => tag::<Hmac<Sha224>>(key, message),
            Algorithm::Sha256 => tag::<Hmac<Sha256>>(key, message),
            Algorithm::Sha384 => tag::<Hmac<Sha384>>(key, message),
            Algorithm::Sha512 => tag::<Hmac<Sha512>>(key, message),
        }
    }
}

fn tag<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    // A key of any length is one.
    let mut mac = <M as KeyInit>::new_from_slice(key).ok()?;
    mac.update(message);
    Some(mac.finalize().into_bytes().to_vec())
}

/// The variables.
pub const VARIABLES: &[ComposedVariable] = &[
    ComposedVariable {
        name: "secure_link_hmac",
        doc: "What is to be thought of a link that is signed with a key: \"1\", \"0\" if its time \
              is over, else empty.",
        write: |req, out| match verdict(req) {
            Some(is_over) => {
                out.push(if is_over { b'0' } else { b'1' });
                true
            }
            None => false,
        },
    },
    ComposedVariable {
        name: "secure_link_hmac_expires",
        doc: "The lifetime of a link that is signed with a key, as the request has it.",
        write: |req, out| {
            let Some(link) = brought(req) else {
                return false;
            };
            let lifetime = link.splitn(3, |byte| *byte == b',').nth(2);
            out.extend_from_slice(lifetime.unwrap_or_default());
            lifetime.is_some()
        },
    },
    ComposedVariable {
        name: "secure_link_hmac_token",
        doc: "The token of the message of `secure_link_hmac_message`, in Base64 as it is for URLs.",
        write: |req, out| match expected(req) {
            Some(tag) => {
                let text = base64::encode(&tag);
                let of_urls = text.bytes().filter(|byte| *byte != b'=');
                out.extend(of_urls.map(|byte| match byte {
                    b'+' => b'-',
                    b'/' => b'_',
                    other => other,
                }));
                true
            }
            None => false,
        },
    },
];

/// The value that a request has its token in.
fn brought(req: &mut Request) -> Option<bytes::Bytes> {
    let location = Arc::clone(&req.location);
    let link = location
        .settings
        .of::<HandlerSettings>()
        .secure_link_hmac
        .link
        .as_ref()?;
    Some(req.eval(link))
}

/// The tag that the message must have.
fn expected(req: &mut Request) -> Option<Vec<u8>> {
    let location = Arc::clone(&req.location);
    let policy = &location.settings.of::<HandlerSettings>().secure_link_hmac;
    let (message, secret) = (policy.message.as_ref()?, policy.secret.as_ref()?);
    let (message, secret) = (req.eval(message), req.eval(secret));
    policy.algorithm.tag(&secret, &message)
}

/// True if the time of a link is over; none if it is not signed as it must be.
fn verdict(req: &mut Request) -> Option<bool> {
    let link = brought(req)?;
    let mut parts = link.splitn(3, |byte| *byte == b',');
    let token = parts.next()?;
    let begin = parts.next().map(seconds);
    let lifetime = parts.next().map(number);
    // A time that cannot be read is no time at all, which the token cannot mend.
    let begin = begin.map_or(Some(None), |begin| begin.map(Some))?;
    let lifetime = lifetime.map_or(Some(0), |lifetime| lifetime)?;
    let expected = expected(req)?;
    let given = secure_link::decode_of_url(token, expected.len())?;
    // INVARIANT 1.
    if !secure_link::is_same(&given, &expected) {
        return None;
    }
    let now = clock::now_ms() / 1000;
    let end = begin.map_or(i64::MAX, |begin| begin.saturating_add(lifetime));
    Some(lifetime > 0 && end < now)
}

fn number(text: &[u8]) -> Option<i64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    str::from_utf8(text)
        .ok()
        .filter(|_| is_number)?
        .parse()
        .ok()
}

/// The time of a begin, in seconds since 1970: such a number, or a date with its distance from
/// Greenwich.
fn seconds(text: &[u8]) -> Option<i64> {
    number(text).or_else(|| date(text)).filter(|it| *it > 0)
}

/// `2026-01-31T12:00:00+01:00`, or with `Z` for `+00:00`.
fn date(text: &[u8]) -> Option<i64> {
    let part = |at: usize, len: usize| number(text.get(at..at + len)?);
    let is_at = |at: usize, byte: u8| text.get(at) == Some(&byte);
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !marks.iter().all(|(at, byte)| is_at(*at, *byte)) {
        return None;
    }
    let (year, month, day) = (part(0, 4)?, part(5, 2)?, part(8, 2)?);
    let (hour, minute, second) = (part(11, 2)?, part(14, 2)?, part(17, 2)?);
    let is_valid = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let zone = match (text.get(19)?, text.len()) {
        (b'Z', 20) => 0,
        (sign @ (b'+' | b'-'), 25) if is_at(22, b':') => {
            let distance = part(20, 2)? * 3600 + part(23, 2)? * 60;
            if *sign == b'+' { distance } else { -distance }
        }
        _ => return None,
    };
    let time = days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    is_valid.then_some(time - zone)
}

/// Days from 1970 to a date of the Gregorian calendar: a year begins in March, so that a leap day
/// is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let of_years = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    of_years + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_are_numbers_or_dates() {
        for (text, expected) in [
            ("1700000000", Some(1_700_000_000)),
            ("2023-11-14T22:13:20Z", Some(1_700_000_000)),
            ("2023-11-14T23:13:20+01:00", Some(1_700_000_000)),
            ("2023-11-14T16:43:20-05:30", Some(1_700_000_000)),
            ("2024-02-29T00:00:00Z", Some(1_709_164_800)),
            ("2024-03-01T00:00:00Z", Some(1_709_251_200)),
            ("2024-02-29T00:00:00", None),
            ("2024-13-01T00:00:00Z", None),
            ("2024-02-29 00:00:00Z", None),
            ("2024-02-29T00:00:00+0100", None),
            ("0", None),
            ("-1", None),
            ("1x", None),
            ("", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), expected, "{text}");
        }
    }

    /// RFC 4231 §4.3, RFC 2202 §2 and §3.
    #[test]
    fn codes_are_the_published_ones() {
        let message = b"what do ya want for nothing?";
        for (algorithm, begin, len) in [
            (Algorithm::Md5, [0x75, 0x0c], 16),
            (Algorithm::Sha1, [0xef, 0xfc], 20),
            (Algorithm::Sha224, [0xa3, 0x0e], 28),
            (Algorithm::Sha256, [0x5b, 0xdc], 32),
            (Algorithm::Sha384, [0xaf, 0x45], 48),
            (Algorithm::Sha512, [0x16, 0x4b], 64),
        ] {
            let tag = algorithm.tag(b"Jefe", message).unwrap();
            assert_eq!((&tag[..2], tag.len()), (&begin[..], len), "{algorithm:?}");
        }
    }
}
