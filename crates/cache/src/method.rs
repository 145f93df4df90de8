//! `proxy_cache_methods`, `proxy_cache_query_json`, `proxy_cache_graphql`,
//! `proxy_cache_convert_head`: which requests the cache takes part in, and by what of them.
//!
//! 1. GET and HEAD are always cached, as in nginx: the directive can only add others.
//! 2. With conversion, a HEAD request is asked of the origin as GET, and both share an entry.
//! 3. Answers to QUERY are told apart by the content of their requests (RFC 10008), whatever the
//!    cache key says.

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
    /// QUERY.
    #[word("QUERY")]
    Query,
}

/// Differences between two contents in JSON that ask for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum QueryJson {
    /// Nothing.
    #[word("off")]
    Off,
    /// White space and escapes.
    #[word("spelling")]
    Spelling,
    /// The order of the members of objects, too.
    #[word("members")]
    Members,
}

/// Methods that are cached.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct MethodPolicy {
    /// Methods whose answers are stored; GET and HEAD always are.
    ///
    /// Answers to QUERY (RFC 10008) are told apart by the content of their requests: a digest of
    /// it, and of its Content-Type, Content-Encoding and Content-Language, is put behind the text
    /// of the cache key, so that a purge of a prefix finds them. The content is read before the
    /// look-up. One that does not fit into `client_body_buffer_size` is passed on, and its answer
    /// is not stored.
    ///
    /// # Differs from nginx
    ///
    /// nginx does not know QUERY here.
    #[directive(name = "proxy_cache_methods", default = "GET HEAD", union)]
    pub methods: Flags<CacheMethod>,
    /// Differences between contents of QUERY in JSON (`application/json`, or a type that ends with
    /// `+json`) that do not tell answers apart. With `spelling` it is white space, and the ways to
    /// escape letters; with `members` the order of the members of objects, too, which is for
    /// origins that never look at it. A request with `Cache-Control: no-transform`, or whose
    /// content is no JSON, is taken as it is. What the origin gets is always what the client sent.
    #[directive(name = "proxy_cache_query_json", default = "spelling")]
    pub query_json: QueryJson,
    /// Lets queries of GraphQL be answered from the cache, whether they come by POST
    /// (`application/json`) or by GET: both of one query have one entry. Its key is the cache key,
    /// made without the arguments `query`, `operationName`, `variables` and `extensions` of a GET,
    /// and behind it a digest of them, in which white space, commas, comments and the order of
    /// members do not count. The key should have no `$request_method` and no `$request_body`.
    ///
    /// A document with a mutation or a subscription is passed on and its answer is never stored,
    /// and so is what cannot be parsed, a list of requests, or a content longer than
    /// `client_body_buffer_size`. A GET without a query in its arguments is any other GET. Answers
    /// are stored as those to GET: an origin that answers with 200 and errors should forbid it by
    /// its Cache-Control, and one that looks at who asks must say so, too. Cookies and
    /// Authorization of a request do not tell answers apart, as they never do. Under
    /// `proxy_cache_conformance rfc9111` anything else that is posted to the URI and succeeds, such
    /// as a mutation, removes the answers to its queries (RFC 9111 §4.4).
    #[directive(name = "proxy_cache_graphql", default = "off")]
    pub graphql: bool,
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
            CacheMethod::Post | CacheMethod::Query => self.methods.contains(method),
        }
    }
}
