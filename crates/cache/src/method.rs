//! `proxy_cache_methods`, `proxy_cache_convert_head`: which requests the cache takes part in.
//!
//! 1. GET and HEAD are always cached, as in nginx: the directive can only add POST.
//! 2. With conversion, a HEAD request is asked of the origin as GET, and both share an entry.

use millpond_conf::{Flags, Words};

/// A method that answers can be stored for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum CacheMethod {
    /// GET.
    #[word("GET")]
    Get,
    /// HEAD.
    #[word("HEAD")]
    Head,
    /// POST.
    #[word("POST")]
    Post,
}

/// Methods that are cached.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct MethodPolicy {
    /// Methods whose answers are stored; GET and HEAD always are.
    #[directive(name = "proxy_cache_methods", default = "GET HEAD", union)]
    pub methods: Flags<CacheMethod>,
    /// Lets the origin be asked with GET for HEAD, so that both share an entry. When off, the key
    /// should hold `$request_method`; under `proxy_cache_conformance rfc9111` answers to HEAD are
    /// not stored then, but freshen or invalidate what is stored for GET under the same key.
    #[directive(name = "proxy_cache_convert_head", default = "on", only("proxy"))]
    pub convert_head: bool,
}

impl MethodPolicy {
    /// True when requests of this method use the cache.
    pub fn allows(&self, method: CacheMethod) -> bool {
        match method {
            CacheMethod::Get | CacheMethod::Head => true,
            CacheMethod::Post => self.methods.contains(method),
        }
    }
}
