//! `proxy_cache_key`: the identity of a stored answer.

use millpond_conf::Template;

/// What identifies an answer.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct KeyPolicy {
    /// The text that identifies a stored answer.
    #[directive(name = "proxy_cache_key", default = "$scheme$proxy_host$request_uri")]
    pub key: Template,
}
