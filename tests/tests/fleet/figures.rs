//! Figures: how soon a purge is in force on all nodes, and how fast a node catches up.
//!
//! They are printed (`--nocapture`); the bounds are far from what a quiet machine reaches.

use anyhow::Result;
use std::time::{Duration, Instant};

use crate::kit::Nats;
use crate::{change, fleet, nats};

const NODES: usize = 5;
const PURGES: usize = 40;

#[test]
fn purge_is_in_force_on_five_nodes_in_milliseconds() -> Result<()> {
    let nats = nats!();
    let (origin, nodes) = fleet(&nats, NODES)?;
    let mut times = Vec::new();
    for number in 0..PURGES {
        let path = format!("/{number}");
        change(&origin, &nodes, &path)?;
        let began = Instant::now();
        nodes[number % NODES].purge(&path, &[])?;
        for node in &nodes {
            node.wait_for(&path, "new")?;
        }
        times.push(began.elapsed());
    }
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    println!(
        "{PURGES} purges on {NODES} nodes, from the request until each has answered anew: \
         p50 {:?}, p99 {:?}",
        at(50),
        at(99)
    );
    assert!(at(50) < Duration::from_secs(1), "{:?}", at(50));
    Ok(())
}

#[test]
fn node_that_was_away_catches_up() -> Result<()> {
    const MISSED: usize = 2000;
    let nats = nats!();
    let (_origin, mut nodes) = fleet(&nats, 2)?;
    nodes[1].proxy.quit()?;
    for number in 0..MISSED {
        assert_eq!(nodes[0].purge(&format!("/{number}"), &[])?.status, 200);
    }
    let began = Instant::now();
    nodes[1].proxy.restart()?;
    nodes[1].wait_until_ready()?;
    println!(
        "{MISSED} purges that were missed: ready {:?} after the start",
        began.elapsed()
    );
    let taken = nodes[1].metric("millpond_fleet_taken_purges_total{fleet=\"edge\"}")?;
    assert_eq!(taken, MISSED as f64);
    Ok(())
}
