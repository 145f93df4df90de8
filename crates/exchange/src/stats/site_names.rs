//! Choice of the names of sites that have numbers, and of those that lose theirs when others need
//! them.
//!
//! Clients can make names up (`cache_site $host`), so a name gets a number only for a reason
//! ([`Claim`]), and the numbers of names that the configuration does not say come back:
//!
//! ```text
//!   free ──give──► given ──retire──► retiring ──free──► free
//!                                    (nobody finds it; counting goes on to its end)
//! ```
//!
//! Invariants:
//! 1. A name has at most one number, and a number at most one name; that of [`EXCESS`] is always 0.
//! 2. A number is given again only after [`Names::free`].
//! 3. Names that the configuration says are never retired.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;

use super::site::{EXCESS, SITES_MAX};

/// Numbers that are kept free for names to come, while any can be taken back (arbitrary: as many as
/// a busy server may meet in a second).
pub const RESERVE: usize = 256;
/// After so many seconds without a count a site that holds something may lose its number
/// (arbitrary: entries that nobody asks for go after as long, unless `inactive` says otherwise).
pub const IDLE_S: u32 = 600;

/// The reason why a name may have a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The configuration says it: as a server's name, in `cache_site_info`, or without variables.
    Written,
    /// Something is stored for it, or counted from earlier.
    Kept,
    /// None is known.
    None,
}

/// Use of a site, which counts when numbers are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// Time when the site was counted last, in seconds of the table's clock; 0 for never.
    pub counted_s: u32,
    /// True if something is stored for the site.
    pub holds: bool,
}

/// The names that have numbers.
#[derive(Debug)]
pub struct Names {
    by_name: HashMap<Bytes, u16>,
    /// By number; empty for one that is free.
    list: Vec<Bytes>,
    free: Vec<u16>,
    /// Names whose numbers are on their way back.
    retiring: HashSet<Bytes>,
    /// Names that the configuration says.
    written: HashSet<Bytes>,
    /// Numbers whose names are not in the ledger as they are.
    unwritten: BTreeSet<u16>,
}

impl Default for Names {
    fn default() -> Self {
        let excess = Bytes::from_static(EXCESS);
        Names {
            by_name: HashMap::from([(excess.clone(), 0)]),
            list: vec![excess],
            free: Vec::new(),
            retiring: HashSet::new(),
            written: HashSet::new(),
            unwritten: BTreeSet::from([0]),
        }
    }
}

impl Names {
    /// Gives a name a number; the excess's when there is none.
    pub fn give(&mut self, name: &[u8]) -> u16 {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        if self.retiring.contains(name) || name.is_empty() {
            return 0;
        }
        let Some(number) = self.next() else { return 0 };
        let name = Bytes::copy_from_slice(name);
        if let Some(place) = self.list.get_mut(usize::from(number)) {
            *place = name.clone();
        }
        self.by_name.insert(name, number);
        self.unwritten.insert(number);
        number
    }

    fn next(&mut self) -> Option<u16> {
        if let Some(number) = self.free.pop() {
            return Some(number);
        }
        if self.list.len() >= SITES_MAX {
            return None;
        }
        self.list.push(Bytes::new());
        u16::try_from(self.list.len() - 1).ok()
    }

    /// From now on the configuration says these names.
    pub fn write(&mut self, written: HashSet<Bytes>) {
        self.written = written;
    }

    /// The names that the configuration says and that have no number.
    pub fn lacking(&self) -> Vec<Bytes> {
        let lacking = |name: &&Bytes| !self.by_name.contains_key(*name);
        self.written.iter().filter(lacking).cloned().collect()
    }

    /// True if the configuration says a name.
    pub fn is_written(&self, name: &[u8]) -> bool {
        self.written.contains(name)
    }

    /// The number that a name has.
    pub fn find(&self, name: &[u8]) -> Option<u16> {
        self.by_name.get(name).copied()
    }

    /// All names, by number; empty for one that is free.
    pub fn list(&self) -> &[Bytes] {
        &self.list
    }

    /// Numbers that nobody has.
    pub fn free_count(&self) -> usize {
        SITES_MAX - self.list.len() + self.free.len()
    }

    /// Numbers whose names are not in the ledger as they are.
    pub fn unwritten(&mut self) -> BTreeSet<u16> {
        std::mem::take(&mut self.unwritten)
    }

    /// Names are to be written to the ledger again.
    pub fn rewrite(&mut self) {
        let all = 0..u16::try_from(self.list.len()).unwrap_or(u16::MAX);
        self.unwritten.extend(all);
    }

    /// Numbers that can be taken back, the oldest unused first: those that hold nothing, then those
    /// that were not counted since `idle_from_s`.
    pub fn retirable(&self, idle_from_s: u32, of: impl Fn(usize, &[u8]) -> Use) -> Vec<u16> {
        let numbers = (0..).zip(&self.list).skip(1);
        // INVARIANT 3.
        let others = numbers.filter(|(_, name)| {
            !name.is_empty() && !self.written.contains(*name) && !self.retiring.contains(*name)
        });
        let used = others.map(|(number, name)| (of(usize::from(number), name), number));
        let mut unused: Vec<(bool, u32, u16)> = used
            .filter(|(used, _)| !used.holds || used.counted_s < idle_from_s)
            .map(|(used, number)| (used.holds, used.counted_s, number))
            .collect();
        unused.sort_unstable();
        unused.into_iter().map(|(.., number)| number).collect()
    }

    /// Nobody finds these numbers any more.
    pub fn retire(&mut self, numbers: &[u16]) {
        for number in numbers {
            if let Some(name) = self.list.get(usize::from(*number)) {
                self.by_name.remove(name);
                self.retiring.insert(name.clone());
            }
        }
    }

    /// Nobody counts under these numbers any more: they can be given again.
    pub fn free(&mut self, numbers: &[u16]) {
        for number in numbers {
            if let Some(name) = self.list.get_mut(usize::from(*number)) {
                self.retiring.remove(name);
                *name = Bytes::new();
                self.free.push(*number);
                self.unwritten.insert(*number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Names {
        let mut names = Names::default();
        for number in 1..SITES_MAX {
            assert_eq!(
                usize::from(names.give(format!("s{number}").as_bytes())),
                number
            );
        }
        names
    }

    #[test]
    fn the_oldest_unused_go_first_and_written_ones_never() {
        let mut names = full();
        assert_eq!((names.give(b"new"), names.free_count()), (0, 0));
        names.write(HashSet::from([Bytes::from_static(b"s1")]));
        let used = |number: usize, _: &[u8]| Use {
            counted_s: if number == 9 {
                0
            } else {
                1000 - number as u32 % 500
            },
            holds: number.is_multiple_of(2),
        };
        let unused = names.retirable(600, used);
        // 9 was never counted; 4095 is the oldest of those that hold nothing; of the others those
        // before second 600 can go.
        assert_eq!(unused[..3], [9, 499, 999]);
        assert!(!unused.contains(&1) && !unused.contains(&2));
        let first_held = unused
            .iter()
            .position(|number| number.is_multiple_of(2))
            .unwrap();
        assert_eq!(unused[first_held], 498);
        assert!(
            unused[first_held..]
                .iter()
                .all(|number| 1000 - number % 500 < 600)
        );
    }

    #[test]
    fn a_number_is_given_again_when_nobody_counts_under_it() {
        let mut names = full();
        names.unwritten();
        names.retire(&[7]);
        assert_eq!(names.find(b"s7"), None);
        // The name waits for the end of its number as everybody does.
        assert_eq!((names.give(b"s7"), names.give(b"new")), (0, 0));
        names.free(&[7]);
        assert_eq!((names.give(b"new"), names.give(b"s7")), (7, 0));
        assert_eq!(names.unwritten(), BTreeSet::from([7]));
        assert_eq!(names.list()[7], "new");
    }

    #[test]
    fn what_is_written_and_has_no_number_is_known() {
        let mut names = full();
        let written = [&b"s1"[..], b"new"].map(Bytes::from_static);
        names.write(written.into());
        assert_eq!(names.lacking(), ["new"]);
        assert!(names.is_written(b"new") && !names.is_written(b"s2"));
    }
}
