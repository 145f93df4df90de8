//! The log in real servers: one and three of them, killed, cut off, emptied; with figures.
//!
//! `cargo xtask setup` installs `nats-server`; `NATS_SERVER` names another. Without one, each test
//! says that it is skipped.

#![allow(clippy::unwrap_used, reason = "tests")]

mod node;
mod server;

use std::time::{Duration, Instant};

use bytes::Bytes;
use millpond_cache::purge::{Mode, Target};
use node::{Node, wait_for};
use server::{Relay, Servers};

const NODES: usize = 5;

macro_rules! servers {
    ($count:expr) => {
        match Servers::start($count) {
            Some(servers) => servers,
            None => {
                eprintln!("skipped: there is no nats-server");
                return;
            }
        }
    };
}

fn key(number: usize) -> Target {
    Target::Key(Bytes::from(format!("http://a/{number}")))
}

fn nodes(servers: &Servers, count: usize) -> Vec<Node> {
    let nodes: Vec<Node> = (0..count)
        .map(|number| Node::start(&format!("n{number}"), &servers.conf(), None))
        .collect();
    for node in &nodes {
        wait_for("a node follows", || node.confirmed_ms() > 0);
    }
    nodes
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

#[test]
fn a_purge_is_in_force_on_all_nodes_in_milliseconds() {
    let servers = servers!(3);
    let nodes = nodes(&servers, NODES);
    let mut times = Vec::new();
    for number in 0..200 {
        let began = Instant::now();
        nodes[number % NODES]
            .purge(key(number), Mode::Hard)
            .unwrap();
        for (other, node) in nodes.iter().enumerate() {
            if other != number % NODES {
                wait_for("a purge arrives", || node.has_taken(&key(number)));
            }
        }
        times.push(began.elapsed());
    }
    times.sort();
    let (half, most) = (percentile(&times, 50), percentile(&times, 99));
    println!("applied on {NODES} nodes, 3 servers: p50 {half:?}, p99 {most:?}");
    // Far more than it takes, on a machine that has other things to do.
    assert!(half < Duration::from_secs(1), "{half:?}");
}

/// `SUBSCRIBERS` and `PURGES` are other numbers, `P99_MS` is a bound: `cargo xtask bench fleet`.
#[test]
#[ignore = "a figure: it wants a machine that has nothing else to do"]
fn a_purge_is_in_force_on_a_hundred_nodes() {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse().ok());
    let count = number("SUBSCRIBERS").unwrap_or(100);
    let purges = number("PURGES").unwrap_or(300);
    for servers in [1, 3] {
        let running = servers!(servers);
        let nodes = nodes(&running, count);
        let (mut acknowledged, mut applied) = (Vec::new(), Vec::new());
        for number in 0..purges {
            let (target, began) = (key(number), Instant::now());
            nodes[number % count]
                .purge(target.clone(), Mode::Hard)
                .unwrap();
            acknowledged.push(began.elapsed());
            wait_for("a purge arrives", || {
                nodes.iter().all(|node| node.has_taken(&target))
            });
            let times = nodes.iter().filter_map(|node| node.taken_at(&target));
            applied.push(times.max().unwrap().duration_since(began));
        }
        acknowledged.sort();
        applied.sort();
        let of = |times: &[Duration]| {
            let at = |percent| percentile(times, percent).as_secs_f64() * 1000.0;
            format!("p50 {:.1} ms, p99 {:.1} ms", at(50), at(99))
        };
        println!(
            "{purges} purges, {count} nodes, servers of NATS: {servers}; acknowledged: {}; in \
             force on all: {}",
            of(&acknowledged),
            of(&applied)
        );
        if let Some(bound) = number("P99_MS") {
            let most = percentile(&applied, 99);
            assert!(most <= Duration::from_millis(bound as u64), "{most:?}");
        }
    }
}

#[test]
fn a_node_that_was_away_takes_all_that_it_missed() {
    const MISSED: usize = 20_000;
    let servers = servers!(1);
    let nodes = nodes(&servers, 2);
    let disk = nodes[1].disk();
    let mut nodes = nodes.into_iter();
    let (first, second) = (nodes.next().unwrap(), nodes.next().unwrap());
    drop(second);
    first.purge_many((0..MISSED).map(key).collect());
    let began = Instant::now();
    let second = Node::start("n1", &servers.conf(), Some(disk));
    wait_for("it has caught up", || second.taken_count() >= MISSED);
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{MISSED} records in {seconds:.2} s: {:.0} a second",
        MISSED as f64 / seconds
    );
    assert!((0..MISSED).all(|number| second.has_taken(&key(number))));
    assert_eq!(second.gaps(), 0);
}

#[test]
fn a_server_that_is_killed_is_done_without() {
    let mut servers = servers!(3);
    let nodes = nodes(&servers, 3);
    nodes[0].purge(key(0), Mode::Hard).unwrap();
    servers.kill(0);
    // Some election later.
    wait_for("purges are acknowledged again", || {
        nodes[1].purge(key(1), Mode::Hard).is_ok()
    });
    let before = nodes.iter().map(Node::confirmed_ms).collect::<Vec<_>>();
    for (node, before) in nodes.iter().zip(before) {
        wait_for("every node is confirmed again", || {
            node.confirmed_ms() > before
        });
    }
    assert!(nodes[2].has_taken(&key(1)) && nodes[0].has_taken(&key(1)));
    assert!(
        nodes.iter().all(|node| node.gaps() == 1),
        "the first start only"
    );
}

#[test]
fn a_node_that_is_cut_off_is_confirmed_by_nothing_until_it_is_back() {
    let servers = servers!(1);
    let relay = Relay::start(servers.port(0));
    let mut conf = servers.conf();
    let near = Node::start("near", &conf, None);
    conf.servers = vec![relay.url()];
    let far = Node::start("far", &conf, None);
    wait_for("both follow", || {
        near.confirmed_ms() > 0 && far.confirmed_ms() > 0
    });
    relay.cut();
    let cut_ms = near.now_ms();
    near.purge(key(7), Mode::Hard).unwrap();
    // What is acknowledged on this side confirms nothing on the other.
    wait_for("time passes", || near.confirmed_ms() > cut_ms + 3_000);
    assert!(
        far.confirmed_ms() <= cut_ms,
        "{} {cut_ms}",
        far.confirmed_ms()
    );
    assert!(!far.has_taken(&key(7)));
    assert!(
        far.purge(key(8), Mode::Hard).is_err(),
        "it says that nobody has it"
    );
    relay.mend();
    wait_for("it is back", || far.confirmed_ms() > cut_ms);
    assert!(far.has_taken(&key(7)));
    assert_eq!(far.gaps(), 1, "the first start only");
}

#[test]
fn a_log_that_is_made_anew_makes_everything_stale() {
    let servers = servers!(1);
    let nodes = nodes(&servers, 2);
    assert!(nodes.iter().all(|node| node.gaps() == 1));
    servers.delete_stream();
    for node in &nodes {
        wait_for("it begins anew", || node.gaps() == 2);
        assert!(node.has_taken(&Target::All));
    }
    wait_for("purges go on", || {
        nodes[0].purge(key(3), Mode::Hard).is_ok()
    });
    wait_for("and arrive", || nodes[1].has_taken(&key(3)));
}
