//! `node … pool=`, `proxy_cache_peers owner pool=`: the nodes of one pool ask the origin for those
//! of all others, and nobody is worse off without them.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Deadline, Gate, Origin, ProxyBuilder, free_port};
use rustix::process::Signal;

use crate::kit::{Nats, Node, Relay, WAIT, page};
use crate::nats;
use crate::peers::{PEER, active, ask, at, count, outcome, wait_until_heard};

/// Outcomes of questions to other nodes.
const ASKED: [&str; 4] = ["answered", "slow", "failed", "refused"];
/// Names of pages that are asked for in turn.
const PAGES: usize = 8;

/// The configuration of a node of a pool; an empty one is that of who says none.
fn conf(pool: &str) -> String {
    let address = match pool {
        "" => "address=".to_owned(),
        _ => format!("pool={pool} address="),
    };
    PEER.replace("address=", &address).replace(
        "proxy_cache_peers owner",
        "proxy_cache_peers owner pool=shield",
    )
}

fn node_of((name, pool): (&str, &str), nats: u16, origin: &Origin) -> ProxyBuilder {
    let conf = conf(pool).replace("%%ADDRESS%%", "%%PORT%%");
    at(&conf.replace("%%LISTEN%%", ""), (name, nats), origin)
}

/// Shields, and nodes that ask them; one of those says no pool.
struct Fleet {
    shields: Vec<Node>,
    edges: Vec<Node>,
}

impl Fleet {
    fn start(nats: &Nats, origin: &Origin, [shields, edges]: [usize; 2]) -> Result<Fleet> {
        let start =
            |name: String, pool: &str| Node::start(node_of((&name, pool), nats.port, origin));
        let shield = |number| start(format!("s{number}"), "shield");
        let edge = |number| start(format!("e{number}"), if number == 0 { "" } else { "edge" });
        let fleet = Fleet {
            shields: (0..shields).map(shield).collect::<Result<_>>()?,
            edges: (0..edges).map(edge).collect::<Result<_>>()?,
        };
        fleet.wait_until_known()?;
        Ok(fleet)
    }

    fn all(&self) -> impl Iterator<Item = &Node> {
        self.shields.iter().chain(&self.edges)
    }

    fn wait_until_known(&self) -> Result<()> {
        wait_until_heard(self.all(), self.all().count())
    }
}

/// Sum of some outcomes on some nodes.
fn sum<'a>(nodes: impl IntoIterator<Item = &'a Node>, results: &[&str]) -> Result<f64> {
    let mut sum = 0.0;
    for node in nodes {
        for result in results {
            sum += outcome(node, result)?;
        }
    }
    Ok(sum)
}

#[test]
fn what_is_asked_on_all_edges_at_once_is_asked_of_the_origin_once_by_the_shield() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    let fleet = Fleet::start(&nats, &origin, [2, 3])?;
    for number in 0..PAGES {
        let path = format!("/shielded/{number}");
        let gate = Gate::new();
        origin.route(&path, page("body").hold_head(&gate));
        std::thread::scope(|scope| -> Result<()> {
            let edges = fleet.edges.iter();
            let asking: Vec<_> = edges.map(|edge| scope.spawn(|| ask(edge, &path))).collect();
            let are_waiting = || {
                let active = fleet.shields.iter().map(active).sum::<Result<f64>>();
                (active.ok()? >= fleet.edges.len() as f64).then_some(())
            };
            let waiting = Deadline::after(WAIT).poll(are_waiting);
            gate.open();
            waiting.context("they never wait for the shield")?;
            for asked in asking {
                let (body, node) = asked.join().unwrap()?;
                assert_eq!(body, "body");
                let node = node.context("nobody was asked")?;
                assert!(["s0", "s1"].contains(&&*node), "{path}: {node}");
            }
            Ok(())
        })?;
        for node in fleet.all() {
            node.warm(&path)?;
        }
        assert_eq!(count(&origin, &path), 1, "{path}");
    }
    // One hop: who is asked by an edge is a shield, which may be asked by another one, but only for
    // a client of that one.
    assert_eq!(sum(&fleet.edges, &["served", "rejected"])?, 0.0);
    assert_eq!(
        sum(fleet.all(), &["slow", "failed", "refused", "behind"])?,
        0.0
    );
    Ok(())
}

/// Each of two shields says that it has the address of the other: an edge asks the one that does
/// not own the key by its own view, which asks the origin, and not on.
#[test]
fn shield_that_does_not_own_the_key_asks_nobody_on() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    let ports = [free_port()?, free_port()?];
    let shield = |number: usize| {
        let conf = conf("shield")
            .replace("%%ADDRESS%%", &ports[1 - number].to_string())
            .replace(
                "%%LISTEN%%",
                &format!("listen 127.0.0.1:{};", ports[number]),
            );
        Node::start(at(&conf, (&format!("s{number}"), nats.port), &origin))
    };
    let shields = (0..2).map(shield).collect::<Result<Vec<_>>>()?;
    let edge = Node::start(node_of(("e0", ""), nats.port, &origin))?;
    wait_until_heard(shields.iter().chain([&edge]), 3)?;
    for number in 0..PAGES {
        let path = format!("/astray/{number}");
        origin.route(&path, page("page"));
        let (body, node) = ask(&edge, &path)?;
        assert_eq!((&*body, node.is_some()), ("page", true));
        assert_eq!(count(&origin, &path), 1, "{path}");
    }
    assert_eq!(sum(&shields, &["served"])?, PAGES as f64);
    assert_eq!(sum(&shields, &ASKED)?, 0.0);
    Ok(())
}

#[test]
fn shields_that_are_late_or_dead_cost_no_failed_request() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    let mut fleet = Fleet::start(&nats, &origin, [2, 2])?;
    let ask_for_new = |fleet: &Fleet, name: &str| -> Result<()> {
        for number in 0..PAGES {
            let path = format!("{name}{number}");
            origin.route(&path, page("page"));
            for edge in &fleet.edges {
                assert_eq!(ask(edge, &path)?.0, "page", "{path}");
            }
        }
        Ok(())
    };
    fleet.shields.iter().try_for_each(|it| it.proxy.stop())?;
    ask_for_new(&fleet, "/hasty/late")?;
    assert!(sum(&fleet.edges, &["slow"])? >= 1.0);
    for shield in &fleet.shields {
        shield.proxy.signal(Signal::CONT)?;
        shield.wait_until_ready()?;
    }
    fleet.wait_until_known()?;
    for shield in &mut fleet.shields {
        shield.proxy.kill9()?;
    }
    ask_for_new(&fleet, "/dead/")?;
    // Once their beats are missed nobody is asked any more, and no edge in their place.
    let round = std::cell::Cell::new(0);
    let is_left = || {
        let before = sum(&fleet.edges, &ASKED).ok()?;
        round.set(round.get() + 1);
        ask_for_new(&fleet, &format!("/left/{}/", round.get())).ok()?;
        (sum(&fleet.edges, &ASKED).ok()? == before).then_some(())
    };
    Deadline::after(WAIT).poll(is_left).context("never left")?;
    assert_eq!(sum(&fleet.edges, &["served", "rejected"])?, 0.0);
    // Another one comes, and is asked for all.
    let shield = Node::start(node_of(("s9", "shield"), nats.port, &origin))?;
    let is_asked = || {
        round.set(round.get() + 1);
        let path = format!("/back/{}", round.get());
        origin.route(&path, page("page"));
        let mut asked = fleet.edges.iter().map(|edge| ask(edge, &path));
        let is_s9 =
            |it: Result<(String, Option<String>)>| it.is_ok_and(|it| it.1 == Some("s9".into()));
        asked.all(is_s9).then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_asked)
        .context("never asked")?;
    ensure!(outcome(&shield, "served")? >= 2.0);
    Ok(())
}

/// The shield that owns a page is cut off from the log: it has the old one, which is fresh by its
/// own clock, and the edges ask it.
#[test]
fn what_is_purged_is_served_fresh_by_no_node_while_its_shield_is_cut_off() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    let relay = Relay::start(nats.port)?;
    let mut fleet = Fleet::start(&nats, &origin, [1, 2])?;
    let cut_off = node_of(("s1", "shield"), relay.port, &origin);
    fleet.shields.push(Node::start(cut_off)?);
    fleet.wait_until_known()?;
    let paths: Vec<String> = (0..PAGES)
        .map(|number| format!("/purged/{number}"))
        .collect();
    for path in &paths {
        origin.route(path, page("old"));
        for node in fleet.all() {
            node.warm(path)?;
        }
        origin.route(path, page("new"));
    }
    relay.cut();
    for path in &paths {
        let purged = fleet.edges[0].purge(path, &[])?;
        assert_eq!(purged.header("Purge-Fleet"), Some("acknowledged"), "{path}");
        // At once, while the shield counts as alive.
        assert_eq!(ask(&fleet.edges[0], path)?.0, "new", "{path}");
    }
    ensure!(
        outcome(&fleet.shields[1], "behind")? >= 1.0,
        "it was never asked"
    );
    // `max_lag` later than all of them.
    fleet.edges[1].purge_everywhere("/later")?;
    for round in 0..2 {
        for path in &paths {
            for node in fleet.all() {
                assert_eq!(ask(node, path)?.0, "new", "{path} {round}");
            }
        }
        relay.mend();
    }
    Ok(())
}
