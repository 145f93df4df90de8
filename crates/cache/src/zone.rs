//! `proxy_cache`, `proxy_cache_path`: which zone a location uses, and what belongs to a zone.
//!
//! A [`CacheZone`] joins what is kept on disk (the store's zone) and what is only in memory: the
//! fills that run, the counts of uses, and remembered failures.
//!
//! 1. What is in memory is bounded, and may be lost: it costs requests to the origin, never a wrong
//!    answer.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use millpond_conf::value::{ArgError, Args, FromArgs, parse_duration};
use millpond_conf::{OffOr, Spanned, Template, Word};
use millpond_store::{
    Admission, Cold, Departures, DiskConf, Entry, Key, Keys, Look, MAX_DISKS, Zone,
};

use crate::admit::Uses;
use crate::copies::Copies;
use crate::encoding::{Dictionaries, Encodings};
use crate::fill::Fills;
use crate::hit_for_pass::Unstorable;
use crate::key_mark::KeyMark;
use crate::max_variants::{Admitted, MaxVariantsPolicy, Standing, Variants};
use crate::no_vary_search::Variations;
use crate::purge::recent::RecentPurges;
use crate::purge::{Judged, PurgeBook, Target};
use crate::refresh_backoff::Backoffs;
use crate::rule_counts::RuleCounts;
use crate::shared_head::SharedHead;
use crate::slice::table::Slices;
use crate::tier_path::{TierParameters, TierPath};
use crate::unstored::LastUnstored;
use crate::variant::{RequestFields, Siblings, VariantKey};
use crate::watch::Watch;

/// Remembered failures of a zone (arbitrary; beyond it they are forgotten, which costs an origin
/// request each).
const ERRORS_MAX: usize = 4096;

/// Zone that is used.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct ZonePolicy {
    /// The zone that answers are stored in; `off` stores none. The name may contain variables.
    #[directive(name = "proxy_cache", default = "off")]
    pub zone: OffOr<Spanned<Template>>,
}

/// A `proxy_cache_path` as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonePath {
    /// The folder.
    pub path: PathBuf,
    /// Further folders, on other disks.
    pub disks: Vec<DiskConf>,
    /// Name of the zone.
    pub name: String,
    /// The most bytes on disk.
    pub max_size: Option<u64>,
    /// Bytes of the disk to leave free.
    pub min_free: u64,
    /// Entries unused for this long are removed.
    pub inactive: Duration,
    /// Bytes of the memory tier, where they are named or shared out ([`share_memory`]).
    pub memory: Option<u64>,
    /// Choice of the entries that are stored once the zone is full.
    pub admission: Admission,
    /// Interval at which all that the zone holds is compared with its checksums.
    pub scrub: Option<Duration>,
    /// Name of the fleet whose purges hold in the zone.
    pub fleet: Option<String>,
    /// Second tier.
    pub tier: Option<TierPath>,
}

/// The least time between two scrubs (arbitrary; only a test wants them so often).
const SCRUB_MIN: Duration = Duration::from_secs(1);

/// The largest weight of a disk (arbitrary; more of a difference than disks have).
const WEIGHT_MAX: u32 = 1000;

/// The most memory of a zone that names none (enough for some fifty thousand bodies of 1 KiB, with
/// what is known of their heads).
const MEMORY_DEFAULT: u64 = 128 << 20;

/// The part of the machine's memory that zones which name none have together: one of so many.
const MEMORY_SHARE: u64 = 8;

/// Gives memory to the zones of a configuration that name none: 128 MiB each, but together no more
/// than an eighth of what the machine has (`machine`, in bytes; `None` if that is not known).
pub fn share_memory(zones: &mut [ZonePath], machine: Option<u64>) {
    let unnamed = zones.iter().filter(|zone| zone.memory.is_none());
    let count = unnamed.count().max(1) as u64;
    let share = machine.map_or(MEMORY_DEFAULT, |bytes| bytes / MEMORY_SHARE / count);
    for zone in zones {
        zone.memory.get_or_insert(share.min(MEMORY_DEFAULT));
    }
}

impl ZonePath {
    /// A zone of which only this is said.
    pub fn new(name: &str, path: &Path) -> Self {
        ZonePath {
            path: path.to_owned(),
            disks: Vec::new(),
            name: name.to_owned(),
            max_size: None,
            min_free: 0,
            inactive: Duration::from_secs(600),
            memory: None,
            admission: Admission::Trial,
            scrub: None,
            fleet: None,
            tier: None,
        }
    }

    /// Bytes of the memory tier; none, as long as there is no word of it.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or(0)
    }

    /// Folders of the zone, all of them.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let others = self.disks.iter().map(|disk| &disk.path);
        std::iter::once(&self.path).chain(others)
    }
}

impl FromArgs for ZonePath {
    const SYNTAX: &'static str = "path keys_zone=name:size [levels=…] [inactive=time] [max_size=size] \
                                  [min_free=size] [memory=size] [disk=path[:weight]] \
                                  [admission=trial|all|second-hit] [scrub=time|off] \
                                  [fleet=name [tier=url [tier_endpoint=url] [tier_region=name] \
                                  [tier_min_hits=number] [tier_min_size=size] \
                                  [tier_min_ttl=time] [tier_queue=size] [tier_timeout=time]]] …";

    fn from_args(args: &mut Args<'_>) -> Result<Self, ArgError> {
        let words = args.at_least(2)?;
        let Some((path, parameters)) = words.split_first() else {
            return Err(ArgError::Count);
        };
        let mut zone = ZonePath::new("", &args.cx.prefix.join(&path.text));
        let mut tier = TierParameters::default();
        for word in parameters {
            match tier.take(&word.text) {
                Some(taken) => taken.map_err(ArgError::other)?,
                None => apply_parameter(&mut zone, word).map_err(ArgError::other)?,
            }
        }
        if zone.name.is_empty() {
            return Err(ArgError::other("it must have the \"keys_zone\" parameter"));
        }
        let fleet = zone.fleet.as_deref();
        zone.tier = tier.settle(fleet).map_err(ArgError::other)?;
        if zone.disks.len() >= MAX_DISKS {
            let message = format!("a zone has at most {MAX_DISKS} disks, its path included");
            return Err(ArgError::other(message));
        }
        for disk in &mut zone.disks {
            disk.path = args.cx.prefix.join(&disk.path);
        }
        Ok(zone)
    }
}

/// Parses one `name=value`; the error is nginx's message.
fn apply_parameter(zone: &mut ZonePath, word: &Word) -> Result<(), String> {
    let text = word.text.as_str();
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("invalid parameter \"{text}\""));
    };
    let size = || {
        millpond_conf::value::parse_offset(value)
            .ok_or_else(|| format!("invalid {name} value \"{text}\""))
    };
    let time = || parse_duration(value).ok_or_else(|| format!("invalid {name} value \"{text}\""));
    match name {
        "keys_zone" => {
            let Some((zone_name, keys)) = value.split_once(':') else {
                return Err(format!("invalid keys zone size \"{text}\""));
            };
            if zone_name.is_empty() {
                return Err(format!("invalid keys zone name \"{text}\""));
            }
            let keys = millpond_conf::value::parse_offset(keys);
            // nginx: a shared zone has at least eight pages.
            if keys.is_none_or(|keys| keys < 8192) {
                return Err(format!("invalid keys zone size \"{text}\""));
            }
            zone.name = zone_name.to_string();
        }
        "levels" => check_levels(value).ok_or_else(|| format!("invalid \"levels\" \"{text}\""))?,
        "inactive" => zone.inactive = time()?,
        "max_size" => zone.max_size = Some(size()?),
        "min_free" => zone.min_free = size()?,
        "memory" => zone.memory = Some(size()?),
        "admission" => {
            zone.admission = match value {
                "trial" => Admission::Trial,
                "all" => Admission::All,
                "second-hit" => Admission::SecondHit,
                _ => return Err(format!("invalid admission value \"{text}\"")),
            }
        }
        "scrub" => {
            zone.scrub = match value {
                "off" => None,
                _ => match time()? {
                    every if every < SCRUB_MIN => {
                        return Err(format!("invalid scrub value \"{text}\""));
                    }
                    every => Some(every),
                },
            }
        }
        "fleet" if !value.is_empty() => zone.fleet = Some(value.to_owned()),
        "disk" => zone
            .disks
            .push(disk(value).ok_or_else(|| format!("invalid disk \"{text}\""))?),
        "use_temp_path" | "purger" if matches!(value, "on" | "off") => {}
        "loader_files" | "manager_files" | "purger_files" if value.parse::<u32>().is_ok() => {}
        "loader_sleep" | "loader_threshold" | "manager_sleep" | "manager_threshold"
        | "purger_sleep" | "purger_threshold" => {
            time()?;
        }
        _ => return Err(format!("invalid parameter \"{text}\"")),
    }
    Ok(())
}

/// A path, with a weight behind a colon if there are only digits behind the last one.
fn disk(value: &str) -> Option<DiskConf> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let (path, weight) = match value.rsplit_once(':') {
        Some((path, weight)) if is_number(weight) => (path, weight.parse().ok()?),
        _ => (value, 1),
    };
    let fits = !path.is_empty() && (1..=WEIGHT_MAX).contains(&weight);
    fits.then(|| DiskConf {
        path: PathBuf::from(path),
        weight,
    })
}

/// One to three levels of one or two digits; they have no meaning for a zone without a file per
/// entry.
fn check_levels(value: &str) -> Option<()> {
    let levels: Vec<&str> = value.split(':').collect();
    let fits = levels.len() <= 3 && levels.iter().all(|level| matches!(*level, "1" | "2"));
    fits.then_some(())
}

/// Zone of a cache: its store, and what runs in it.
pub struct CacheZone {
    /// Name of the zone.
    pub name: String,
    /// Entries.
    pub store: Arc<Zone>,
    /// Purges in force.
    pub purges: Arc<PurgeBook>,
    /// Purges that were acknowledged last.
    pub recent_purges: RecentPurges,
    /// Readers of what happens to its entries.
    pub watch: Arc<Watch>,
    /// Running fills.
    pub fills: Arc<Fills>,
    /// Counts for `proxy_cache_min_uses`.
    pub uses: Uses,
    /// Lists of the variants of keys.
    pub variants: Variants,
    /// Keys whose answers may not be stored.
    pub unstorable: Unstorable,
    /// The last answers that were not stored.
    pub unstored: Arc<LastUnstored>,
    /// Keys whose origin is left alone after a failure.
    pub backoffs: Backoffs,
    /// Bodies in slices that are in use.
    pub slices: Slices,
    /// Arguments of paths that origins do not tell answers apart by.
    pub variations: Variations,
    /// Encodings that are being made, and counts of them.
    pub encodings: Encodings,
    /// Facts about dictionaries that are kept.
    pub dictionaries: Dictionaries,
    /// Requests that a rule beyond ordinary caching has decided.
    pub rule_counts: Arc<RuleCounts>,
    /// Entries that are worth a copy outside of the zone.
    pub copies: Copies,
    errors: Mutex<HashMap<Key, RememberedError>>,
    /// Seeds that were given; each is hashed under keys that the system's random source gave.
    seeds: AtomicU64,
    random: RandomState,
}

impl std::fmt::Debug for CacheZone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheZone")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A failure of the origin that is answered without asking again for a while.
#[derive(Clone, Copy, Debug)]
struct RememberedError {
    status: u16,
    until: i64,
    /// A hash of the key's text under a secret, so that nobody finds a text with the key of
    /// another.
    check: u64,
}

/// A stored answer as it was found.
#[derive(Clone, Debug)]
pub struct FoundEntry {
    /// Key under which the entry is stored.
    pub key: Key,
    /// The entry.
    pub entry: Entry,
    /// Head of the entry.
    pub head: SharedHead,
}

impl FoundEntry {
    /// Length of the body, wherever it is kept.
    pub fn body_len(&self) -> u64 {
        self.head.sliced.map_or(self.entry.len(), |set| set.total)
    }
}

/// Result of a look-up; an entry is boxed where it is kept.
#[derive(Debug)]
pub enum LookedUp<F = Box<FoundEntry>> {
    /// The entry answers the request's variant.
    Found(F),
    /// The zone has no such entry; it would be stored under this key.
    Missing(VariantKey),
    /// The store does not know yet if there is an entry under this key.
    Unread(VariantKey, Unread),
}

impl LookedUp<FoundEntry> {
    pub(crate) fn boxed(self) -> LookedUp {
        match self {
            LookedUp::Found(found) => LookedUp::Found(Box::new(found)),
            LookedUp::Missing(key) => LookedUp::Missing(key),
            LookedUp::Unread(key, unread) => LookedUp::Unread(key, unread),
        }
    }
}

/// An entry that has not been read.
#[derive(Debug)]
pub enum Unread {
    /// The entry's disk is being asked.
    Cold(Cold),
    /// The entry's disk does not answer.
    Stalled,
    /// The disk's entries are being loaded, and there may be one; none if that does not go on.
    /// Nothing can be stored under its key meanwhile.
    Unknown(Option<Cold>),
}

impl CacheZone {
    /// A zone around an open store.
    pub fn new(name: String, store: Arc<Zone>) -> Self {
        let purges = Arc::new(PurgeBook::new(*store.keys()));
        purges.load(&store.take_journal());
        let watch = Watch::new(&name);
        store.tell_departures(Arc::clone(&watch) as Arc<dyn Departures>);
        Self::around(name, store, purges, watch)
    }

    /// Zone with the same store under another name, with fills of its own.
    pub fn renamed(&self, name: String) -> Self {
        let (store, purges) = (Arc::clone(&self.store), Arc::clone(&self.purges));
        Self::around(name, store, purges, Arc::clone(&self.watch))
    }

    fn around(name: String, store: Arc<Zone>, purges: Arc<PurgeBook>, watch: Arc<Watch>) -> Self {
        let unstored = Arc::<LastUnstored>::default();
        CacheZone {
            name,
            store,
            recent_purges: RecentPurges::default(),
            watch,
            fills: Arc::new(Fills::new(Arc::clone(&purges))),
            purges,
            uses: Uses::default(),
            variants: Variants::default(),
            unstorable: Unstorable::default(),
            backoffs: Backoffs::default(),
            slices: Slices::noting(Arc::clone(&unstored)),
            variations: Variations::default(),
            encodings: Encodings::default(),
            dictionaries: Dictionaries::default(),
            rule_counts: Arc::default(),
            copies: Copies::default(),
            unstored,
            errors: Mutex::default(),
            seeds: AtomicU64::new(0),
            random: RandomState::new(),
        }
    }

    /// Keys that make the keys of the zone's entries.
    #[inline]
    pub fn keys(&self) -> &Keys {
        self.store.keys()
    }

    /// The name of what is remembered of a key and its text.
    pub fn mark(&self, key: &Key, text: &[u8]) -> KeyMark {
        KeyMark::of(self.keys(), key, text)
    }

    /// The key of a text.
    pub fn primary(&self, text: Bytes) -> PrimaryKey {
        let key = self.keys().of(&text);
        PrimaryKey { text, key }
    }

    /// Looks an answer up by its key, and by the request's variant when it has several.
    pub fn look_up(&self, primary: &PrimaryKey, fields: &RequestFields<'_>) -> LookedUp {
        let now = self.store.now_s();
        self.seek((&primary.key, &primary.text), fields, now)
            .boxed()
    }

    /// Looks an entry up as [`CacheZone::look_up`] does, for a key and its text, at `now`
    /// (seconds).
    pub(crate) fn seek(
        &self,
        (key, text): (&Key, &[u8]),
        fields: &RequestFields<'_>,
        now: u32,
    ) -> LookedUp<FoundEntry> {
        let first = match self.find(key, text, now) {
            Ok(Some(first)) => first,
            Ok(None) => return LookedUp::Missing(VariantKey::first(*key)),
            Err(unread) => return LookedUp::Unread(VariantKey::first(*key), unread),
        };
        if first.head.vary.is_empty() {
            return LookedUp::Found(first);
        }
        let wanted = fields.variant(&first.head.vary);
        if wanted == first.head.variant {
            return LookedUp::Found(first);
        }
        self.find_variant((key, text), (first.head.seed, &wanted), now)
    }

    /// Looks up the request's variant by siblings that are known from elsewhere, past the entry
    /// under the first key.
    pub fn look_up_variant(
        &self,
        primary: &PrimaryKey,
        siblings: &Siblings,
        fields: &RequestFields<'_>,
    ) -> LookedUp {
        let wanted = fields.variant(&siblings.vary);
        let now = self.store.now_s();
        let primary = (&primary.key, &primary.text[..]);
        self.find_variant(primary, (siblings.seed, &wanted), now)
            .boxed()
    }

    /// Seed that the keys of a key's variants are made with; none if it has no entry, or one for
    /// all, or one that has not been read.
    pub fn seed(&self, primary: &PrimaryKey) -> Option<u64> {
        let now = self.store.now_s();
        let head = self.find(&primary.key, &primary.text, now).ok()??.head;
        (!head.vary.is_empty()).then_some(head.seed)
    }

    /// Notes that a variant besides the first is stored for the key `first`, and removes what makes
    /// room for it; false when it must not be.
    pub fn admit_variant(&self, first: &Key, own: &VariantKey, policy: &MaxVariantsPolicy) -> bool {
        let peeks = self.store.peeks();
        let standing = |key: &Key| match peeks.last_used(key) {
            Some(used) => Standing::Used(used),
            None if self.fills.has(key) => Standing::Running,
            None => Standing::Gone,
        };
        match self.variants.admit(first, own, policy, standing) {
            Admitted::Yes(removed) => {
                for key in &removed {
                    self.store.remove(key);
                }
                true
            }
            Admitted::No => false,
        }
    }

    /// The name of a version of a body in slices that none had before.
    pub fn new_generation(&self) -> [u8; 16] {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&self.new_seed().to_le_bytes());
        name[8..].copy_from_slice(&self.new_seed().to_le_bytes());
        name
    }

    /// A seed that no variants were stored with before.
    pub fn new_seed(&self) -> u64 {
        let count = self.seeds.fetch_add(1, Ordering::Relaxed);
        self.random.hash_one(count).max(1)
    }

    fn find_variant(
        &self,
        (key, text): (&Key, &[u8]),
        (seed, wanted): (u64, &[u8]),
        now: u32,
    ) -> LookedUp<FoundEntry> {
        let looked_up = VariantKey::of(self.keys(), key, (seed, wanted));
        match self.find(&looked_up.key, text, now) {
            Ok(Some(found)) if found.head.variant == wanted => LookedUp::Found(found),
            Ok(_) => LookedUp::Missing(looked_up),
            Err(unread) => LookedUp::Unread(looked_up, unread),
        }
    }

    /// The entry under `key` whose own key text is `text`, unless it was purged; one with another
    /// text is a hash collision, hence a miss.
    fn find(&self, key: &Key, text: &[u8], now: u32) -> Result<Option<FoundEntry>, Unread> {
        match self.store.look_at(key, now) {
            Look::Found(entry) => Ok(self.found(key, entry, text)),
            Look::Missing => Ok(None),
            Look::Cold(cold) => Err(Unread::Cold(cold)),
            Look::Stalled => Err(Unread::Stalled),
            Look::Unknown(cold) => Err(Unread::Unknown(cold)),
        }
    }

    fn found(&self, key: &Key, entry: Entry, text: &[u8]) -> Option<FoundEntry> {
        let mut head = SharedHead::of(&self.store, &entry)?;
        if head.key != text {
            return None;
        }
        match self.purges.judge(&head.subject()) {
            Judged::Untouched => {}
            Judged::Stale { since, .. } => head.change().expire(since),
            Judged::Gone => return None,
        }
        Some(FoundEntry {
            key: *key,
            entry,
            head,
        })
    }

    /// True if a key's text has an entry; one that cannot be read counts, or is not known yet.
    pub(crate) fn has(&self, text: &[u8]) -> bool {
        let now = self.store.now_s();
        !matches!(self.find(&self.keys().of(text), text, now), Ok(None))
    }

    /// The status of a remembered failure; `text` is that of the cache key.
    pub fn remembered_error(&self, key: &Key, text: &[u8], now: i64) -> Option<u16> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors
            .get(key)
            .filter(|error| now <= error.until && error.check == self.random.hash_one(text))
            .map(|error| error.status)
    }

    /// Remembers a failure until `until` (seconds); `text` is that of the cache key.
    pub fn remember_error(&self, key: Key, text: &[u8], (status, until): (u16, i64)) {
        let check = self.random.hash_one(text);
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() >= ERRORS_MAX {
            errors.clear();
        }
        let error = RememberedError {
            status,
            until,
            check,
        };
        errors.insert(key, error);
    }

    /// Forgets the failures that a purge may be about: all, unless it names a key.
    pub(crate) fn forget_errors(&self, target: &Target) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match target {
            Target::Key(text) => {
                let key = self.keys().of(text);
                errors.remove(&key);
                let mark = self.mark(&key, text);
                self.unstorable.forget(&mark);
                self.backoffs.forget(&mark);
            }
            _ => errors.clear(),
        }
    }

    /// Forgets a failure.
    pub fn forget_error(&self, key: &Key) {
        self.errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }
}

/// The text of a key and its hash.
#[derive(Clone, Debug)]
pub struct PrimaryKey {
    /// The text.
    pub text: Bytes,
    /// Hash of the text.
    pub key: Key,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_named_is_shared_out() {
        let shared = |named: &[Option<u64>], machine| {
            let zone = |&memory: &Option<u64>| ZonePath {
                memory,
                ..ZonePath::new("z", Path::new("/z"))
            };
            let mut zones: Vec<ZonePath> = named.iter().map(zone).collect();
            share_memory(&mut zones, machine);
            let memory = zones.into_iter().filter_map(|zone| zone.memory);
            memory.collect::<Vec<u64>>()
        };
        let mib = 1 << 20;
        let plenty = Some(64 << 30);
        assert_eq!(
            shared(&[None, Some(7), None], plenty),
            [128 * mib, 7, 128 * mib]
        );
        assert_eq!(shared(&[None; 4], Some(1 << 30)), [32 * mib; 4]);
        assert_eq!(shared(&[None], None), [128 * mib]);
    }
}
