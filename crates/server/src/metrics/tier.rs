//! Facts about second tiers of zones, and samples of them.
//!
//! Names of zones are those of the configuration; outcomes are few words.

use millpond_exchange::worker::Shared;
use millpond_tier::Tiers;

use super::facts::Facts;
use super::text::Samples;

/// A second tier.
#[derive(Debug)]
pub(super) struct TierFacts {
    pub(super) zone: String,
    /// Questions, by their outcomes.
    pub(super) reads: Vec<(&'static str, u64)>,
    /// Entries that were worth a copy, by their outcomes.
    pub(super) writes: Vec<(&'static str, u64)>,
    /// Bytes of bodies that have come, and that were written.
    pub(super) bytes: (u64, u64),
    /// Objects that were written, and that were removed.
    pub(super) objects: (u64, u64),
    /// Bytes of bodies that wait to be written.
    pub(super) queued: u64,
    /// Number of things that wait to be written or removed.
    pub(super) waiting: u64,
    /// True while the store is left alone because it has failed.
    pub(super) is_left_alone: bool,
}

/// The tiers of the process.
pub(super) fn read(shared: &Shared) -> Vec<TierFacts> {
    let tiers = shared.guests.of::<Tiers>().all().into_iter();
    let facts = tiers.map(|tier| TierFacts {
        zone: tier.zone().name.clone(),
        reads: tier.counts().reads(),
        writes: tier.counts().writes(),
        bytes: tier.counts().bytes(),
        objects: tier.counts().objects(),
        queued: tier.queued(),
        waiting: tier.waiting(),
        is_left_alone: tier.is_left_alone(),
    });
    facts.collect()
}

fn each(name: &str, counts: &[(&str, u64)], out: &mut Samples<'_>) {
    for (result, count) in counts {
        out.add(&[name, result], *count);
    }
}

pub(super) fn reads(facts: &Facts, out: &mut Samples<'_>) {
    for tier in &facts.tiers {
        each(&tier.zone, &tier.reads, out);
    }
}

pub(super) fn writes(facts: &Facts, out: &mut Samples<'_>) {
    for tier in &facts.tiers {
        each(&tier.zone, &tier.writes, out);
    }
}

pub(super) fn bytes(facts: &Facts, out: &mut Samples<'_>) {
    for tier in &facts.tiers {
        out.add(&[&tier.zone, "read"], tier.bytes.0);
        out.add(&[&tier.zone, "written"], tier.bytes.1);
    }
}

pub(super) fn objects(facts: &Facts, out: &mut Samples<'_>) {
    for tier in &facts.tiers {
        out.add(&[&tier.zone, "written"], tier.objects.0);
        out.add(&[&tier.zone, "removed"], tier.objects.1);
    }
}

pub(super) fn waiting(facts: &Facts, out: &mut Samples<'_>) {
    for tier in &facts.tiers {
        out.add(&[&tier.zone], tier.waiting);
    }
}

pub(super) fn queued(facts: &Facts, out: &mut Samples<'_>) {
    for tier in &facts.tiers {
        out.add(&[&tier.zone], tier.queued);
    }
}

pub(super) fn left_alone(facts: &Facts, out: &mut Samples<'_>) {
    for tier in &facts.tiers {
        out.add(&[&tier.zone], u64::from(tier.is_left_alone));
    }
}
