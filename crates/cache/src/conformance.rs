//! `proxy_cache_conformance`: whose rules decide what may be stored and reused.
//!
//! Under nginx's rules freshness is fixed when an answer is stored, requests have no say, and a
//! stored head stays as it was. Under RFC 9111 the request is heard, age counts, and a validation
//! updates the head; the decisions are those of `millpond_semantics::reuse`.

use millpond_conf::Words;
use millpond_semantics::reuse::RequestRules;
use millpond_semantics::vary::Spelling;

/// Rules for what may be stored and reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Conformance {
    /// nginx's.
    #[word("nginx")]
    Nginx,
    /// Rules of RFC 9111 for a shared cache.
    #[word("rfc9111")]
    Rfc9111,
}

/// Choice of the rules that a location follows.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct ConformancePolicy {
    /// Chooses the rules that decide what may be stored and reused: nginx's, or those of RFC 9111.
    /// By the RFC, Cache-Control of requests is obeyed, the Age of an answer counts, hits say their
    /// Age and the origin's Date, a 304 updates the stored fields, unsafe methods invalidate,
    /// answers to requests with credentials need the origin's word to be shared, and what states no
    /// lifetime gets that of `proxy_cache_valid` or a tenth of the time since it was modified. An
    /// answer to POST that states its lifetime and names the URI that was posted to as its
    /// Content-Location answers later GET requests. Interim answers are passed on (see
    /// `early_hints`), and Via is written in both directions. CDN-Cache-Control is obeyed (see
    /// `proxy_cache_targeted_control`). An answer that sets a cookie is stored only if it says
    /// itself for how long it is fresh, unless `proxy_ignore_headers` names Set-Cookie, and
    /// X-Accel-Expires means nothing.
    #[directive(name = "proxy_cache_conformance", default = "nginx")]
    pub rules: Conformance,
}

/// The rules of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// nginx's.
    #[default]
    Nginx,
    /// The RFC's, with what the request asks for.
    Rfc9111(RequestRules),
}

impl Rules {
    /// Wishes of the request, where they are heard.
    pub fn asked(&self) -> Option<&RequestRules> {
        match self {
            Rules::Nginx => None,
            Rules::Rfc9111(asked) => Some(asked),
        }
    }

    /// Comparison of the fields that select a variant: which spellings count as the same.
    pub fn spelling(&self) -> Spelling {
        match self {
            Rules::Nginx => Spelling::AsNginx,
            Rules::Rfc9111(_) => Spelling::ByRfc,
        }
    }

    /// Conformance that these rules are of.
    pub fn conformance(&self) -> Conformance {
        match self {
            Rules::Nginx => Conformance::Nginx,
            Rules::Rfc9111(_) => Conformance::Rfc9111,
        }
    }

    /// True for the RFC's.
    pub fn is_rfc(&self) -> bool {
        self.asked().is_some()
    }
}
