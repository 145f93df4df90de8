//! Whose the entries are: a site for each, and what each site holds on a disk.
//!
//! ```text
//!   head ──classify──► name, role ──SiteBook──► Account (12 + 1 bits) ──► slot, summary row
//!                                                   │
//!                  index changes ──► Holdings of the disk: entries, slices, bytes by account
//! ```
//!
//! Who keeps a zone says how its heads name sites ([`Classify`]). A site has a number as long as
//! its process lives; on the disk each segment has a table of the names that its rows mean, so no
//! number means anything outside of its segment, and there is no file of names to lose.
//!
//! 1. What a disk's [`Holdings`] say is the sum over its index, at any moment at which nobody
//!    changes that: they are changed where it is, under the lock of the shard, but for what is
//!    loaded, which is added batch by batch.
//! 2. An entry is charged to one account as long as its record stands.
//! 3. Number 0 is nobody: heads that name no site, and rows from before there were accounts. Number
//!    1 is [`EXCESS`], for all names beyond [`SITES_MAX`].
//!
//! What an entry is charged: its record, and the bytes of its body that stand elsewhere. The rows
//! of summaries, and space whose entries are gone but whose segments are not, are nobody's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use hashbrown::HashMap;

use crate::gone::GoneHeads;
use crate::index::Slot;
use crate::lock::lock;

/// Numbers of sites; as many as 12 bits tell apart.
pub const SITES_MAX: usize = 1 << NUMBER_BITS;
/// The name of all sites that have no number of their own.
pub const EXCESS: &[u8] = b"*";
/// Bytes of a name; of a longer one the beginning counts.
const NAME_LEN_MAX: usize = 255;

const NUMBER_BITS: u32 = 12;
const NUMBER_MASK: u16 = (1 << NUMBER_BITS) - 1;
/// In a row: the entry is a slice.
const SLICE: u16 = 1 << 15;

/// What an entry is to its site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// An entry of its own.
    #[default]
    Entry,
    /// A part of one: it counts with its bytes alone.
    Slice,
}

/// What a head says of its entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class<'a> {
    /// The name of its site; empty for none.
    pub site: &'a [u8],
    /// What it is to that site.
    pub role: Role,
}

/// Reads a head. Heads come from disk: it must not panic, whatever they are. The same bytes must
/// mean the same each time.
pub type Classify = for<'a> fn(&'a [u8]) -> Class<'a>;

/// Whom an entry is charged to, and as what: a number and a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account(u16);

impl Account {
    pub(crate) fn new(number: u16, role: Role) -> Self {
        let slice = if role == Role::Slice { SLICE } else { 0 };
        Self(number & NUMBER_MASK | slice)
    }

    /// As it stands in a row.
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// From a row; what is in other bits does not count.
    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits & (NUMBER_MASK | SLICE))
    }

    pub(crate) fn number(self) -> u16 {
        self.0 & NUMBER_MASK
    }

    pub(crate) fn is_slice(self) -> bool {
        self.0 & SLICE != 0
    }

    /// The same role for another site.
    pub(crate) fn with_number(self, number: u16) -> Self {
        Self(self.0 & SLICE | number & NUMBER_MASK)
    }
}

/// Why an entry leaves the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// For space.
    Evicted,
    /// It was not used for `inactive`.
    Swept,
    /// On demand.
    Removed,
    /// Another one came under its key.
    Replaced,
    /// Its bytes were not what was written.
    Corrupt,
    /// The disk refused to write it.
    Lost,
    /// It is somewhere else now, or was never to be here: that counts nowhere.
    Moved,
}

/// Reasons that are counted.
const REASONS: usize = 6;

impl Leave {
    fn index(self) -> Option<usize> {
        match self {
            Self::Evicted => Some(0),
            Self::Swept => Some(1),
            Self::Removed => Some(2),
            Self::Replaced => Some(3),
            Self::Corrupt => Some(4),
            Self::Lost => Some(5),
            Self::Moved => None,
        }
    }
}

/// Entries of a site that are gone, by reason. Slices are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// For space.
    pub evicted: u64,
    /// Because they were not used for `inactive`.
    pub swept: u64,
    /// On demand.
    pub removed: u64,
    /// Because another one came under their key.
    pub replaced: u64,
    /// Because their bytes were not what was written.
    pub corrupt: u64,
    /// Because the disk refused to write them.
    pub lost: u64,
}

/// What a site holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Entries.
    pub entries: u64,
    /// Records that are parts of entries.
    pub slices: u64,
    /// Bytes of the disk: records, with heads and padding, and bodies.
    pub disk_bytes: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
}

impl Departed {
    /// Adds what else is gone.
    pub fn add(&mut self, other: &Self) {
        self.evicted += other.evicted;
        self.swept += other.swept;
        self.removed += other.removed;
        self.replaced += other.replaced;
        self.corrupt += other.corrupt;
        self.lost += other.lost;
    }
}

impl From<[u64; REASONS]> for Departed {
    fn from([evicted, swept, removed, replaced, corrupt, lost]: [u64; REASONS]) -> Self {
        Self {
            evicted,
            swept,
            removed,
            replaced,
            corrupt,
            lost,
        }
    }
}

impl Held {
    /// Adds what is held elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.entries += other.entries;
        self.slices += other.slices;
        self.disk_bytes += other.disk_bytes;
        self.body_bytes += other.body_bytes;
    }

    /// What one entry adds.
    pub(crate) fn of(slot: &Slot) -> Self {
        let is_slice = slot.account().is_slice();
        Self {
            entries: u64::from(!is_slice),
            slices: u64::from(is_slice),
            disk_bytes: slot.disk_size(),
            body_bytes: slot.body_len(),
        }
    }
}

struct Names {
    by_name: HashMap<Bytes, u16>,
    list: Vec<Bytes>,
}

/// The sites of a zone: their names, and what happened to their entries.
pub struct SiteBook {
    classify: Classify,
    names: RwLock<Names>,
    departed: Box<[OnceLock<Box<[AtomicU64; REASONS]>>]>,
    /// What was taken of them, by number.
    taken: Mutex<HashMap<u16, [u64; REASONS]>>,
}

impl Default for SiteBook {
    fn default() -> Self {
        Self::new(|_| Class::default())
    }
}

impl std::fmt::Debug for SiteBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SiteBook").finish_non_exhaustive()
    }
}

impl SiteBook {
    /// A book without sites, for a zone whose heads are read like this.
    pub fn new(classify: Classify) -> Self {
        // INVARIANT 3.
        let excess = Bytes::from_static(EXCESS);
        let names = Names {
            by_name: HashMap::from([(Bytes::new(), 0), (excess.clone(), 1)]),
            list: vec![Bytes::new(), excess],
        };
        Self {
            classify,
            names: RwLock::new(names),
            departed: (0..SITES_MAX).map(|_| OnceLock::new()).collect(),
            taken: Mutex::default(),
        }
    }

    /// Whom an entry with this head is charged to.
    pub(crate) fn account(&self, head: &[u8]) -> Account {
        let class = (self.classify)(head);
        Account::new(self.number(class.site), class.role)
    }

    /// The number of a name, given when it is first asked for.
    pub(crate) fn number(&self, name: &[u8]) -> u16 {
        let name = name.get(..NAME_LEN_MAX).unwrap_or(name);
        let known = {
            let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
            names.by_name.get(name).copied()
        };
        known.unwrap_or_else(|| self.new_number(name))
    }

    fn new_number(&self, name: &[u8]) -> u16 {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.by_name.get(name) {
            return *known;
        }
        let next = u16::try_from(names.list.len()).unwrap_or(u16::MAX);
        if next > NUMBER_MASK {
            // INVARIANT 3.
            return 1;
        }
        let name = Bytes::copy_from_slice(name);
        names.list.push(name.clone());
        names.by_name.insert(name, next);
        next
    }

    /// The name of a number; empty for one that was not given.
    pub(crate) fn name(&self, number: u16) -> Bytes {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let name = names.list.get(usize::from(number));
        name.cloned().unwrap_or_default()
    }

    fn names(&self) -> Vec<Bytes> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.list.clone()
    }

    fn left(&self, account: Account, why: Leave) {
        let row = self.departed.get(usize::from(account.number()));
        if let (Some(row), Some(reason), false) = (row, why.index(), account.is_slice())
            && let Some(counter) = row.get_or_init(Box::default).get(reason)
        {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What happened to entries since the book was made, by site; those without any are left out.
    pub fn departed(&self) -> Vec<(Bytes, Departed)> {
        let all = self.departed_by_number();
        all.map(|(number, row)| (self.name(number), row.into()))
            .collect()
    }

    /// The same since this was called last; each entry that is gone is told once.
    pub fn take_departed(&self) -> Vec<(Bytes, Departed)> {
        let mut taken = lock(&self.taken);
        let news = self.departed_by_number().filter_map(|(number, row)| {
            let before = taken.insert(number, row).unwrap_or_default();
            let mut new = row;
            for (new, before) in new.iter_mut().zip(before) {
                *new -= before;
            }
            (new != [0; REASONS]).then(|| (self.name(number), new.into()))
        });
        news.collect()
    }

    fn departed_by_number(&self) -> impl Iterator<Item = (u16, [u64; REASONS])> {
        (0..).zip(&self.departed).filter_map(|(number, row)| {
            let row = row.get()?.each_ref().map(|it| it.load(Ordering::Relaxed));
            (row != [0; REASONS]).then_some((number, row))
        })
    }
}

/// Entries, slices, bytes of the disk, bytes of bodies.
type Sum = [u64; 4];

fn sum_of(slot: &Slot) -> Sum {
    let held = Held::of(slot);
    [held.entries, held.slices, held.disk_bytes, held.body_bytes]
}

/// What each site holds on one disk.
#[derive(Debug)]
pub(crate) struct Holdings {
    book: Arc<SiteBook>,
    /// Entries that left and may have slices.
    pub(crate) gone: GoneHeads,
    rows: Box<[OnceLock<Box<[AtomicU64; 4]>>]>,
}

impl Holdings {
    /// Nothing yet.
    pub(crate) fn new(book: Arc<SiteBook>) -> Self {
        Self {
            book,
            gone: GoneHeads::default(),
            rows: (0..SITES_MAX).map(|_| OnceLock::new()).collect(),
        }
    }

    /// An entry is in the index.
    pub(crate) fn came(&self, slot: &Slot) {
        self.add(usize::from(slot.account().number()), &sum_of(slot));
    }

    /// An entry is not in the index any more.
    pub(crate) fn left(&self, slot: &Slot, why: Leave) {
        let account = slot.account();
        let sum = sum_of(slot).map(u64::wrapping_neg);
        self.add(usize::from(account.number()), &sum);
        self.book.left(account, why);
    }

    /// Everything in a batch was done.
    pub(crate) fn settle(&self, batch: &Batch) {
        for (number, sum) in batch.sums.iter().enumerate() {
            if *sum != [0; 4] {
                self.add(number, sum);
            }
        }
    }

    /// Wraps around: what is taken away may come before what it is taken from.
    fn add(&self, number: usize, sum: &Sum) {
        let Some(row) = self.rows.get(number) else {
            return;
        };
        if sum[1] > 0 {
            self.gone.watch();
        }
        let row = row.get_or_init(Box::default);
        for (counter, value) in row.iter().zip(sum) {
            counter.fetch_add(*value, Ordering::Relaxed);
        }
    }

    /// What each site holds, by name; those that hold nothing are left out.
    pub(crate) fn held(&self) -> Vec<(Bytes, Held)> {
        let counted = |(row, name): (&OnceLock<Box<[AtomicU64; 4]>>, Bytes)| {
            let load = |counter: &AtomicU64| {
                // While a batch is on its way, there may be less than nothing.
                let value = counter.load(Ordering::Relaxed).cast_signed();
                u64::try_from(value).unwrap_or(0)
            };
            let [entries, slices, disk_bytes, body_bytes] = row.get()?.each_ref().map(load);
            let held = Held {
                entries,
                slices,
                disk_bytes,
                body_bytes,
            };
            (held != Held::default()).then_some((name, held))
        };
        let rows = self.rows.iter().zip(self.book.names());
        rows.filter_map(counted).collect()
    }
}

/// Changes that are added up before others see them.
#[derive(Default)]
pub(crate) struct Batch {
    /// By number.
    sums: Vec<Sum>,
}

impl Batch {
    /// An entry is in the index.
    pub(crate) fn came(&mut self, slot: &Slot) {
        self.add(slot, sum_of(slot));
    }

    /// An entry that was found in the log made way for a newer one.
    pub(crate) fn left(&mut self, slot: &Slot) {
        self.add(slot, sum_of(slot).map(u64::wrapping_neg));
    }

    fn add(&mut self, slot: &Slot, sum: Sum) {
        let number = usize::from(slot.account().number());
        if number >= self.sums.len() {
            self.sums.resize(number + 1, [0; 4]);
        }
        if let Some(row) = self.sums.get_mut(number) {
            for (to, from) in row.iter_mut().zip(sum) {
                *to = to.wrapping_add(from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::segment::Place;
    use crate::key::Key;

    fn slot(account: Account, len: u64) -> Slot {
        let place = Place {
            segment: 1,
            offset: 64,
            size: 96,
        };
        Slot::new(Key([1; 16]), place, len, 0).charged_to(account)
    }

    #[test]
    fn names_keep_their_numbers_and_the_excess_has_one() {
        let book = SiteBook::default();
        assert_eq!((book.number(b""), book.number(EXCESS)), (0, 1));
        let numbers: Vec<u16> = (0..SITES_MAX + 5)
            .map(|name| book.number(format!("site {name}").as_bytes()))
            .collect();
        assert_eq!(numbers[0], 2);
        assert_eq!(numbers[SITES_MAX - 3], NUMBER_MASK);
        assert!(numbers[SITES_MAX - 2..].iter().all(|number| *number == 1));
        assert_eq!(book.number(b"site 0"), 2);
        assert_eq!(book.name(2), "site 0");
        assert_eq!(book.number(&[b'x'; 300]), 1);
    }

    #[test]
    fn a_row_has_room_for_every_account() {
        for number in [0, 1, NUMBER_MASK] {
            for role in [Role::Entry, Role::Slice] {
                let account = Account::new(number, role);
                assert_eq!(Account::from_bits(account.bits()), account);
                assert_eq!(account.number(), number);
                assert_eq!(account.is_slice(), role == Role::Slice);
                assert_eq!(account.with_number(7).number(), 7);
                assert_eq!(account.with_number(7).is_slice(), account.is_slice());
            }
        }
    }

    #[test]
    fn what_comes_and_leaves_adds_up() {
        let book = Arc::new(SiteBook::default());
        let number = book.number(b"one");
        let entry = Account::new(number, Role::Entry);
        let part = Account::new(number, Role::Slice);
        let holdings = Holdings::new(Arc::clone(&book));
        let mut batch = Batch::default();
        // What is loaded may be removed before its batch is there.
        batch.came(&slot(entry, 10));
        holdings.left(&slot(entry, 10), Leave::Evicted);
        assert_eq!(holdings.held(), []);
        holdings.settle(&batch);
        assert_eq!(holdings.held(), []);
        holdings.came(&slot(entry, 10));
        holdings.came(&slot(part, 1000).sliced());
        holdings.came(&slot(part, 5));
        holdings.left(&slot(part, 5), Leave::Removed);
        let held = Held {
            entries: 1,
            slices: 1,
            disk_bytes: 96 + 96 + 1000,
            body_bytes: 1010,
        };
        assert_eq!(holdings.held(), [(Bytes::from_static(b"one"), held)]);
        let departed = Departed {
            evicted: 1,
            ..Departed::default()
        };
        let expected = [(Bytes::from_static(b"one"), departed)];
        assert_eq!(book.departed(), expected);
        assert_eq!(book.take_departed(), expected);
        assert_eq!(book.take_departed(), []);
        holdings.left(&slot(entry, 10), Leave::Evicted);
        assert_eq!(book.take_departed(), expected);
    }
}
