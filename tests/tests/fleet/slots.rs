//! `limit_conn_zone … fleet=NAME:lease`: connections of all nodes together, whichever nodes are
//! asked.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use millpond_testkit::{Client, Connection, Deadline, Kind, Proxy, ProxyBuilder};

use crate::kit::{Nats, Node, Relay, WAIT};
use crate::nats;

const SLOTS: &str = "
    fleet edge {
        nats nats://127.0.0.1:%%NATS%%;
        node %%NODE%%;
        replicas 1;
        max_lag 3s;
    }
    limit_conn_zone $arg_key zone=count:1m fleet=edge:lease;
    limit_conn_log_level info;
    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/www;
        location /count { limit_conn count 4; limit_rate 1k; try_files /long =404; }
        location = /ready { health; }
        location = /metrics { metrics; }
    }";

/// Connections of a key.
const LIMIT: usize = 4;
/// Time in which it is looked whether too many pass.
const COUNTED: Duration = Duration::from_secs(2);
/// Keys of which some are owned by each node.
const KEYS: usize = 12;

fn lessee(name: &str, nats: u16) -> ProxyBuilder {
    Proxy::new(Kind::Millpond, SLOTS)
        .file("www/long", "x".repeat(200_000))
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

/// A connection for a key, on which an answer begins; none if it is refused.
fn hold(client: &Client, key: &str) -> Result<Option<Connection>> {
    let mut connection = client.connect()?;
    let head = format!("GET /count?key={key} HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.send_raw(head.as_bytes())?;
    let head = connection.read_head("GET")?.context("a head")?;
    match head.status {
        200 => Ok(Some(connection)),
        503 => Ok(None),
        other => anyhow::bail!("{key}: {other}"),
    }
}

/// Connections for a key, `count` of them, as soon as there are as many.
fn hold_all(client: &Client, key: &str, count: usize) -> Result<Vec<Connection>> {
    let mut held = Vec::new();
    let mut next = || {
        held.extend(hold(client, key).ok()?);
        (held.len() == count).then_some(())
    };
    let all = Deadline::after(WAIT).poll(&mut next);
    all.with_context(|| format!("{key}: {} of {count}", held.len()))?;
    Ok(held)
}

/// Nobody gets one more for a while.
fn assert_full(clients: &[&Client], key: &str) -> Result<()> {
    let end = Instant::now() + COUNTED;
    while Instant::now() < end {
        for client in clients {
            anyhow::ensure!(hold(client, key)?.is_none(), "{key}: one more");
        }
    }
    Ok(())
}

fn clients(nodes: &[Node]) -> Vec<&Client> {
    nodes.iter().map(|it| &it.client).collect()
}

#[test]
fn a_client_of_one_node_has_the_whole_number_and_one_of_all_no_more() -> Result<()> {
    let nats = nats!();
    let nodes = three(nats.port)?;
    let all = clients(&nodes);
    for (place, client) in all.iter().enumerate() {
        let key = format!("one{place}");
        let held = hold_all(client, &key, LIMIT)?;
        assert_full(&all, &key)?;
        // What ends is free for the others.
        drop(held);
        let other = all[(place + 1) % all.len()];
        let held = hold_all(other, &key, LIMIT)?;
        assert_full(&all, &key)?;
        drop(held);
    }
    Ok(())
}

#[test]
fn connections_that_come_and_go_on_all_nodes_are_never_more() -> Result<()> {
    let nats = nats!();
    let nodes = three(nats.port)?;
    let all = clients(&nodes);
    let (now, most, passed) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let end = Instant::now() + 2 * COUNTED;
    let ask = |client: &Client| -> Result<()> {
        while Instant::now() < end {
            let Some(held) = hold(client, "storm")? else {
                continue;
            };
            // It is one of those that the server counts for as long as it is one here.
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            passed.fetch_add(1, Ordering::SeqCst);
            now.fetch_sub(1, Ordering::SeqCst);
            drop(held);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let clients = all.iter().chain(&all);
        let asking: Vec<_> = clients.map(|it| scope.spawn(|| ask(it))).collect();
        let ended = asking.into_iter().map(|it| it.join().expect("no panic"));
        ended.collect::<Result<Vec<()>>>()
    })?;
    let (most, passed) = (most.into_inner(), passed.into_inner());
    assert!(most <= LIMIT as u32, "{most} at a time");
    assert!(passed >= 50, "{passed}");
    Ok(())
}

#[test]
fn node_that_comes_gets_none_that_others_have() -> Result<()> {
    let nats = nats!();
    let nodes = three(nats.port)?;
    let mut held = Vec::new();
    for number in 0..KEYS {
        held.push(hold_all(&nodes[0].client, &format!("k{number}"), LIMIT)?);
    }
    let fourth = Node::start(lessee("n4", nats.port))?;
    for node in nodes.iter().chain([&fourth]) {
        wait_for_nodes(node, 4)?;
    }
    for number in 0..KEYS {
        let key = format!("k{number}");
        for client in [&fourth.client, &nodes[1].client] {
            assert!(hold(client, &key)?.is_none(), "{key}: one more");
        }
    }
    held.clear();
    for number in 0..KEYS {
        held.push(hold_all(&fourth.client, &format!("k{number}"), LIMIT)?);
    }
    Ok(())
}

#[test]
fn keys_of_an_owner_that_dies_stay_full() -> Result<()> {
    let nats = nats!();
    let [mut first, second, third] = three(nats.port)?;
    let mut held = Vec::new();
    for number in 0..KEYS {
        held.push(hold_all(&second.client, &format!("k{number}"), LIMIT)?);
    }
    // Those of a node that dies are free again.
    let dying = hold_all(&first.client, "dying", LIMIT)?;
    first.proxy.kill9()?;
    for node in [&second, &third] {
        wait_for_nodes(node, 2)?;
    }
    for number in 0..KEYS {
        let key = format!("k{number}");
        assert!(hold(&third.client, &key)?.is_none(), "{key}: one more");
    }
    drop(dying);
    drop(hold_all(&third.client, "dying", LIMIT)?);
    held.clear();
    for number in 0..KEYS {
        held.push(hold_all(&third.client, &format!("k{number}"), LIMIT)?);
    }
    Ok(())
}

#[test]
fn nodes_that_are_cut_off_have_their_shares_and_the_excess_goes_when_they_are_back() -> Result<()> {
    let nats = nats!();
    let link = Relay::start(nats.port)?;
    let nodes = [
        Node::start(lessee("n1", link.port))?,
        Node::start(lessee("n2", link.port))?,
    ];
    for node in &nodes {
        wait_for_nodes(node, 2)?;
    }
    let all = clients(&nodes);
    let mut first = hold_all(all[0], "cut", LIMIT - 1)?;
    link.cut();
    let behind = |node: &Node| (node.metric("millpond_fleet_behind").ok()? > 0.0).then_some(());
    for node in &nodes {
        Deadline::after(WAIT)
            .poll(|| behind(node))
            .context("never behind")?;
    }
    // Half of the number each: the first has more already.
    let second = hold_all(all[1], "cut", LIMIT / 2)?;
    assert_full(&all, "cut")?;
    link.mend();
    for node in &nodes {
        let is_back = || (behind(node).is_none()).then_some(());
        Deadline::after(WAIT).poll(is_back).context("never back")?;
    }
    // One more than there may be.
    assert_full(&all, "cut")?;
    first.pop();
    assert_full(&all, "cut")?;
    first.pop();
    let more = hold_all(all[1], "cut", 1)?;
    assert_full(&all, "cut")?;
    drop((first, second, more));
    let whole = hold_all(all[0], "cut", LIMIT)?;
    assert_full(&all, "cut")?;
    drop(whole);
    Ok(())
}
