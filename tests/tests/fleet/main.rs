//! `fleet`, `proxy_cache_path … fleet=`, `proxy_cache_on_lag`: what is purged on one node is served
//! by none, whatever is cut off, stopped, killed or lost.
//!
//! Several processes and a server of NATS, which `cargo xtask setup` installs; `NATS_SERVER` names
//! another. Without it, tests are skipped by name.

#![allow(clippy::unwrap_used, reason = "tests")]

mod azure;
mod catalogue;
mod config;
mod dashboard;
mod demo;
mod extents;
mod figures;
mod kit;
mod leases;
mod limits;
mod lines;
mod nats_tls;
mod one_way;
mod peer_certificates;
mod peers;
mod shields;
mod sites;
mod slots;
mod store;
mod tier;

use anyhow::{Context, Result};
use kit::{MAX_LAG, Nats, Node, Relay, WAIT, node, page};
use millpond_testkit::{Deadline, Kind, Origin, Request, binary, read_until};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

macro_rules! nats {
    () => {
        match Nats::start()? {
            Some(nats) => nats,
            None => return Ok(()),
        }
    };
}
pub(crate) use nats;

/// Nodes of one fleet, with an origin.
fn fleet(nats: &Nats, count: usize) -> Result<(Origin, Vec<Node>)> {
    let origin = Origin::start()?;
    let start = |number| Node::start(node(&format!("n{number}"), nats.port, &origin));
    let nodes = (0..count).map(start).collect::<Result<_>>()?;
    Ok((origin, nodes))
}

/// A page that all nodes have, in place of which the origin has a newer one.
fn change(origin: &Origin, nodes: &[Node], path: &str) -> Result<()> {
    origin.route(path, page("old"));
    for node in nodes {
        node.warm(path)?;
    }
    origin.route(path, page("new"));
    for node in nodes {
        assert_eq!(node.page(path)?.1, "old", "nothing was purged yet");
    }
    Ok(())
}

#[test]
fn purge_of_any_kind_on_any_node_holds_on_all() -> Result<()> {
    let nats = nats!();
    let (origin, nodes) = fleet(&nats, 5)?;
    type Fields = &'static [(&'static str, &'static str)];
    let kinds: [(&str, &str, Fields); 5] = [
        ("/key", "/key", &[]),
        ("/soft", "/soft", &[("Purge-Soft", "1")]),
        ("/some/prefix", "/some/*", &[]),
        ("/tagged", "/", &[("xkey", "page")]),
        ("/all", "/", &[("Purge-Type", "all")]),
    ];
    for (number, (path, target, fields)) in kinds.into_iter().enumerate() {
        change(&origin, &nodes, path)?;
        let fields = [fields, &[("Purge-Wait", "fleet")]].concat();
        let answer = nodes[number].purge(target, &fields)?;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.header("Purge-Fleet"), Some("everywhere"), "{path}");
        for (at, node) in nodes.iter().enumerate() {
            assert_eq!(node.page(path)?.1, "new", "{path} on node {at}");
        }
    }
    // Without the wait it is answered when the log has it, and arrives soon.
    change(&origin, &nodes, "/soon")?;
    let answer = nodes[0].purge("/soon", &[("Accept", "application/json")])?;
    assert_eq!(answer.header("Purge-Fleet"), Some("acknowledged"));
    let text = answer.text();
    assert!(
        text.contains("\"entries\":null,\"fleet\":\"acknowledged\""),
        "{text}"
    );
    for node in &nodes {
        node.wait_for("/soon", "new")?;
    }
    for node in &nodes {
        assert_eq!(node.metric("millpond_fleet_nodes{fleet=\"edge\"}")?, 5.0);
        assert_eq!(node.metric("millpond_fleet_behind{fleet=\"edge\"}")?, 0.0);
        assert!(node.metric("millpond_fleet_taken_purges_total{fleet=\"edge\"}")? >= 6.0);
    }
    let own = "millpond_fleet_purges_total{fleet=\"edge\",result=\"acknowledged\"}";
    assert_eq!(nodes[0].metric(own)?, 2.0);
    Ok(())
}

/// A command of a node, with its exit status, standard output and error stream.
fn run(node: &Node, words: &[&str]) -> Result<(Option<i32>, String, String)> {
    let program = binary(Kind::Millpond).context("no binary")?;
    let mut command = Command::new(program);
    command
        .args(words)
        .arg("-c")
        .arg(node.proxy.dir().join("nginx.conf"));
    let output = command.output()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    ))
}

#[test]
fn api_and_commands_purge_on_all_nodes_and_tell_how_they_are() -> Result<()> {
    let mut nats = nats!();
    let (origin, nodes) = fleet(&nats, 2)?;
    change(&origin, &nodes, "/a")?;
    let path = "/api/millpond/1/zones/z/purge?type=exact&what=/a&wait=fleet";
    let request = Request::post(path, "{}").header("Content-Type", "application/json");
    let answer = nodes[0].client.send(&request)?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(
        answer.text().contains("\"fleet\":\"everywhere\""),
        "{}",
        answer.text()
    );
    assert_eq!(nodes[1].page("/a")?.1, "new");

    change(&origin, &nodes, "/b")?;
    let (status, said, failure) = run(&nodes[1], &["fleet", "purge", "/b"])?;
    assert_eq!(status, Some(0), "{said} {failure}");
    assert!(
        said.starts_with("z: exact \"/b\": purged, number "),
        "{said}"
    );
    assert!(said.ends_with(", everywhere\n"), "{said}");
    assert_eq!(nodes[0].page("/b")?.1, "new");

    let (status, said, _) = run(&nodes[0], &["fleet", "status"])?;
    assert_eq!(status, Some(0), "{said}");
    for part in ["fleet edge, node n0, zones z", "at most 3.0 s)\n", "  n1  "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("silent"), "{said}");

    nats.kill()?;
    let is_behind =
        || Some(run(&nodes[0], &["fleet", "status"]).ok()?).filter(|it| it.0 == Some(1));
    let behind = Deadline::after(WAIT)
        .poll(is_behind)
        .context("never behind")?;
    assert!(
        behind.1.contains("behind: every answer is revalidated"),
        "{}",
        behind.1
    );
    let (status, said, failure) = run(&nodes[0], &["fleet", "purge", "/c"])?;
    assert_eq!((status, said.as_str()), (Some(2), ""));
    assert!(failure.contains("purged on this node only: "), "{failure}");
    Ok(())
}

/// A purge comes back by the log to the node that was asked for it, where it was told before.
#[test]
fn purge_is_told_once_on_each_node() -> Result<()> {
    let nats = nats!();
    let (_origin, nodes) = fleet(&nats, 2)?;
    let read = |node: &Node| -> Result<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", node.proxy.port()))?;
        let target = "/api/millpond/1/events?kind=purged";
        write!(stream, "GET {target} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")?;
        read_until(&mut stream, "retry: 1000\n\n")?;
        Ok(stream)
    };
    let streams = nodes.iter().map(read).collect::<Result<Vec<_>>>()?;
    let purges = [(0, "/hard", ""), (0, "/soft", "1"), (1, "/other", "")];
    for (at, path, soft) in purges {
        let fields = [("Purge-Wait", "fleet"), ("Purge-Soft", soft)];
        let answer = nodes[at].purge(path, &fields[..if soft.is_empty() { 1 } else { 2 }])?;
        assert_eq!(answer.header("Purge-Fleet"), Some("everywhere"), "{path}");
    }
    nodes[1].purge_everywhere("/end")?;
    for (node, stream) in nodes.iter().zip(streams) {
        let mut events = String::new();
        for line in BufReader::new(stream).lines() {
            let line = line?;
            events += &line;
            if line.contains("/end") {
                break;
            }
        }
        let list = node.client.get("/api/millpond/1/purges")?.text();
        for (_, path, _) in purges {
            assert_eq!(events.matches(path).count(), 1, "{path}: {events}");
            assert_eq!(list.matches(path).count(), 1, "{path}: {list}");
        }
    }
    Ok(())
}

/// A node that stood still has missed a purge that was answered as being everywhere: by its own
/// clock it is behind when it goes on, and asks the origin.
#[test]
fn node_that_stood_still_serves_nothing_that_was_purged_meanwhile() -> Result<()> {
    let nats = nats!();
    let (origin, nodes) = fleet(&nats, 3)?;
    change(&origin, &nodes, "/a")?;
    nodes[2].proxy.stop()?;
    let began = Deadline::after(MAX_LAG);
    nodes[0].purge_everywhere("/a")?;
    assert!(began.is_over(), "a silent node is waited for");
    assert_eq!(nodes[1].page("/a")?.1, "new");
    nodes[2].proxy.signal(Signal::CONT)?;
    assert_eq!(nodes[2].page("/a")?.1, "new");
    nodes[2].warm("/a")?;
    assert_eq!(nodes[2].page("/a")?.1, "new");
    Ok(())
}

#[test]
fn node_that_is_cut_off_serves_nothing_that_was_purged_and_says_that_its_purges_are_local()
-> Result<()> {
    let nats = nats!();
    let relay = Relay::start(nats.port)?;
    let origin = Origin::start()?;
    let near = Node::start(node("near", nats.port, &origin))?;
    let far = Node::start(node("far", relay.port, &origin))?;
    let nodes = [near, far];
    for path in ["/a", "/own", "/serve/a", "/miss/a"] {
        change(&origin, &nodes, path)?;
    }
    let [near, far] = &nodes;
    relay.cut();
    near.purge_everywhere("/a")?;
    assert_eq!(far.page("/a")?.1, "new");
    // What is not purged is revalidated, fetched or served, as the location says.
    origin.route("/b", page("b"));
    far.page("/b")?;
    assert_eq!(far.page("/b")?.0, "REVALIDATED");
    assert_eq!(
        far.page("/serve/a")?,
        ("HIT".to_string(), "old".to_string())
    );
    assert_eq!(far.page("/miss/a")?.1, "new");
    // It is behind, which leaves it ready.
    assert_eq!(far.metric("millpond_fleet_behind{fleet=\"edge\"}")?, 1.0);
    assert_eq!(far.client.get("/ready")?.status, 200);

    let answer = far.purge("/own", &[])?;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("Purge-Fleet"), Some("local"));
    assert!(
        answer.text().starts_with("purged on this node only: "),
        "{}",
        answer.text()
    );
    assert_eq!(far.page("/own")?.1, "new");
    assert_eq!(near.page("/own")?.1, "old");

    relay.mend();
    far.warm("/a")?;
    far.purge_everywhere("/own")?;
    assert_eq!(near.page("/own")?.1, "new");
    assert_eq!(
        far.metric("millpond_fleet_gaps_total{fleet=\"edge\"}")?,
        1.0,
        "its first start"
    );
    Ok(())
}

#[test]
fn server_of_nats_that_is_killed_comes_back_and_nothing_is_lost() -> Result<()> {
    let mut nats = nats!();
    let (origin, nodes) = fleet(&nats, 3)?;
    change(&origin, &nodes, "/a")?;
    change(&origin, &nodes, "/b")?;
    nodes[0].purge_everywhere("/a")?;
    nats.kill()?;
    assert_eq!(nodes[1].purge("/b", &[])?.status, 503);
    let is_behind = |node: &Node| {
        let lag = node.metric("millpond_fleet_behind{fleet=\"edge\"}");
        lag.ok().filter(|it| *it == 1.0)
    };
    for node in &nodes {
        let behind = Deadline::after(WAIT).poll(|| is_behind(node));
        behind.context("never behind")?;
        assert_eq!(node.page("/a")?.1, "new");
    }
    nats.restart()?;
    for node in &nodes {
        node.warm("/a")?;
    }
    // Whoever was told that it is local asks again.
    nodes[1].purge_everywhere("/b")?;
    for node in &nodes {
        assert_eq!(node.page("/b")?.1, "new");
        let gaps = node.metric("millpond_fleet_gaps_total{fleet=\"edge\"}")?;
        assert_eq!(gaps, 1.0, "its first start");
    }
    Ok(())
}

#[test]
fn node_that_was_away_with_its_store_takes_what_it_missed_and_keeps_the_rest() -> Result<()> {
    let nats = nats!();
    let (origin, mut nodes) = fleet(&nats, 2)?;
    change(&origin, &nodes, "/a")?;
    change(&origin, &nodes, "/kept")?;
    nodes[1].proxy.quit()?;
    nodes[0].purge_everywhere("/a")?;
    nodes[1].proxy.restart()?;
    nodes[1].wait_until_ready()?;
    assert_eq!(nodes[1].page("/a")?.1, "new");
    assert_eq!(nodes[1].page("/kept")?.1, "old");
    // Killed, it has no time to write anything down.
    change(&origin, &nodes, "/b")?;
    nodes[1].proxy.kill9()?;
    nodes[0].purge_everywhere("/b")?;
    nodes[1].proxy.restart()?;
    nodes[1].wait_until_ready()?;
    assert_eq!(nodes[1].page("/b")?.1, "new");
    let log = nodes[1].proxy.error_log();
    assert_eq!(log.matches("counts as stale once").count(), 1, "{log}");
    Ok(())
}

#[test]
fn node_that_starts_without_the_log_is_not_ready_and_trusts_nothing() -> Result<()> {
    let mut nats = nats!();
    let (origin, mut nodes) = fleet(&nats, 1)?;
    change(&origin, &nodes, "/a")?;
    nodes[0].proxy.quit()?;
    nats.kill()?;
    nodes[0].proxy.restart()?;
    let is_loaded = || {
        let said = nodes[0].client.get("/ready").ok()?.text();
        let expected = "[\"zone \\\"z\\\" has not caught up with the log of its fleet\"]";
        said.contains(expected).then_some(said)
    };
    Deadline::after(WAIT)
        .poll(is_loaded)
        .context("never told")?;
    assert_eq!(nodes[0].page("/a")?.1, "new");
    nats.restart()?;
    nodes[0].wait_until_ready()
}

#[test]
fn log_that_is_lost_makes_everything_stale_and_goes_on() -> Result<()> {
    let nats = nats!();
    let (origin, nodes) = fleet(&nats, 2)?;
    change(&origin, &nodes, "/a")?;
    nats.delete_log("edge")?;
    for node in &nodes {
        node.wait_for("/a", "new")?;
        let log = || node.proxy.error_log();
        let is_told = || {
            log()
                .contains("stale once: the log was made anew")
                .then_some(())
        };
        let told = Deadline::after(WAIT).poll(is_told);
        told.with_context(log)?;
    }
    change(&origin, &nodes, "/b")?;
    nodes[0].purge_everywhere("/b")?;
    assert_eq!(nodes[1].page("/b")?.1, "new");
    Ok(())
}
