//! Refusal of requests that change something, unless they come from somebody who may, and not from
//! a page that somebody who may has open in a browser.
//!
//! A browser lets any page send requests to any address, this machine's own and those of its
//! network among them, and says less of it over plain HTTP than over TLS. So a request that changes
//! something is run only if
//!
//! 1. Fetch Metadata, where the browser sends it, calls it one of the same origin or of the user's;
//! 2. Origin, or without that Referer, names the host that was asked. `null` names none;
//! 3. it has `Content-Type: application/json` or the field `Millpond-Api`: no page can send those
//!    to another origin without asking first, and nobody here says yes to that;
//! 4. the host is known: an IP address, `localhost`, a name of the server, or one of `hosts=`. A
//!    page that has its own name point to this machine (DNS rebinding) is of the same origin for
//!    the browser, but under its own name.
//!
//! Each of these fields may be there once: of two, one could be for us and one for somebody before
//! us. With `hosts=` the fourth holds for requests that only ask, too.

use std::net::IpAddr;

use millpond_proxy::request::Request;
use millpond_wire::header::Known;

/// The field that says that no form of a page sent it; any value will do.
const OWN_FIELD: &[u8] = b"millpond-api";

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// The page of another site asks.
    Page,
    /// The request could come from a page: it has nothing that a page cannot send.
    Unmarked,
    /// The host is none of ours.
    Host,
}

/// The fields that are looked at.
#[derive(Clone, Debug, Default)]
struct Fields<'r> {
    site: Vec<&'r [u8]>,
    origin: Vec<&'r [u8]>,
    referer: Vec<&'r [u8]>,
    host: Vec<&'r [u8]>,
    content_type: Vec<&'r [u8]>,
    own: Vec<&'r [u8]>,
}

/// Refuses a request that may not change anything, as far as its fields show.
pub(crate) fn check_writing(req: &Request) -> Result<(), Foreign> {
    let all = |name: &'static [u8]| req.head.find_all(name).collect();
    judge(&Fields {
        site: all(b"sec-fetch-site"),
        origin: all(b"origin"),
        referer: all(b"referer"),
        host: all(b"host"),
        content_type: all(b"content-type"),
        own: all(OWN_FIELD),
    })
}

/// Refuses a request that names a host that is not ours.
pub(crate) fn check_host(req: &Request, listed: Option<&[String]>) -> Result<(), Foreign> {
    // Browsers always name one.
    let Some(field) = req.field(Known::Host) else {
        return Ok(());
    };
    let is_listed = |name: &String| name.as_bytes().eq_ignore_ascii_case(&req.host);
    let is_server = || {
        let names = req.server.names.iter();
        !req.host.is_empty()
            && names
                .map(|name| name.matches(&req.host))
                .any(|it| it == Ok(true))
    };
    let is_known =
        is_of_machine(field) || listed.unwrap_or_default().iter().any(is_listed) || is_server();
    is_known.then_some(()).ok_or(Foreign::Host)
}

/// True for `localhost` and for what no name can point to.
fn is_of_machine(field: &[u8]) -> bool {
    let name = without_port(field);
    let bare = name
        .strip_prefix(b"[")
        .and_then(|name| name.strip_suffix(b"]"));
    let text = std::str::from_utf8(bare.unwrap_or(name)).unwrap_or_default();
    name.eq_ignore_ascii_case(b"localhost") || text.parse::<IpAddr>().is_ok()
}

fn without_port(host: &[u8]) -> &[u8] {
    let colon = host.iter().rposition(|byte| *byte == b':');
    let bracket = host.iter().rposition(|byte| *byte == b']');
    match colon {
        Some(colon) if bracket.is_none_or(|bracket| bracket < colon) => {
            host.get(..colon).unwrap_or(host)
        }
        _ => host,
    }
}

fn judge(fields: &Fields<'_>) -> Result<(), Foreign> {
    let all = [
        &fields.site,
        &fields.origin,
        &fields.referer,
        &fields.host,
        &fields.content_type,
    ];
    if all.iter().any(|values| values.len() > 1) {
        return Err(Foreign::Page);
    }
    let is_elsewhere = |site: &&[u8]| !matches!(*site, b"same-origin" | b"none");
    if fields.site.first().is_some_and(is_elsewhere) {
        return Err(Foreign::Page);
    }
    let page = fields.origin.first().or(fields.referer.first());
    let host = fields.host.first().copied().unwrap_or_default();
    if page.is_some_and(|page| !is_of_host(page, host)) {
        return Err(Foreign::Page);
    }
    let is_json = |kind: &&[u8]| {
        let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
    };
    let is_marked = !fields.own.is_empty() || fields.content_type.first().is_some_and(is_json);
    is_marked.then_some(()).ok_or(Foreign::Unmarked)
}

/// True if an origin or a page is of the host that a request names.
fn is_of_host(page: &[u8], host: &[u8]) -> bool {
    let schemes: [(&[u8], &[u8]); 2] = [(b"http://", b":80"), (b"https://", b":443")];
    schemes.into_iter().any(|(scheme, port)| {
        let begin = page.get(..scheme.len());
        let is_scheme = begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
        let rest = page.get(scheme.len()..).filter(|_| is_scheme);
        let Some(rest) = rest else { return false };
        let end = rest.iter().position(|byte| b"/?#".contains(byte));
        let authority = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        let bare = |name| -> &[u8] { <[u8]>::strip_suffix(name, port).unwrap_or(name) };
        !host.is_empty() && bare(authority).eq_ignore_ascii_case(bare(host))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of a program: it says what it sends, and nothing of a page.
    fn program() -> Fields<'static> {
        Fields {
            host: vec![b"proxy:8080"],
            content_type: vec![b"application/json; charset=utf-8"],
            ..Fields::default()
        }
    }

    #[test]
    fn page_of_another_site_changes_nothing() {
        for (origin, referer, expected) in [
            (&[][..], &[][..], Ok(())),
            (&["http://proxy:8080"], &[], Ok(())),
            (&["https://PROXY:8080"], &[], Ok(())),
            (&[], &["http://proxy:8080/page?x"], Ok(())),
            (&["http://proxy:8080"], &["http://evil.example/"], Ok(())),
            (&["http://evil.example"], &[], Err(Foreign::Page)),
            (&["http://proxy"], &[], Err(Foreign::Page)),
            (&["http://proxy:8081"], &[], Err(Foreign::Page)),
            (&["http://proxy:8080.evil.example"], &[], Err(Foreign::Page)),
            (
                &["http://evil.example/http://proxy:8080"],
                &[],
                Err(Foreign::Page),
            ),
            (&["http://proxy:8080@evil.example"], &[], Err(Foreign::Page)),
            (&["null"], &[], Err(Foreign::Page)),
            (&[""], &[], Err(Foreign::Page)),
            (&["file://"], &["http://proxy:8080/"], Err(Foreign::Page)),
            (&[], &["http://evil.example/"], Err(Foreign::Page)),
            (&[], &["proxy:8080"], Err(Foreign::Page)),
            (
                &["http://proxy:8080", "http://proxy:8080"],
                &[],
                Err(Foreign::Page),
            ),
            (
                &[],
                &["http://proxy:8080/", "http://proxy:8080/"],
                Err(Foreign::Page),
            ),
        ] {
            let bytes = |texts: &[&'static str]| texts.iter().map(|text| text.as_bytes()).collect();
            let fields = Fields {
                origin: bytes(origin),
                referer: bytes(referer),
                ..program()
            };
            assert_eq!(judge(&fields), expected, "{origin:?} {referer:?}");
        }
    }

    #[test]
    fn default_port_need_not_be_named() {
        for (page, host, expected) in [
            (&b"http://a"[..], &b"a:80"[..], true),
            (b"http://a:80", b"a", true),
            (b"https://a:443", b"a", true),
            (b"https://a:80", b"a", false),
            (b"http://[::1]:80", b"[::1]", true),
            (b"http://a", b"", false),
            (b"http://", b"", false),
        ] {
            assert_eq!(is_of_host(page, host), expected, "{}", page.escape_ascii());
        }
    }

    #[test]
    fn what_a_form_can_send_changes_nothing() {
        let kinds: [&[&[u8]]; 5] = [
            &[],
            &[b"text/plain"],
            &[b"application/x-www-form-urlencoded"],
            &[b"text/plain; application/json"],
            &[b"application/json", b"text/plain"],
        ];
        for kinds in kinds {
            let fields = Fields {
                content_type: kinds.to_vec(),
                ..program()
            };
            assert!(judge(&fields).is_err(), "{kinds:?}");
        }
        let marked = Fields {
            content_type: Vec::new(),
            own: vec![b"1"],
            ..program()
        };
        assert_eq!(judge(&marked), Ok(()));
        let cross = Fields {
            site: vec![b"same-site"],
            ..program()
        };
        assert_eq!(judge(&cross), Err(Foreign::Page));
    }

    #[test]
    fn addresses_and_localhost_are_no_names_of_others() {
        for (host, expected) in [
            ("127.0.0.1:8080", true),
            ("10.0.0.1", true),
            ("[::1]:8080", true),
            ("[::1]", true),
            ("localhost:1", true),
            ("LOCALHOST", true),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("evil.example:80", false),
            ("", false),
        ] {
            assert_eq!(is_of_machine(host.as_bytes()), expected, "{host}");
        }
    }
}
