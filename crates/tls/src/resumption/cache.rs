//! `ssl_session_cache`: sessions in memory, shared by all threads, and by all servers that name
//! the same zone, over reloads.
//!
//! Sessions stand in shards by their identifier, each under a lock of its own, in the order in
//! which they came. A shard that is full forgets its oldest.
//!
//! 1. No more than the given bytes are kept, each session counted with what its place takes.
//! 2. A session is not found after its timeout, which its context decides; what is behind it is
//!    forgotten when there is need of room, or in passing.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zeroize::Zeroizing;

use crate::scope::SessionId;

/// Locks: more than there are workers on most machines, so that they seldom meet.
const SHARDS: usize = 16;

/// Bytes of a session beside its value: its places in the table and in the sequence.
const PLACE_BYTES: usize = 128;

/// Sessions at the front of the sequence that are looked at in passing.
const SWEPT_EACH: usize = 2;

/// Sessions in memory.
pub struct SessionCache {
    shards: [Mutex<Shard>; SHARDS],
    shard_bytes: usize,
}

#[derive(Default)]
struct Shard {
    sessions: HashMap<SessionId, Entry>,
    /// In the order in which they came.
    sequence: BTreeMap<u64, SessionId>,
    bytes: usize,
    next: u64,
}

/// A session, whose value has the secret of its connections.
struct Entry {
    value: Zeroizing<Vec<u8>>,
    until: u64,
    number: u64,
}

impl SessionCache {
    /// A cache of no more than `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self {
            shards: Default::default(),
            shard_bytes: bytes / SHARDS,
        }
    }

    /// Sessions that are kept, those past their time included.
    pub fn count(&self) -> usize {
        let counts = self.shards.iter().map(|shard| lock(shard).sessions.len());
        counts.sum()
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).bytes).sum()
    }

    /// Keeps a session until a time, given the time that it is.
    pub(super) fn put(&self, id: SessionId, value: Zeroizing<Vec<u8>>, (now, until): (u64, u64)) {
        let mut shard = self.shard(&id);
        let bytes = value.len() + PLACE_BYTES;
        if bytes > self.shard_bytes {
            return;
        }
        shard.remove(&id);
        shard.sweep(now);
        while shard.bytes + bytes > self.shard_bytes {
            shard.remove_oldest();
        }
        shard.insert(id, value, until);
    }

    pub(super) fn get(&self, id: &SessionId) -> Option<Zeroizing<Vec<u8>>> {
        self.shard(id)
            .sessions
            .get(id)
            .map(|entry| entry.value.clone())
    }

    pub(super) fn take(&self, id: &SessionId) -> Option<Zeroizing<Vec<u8>>> {
        self.shard(id).remove(id)
    }

    fn shard(&self, id: &SessionId) -> MutexGuard<'_, Shard> {
        lock(&self.shards[usize::from(id[0]) % SHARDS])
    }
}

impl fmt::Debug for SessionCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionCache")
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn insert(&mut self, id: SessionId, value: Zeroizing<Vec<u8>>, until: u64) {
        let number = self.next;
        self.next += 1;
        self.bytes += value.len() + PLACE_BYTES;
        self.sequence.insert(number, id);
        let entry = Entry {
            value,
            until,
            number,
        };
        self.sessions.insert(id, entry);
    }

    fn remove(&mut self, id: &SessionId) -> Option<Zeroizing<Vec<u8>>> {
        let entry = self.sessions.remove(id)?;
        self.sequence.remove(&entry.number);
        self.bytes -= entry.value.len() + PLACE_BYTES;
        Some(entry.value)
    }

    fn remove_oldest(&mut self) {
        if let Some((_, id)) = self.sequence.pop_first() {
            self.remove(&id);
        }
    }

    fn sweep(&mut self, now: u64) {
        for _ in 0..SWEPT_EACH {
            let first = self.sequence.first_key_value().map(|(_, id)| *id);
            let is_past = |id: &SessionId| {
                let entry = self.sessions.get(id);
                entry.is_some_and(|entry| entry.until <= now)
            };
            match first.filter(is_past) {
                Some(id) => self.remove(&id),
                None => return,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> SessionId {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&number.to_be_bytes());
        // All in one shard.
        id.rotate_right(8);
        id
    }

    #[test]
    fn no_more_is_kept_than_bytes_were_given() {
        let cache = SessionCache::new(SHARDS * 10 * (PLACE_BYTES + 100));
        for number in 0..1000 {
            cache.put(id(number), vec![0; 100].into(), (0, 300));
            assert!(cache.bytes() <= 10 * (PLACE_BYTES + 100));
        }
        assert_eq!(cache.count(), 10);
        assert!(cache.get(&id(989)).is_none(), "the oldest went");
        assert!(cache.get(&id(999)).is_some(), "the newest is there");
    }

    #[test]
    fn taken_sessions_leave_nothing() {
        let cache = SessionCache::new(1 << 20);
        for number in 0..1000 {
            cache.put(id(number), vec![0; 100].into(), (0, 300));
            assert!(cache.take(&id(number)).is_some());
            assert!(cache.take(&id(number)).is_none());
        }
        assert_eq!((cache.count(), cache.bytes()), (0, 0));
    }

    #[test]
    fn sessions_past_their_time_are_forgotten_in_passing() {
        let cache = SessionCache::new(1 << 20);
        cache.put(id(1), vec![0; 100].into(), (0, 300));
        cache.put(id(2), vec![0; 100].into(), (299, 599));
        assert_eq!(cache.count(), 2);
        cache.put(id(3), vec![0; 100].into(), (300, 600));
        assert!(cache.get(&id(1)).is_none());
        assert_eq!(cache.count(), 2);
    }
}
