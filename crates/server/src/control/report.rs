//! Answers of the API, as types that are written as JSON and read again by `millpond cache`.
//!
//! Times are seconds since 1970, sizes are bytes. Keys, tags and fields are texts: bytes in them
//! that are no UTF-8 are replaced, and `id` names the entry exactly. Members may be added; none
//! changes its meaning.

mod url;

use std::collections::BTreeMap;

use millpond_cache::catalogue::{self, Listed};
use millpond_cache::fill::FillSummary;
use millpond_cache::purge::recent::RecentPurge;
use millpond_cache::tag;
use millpond_cache::zone::CacheZone;
use millpond_exchange::stats::site::SiteCount;
use millpond_exchange::stats::site_info::Words;
use millpond_exchange::stats::times::Ends;
use millpond_exchange::stats::{CacheSnapshot, Count};
use millpond_semantics::vary::material_text;
use millpond_store::{DiskState, DiskUsage, Scrub};
use serde::{Deserialize, Serialize};

use super::api::{Answer, Body};
use super::holdings::{HeldBySiteReport, HeldOnDiskReport, HeldReport, QuotaReport};

/// The process that answers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ServerReport {
    /// Version of the program.
    pub version: String,
    /// Process id of the server; none at rest.
    pub pid: Option<u32>,
    /// Zones of the server.
    pub zones: Vec<ZoneReport>,
    /// Answers since it started, by cache status; none at rest.
    pub answers: Option<BTreeMap<String, CountReport>>,
    /// The part of them that came from the cache, of those that a cache looked at.
    pub hit_ratio: Option<f64>,
    /// Answers since it started, by class of status; none at rest.
    pub classes: Option<ClassesReport>,
    /// Counts of exchanges with origins by their end, since the process started; none at rest.
    pub exchanges: Option<ExchangesReport>,
}

/// Answers by class of status.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClassesReport {
    /// Interim ones that ended an answer.
    #[serde(rename = "1xx")]
    pub informational: u64,
    /// Answers that report success.
    #[serde(rename = "2xx")]
    pub successful: u64,
    /// Redirects, and `304`.
    #[serde(rename = "3xx")]
    pub redirected: u64,
    /// Mistakes of clients.
    #[serde(rename = "4xx")]
    pub refused: u64,
    /// Failures of origins, or here.
    #[serde(rename = "5xx")]
    pub failed: u64,
}

/// Counts of exchanges with origins by their end.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ExchangesReport {
    /// With an answer below 500.
    pub answered: u64,
    /// With an answer from 500 on.
    pub refused: u64,
    /// Without an answer: a timeout, an error, or no peer that could be asked.
    pub failed: u64,
}

impl ClassesReport {
    /// The report of counts by class, 1xx first.
    pub(super) fn of([one, two, three, four, five]: [u64; 5]) -> Self {
        ClassesReport {
            informational: one,
            successful: two,
            redirected: three,
            refused: four,
            failed: five,
        }
    }
}

impl From<Ends> for ExchangesReport {
    fn from(ends: Ends) -> Self {
        ExchangesReport {
            answered: ends.answered,
            refused: ends.refused,
            failed: ends.failed,
        }
    }
}

/// Answers with one status.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct CountReport {
    /// Number of requests.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// All sites that something was counted for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SitesReport {
    /// Sites that something was counted for; in no order.
    pub sites: Vec<SiteReport>,
}

/// Counters of sites that begin anew.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct ResetReport {
    /// Number of sites whose counters begin anew; what was counted for them is counted under `*`.
    pub sites: u64,
}

/// Counters of a site, since the file of the counters was made.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SiteReport {
    /// Name of the site; `*` for all that there was no number for, `-` for requests without a name.
    pub site: String,
    /// Answers to clients.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Bytes of bodies that came from the cache, and from origins for the request itself or one
    /// that it waited for; what this server made is neither's.
    pub cache_bytes: u64,
    /// The others.
    pub origin_bytes: u64,
    /// The answers by cache status; those that there are none of are left out.
    pub answers: BTreeMap<String, CountReport>,
    /// Requests that the site's origins were asked.
    pub origin: OriginReport,
    /// Entries and bytes that the site holds now, in all zones.
    pub held: HeldReport,
    /// Entries and bytes that the site holds by zone and disk.
    pub disks: Vec<HeldOnDiskReport>,
    /// Quotas of the site, by zone; absent where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaReport>,
    /// Entries of the site that left the cache.
    pub removed: RemovedReport,
    /// Words about the site in the file of `cache_site_info`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<Words>,
}

/// Entries that left the cache, by reason; slices are not counted.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RemovedReport {
    /// For space.
    pub evicted: u64,
    /// Because nobody asked for them for as long as `inactive`.
    pub inactive: u64,
    /// Purged, invalidated, or to make room for another variant.
    pub purged: u64,
    /// Because a newer answer came.
    pub replaced: u64,
    /// Because their bytes were not what was written.
    pub corrupt: u64,
    /// Because the disk refused to write them.
    pub lost: u64,
}

/// Exchanges with origins.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct OriginReport {
    /// Number of requests.
    pub requests: u64,
    /// Bytes that were received, heads included.
    pub received: u64,
    /// Bytes that were sent.
    pub sent: u64,
}

/// A zone.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ZoneReport {
    /// Name of the zone.
    pub name: String,
    /// Directory of the zone.
    pub path: String,
    /// True if a process serves from the zone.
    pub is_running: bool,
    /// Entries and slices in the index.
    pub records: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of them that entries take; the rest is space that is not used yet, or not again.
    pub live_bytes: u64,
    /// The most that they may have.
    pub max_size: Option<u64>,
    /// Bytes of memory that the index takes.
    pub index_bytes: u64,
    /// Purges that are not swept yet.
    pub purges: u64,
    /// After so many seconds unused entries go.
    pub inactive: u64,
    /// Disks of the zone, in the order of the configuration.
    pub disks: Vec<DiskReport>,
    /// Counts that only a running process has.
    pub live: Option<LiveReport>,
}

/// A disk of a zone.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DiskReport {
    /// Directory of the disk.
    pub path: String,
    /// Share of the keys that the disk gets, relative to the others.
    pub weight: u32,
    /// `live`, `full` or `failed`.
    pub state: String,
    /// The reason why it was given up; empty if it was not.
    pub why: String,
    /// Number of times that the disk was given up.
    pub failures: u64,
    /// Entries and slices on it.
    pub records: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes of them that entries take.
    pub live_bytes: u64,
    /// The most that they may have.
    pub max_size: Option<u64>,
    /// Reads that it refused.
    pub read_errors: u64,
    /// Segments that it did not give at the start.
    pub unread_segments: u64,
    /// Standing of the disk's scrub; none if there is none.
    pub scrub: Option<ScrubReport>,
}

/// Standing of the scrub of a disk.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct ScrubReport {
    /// Seconds between the beginnings of two passes.
    pub every: u64,
    /// True if a pass runs.
    pub is_running: bool,
    /// Begin of the pass that runs, or ran last; seconds since 1970, 0: never.
    pub began: u64,
    /// Entries that it has compared.
    pub entries: u64,
    /// Entries that there were.
    pub all_entries: u64,
    /// Bytes that it has read.
    pub bytes: u64,
    /// End of the last pass that compared everything; 0: never.
    pub ended: u64,
    /// Such passes since the disk was opened.
    pub passes: u64,
    /// Entries that were corrupt, and are gone.
    pub corrupt: u64,
    /// Entries that the disk did not give.
    pub unread: u64,
}

/// All zones.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ZonesReport {
    /// Zones, in the order of the configuration.
    pub zones: Vec<ZoneReport>,
}

/// The disks of all zones.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DisksReport {
    /// Disks by zone, in the order of the configuration.
    pub disks: Vec<ZoneDiskReport>,
}

/// A disk and its zone.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ZoneDiskReport {
    /// The zone.
    pub zone: String,
    /// The disk.
    #[serde(flatten)]
    pub disk: DiskReport,
}

/// Fills that run, of entries that are not there, or stale.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FillsReport {
    /// Fills, at most a thousand of each zone, in no order.
    pub fills: Vec<FillReport>,
}

/// A fill that runs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FillReport {
    /// The zone.
    pub zone: String,
    /// The cache key.
    pub key: String,
    /// The site that the entry will belong to; none before the origin has answered.
    pub site: Option<String>,
    /// The host that it is filled for; the same.
    pub host: Option<String>,
    /// Status of the answer; the same.
    pub status: Option<u16>,
    /// Bytes of the body that came.
    pub received: u64,
    /// Length of the body, when the origin announced it.
    pub length: Option<u64>,
    /// Number of requests besides the first that wait for the fill or have read along.
    pub followers: u32,
    /// Begin of the fill, seconds since 1970.
    pub since: i64,
    /// For how many milliseconds nothing came.
    pub idle_ms: u64,
}

/// The last purges, a hundred of each zone at most, since the process opened it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PurgesReport {
    /// Purges, the newest first.
    pub purges: Vec<RecentPurgeReport>,
}

/// A purge that was acknowledged.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RecentPurgeReport {
    /// The zone.
    pub zone: String,
    /// Time of the purge, seconds since 1970.
    pub at: i64,
    /// Kind of the purge, in a word.
    pub kind: String,
    /// In full, as far as it is kept.
    pub what: String,
    /// `hard` or `soft`.
    pub mode: String,
    /// Number of the purge.
    pub number: u64,
}

/// Counts of a process since it opened the zone.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct LiveReport {
    /// Bytes in the memory tier.
    pub memory_bytes: u64,
    /// The most that it may have.
    pub memory_limit: u64,
    /// Bytes that wait for the disk.
    pub queued_bytes: u64,
    /// Entries removed for space.
    pub evicted: u64,
    /// Entries removed because nobody used them.
    pub inactive_removed: u64,
    /// Entries removed because their bytes were not what was written.
    pub corrupt: u64,
    /// Entries lost because the disk refused to write or to sync them.
    pub lost: u64,
    /// Fills that the zone did not take, at their beginning or on the way.
    pub not_stored: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Written bytes that were written again to keep what is in use.
    pub rewritten_bytes: u64,
    /// Writes and syncs that the disk refused.
    pub write_errors: u64,
    /// Segments of which a sync failed, so that they were let go with all that they held.
    pub lost_segments: u64,
}

/// An entry.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct EntryReport {
    /// Zone of the entry.
    pub zone: String,
    /// Name of the entry in the store, 32 hexadecimal digits.
    pub id: String,
    /// Cache key of the entry.
    pub key: String,
    /// The site that it belongs to.
    pub site: String,
    /// The host that it was filled for.
    pub host: String,
    /// Tags that the entry can be purged by.
    pub tags: Vec<String>,
    /// Status of the answer.
    pub status: u16,
    /// Length of the whole body.
    pub length: u64,
    /// Bytes of it that are stored.
    pub held: u64,
    /// Time when the entry was stored or last found unchanged.
    pub stored: i64,
    /// Until when it is fresh, inclusive.
    pub fresh_until: i64,
    /// True if the entry is fresh now.
    pub is_fresh: bool,
    /// Time of the last use.
    pub used: i64,
    /// Number of times that the entry was found since it was written, as far as that is counted.
    pub hits: u64,
    /// Content-Type of the entry as the origin wrote it; empty without one.
    #[serde(default)]
    pub content_type: String,
    /// URL at which the entry is fetched from the cache, as far as host and key tell:
    /// `//host/path`, with the scheme if that is in the key.
    #[serde(default)]
    pub url: Option<String>,
    /// Slices of the body, if it is kept in slices.
    #[serde(default)]
    pub slices: Option<SlicesReport>,
    /// The fields of requests that it varies by, and what this one is for.
    pub variant: Option<VariantReport>,
    /// More, for who asks for it.
    pub detail: Option<Box<DetailReport>>,
}

/// The slices of a body.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct SlicesReport {
    /// Bytes of each but the last.
    pub size: u64,
    /// Number of slices of the whole body.
    pub all: u64,
    /// Number of slices that are stored.
    pub held: u64,
}

/// One of several answers under a key.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct VariantReport {
    /// Names of the fields.
    pub vary: String,
    /// Values of these fields in the request that the variant was filled for: `name: value`, apart
    /// by `; `; `-` for a field that it did not have.
    pub values: String,
}

/// All that is known of an entry.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DetailReport {
    /// Age of the entry, seconds; the age that it had when it came is part of that.
    pub age: u64,
    /// For how many seconds after `fresh_until` it may be served while it is updated.
    pub stale_while_revalidate: u32,
    /// For how many it may be served when the origin fails.
    pub stale_if_error: u32,
    /// True if the entry is never served without validation.
    pub must_validate: bool,
    /// True if the entry is never served stale.
    pub never_stale: bool,
    /// Fields of the answer.
    pub fields: Vec<(String, String)>,
    /// The directory that its record is in.
    pub dir: String,
    /// The segment.
    pub segment: u32,
    /// Bytes of that record.
    pub record_bytes: u64,
    /// Bytes of a slice, if the body is kept in slices.
    pub slice_size: Option<u64>,
    /// Ranges of the body that are stored: first and behind the last, at most [`RANGES_MAX`].
    pub ranges: Vec<(u64, u64)>,
    /// True if there are more ranges.
    pub has_more_ranges: bool,
}

/// Ranges that are told of one entry; a list for people, and no more than a line of JSON can bear.
pub const RANGES_MAX: usize = 1000;

/// A line of a long answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// An entry.
    Entry(Box<EntryReport>),
    /// Progress of the answer.
    Progress(ProgressReport),
    /// A record that is not what was written.
    Corrupt(DamageReport),
    /// A record that the disk does not give.
    Unread(DamageReport),
    /// The end; an answer without it is not whole.
    End(EndReport),
}

/// Progress of a long answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ProgressReport {
    /// Records that were looked at.
    pub done: u64,
    /// Records that there were when it began.
    pub all: u64,
    /// Bytes of bodies that were compared with their checksums.
    pub bytes: u64,
}

/// A record that cannot be used.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DamageReport {
    /// Zone of the record.
    pub zone: String,
    /// Name of the record's entry in the store.
    pub id: String,
    /// The cache key, if the head can be read.
    pub key: Option<String>,
    /// True if the record was removed.
    pub is_removed: bool,
}

/// Result of a long answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct EndReport {
    /// Records that were looked at.
    pub records: u64,
    /// Entries that were listed.
    pub listed: u64,
    /// Bytes of bodies that were compared with their checksums.
    pub bytes: u64,
    /// Records that are not what was written.
    pub corrupt: u64,
    /// Records that the disk did not give.
    pub unread: u64,
    /// True if all records were looked at.
    pub is_complete: bool,
}

/// Several entries.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct EntriesReport {
    /// Entries of the answer.
    pub entries: Vec<EntryReport>,
}

/// A purge.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PurgeReport {
    /// The zone.
    pub zone: String,
    /// Kind of the purge, in a word.
    pub kind: String,
    /// In full.
    pub what: String,
    /// `hard` or `soft`.
    pub mode: String,
    /// Number of the purge; none for a dry run.
    pub number: Option<u64>,
    /// Entries: for a dry run those that it would be about, for a key 0 or 1; else nobody looked.
    pub entries: Option<u64>,
    /// Nodes of the zone's fleet that obey it: `local` (this one), `acknowledged` (all after
    /// `max_lag` at the latest), `everywhere`; none where the zone has no fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// The reason why no other node is known to obey it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The reason why something was not done.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ProblemReport {
    /// For people.
    pub error: String,
}

/// An answer that says why not.
pub(crate) fn problem(status: u16, error: impl Into<String>) -> Answer {
    let error = error.into();
    json(status, &ProblemReport { error })
}

/// An answer of one object.
pub(super) fn json(status: u16, report: &impl Serialize) -> Answer {
    let mut text = line(report);
    text.push('\n');
    Answer {
        status,
        body: Body::Json(text),
    }
}

/// A report as one line.
pub(crate) fn line(report: &impl Serialize) -> String {
    // Maps have texts for keys and no type refuses to be written, so there is no error.
    serde_json::to_string(report).unwrap_or_default()
}

/// A disk.
pub(super) fn disk(disk: &DiskUsage) -> DiskReport {
    DiskReport {
        path: disk.path.display().to_string(),
        weight: disk.weight,
        state: match disk.state {
            DiskState::Live => "live",
            DiskState::Full => "full",
            DiskState::Failed => "failed",
        }
        .to_string(),
        why: disk.why.clone(),
        failures: disk.failures,
        records: disk.usage.entries,
        bytes: disk.usage.bytes,
        live_bytes: disk.usage.live_bytes,
        max_size: disk.usage.max_size,
        read_errors: disk.usage.read_errors,
        unread_segments: disk.usage.unread_segments,
        scrub: (!disk.scrub.every.is_zero()).then(|| scrub(&disk.scrub)),
    }
}

fn scrub(scrub: &Scrub) -> ScrubReport {
    ScrubReport {
        every: scrub.every.as_secs(),
        is_running: scrub.is_running,
        began: scrub.began_ms / 1000,
        entries: scrub.progress.entries,
        all_entries: scrub.progress.all_entries,
        bytes: scrub.progress.bytes,
        ended: scrub.ended_ms / 1000,
        passes: scrub.passes,
        corrupt: scrub.corrupt,
        unread: scrub.unread,
    }
}

/// A fill.
pub(super) fn fill(zone: &str, fill: &FillSummary, now_ms: i64) -> FillReport {
    let tags = fill.tags.as_deref();
    let age_ms = i64::try_from(fill.age.as_millis()).unwrap_or(i64::MAX);
    FillReport {
        zone: zone.to_string(),
        key: text(&fill.text),
        site: tags.and_then(tag::site).map(text),
        host: tags.and_then(tag::host).map(text),
        status: fill.status,
        received: fill.received,
        length: fill.length,
        followers: fill.followers,
        since: now_ms.saturating_sub(age_ms).div_euclid(1000),
        idle_ms: u64::try_from(fill.idle.as_millis()).unwrap_or(u64::MAX),
    }
}

/// A purge.
pub(super) fn recent_purge(zone: &str, purge: &RecentPurge) -> RecentPurgeReport {
    RecentPurgeReport {
        zone: zone.to_string(),
        at: i64::try_from(purge.at_ms / 1000).unwrap_or(i64::MAX),
        kind: purge.kind.to_string(),
        what: text(&purge.what),
        mode: purge.mode.word().to_string(),
        number: purge.serial,
    }
}

/// The counters by status.
pub(super) fn answers(snapshot: &CacheSnapshot) -> BTreeMap<String, CountReport> {
    let counts = snapshot.by_status();
    counts
        .map(|(status, count)| (status.to_string(), of_count(count)))
        .collect()
}

/// A site.
pub(super) fn site(count: &SiteCount, held: HeldBySiteReport) -> SiteReport {
    let some = count.by_status().filter(|(_, count)| count.requests > 0);
    let answers = some.map(|(status, count)| (status.to_string(), of_count(count)));
    let total = count.total();
    SiteReport {
        site: held.site,
        requests: total.requests,
        bytes: total.bytes,
        cache_bytes: count.shares.cache,
        origin_bytes: count.shares.origin,
        answers: answers.collect(),
        origin: OriginReport {
            requests: count.exchanges,
            received: count.received,
            sent: count.asked,
        },
        held: held.held,
        disks: held.disks,
        quotas: held.quotas,
        removed: RemovedReport {
            evicted: count.departed.evicted,
            inactive: count.departed.swept,
            purged: count.departed.removed,
            replaced: count.departed.replaced,
            corrupt: count.departed.corrupt,
            lost: count.departed.lost,
        },
        info: None,
    }
}

fn of_count(count: Count) -> CountReport {
    CountReport {
        requests: count.requests,
        bytes: count.bytes,
    }
}

/// Bytes as a text.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An entry as it is listed.
pub(super) fn entry(zone: &CacheZone, listed: &Listed, now: i64) -> EntryReport {
    let head = &listed.head;
    let variant = (!head.vary.is_empty()).then(|| VariantReport {
        vary: text(&head.vary),
        values: text(&material_text(&head.variant)),
    });
    let slices = head.sliced.map(|set| {
        let size = set.size.max(1);
        SlicesReport {
            size: set.size,
            all: set.total.div_ceil(size),
            // Slices are held whole, and only the last may be shorter.
            held: listed.held.div_ceil(size),
        }
    });
    let host = tag::host(&head.tags).map(text).unwrap_or_default();
    EntryReport {
        zone: zone.name.clone(),
        id: listed.key.to_string(),
        key: text(&head.key),
        site: tag::site(&head.tags).map(text).unwrap_or_default(),
        url: url::url(&head.key, &host),
        host,
        tags: tag::given(&head.tags).map(text).collect(),
        status: head.status,
        length: listed.length(),
        held: listed.held,
        stored: head.stored_at,
        fresh_until: head.valid_until,
        is_fresh: listed.is_fresh(now),
        used: i64::try_from(listed.summary.used_ms / 1000).unwrap_or(i64::MAX),
        hits: catalogue::hits(&listed.summary),
        content_type: text(&listed.content_type()),
        slices,
        variant,
        detail: None,
    }
}

/// Report of an entry with all that is known.
pub(super) fn entry_in_full(zone: &CacheZone, listed: &Listed, now: i64) -> EntryReport {
    let head = &listed.head;
    let mut ranges: Vec<(u64, u64)> = zone
        .held(listed)
        .into_iter()
        .map(|range| (range.start, range.end))
        .collect();
    let has_more_ranges = ranges.len() > RANGES_MAX;
    ranges.truncate(RANGES_MAX);
    let detail = DetailReport {
        age: head.age(now),
        stale_while_revalidate: head.stale_updating,
        stale_if_error: head.stale_error,
        must_validate: head.bounds.must_validate,
        never_stale: head.bounds.never_stale,
        fields: head
            .fields()
            .map(|(name, value)| (text(name), text(value)))
            .collect(),
        dir: listed.dir.display().to_string(),
        segment: listed.segment,
        record_bytes: listed.summary.record_size,
        slice_size: head.sliced.map(|set| set.size),
        ranges,
        has_more_ranges,
    };
    EntryReport {
        detail: Some(Box::new(detail)),
        ..entry(zone, listed, now)
    }
}
