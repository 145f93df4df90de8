//! Counters of things that have names: status zones, cache zones.
//!
//! A name has a number for the life of the process. Each worker adds to rows of its own, which no
//! other core writes; readers sum them.
//!
//! Invariants:
//! 1. There are at most `NAMES_MAX` names; what belongs to further ones is counted under
//!    `EXCESS`, which is number 0.
//! 2. A number means the same name for ever.
//! 3. A row takes memory only once its worker counts something.

use std::collections::HashMap;
use std::fmt;
use std::sync::{OnceLock, PoisonError, RwLock};

use bytes::Bytes;

/// Names that are told apart (arbitrary: configurations name some dozens).
pub(crate) const NAMES_MAX: usize = 4096;
/// The name under which all further ones are counted.
pub const EXCESS: &[u8] = b"*";
/// Rows of a name; workers beyond that share some, which is right but slower.
const SHARDS: usize = 16;

/// The number of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(u16);

#[derive(Debug)]
struct Names {
    by_name: HashMap<Bytes, Number>,
    count: usize,
}

/// One worker's rows, by number.
type Shard<R> = Box<[OnceLock<Box<R>>]>;

/// Names and their rows.
pub struct Table<R> {
    names: RwLock<Names>,
    shards: [OnceLock<Shard<R>>; SHARDS],
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Table {
            names: RwLock::new(Names {
                by_name: HashMap::from([(Bytes::from_static(EXCESS), Number(0))]),
                count: 1,
            }),
            shards: [const { OnceLock::new() }; SHARDS],
        }
    }
}

impl<R> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

impl<R: Default> Table<R> {
    /// The number of a name, given when it is first asked for; takes a lock, so it is to be kept.
    pub fn number(&self, name: &[u8]) -> Number {
        let known = self.find(name);
        known.unwrap_or_else(|| self.give(name))
    }

    /// The number of a name that has one.
    pub fn find(&self, name: &[u8]) -> Option<Number> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.by_name.get(name).copied()
    }

    fn give(&self, name: &[u8]) -> Number {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.by_name.get(name) {
            return *known;
        }
        // INVARIANT 1.
        let count = names.count;
        let Some(number) = u16::try_from(count).ok().filter(|_| count < NAMES_MAX) else {
            return Number(0);
        };
        names.count += 1;
        let name = Bytes::copy_from_slice(name);
        names.by_name.insert(name, Number(number));
        Number(number)
    }

    /// The row of a worker.
    pub fn row(&self, worker: usize, number: Number) -> Option<&R> {
        let shard = self.shards.get(worker % SHARDS)?;
        let rows = shard.get_or_init(|| (0..NAMES_MAX).map(|_| OnceLock::new()).collect());
        let row = rows.get(usize::from(number.0))?;
        Some(row.get_or_init(Box::default))
    }

    /// The rows of a name, of all workers that counted something.
    pub fn rows(&self, name: &[u8]) -> impl Iterator<Item = &R> {
        let number = self.find(name).map(|number| usize::from(number.0));
        let shards = self.shards.iter().filter_map(OnceLock::get);
        shards.filter_map(move |rows| rows.get(number?)?.get().map(|row| &**row))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn workers_have_rows_of_their_own() {
        let table = Table::<AtomicU64>::default();
        let (one, two) = (table.number(b"one"), table.number(b"two"));
        for (worker, number) in [(0, one), (1, one), (17, one), (3, two)] {
            let row = table.row(worker, number).unwrap();
            row.fetch_add(1, Ordering::Relaxed);
        }
        let sum = |name: &[u8]| -> (usize, u64) {
            let rows: Vec<u64> = table
                .rows(name)
                .map(|it| it.load(Ordering::Relaxed))
                .collect();
            (rows.len(), rows.iter().sum())
        };
        assert_eq!(sum(b"one"), (2, 3));
        assert_eq!(sum(b"two"), (1, 1));
        assert_eq!(sum(b"three"), (0, 0));
        assert_eq!(table.number(b"one"), one);
    }

    #[test]
    fn further_names_share_one_number() {
        let table = Table::<AtomicU64>::default();
        for number in 0..NAMES_MAX + 5 {
            table.number(format!("zone-{number}").as_bytes());
        }
        assert_eq!(table.number(b"one more"), Number(0));
        assert_eq!(table.number(b"zone-0"), Number(1));
    }
}
