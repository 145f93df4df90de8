//! `limit_req_zone … fleet=NAME:lease`: a rate of all nodes together, whichever nodes are asked.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use millpond_testkit::{Client, Deadline, Kind, Proxy, ProxyBuilder};

use crate::kit::{Nats, Node, Relay, WAIT};
use crate::nats;

const LEASES: &str = "
    fleet edge {
        nats nats://127.0.0.1:%%NATS%%;
        node %%NODE%%;
        replicas 1;
        max_lag 3s;
    }
    limit_req_zone $arg_key zone=rate:1m rate=20r/s fleet=edge:lease;
    limit_req_log_level info;
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        location /rate { limit_req zone=rate; try_files /a =404; }
        location /wait { limit_req zone=rate burst=4; try_files /a =404; }
        location = /ready { health; }
        location = /metrics { metrics; }
    }";

/// The rate of the zone.
const RATE: u32 = 20;
/// Requests that pass beside the rate: those of two leases and one more, and the first one of a key
/// at each of three nodes.
const BESIDE: u32 = RATE / 5 + 1 + 3;
/// Time for which requests are counted.
const COUNTED: Duration = Duration::from_secs(3);
/// The longest time that a request may take: one wait for an owner, on a busy machine.
const LONGEST: Duration = Duration::from_secs(2);

fn lessee(name: &str, nats: u16) -> ProxyBuilder {
    Proxy::new(Kind::Millpond, LEASES)
        .file("www/a", "a")
        .value("NODE", name)
        .value("NATS", &nats.to_string())
}

fn wait_for_nodes(node: &Node, count: u64) -> Result<()> {
    let name = "millpond_fleet_split_nodes{fleet=\"edge\"}";
    let is_so = || (node.metric(name).ok()? == count as f64).then_some(());
    Deadline::after(WAIT)
        .poll(is_so)
        .with_context(|| format!("never {count}: {}", node.proxy.error_log()))
}

fn three(nats: u16) -> Result<[Node; 3]> {
    let nodes = [
        Node::start(lessee("n1", nats))?,
        Node::start(lessee("n2", nats))?,
        Node::start(lessee("n3", nats))?,
    ];
    for node in &nodes {
        wait_for_nodes(node, 3)?;
    }
    Ok(nodes)
}

fn leases(node: &Node, outcome: &str) -> Result<f64> {
    let labels = format!("{{fleet=\"edge\",outcome=\"{outcome}\"}}");
    node.metric(&format!("millpond_fleet_leases_total{labels}"))
}

/// Number of requests for a key that pass at nodes that are asked without a pause, until `is_over`;
/// none may fail or take long.
fn passed(clients: &[&Client], key: &str, is_over: &(dyn Fn() -> bool + Sync)) -> Result<u32> {
    let passed = AtomicU32::new(0);
    let ask = |client: &Client| -> Result<()> {
        while !is_over() {
            let began = Instant::now();
            let answer = client.get(&format!("/rate?key={key}"))?;
            let took = began.elapsed();
            anyhow::ensure!(took < LONGEST, "{key}: {took:?}");
            match answer.status {
                200 => passed.fetch_add(1, Ordering::Relaxed),
                503 => 0,
                other => anyhow::bail!("{key}: {other}"),
            };
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = clients.iter().map(|it| scope.spawn(|| ask(it))).collect();
        let ended = asking.into_iter().map(|it| it.join().expect("no panic"));
        ended.collect::<Result<Vec<()>>>()
    })?;
    Ok(passed.load(Ordering::Relaxed))
}

fn passed_in_time(clients: &[&Client], key: &str) -> Result<u32> {
    let end = Instant::now() + COUNTED;
    passed(clients, key, &|| Instant::now() >= end)
}

/// The rate is used, and nothing beyond it.
fn assert_rate(passed: u32, about: &str) {
    let whole = RATE * COUNTED.as_secs() as u32;
    assert!(passed <= whole + BESIDE, "{about}: {passed} of {whole}");
    assert!(passed >= whole * 6 / 10, "{about}: {passed} of {whole}");
}

#[test]
fn a_client_of_one_node_has_the_whole_rate_and_one_of_all_no_more() -> Result<()> {
    let nats = nats!();
    let nodes = three(nats.port)?;
    let all: Vec<&Client> = nodes.iter().map(|it| &it.client).collect();
    // Whoever owns the key: a third of the rate is all that `split` would let through.
    for (place, client) in all.iter().enumerate() {
        let key = format!("one{place}");
        assert_rate(passed_in_time(&[client], &key)?, &key);
    }
    assert_rate(passed_in_time(&all, "all")?, "all");
    assert_rate(passed_in_time(&all[..2], "two")?, "two");
    let granted: f64 = nodes
        .iter()
        .map(|it| leases(it, "granted").unwrap_or(0.0))
        .sum();
    let away: f64 = nodes
        .iter()
        .map(|it| leases(it, "away").unwrap_or(0.0))
        .sum();
    assert!(granted > 100.0, "{granted}");
    assert!(away < granted / 10.0, "{away} of {granted}");
    Ok(())
}

#[test]
fn bursts_run_out_while_nobody_asks() -> Result<()> {
    let nats = nats!();
    let nodes = three(nats.port)?;
    for (place, node) in nodes.iter().enumerate() {
        let burst = || -> Result<(u32, Duration)> {
            let began = Instant::now();
            let mut passed = 0;
            for _ in 0..5 {
                let answer = node.client.get(&format!("/wait?key=b{place}"))?;
                passed += u32::from(answer.status == 200);
            }
            Ok((passed, began.elapsed()))
        };
        // Four wait for their turn, a twentieth of a second each.
        let (count, took) = burst()?;
        assert_eq!(count, 5);
        assert!(took < Duration::from_secs(2), "{took:?}");
        let again = || burst().is_ok_and(|(count, _)| count == 5).then_some(());
        Deadline::after(WAIT)
            .poll(again)
            .context("the bucket stays full")?;
    }
    Ok(())
}

#[test]
fn an_owner_that_dies_leaves_each_its_share_and_no_request_fails() -> Result<()> {
    let nats = nats!();
    let [mut first, second, third] = three(nats.port)?;
    let clients = [&second.client, &third.client];
    // Among so many keys are some of each node.
    let keys: Vec<String> = (0..12).map(|number| format!("k{number}")).collect();
    let is_dead = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let (is_dead, keys) = (&is_dead, &keys);
        let asking: Vec<_> = keys
            .iter()
            .map(|key| {
                scope.spawn(move || -> Result<u32> {
                    let until_dead = || is_dead.load(Ordering::Acquire);
                    let before = passed(&clients, key, &until_dead)?;
                    let end = Instant::now() + COUNTED;
                    let after = passed(&clients, key, &|| Instant::now() >= end)?;
                    assert!(before > 0, "{key}");
                    Ok(after)
                })
            })
            .collect();
        let is_leased = || (leases(&second, "granted").ok()? > 20.0).then_some(());
        let leased = Deadline::after(WAIT).poll(is_leased);
        let killed = first.proxy.kill9();
        is_dead.store(true, Ordering::Release);
        leased.context("nothing is leased")?;
        killed?;
        for (key, asking) in keys.iter().zip(asking) {
            let after = asking.join().expect("no panic")?;
            // Each of two has a third of the rate at least, but for the wait; and the rate is
            // shared by two, or twice as much where two nodes see other members.
            let whole = RATE * COUNTED.as_secs() as u32;
            assert!(after >= whole / 4, "{key}: {after} of {whole}");
            assert!(after <= 2 * whole + BESIDE, "{key}: {after} of {whole}");
        }
        Ok(())
    })?;
    for node in [&second, &third] {
        wait_for_nodes(node, 2)?;
    }
    // The keys of the dead have other owners.
    assert_rate(passed_in_time(&[&second.client], "k0")?, "later");
    Ok(())
}

#[test]
fn nodes_that_are_cut_off_have_their_shares() -> Result<()> {
    let nats = nats!();
    let link = Relay::start(nats.port)?;
    let nodes = [
        Node::start(lessee("n1", link.port))?,
        Node::start(lessee("n2", link.port))?,
    ];
    for node in &nodes {
        wait_for_nodes(node, 2)?;
    }
    link.cut();
    let behind = |node: &Node| (node.metric("millpond_fleet_behind").ok()? > 0.0).then_some(());
    for node in &nodes {
        Deadline::after(WAIT)
            .poll(|| behind(node))
            .context("never behind")?;
    }
    // Half of the rate each, though both are asked.
    let whole = RATE * COUNTED.as_secs() as u32;
    for node in &nodes {
        let half = passed_in_time(&[&node.client], "cut")?;
        assert!(
            half <= whole / 2 + BESIDE && half >= whole * 3 / 10,
            "{half} of {whole}"
        );
    }
    link.mend();
    for node in &nodes {
        let is_back = || (behind(node).is_none()).then_some(());
        Deadline::after(WAIT).poll(is_back).context("never back")?;
    }
    let is_whole = || {
        let passed = passed_in_time(&[&nodes[0].client], "mended").ok()?;
        (passed >= whole * 6 / 10).then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_whole)
        .context("never leased again")?;
    Ok(())
}
