//! Random schedules of a fleet against an oracle that knows every purge which was acknowledged.
//!
//! Nodes fill, serve, purge, are cut off, pause, crash and come back; the log acknowledges late,
//! loses answers, replaces entries, forgets old ones, is read from servers that are behind, is made
//! anew; its clock is set. After each event every node is asked for everything.
//!
//! `FLEET_SCHEDULES=N` runs so many schedules, `SEED=N` one.

#![allow(clippy::unwrap_used, reason = "tests")]

mod log;
mod node;
mod world;

use world::{Flaw, World};

/// Schedules of an ordinary run.
const SCHEDULES: u64 = 300;
/// Schedules in which a mistake must be found at the latest.
const MISTAKES: u64 = 5000;
/// Entries that nodes serve as fresh in a schedule, on average, at least: a quarter of what it was
/// when the weights of the events were chosen.
const FRESH_MIN: u64 = 20;
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
fn first_wrong(flaw: Flaw, schedules: std::ops::Range<u64>) -> Option<String> {
    let (mut fresh, count) = (0, schedules.end - schedules.start);
    for seed in schedules {
        let mut world = World::new(seed, flaw);
        for _ in 0..EVENTS {
            world.step();
            if let Err(wrong) = world.check() {
                return Some(format!("SEED={seed}: {wrong}"));
            }
        }
        fresh += world.served_fresh;
    }
    // A fleet that hardly ever serves anything would pass, and so would mistakes.
    assert!(fresh >= count * FRESH_MIN, "{flaw:?}: {fresh} of {count}");
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
    ] {
        let wrong = first_wrong(flaw, 0..MISTAKES);
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
