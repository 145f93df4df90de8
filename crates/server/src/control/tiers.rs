//! `GET /tiers`: the second tiers of zones, and what was written to them and read.
//!
//! Places are told without what lets somebody in: that stands in no configuration.

use std::collections::BTreeMap;

use millpond_tier::{Tier, Tiers};
use serde::{Deserialize, Serialize};

use super::api::{Answer, Scene, Standing};
use super::report;

/// The second tiers of a process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TiersReport {
    /// Tiers that are open.
    pub tiers: Vec<TierReport>,
}

/// The second tier of a zone. Counts begin with the tier.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TierReport {
    /// Name of the zone.
    pub zone: String,
    /// Place of its objects.
    pub place: String,
    /// True while it is not asked, or not written to, after failures.
    pub is_left_alone: bool,
    /// Questions, by their outcomes.
    pub reads: BTreeMap<String, u64>,
    /// Entries that were worth a copy, by their outcomes.
    pub writes: BTreeMap<String, u64>,
    /// Bytes of bodies that were read.
    pub read_bytes: u64,
    /// Bytes of bodies that were written.
    pub written_bytes: u64,
    /// Objects that were written: heads, and slices of bodies.
    pub written_objects: u64,
    /// Objects that were removed.
    pub removed_objects: u64,
    /// Bytes of bodies that wait to be written.
    pub queued_bytes: u64,
    /// The most that may wait.
    pub queue_limit: u64,
    /// Number of things that wait to be written or removed.
    pub waiting: u64,
}

impl TierReport {
    fn of(tier: &Tier) -> TierReport {
        let (counts, path) = (tier.counts(), tier.path());
        let named = |all: Vec<(&str, u64)>| {
            let named = all.into_iter().map(|(name, it)| (name.to_owned(), it));
            named.collect::<BTreeMap<_, _>>()
        };
        let (read_bytes, written_bytes) = counts.bytes();
        let (written_objects, removed_objects) = counts.objects();
        TierReport {
            zone: tier.zone().name.clone(),
            place: path.url(),
            is_left_alone: tier.is_left_alone(),
            reads: named(counts.reads()),
            writes: named(counts.writes()),
            read_bytes,
            written_bytes,
            written_objects,
            removed_objects,
            queued_bytes: tier.queued(),
            queue_limit: path.queue,
            waiting: tier.waiting(),
        }
    }
}

/// All tiers.
pub(crate) fn all(tiers: &Tiers) -> Vec<TierReport> {
    tiers
        .all()
        .iter()
        .map(|tier| TierReport::of(tier))
        .collect()
}

/// Answers with all tiers.
pub(super) fn answer(scene: &Scene) -> Answer {
    let tiers = match &scene.standing {
        Standing::Running(facts) => facts.shared.as_ref().map(|it| it.guests.of::<Tiers>()),
        Standing::AtRest => None,
    };
    let found = tiers.map_or_else(Vec::new, |tiers| all(&tiers));
    report::json(200, &TiersReport { tiers: found })
}
