//! Tallies: the counters of each node, so that any node can sum them.
//!
//! ```text
//! counters of a process ──► a record of each part, the newest only ──► NATS
//!                                                                       │ all, when somebody asks
//!                                              sum of all nodes ◄───────┘
//! ```
//!
//! Counters only grow, and outlive the process in a file, the *ledger*, which has a name of its own
//! (16 bytes). A record says what a ledger has counted since it was made. So it stands in place of
//! the one before, whichever process wrote that; and a ledger that was lost still counts, beside
//! the one that was begun after it.
//!
//! A record, integers little-endian:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | version | 1 |
//! | 1 | 16 | ledger | name of the ledger |
//! | 17 | 1 | length | of the node's name, which follows; 0 if the node has left for good |
//! | | | rows | length of a name (1), the name, number of counters (1), each in LEB128 |
//!
//! A record that is cut off or of another version is counted as unknown, and adds nothing.
//!
//! 1. A name is in one part only, by its digest; so a name is in one record of a ledger.
//! 2. A part has `ROWS_MAX` rows at most, a sum `NAMES_MAX` names; what belongs to further ones
//!    is counted under `EXCESS`.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};

use crate::follower::MEMBERS_MAX;

/// Parts of a tally: a record of each fits into a message of NATS (1 MiB), full of long names and
/// large numbers.
pub const PARTS: usize = 16;
/// Rows of a part, at most.
const ROWS_MAX: usize = 1024;
/// Names in a sum, at most (arbitrary: four times what one node tells apart).
const NAMES_MAX: usize = 16_384;
/// The name under which all others are counted.
pub const EXCESS: &[u8] = b"*";

const VERSION: u8 = 1;
/// Bytes of a record before the node's name.
const HEAD_LEN: usize = 1 + 16;

/// Name of a ledger.
pub type LedgerId = [u8; 16];

/// Counters of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The ledger that keeps them.
    pub ledger: LedgerId,
    /// Counters by name.
    pub rows: Vec<(Bytes, Vec<u64>)>,
}

/// Counters that a process keeps.
pub trait Source: Debug + Send + Sync {
    /// The counters as they are; none if no ledger keeps them now.
    fn tally(&self) -> Option<Tally>;
}

impl Tally {
    /// The records of all parts.
    pub(crate) fn records(&self, node: &str) -> [Bytes; PARTS] {
        let mut parts: [BTreeMap<&[u8], Vec<u64>>; PARTS] = Default::default();
        for (name, counters) in &self.rows {
            let name = if has_room(&parts, name) { name } else { EXCESS };
            if let Some(part) = parts.get_mut(part_of(name)) {
                add(part.entry(name).or_default(), counters);
            }
        }
        parts.map(|rows| {
            let mut out = BytesMut::new();
            out.put_u8(VERSION);
            out.put_slice(&self.ledger);
            put_name(&mut out, node.as_bytes());
            for (name, counters) in rows {
                put_name(&mut out, name);
                let counters = counters.get(..usize::from(u8::MAX)).unwrap_or(&counters);
                // At most 255 by the line above.
                out.put_u8(counters.len() as u8);
                counters.iter().for_each(|it| put_number(&mut out, *it));
            }
            out.freeze()
        })
    }
}

/// INVARIANT 2. One row is left for the excess.
fn has_room(parts: &[BTreeMap<&[u8], Vec<u64>>; PARTS], name: &[u8]) -> bool {
    let part = parts.get(part_of(name));
    part.is_some_and(|rows| rows.contains_key(name) || rows.len() < ROWS_MAX - 1)
}

fn part_of(name: &[u8]) -> usize {
    let first = Sha256::digest(name).first().copied().unwrap_or(0);
    usize::from(first) % PARTS
}

fn add(sum: &mut Vec<u64>, counters: &[u64]) {
    if sum.len() < counters.len() {
        sum.resize(counters.len(), 0);
    }
    for (sum, counter) in sum.iter_mut().zip(counters) {
        *sum = sum.saturating_add(*counter);
    }
}

fn put_name(out: &mut BytesMut, name: &[u8]) {
    let name = name.get(..usize::from(u8::MAX)).unwrap_or(name);
    // At most 255 by the line above.
    out.put_u8(name.len() as u8);
    out.put_slice(name);
}

fn put_number(out: &mut BytesMut, mut number: u64) {
    while number > 0x7f {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

fn take_name(rest: &mut Bytes) -> Option<Bytes> {
    let len = usize::from(rest.try_get_u8().ok()?);
    (len <= rest.len()).then(|| rest.split_to(len))
}

fn take_number(rest: &mut Bytes) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = rest.try_get_u8().ok()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Subject of a part of a ledger, behind that of all tallies of the fleet.
pub(crate) fn subject(ledger: &LedgerId, part: usize) -> String {
    let name: String = ledger.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}.{part}")
}

/// Counters of all nodes together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Nodes by name, with the time of their newest record by the log's clock, milliseconds since
    /// 1970.
    pub nodes: BTreeMap<String, u64>,
    /// Counters by name.
    pub rows: BTreeMap<Bytes, Vec<u64>>,
    /// Records that were not understood.
    pub unknown: u64,
}

impl Sum {
    /// Adds a record that the log got at `at_ms`.
    pub(crate) fn take(&mut self, record: &Bytes, at_ms: u64) {
        let Some((node, rows)) = read(record) else {
            self.unknown += 1;
            return;
        };
        // Nodes that have left count, and are no part of the fleet.
        let has_room = self.nodes.len() < MEMBERS_MAX || self.nodes.contains_key(&node);
        if has_room && !node.is_empty() {
            let newest_ms = self.nodes.entry(node).or_default();
            *newest_ms = at_ms.max(*newest_ms);
        }
        for (name, counters) in rows {
            let is_known = self.rows.contains_key(&name) || self.rows.len() < NAMES_MAX;
            // INVARIANT 2.
            let name = if is_known {
                name
            } else {
                Bytes::from_static(EXCESS)
            };
            add(self.rows.entry(name).or_default(), &counters);
        }
    }
}

/// A record as one of nobody, if it is one of this node.
pub(crate) fn disowned(record: &Bytes, node: &str) -> Option<Bytes> {
    let (head, mut rest) = (record.get(..HEAD_LEN)?, record.slice(HEAD_LEN..));
    let name = take_name(&mut rest)?;
    let is_its = head.first() == Some(&VERSION) && name == node.as_bytes();
    is_its.then(|| [head, &[0], &rest].concat().into())
}

type Rows = Vec<(Bytes, Vec<u64>)>;

fn read(record: &Bytes) -> Option<(String, Rows)> {
    let mut rest = record.clone();
    if rest.try_get_u8().ok()? != VERSION {
        return None;
    }
    rest.try_copy_to_slice(&mut LedgerId::default()).ok()?;
    let node = String::from_utf8(take_name(&mut rest)?.to_vec()).ok()?;
    let mut rows = Vec::new();
    while !rest.is_empty() && rows.len() < ROWS_MAX {
        let name = take_name(&mut rest)?;
        let count = rest.try_get_u8().ok()?;
        let counters = (0..count).map(|_| take_number(&mut rest));
        rows.push((name, counters.collect::<Option<Vec<u64>>>()?));
    }
    rest.is_empty().then_some((node, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(ledger: u8, rows: &[(&'static str, &[u64])]) -> Tally {
        let row = |(name, counters): &(&'static str, &[u64])| {
            (Bytes::from_static(name.as_bytes()), counters.to_vec())
        };
        Tally {
            ledger: [ledger; 16],
            rows: rows.iter().map(row).collect(),
        }
    }

    fn take_all(sum: &mut Sum, tally: &Tally, node: &str) {
        for record in tally.records(node) {
            sum.take(&record, 7);
        }
    }

    #[test]
    fn sums_are_those_of_all_ledgers() {
        let large = u64::MAX - 3;
        let mut sum = Sum::default();
        take_all(
            &mut sum,
            &tally(1, &[("a", &[1, 0, 128]), ("b", &[large])]),
            "n1",
        );
        take_all(&mut sum, &tally(2, &[("a", &[2, 5]), ("*", &[9])]), "n2");
        take_all(&mut sum, &tally(3, &[("b", &[7, 1])]), "n2");
        let rows: Vec<(&[u8], &[u64])> = sum.rows.iter().map(|(n, c)| (&n[..], &c[..])).collect();
        let expected: [(&[u8], &[u64]); 3] =
            [(b"*", &[9]), (b"a", &[3, 5, 128]), (b"b", &[u64::MAX, 1])];
        assert_eq!(rows, expected);
        let nodes: Vec<(&str, u64)> = sum.nodes.iter().map(|(n, at)| (&n[..], *at)).collect();
        assert_eq!(nodes, [("n1", 7), ("n2", 7)]);
        assert_eq!(sum.unknown, 0);
    }

    #[test]
    fn counters_of_a_node_that_has_left_stay_in_the_sum() {
        let (mut before, mut after) = (Sum::default(), Sum::default());
        let counted = tally(1, &[("a", &[1, 300]), ("b", &[2])]);
        for record in counted.records("n1") {
            before.take(&record, 7);
            assert_eq!(disowned(&record, "n2"), None);
            let left = disowned(&record, "n1").unwrap();
            assert_eq!(disowned(&left, "n1"), None, "once");
            after.take(&left, 9);
        }
        assert_eq!(after.rows, before.rows);
        assert_eq!((before.nodes.len(), after.nodes.len()), (1, 0));
        let cut = Bytes::from_static(&[VERSION; HEAD_LEN]);
        assert_eq!(disowned(&cut, ""), None);
        assert_eq!(disowned(&cut.slice(1..), ""), None);
    }

    #[test]
    fn records_fit_into_a_message_and_lose_nothing() {
        let name = |number: u32| Bytes::from(format!("{number:0>255}"));
        let rows = (0..40_000).map(|number| (name(number), vec![1 << 62; 32]));
        let full = Tally {
            ledger: [0; 16],
            rows: rows.collect(),
        };
        let mut sum = Sum::default();
        for record in full.records(&"n".repeat(64)) {
            assert!(record.len() < 1 << 20, "{}", record.len());
            sum.take(&record, 1);
        }
        assert!(sum.unknown == 0 && sum.rows.contains_key(EXCESS));
        assert!(sum.rows.len() <= PARTS * ROWS_MAX, "{}", sum.rows.len());

        let few = Tally {
            ledger: [1; 16],
            rows: (0..40_000).map(|number| (name(number), vec![1])).collect(),
        };
        let mut sum = Sum::default();
        take_all(&mut sum, &few, "n");
        let total: u64 = sum.rows.values().flatten().sum();
        assert_eq!(total, 40_000);
    }

    #[test]
    fn further_names_of_a_sum_are_counted_under_the_excess() {
        let mut sum = Sum::default();
        for ledger in 0..3 {
            let rows = (0..10_000).map(|row| (Bytes::from(format!("{ledger}-{row}")), vec![1]));
            let part = Tally {
                ledger: [ledger; 16],
                rows: rows.collect(),
            };
            take_all(&mut sum, &part, "n");
        }
        assert_eq!(sum.rows.len(), NAMES_MAX + 1);
        assert_eq!(sum.rows[EXCESS], [30_000 - NAMES_MAX as u64]);
    }

    #[test]
    fn records_that_are_cut_or_of_other_makings_add_nothing() {
        let good = tally(1, &[("shop", &[1, 2, 300])]);
        let records = good.records("n");
        let record = records.iter().max_by_key(|it| it.len()).unwrap();
        let node_end = 19;
        for len in 0..record.len() {
            let mut sum = Sum::default();
            sum.take(&record.slice(..len), 1);
            assert!(sum.rows.is_empty(), "{len}");
            // Without rows it is one of an empty part.
            assert_eq!(sum.unknown, u64::from(len != node_end), "{len}");
        }
        let mut other = record.to_vec();
        other[0] = 2;
        let mut sum = Sum::default();
        sum.take(&Bytes::from(other), 1);
        // A number that does not end.
        let mut endless = record.to_vec();
        endless.truncate(node_end);
        endless.extend_from_slice(&[1, b'a', 1]);
        endless.extend_from_slice(&[0xff; 11]);
        sum.take(&Bytes::from(endless), 1);
        assert_eq!((sum.unknown, sum.rows.len()), (2, 0));
    }
}
