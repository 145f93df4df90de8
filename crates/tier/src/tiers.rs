//! The tiers of a process, over reloads.
//!
//! 1. A zone has one tier at most, and one that stays as it was is not started again.
//! 2. A process without tiers has no thread of one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_cache::tier_path::TierPath;
use millpond_cache::zone::CacheZone;
use millpond_fleet::Fleets;
use millpond_system::log::error::{self, Level};

use crate::tier::Tier;

/// Tiers with their zones.
pub type Plan = Vec<(TierPath, Arc<CacheZone>)>;

/// The tiers.
#[derive(Debug, Default)]
pub struct Tiers(Mutex<Vec<Arc<Tier>>>);

impl Tiers {
    /// Has these tiers and no others from now on. The fleets of their zones are followed already.
    pub fn serve(&self, plan: Plan, fleets: &Arc<Fleets>) {
        let mut tiers = self.lock();
        let is_same = |tier: &Tier, (path, zone): &(TierPath, Arc<CacheZone>)| {
            tier.path() == path && Arc::ptr_eq(tier.zone(), zone)
        };
        tiers.retain(|tier| plan.iter().any(|planned| is_same(tier, planned)));
        for planned in plan {
            let (path, zone) = &planned;
            // A fleet that was started anew knows nothing of them.
            if let Some(node) = fleets.of_zone(&zone.name) {
                node.keep_ledger(zone);
            }
            if tiers.iter().any(|tier| is_same(tier, &planned)) {
                continue;
            }
            match Tier::start(path, zone, fleets) {
                Ok(tier) => tiers.push(Arc::new(tier)),
                Err(why) => {
                    let name = &zone.name;
                    let message = format_args!("tier of cache \"{name}\" cannot be opened: {why}");
                    error::process(Level::Error, message);
                }
            }
        }
    }

    /// Ends all of them.
    pub fn stop(&self) {
        self.lock().clear();
    }

    /// The tier of a zone of this name.
    pub fn of_zone(&self, name: &str) -> Option<Arc<Tier>> {
        let tiers = self.lock();
        tiers.iter().find(|tier| tier.zone().name == name).cloned()
    }

    /// All tiers.
    pub fn all(&self) -> Vec<Arc<Tier>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Tier>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
