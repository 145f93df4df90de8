//! `proxy_cache_key`: the identity of a stored answer.
//!
//! The text is evaluated once a request, after rewriting, and hashed to the store's key; the text
//! itself stands in the stored head, so that two texts with one hash are told apart.

use millpond_conf::Template;

/// Template of the text that identifies an answer.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct KeyPolicy {
    /// The text that identifies a stored answer; without it, `$scheme$proxy_host` and the URI that
    /// the upstream is asked for. Where applications of other protocols are cached it must be set.
    ///
    /// # Differs from nginx
    ///
    /// A cache of an application without a key is refused. nginx warns, and keeps one answer for
    /// all requests.
    #[directive(name = "proxy_cache_key")]
    pub key: Option<Template>,
}
