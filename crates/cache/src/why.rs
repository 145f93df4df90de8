//! Knowledge of a zone about one key: what is stored, what comes, and what keeps answers out.
//!
//! It is put together for people who ask why (`millpond why`), from what the machines remember
//! anyway, and from one table more: the last answer of each key that was not stored.
//!
//! 1. Nothing is marked used and nothing changes.
//! 2. What is noted of answers that were not stored is bounded (`recent.rs`), and a hit never looks
//!    at it.
//!
//! It is for a thread that may wait for the disk.

use std::ops::Range;
use std::time::Duration;

use millpond_store::{Key, Looked};

use crate::catalogue::Listed;
use crate::fill::FillProgress;
use crate::head::StoredHead;
use crate::purge::{InForce, Judged, Subject};
use crate::refresh_backoff::RefreshFailure;
use crate::unstored::NotStoredNote;
use crate::zone::CacheZone;

/// Fills that are told of.
const FILLS_MAX: usize = 100;

/// Facts about a key.
#[derive(Clone, Debug)]
pub struct Known {
    /// Stored entries, each variant.
    pub entries: Vec<Listed>,
    /// True if what is stored under the key was purged, and is not swept yet.
    pub is_purged: bool,
    /// Purges in force that are about the key.
    pub purges: Vec<InForce>,
    /// Fills that run.
    pub running: Vec<FillProgress>,
    /// The last answer that was not stored.
    pub unstored: Option<NotStoredNote>,
    /// Time for which nobody waits for another's answer (`proxy_cache_hit_for_pass`).
    pub passes_for: Option<Duration>,
    /// Time for which the origin is left alone, and the reason (`proxy_cache_refresh_backoff`).
    pub backoff: Option<(Duration, RefreshFailure)>,
    /// A failure that is answered without asking: its status.
    pub failure: Option<u16>,
}

impl CacheZone {
    /// All that is known of the key of a text at a time (seconds since the epoch).
    pub fn known(&self, text: &[u8], now: i64) -> Known {
        let key = self.keys().of(text);
        let entries = self.listed(text);
        let raw = self.raw_head(&key).filter(|head| head.key == text);
        let judged = raw.as_ref().map(|head| self.purges.judge(&head.subject()));
        let tags = raw.as_ref().map(|head| head.tags.clone());
        let subject = Subject {
            text,
            tags: tags.as_deref().unwrap_or_default(),
            serial: 0,
        };
        let keys = std::iter::once(key).chain(entries.iter().map(|listed| listed.key));
        let mut keys: Vec<Key> = keys.collect();
        keys.sort_unstable_by_key(|key| key.0);
        keys.dedup();
        let mut running: Vec<FillProgress> = Vec::new();
        for listed in &entries {
            running.extend(self.runs_of(listed));
        }
        running.extend(keys.iter().filter_map(|key| self.fills.running(key, text)));
        running.truncate(FILLS_MAX);
        Known {
            is_purged: judged == Some(Judged::Gone),
            purges: self.purges.about(&subject),
            running,
            unstored: self.unstored.find(&self.mark(&key, text)),
            passes_for: self.unstorable.left(&self.mark(&key, text)),
            backoff: keys
                .iter()
                .find_map(|key| self.backoffs.left(&self.mark(key, text))),
            failure: self.remembered_error(&key, text, now),
            entries,
        }
    }

    /// The head under a key, whether or not it was purged.
    fn raw_head(&self, key: &Key) -> Option<StoredHead> {
        match self.store.glance(key)?.read() {
            Looked::Found(record) => StoredHead::decode(&record.head),
            _ => None,
        }
    }

    fn runs_of(&self, listed: &Listed) -> Vec<FillProgress> {
        let set = listed.head.sliced;
        let generation = set.and_then(|set| self.slices.in_use_of(&set.generation));
        let runs = generation.map(|generation| generation.running());
        let run = |(span, at, readers): (Range<u64>, u64, u32)| FillProgress {
            from: span.start,
            at,
            end: Some(span.end),
            since: None,
            followers: readers,
        };
        runs.into_iter().flatten().map(run).collect()
    }
}
