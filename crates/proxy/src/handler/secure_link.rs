//! `secure_link`, `secure_link_md5`, `secure_link_secret`: links that somebody else has signed.
//!
//! ```text
//! secure_link  $arg_md5,$arg_expires;           what the request brings: a digest, perhaps a time
//! secure_link_md5 "$secure_link_expires$uri secret";       what the digest must be of
//! ──► $secure_link   ""  the digest is another   "0"  the time is over   "1"  all is right
//!
//! secure_link_secret word;    /p/DIGEST/link   ──► $secure_link  "" or "link"
//! ```
//!
//! The variable only tells; the configuration says what becomes of the request. A digest is
//! compared in the same time whether or where it differs.
//!
//! Source: nginx ngx_http_secure_link_module.

use std::sync::Arc;

use md5::{Digest, Md5};
use millpond_conf::{
    Applied, Contexts, Directive, Family, ParseContext, Span, Statement, Template,
};
use millpond_system::clock;
use millpond_wire::base64;

use crate::handler::settings::HandlerSettings;
use crate::request::Request;
use crate::var::ComposedVariable;

/// Bytes of a digest.
const DIGEST: usize = 16;

/// The directives as they are written.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location)]
pub struct SecureLinkDirectives {
    /// The value in which a request has the digest of its link, and after a comma the time until
    /// which the link is good (seconds since 1970): `$arg_md5,$arg_expires`. The digest is Base64
    /// as it is for URLs.
    ///
    /// # Differs from nginx
    ///
    /// `$secure_link` is computed each time that it is asked for, and `$secure_link_expires` also
    /// where the other was not.
    #[directive(name = "secure_link")]
    pub link: Option<Template>,
    /// The text that the digest (MD5) must be made of; it should end with a secret.
    #[directive(name = "secure_link_md5")]
    pub md5: Option<Template>,
    /// The secret of links that have their digest in the path: `/p/DIGEST/link`, where the digest
    /// is MD5 of the link and the secret, in hexadecimal digits.
    #[directive(name = "secure_link_secret")]
    pub secret: Option<String>,
}

/// The way in which links are signed.
#[derive(Clone, Debug, Default)]
pub enum SecureLinkPolicy {
    /// Links are not signed.
    #[default]
    None,
    /// Links are signed by a digest somewhere in the request.
    Digest {
        /// The value with the digest and the time.
        link: Template,
        /// The text that the digest must be made of.
        md5: Template,
    },
    /// Links are signed by a digest in the path, with this secret.
    Path(String),
}

impl Family for SecureLinkPolicy {
    type Raw = SecureLinkDirectivesRaw;

    fn directives(protocol: &'static str) -> Vec<Directive> {
        SecureLinkDirectives::directives(protocol)
    }

    fn apply(
        raw: &mut SecureLinkDirectivesRaw,
        protocol: &str,
        st: &Statement,
        context: Contexts,
        cx: &mut ParseContext,
    ) -> Applied {
        let applied = SecureLinkDirectives::apply(raw, protocol, st, context, cx);
        if raw.secret.is_some() && (raw.link.is_some() || raw.md5.is_some()) {
            let message = "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \
                           \"secure_link_md5\"";
            cx.diagnostics.push_error(st.span, message);
        }
        applied
    }

    fn resolve(outer_to_inner: &[&SecureLinkDirectivesRaw], _: &mut ParseContext) -> Self {
        let (mut link, mut md5, mut secret) = (None, None, None);
        for raw in outer_to_inner {
            // nginx: either way of signing ends the other that was outside.
            if let Some(set) = &raw.secret {
                (link, md5, secret) = (None, None, set.value.clone());
                continue;
            }
            if let Some(set) = &raw.link {
                (link, secret) = (set.value.clone(), None);
            }
            if let Some(set) = &raw.md5 {
                (md5, secret) = (set.value.clone(), None);
            }
        }
        match (secret, link, md5) {
            (Some(secret), ..) => SecureLinkPolicy::Path(secret),
            (None, Some(link), Some(md5)) => SecureLinkPolicy::Digest { link, md5 },
            _ => SecureLinkPolicy::None,
        }
    }

    fn span_of(raw: &SecureLinkDirectivesRaw, protocol: &str, name: &str) -> Option<Span> {
        SecureLinkDirectives::span_of(raw, protocol, name)
    }
}

/// The variables.
pub const VARIABLES: &[ComposedVariable] = &[
    ComposedVariable {
        name: "secure_link",
        doc: "What is to be thought of a signed link: \"1\", \"0\" if its time is over, else empty; \
              with `secure_link_secret` the link itself, or empty.",
        write: |req, out| {
            let location = Arc::clone(&req.location);
            match &location.settings.of::<HandlerSettings>().secure_link {
                SecureLinkPolicy::None => false,
                SecureLinkPolicy::Digest { link, md5 } => write_digest(req, (link, md5), out),
                SecureLinkPolicy::Path(secret) => write_path(req, secret, out),
            }
        },
    },
    ComposedVariable {
        name: "secure_link_expires",
        doc: "The time until which a signed link is good, as `secure_link` found it.",
        write: |req, out| {
            let location = Arc::clone(&req.location);
            let SecureLinkPolicy::Digest { link, .. } =
                &location.settings.of::<HandlerSettings>().secure_link
            else {
                return false;
            };
            let brought = req.eval(link);
            match Brought::read(&brought) {
                Some(Brought {
                    expires: Some((text, _)),
                    ..
                }) => {
                    out.extend_from_slice(text);
                    true
                }
                _ => false,
            }
        },
    },
];

/// The digest and time that a request brings.
#[derive(Debug, PartialEq, Eq)]
struct Brought<'a> {
    digest: &'a [u8],
    /// The time as the request writes it, and in seconds.
    expires: Option<(&'a [u8], i64)>,
}

impl<'a> Brought<'a> {
    /// `DIGEST` or `DIGEST,TIME`; `None` if the time is none.
    fn read(text: &'a [u8]) -> Option<Brought<'a>> {
        let Some(comma) = memchr::memchr(b',', text) else {
            return Some(Brought {
                digest: text,
                expires: None,
            });
        };
        let (digest, rest) = text.split_at_checked(comma)?;
        let expires = rest.get(1..)?;
        let is_number = !expires.is_empty() && expires.iter().all(u8::is_ascii_digit);
        let number = str::from_utf8(expires).ok().filter(|_| is_number)?;
        let seconds = number.parse::<i64>().ok().filter(|it| *it > 0)?;
        Some(Brought {
            digest,
            expires: Some((expires, seconds)),
        })
    }
}

fn write_digest(req: &mut Request, (link, md5): (&Template, &Template), out: &mut Vec<u8>) -> bool {
    let brought = req.eval(link);
    let Some(brought) = Brought::read(&brought) else {
        return false;
    };
    let Some(digest) = decode(brought.digest) else {
        return false;
    };
    let expected = Md5::digest(req.eval(md5));
    if !is_same(&digest, &expected) {
        return false;
    }
    let now = clock::now_ms() / 1000;
    let is_over = brought.expires.is_some_and(|(_, until)| until < now);
    out.push(if is_over { b'0' } else { b'1' });
    true
}

/// A digest in Base64 as it is for URLs, padded or not.
fn decode(text: &[u8]) -> Option<[u8; DIGEST]> {
    decode_of_url(text, DIGEST)?.try_into().ok()
}

/// Bytes, as many as `len`, in Base64 as it is for URLs, padded or not.
pub(super) fn decode_of_url(text: &[u8], len: usize) -> Option<Vec<u8>> {
    if text.len() > len.div_ceil(3) * 4 {
        return None;
    }
    let ordinary = text.iter().map(|byte| match byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'+' | b'/' => None,
        other => Some(*other),
    });
    let ordinary: Vec<u8> = ordinary.collect::<Option<_>>()?;
    base64::decode(&ordinary).filter(|bytes| bytes.len() == len)
}

fn write_path(req: &Request, secret: &str, out: &mut Vec<u8>) -> bool {
    let Some(link) = signed(req.unparsed_uri(), secret) else {
        return false;
    };
    out.extend_from_slice(link);
    true
}

/// The link of `/anything/DIGEST/link`, if the digest is that of it and the secret.
fn signed<'a>(uri: &'a [u8], secret: &str) -> Option<&'a [u8]> {
    let mut parts = uri.get(1..)?.splitn(3, |byte| *byte == b'/');
    let (_, digest, link) = (parts.next()?, parts.next()?, parts.next()?);
    if digest.len() != 2 * DIGEST || link.is_empty() {
        return None;
    }
    let digest = digest.chunks(2).map(|pair| {
        let digits = str::from_utf8(pair).ok()?;
        let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        are_digits.then(|| u8::from_str_radix(digits, 16).ok())?
    });
    let digest: Vec<u8> = digest.collect::<Option<_>>()?;
    let expected = Md5::new()
        .chain_update(link)
        .chain_update(secret)
        .finalize();
    is_same(&digest, &expected).then_some(link)
}

/// True if the two are the same; the time taken does not tell where they differ.
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_brings_has_a_time_or_none() {
        let brought = |digest: &'static str, expires: Option<(&'static str, i64)>| {
            Some(Brought {
                digest: digest.as_bytes(),
                expires: expires.map(|(text, number)| (text.as_bytes(), number)),
            })
        };
        for (text, expected) in [
            ("abc", brought("abc", None)),
            ("", brought("", None)),
            ("abc,12", brought("abc", Some(("12", 12)))),
            ("abc,012", brought("abc", Some(("012", 12)))),
            ("abc,", None),
            ("abc,0", None),
            ("abc,-1", None),
            ("abc,+1", None),
            ("abc,1,2", None),
            ("abc,99999999999999999999", None),
        ] {
            assert_eq!(Brought::read(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn digests_are_read_as_urls_have_them() {
        let digest = Some([0xff; DIGEST]);
        for (text, expected) in [
            ("_____________________w==", digest),
            ("_____________________w", digest),
            ("/////////////////////w==", None),
            ("_____________________wAA", None),
            ("_____________________w==xx", None),
            ("____", None),
            ("", None),
        ] {
            assert_eq!(decode(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn paths_are_signed_by_their_second_part() {
        let digest = "d8e8fca2dc0f896fd7cb4cb0031ba249";
        let expected = Md5::new()
            .chain_update("a/b.html")
            .chain_update("secret")
            .finalize();
        let right: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
        for (uri, expected) in [
            (format!("/p/{right}/a/b.html"), Some("a/b.html")),
            (
                format!("/p/{}/a/b.html", right.to_uppercase()),
                Some("a/b.html"),
            ),
            (format!("/p/{right}/a/c.html"), None),
            (format!("/p/{digest}/a/b.html"), None),
            (format!("/p/{right}/"), None),
            (format!("/p/{right}"), None),
            (format!("/p/+{}/a/b.html", &right[1..]), None),
            ("/p%2f".to_string(), None),
            ("/".to_string(), None),
            (String::new(), None),
        ] {
            let found = signed(uri.as_bytes(), "secret");
            assert_eq!(found, expected.map(str::as_bytes), "{uri}");
        }
    }
}
