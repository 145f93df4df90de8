//! Holdings of sites: entries and bytes, by zone and disk.
//!
//! The numbers come from the store, which counts where its index changes; nothing is read for them.
//! Until a zone is loaded they are about what is known of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use millpond_exchange::stats::departed::NAMELESS;
use millpond_store::{Held, SiteLimit};
use serde::{Deserialize, Serialize};

use super::api::SceneZone;
use super::report::text;

/// Entries and bytes that are held.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct HeldReport {
    /// Entries; one whose body is in slices is one.
    pub entries: u64,
    /// Slices that are held of them.
    pub slices: u64,
    /// Bytes of the disk: records, with heads and padding, and bodies.
    pub bytes: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
}

/// Holdings of a site on a disk of a zone.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct HeldOnDiskReport {
    /// The zone.
    pub zone: String,
    /// The directory of the disk.
    pub disk: String,
    /// Entries and bytes on the disk.
    #[serde(flatten)]
    pub held: HeldReport,
}

/// Holdings of a site.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct HeldBySiteReport {
    /// Name of the site; `*` for all that there was no number for, `-` for entries without a name.
    pub site: String,
    /// Entries and bytes of the site in all zones that are asked for.
    #[serde(flatten)]
    pub held: HeldReport,
    /// Entries and bytes by zone and disk.
    pub disks: Vec<HeldOnDiskReport>,
    /// Quotas of the site, by zone; absent where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaReport>,
}

/// Quota of a site in a zone (`cache_site_quota`).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct QuotaReport {
    /// The zone.
    pub zone: String,
    /// The most that the site may hold there.
    pub bytes: u64,
    /// Bytes of the zone's disks that it holds.
    pub held: u64,
    /// Entries and slices that left for others of the site, since the process had the quota.
    pub evicted: u64,
    /// Entries and slices that were not stored, since then.
    pub refused: u64,
}

/// Holdings of all sites.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct HoldingsReport {
    /// Sites that hold something or have a quota, by name.
    pub sites: Vec<HeldBySiteReport>,
}

impl From<Held> for HeldReport {
    fn from(held: Held) -> Self {
        HeldReport {
            entries: held.entries,
            slices: held.slices,
            bytes: held.disk_bytes,
            body_bytes: held.body_bytes,
        }
    }
}

impl HeldReport {
    /// Adds what is held elsewhere.
    pub fn add(&mut self, other: &HeldReport) {
        self.entries += other.entries;
        self.slices += other.slices;
        self.bytes += other.bytes;
        self.body_bytes += other.body_bytes;
    }
}

/// Collects the holdings of each site in some zones, by name.
pub(super) fn by_site<'a>(
    zones: impl IntoIterator<Item = &'a SceneZone>,
) -> BTreeMap<Bytes, HeldBySiteReport> {
    let mut all = BTreeMap::<Bytes, HeldBySiteReport>::new();
    for zone in zones {
        for one in zone.zone.store.sites() {
            let name = told(one.site);
            let of_site = all.entry(name.clone()).or_insert_with(|| nothing(&name));
            let held = HeldReport::from(one.held);
            of_site.held.add(&held);
            of_site.disks.push(HeldOnDiskReport {
                zone: zone.declared.name.clone(),
                disk: one.disk.display().to_string(),
                held,
            });
        }
        for limit in zone.zone.store.limited_sites() {
            let name = told(limit.site.clone());
            let of_site = all.entry(name.clone()).or_insert_with(|| nothing(&name));
            of_site.quotas.push(quota(zone, &limit));
        }
    }
    all
}

/// The quota of a site in a zone, if it has one.
pub(super) fn quota_of(zone: &SceneZone, site: &[u8]) -> Option<QuotaReport> {
    let limited = zone.zone.store.limited_sites();
    let own = limited.iter().find(|limit| limit.site == site)?;
    Some(quota(zone, own))
}

fn quota(zone: &SceneZone, limit: &SiteLimit) -> QuotaReport {
    QuotaReport {
        zone: zone.declared.name.clone(),
        bytes: limit.bytes,
        held: limit.held,
        evicted: limit.evicted,
        refused: limit.refused,
    }
}

/// The name of a site, as it is told.
fn told(site: Bytes) -> Bytes {
    if site.is_empty() {
        Bytes::from_static(NAMELESS)
    } else {
        site
    }
}

/// A site that holds nothing.
pub(super) fn nothing(name: &[u8]) -> HeldBySiteReport {
    HeldBySiteReport {
        site: text(name),
        held: HeldReport::default(),
        disks: Vec::new(),
        quotas: Vec::new(),
    }
}
