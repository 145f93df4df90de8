//! Scenarios made by random, with seeds that never change.
//!
//! Each file has a small grammar of configurations and requests and draws from it; every draw is a
//! case of its own. The same seed gives the same cases for ever, so a case may stand in the list of
//! departures. New draws go to the end: those before keep their numbers.

mod freshness;
mod history;
mod inheritance;
mod location;
mod random;
mod range;
mod redirect;
mod rewrite;
mod uri;
mod vary;

use crate::scenario::Scenario;

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        uri::paths(),
        uri::replaced_paths(),
        location::choice(),
        rewrite::flags(),
        inheritance::without_http(),
        inheritance::with_http(),
        freshness::fields(),
        vary::sequences(),
        range::forms(),
        range::conditions(),
        redirect::policies(),
        history::of_keys(),
    ]
}
