//! Decisions to store a response, and to reuse a stored one for a request, by the book (RFC 9111
//! §3, §4, §5.2.1; RFC 5861).
//!
//! ```text
//! response ──► terms: refused, or its age and lifetime and what is forbidden
//! request + terms + age ──► reuse: serve, serve although stale, or validate first
//! ```
//!
//! It speaks for a shared cache. Qualified directives (`private="…"`, `no-cache="…"`) count as
//! unqualified ones, which §5.2.2 allows. What a configuration says stands behind what the origin
//! says: it is a lifetime for responses that state none.
//!
//! nginx's own rules are in [`upstream_validity`](crate::upstream_validity).

use crate::cache_control::CacheControl;
use crate::conditional::without_weakness;
use crate::freshness::{
    AgeInputs, CacheKind, Lifetime, LifetimeInputs, corrected_initial_age, freshness_lifetime,
    heuristic_lifetime, is_heuristically_cacheable, must_not_serve_stale,
};

/// A response as far as storing it is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Status code.
    pub status: u16,
    /// Cache-Control of the response.
    pub cache_control: CacheControl<'a>,
    /// First Expires field of the response.
    pub expires: Option<&'a [u8]>,
    /// Date of the response, seconds since 1970.
    pub date: Option<i64>,
    /// Age of the response in seconds; 0 without one.
    pub age: u64,
    /// Last-Modified of the response.
    pub last_modified: Option<i64>,
    /// True if the response has an entity tag or a date that it can be validated by.
    pub has_validator: bool,
    /// True if the response sets a cookie, and that counts.
    pub sets_cookie: bool,
}

/// The request and the moment that a response belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// True if the request had credentials (Authorization).
    pub is_authorized: bool,
    /// True if the request forbids to store (`no-store`).
    pub forbids_storing: bool,
    /// Time when the response came, seconds since 1970.
    pub received: i64,
    /// Number of seconds from the request to the response.
    pub delay: u64,
    /// Lifetime in seconds of responses of this status that state none.
    pub configured: Option<u64>,
}

/// The reason why a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The status is not final, or means something only with an entry that is not there.
    Status,
    /// `no-store` of the response or of the request.
    NoStore,
    /// `private`.
    Private,
    /// The request had credentials, and the response does not say that it is for all.
    Authorization,
    /// `must-understand`, and the status is none that is understood.
    NotUnderstood,
    /// Nothing says for how long, and no heuristic is allowed.
    NothingSaid,
    /// The response sets a cookie, and does not say itself for how long all may have it.
    Cookie,
    /// The response is stale at once, must not be served stale, and cannot be validated.
    Useless,
}

/// Terms on which a response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Age of the response when it came (§4.2.3), seconds.
    pub initial_age: u64,
    /// Time for which the response is fresh, counted from age 0, seconds.
    pub lifetime: u64,
    /// The response itself says how long; neither a heuristic nor the configuration.
    pub is_stated: bool,
    /// True if the response is never reused without validation (`no-cache`).
    pub must_validate: bool,
    /// True if the response is never served stale (§4.2.4).
    pub never_stale: bool,
    /// Number of seconds after its lifetime in which the response may be served while it is
    /// validated.
    pub while_revalidating: u64,
    /// Number of seconds after its lifetime in which the response may be served when the origin
    /// fails; `None`: the response does not say.
    pub on_error: Option<u64>,
}

/// Decides whether and on what terms a shared cache stores a response.
pub fn terms(answer: &Answer<'_>, asked: &Asked) -> Result<Terms, Refusal> {
    let control = &answer.cache_control;
    refuse(answer, asked)?;
    let date = answer.date.unwrap_or(asked.received);
    let stated = freshness_lifetime(
        &LifetimeInputs {
            cache_control: control,
            expires: answer.expires,
            date,
            received: asked.received,
        },
        CacheKind::Shared,
    );
    // RFC 6265bis §7.1, RFC 9111 §7.3: a cookie alone keeps nothing out of a cache, but neither a
    // heuristic nor a configuration is the origin's word that all may have it.
    if answer.sets_cookie && stated == Lifetime::Unstated {
        return Err(Refusal::Cookie);
    }
    let must_validate = control.no_cache || control.no_cache_fields.is_some();
    let lifetime = match (stated, unstated_lifetime(answer, asked, date)) {
        (Lifetime::Explicit(seconds), _) => seconds,
        (Lifetime::Unstated, Some(seconds)) => seconds,
        (Lifetime::Unstated, None) if must_validate => 0,
        (Lifetime::Unstated, None) => return Err(Refusal::NothingSaid),
    };
    let terms = Terms {
        initial_age: corrected_initial_age(&AgeInputs {
            age_value: answer.age,
            date,
            request_time: asked.received.saturating_sub_unsigned(asked.delay),
            response_time: asked.received,
        }),
        lifetime,
        is_stated: matches!(stated, Lifetime::Explicit(_)),
        must_validate,
        never_stale: must_validate || must_not_serve_stale(control, CacheKind::Shared),
        while_revalidating: control.stale_while_revalidate.unwrap_or(0),
        on_error: control.stale_if_error,
    };
    let is_stale = must_validate || terms.initial_age >= lifetime;
    if is_stale && terms.never_stale && !answer.has_validator {
        return Err(Refusal::Useless);
    }
    Ok(terms)
}

/// RFC 9111 §3: the conditions that forbid to store, whatever the lifetime.
fn refuse(answer: &Answer<'_>, asked: &Asked) -> Result<(), Refusal> {
    let control = &answer.cache_control;
    let is_understood = is_understood(answer.status);
    if !(200..=599).contains(&answer.status) || answer.status == 304 {
        return Err(Refusal::Status);
    }
    // A part is stored where the configuration says that parts are what is asked for.
    if answer.status == 206 && asked.configured.is_none() {
        return Err(Refusal::Status);
    }
    // §5.2.2.3: a cache that understands the status obeys must-understand and not no-store.
    if control.must_understand && !is_understood {
        return Err(Refusal::NotUnderstood);
    }
    if asked.forbids_storing || (control.no_store && !control.must_understand) {
        return Err(Refusal::NoStore);
    }
    if control.private || control.private_fields.is_some() {
        return Err(Refusal::Private);
    }
    // §3.5.
    let is_for_all = control.public || control.must_revalidate || control.s_maxage.is_some();
    if asked.is_authorized && !is_for_all {
        return Err(Refusal::Authorization);
    }
    Ok(())
}

/// The lifetime of a response that states none: the configuration's, else a heuristic (§4.2.2).
fn unstated_lifetime(answer: &Answer<'_>, asked: &Asked, date: i64) -> Option<u64> {
    if asked.configured.is_some() {
        return asked.configured;
    }
    let is_allowed = is_heuristically_cacheable(answer.status) || answer.cache_control.public;
    let modified = answer.last_modified.filter(|_| is_allowed)?;
    Some(heuristic_lifetime(date, modified))
}

/// Statuses whose meaning for a cache is known (RFC 9110 §15).
fn is_understood(status: u16) -> bool {
    matches!(
        status,
        200..=206 | 300..=305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505
    )
}

/// Wishes of a request to a cache (RFC 9111 §5.2.1, §5.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestRules {
    /// A stored response must be validated first.
    pub no_cache: bool,
    /// Nothing of the exchange is stored.
    pub no_store: bool,
    /// Only a stored response is wanted.
    pub only_if_cached: bool,
    /// The greatest age that is taken.
    pub max_age: Option<u64>,
    /// Number of seconds more for which the response must be fresh.
    pub min_fresh: u64,
    /// Number of seconds of staleness that are taken.
    pub max_stale: Option<u64>,
}

impl RequestRules {
    /// Reads the fields of a request; Pragma counts only where Cache-Control is absent (§5.4).
    pub fn parse<'a>(cache_control: &[&'a [u8]], pragma: &[&'a [u8]]) -> Self {
        if cache_control.is_empty() {
            let has_no_cache = |value: &&[u8]| crate::list::has_token(value, b"no-cache");
            return RequestRules {
                no_cache: pragma.iter().any(has_no_cache),
                ..RequestRules::default()
            };
        }
        let control = CacheControl::parse(cache_control.iter().copied());
        RequestRules {
            no_cache: control.no_cache,
            no_store: control.no_store,
            only_if_cached: control.only_if_cached,
            max_age: control.max_age,
            min_fresh: control.min_fresh.unwrap_or(0),
            max_stale: control.max_stale,
        }
    }
}

impl RequestRules {
    /// True if the client says that it does not want a response of this age and staleness
    /// (seconds), even where the origin lets stale ones be served: §5.2.1.1 (`max-age` alone takes
    /// no stale response), §5.2.1.2, §5.2.1.3.
    #[must_use]
    pub fn refuses_stale(&self, age: u64, staleness: u64) -> bool {
        let is_too_old = self.max_age.is_some_and(|most| age > most);
        let is_too_stale = match self.max_stale {
            Some(most) => staleness > most,
            None => self.max_age.is_some(),
        };
        self.no_cache || self.min_fresh > 0 || is_too_old || is_too_stale
    }
}

/// A stored response at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Current age of the response (§4.2.3).
    pub age: u64,
    /// Time for which the response is fresh, counted from age 0.
    pub lifetime: u64,
    /// True if the response is never reused without validation.
    pub must_validate: bool,
    /// True if the response is never served stale.
    pub never_stale: bool,
    /// True if the response does not change as long as it is fresh (`immutable`).
    pub is_immutable: bool,
}

/// Worth of a stored response for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// The response is served as it is.
    Serve,
    /// The response must be validated; without an answer of the origin it may be served where stale
    /// responses are allowed.
    Validate,
    /// The response must be validated, and is not served without.
    ValidateOnly,
}

/// RFC 9111 §4: whether a stored response may be reused for a request without asking the origin.
#[must_use]
pub fn reuse(stored: &Stored, rules: &RequestRules) -> Reuse {
    if stored.must_validate {
        return Reuse::ValidateOnly;
    }
    let is_too_old = rules.max_age.is_some_and(|max| stored.age > max);
    let remaining = stored.lifetime.saturating_sub(stored.age);
    if stored.lifetime > stored.age {
        // RFC 8246 §2: to reload what does not change, by `max-age`, tells nobody anything new.
        let is_too_old = is_too_old && !stored.is_immutable;
        // §5.2.1.4: what a client demands is validated, also when it is fresh.
        return if rules.no_cache || is_too_old || remaining < rules.min_fresh {
            Reuse::Validate
        } else {
            Reuse::Serve
        };
    }
    if stored.never_stale {
        return Reuse::ValidateOnly;
    }
    let staleness = stored.age - stored.lifetime;
    // §5.2.1.2: the client takes a stale response that is not forbidden.
    let is_taken = rules.max_stale.is_some_and(|max| staleness <= max);
    if is_taken && !rules.no_cache && !is_too_old && rules.min_fresh == 0 {
        Reuse::Serve
    } else {
        Reuse::Validate
    }
}

/// RFC 9111 §3.1: whether a field of an answer may be stored, as far as its name tells.
///
/// What is about the connection that it came on (RFC 9110 §7.6.1) or about who asked over it
/// (§11.7) is not. Neither is what Connection names, which its name does not tell.
#[must_use]
pub fn is_stored(name: &[u8]) -> bool {
    const OF_CONNECTION: [&[u8]; 9] = [
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    ];
    !is_one_of(name, &OF_CONNECTION)
}

/// RFC 9111 §3.2: whether a field of a 304 takes the place of the stored one.
///
/// Fields of the connection, those that describe the stored bytes, and those whose change would
/// contradict the body stay as they are. A 304 has no content, so that its Content-Digest
/// (RFC 9530) would be that of nothing, and its Repr-Digest may be that of an equivalent.
#[must_use]
pub fn is_freshened(name: &[u8]) -> bool {
    const KEPT: [&[u8]; 8] = [
        b"trailer",
        b"content-length",
        b"content-encoding",
        b"content-range",
        b"content-digest",
        b"content-md5",
        b"repr-digest",
        b"digest",
    ];
    is_stored(name) && !is_one_of(name, &KEPT)
}

fn is_one_of(name: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// Fields that tell which representation a response is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selected<'a> {
    /// Entity tag of the stored response.
    pub etag: Option<&'a [u8]>,
    /// Last-Modified of the stored response.
    pub last_modified: Option<&'a [u8]>,
    /// Length of the body in bytes.
    pub length: Option<u64>,
}

/// RFC 9111 §4.3.5: whether a response to HEAD can be of the representation that is stored: what
/// it says is what was said when that was stored.
#[must_use]
pub fn is_same_selection(stored: &Selected<'_>, told: &Selected<'_>) -> bool {
    (told.etag.is_none() || told.etag == stored.etag)
        && (told.last_modified.is_none() || told.last_modified == stored.last_modified)
        && (told.length.is_none() || told.length == stored.length)
}

/// Validators of a response (RFC 9110 §8.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// ETag.
    pub etag: Option<&'a [u8]>,
    /// Last-Modified.
    pub last_modified: Option<&'a [u8]>,
}

/// RFC 9111 §4.3.4: whether a 304 with validators can be about a stored response with others.
///
/// Tags are compared weakly: servers that compress weaken the tag of what they send, not that of a
/// 304. Times count where neither has a tag. Where one of the two has none, nothing speaks against
/// it.
#[must_use]
pub fn may_freshen(stored: Validators<'_>, told: Validators<'_>) -> bool {
    match (stored.etag, told.etag) {
        (Some(stored), Some(told)) => without_weakness(stored) == without_weakness(told),
        (None, None) => match (stored.last_modified, told.last_modified) {
            (Some(stored), Some(told)) => stored == told,
            _ => true,
        },
        _ => true,
    }
}

/// RFC 9111 §4.4: whether a response to a request makes stored responses for its URI invalid.
///
/// Methods that are not known to be safe count as unsafe: RFC 9110 §9.2.1 names the first safe
/// ones, RFC 4918 §9.1, RFC 3253 §3.6, RFC 5323 §2 and the QUERY method the others.
#[must_use]
pub fn invalidates(method: &[u8], status: u16) -> bool {
    let is_safe = matches!(
        method,
        b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PROPFIND" | b"REPORT" | b"SEARCH" | b"QUERY"
    );
    !is_safe && (200..=399).contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_control::parse_cache_control;

    const NOW: i64 = 1_000_000;

    fn answer(control: &str) -> Answer<'_> {
        Answer {
            status: 200,
            cache_control: parse_cache_control(control.as_bytes()),
            expires: None,
            date: Some(NOW),
            age: 0,
            last_modified: None,
            has_validator: true,
            sets_cookie: false,
        }
    }

    fn asked() -> Asked {
        Asked {
            is_authorized: false,
            forbids_storing: false,
            received: NOW,
            delay: 0,
            configured: None,
        }
    }

    #[test]
    fn storing_is_refused_for_the_reasons_of_the_rfc() {
        let cases = [
            (200, "max-age=1, no-store", Refusal::NoStore),
            (200, "max-age=1, private", Refusal::Private),
            (200, "max-age=1, private=\"a\"", Refusal::Private),
            (200, "", Refusal::NothingSaid),
            (304, "max-age=1", Refusal::Status),
            (206, "max-age=1", Refusal::Status),
            (103, "max-age=1", Refusal::Status),
            (599, "max-age=1, must-understand", Refusal::NotUnderstood),
        ];
        for (status, control, expected) in cases {
            let answer = Answer {
                status,
                ..answer(control)
            };
            assert_eq!(
                terms(&answer, &asked()),
                Err(expected),
                "{status} {control}"
            );
        }
        let understood = answer("max-age=1, no-store, must-understand");
        assert!(terms(&understood, &asked()).is_ok());
    }

    #[test]
    fn credentials_need_a_word_of_the_origin() {
        let authorized = Asked {
            is_authorized: true,
            ..asked()
        };
        let cases = [
            ("max-age=9", Err(Refusal::Authorization)),
            ("max-age=9, public", Ok(false)),
            ("max-age=9, must-revalidate", Ok(true)),
            ("s-maxage=9", Ok(true)),
        ];
        for (control, expected) in cases {
            let got = terms(&answer(control), &authorized).map(|terms| terms.never_stale);
            assert_eq!(got, expected, "{control}");
        }
    }

    #[test]
    fn the_time_on_the_way_is_a_part_of_the_age() {
        let aged = Answer {
            age: 40,
            ..answer("max-age=100")
        };
        let old = Answer {
            date: Some(NOW - 90),
            ..aged
        };
        for (answer, delay, expected) in [
            (&aged, 0, 40),
            (&aged, 7, 47),
            (&old, 7, 90),
            (&old, 60, 100),
            (&aged, u64::MAX, i64::MAX as u64),
        ] {
            let asked = Asked { delay, ..asked() };
            let age = terms(answer, &asked).unwrap().initial_age;
            assert!(
                age == expected || age > expected && delay == u64::MAX,
                "{delay}"
            );
        }
    }

    #[test]
    fn a_cookie_needs_a_lifetime_of_the_origin() {
        let configured = Asked {
            configured: Some(7),
            ..asked()
        };
        for (control, modified, expected) in [
            ("", None, Err(Refusal::Cookie)),
            ("", Some(NOW - 1000), Err(Refusal::Cookie)),
            ("public", Some(NOW - 1000), Err(Refusal::Cookie)),
            ("no-cache", None, Err(Refusal::Cookie)),
            ("max-age=3", None, Ok(3)),
            ("s-maxage=4", None, Ok(4)),
            ("private, max-age=3", None, Err(Refusal::Private)),
        ] {
            let answer = Answer {
                last_modified: modified,
                sets_cookie: true,
                ..answer(control)
            };
            let got = terms(&answer, &configured).map(|terms| terms.lifetime);
            assert_eq!(got, expected, "{control}");
        }
        let dated = Answer {
            expires: Some(b"Fri, 01 Jan 2100 00:00:00 GMT"),
            sets_cookie: true,
            ..answer("")
        };
        assert!(terms(&dated, &configured).is_ok());
    }

    #[test]
    fn fields_of_the_connection_and_of_proxies_are_not_stored() {
        for (name, stored, freshened) in [
            ("Connection", false, false),
            ("Keep-Alive", false, false),
            ("Proxy-Authenticate", false, false),
            ("proxy-authentication-info", false, false),
            ("Proxy-Authorization", false, false),
            ("Proxy-Connection", false, false),
            ("TE", false, false),
            ("Transfer-Encoding", false, false),
            ("Upgrade", false, false),
            ("Content-Length", true, false),
            ("Content-Digest", true, false),
            ("Content-MD5", true, false),
            ("Repr-Digest", true, false),
            ("Digest", true, false),
            ("WWW-Authenticate", true, true),
            ("ETag", true, true),
            ("Vary", true, true),
        ] {
            let name = name.as_bytes();
            assert_eq!((is_stored(name), is_freshened(name)), (stored, freshened));
        }
    }

    #[test]
    fn an_unstated_lifetime_is_the_configurations_or_a_tenth_of_the_age_of_the_content() {
        let modified = Answer {
            last_modified: Some(NOW - 1000),
            ..answer("")
        };
        assert_eq!(terms(&modified, &asked()).map(|t| t.lifetime), Ok(100));
        let configured = Asked {
            configured: Some(7),
            ..asked()
        };
        assert_eq!(terms(&modified, &configured).map(|t| t.lifetime), Ok(7));
        let created = Answer {
            status: 201,
            ..modified
        };
        assert_eq!(terms(&created, &asked()), Err(Refusal::NothingSaid));
        let stated = answer("max-age=3");
        assert_eq!(terms(&stated, &configured).map(|t| t.lifetime), Ok(3));
    }

    #[test]
    fn what_could_never_be_served_is_not_stored() {
        let plain = Answer {
            has_validator: false,
            ..answer("no-cache")
        };
        assert_eq!(terms(&plain, &asked()), Err(Refusal::Useless));
        let old = Answer {
            age: 10,
            has_validator: false,
            ..answer("max-age=5, must-revalidate")
        };
        assert_eq!(terms(&old, &asked()), Err(Refusal::Useless));
        let validated = terms(&answer("no-cache"), &asked()).unwrap();
        assert!(validated.must_validate && validated.never_stale);
    }

    #[test]
    fn requests_decide_what_is_reused() {
        use Reuse::{Serve, Validate, ValidateOnly};
        let cases = [
            // age, lifetime, request, expected
            (5, 10, "", Serve),
            (10, 10, "", Validate),
            (5, 10, "no-cache", Validate),
            (5, 10, "max-age=4", Validate),
            (5, 10, "max-age=5", Serve),
            (5, 10, "min-fresh=5", Serve),
            (5, 10, "min-fresh=6", Validate),
            (12, 10, "max-stale", Serve),
            (12, 10, "max-stale=2", Serve),
            (12, 10, "max-stale=1", Validate),
            (12, 10, "max-stale, max-age=11", Validate),
        ];
        for (age, lifetime, request, expected) in cases {
            let stored = Stored {
                age,
                lifetime,
                must_validate: false,
                never_stale: false,
                is_immutable: false,
            };
            let fields: Vec<&[u8]> = match request {
                "" => Vec::new(),
                request => vec![request.as_bytes()],
            };
            let rules = RequestRules::parse(&fields, &[]);
            assert_eq!(reuse(&stored, &rules), expected, "{age} {request}");
            let bound = Stored {
                never_stale: true,
                ..stored
            };
            let bound_expected = if age >= lifetime {
                ValidateOnly
            } else {
                expected
            };
            assert_eq!(reuse(&bound, &rules), bound_expected, "{age} {request}");
        }
    }

    #[test]
    fn what_is_immutable_is_not_reloaded_while_it_is_fresh() {
        use Reuse::{Serve, Validate};
        for (age, request, expected) in [
            (5, "max-age=0", Serve),
            (5, "no-cache", Validate),
            (5, "min-fresh=6, max-age=0", Validate),
            (10, "max-age=0", Validate),
        ] {
            let stored = Stored {
                age,
                lifetime: 10,
                must_validate: false,
                never_stale: false,
                is_immutable: true,
            };
            let rules = RequestRules::parse(&[request.as_bytes()], &[]);
            assert_eq!(reuse(&stored, &rules), expected, "{age} {request}");
        }
    }

    #[test]
    fn pragma_counts_without_cache_control_only() {
        assert!(RequestRules::parse(&[], &[b"no-cache"]).no_cache);
        assert!(!RequestRules::parse(&[b"max-stale"], &[b"no-cache"]).no_cache);
    }

    #[test]
    fn what_head_does_not_say_does_not_differ() {
        let stored = Selected {
            etag: Some(b"\"a\""),
            last_modified: Some(b"then"),
            length: Some(4),
        };
        let cases = [
            (stored, true),
            (Selected::default(), true),
            (
                Selected {
                    etag: Some(b"\"b\""),
                    ..stored
                },
                false,
            ),
            (
                Selected {
                    last_modified: Some(b"now"),
                    ..stored
                },
                false,
            ),
            (
                Selected {
                    length: Some(5),
                    ..stored
                },
                false,
            ),
            (
                Selected {
                    length: None,
                    ..stored
                },
                true,
            ),
        ];
        for (told, expected) in cases {
            assert_eq!(is_same_selection(&stored, &told), expected, "{told:?}");
        }
        assert!(!is_same_selection(&Selected::default(), &stored));
    }

    #[test]
    fn a_304_of_another_version_freshens_nothing() {
        let cases: [(Option<&str>, Option<&str>, bool); 7] = [
            (Some("\"1\""), Some("\"1\""), true),
            (Some("\"1\""), Some("\"2\""), false),
            (Some("W/\"1\""), Some("\"1\""), true),
            (Some("W/\"1\""), Some("W/\"2\""), false),
            (Some("\"1\""), None, true),
            (None, Some("\"1\""), true),
            (None, None, true),
        ];
        let of = |etag: Option<&'static str>, last_modified: Option<&'static str>| Validators {
            etag: etag.map(str::as_bytes),
            last_modified: last_modified.map(str::as_bytes),
        };
        for (stored, told, expected) in cases {
            let may = may_freshen(of(stored, Some("then")), of(told, Some("then")));
            assert_eq!(may, expected, "{stored:?} {told:?}");
        }
        for (stored, told, expected) in [
            (of(None, Some("then")), of(None, Some("now")), false),
            (of(None, Some("then")), of(None, None), true),
            (of(None, None), of(None, Some("now")), true),
            // A tag is the better witness.
            (
                of(Some("\"1\""), Some("then")),
                of(Some("\"1\""), Some("now")),
                true,
            ),
            (of(Some("\"1\""), Some("then")), of(None, Some("now")), true),
        ] {
            assert_eq!(may_freshen(stored, told), expected, "{stored:?} {told:?}");
        }
    }

    #[test]
    fn unsafe_methods_that_succeed_invalidate() {
        let cases = [
            ("POST", 200, true),
            ("DELETE", 204, true),
            ("PUT", 302, true),
            ("M-SEARCH", 200, true),
            ("POST", 404, false),
            ("POST", 500, false),
            ("GET", 200, false),
            ("OPTIONS", 200, false),
            ("QUERY", 200, false),
            ("PROPFIND", 207, false),
            ("REPORT", 207, false),
            ("SEARCH", 207, false),
            ("PROPPATCH", 207, true),
            ("query", 200, true),
        ];
        for (method, status, expected) in cases {
            assert_eq!(invalidates(method.as_bytes(), status), expected, "{method}");
        }
    }

    #[test]
    fn a_304_leaves_what_describes_the_stored_bytes() {
        assert!(is_freshened(b"Cache-Control") && is_freshened(b"X-Any"));
        assert!(!is_freshened(b"Content-Length") && !is_freshened(b"content-encoding"));
    }
}
