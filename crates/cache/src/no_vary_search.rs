//! `proxy_cache_no_vary_search`: what origins have said of the arguments of their paths
//! (No-Vary-Search).
//!
//! A zone remembers for a path what its last answer said. Requests for the path are looked up, and
//! their answers stored, under a key without the arguments that do not count.
//!
//! 1. An answer that says something else than its key was made by is not stored under that key.
//! 2. What is remembered is bounded, and nothing is lost with it but hits.

use std::sync::Arc;

use millpond_semantics::no_vary_search::Variation;

use crate::key_mark::KeyMark;
use crate::recent::Recent;

/// Obedience to origins that say which arguments do not count.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct NoVarySearchPolicy {
    /// Lets an answer to GET be used for other queries of its path that its No-Vary-Search calls
    /// equivalent: `params=("utm_source")` names arguments that do not count, `except=("id")` the
    /// only ones that do, and `key-order` says that their order does not. The key must be made of
    /// the query in one of the usual ways (`$args`, `$request_uri`, the default key).
    ///
    /// A zone remembers what the last answer of a path said, for 16,384 paths, until the process
    /// ends. An answer that says something else than its key was made by is passed on once and not
    /// stored. Such an entry's key is that of the query that is left, in one spelling, with a
    /// digest behind it: a purge of a prefix finds it, and so does one of any of the equivalent
    /// URIs by `proxy_cache_purge`.
    #[directive(name = "proxy_cache_no_vary_search", default = "off")]
    pub is_on: bool,
}

/// Words of origins about their paths.
#[derive(Debug, Default)]
pub struct Variations(Recent<Arc<Variation>>);

impl Variations {
    /// The word of the last answer of a path.
    pub fn find(&self, path: &KeyMark) -> Option<Arc<Variation>> {
        self.0.find(path.key())
    }

    /// Notes what an answer of a path says.
    pub fn note(&self, path: &KeyMark, said: Option<Arc<Variation>>) {
        match said {
            Some(said) => self.0.note(*path.key(), |_| said),
            None => self.0.forget(path.key()),
        }
    }
}
