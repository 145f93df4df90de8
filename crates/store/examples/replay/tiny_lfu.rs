//! W-TinyLFU (Einziger, Friedman and Manes, ACM TOS 2017), by bytes: a window of one hundredth, and
//! a main part whose admission compares how often things were asked for of late.
//!
//! ```text
//!   new ──► window (LRU, 1 %) ──► probation (LRU) ◄──► protected (LRU, 80 % of the main part)
//!                              └ only if it was asked for more often than what must go for it
//! ```
//!
//! Counts are those of a sketch of four rows, halved after ten requests for each object that fits.
//! A candidate that is larger than one victim is weighed against all that must go (Einziger and
//! others, "Lightweight Robust Size Aware Cache Management", 2022).

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::policy::Policy;
use crate::random::mixed;
use crate::workload::Request;

/// Requests for each object that fits, after which all counts are halved (the authors' choice).
const SAMPLE: u64 = 10;
/// Counters of a row for each object that fits.
const WIDTH: u64 = 8;
const ROWS: u64 = 4;
/// The most that a counter counts to.
const MOST: u8 = 15;

/// Counts of requests of late.
struct Sketch {
    counts: Vec<u8>,
    mask: u64,
    sample: u64,
    seen: u64,
}

impl Sketch {
    fn new(objects: u64) -> Self {
        let width = (objects * WIDTH).next_power_of_two();
        Sketch {
            counts: vec![0; (width * ROWS) as usize],
            mask: width - 1,
            sample: objects * SAMPLE,
            seen: 0,
        }
    }

    fn places(&self, object: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.mask;
        let place =
            move |row: u64| (row * (mask + 1) + (mixed(object ^ row << 60) & mask)) as usize;
        (0..ROWS).map(place)
    }

    fn add(&mut self, object: u64) {
        for place in self.places(object) {
            self.counts[place] = (self.counts[place] + 1).min(MOST);
        }
        self.seen += 1;
        if self.seen >= self.sample {
            self.seen /= 2;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    fn count(&self, object: u64) -> u64 {
        let counts = self.places(object).map(|place| self.counts[place]);
        counts.min().unwrap_or(0).into()
    }
}

/// Objects in the order of their last use.
#[derive(Default)]
struct Order {
    used: u64,
    by_turn: BTreeMap<u64, u64>,
}

/// Part of the cache that an object is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Window,
    Probation,
    Protected,
}

/// The policy.
pub(crate) struct TinyLfu {
    limit: u64,
    sketch: Sketch,
    kept: HashMap<u64, (Part, u64, u64)>,
    parts: [Order; 3],
    turn: u64,
    written: u64,
}

impl TinyLfu {
    /// The policy for so many bytes, with requests for objects like these.
    pub(crate) fn new(limit: u64, requests: &[Request]) -> Self {
        let bytes: u64 = requests.iter().map(|request| u64::from(request.size)).sum();
        let mean = (bytes / requests.len().max(1) as u64).max(1);
        TinyLfu {
            limit,
            sketch: Sketch::new((limit / mean).max(64)),
            kept: HashMap::new(),
            parts: Default::default(),
            turn: 0,
            written: 0,
        }
    }

    fn main_limit(&self) -> u64 {
        self.limit - self.window_limit()
    }

    fn window_limit(&self) -> u64 {
        self.limit / 100
    }

    fn put(&mut self, object: u64, part: Part, size: u64) {
        self.turn += 1;
        self.kept.insert(object, (part, self.turn, size));
        let order = &mut self.parts[part as usize];
        order.by_turn.insert(self.turn, object);
        order.used += size;
    }

    fn take(&mut self, object: u64) -> Option<(Part, u64)> {
        let (part, turn, size) = self.kept.remove(&object)?;
        let order = &mut self.parts[part as usize];
        order.by_turn.remove(&turn);
        order.used -= size;
        Some((part, size))
    }

    fn oldest(&self, part: Part) -> Option<u64> {
        let first = self.parts[part as usize].by_turn.first_key_value();
        first.map(|(_, object)| *object)
    }

    fn main_used(&self) -> u64 {
        self.parts[Part::Probation as usize].used + self.parts[Part::Protected as usize].used
    }

    /// Gives an object that left the window a place in the main part, if it is worth it.
    fn admit(&mut self, candidate: u64, size: u64) {
        let mut victims = Vec::new();
        let (mut freed, mut worth) = (0, 0);
        let needed = (self.main_used() + size).saturating_sub(self.main_limit());
        let orders = [Part::Probation, Part::Protected].map(|part| &self.parts[part as usize]);
        for victim in orders.into_iter().flat_map(|order| order.by_turn.values()) {
            if freed >= needed {
                break;
            }
            freed += self.kept.get(victim).map_or(0, |(_, _, size)| *size);
            worth += self.sketch.count(*victim);
            victims.push(*victim);
        }
        if freed < needed || (needed > 0 && self.sketch.count(candidate) <= worth) {
            return;
        }
        for victim in victims {
            self.take(victim);
        }
        self.put(candidate, Part::Probation, size);
    }

    /// An object was found.
    fn promote(&mut self, object: u64) {
        let Some((part, size)) = self.take(object) else {
            return;
        };
        let to = match part {
            Part::Window => Part::Window,
            Part::Probation | Part::Protected => Part::Protected,
        };
        self.put(object, to, size);
        while self.parts[Part::Protected as usize].used > self.main_limit() / 5 * 4 {
            let Some(oldest) = self.oldest(Part::Protected) else {
                return;
            };
            if let Some((_, size)) = self.take(oldest) {
                self.put(oldest, Part::Probation, size);
            }
        }
    }
}

impl Policy for TinyLfu {
    fn name(&self) -> String {
        "W-TinyLFU".to_string()
    }

    fn request(&mut self, request: &Request) -> bool {
        self.sketch.add(request.object);
        if self.kept.contains_key(&request.object) {
            self.promote(request.object);
            return true;
        }
        let size = u64::from(request.size);
        if size > self.main_limit() {
            return false;
        }
        // All of it is in the window for a moment, so that all of it is written.
        self.written += size;
        self.put(request.object, Part::Window, size);
        while self.parts[Part::Window as usize].used > self.window_limit() {
            let Some(oldest) = self.oldest(Part::Window) else {
                break;
            };
            if let Some((_, size)) = self.take(oldest) {
                self.admit(oldest, size);
            }
        }
        false
    }

    fn written(&self) -> u64 {
        self.written
    }
}
