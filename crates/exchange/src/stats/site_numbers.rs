//! The numbers of sites, as one worker remembers them.
//!
//! A name that `cache_site` makes of a request is looked up here before the table that all workers
//! share is asked.
//!
//! Invariant: a number is forgotten when the table takes numbers back, which begins a new turn.

use std::cell::RefCell;

use bytes::Bytes;
use hashbrown::HashMap;
use millpond_cache::site::clean;

use super::site::{Counting, SITES_MAX, SiteId};
use super::site_names::Claim;

/// Name under which requests and entries without a name are counted.
pub const UNNAMED: &[u8] = b"-";

/// Names whose numbers a worker remembers (arbitrary: more than there are numbers).
const NUMBERS_MAX: usize = 2 * SITES_MAX;

/// The name under which a site is counted.
pub fn named(name: &[u8]) -> &[u8] {
    if name.is_empty() { UNNAMED } else { name }
}

/// The numbers of names that a worker has met in a turn, as `cache_site` gives them: asked for
/// without meeting another worker.
#[derive(Debug, Default)]
pub struct SiteNumbers(RefCell<Met>);

#[derive(Debug, Default)]
struct Met {
    turn: usize,
    numbers: HashMap<Bytes, SiteId>,
}

impl SiteNumbers {
    /// The number of a name, by the table if it is not remembered.
    pub fn of(&self, counting: &Counting<'_>, name: &[u8], claim: Claim) -> SiteId {
        let mut met = self.0.borrow_mut();
        if met.turn != counting.turn() {
            met.turn = counting.turn();
            met.numbers.clear();
        }
        if let Some(number) = met.numbers.get(name) {
            return *number;
        }
        // Names that mean the same are several here; forgetting them costs a look-up each.
        if met.numbers.len() >= NUMBERS_MAX {
            met.numbers.clear();
        }
        let number = counting.id(named(&clean(name)), claim);
        // One that has none may have one next time. The name may be a part of something long.
        if !number.is_excess() {
            met.numbers.insert(Bytes::copy_from_slice(name), number);
        }
        number
    }
}
