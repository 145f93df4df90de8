//! Record of what was seen: times in histograms, counts, and faults with examples.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::{Answer, Event, Session};
use crate::module::Claim;

/// The longest time that is told apart, in microseconds: an hour.
const LONGEST: u64 = 3_600_000_000;
/// Examples of a kind of fault that are kept.
const EXAMPLES: usize = 5;
/// Seconds that are told apart; what comes later counts for the last one.
const SECONDS_MAX: usize = 24 * 3600;

/// Times of full handshakes, by their name among the phases.
const HANDSHAKE: &str = "handshake";
/// Times of handshakes that resumed a session.
const RESUMPTION: &str = "resumption";

/// Faults of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Faults {
    /// Number of faults.
    pub count: u64,
    /// Examples of the fault: the first few, with their place.
    pub examples: Vec<String>,
}

/// Connections that were opened for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Connections {
    /// Number of connections that were opened.
    pub opened: u64,
    /// Number of full handshakes of TLS.
    pub full: u64,
    /// Number of handshakes that resumed a session.
    pub resumed: u64,
    /// Number of requests that were sent again, because a kept connection took none any more.
    pub repeated: u64,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Second {
    /// Number of answers that were complete in this second.
    pub requests: u64,
    /// Number of bytes of those answers' bodies.
    pub bytes: u64,
    /// Faults.
    pub faults: u64,
    /// The longest time to a first byte, in microseconds.
    pub slowest_us: u64,
}

/// Record of what was seen.
#[derive(Clone, Debug)]
pub struct Record {
    /// Microseconds to the first byte.
    pub first_byte: Histogram<u64>,
    /// Microseconds to the last byte.
    pub total: Histogram<u64>,
    /// Microseconds of a first byte behind the first of those who asked for the same at one time.
    pub behind: Histogram<u64>,
    /// Microseconds of what a module tells apart, by its name for it.
    pub phases: BTreeMap<&'static str, Histogram<u64>>,
    /// The largest of what a module counts, by its name for it.
    pub amounts: BTreeMap<&'static str, u64>,
    /// Claims that a module found true or not on its way.
    pub claims: Vec<Claim>,
    /// Answers.
    pub requests: u64,
    /// Number of bytes of the answers' bodies.
    pub bytes: u64,
    /// Connections.
    pub connections: Connections,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Answers by cache status.
    pub cache_statuses: BTreeMap<String, u64>,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, Faults>,
    /// Seconds since the beginning.
    pub seconds: Vec<Second>,
    began: Instant,
}

impl Record {
    /// Nothing yet.
    pub fn new(began: Instant) -> Self {
        Self {
            first_byte: histogram(),
            total: histogram(),
            behind: histogram(),
            phases: BTreeMap::new(),
            amounts: BTreeMap::new(),
            claims: Vec::new(),
            requests: 0,
            bytes: 0,
            connections: Connections::default(),
            statuses: BTreeMap::new(),
            cache_statuses: BTreeMap::new(),
            faults: BTreeMap::new(),
            seconds: Vec::new(),
            began,
        }
    }

    /// An answer came, to a request that was sent `late` behind its time.
    pub fn answer(&mut self, answer: &Answer, late: Duration) {
        let first_byte = micros(answer.first_byte + late);
        self.first_byte.saturating_record(first_byte);
        self.total.saturating_record(micros(answer.total + late));
        self.requests += 1;
        self.bytes += answer.body_bytes;
        *self.statuses.entry(answer.head.status).or_default() += 1;
        let status = answer.head.cache_status.as_deref().unwrap_or("-");
        match self.cache_statuses.get_mut(status) {
            Some(count) => *count += 1,
            None => {
                self.cache_statuses.insert(status.to_owned(), 1);
            }
        }
        let second = self.second();
        second.requests += 1;
        second.bytes += answer.body_bytes;
        second.slowest_us = second.slowest_us.max(first_byte);
    }

    /// Something happened on a connection.
    pub fn event(&mut self, event: Event) {
        let connections = &mut self.connections;
        match event {
            Event::Opened => connections.opened += 1,
            Event::Repeated => connections.repeated += 1,
            Event::Handshake(Session::Full, time) => {
                connections.full += 1;
                self.phase(HANDSHAKE, time);
            }
            Event::Handshake(Session::Resumed, time) => {
                connections.resumed += 1;
                self.phase(RESUMPTION, time);
            }
            Event::Ended(fault) => {
                self.fault(fault.kind(), || format!("between answers: {fault}"));
            }
        }
    }

    /// Something was wrong.
    pub fn fault(&mut self, kind: &'static str, text: impl FnOnce() -> String) {
        self.second().faults += 1;
        let faults = self.faults.entry(kind).or_default();
        faults.count += 1;
        if faults.examples.len() < EXAMPLES {
            faults.examples.push(text());
        }
    }

    /// A first byte came so long behind the first of all.
    pub fn was_behind(&mut self, time: Duration) {
        self.behind.saturating_record(micros(time));
    }

    /// Something that the module tells apart took so long.
    pub fn phase(&mut self, name: &'static str, time: Duration) {
        let times = self.phases.entry(name).or_insert_with(histogram);
        times.saturating_record(micros(time));
    }

    /// Notes that so much was counted of something.
    pub fn amount(&mut self, name: &'static str, amount: u64) {
        let most = self.amounts.entry(name).or_default();
        *most = amount.max(*most);
    }

    /// Faults of all kinds.
    pub fn fault_count(&self) -> u64 {
        self.faults.values().map(|faults| faults.count).sum()
    }

    /// Adds what another saw.
    pub fn add(&mut self, other: &Self) {
        // All histograms have the same bounds, so that adding cannot fail.
        for (own, other) in [
            (&mut self.first_byte, &other.first_byte),
            (&mut self.total, &other.total),
            (&mut self.behind, &other.behind),
        ] {
            let _ = own.add(other);
        }
        for (name, other) in &other.phases {
            let _ = self.phases.entry(name).or_insert_with(histogram).add(other);
        }
        self.claims.extend(other.claims.iter().cloned());
        for (name, amount) in &other.amounts {
            self.amount(name, *amount);
        }
        self.requests += other.requests;
        self.bytes += other.bytes;
        let (own, others) = (&mut self.connections, &other.connections);
        own.opened += others.opened;
        own.full += others.full;
        own.resumed += others.resumed;
        own.repeated += others.repeated;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (status, count) in &other.cache_statuses {
            *self.cache_statuses.entry(status.clone()).or_default() += count;
        }
        for (kind, faults) in &other.faults {
            let own = self.faults.entry(kind).or_default();
            own.count += faults.count;
            let free = EXAMPLES - own.examples.len().min(EXAMPLES);
            own.examples
                .extend(faults.examples.iter().take(free).cloned());
        }
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), Second::default());
        }
        for (own, other) in self.seconds.iter_mut().zip(&other.seconds) {
            own.requests += other.requests;
            own.bytes += other.bytes;
            own.faults += other.faults;
            own.slowest_us = own.slowest_us.max(other.slowest_us);
        }
    }

    /// The second of the moment.
    fn second(&mut self) -> &mut Second {
        let second = (self.began.elapsed().as_secs() as usize).min(SECONDS_MAX - 1);
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, Second::default());
        }
        // It was made above.
        &mut self.seconds[second]
    }
}

fn histogram() -> Histogram<u64> {
    // The bounds are constant and valid: 1 to an hour with three digits.
    Histogram::new_with_bounds(1, LONGEST, 3).unwrap_or_else(|_| unreachable!("constant bounds"))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Framing, Head};

    fn answer(micros: u64) -> Answer {
        Answer {
            head: Head {
                status: 200,
                framing: Framing::Empty,
                generation: None,
                content_range: None,
                cache_status: Some("HIT".to_owned()),
                age: None,
                is_last: false,
            },
            body_bytes: 10,
            first_byte: Duration::from_micros(micros),
            total: Duration::from_micros(2 * micros),
        }
    }

    #[test]
    fn sums_have_what_all_saw() {
        let began = Instant::now();
        let mut sum = Record::new(began);
        for thread in 0..3 {
            let mut record = Record::new(began);
            record.answer(&answer(100 + thread), Duration::ZERO);
            record.answer(&answer(1), Duration::from_secs(1));
            for _ in 0..4 {
                record.fault("mixed", || "somewhere".to_owned());
            }
            sum.add(&record);
        }
        assert_eq!((sum.requests, sum.bytes, sum.fault_count()), (6, 60, 12));
        assert_eq!(sum.cache_statuses.get("HIT"), Some(&6));
        assert_eq!(sum.faults["mixed"].examples.len(), EXAMPLES);
        assert_eq!(sum.first_byte.len(), 6);
        // A request that was sent a second late was answered a second late.
        assert!(sum.first_byte.max() >= 1_000_000);
        assert_eq!(
            sum.seconds
                .iter()
                .map(|second| second.requests)
                .sum::<u64>(),
            6
        );
    }
}
