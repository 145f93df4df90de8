//! Placement: which disk of a zone a key belongs to.
//!
//! Keys fall into a fixed number of places by some bits of their hash. Each place belongs to the
//! disk with the highest score there (weighted rendezvous hashing), and the score depends on
//! nothing but the place, the disk's path as configured, and its weight. So a disk that comes or
//! goes moves its own share and nothing else, wherever it stands in the configuration, and a
//! look-up reads one byte of a table.
//!
//! 1. Equal paths and weights give equal placements, in every process.
//! 2. A place moves between two placements only to a disk that came or grew, or from one that left
//!    or shrank.
//!
//! Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates"; the weights
//! after Schindelhauer and Schomaker, "Weighted distributed hash tables".

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::key::Key;

/// A power of two. With so many, the share of a disk is off by half a percent of all keys.
const PLACES: usize = 16 << 10;
const WORDS: usize = PLACES / 64;

/// The most disks of a zone: a table is an array of bytes. More disks than fit a server.
pub const MAX_DISKS: usize = 64;

/// The place of a key. Its low bits choose no shard, and hardly a position in one.
fn place_of(key: &Key) -> usize {
    key.mixed() as usize % PLACES
}

/// Disk in a placement: its path and its weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighed<'a> {
    /// Path of the disk as configured.
    pub(crate) path: &'a Path,
    /// Weight of the disk's share of all keys, relative to the others.
    pub(crate) weight: u32,
}

impl Weighed<'_> {
    /// The higher the better; larger weights win in proportion.
    fn score(&self, place: usize) -> f64 {
        let hash = xxh3_64_with_seed(self.path.as_os_str().as_encoded_bytes(), place as u64);
        // The 53 high bits, between 0 and 1 and neither of them.
        let unit = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -f64::from(self.weight.max(1)) / unit.ln()
    }
}

/// Places that belong to a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share(Box<[u64]>);

impl Share {
    fn none() -> Self {
        Self([0; WORDS].into())
    }

    fn add(&mut self, place: usize) {
        if let Some(word) = self.0.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    /// True if a key belongs to this share.
    pub(crate) fn has(&self, key: &Key) -> bool {
        let place = place_of(key);
        let word = self.0.get(place / 64).copied().unwrap_or_default();
        word & (1 << (place % 64)) != 0
    }

    /// Places that belong to both shares.
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    /// Part of all places that belongs to the share, from 0 to 1.
    #[cfg(test)]
    fn part(&self) -> f64 {
        let places: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        f64::from(places) / PLACES as f64
    }
}

/// Table of the disk that each place belongs to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    /// Empty if there is nothing to choose.
    places: Box<[u8]>,
}

impl Placement {
    /// Distributes all places among disks, of which there are at most [`MAX_DISKS`].
    pub(crate) fn new(disks: &[Weighed<'_>]) -> Self {
        if disks.len() < 2 {
            return Self::default();
        }
        let best = |place| {
            let scores = disks.iter().map(|disk| disk.score(place));
            let best = scores.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
            best.map_or(0, |(index, _)| index as u8)
        };
        Self {
            places: (0..PLACES).map(best).collect(),
        }
    }

    /// Index of the disk that a key belongs to.
    pub(crate) fn of(&self, key: &Key) -> usize {
        if self.places.is_empty() {
            return 0;
        }
        let disk = self.places.get(place_of(key));
        disk.map_or(0, |disk| usize::from(*disk))
    }

    /// The share of each of `count` disks.
    pub(crate) fn shares(&self, count: usize) -> Vec<Share> {
        let mut shares = vec![Share::none(); count];
        for place in 0..PLACES {
            let disk = self.places.get(place).copied().unwrap_or_default();
            if let Some(share) = shares.get_mut(usize::from(disk)) {
                share.add(place);
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks<'a>(all: &[(&'a str, u32)]) -> Vec<Weighed<'a>> {
        let one = |(path, weight): &(&'a str, u32)| Weighed {
            path: Path::new(*path),
            weight: *weight,
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn shares_are_within_two_percent_of_the_weights() {
        let table: [&[(&str, u32)]; 5] = [
            &[("/a", 1), ("/b", 1)],
            &[("/a", 1), ("/b", 1), ("/c", 2)],
            &[
                ("/cache/1", 1),
                ("/cache/2", 1),
                ("/cache/3", 1),
                ("/cache/4", 1),
            ],
            &[("/ssd", 9), ("/hdd", 1)],
            &[("/a", 100), ("/b", 50), ("/c", 25), ("/d", 25)],
        ];
        for weights in table {
            let disks = disks(weights);
            let all: u32 = weights.iter().map(|(_, weight)| weight).sum();
            let shares = Placement::new(&disks).shares(disks.len());
            for (share, (path, weight)) in shares.iter().zip(weights) {
                let wanted = f64::from(*weight) / f64::from(all);
                let got = share.part();
                println!("share of {path}: {got:.4}, by weight {wanted:.4}");
                assert!((got - wanted).abs() < 0.02, "{path}: {got} for {wanted}");
            }
        }
    }

    #[test]
    fn disk_that_comes_or_goes_moves_its_own_share_only() {
        let with = disks(&[("/a", 1), ("/b", 2), ("/c", 1)]);
        let without = disks(&[("/c", 1), ("/a", 1)]);
        let (more, fewer) = (Placement::new(&with), Placement::new(&without));
        let share = more.shares(3).remove(1);
        let mut moved = 0;
        for number in 0..100_000_u32 {
            let key = Key::of(&number.to_le_bytes());
            let (before, after) = (with[more.of(&key)].path, without[fewer.of(&key)].path);
            if before != after {
                assert_eq!(before, Path::new("/b"));
                moved += 1;
            }
            assert_eq!(share.has(&key), before == Path::new("/b"));
        }
        println!("moved with the disk that left: {moved} of 100000, its weight is half");
    }

    #[test]
    fn weight_that_grows_only_draws_to_itself() {
        let (small, large) = (
            disks(&[("/a", 1), ("/b", 1)]),
            disks(&[("/a", 1), ("/b", 3)]),
        );
        let (before, after) = (Placement::new(&small), Placement::new(&large));
        for number in 0..10_000_u32 {
            let key = Key::of(&number.to_le_bytes());
            assert!(before.of(&key) == after.of(&key) || after.of(&key) == 1);
        }
    }

    #[test]
    fn one_disk_has_everything() {
        let placement = Placement::new(&disks(&[("/a", 7)]));
        assert_eq!(placement.of(&Key::of(b"x")), 0);
        assert!(placement.shares(1)[0].has(&Key::of(b"x")));
    }
}
