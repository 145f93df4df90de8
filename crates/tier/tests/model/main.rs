//! Random schedules of a fleet against an oracle that knows every purge which was acknowledged.
//!
//! Nodes fill, serve, purge, are cut off, pause, crash and come back; the log acknowledges late,
//! loses answers, replaces entries, forgets old ones, is read from servers that are behind, is made
//! anew; its clock is set. Copies are written to a second tier and read from it, which loses,
//! delays, garbles and goes back, and nodes ask each other in place of the origin. After each event
//! every node is asked for everything: what was purged everywhere longer than the limit ago must be
//! fresh on none, and what a node has purged itself, not on that one, from the moment on.
//!
//! The follower, the book of purges with its journal and what a node notes of its own, the ledgers,
//! and the judgement of copies and positions are those of nodes; disks, the log, the tier's objects
//! and the network are models.
//!
//! `FLEET_SCHEDULES=N` runs so many schedules, `SEED=N` one.

#![allow(clippy::unwrap_used, reason = "tests")]

mod log;
mod node;
mod peers;
mod tier;
mod world;

use world::{Flaw, World, is_calm};

/// Schedules of an ordinary run.
const SCHEDULES: u64 = 300;
/// Schedules in which a mistake must be found at the latest.
const MISTAKES: u64 = 5000;
/// Entries that nodes serve as fresh in a schedule, on average, at least: a quarter of what it was
/// when the weights of the events were chosen.
const FRESH_MIN: u64 = 20;
/// Schedules for each copy of the tier that a node stores, and for each answer of another node, at
/// most.
const FOR_EACH_COPY: u64 = 10;
/// Events of a schedule.
const EVENTS: usize = 600;

fn schedules() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|it| it.parse().ok());
    match (number("SEED"), number("FLEET_SCHEDULES")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(SCHEDULES),
    }
}

/// The first schedule in which a node serves what it must not, with the words of the oracle.
fn first_wrong(flaw: Flaw, schedules: impl Iterator<Item = u64>) -> Option<String> {
    let (mut fresh, mut copied, mut fetched, mut count) = (0, 0, 0, 0);
    for seed in schedules {
        let mut world = World::new(seed, flaw);
        for _ in 0..EVENTS {
            world.step();
            if let Err(wrong) = world.check() {
                return Some(format!("SEED={seed}: {wrong}"));
            }
        }
        count += 1;
        fresh += world.served_fresh;
        copied += world.copied;
        fetched += world.fetched;
    }
    // A fleet that hardly ever serves anything would pass, and so would mistakes.
    assert!(fresh >= count * FRESH_MIN, "{flaw:?}: {fresh} of {count}");
    // A single schedule may have none, and few of those have any in which much goes wrong.
    let is_meant = (flaw == Flaw::None || flaw.is_of_copies()) && count > 1;
    let is_enough = !is_meant || copied * FOR_EACH_COPY >= count;
    assert!(is_enough, "{flaw:?}: {copied} of {count}");
    let is_enough = !is_meant || fetched * FOR_EACH_COPY >= count;
    assert!(is_enough, "{flaw:?}: {fetched} of {count}");
    None
}

#[test]
fn no_node_serves_fresh_what_was_purged_longer_than_the_limit_ago() {
    if let Some(wrong) = first_wrong(Flaw::None, schedules()) {
        panic!("{wrong}");
    }
}

/// The oracle finds what it is for: each of these is a mistake that somebody could make.
#[test]
fn mistakes_are_found() {
    for flaw in [
        Flaw::ConfirmsWhenItHears,
        Flaw::TakesAnotherLogForItsOwn,
        Flaw::TrustsItsClock,
        Flaw::NotesThePositionFirst,
        Flaw::TakesEachRecordForTheLast,
        Flaw::BelievesTheTier,
        Flaw::AsksWithAnOldPosition,
        Flaw::AsksForThePositionLast,
        Flaw::AnswersAtOnce,
        Flaw::AsksForWhatItRemoved,
    ] {
        // Those of copies show in calm schedules, the others where much goes wrong.
        let is_meant = |seed: &u64| is_calm(*seed) == flaw.is_of_copies();
        let wrong = first_wrong(flaw, (0..2 * MISTAKES).filter(is_meant));
        println!(
            "{flaw:?}: {}",
            wrong.unwrap_or_else(|| panic!("{flaw:?} is not found"))
        );
    }
}

/// Once nothing is cut off any more, every node gets to where it serves again.
#[test]
fn nodes_come_back() {
    for seed in schedules().take(50) {
        let mut world = World::new(seed, Flaw::None);
        for _ in 0..EVENTS {
            world.step();
        }
        world.heal();
        assert!(world.are_all_trusted(), "SEED={seed}");
    }
}
