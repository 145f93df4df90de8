//! The decisions of a node about the orders of its fleet, without sockets, clocks or disks.
//!
//! ```text
//!            order for this node                reload done
//!   Idle ───────────────────────► Trying ──────────┬──────────► Idle (settled: `good`)
//!    ▲                              │ refused      │ a canary
//!    │◄─────────────────────────────┘              ▼
//!    │◄── promoted ─────────────────────────── Watching ── held, told to the others
//!    │◄── reload done ── Returning ◄── worse, or another canary is back ──┘
//! ```
//!
//! 1. An order that is taken has a number above all that this node has had in force.
//! 2. While nothing goes on, what is in force is what is good.
//! 3. A trial is promoted when all nodes have held that took it up; one of them that says nothing
//!    any more holds it up.
//! 4. An order that is in force for good on a node has a verdict that says so: who looks for one to
//!    go back to knows it from those that nobody could apply.

use std::collections::BTreeMap;

use super::canary::worse;
use super::order::Signed;
use super::report::{Figures, Report, State, Verdict};
use crate::follower::MEMBERS_MAX;

/// Orders that are remembered (arbitrary: more than the stream keeps).
const ORDERS_MAX: usize = 64;
/// Time after which going back is tried again.
const RETURN_EVERY_MS: u64 = 10_000;
/// Time between two notes of the figures: what was before is taken of one or two of them.
const NOTE_EVERY_MS: u64 = 600_000;

/// Something that is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Apply an order; the outcome is to be told.
    Try(Signed),
    /// Apply what was good, or nothing of a fleet; the outcome is to be told.
    Return(Option<Signed>),
    /// Keep an order as what is good.
    Settle(Signed),
    /// Tell all nodes the end of a trial.
    Judge(u64, Verdict),
    /// Tell people; what is wrong, too.
    Tell(String, Tone),
}

/// The weight of what people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Everything went as it should.
    Good,
    /// Somebody should look.
    Bad,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Trying(Signed),
    Watching {
        signed: Signed,
        since_ms: u64,
        at_begin: Figures,
        before: Figures,
        has_held: bool,
    },
    Returning {
        from: u64,
        reason: String,
        /// The time at which it is tried again; none while it is being done.
        again_ms: Option<u64>,
    },
}

/// The machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    node: String,
    good: Option<Signed>,
    in_force: Option<Signed>,
    orders: BTreeMap<u64, Signed>,
    verdicts: BTreeMap<u64, Verdict>,
    reports: BTreeMap<String, Report>,
    /// Orders that could not be applied here, and why.
    refused: BTreeMap<u64, String>,
    /// Orders that were in force here and are no more, and why.
    back: BTreeMap<u64, String>,
    phase: Phase,
    /// Order that others try, and the figures when it was heard of.
    mark: (u64, Figures),
    /// Figures of a while ago, and of a while before that.
    notes: [Option<(u64, Figures)>; 2],
}

fn cut<T>(map: &mut BTreeMap<u64, T>) {
    while map.len() > ORDERS_MAX {
        map.pop_first();
    }
}

fn revision(signed: &Option<Signed>) -> u64 {
    signed.as_ref().map_or(0, |it| it.order.revision)
}

impl Machine {
    /// Orders that were heard of, the newest first, each with its verdict.
    pub fn orders(&self) -> impl Iterator<Item = (&Signed, Option<&Verdict>)> {
        let orders = self.orders.iter().rev();
        orders.map(|(number, signed)| (signed, self.verdicts.get(number)))
    }

    /// Words of all nodes about themselves.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.reports.values()
    }

    /// The machine of a node that has started with what is good.
    pub fn new(node: &str, good: Option<Signed>) -> Machine {
        Machine {
            node: node.to_owned(),
            in_force: good.clone(),
            good,
            ..Machine::default()
        }
    }

    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The order that is in force.
    pub fn in_force(&self) -> Option<&Signed> {
        self.in_force.as_ref()
    }

    /// The order that has held last.
    pub fn good(&self) -> Option<&Signed> {
        self.good.as_ref()
    }

    /// An order of the fleet, whose signature is right.
    pub fn hear_order(&mut self, signed: Signed) {
        self.orders.entry(signed.order.revision).or_insert(signed);
        cut(&mut self.orders);
    }

    /// The verdict on an order. The first one counts.
    pub fn hear_verdict(&mut self, revision: u64, verdict: Verdict) {
        self.verdicts.entry(revision).or_insert(verdict);
        cut(&mut self.verdicts);
    }

    /// Words of a node.
    pub fn hear_report(&mut self, report: Report) {
        if self.reports.len() < MEMBERS_MAX || self.reports.contains_key(&report.node) {
            self.reports.insert(report.node.clone(), report);
        }
    }

    /// Tries again what was refused: the node's own file has been read again.
    pub fn forget_refusals(&mut self) {
        self.refused.clear();
    }

    /// True if a trial has ended, and how does not matter.
    fn is_over(&self, revision: u64) -> bool {
        self.verdicts.contains_key(&revision)
    }

    fn is_trial(&self, signed: &Signed) -> bool {
        signed.order.is_tried_by(&self.node) && !self.is_over(signed.order.revision)
    }

    /// The order that this node should have.
    fn target(&self) -> Option<&Signed> {
        let is_meant = |signed: &&Signed| {
            let order = &signed.order;
            match self.verdicts.get(&order.revision) {
                Some(Verdict::Back { .. }) => false,
                Some(Verdict::Promoted { .. }) => true,
                None => !order.has_canaries() || order.is_tried_by(&self.node),
            }
        };
        self.orders.values().rev().find(is_meant)
    }

    /// The order that is to be taken now.
    fn next(&self) -> Option<Signed> {
        // INVARIANT 1.
        let least = revision(&self.good).max(revision(&self.in_force));
        let newest = self.target().filter(|it| it.order.revision > least)?;
        let number = newest.order.revision;
        let is_known = self.refused.contains_key(&number) || self.back.contains_key(&number);
        (!is_known).then(|| newest.clone())
    }

    /// Goes on at `now_ms`, of a clock that does not go back.
    pub fn step(&mut self, now_ms: u64, figures: &Figures) -> Vec<Action> {
        self.note(now_ms, figures);
        let mut actions = Vec::new();
        // Each turn ends a phase; a trial that is promoted may be followed by the next order.
        for _ in 0..4 {
            let before = actions.len();
            self.turn(now_ms, figures, &mut actions);
            if actions.len() == before {
                break;
            }
        }
        actions
    }

    /// Leaves an order that cannot be had yet for one that is newer, if there is one.
    pub fn leave_for_newer(&mut self) -> bool {
        let Phase::Trying(signed) = &self.phase else {
            return false;
        };
        let number = signed.order.revision;
        let is_newer = self.next().is_some_and(|next| next.order.revision > number);
        if is_newer {
            self.phase = Phase::Idle;
        }
        is_newer
    }

    fn note(&mut self, now_ms: u64, figures: &Figures) {
        let newest = self.orders.last_key_value();
        if let Some((number, signed)) = newest
            && signed.order.has_canaries()
            && self.mark.0 != *number
        {
            self.mark = (*number, *figures);
        }
        let [newer, _] = self.notes;
        if newer.is_none_or(|(at_ms, _)| now_ms.saturating_sub(at_ms) >= NOTE_EVERY_MS) {
            self.notes = [Some((now_ms, *figures)), newer];
        }
    }

    fn turn(&mut self, now_ms: u64, figures: &Figures, actions: &mut Vec<Action>) {
        match &self.phase {
            Phase::Trying(_) => {}
            Phase::Idle => self.turn_idle(actions),
            Phase::Watching { .. } => self.turn_watching(now_ms, figures, actions),
            Phase::Returning { again_ms, .. } => {
                if again_ms.is_some_and(|again_ms| again_ms <= now_ms) {
                    self.go_back(actions);
                }
            }
        }
    }

    fn turn_idle(&mut self, actions: &mut Vec<Action>) {
        let Some(next) = self.next() else {
            // INVARIANT 2. What replaced a trial could not be applied.
            if revision(&self.in_force) != revision(&self.good) {
                let from = revision(&self.in_force);
                let reason = "what came after it could not be applied".to_owned();
                self.begin_return(from, reason, actions);
            }
            return;
        };
        self.take(next, actions);
    }

    /// Takes an order: at once if its bundle is in force already.
    fn take(&mut self, signed: Signed, actions: &mut Vec<Action>) {
        let own = self.in_force.as_ref().map(|it| it.order.digest);
        if own == Some(signed.order.digest) {
            self.settle(signed, actions);
        } else {
            self.phase = Phase::Trying(signed.clone());
            actions.push(Action::Try(signed));
        }
    }

    fn settle(&mut self, signed: Signed, actions: &mut Vec<Action>) {
        let number = signed.order.revision;
        let message = format!("revision {number} is in force");
        self.in_force = Some(signed.clone());
        self.good = Some(signed.clone());
        self.phase = Phase::Idle;
        actions.push(Action::Settle(signed));
        actions.push(Action::Tell(message, Tone::Good));
        // INVARIANT 4.
        if !self.verdicts.contains_key(&number) {
            let node = self.node.clone();
            let verdict = Verdict::Promoted { node };
            self.verdicts.insert(number, verdict.clone());
            actions.push(Action::Judge(number, verdict));
        }
    }

    fn turn_watching(&mut self, now_ms: u64, figures: &Figures, actions: &mut Vec<Action>) {
        let Phase::Watching {
            signed,
            since_ms,
            at_begin,
            before,
            has_held,
        } = &self.phase
        else {
            return;
        };
        let order = &signed.order;
        let number = order.revision;
        match self.verdicts.get(&number) {
            Some(Verdict::Back { node, reason }) => {
                let reason = format!("{node}: {reason}");
                return self.begin_return(number, reason, actions);
            }
            Some(Verdict::Promoted { .. }) => {
                let signed = signed.clone();
                return self.settle(signed, actions);
            }
            None => {}
        }
        if let Some(next) = self.next() {
            return self.take(next, actions);
        }
        let own = figures.since(at_begin);
        if let Some(reason) = worse(order, &own, before, &self.others(signed)) {
            let node = self.node.clone();
            let verdict = Verdict::Back {
                node,
                reason: reason.clone(),
            };
            self.verdicts.insert(number, verdict.clone());
            actions.push(Action::Judge(number, verdict));
            return self.begin_return(number, reason, actions);
        }
        if !has_held && now_ms.saturating_sub(*since_ms) >= order.watch_ms {
            let message = format!("revision {number} has held here");
            actions.push(Action::Tell(message, Tone::Good));
            if let Phase::Watching { has_held, .. } = &mut self.phase {
                *has_held = true;
            }
        } else if *has_held && self.have_all_held(signed) {
            let node = self.node.clone();
            let verdict = Verdict::Promoted { node };
            self.verdicts.insert(number, verdict.clone());
            actions.push(Action::Judge(number, verdict));
        }
    }

    /// Figures of the nodes that do not try an order, since they have heard of it.
    fn others(&self, signed: &Signed) -> Figures {
        let mut sum = Figures::default();
        let reports = self.reports.values();
        let others = reports.filter(|report| {
            report.mark == signed.order.revision && !signed.order.is_tried_by(&report.node)
        });
        others.for_each(|report| sum.add(&report.figures));
        sum
    }

    /// INVARIANT 3.
    fn have_all_held(&self, signed: &Signed) -> bool {
        let number = signed.order.revision;
        let others = signed.order.canaries.iter().filter(|it| **it != self.node);
        let reports = others.filter_map(|node| self.reports.get(node));
        let mut took_up = reports.filter(|report| report.about == number);
        took_up.all(|report| {
            report.state == State::Held
                || report.in_force == number && report.state == State::Settled
        })
    }

    fn begin_return(&mut self, from: u64, reason: String, actions: &mut Vec<Action>) {
        let message = format!("revision {from} is taken back: {reason}");
        actions.push(Action::Tell(message, Tone::Bad));
        self.phase = Phase::Returning {
            from,
            reason,
            again_ms: None,
        };
        self.go_back(actions);
    }

    fn go_back(&mut self, actions: &mut Vec<Action>) {
        if let Phase::Returning { again_ms, .. } = &mut self.phase {
            *again_ms = None;
        }
        actions.push(Action::Return(self.good.clone()));
    }

    /// The outcome of what was to be applied.
    pub fn applied(
        &mut self,
        outcome: Result<(), String>,
        now_ms: u64,
        figures: &Figures,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        match (std::mem::take(&mut self.phase), outcome) {
            (Phase::Trying(signed), Ok(())) => {
                self.applied_order(signed, now_ms, figures, &mut actions)
            }
            (Phase::Trying(signed), Err(reason)) => self.refuse(&signed, reason, &mut actions),
            (Phase::Returning { from, reason, .. }, Ok(())) => {
                self.in_force = self.good.clone();
                self.back.insert(from, reason);
                cut(&mut self.back);
                let message = match revision(&self.good) {
                    0 => "the node's own file alone is in force again".to_owned(),
                    number => format!("revision {number} is in force again"),
                };
                actions.push(Action::Tell(message, Tone::Good));
            }
            (Phase::Returning { from, reason, .. }, Err(why)) => {
                let message = format!("going back from revision {from} failed: {why}");
                actions.push(Action::Tell(message, Tone::Bad));
                self.phase = Phase::Returning {
                    from,
                    reason,
                    again_ms: Some(now_ms + RETURN_EVERY_MS),
                };
            }
            (other, _) => self.phase = other,
        }
        actions
    }

    fn applied_order(
        &mut self,
        signed: Signed,
        now_ms: u64,
        figures: &Figures,
        actions: &mut Vec<Action>,
    ) {
        if !self.is_trial(&signed) {
            return self.settle(signed, actions);
        }
        let (number, seconds) = (signed.order.revision, signed.order.watch_ms / 1000);
        let message = format!("revision {number} is tried here, and watched for {seconds} s");
        actions.push(Action::Tell(message, Tone::Good));
        self.in_force = Some(signed.clone());
        let oldest = self.notes.iter().rev().flatten().next();
        let before = oldest.map_or(*figures, |(_, then)| figures.since(then));
        self.phase = Phase::Watching {
            signed,
            since_ms: now_ms,
            at_begin: *figures,
            before,
            has_held: false,
        };
    }

    fn refuse(&mut self, signed: &Signed, reason: String, actions: &mut Vec<Action>) {
        let number = signed.order.revision;
        let message = format!("revision {number} is refused, what was before stays: {reason}");
        actions.push(Action::Tell(message, Tone::Bad));
        if self.is_trial(signed) {
            let verdict = Verdict::Back {
                node: self.node.clone(),
                reason: reason.clone(),
            };
            self.verdicts.insert(number, verdict.clone());
            actions.push(Action::Judge(number, verdict));
        }
        self.refused.insert(number, reason);
        cut(&mut self.refused);
    }

    /// Words of this node about itself.
    pub fn report(&self, figures: &Figures) -> Report {
        let newest = self.orders.last_key_value().map_or(0, |it| *it.0);
        let in_force = revision(&self.in_force);
        let (about, state, reason) = match &self.phase {
            Phase::Trying(signed) => (signed.order.revision, State::Applying, String::new()),
            Phase::Watching {
                signed, has_held, ..
            } => {
                let state = if *has_held {
                    State::Held
                } else {
                    State::Watched
                };
                (signed.order.revision, state, String::new())
            }
            Phase::Returning { from, reason, .. } => (*from, State::Back, reason.clone()),
            Phase::Idle => self.idle_state(newest, in_force),
        };
        Report {
            node: self.node.clone(),
            in_force,
            about,
            state,
            reason,
            mark: self.mark.0,
            figures: figures.since(&self.mark.1),
        }
    }

    fn idle_state(&self, newest: u64, in_force: u64) -> (u64, State, String) {
        if newest < in_force {
            let reason = "the fleet knows of no order with this number any more".to_owned();
            return (
                in_force,
                State::Settled,
                if newest == 0 { String::new() } else { reason },
            );
        }
        let of = |known: &BTreeMap<u64, String>| known.get(&newest).cloned();
        match (
            of(&self.refused),
            of(&self.back),
            self.verdicts.get(&newest),
        ) {
            (Some(reason), _, _) => (newest, State::Refused, reason),
            (_, Some(reason), _) => (newest, State::Back, reason),
            (_, _, Some(Verdict::Back { node, reason })) => (
                newest,
                State::Waiting,
                format!("it was taken back by {node}: {reason}"),
            ),
            _ if newest > in_force => (
                newest,
                State::Waiting,
                "other nodes try it first".to_owned(),
            ),
            _ => (newest, State::Settled, String::new()),
        }
    }
}

#[cfg(test)]
mod tests;
