//! Belady's optimum by size: knows all that will be asked for, and lets go what takes most bytes
//! for the longest time until its next use. No policy can know that.
//!
//! For objects of several sizes the real optimum is too hard to find; this is the usual stand-in,
//! with the largest product among a sample. What is never asked for again is not kept at all, and
//! nor is what would be the first to go.

use hashbrown::HashMap;

use crate::policy::Policy;
use crate::random::Random;
use crate::workload::Request;

/// Objects that are compared to find what goes (arbitrary).
const SAMPLE: usize = 64;

const NEVER: u32 = u32::MAX;

/// The policy.
pub(crate) struct Belady {
    limit: u64,
    used: u64,
    written: u64,
    /// For each request, the number of the next one for the same object.
    next: Vec<u32>,
    turn: usize,
    kept: Vec<Kept>,
    places: HashMap<u64, usize>,
    random: Random,
}

struct Kept {
    object: u64,
    size: u64,
    next: u32,
}

impl Belady {
    /// The policy for so many bytes and exactly these requests.
    pub(crate) fn new(limit: u64, requests: &[Request]) -> Self {
        let mut next = vec![NEVER; requests.len()];
        let mut seen: HashMap<u64, u32> = HashMap::new();
        for (at, request) in requests.iter().enumerate().rev() {
            if let Some(later) = seen.insert(request.object, at as u32) {
                next[at] = later;
            }
        }
        Belady {
            limit,
            used: 0,
            written: 0,
            next,
            turn: 0,
            kept: Vec::new(),
            places: HashMap::new(),
            random: Random::new(1),
        }
    }

    fn remove(&mut self, place: usize) {
        let gone = self.kept.swap_remove(place);
        self.used -= gone.size;
        self.places.remove(&gone.object);
        if let Some(moved) = self.kept.get(place) {
            self.places.insert(moved.object, place);
        }
    }

    /// The place of what goes first, of a sample.
    fn worst(&mut self) -> usize {
        let count = self.kept.len() as u64;
        let turn = self.turn as u64;
        let cost = |kept: &Kept| u64::from(kept.next).saturating_sub(turn) * kept.size;
        let sample = (0..SAMPLE).map(|_| (self.random.next() % count) as usize);
        let kept = &self.kept;
        sample.max_by_key(|place| cost(&kept[*place])).unwrap_or(0)
    }
}

impl Policy for Belady {
    fn name(&self) -> String {
        "Belady by size".to_string()
    }

    fn request(&mut self, request: &Request) -> bool {
        let next = self.next[self.turn];
        self.turn += 1;
        let place = self.places.get(&request.object).copied();
        if let Some(place) = place {
            self.kept[place].next = next;
            if next == NEVER {
                self.remove(place);
            }
            return true;
        }
        let size = u64::from(request.size);
        if next == NEVER || size > self.limit {
            return false;
        }
        let cost = (u64::from(next) - self.turn as u64 + 1) * size;
        while self.used + size > self.limit {
            let worst = self.worst();
            let kept = &self.kept[worst];
            let its = u64::from(kept.next).saturating_sub(self.turn as u64) * kept.size;
            if its <= cost {
                return false;
            }
            self.remove(worst);
        }
        self.used += size;
        self.written += size;
        self.places.insert(request.object, self.kept.len());
        self.kept.push(Kept {
            object: request.object,
            size,
            next,
        });
        false
    }

    fn written(&self) -> u64 {
        self.written
    }
}
