//! `proxy_cache_max_variants`: how many answers may be stored under one key, by their Vary.
//!
//! Whoever chooses the values of the fields that Vary names chooses how many answers a key has. For
//! each key with several there is a list of those besides the first. One that is too many takes the
//! place of the one that was not used for longest; if all others are being fetched at the moment,
//! it is passed on unstored. Either is counted.
//!
//! 1. No list is longer than the policy allows.
//! 2. All lists together are bounded: beyond that they start over, which makes the bound of a key
//!    late and costs no answer.
//! 3. A list belongs to one seed (`variant.rs`). When the seed is another, the variants of the old
//!    one cannot be found any more, and are removed.
//! 4. No lock is held while the store is asked.
//!
//! Lists are not kept over a restart: variants that were stored before are not counted. They go
//! when they are not used, or with the first entry.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond_conf::value::{FromWord, WordError};
use millpond_conf::{ParseContext, Word};
use millpond_store::Key;

use crate::variant::VariantKey;

/// Lists and variants in them, of a zone (arbitrary: some ten megabytes).
const LISTED_MAX: usize = 256 * 1024;

/// The most that may be configured (arbitrary: a list is looked through when it is full).
const COUNT_MAX: u32 = 1024;

/// Number of answers that a key may have.
#[derive(Clone, Debug, millpond_conf::Family)]
#[family(http, server, location, protocols)]
pub struct MaxVariantsPolicy {
    /// The number of answers that are stored under one cache key at a time because their Vary tells
    /// them apart. A further one takes the place of the one that was not used for longest; when it
    /// is 1, only the first is stored, and others are passed on.
    ///
    /// # Differs from nginx
    ///
    /// nginx stores as many as clients ask for.
    #[directive(name = "proxy_cache_max_variants", default = "64")]
    pub max: VariantCount,
}

/// A number of variants, from 1 to 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariantCount(pub u32);

impl FromWord for VariantCount {
    const SYNTAX: &'static str = "number";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<Self, WordError> {
        let count = u32::from_word(word, cx)?;
        if (1..=COUNT_MAX).contains(&count) {
            return Ok(VariantCount(count));
        }
        let message = format!("a number of variants is from 1 to {COUNT_MAX}");
        Err(WordError::Message(message))
    }
}

/// State of an entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The entry is stored, and was last used then.
    Used(u32),
    /// The entry is being fetched.
    Running,
    /// The entry is not there any more.
    Gone,
}

/// Decision about a variant that is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The variant is stored, and these are to be removed.
    Yes(Vec<Key>),
    /// The list is full, and none can go.
    No,
}

/// The lists of a zone.
#[derive(Debug, Default)]
pub struct Variants {
    lists: Mutex<Lists>,
    excess: AtomicU64,
}

#[derive(Debug, Default)]
struct Lists {
    by_first: HashMap<Key, List>,
    /// Number of variants in all lists.
    count: usize,
}

/// The variants of a key besides the first.
#[derive(Debug)]
struct List {
    seed: u64,
    keys: Vec<Key>,
}

impl Variants {
    /// Notes that a variant besides the first, `own`, is stored for the key `first`; `standing`
    /// tells how the others are.
    pub fn admit(
        &self,
        first: &Key,
        own: &VariantKey,
        policy: &MaxVariantsPolicy,
        standing: impl Fn(&Key) -> Standing,
    ) -> Admitted {
        // The first is one of them.
        let room = policy.max.0.saturating_sub(1) as usize;
        let mut lists = self.lists();
        let unreachable = lists.begin(first, own.seed);
        if lists.add(first, own, room) {
            return Admitted::Yes(unreachable);
        }
        let others = lists.keys(first);
        drop(lists);
        self.excess_or_gone(first, own, (room, Others::of(others, standing)))
    }

    /// Number of times that there was one variant too many.
    pub fn excess(&self) -> u64 {
        self.excess.load(Ordering::Relaxed)
    }

    /// Makes room in a list that was full, from what is known of it meanwhile.
    fn excess_or_gone(
        &self,
        first: &Key,
        own: &VariantKey,
        (room, others): (usize, Others),
    ) -> Admitted {
        let mut lists = self.lists();
        let mut removed = lists.begin(first, own.seed);
        lists.drop_keys(first, &others.gone);
        if lists.add(first, own, room) {
            return Admitted::Yes(removed);
        }
        self.excess.fetch_add(1, Ordering::Relaxed);
        lists.drop_keys(first, others.oldest.as_slice());
        if !lists.add(first, own, room) {
            return Admitted::No;
        }
        removed.extend(others.oldest);
        Admitted::Yes(removed)
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Facts about the other variants of a full list.
struct Others {
    gone: Vec<Key>,
    /// Variant that was not used for longest.
    oldest: Option<Key>,
}

impl Others {
    fn of(keys: Vec<Key>, standing: impl Fn(&Key) -> Standing) -> Others {
        let mut gone = Vec::new();
        let mut oldest: Option<(u32, Key)> = None;
        for key in keys {
            match standing(&key) {
                Standing::Gone => gone.push(key),
                Standing::Used(when) if oldest.is_none_or(|(used, _)| when < used) => {
                    oldest = Some((when, key));
                }
                Standing::Used(_) | Standing::Running => {}
            }
        }
        let oldest = oldest.map(|(_, key)| key);
        Others { gone, oldest }
    }
}

impl Lists {
    /// Begins the list of a key for the seed, if it has another one; returns the keys of that other
    /// list.
    fn begin(&mut self, first: &Key, seed: u64) -> Vec<Key> {
        if self.count + self.by_first.len() >= LISTED_MAX {
            self.by_first.clear();
            self.count = 0;
        }
        let list = self.by_first.entry(*first).or_insert(List {
            seed,
            keys: Vec::new(),
        });
        if list.seed == seed {
            return Vec::new();
        }
        list.seed = seed;
        self.count -= list.keys.len();
        std::mem::take(&mut list.keys)
    }

    /// Adds a variant unless it is listed; false if the list has no room for it.
    fn add(&mut self, first: &Key, own: &VariantKey, room: usize) -> bool {
        let Some(list) = self.by_first.get_mut(first) else {
            return false;
        };
        if list.keys.contains(&own.key) {
            return true;
        }
        if list.keys.len() >= room {
            return false;
        }
        list.keys.push(own.key);
        self.count += 1;
        true
    }

    fn keys(&self, first: &Key) -> Vec<Key> {
        let list = self.by_first.get(first);
        list.map(|list| list.keys.clone()).unwrap_or_default()
    }

    fn drop_keys(&mut self, first: &Key, keys: &[Key]) {
        if let Some(list) = self.by_first.get_mut(first) {
            let before = list.keys.len();
            list.keys.retain(|key| !keys.contains(key));
            self.count -= before - list.keys.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(name: &str, seed: u64) -> VariantKey {
        VariantKey {
            key: Key::of(name.as_bytes()),
            seed,
        }
    }

    fn key(name: &str) -> Key {
        Key::of(name.as_bytes())
    }

    fn policy(max: u32) -> MaxVariantsPolicy {
        MaxVariantsPolicy {
            max: VariantCount(max),
        }
    }

    #[test]
    fn one_too_many_takes_the_place_of_that_not_used_for_longest() {
        let variants = Variants::default();
        let first = key("first");
        let used = |other: &Key| {
            let times = [("a", 5), ("b", 3), ("c", 4)];
            let time = times.iter().find(|(name, _)| key(name) == *other);
            time.map_or(Standing::Gone, |(_, time)| Standing::Used(*time))
        };
        let admit = |name| variants.admit(&first, &own(name, 1), &policy(4), used);
        for name in ["a", "b", "c", "b"] {
            assert_eq!(admit(name), Admitted::Yes(vec![]), "{name}");
        }
        assert_eq!(admit("d"), Admitted::Yes(vec![key("b")]));
        assert_eq!(variants.excess(), 1);
        // What went by itself makes room, and is no excess.
        assert_eq!(admit("e"), Admitted::Yes(vec![]));
        assert_eq!(variants.excess(), 1);
    }

    #[test]
    fn those_that_are_being_fetched_are_not_replaced() {
        let variants = Variants::default();
        let first = key("first");
        let running = |_: &Key| Standing::Running;
        let admit = |name| variants.admit(&first, &own(name, 1), &policy(2), running);
        assert_eq!(admit("a"), Admitted::Yes(vec![]));
        assert_eq!(admit("b"), Admitted::No);
        assert_eq!(admit("a"), Admitted::Yes(vec![]));
        assert_eq!(variants.excess(), 1);
        let none = variants.admit(&key("other"), &own("x", 1), &policy(1), running);
        assert_eq!(none, Admitted::No);
    }

    #[test]
    fn variants_of_an_old_seed_are_removed() {
        let variants = Variants::default();
        let first = key("first");
        let gone = |_: &Key| Standing::Gone;
        for name in ["a", "b"] {
            variants.admit(&first, &own(name, 1), &policy(9), gone);
        }
        let admitted = variants.admit(&first, &own("c", 2), &policy(9), gone);
        assert_eq!(admitted, Admitted::Yes(vec![key("a"), key("b")]));
        assert_eq!(variants.lists().count, 1);
    }

    #[test]
    fn all_lists_together_are_bounded() {
        let variants = Variants::default();
        let gone = |_: &Key| Standing::Gone;
        for number in 0..LISTED_MAX + 10 {
            let name = number.to_string();
            variants.admit(&key(&name), &own(&name, 1), &policy(9), gone);
        }
        let lists = variants.lists();
        assert!(lists.count <= LISTED_MAX / 2 && lists.by_first.len() <= LISTED_MAX / 2);
    }
}
