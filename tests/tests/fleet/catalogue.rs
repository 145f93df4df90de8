//! `millpond cache sql --fleet`: what all nodes have stored, as one table.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Deadline, Origin, ProxyBuilder};

use crate::kit::{NODE, Nats, Node, WAIT, node_of, page};
use crate::peers::wait_until_known;
use crate::{nats, run};

/// A node whose questions are signed with a secret.
fn signing(name: &str, nats: u16, origin: &Origin) -> ProxyBuilder {
    let conf = NODE.replace("replicas 1;", "replicas 1; peer_secret secret;");
    node_of(&conf, (name, nats), origin)
}

fn start(name: &str, secret: &str, nats: u16, origin: &Origin) -> Result<Node> {
    Node::start(signing(name, nats, origin).file("secret", secret))
}

/// Asks for a table until the outcome is the one that is waited for.
fn table(node: &Node, query: &str, is_meant: impl Fn(i32, &str) -> bool) -> Result<String> {
    let mut last = String::new();
    let words = ["cache", "sql", "--fleet", "--csv", query];
    let ask = || {
        let (status, said, failure) = run(node, &words).ok()?;
        last = format!("{status:?}\n{said}\n{failure}");
        is_meant(status?, &failure).then_some(said)
    };
    let found = Deadline::after(WAIT).poll(ask);
    found.with_context(|| format!("never: {last}"))
}

#[test]
fn entries_of_all_nodes_are_one_table_and_who_is_away_is_named() -> Result<()> {
    const SECRET: &str = "a secret of all nodes\n";
    const COUNTS: &str = "SELECT node, count(*) AS n, sum(held) AS held FROM entries GROUP BY node";
    let nats = nats!();
    let origin = Origin::start()?;
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3"] {
        nodes.push(start(name, SECRET, nats.port, &origin)?);
    }
    // More than one piece of a list.
    for number in 0..400 {
        let path = format!("/page/{number}");
        origin.route(&path, page("12345"));
        nodes[1].page(&path)?;
    }
    nodes[0].page("/page/7")?;
    nodes[2].page("/page/8")?;
    wait_until_known(&nodes)?;
    let is_whole = |status: i32, failure: &str| status == 0 && failure.is_empty();
    let all = table(&nodes[0], COUNTS, is_whole)?;
    assert_eq!(all, "node,n,held\nn1,1,5\nn2,400,2000\nn3,1,5\n");
    let query = "SELECT group_concat(node, ' ' ORDER BY node) FROM entries WHERE key = '/page/8'";
    let who = table(&nodes[2], query, is_whole)?;
    assert!(who.ends_with("\nn2 n3\n"), "{who}");
    // Filters are those of each node.
    let words = [
        "cache", "sql", "--fleet", "--csv", "--prefix", "/page/39", COUNTS,
    ];
    let (status, said, failure) = run(&nodes[0], &words)?;
    ensure!(status == Some(0), "{failure}");
    assert_eq!(said, "node,n,held\nn2,11,55\n");

    // One with another secret answers nobody.
    let other = start("n4", "a secret of its own", nats.port, &origin)?;
    other.page("/page/9")?;
    let is_named = |status: i32, failure: &str| {
        status == 1 && failure.starts_with("millpond: node \"n4\" of fleet \"edge\": ")
    };
    let rest = table(&nodes[0], COUNTS, is_named)?;
    assert_eq!(rest, all);

    nodes[1].proxy.kill9()?;
    drop(other);
    let are_away = |status: i32, failure: &str| {
        status == 1 && failure.contains("\"n2\" of fleet \"edge\": it is away, and was not heard")
    };
    let rest = table(&nodes[0], COUNTS, are_away)?;
    assert_eq!(rest, "node,n,held\nn1,1,5\nn3,1,5\n");

    who_has_left_is_missed_by_nobody(&mut nodes, COUNTS, &rest)
}

/// The second and the fourth of four nodes are away; what the others have is `rest`.
fn who_has_left_is_missed_by_nobody(nodes: &mut [Node], query: &str, rest: &str) -> Result<()> {
    let are_all = |status: i32, failure: &str| status == 0 && failure.is_empty();
    for name in ["n2", "n4"] {
        // It counts as alive until it has been silent for `max_lag`.
        let mut failure = String::new();
        let said = Deadline::after(WAIT).poll(|| {
            let (status, said, why) = run(&nodes[0], &["fleet", "leave", name]).ok()?;
            failure = why;
            (status == Some(0)).then_some(said)
        });
        let told = said.with_context(|| format!("{name} never leaves: {failure}"))?;
        assert_eq!(told, format!("fleet edge: node {name} has left\n"));
    }
    for node in [&nodes[0], &nodes[2]] {
        assert_eq!(table(node, query, are_all)?, rest);
    }
    // One that lives, or is this one, does not leave; one that nobody knows cannot.
    for (name, status, why) in [
        ("n3", 2, "node \"n3\" lives"),
        ("n1", 2, "node \"n1\" lives"),
        ("n7", 1, "no node \"n7\" was heard of"),
    ] {
        let (ended, _, failure) = run(&nodes[0], &["fleet", "leave", name])?;
        ensure!(ended == Some(status) && failure.contains(why), "{failure}");
    }
    // One that comes back is a node again.
    nodes[1].proxy.restart()?;
    nodes[1].wait_until_ready()?;
    let back = || {
        let said = table(&nodes[0], query, are_all).ok()?;
        (said == "node,n,held\nn1,1,5\nn2,400,2000\nn3,1,5\n").then_some(())
    };
    Deadline::after(WAIT).poll(back).context("never back")
}

#[test]
fn nodes_without_a_secret_list_nothing_to_each_other() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    let start = |name| Node::start(node_of(NODE, (name, nats.port), &origin));
    let nodes = [start("n1")?, start("n2")?];
    wait_until_known(&nodes)?;
    let is_told = |status: i32, failure: &str| {
        status == 1 && failure.contains("nodes are asked with \"peer_secret\" of the fleet only")
    };
    table(&nodes[0], "SELECT count(*) FROM entries", is_told)?;
    let path = "/api/millpond/1/fleets/edge/nodes/none/zones/z/entries";
    assert_eq!(nodes[0].client.get(path)?.status, 404);
    Ok(())
}
