//! Owners: the member of a fleet that a key belongs to.
//!
//! Each member has a score for each key, and the highest one owns it (rendezvous hashing, weighted
//! by `-w / ln h`). When a member comes or goes, only keys that it gets, or had, change hands. A
//! member that has more to do than its share is passed over for the next one (bounded load).
//!
//! 1. The same members give the same owner on every node, in whatever order they are listed.
//! 2. As long as there are members there is an owner, however much they have to do.
//!
//! The list of members is advice: a node that sees others asks another owner, which costs the
//! origin a request.

use sha2::{Digest, Sha256};

/// Requests that a member may always have to do, so that few of them are no load (arbitrary).
const LOAD_FREE: u32 = 16;

/// A member that may own keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the node.
    pub name: String,
    /// Share of the keys, beside the weights of the others.
    pub weight: u32,
    /// Requests of others that it had to do when it was last heard of.
    pub load: u32,
    hash: u64,
}

impl Candidate {
    /// A member by its name.
    pub fn new(name: &str, weight: u32, load: u32) -> Self {
        Candidate {
            name: name.to_owned(),
            weight: weight.max(1),
            load,
            hash: number(&[b"node", name.as_bytes()]),
        }
    }

    /// The lowest cost is the highest score.
    fn cost(&self, key: u64) -> f64 {
        let mixed = mix(self.hash ^ mix(key));
        // 53 bits are what a float holds; the half keeps it from 0 and from 1.
        let share = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -share.ln() / f64::from(self.weight)
    }
}

/// The number of a key of a zone.
pub fn key(zone: &[u8], text: &[u8]) -> u64 {
    number(&[zone, text])
}

/// The number of an extent of a key's body; that of the first one is the key's.
pub fn key_of_extent(zone: &[u8], text: &[u8], extent: u32) -> u64 {
    match extent {
        0 => key(zone, text),
        _ => number(&[zone, text, &extent.to_le_bytes()]),
    }
}

fn number(parts: &[&[u8]]) -> u64 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let digest = digest.finalize();
    let first = digest.first_chunk::<8>().copied().unwrap_or_default();
    u64::from_le_bytes(first)
}

/// Spreads the bits of a number (the finalizer of splitmix64).
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The owner of a key, by its place among the members; none if there are none. `bound` is the
/// part of its share that a member may have to do, in hundredths: 125 for a quarter more.
pub fn owner(members: &[Candidate], key: u64, bound: u32) -> Option<usize> {
    let loads = members.iter().map(|it| u64::from(it.load));
    let load: u64 = loads.sum::<u64>().saturating_add(1);
    let weight: u64 = members.iter().map(|it| u64::from(it.weight)).sum();
    let is_free = |member: &Candidate| {
        let share = load.saturating_mul(u64::from(member.weight)) / weight.max(1);
        let most = share.saturating_mul(u64::from(bound)).div_ceil(100);
        u64::from(member.load) < most.max(u64::from(LOAD_FREE))
    };
    let best = |may: &dyn Fn(&Candidate) -> bool| {
        let able = members.iter().enumerate().filter(|(_, it)| may(it));
        let costs = able.map(|(place, it)| (it.cost(key), &it.name, place));
        // INVARIANT 1: names decide between equal costs.
        let least = costs.min_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)));
        least.map(|(_, _, place)| place)
    };
    // INVARIANT 2.
    best(&is_free).or_else(|| best(&|_| true))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const KEYS: u64 = 20_000;

    fn members(weights: &[(&str, u32)]) -> Vec<Candidate> {
        let member = |(name, weight): &(&str, u32)| Candidate::new(name, *weight, 0);
        weights.iter().map(member).collect()
    }

    fn owners(members: &[Candidate]) -> Vec<String> {
        let name = |text: u64| {
            let key = key(b"z", &text.to_le_bytes());
            members[owner(members, key, 125).unwrap()].name.clone()
        };
        (0..KEYS).map(name).collect()
    }

    fn shares(owners: &[String]) -> BTreeMap<&str, f64> {
        let mut shares = BTreeMap::new();
        for owner in owners {
            *shares.entry(owner.as_str()).or_default() += 1.0 / KEYS as f64;
        }
        shares
    }

    #[test]
    fn keys_are_shared_out_by_weight() {
        let weights = [("a", 1), ("b", 1), ("c", 2), ("d", 4)];
        let owners = owners(&members(&weights));
        let shares = shares(&owners);
        for (name, weight) in weights {
            let expected = f64::from(weight) / 8.0;
            assert!((shares[name] - expected).abs() < 0.01, "{name}: {shares:?}");
        }
    }

    #[test]
    fn member_that_comes_or_goes_moves_its_own_keys_only() {
        let few = members(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        let more = members(&[("a", 1), ("b", 1), ("e", 1), ("c", 1), ("d", 1)]);
        let (few, more) = (owners(&few), owners(&more));
        let pairs = || few.iter().zip(&more);
        for (before, after) in pairs() {
            assert!(before == after || after == "e", "{before} to {after}");
        }
        let moved = pairs().filter(|(before, after)| before != after).count();
        let part = moved as f64 / KEYS as f64;
        assert!((part - 0.2).abs() < 0.01, "{part}");
    }

    #[test]
    fn more_weight_takes_keys_and_gives_none() {
        let (light, heavy) = (
            members(&[("a", 1), ("b", 1)]),
            members(&[("a", 1), ("b", 3)]),
        );
        let (light, heavy) = (owners(&light), owners(&heavy));
        for (before, after) in light.iter().zip(&heavy) {
            assert!(before == after || after == "b", "{before} to {after}");
        }
    }

    #[test]
    fn the_order_of_members_says_nothing() {
        let some = members(&[("a", 1), ("b", 2), ("c", 1)]);
        let turned: Vec<Candidate> = some.iter().rev().cloned().collect();
        assert_eq!(owners(&some), owners(&turned));
        assert_eq!(owner(&[], 7, 125), None);
    }

    #[test]
    fn member_with_more_than_its_share_to_do_is_passed_over() {
        let mut some = members(&[("a", 1), ("b", 1), ("c", 1)]);
        let key = key(b"z", b"k");
        let first = owner(&some, key, 125).unwrap();
        // Few requests are no load, and as many as all have are no more than a share.
        some[first].load = LOAD_FREE - 1;
        assert_eq!(owner(&some, key, 125), Some(first));
        some.iter_mut().for_each(|it| it.load = 100);
        assert_eq!(owner(&some, key, 125), Some(first));
        some[first].load = 200;
        let second = owner(&some, key, 125).unwrap();
        assert_ne!(second, first);
        // The next one is the owner as if the first were not there.
        let mut rest = some.clone();
        rest.remove(first);
        let alone = &rest[owner(&rest, key, 125).unwrap()];
        assert_eq!(some[second].name, alone.name);
        // A bound of a hundred passes over whoever has all there is to do.
        some.iter_mut().for_each(|it| it.load = 1000);
        assert_eq!(owner(&some, key, 1), Some(first));
    }
}
