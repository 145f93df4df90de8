//! Knowledge of the configuration of a fleet, for those who give orders and those who look.
//!
//! 1. An order that is given has a number above all that were seen, also above those that nodes
//!    have in force: a stream that was lost makes no old number a new one.
//! 2. Who has no key cannot use the numbers up: what is not signed counts up to `LEAP_MAX` above
//!    what is.

use std::collections::{BTreeMap, BTreeSet};

use super::Steps;
use super::bundle::{self, Digest};
use super::canary::picks;
use super::order::{Kind, Order, PublicKey, SecretKey, Signed};
use super::report::{Report, Verdict};
use super::stream::News;
use crate::log::LogError;
use crate::nats::NatsLog;

/// Milliseconds after which a node that has told nothing is silent: three reports.
pub const SILENT_MS: u64 = 45_000;

/// Numbers by which something that is not signed can lift the next one (arbitrary: more orders than
/// a fleet gets in its life, and a small part of all numbers).
const LEAP_MAX: u64 = 1 << 20;

/// Everything that the stream has.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Orders whose signatures are right.
    pub orders: BTreeMap<u64, Signed>,
    /// Numbers of others, with the reasons why they are none.
    pub wrong: BTreeMap<u64, &'static str>,
    /// Verdicts on orders.
    pub verdicts: BTreeMap<u64, Verdict>,
    /// Words of nodes, and when they were told.
    pub reports: BTreeMap<String, (Report, u64)>,
}

/// The nodes that are to have a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// As many as the configuration says at first.
    Steps(Steps),
    /// All at once.
    All,
}

impl NatsLog {
    /// Everything that the stream of the configuration has.
    pub async fn known(&self, keys: &[PublicKey]) -> Result<Known, LogError> {
        let mut known = Known::default();
        let (mut feed, mut pending) = self.news().await?;
        while pending > 0 {
            let (news, left) = feed.next().await?;
            pending = left;
            known.take(news, keys, self.fleet());
        }
        Ok(known)
    }
}

impl Known {
    fn take(&mut self, news: News, keys: &[PublicKey], fleet: &str) {
        match news {
            News::Order(number, bytes) => match Signed::read(&bytes, keys, fleet) {
                Ok(signed) if signed.order.revision == number => {
                    self.orders.insert(number, signed);
                }
                Ok(_) => drop(self.wrong.insert(number, "it has another number")),
                Err(why) => drop(self.wrong.insert(number, why)),
            },
            News::Verdict(number, verdict) => drop(self.verdicts.insert(number, verdict)),
            News::Report(report, at_ms) => {
                self.reports.insert(report.node.clone(), (report, at_ms));
            }
            News::Unknown => {}
        }
    }

    /// Number of the next order. INVARIANTS 1 and 2.
    pub fn next_number(&self) -> u64 {
        let signed = self.orders.keys().copied().max().unwrap_or(0);
        let most = signed.saturating_add(LEAP_MAX);
        let reports = self.reports.values();
        let told = reports.flat_map(|(report, _)| [report.in_force, report.about]);
        let unsigned = told.chain(self.wrong.keys().copied());
        let believed = unsigned.filter(|number| *number <= most).max();
        signed.max(believed.unwrap_or(0)).saturating_add(1)
    }

    /// Milliseconds since a node told something, by the clock of the servers as far as it is known.
    pub fn age_ms(&self, node: &str) -> Option<u64> {
        let newest = self.reports.values().map(|(_, at_ms)| *at_ms).max()?;
        let (_, at_ms) = self.reports.get(node)?;
        Some(newest.saturating_sub(*at_ms))
    }

    /// Nodes that live, as far as can be told.
    pub fn live(&self) -> Vec<String> {
        let is_live = |node: &&String| self.age_ms(node).is_some_and(|age| age <= SILENT_MS);
        self.reports.keys().filter(is_live).cloned().collect()
    }

    fn is_for_all(&self, order: &Order) -> bool {
        match self.verdicts.get(&order.revision) {
            Some(Verdict::Promoted { .. }) => true,
            Some(Verdict::Back { .. }) => false,
            None => !order.has_canaries(),
        }
    }

    /// True for an order that was in force for good on some node.
    fn has_held(&self, order: &Order) -> bool {
        matches!(
            self.verdicts.get(&order.revision),
            Some(Verdict::Promoted { .. })
        )
    }

    fn is_back(&self, order: &Order) -> bool {
        matches!(
            self.verdicts.get(&order.revision),
            Some(Verdict::Back { .. })
        )
    }

    /// The newest order that was not taken back.
    pub fn newest(&self) -> Option<&Order> {
        let mut orders = self.orders.values().rev().map(|it| &it.order);
        orders.find(|order| !self.is_back(order))
    }

    /// The order that is being tried.
    pub fn trial(&self) -> Option<&Order> {
        self.newest().filter(|order| !self.is_for_all(order))
    }

    /// Nodes that do not have what they should.
    pub fn behind(&self) -> Vec<&Report> {
        let wanted = self.newest().map(|it| it.revision);
        let live = self.live();
        let reports = self.reports.values().map(|(report, _)| report);
        let is_behind = |report: &&Report| {
            wanted.is_some_and(|wanted| report.in_force != wanted) && live.contains(&report.node)
        };
        reports.filter(is_behind).collect()
    }

    /// An order that brings a bundle; the error says why there can be none now.
    pub fn push(
        &self,
        (fleet, bytes): (&str, &[u8]),
        reach: Reach,
        at_ms: u64,
    ) -> Result<Order, String> {
        if let Some(trial) = self.trial() {
            let number = trial.revision;
            return Err(format!(
                "revision {number} is being tried: it is to be promoted or rolled back first"
            ));
        }
        let revision = self.next_number();
        let steps = match reach {
            Reach::Steps(steps) => steps,
            Reach::All => Steps {
                canary: 0,
                ..Steps::default()
            },
        };
        let canaries = picks(&self.live(), revision, steps.canary);
        if canaries.is_empty() && steps.canary > 0 {
            return Err("no node is heard of that could try it first".to_owned());
        }
        Ok(Order {
            kind: Kind::Push,
            revision,
            of: revision,
            at_ms,
            len: bytes.len() as u64,
            digest: bundle::digest(bytes),
            watch_ms: u64::try_from(steps.watch.as_millis()).unwrap_or(u64::MAX),
            more_errors: steps.more_errors,
            fewer_hits: steps.fewer_hits,
            fleet: fleet.to_owned(),
            canaries,
        })
    }

    /// An order that gives all nodes what some try.
    pub fn promote(&self, at_ms: u64) -> Result<Order, String> {
        let trial = self.trial().ok_or("nothing is being tried")?;
        Ok(self.again(Kind::Promote, trial, at_ms))
    }

    /// An order that gives all nodes what they had before; `to` is the number of the order that
    /// brought it.
    pub fn rollback(&self, to: Option<u64>, at_ms: u64) -> Result<Order, String> {
        let now: Option<Digest> = self.newest().map(|it| it.digest);
        let mut older = self.orders.values().rev().map(|it| &it.order);
        let found = match to {
            Some(number) => older.find(|it| it.revision == number),
            None => older.find(|it| self.has_held(it) && Some(it.digest) != now),
        };
        match (found, to) {
            (Some(order), _) => Ok(self.again(Kind::Rollback, order, at_ms)),
            (None, Some(number)) => Err(format!("revision {number} is not known any more")),
            (None, None) => Err("there is nothing to go back to".to_owned()),
        }
    }

    fn again(&self, kind: Kind, order: &Order, at_ms: u64) -> Order {
        Order {
            kind,
            revision: self.next_number(),
            at_ms,
            canaries: Vec::new(),
            ..order.clone()
        }
    }

    /// Adds an order that was given.
    pub fn sign(&mut self, order: Order, key: &SecretKey) -> Signed {
        let signed = order.sign(key);
        self.orders.insert(signed.order.revision, signed.clone());
        signed
    }

    /// Numbers of all orders, those that are none included.
    pub fn numbers(&self) -> BTreeSet<u64> {
        self.orders
            .keys()
            .chain(self.wrong.keys())
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::tests::{key, order};
    use super::super::report::State;
    use super::*;

    fn known(orders: &[Order]) -> Known {
        let mut known = Known::default();
        for order in orders {
            known.sign(order.clone(), &key(1));
        }
        known
    }

    fn report(known: &mut Known, node: &str, in_force: u64, at_ms: u64) {
        let report = Report {
            node: node.to_owned(),
            in_force,
            about: in_force,
            state: State::Settled,
            ..Report::default()
        };
        known.reports.insert(node.to_owned(), (report, at_ms));
    }

    fn promoted() -> Verdict {
        Verdict::Promoted {
            node: "n1".to_owned(),
        }
    }

    fn back() -> Verdict {
        Verdict::Back {
            node: "n1".to_owned(),
            reason: String::new(),
        }
    }

    #[test]
    fn numbers_go_on_above_all_that_anybody_has_seen() {
        let mut seen = Known::default();
        assert_eq!(seen.next_number(), 1);
        report(&mut seen, "n1", 7, 0);
        assert_eq!(seen.next_number(), 8);
        seen.take(News::Order(9, bytes::Bytes::from_static(b"x")), &[], "edge");
        assert_eq!(seen.next_number(), 10);
        let signed = order(12, 1, &[]).sign(&key(1));
        seen.take(
            News::Order(12, signed.bytes.clone()),
            &[key(1).public()],
            "edge",
        );
        // Under another number it is none.
        seen.take(News::Order(13, signed.bytes), &[key(1).public()], "edge");
        assert_eq!(seen.orders.keys().copied().collect::<Vec<_>>(), [12]);
        assert_eq!(seen.next_number(), 14);
        assert_eq!(seen.numbers(), BTreeSet::from([9, 12, 13]));
        // INVARIANT 2.
        report(&mut seen, "liar", u64::MAX - 1, 0);
        seen.take(News::Order(u64::MAX, bytes::Bytes::new()), &[], "edge");
        assert_eq!(seen.next_number(), 14);
        report(&mut seen, "liar", 12 + LEAP_MAX, 0);
        assert_eq!(seen.next_number(), 12 + LEAP_MAX + 1);
    }

    #[test]
    fn pushes_wait_for_trials_and_are_tried_by_nodes_that_live() {
        let steps = Steps {
            canary: 500,
            ..Steps::default()
        };
        let mut seen = known(&[order(1, 1, &[])]);
        let push = |seen: &Known, reach| seen.push(("edge", b"bundle"), reach, 5);
        assert!(push(&seen, Reach::Steps(steps)).is_err());
        assert_eq!(
            push(&seen, Reach::All).unwrap().canaries,
            Vec::<String>::new()
        );
        report(&mut seen, "n1", 1, 100_000);
        report(&mut seen, "n2", 1, 100_000 - SILENT_MS);
        report(&mut seen, "n3", 1, 100_000 - SILENT_MS - 1);
        let pushed = push(&seen, Reach::Steps(steps)).unwrap();
        assert_eq!(
            (pushed.revision, pushed.of, pushed.canaries.len()),
            (2, 2, 1)
        );
        assert_ne!(pushed.canaries, ["n3"]);
        seen.sign(pushed, &key(1));
        assert!(push(&seen, Reach::All).is_err());
        seen.verdicts.insert(2, back());
        assert_eq!(push(&seen, Reach::All).unwrap().revision, 3);
    }

    #[test]
    fn promotions_and_rollbacks_are_new_orders_with_bundles_that_are_known() {
        let mut seen = known(&[order(1, 1, &[]), order(2, 2, &[])]);
        assert!(seen.promote(5).is_err());
        // Nobody had any of them.
        assert!(seen.rollback(None, 5).is_err());
        seen.verdicts.insert(1, promoted());
        seen.verdicts.insert(2, promoted());
        let order_of = |order: Order| (order.kind, order.revision, order.of, order.digest[0]);
        assert_eq!(
            order_of(seen.rollback(None, 5).unwrap()),
            (Kind::Rollback, 3, 1, 1)
        );
        assert_eq!(
            order_of(seen.rollback(Some(2), 5).unwrap()),
            (Kind::Rollback, 3, 2, 2)
        );
        assert!(seen.rollback(Some(3), 5).is_err());
        seen.sign(order(3, 3, &["n1"]), &key(1));
        // What is tried is for nobody else: back is what the others have.
        assert_eq!(
            order_of(seen.rollback(None, 5).unwrap()),
            (Kind::Rollback, 4, 2, 2)
        );
        let promoted = seen.promote(5).unwrap();
        assert!(!promoted.has_canaries());
        assert_eq!(order_of(promoted), (Kind::Promote, 4, 3, 3));
        seen.verdicts.insert(3, back());
        assert!(seen.promote(5).is_err());
        assert_eq!(
            order_of(seen.rollback(None, 5).unwrap()),
            (Kind::Rollback, 4, 1, 1)
        );
        assert!(known(&[order(1, 1, &[])]).rollback(None, 5).is_err());
    }
}
