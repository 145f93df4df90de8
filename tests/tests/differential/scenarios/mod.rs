//! All scenarios, by subject.

mod balancer;
mod cache_basic;
mod cache_ranges;
mod cache_stale;
mod cache_valid;
mod cache_vary;
mod coding;
mod connections;
mod edit_headers;
mod errors;
mod films;
mod generated;
mod headers;
mod limits;
mod logs;
mod proxy_body;
mod proxy_control;
mod proxy_headers;
mod proxy_uri;
mod ranges;
mod returns;
mod rewrite;
mod routing;
mod signed;
mod static_files;
mod upstream;
mod variables;

use crate::scenario::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    [
        routing::scenarios(),
        returns::scenarios(),
        rewrite::scenarios(),
        errors::scenarios(),
        static_files::scenarios(),
        ranges::scenarios(),
        films::scenarios(),
        headers::scenarios(),
        edit_headers::scenarios(),
        variables::scenarios(),
        logs::scenarios(),
        limits::scenarios(),
        connections::scenarios(),
        proxy_uri::scenarios(),
        proxy_headers::scenarios(),
        proxy_body::scenarios(),
        proxy_control::scenarios(),
        upstream::scenarios(),
        cache_basic::scenarios(),
        cache_valid::scenarios(),
        cache_stale::scenarios(),
        cache_vary::scenarios(),
        cache_ranges::scenarios(),
        coding::scenarios(),
        signed::scenarios(),
        balancer::scenarios(),
        generated::scenarios(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
