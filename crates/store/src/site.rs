//! Sites of the entries: a site for each, and counts of what each site holds on a disk.
//!
//! ```text
//!   head ──classify──► name, role ──SiteBook──► Account (12 + 1 bits) ──► slot, summary row
//!                                                   │
//!                  index changes ──► Holdings of the disk: entries, slices, bytes by account
//! ```
//!
//! Who keeps a zone says how its heads name sites ([`Classify`]). A site has a number as long as
//! something refers to that; on the disk each segment has a table of the names that its rows mean,
//! so no number means anything outside of its segment, and there is no file of names to lose.
//!
//! ```text
//!   free ──a name asks──► given ──nothing refers to it, and others need numbers──► free
//! ```
//!
//! 1. What a disk's [`Holdings`] say is the sum over its index, at any moment at which nobody
//!    changes that: they are changed where it is, under the lock of the shard, but for what is
//!    loaded, which is added batch by batch.
//! 2. An entry is charged to one account as long as its record stands.
//! 3. Number 0 is nobody: heads that name no site, and rows from before there were accounts. Number
//!    1 is [`EXCESS`], for all names that there is no number for. Neither is taken back.
//! 4. A number is taken back only when nothing refers to it: no entry of an index ([`Holdings`]),
//!    no [`Claim`] (fills on their way, rows of segments without a summary), and no segment that
//!    is being loaded ([`Loads`]). What is told of its name was noted before; so nothing is ever
//!    counted under another name than its own or [`EXCESS`].
//! 5. Names that are not expected ([`SiteBook::expect`]) leave some numbers to those that are.
//!
//! What an entry is charged: its record, and the bytes of its body that stand elsewhere. The rows
//! of summaries, and space whose entries are gone but whose segments are not, are nobody's.

mod batch;
mod limit;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};

pub(crate) use self::batch::Batch;
use self::limit::Limits;
pub use self::limit::SiteLimit;
pub(crate) use self::limit::{Leaving, Limit};
use crate::departure::{Cause, Departure, Departures};
use crate::index::Slot;
use crate::lock::lock;
use crate::removed_heads::RemovedList;

/// Numbers of sites; as many as 12 bits tell apart.
pub const SITES_MAX: usize = 1 << NUMBER_BITS;
/// The name of all sites that have no number of their own.
pub const EXCESS: &[u8] = b"*";
/// Numbers that only expected names are given, of so many (arbitrary: an eighth).
const EXPECTED_PART: usize = 8;
/// The first number that is given.
const FIRST: u16 = 2;
/// Bytes of a name; of a longer one the beginning counts.
const NAME_LEN_MAX: usize = 255;

const NUMBER_BITS: u32 = 12;
const NUMBER_MASK: u16 = (1 << NUMBER_BITS) - 1;
/// Bit of an account in a row: the entry is a slice.
const SLICE: u16 = 1 << 15;

/// Role of an entry for its site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The entry stands for itself.
    #[default]
    Entry,
    /// A part of one: it counts with its bytes alone.
    Slice,
}

/// Site and role that a head gives its entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class<'a> {
    /// Name of the entry's site; empty for none.
    pub site: &'a [u8],
    /// Role of the entry for that site.
    pub role: Role,
}

/// Reads a head. Heads come from disk: it must not panic, whatever they are. The same bytes must
/// mean the same each time.
pub type Classify = for<'a> fn(&'a [u8]) -> Class<'a>;

/// Account that an entry is charged to: the number of its site, and a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account(u16);

impl Account {
    pub(crate) fn new(number: u16, role: Role) -> Self {
        let slice = if role == Role::Slice { SLICE } else { 0 };
        Self(number & NUMBER_MASK | slice)
    }

    /// Account of a site, for what is no slice.
    pub(crate) fn of_number(number: u16) -> Self {
        Self::new(number, Role::Entry)
    }

    /// Bits of the account as in a row.
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// Account from the bits of a row; what is in other bits does not count.
    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits & (NUMBER_MASK | SLICE))
    }

    pub(crate) fn number(self) -> u16 {
        self.0 & NUMBER_MASK
    }

    pub(crate) fn is_slice(self) -> bool {
        self.0 & SLICE != 0
    }

    /// Account of another site with the same role.
    pub(crate) fn with_number(self, number: u16) -> Self {
        Self(self.0 & SLICE | number & NUMBER_MASK)
    }
}

/// The reason why an entry leaves the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The entry was evicted for space.
    Evicted,
    /// The entry was not used for `inactive`.
    Swept,
    /// The entry was removed on demand.
    Removed,
    /// The entry was replaced by another one under its key.
    Replaced,
    /// The entry's bytes were not those that were written.
    Corrupt,
    /// The entry was lost: the disk refused to write it.
    Lost,
    /// The entry is somewhere else now, or was never to be here: that counts nowhere.
    Moved,
}

/// Reasons that are counted.
const REASONS: usize = 6;

impl Leave {
    fn cause(self) -> Option<Cause> {
        Some(match self {
            Self::Evicted => Cause::Evicted,
            Self::Swept => Cause::Inactive,
            Self::Removed => Cause::Removed,
            Self::Replaced => Cause::Replaced,
            Self::Corrupt => Cause::Corrupt,
            Self::Lost => Cause::Lost,
            Self::Moved => return None,
        })
    }

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
    /// Entries evicted for space.
    pub evicted: u64,
    /// Entries that were not used for `inactive`.
    pub swept: u64,
    /// Entries removed on demand.
    pub removed: u64,
    /// Entries that others replaced under their keys.
    pub replaced: u64,
    /// Entries whose bytes were not those that were written.
    pub corrupt: u64,
    /// Entries that the disk refused to write.
    pub lost: u64,
}

/// Counts of what a site holds.
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

    /// Counts that one entry adds.
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

/// Counts of entries that are gone, by reason.
type Reasons = [u64; REASONS];

struct Names {
    by_name: HashMap<Bytes, u16>,
    /// Names by number; empty for a number that is free.
    list: Vec<Bytes>,
    free: Vec<u16>,
    expected: HashSet<u16>,
    /// Count of the numbers that sites may have.
    room: usize,
}

impl Names {
    /// A number for a name that has none; `None` when there is none for such.
    fn give(&mut self, name: &[u8], may_use_all: Demand) -> Option<u16> {
        let kept = match may_use_all {
            Demand::Expected => 0,
            // INVARIANT 5: as far as expected names have not taken them yet.
            Demand::Other => {
                let kept = self.room / EXPECTED_PART;
                kept.saturating_sub(self.expected.len())
            }
        };
        let left = self.room.saturating_sub(self.list.len()) + self.free.len();
        if left <= kept {
            return None;
        }
        let name = Bytes::copy_from_slice(name);
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.list.push(Bytes::new());
                u16::try_from(self.list.len() - 1).ok()?
            }
        };
        *self.list.get_mut(usize::from(number))? = name.clone();
        self.by_name.insert(name, number);
        Some(number)
    }

    fn take_back(&mut self, number: u16) -> Bytes {
        let name = self.list.get_mut(usize::from(number));
        let name = name.map(std::mem::take).unwrap_or_default();
        self.by_name.remove(&name);
        self.free.push(number);
        name
    }
}

/// Urgency of a request for a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    /// A name that somebody wrote down.
    Expected,
    /// A name that nobody wrote down: clients may have made it up.
    Other,
}

/// The sites of a zone: their names, and what happened to their entries.
pub struct SiteBook {
    classify: Classify,
    names: RwLock<Names>,
    /// Number of claims, by number of the site.
    claims: Box<[AtomicU32]>,
    /// Segments that are being loaded.
    loads: AtomicUsize,
    /// Counts of what is held, one for each disk.
    holdings: Mutex<Vec<Weak<Holdings>>>,
    /// Set once somebody searched for unused numbers since the last [`SiteBook::maintain`].
    is_searched: AtomicBool,
    departed: Box<[OnceLock<Box<[AtomicU64; REASONS]>>]>,
    taken: Mutex<Taken>,
    /// Listener to departures.
    listener: OnceLock<Arc<dyn Departures>>,
    limits: Limits,
}

/// Counts that were told of entries that are gone.
#[derive(Default)]
struct Taken {
    /// Counts that were taken, by number.
    rows: HashMap<u16, Reasons>,
    /// Counts that were not taken yet of names that have no number any more.
    untold: HashMap<Bytes, Reasons>,
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

/// A number that is in use, which is not taken back as long as this lives.
#[derive(Debug)]
pub(crate) struct Claim {
    book: Arc<SiteBook>,
    account: Account,
}

impl Claim {
    pub(crate) fn account(&self) -> Account {
        self.account
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(claims) = self.book.claims_of(self.account.number()) {
            // INVARIANT 4: what was done under the claim is seen by whoever sees that it is gone.
            claims.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Numbers that were read from a segment are on their way to an index: none is taken back.
#[derive(Debug)]
pub(crate) struct Loads(Arc<SiteBook>);

impl Drop for Loads {
    fn drop(&mut self) {
        self.0.loads.fetch_sub(1, Ordering::Release);
    }
}

impl SiteBook {
    /// A book without sites, for a zone whose heads are read like this.
    pub fn new(classify: Classify) -> Self {
        Self::with_room(classify, SITES_MAX)
    }

    /// A book with so many numbers, those of nobody and of the excess among them; at most
    /// [`SITES_MAX`].
    pub fn with_room(classify: Classify, room: usize) -> Self {
        // INVARIANT 3.
        let excess = Bytes::from_static(EXCESS);
        let names = Names {
            by_name: HashMap::from([(Bytes::new(), 0), (excess.clone(), 1)]),
            list: vec![Bytes::new(), excess],
            free: Vec::new(),
            expected: HashSet::new(),
            room: room.min(SITES_MAX),
        };
        Self {
            classify,
            names: RwLock::new(names),
            claims: (0..SITES_MAX).map(|_| AtomicU32::new(0)).collect(),
            loads: AtomicUsize::new(0),
            holdings: Mutex::default(),
            is_searched: AtomicBool::new(false),
            departed: (0..SITES_MAX).map(|_| OnceLock::new()).collect(),
            taken: Mutex::default(),
            listener: OnceLock::new(),
            limits: Limits::default(),
        }
    }

    /// Sets the listener that departures are told from now on; there is one listener, the first.
    pub(crate) fn tell(&self, listener: Arc<dyn Departures>) {
        let _ = self.listener.set(listener);
    }

    /// Gives names numbers that are theirs until others are expected, whatever else needs some.
    pub fn expect<'a>(&self, expected: impl IntoIterator<Item = &'a [u8]>) {
        let mut names = self.write();
        names.expected.clear();
        for name in expected {
            let name = cut(name);
            let number = self.number_in(&mut names, name, Demand::Expected);
            if number >= FIRST {
                names.expected.insert(number);
            }
        }
    }

    /// True if something of a site is stored, or on its way.
    pub fn holds(&self, site: &[u8]) -> bool {
        let names = self.read();
        let number = names.by_name.get(cut(site));
        number.is_some_and(|number| !self.is_unused(*number))
    }

    /// Unused numbers may be looked for again: once in a while, so that names that come in numbers
    /// do not cost a search each.
    pub fn maintain(&self) {
        self.is_searched.store(false, Ordering::Relaxed);
    }

    /// Claim on the account that an entry with this head is charged to: it holds the number while
    /// the claim lives, and entries hold it while they are in an index.
    pub(crate) fn claim(self: &Arc<Self>, head: &[u8]) -> Claim {
        let class = (self.classify)(head);
        let name = cut(class.site);
        let known = {
            let names = self.read();
            // INVARIANT 4: numbers are taken back under the other lock.
            let known = names.by_name.get(name).copied();
            known.map(|number| self.claim_number(Account::new(number, class.role)))
        };
        known.unwrap_or_else(|| {
            let mut names = self.write();
            let number = self.number_in(&mut names, name, Demand::Other);
            self.claim_number(Account::new(number, class.role))
        })
    }

    /// Claim on a number, for a caller who knows that the number is in use.
    pub(crate) fn claim_number(self: &Arc<Self>, account: Account) -> Claim {
        if let Some(claims) = self.claims_of(account.number()) {
            claims.fetch_add(1, Ordering::Relaxed);
        }
        Claim {
            book: Arc::clone(self),
            account,
        }
    }

    /// No number is taken back as long as what comes back lives.
    pub(crate) fn hold(self: &Arc<Self>) -> Loads {
        // Who takes numbers back has the lock: they see this, or this comes after it.
        let _names = self.read();
        self.loads.fetch_add(1, Ordering::Relaxed);
        Loads(Arc::clone(self))
    }

    fn claims_of(&self, number: u16) -> Option<&AtomicU32> {
        self.claims.get(usize::from(number))
    }

    /// Account that an entry with this head is charged to. It means something while numbers are
    /// held ([`SiteBook::hold`]).
    pub(crate) fn account(&self, head: &[u8]) -> Account {
        let class = (self.classify)(head);
        Account::new(self.number(class.site), class.role)
    }

    /// The number of a name, given when it is first asked for; as [`SiteBook::account`].
    pub(crate) fn number(&self, name: &[u8]) -> u16 {
        let name = cut(name);
        let known = self.read().by_name.get(name).copied();
        known.unwrap_or_else(|| self.number_in(&mut self.write(), name, Demand::Other))
    }

    fn number_in(&self, names: &mut Names, name: &[u8], demand: Demand) -> u16 {
        if let Some(known) = names.by_name.get(name) {
            return *known;
        }
        if let Some(number) = names.give(name, demand) {
            return number;
        }
        let is_searched = self.is_searched.swap(true, Ordering::Relaxed);
        if !is_searched || demand == Demand::Expected {
            self.take_back_unused(names);
        }
        // INVARIANT 3.
        names.give(name, demand).unwrap_or(1)
    }

    /// INVARIANT 4.
    fn take_back_unused(&self, names: &mut Names) {
        if self.loads.load(Ordering::Acquire) > 0 {
            return;
        }
        let given = FIRST..u16::try_from(names.list.len()).unwrap_or(u16::MAX);
        for number in given {
            let is_given = names.list.get(usize::from(number));
            let is_given = is_given.is_some_and(|name| !name.is_empty());
            if is_given && !names.expected.contains(&number) && self.is_unused(number) {
                let name = names.take_back(number);
                self.forget(number, name);
            }
        }
    }

    fn is_unused(&self, number: u16) -> bool {
        let claims = self.claims_of(number);
        let is_claimed = claims.is_some_and(|claims| claims.load(Ordering::Acquire) > 0);
        if is_claimed {
            return false;
        }
        let mut holdings = lock(&self.holdings);
        holdings.retain(|it| it.strong_count() > 0);
        let mut all = holdings.iter().filter_map(Weak::upgrade);
        all.all(|it| it.is_empty(usize::from(number)))
    }

    /// Keeps what was counted for a number from being told of its next name.
    fn forget(&self, number: u16, name: Bytes) {
        let mut taken = lock(&self.taken);
        let told = taken.rows.remove(&number).unwrap_or_default();
        let row = self.departed.get(usize::from(number));
        let Some(row) = row.and_then(OnceLock::get) else {
            return;
        };
        let row = row.each_ref().map(|it| it.swap(0, Ordering::Relaxed));
        if let Some(excess) = self.departed.get(1) {
            let excess = excess.get_or_init(Box::default);
            for (counter, value) in excess.iter().zip(row) {
                counter.fetch_add(value, Ordering::Relaxed);
            }
        }
        // The excess has counted it, but it is told of the name.
        add(taken.rows.entry(1).or_default(), row);
        let news = less(row, told);
        if news != [0; REASONS] {
            let is_full = taken.untold.len() >= SITES_MAX;
            let name = if is_full {
                Bytes::from_static(EXCESS)
            } else {
                name
            };
            add(taken.untold.entry(name).or_default(), news);
        }
    }

    /// The name of a number; empty for one that was not given.
    pub(crate) fn name(&self, number: u16) -> Bytes {
        let names = self.read();
        let name = names.list.get(usize::from(number));
        name.cloned().unwrap_or_default()
    }

    fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self, account: Account, why: Leave) {
        let row = self.departed.get(usize::from(account.number()));
        if let (Some(row), Some(reason), false) = (row, why.index(), account.is_slice())
            && let Some(counter) = row.get_or_init(Box::default).get(reason)
        {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts of what happened to entries since the book was made, by site; sites without any are
    /// left out, and those whose numbers were taken back are among the excess.
    pub fn departed(&self) -> Vec<(Bytes, Departed)> {
        let names = self.read();
        let all = self.departed_by_number();
        let named = all.filter_map(|(number, row)| {
            let name = names.list.get(usize::from(number))?;
            Some((name.clone(), row.into()))
        });
        named.collect()
    }

    /// Takes the counts of [`SiteBook::departed`] since the last call; each entry that is gone is
    /// told once, of its own site.
    pub fn take_departed(&self) -> Vec<(Bytes, Departed)> {
        let names = self.read();
        let mut taken = lock(&self.taken);
        let untold = std::mem::take(&mut taken.untold).into_iter();
        let mut all: Vec<_> = untold.map(|(name, row)| (name, row.into())).collect();
        all.extend(self.departed_by_number().filter_map(|(number, row)| {
            let before = taken.rows.insert(number, row).unwrap_or_default();
            let new = less(row, before);
            let name = names.list.get(usize::from(number))?;
            (new != [0; REASONS]).then(|| (name.clone(), new.into()))
        }));
        all
    }

    fn departed_by_number(&self) -> impl Iterator<Item = (u16, Reasons)> {
        (0..).zip(&self.departed).filter_map(|(number, row)| {
            let row = row.get()?.each_ref().map(|it| it.load(Ordering::Relaxed));
            (row != [0; REASONS]).then_some((number, row))
        })
    }
}

/// A name as it counts.
fn cut(name: &[u8]) -> &[u8] {
    name.get(..NAME_LEN_MAX).unwrap_or(name)
}

fn add(sum: &mut Reasons, row: Reasons) {
    for (sum, value) in sum.iter_mut().zip(row) {
        *sum += value;
    }
}

fn less(row: Reasons, before: Reasons) -> Reasons {
    let mut rest = row;
    for (rest, before) in rest.iter_mut().zip(before) {
        *rest -= before;
    }
    rest
}

/// Entries, slices, bytes of the disk, bytes of bodies.
type Sum = [u64; 4];
/// The place of the bytes of the disk among them.
const DISK_BYTES: usize = 2;

fn sum_of(slot: &Slot) -> Sum {
    let held = Held::of(slot);
    [held.entries, held.slices, held.disk_bytes, held.body_bytes]
}

/// Counts of what each site holds on one disk.
#[derive(Debug)]
pub(crate) struct Holdings {
    book: Arc<SiteBook>,
    /// Entries that left and may have slices.
    pub(crate) removed: RemovedList,
    rows: Box<[OnceLock<Box<[AtomicU64; 4]>>]>,
    /// Entries of limited sites that leave first.
    leaving: Mutex<HashMap<u16, Leaving>>,
    /// Set once the disk is not used any more.
    is_over: AtomicBool,
}

impl Holdings {
    /// Nothing yet.
    pub(crate) fn new(book: Arc<SiteBook>) -> Arc<Self> {
        let holdings = Arc::new(Self {
            book: Arc::clone(&book),
            removed: RemovedList::default(),
            rows: (0..SITES_MAX).map(|_| OnceLock::new()).collect(),
            leaving: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        lock(&book.holdings).push(Arc::downgrade(&holdings));
        holdings
    }

    /// True if nothing is charged to a number. Batches that are on their way may say otherwise.
    fn is_empty(&self, number: usize) -> bool {
        let row = self.rows.get(number).and_then(OnceLock::get);
        // What led to the last change was done before it (INVARIANT 4 of the book).
        row.is_none_or(|row| row.iter().all(|it| it.load(Ordering::Acquire) == 0))
    }

    /// An entry is in the index.
    pub(crate) fn came(&self, slot: &Slot) {
        self.add(usize::from(slot.account().number()), &sum_of(slot));
    }

    /// An entry is not in the index any more.
    pub(crate) fn left(&self, slot: &Slot, why: Leave) {
        let account = slot.account();
        let sum = sum_of(slot).map(u64::wrapping_neg);
        // INVARIANT 4 of the book: in this order.
        self.book.left(account, why);
        if let (Some(listener), Some(cause)) = (self.book.listener.get(), why.cause())
            && listener.are_wanted()
            && !account.is_slice()
        {
            listener.note(Departure {
                key: slot.key,
                body_len: slot.body_len(),
                cause,
            });
        }
        self.add(usize::from(account.number()), &sum);
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
            self.removed.watch();
        }
        let row = row.get_or_init(Box::default);
        for (counter, value) in row.iter().zip(sum) {
            counter.fetch_add(*value, Ordering::Release);
        }
    }

    /// Bytes of the disk that all entries take.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let rows = self.rows.iter().filter_map(|row| row.get());
        let bytes = rows.map(|row| row[DISK_BYTES].load(Ordering::Relaxed));
        bytes.fold(0, u64::wrapping_add)
    }

    /// Counts of what each site holds, by name; sites that hold nothing are left out.
    pub(crate) fn held(&self) -> Vec<(Bytes, Held)> {
        let counted = |(row, name): (&OnceLock<Box<[AtomicU64; 4]>>, &Bytes)| {
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
            (held != Held::default()).then(|| (name.clone(), held))
        };
        let names = self.book.read();
        let rows = self.rows.iter().zip(&names.list);
        rows.filter_map(counted).collect()
    }
}

#[cfg(test)]
mod tests;
