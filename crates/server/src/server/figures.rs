//! Figures that a configuration may make worse, for those who watch one.
//!
//! They are those of the whole process: a configuration is in force in all workers or in none.

use std::sync::Weak;

use millpond_exchange::stats::responses::CLASSES;
use millpond_exchange::worker::Shared;
use millpond_fleet::config::report::Figures;
use millpond_fleet::config::rollout::Meter;

/// Counters of the process, which the process has.
#[derive(Debug)]
pub(super) struct Counters(pub(super) Weak<Shared>);

impl Meter for Counters {
    fn figures(&self) -> Figures {
        let Some(shared) = self.0.upgrade() else {
            return Figures::default();
        };
        let (responses, cache) = (shared.times.responses(), shared.cache.snapshot());
        Figures {
            answers: responses.total(),
            // What is no status counts with them.
            errors: responses.classes.get(CLASSES - 1).copied().unwrap_or(0),
            lookups: cache.looked_up(),
            hits: cache.from_cache().requests,
        }
    }
}
