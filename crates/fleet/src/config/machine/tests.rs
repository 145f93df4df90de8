//! A fleet of machines, whose applying and telling the test does.

use std::collections::BTreeMap;

use super::super::order::tests::{key, order};
use super::super::order::{Kind, Order};
use super::*;

/// Nodes, with a disk and a way to apply each.
struct Fleet {
    nodes: Vec<Node>,
    orders: Vec<Signed>,
    verdicts: BTreeMap<u64, Verdict>,
    now_ms: u64,
}

#[derive(Default)]
struct Node {
    machine: Machine,
    good: Option<Signed>,
    figures: Figures,
    /// Digest of what the process runs.
    runs: Option<u8>,
    /// Digests that it cannot apply.
    cannot: Vec<u8>,
    told: Vec<String>,
}

impl Node {
    fn new(name: &str) -> Node {
        Node {
            machine: Machine::new(name, None),
            ..Node::default()
        }
    }

    fn restart(&mut self) {
        let name = self.machine.node().to_owned();
        self.machine = Machine::new(&name, self.good.clone());
        self.runs = self.good.as_ref().map(|it| it.order.digest[0]);
    }

    fn serve(&mut self, answers: u64, errors: u64) {
        self.figures.add(&Figures {
            answers,
            errors,
            lookups: answers,
            hits: answers / 2,
        });
    }

    /// Does what is to be done; verdicts are for others.
    fn obey(&mut self, actions: Vec<Action>, now_ms: u64) -> Vec<(u64, Verdict)> {
        let mut verdicts = Vec::new();
        for action in actions {
            let wanted = match action {
                Action::Settle(signed) => {
                    self.good = Some(signed);
                    continue;
                }
                Action::Judge(number, verdict) => {
                    verdicts.push((number, verdict));
                    continue;
                }
                Action::Tell(text, _) => {
                    self.told.push(text);
                    continue;
                }
                Action::Try(signed) => Some(signed.order.digest[0]),
                Action::Return(good) => good.map(|it| it.order.digest[0]),
            };
            let outcome = match wanted {
                Some(digest) if self.cannot.contains(&digest) => Err("it is wrong".to_owned()),
                wanted => {
                    self.runs = wanted;
                    Ok(())
                }
            };
            let next = self.machine.applied(outcome, now_ms, &self.figures);
            verdicts.extend(self.obey(next, now_ms));
        }
        verdicts
    }
}

impl Fleet {
    fn new(count: usize) -> Fleet {
        Fleet {
            nodes: (0..count)
                .map(|number| Node::new(&format!("n{number}")))
                .collect(),
            orders: Vec::new(),
            verdicts: BTreeMap::new(),
            now_ms: 1_000,
        }
    }

    fn push(&mut self, order: Order) {
        self.orders.push(order.sign(&key(1)));
    }

    /// All nodes hear everything, and go on until nothing happens any more.
    fn run(&mut self) {
        for _ in 0..10 {
            let reports: Vec<Report> = self
                .nodes
                .iter()
                .map(|node| node.machine.report(&node.figures))
                .collect();
            for node in &mut self.nodes {
                self.orders
                    .iter()
                    .for_each(|it| node.machine.hear_order(it.clone()));
                let verdicts = self.verdicts.iter();
                verdicts.for_each(|(number, it)| node.machine.hear_verdict(*number, it.clone()));
                reports
                    .iter()
                    .for_each(|it| node.machine.hear_report(it.clone()));
                let actions = node.machine.step(self.now_ms, &node.figures);
                for (number, verdict) in node.obey(actions, self.now_ms) {
                    self.verdicts.entry(number).or_insert(verdict);
                }
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.run();
    }

    fn runs(&self) -> Vec<u8> {
        self.nodes
            .iter()
            .map(|node| node.runs.unwrap_or(0))
            .collect()
    }

    fn states(&self) -> Vec<&'static str> {
        let reports = self
            .nodes
            .iter()
            .map(|node| node.machine.report(&node.figures));
        reports.map(|report| report.state.word()).collect()
    }
}

#[test]
fn order_without_canaries_is_taken_by_all_and_is_good() {
    let mut fleet = Fleet::new(3);
    fleet.push(order(1, 1, &[]));
    fleet.run();
    assert_eq!(fleet.runs(), [1, 1, 1]);
    assert_eq!(fleet.states(), ["settled"; 3]);
    fleet.nodes[0].restart();
    assert_eq!(fleet.runs(), [1, 1, 1]);
}

#[test]
fn older_orders_are_not_taken_again_and_a_rollback_is_a_newer_one() {
    let mut fleet = Fleet::new(1);
    fleet.push(order(1, 1, &[]));
    fleet.push(order(2, 2, &[]));
    fleet.run();
    assert_eq!(fleet.runs(), [2]);
    // Somebody has removed the newer one, and the node forgets all but its disk.
    fleet.orders.pop();
    fleet.nodes[0].restart();
    fleet.run();
    assert_eq!(fleet.runs(), [2]);
    let reason = fleet.nodes[0].machine.report(&Figures::default()).reason;
    assert!(reason.contains("no order with this number"), "{reason}");
    let rollback = Order {
        kind: Kind::Rollback,
        of: 1,
        ..order(3, 1, &[])
    };
    fleet.push(rollback);
    fleet.run();
    assert_eq!(fleet.runs(), [1]);
}

#[test]
fn trial_that_holds_is_promoted_to_all() {
    let mut fleet = Fleet::new(4);
    fleet.push(order(1, 1, &[]));
    fleet.run();
    fleet.push(order(2, 2, &["n1", "n3"]));
    fleet.run();
    assert_eq!(fleet.runs(), [1, 2, 1, 2]);
    assert_eq!(fleet.states(), ["waiting", "watched", "waiting", "watched"]);
    fleet.nodes.iter_mut().for_each(|node| node.serve(1000, 3));
    fleet.pass(9_999);
    assert_eq!(fleet.runs(), [1, 2, 1, 2]);
    assert_eq!(fleet.nodes[1].good.as_ref().unwrap().order.revision, 1);
    fleet.pass(1);
    assert_eq!(fleet.runs(), [2; 4]);
    assert_eq!(fleet.states(), ["settled"; 4]);
    assert!(fleet.nodes.iter().all(|node| revision(&node.good) == 2));
}

#[test]
fn trial_that_does_worse_goes_back_everywhere_and_is_not_tried_again() {
    let mut fleet = Fleet::new(4);
    fleet.push(order(1, 1, &[]));
    fleet.run();
    fleet.nodes.iter_mut().for_each(|node| node.serve(1000, 3));
    fleet.push(order(2, 2, &["n1", "n3"]));
    fleet.run();
    fleet.nodes.iter_mut().for_each(|node| node.serve(1000, 3));
    fleet.nodes[1].serve(100, 100);
    fleet.pass(2_000);
    assert_eq!(fleet.runs(), [1; 4]);
    assert_eq!(fleet.states(), ["waiting", "back", "waiting", "back"]);
    let told = &fleet.nodes[3].told;
    assert!(
        told.iter().any(|it| it.contains("taken back: n1: 9.3 %")),
        "{told:?}"
    );
    fleet.nodes.iter_mut().for_each(Node::restart);
    fleet.pass(100_000);
    assert_eq!(fleet.runs(), [1; 4]);
    // What comes next is tried as ever.
    fleet.push(order(3, 3, &["n0"]));
    fleet.run();
    assert_eq!(fleet.runs(), [3, 1, 1, 1]);
}

#[test]
fn origin_that_fails_for_all_is_no_fault_of_the_trial() {
    let mut fleet = Fleet::new(3);
    fleet.push(order(1, 1, &[]));
    fleet.run();
    fleet.push(order(2, 2, &["n0"]));
    fleet.run();
    fleet
        .nodes
        .iter_mut()
        .for_each(|node| node.serve(1000, 500));
    fleet.pass(10_000);
    assert_eq!(fleet.runs(), [2; 3]);
}

#[test]
fn canary_that_cannot_apply_an_order_ends_the_trial() {
    let mut fleet = Fleet::new(3);
    fleet.nodes[0].cannot = vec![2];
    fleet.push(order(1, 1, &[]));
    fleet.run();
    fleet.push(order(2, 2, &["n0", "n1"]));
    fleet.run();
    assert_eq!(fleet.runs(), [1; 3]);
    // The second one has heard of the end before it began.
    assert_eq!(fleet.states(), ["refused", "waiting", "waiting"]);
}

#[test]
fn node_that_cannot_apply_an_order_stays_and_tries_again_when_it_is_told_to() {
    let mut fleet = Fleet::new(2);
    fleet.push(order(1, 1, &[]));
    fleet.run();
    fleet.nodes[0].cannot = vec![2];
    fleet.push(order(2, 2, &[]));
    fleet.run();
    assert_eq!(fleet.runs(), [1, 2]);
    assert_eq!(fleet.states(), ["refused", "settled"]);
    let told = fleet.nodes[0].told.len();
    fleet.pass(100_000);
    assert_eq!(fleet.nodes[0].told.len(), told);
    fleet.nodes[0].cannot.clear();
    fleet.nodes[0].machine.forget_refusals();
    fleet.run();
    assert_eq!(fleet.runs(), [2, 2]);
}

#[test]
fn silent_canary_holds_up_the_promotion_until_somebody_orders_it() {
    let mut fleet = Fleet::new(3);
    fleet.push(order(1, 1, &[]));
    fleet.run();
    fleet.push(order(2, 2, &["n0", "n1"]));
    fleet.run();
    let silent = fleet.nodes.remove(1);
    fleet.nodes[0]
        .machine
        .hear_report(silent.machine.report(&silent.figures));
    fleet.pass(100_000);
    assert_eq!(fleet.runs(), [2, 1]);
    assert_eq!(fleet.states(), ["held", "waiting"]);
    let promotion = Order {
        kind: Kind::Promote,
        of: 2,
        ..order(3, 2, &[])
    };
    fleet.push(promotion);
    fleet.run();
    assert_eq!(fleet.runs(), [2, 2]);
    // One that comes back has it at once; it has not applied it twice.
    fleet.nodes.push(silent);
    fleet.run();
    assert_eq!(fleet.states(), ["settled"; 3]);
}

#[test]
fn rollback_during_a_trial_reaches_all() {
    let mut fleet = Fleet::new(2);
    fleet.push(order(1, 1, &[]));
    fleet.run();
    fleet.push(order(2, 2, &["n0"]));
    fleet.run();
    assert_eq!(fleet.runs(), [2, 1]);
    let rollback = Order {
        kind: Kind::Rollback,
        of: 1,
        ..order(3, 1, &[])
    };
    fleet.push(rollback);
    fleet.run();
    assert_eq!(fleet.runs(), [1, 1]);
    fleet.pass(100_000);
    assert_eq!(fleet.runs(), [1, 1]);
    assert_eq!(fleet.states(), ["settled"; 2]);
}

#[test]
fn trial_that_was_broken_off_begins_anew_from_what_was_good() {
    let mut fleet = Fleet::new(2);
    fleet.push(order(1, 1, &[]));
    fleet.run();
    fleet.push(order(2, 2, &["n0"]));
    fleet.run();
    fleet.nodes[0].restart();
    assert_eq!(fleet.runs(), [1, 1]);
    fleet.run();
    assert_eq!(fleet.runs(), [2, 1]);
    fleet.pass(10_000);
    assert_eq!(fleet.runs(), [2, 2]);
}

#[test]
fn going_back_that_fails_is_tried_again() {
    let mut fleet = Fleet::new(2);
    fleet.push(order(1, 1, &[]));
    fleet.run();
    fleet.push(order(2, 2, &["n0"]));
    fleet.run();
    fleet.nodes[0].cannot = vec![1];
    fleet.nodes[0].serve(1000, 1000);
    fleet.run();
    assert_eq!(fleet.runs(), [2, 1]);
    assert_eq!(fleet.states(), ["back", "waiting"]);
    fleet.nodes[0].cannot.clear();
    fleet.pass(RETURN_EVERY_MS);
    assert_eq!(fleet.runs(), [1, 1]);
}

#[test]
fn order_that_cannot_be_had_is_left_for_a_newer_one() {
    let mut machine = Machine::new("n1", None);
    let figures = Figures::default();
    let first = order(1, 1, &[]).sign(&key(1));
    machine.hear_order(first.clone());
    assert_eq!(machine.step(0, &figures), [Action::Try(first)]);
    // There is nothing newer.
    assert!(!machine.leave_for_newer());
    let second = order(2, 2, &[]).sign(&key(1));
    machine.hear_order(second.clone());
    assert_eq!(machine.step(1, &figures), []);
    assert!(machine.leave_for_newer());
    assert_eq!(machine.step(2, &figures), [Action::Try(second.clone())]);
    // INVARIANT 4: it can be gone back to later.
    let actions = machine.applied(Ok(()), 3, &figures);
    let node = "n1".to_owned();
    assert!(actions.contains(&Action::Judge(2, Verdict::Promoted { node })));
    assert!(actions.contains(&Action::Settle(second)));
}
