//! The rule beyond ordinary caching by which a request has found its entry, for the zone's counts.
//!
//! A request whose key and fields were enough is of none, and so are nearly all.

use millpond_cache::head::StoredHead;
use millpond_cache::rule_counts::Rule;

use super::{content_key, no_vary_search, vary_as};
use crate::request::Request;
use crate::upstream::pass::PassTarget;

/// The rule; none if the key and the request's fields were enough.
pub(super) fn of(req: &Request, target: &PassTarget, head: &StoredHead) -> Option<Rule> {
    let by_content = content_key::rule_of_hit(req, target.protocol);
    by_content
        .or_else(|| is_by_no_vary_search(req, target).then_some(Rule::NoVarySearchHit))
        .or_else(|| vary_as::has_part_in(req, target, &head.vary).then_some(Rule::ClassHit))
}

fn is_by_no_vary_search(req: &Request, target: &PassTarget) -> bool {
    no_vary_search::is_due(req, target.protocol) && no_vary_search::is_simplified(req)
}
