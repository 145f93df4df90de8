//! Answers by status code.
//!
//! The counters of a class are made when its first status is counted, so that a row that only ever
//! sees 200 stays small. Codes that HTTP has not (below 100, 600 and above) are counted together
//! as server errors without a code.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::place::Place;

/// Classes of statuses: 1xx to 5xx.
pub const CLASSES: usize = 5;

/// One worker's counters.
#[derive(Debug, Default)]
pub struct ResponseCells {
    classes: [OnceLock<Box<[AtomicU64; 100]>>; CLASSES],
    other: AtomicU64,
}

/// Answers by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseCount {
    /// Answers by code; those that there are none of are left out.
    pub codes: BTreeMap<u16, u64>,
    /// Answers by the first digit of their code, from 1xx.
    pub classes: [u64; CLASSES],
}

impl ResponseCells {
    /// Counts an answer.
    pub fn record(&self, status: u16) {
        self.cell(status).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer of the worker that has the place of these.
    pub fn record_at(&self, place: Place, status: u16) {
        place.add(self.cell(status), 1);
    }

    fn cell(&self, status: u16) -> &AtomicU64 {
        let status = usize::from(status);
        let class = (status / 100).checked_sub(1);
        let cell = class.and_then(|class| {
            let codes = self.classes.get(class)?;
            codes.get_or_init(new_class).get(status % 100)
        });
        cell.unwrap_or(&self.other)
    }

    /// Adds what it counted.
    pub fn add_to(&self, count: &mut ResponseCount) {
        for (index, codes) in self.classes.iter().enumerate() {
            let codes = codes.get().into_iter().flat_map(|codes| codes.iter());
            for (code, cell) in (100 * (index + 1)..).zip(codes) {
                let answers = cell.load(Ordering::Relaxed);
                if answers > 0 {
                    // A code is below 600.
                    *count.codes.entry(code as u16).or_default() += answers;
                    add(&mut count.classes, index, answers);
                }
            }
        }
        let other = self.other.load(Ordering::Relaxed);
        add(&mut count.classes, CLASSES - 1, other);
    }
}

fn new_class() -> Box<[AtomicU64; 100]> {
    Box::new([const { AtomicU64::new(0) }; 100])
}

fn add(classes: &mut [u64; CLASSES], index: usize, count: u64) {
    if let Some(class) = classes.get_mut(index) {
        *class += count;
    }
}

impl ResponseCount {
    /// All answers.
    pub fn total(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Counts that came after an earlier count.
    pub fn since(&self, base: &ResponseCount) -> ResponseCount {
        let codes = self.codes.iter().map(|(code, count)| {
            let before = base.codes.get(code).copied().unwrap_or_default();
            (*code, count.saturating_sub(before))
        });
        let mut classes = self.classes;
        for (count, before) in classes.iter_mut().zip(base.classes) {
            *count = count.saturating_sub(before);
        }
        ResponseCount {
            codes: codes.filter(|(_, count)| *count > 0).collect(),
            classes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_code_and_class() {
        let (one, two) = (ResponseCells::default(), ResponseCells::default());
        for status in [101, 200, 200, 206, 304, 404, 499, 500, 599, 600, 0] {
            one.record(status);
        }
        two.record(200);
        let mut count = ResponseCount::default();
        one.add_to(&mut count);
        two.add_to(&mut count);
        assert_eq!(count.classes, [1, 4, 1, 2, 4]);
        assert_eq!(count.codes.get(&200), Some(&3));
        assert_eq!(count.codes.get(&599), Some(&1));
        assert_eq!(count.codes.get(&600), None);
        assert_eq!(count.total(), 12);
    }
}
