//! The URLs that were asked for most of late and were not in the cache, again and again: what was
//! missing once is only new.
//!
//! Each worker has a sketch of `SKETCH_LEN` URLs (Space-Saving of Metwally, Agrawal and El
//! Abbadi): a URL that is in it is counted; another takes the place of the rarest one, and with it
//! that one's count, as far as it may have been counted itself.
//!
//! Invariants:
//! 1. `count - excess` misses of a URL were certainly seen since it came into the sketch, less what
//!    was forgotten.
//! 2. A sketch takes some tens of kilobytes, however many URLs there are.
//! 3. It is touched by misses only, and its lock is taken by one worker and by who reads it.
//!
//! What it does not do: counting exactly. Every `HALVE_AFTER` misses all counts of a worker are
//! halved, so that what was missing an hour ago goes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// URLs that a worker remembers (arbitrary: a page shows a dozen, and the sketch is exact for what
/// is more than one in so many misses).
const SKETCH_LEN: usize = 128;
/// Sketches; more workers than that share some, which is right but slower.
const SHARDS: usize = 16;
/// Misses between two halvings (arbitrary: a minute of a busy worker).
const HALVE_AFTER: u64 = 8192;
/// Bytes of a URL that are kept; those that differ only behind that count as one.
const URL_LEN_MAX: usize = 300;

/// The sketches of all workers.
#[derive(Debug, Default)]
pub struct MissingUrls {
    shards: [Shard; SHARDS],
}

/// One worker's sketch, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Sketch>);

#[derive(Debug, Default)]
struct Sketch {
    /// Hashes of the rows' URLs, in their order: a URL is looked for in one go through them. Those
    /// of rows that are not there yet stand for nothing.
    hashes: Hashes,
    rows: Vec<SketchRow>,
    /// No row was seen less often than that.
    least: u64,
    /// Index at which the search for the next rarest row begins.
    next: usize,
    /// Misses since the last halving.
    since_halved: u64,
    /// All misses, halved as the counts are.
    all: u64,
}

#[derive(Debug)]
struct SketchRow {
    url: Vec<u8>,
    count: u64,
    excess: u64,
}

/// A URL that was missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingUrl {
    /// Host, path and query.
    pub url: Bytes,
    /// Misses that were certainly seen of late.
    pub at_least: u64,
}

/// URLs that were missing most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingTop {
    /// The URLs, most missed first.
    pub urls: Vec<MissingUrl>,
    /// Misses of late, of all URLs.
    pub all: u64,
}

impl MissingUrls {
    /// Counts a miss of a worker.
    pub fn record(&self, worker: usize, host: &[u8], uri: &[u8]) {
        let Some(shard) = self.shards.get(worker % SHARDS) else {
            return;
        };
        let host = host.get(..URL_LEN_MAX).unwrap_or(host);
        let uri = uri.get(..URL_LEN_MAX - host.len()).unwrap_or(uri);
        let mut sketch = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
        sketch.record(host, uri);
    }

    /// The URLs that were missing most, each more than once.
    pub fn top(&self, count: usize) -> MissingTop {
        let mut sums = HashMap::<Bytes, u64>::new();
        let mut all = 0;
        for shard in &self.shards {
            let sketch = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            all += sketch.all;
            for row in &sketch.rows {
                let sure = row.count.saturating_sub(row.excess);
                *sums.entry(Bytes::copy_from_slice(&row.url)).or_default() += sure;
            }
        }
        let mut urls: Vec<MissingUrl> = sums
            .into_iter()
            .map(|(url, at_least)| MissingUrl { url, at_least })
            .filter(|it| it.at_least > 1)
            .collect();
        urls.sort_by(|a, b| b.at_least.cmp(&a.at_least).then(a.url.cmp(&b.url)));
        urls.truncate(count);
        MissingTop { urls, all }
    }
}

impl SketchRow {
    /// True if the row is of the URL of these two parts.
    fn is_of(&self, host: &[u8], uri: &[u8]) -> bool {
        self.url.strip_prefix(host) == Some(uri)
    }
}

impl Sketch {
    fn record(&mut self, host: &[u8], uri: &[u8]) {
        self.all += 1;
        self.since_halved += 1;
        let hash = hash(host, uri);
        // Two URLs of one hash share a row in turn, as if the other were not there.
        let place = self.hashes.find(hash);
        match place.and_then(|place| self.rows.get_mut(place)) {
            Some(row) if row.is_of(host, uri) => row.count += 1,
            _ => self.enter(hash, host, uri),
        }
        if self.since_halved >= HALVE_AFTER {
            self.halve();
        }
    }

    fn enter(&mut self, hash: u32, host: &[u8], uri: &[u8]) {
        if self.rows.len() < SKETCH_LEN {
            self.hashes.set(self.rows.len(), hash);
            self.rows.push(SketchRow {
                url: [host, uri].concat(),
                count: 1,
                excess: 0,
            });
            return;
        }
        let place = self.rarest();
        let Some(row) = self.rows.get_mut(place) else {
            return;
        };
        self.hashes.set(place, hash);
        row.url.clear();
        row.url.extend_from_slice(host);
        row.url.extend_from_slice(uri);
        row.excess = row.count;
        row.count += 1;
    }

    /// The place of a row that was seen as seldom as any. Counts only grow between two halvings, so
    /// that all rows are gone through once for each step of the least.
    fn rarest(&mut self) -> usize {
        let from = self.next;
        let mut rows = self.rows.iter().skip(from);
        let place = match rows.position(|row| row.count <= self.least) {
            Some(further) => from + further,
            None => {
                let rows = self.rows.iter().enumerate();
                let rarest = rows.min_by_key(|(_, row)| row.count);
                self.least = rarest.map_or(0, |(_, row)| row.count);
                rarest.map_or(0, |(place, _)| place)
            }
        };
        self.next = place + 1;
        place
    }

    fn halve(&mut self) {
        self.since_halved = 0;
        self.all /= 2;
        self.least /= 2;
        self.next = 0;
        for row in &mut self.rows {
            row.count /= 2;
            row.excess /= 2;
        }
    }
}

/// Hashes that are compared together: as many as make a few vectors.
const BLOCK: usize = 16;

/// The hashes of a sketch.
#[derive(Debug)]
struct Hashes([[u32; BLOCK]; SKETCH_LEN / BLOCK]);

impl Default for Hashes {
    fn default() -> Self {
        Hashes([[0; BLOCK]; SKETCH_LEN / BLOCK])
    }
}

impl Hashes {
    /// The first place of a hash. All of a block are compared before one is looked at more closely,
    /// which takes less than to stop at each.
    fn find(&self, hash: u32) -> Option<usize> {
        let has = |block: &[u32; BLOCK]| block.iter().fold(false, |any, it| any | (*it == hash));
        let (at, block) = self.0.iter().enumerate().find(|(_, block)| has(block))?;
        let within = block.iter().position(|other| *other == hash)?;
        Some(at * BLOCK + within)
    }

    fn set(&mut self, place: usize, hash: u32) {
        let block = self.0.get_mut(place / BLOCK);
        if let Some(old) = block.and_then(|block| block.get_mut(place % BLOCK)) {
            *old = hash;
        }
    }
}

/// FNV-1a over words: who makes two URLs of one hash gains nothing but a wrong count of them.
fn hash(host: &[u8], uri: &[u8]) -> u32 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ host.len() as u64;
    let mut add = |word: u64| {
        hash = (hash ^ word).wrapping_mul(PRIME);
        hash ^= hash >> 29;
    };
    for part in [host, uri] {
        let (words, rest) = part.as_chunks::<8>();
        words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| add(u64::from(*byte)));
    }
    // The upper half depends on all of it.
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(top: &MissingTop) -> Vec<&[u8]> {
        top.urls.iter().map(|it| it.url.as_ref()).collect()
    }

    #[test]
    fn workers_are_summed_and_the_most_missed_is_first() {
        let missing = MissingUrls::default();
        for (worker, uri, times) in [(0, "/a", 2), (1, "/a", 3), (1, "/b", 4), (17, "/c", 2)] {
            for _ in 0..times {
                missing.record(worker, b"x", uri.as_bytes());
            }
        }
        let top = missing.top(2);
        assert_eq!(names(&top), [b"x/a", b"x/b"]);
        assert_eq!((top.all, top.urls.first().unwrap().at_least), (11, 5));
    }

    #[test]
    fn a_frequent_url_is_found_among_many_seldom_ones() {
        let missing = MissingUrls::default();
        for turn in 0..5000 {
            missing.record(0, b"x", format!("/{turn}").as_bytes());
            if turn % 20 == 0 {
                missing.record(0, b"x", b"/often");
            }
        }
        let top = missing.top(3);
        let first = top.urls.first().unwrap();
        assert_eq!(first.url, "x/often");
        assert!((200..=250).contains(&first.at_least), "{first:?}");
        // INVARIANT 1: those that were missing once are not said to have been so more often.
        assert_eq!(top.urls.len(), 1);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let missing = MissingUrls::default();
        for _ in 0..1000 {
            missing.record(0, b"x", b"/old");
        }
        for turn in 0..20 * HALVE_AFTER {
            missing.record(0, b"x", if turn % 2 == 0 { b"/new" } else { b"/too" });
        }
        assert_eq!(names(&missing.top(9)), [b"x/new", b"x/too"]);
    }

    #[test]
    fn long_urls_are_cut() {
        let missing = MissingUrls::default();
        for _ in 0..2 {
            missing.record(0, &[b'h'; 200], &[b'u'; 20_000]);
        }
        let top = missing.top(1);
        assert_eq!(top.urls.first().unwrap().url.len(), URL_LEN_MAX);
    }
}
