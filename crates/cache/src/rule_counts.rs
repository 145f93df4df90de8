//! Counts of the requests of a zone that a rule beyond ordinary caching has decided.
//!
//! A count is of the zone and not of a worker: these requests are few beside all others, and each
//! adds one.

use std::sync::atomic::{AtomicU64, Ordering};

/// A rule that has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A QUERY was answered from the zone.
    QueryHit,
    /// A query of GraphQL was answered from the zone.
    GraphQlHit,
    /// A request where GraphQL is spoken was passed on: a mutation, or what is no single query.
    GraphQlPassed,
    /// A request was answered from the zone by what the origin had said in No-Vary-Search.
    NoVarySearchHit,
    /// A request was answered from the zone by a variant that `proxy_cache_vary` tells apart.
    ClassHit,
    /// A request that may have only what is stored was refused (`cached_only`).
    CachedOnlyRefused,
    /// A request was answered by an encoding by a dictionary that its client has (RFC 9842).
    DictionaryHit,
    /// A body was kept as a dictionary.
    DictionaryKept,
    /// An answer has invalidated the entries of a group (RFC 9875).
    GroupInvalidated,
    /// A body that had broken off went on with a part that was asked for.
    Resumed,
}

impl Rule {
    /// All, in the order of their counts.
    pub const ALL: [Rule; 10] = [
        Rule::QueryHit,
        Rule::GraphQlHit,
        Rule::GraphQlPassed,
        Rule::NoVarySearchHit,
        Rule::ClassHit,
        Rule::CachedOnlyRefused,
        Rule::DictionaryHit,
        Rule::DictionaryKept,
        Rule::GroupInvalidated,
        Rule::Resumed,
    ];

    /// Word for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Rule::QueryHit => "query_hit",
            Rule::GraphQlHit => "graphql_hit",
            Rule::GraphQlPassed => "graphql_passed",
            Rule::NoVarySearchHit => "no_vary_search_hit",
            Rule::ClassHit => "class_hit",
            Rule::CachedOnlyRefused => "cached_only_refused",
            Rule::DictionaryHit => "dictionary_hit",
            Rule::DictionaryKept => "dictionary_kept",
            Rule::GroupInvalidated => "group_invalidated",
            Rule::Resumed => "resumed",
        }
    }
}

/// The counts of a zone since the process opened it.
#[derive(Debug, Default)]
pub struct RuleCounts([AtomicU64; Rule::ALL.len()]);

impl RuleCounts {
    /// Counts that a rule has decided.
    pub fn note(&self, rule: Rule) {
        if let Some(count) = self.0.get(rule as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The count of each.
    pub fn counts(&self) -> [(Rule, u64); Rule::ALL.len()] {
        Rule::ALL.map(|rule| {
            let count = self.0.get(rule as usize);
            (rule, count.map_or(0, |count| count.load(Ordering::Relaxed)))
        })
    }
}
