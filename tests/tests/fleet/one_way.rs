//! Links that carry one way only, between a node and the log, and between nodes: purges are told as
//! what they are, nobody hangs, and once the link is mended all is as it should be.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Deadline, Origin, free_port};
use std::time::{Duration, Instant};

use crate::kit::{Direction, MAX_LAG, Nats, Node, Relay, WAIT, node, page};
use crate::peers::{self, ask, outcome};
use crate::{change, nats};

/// Time in which a purge must be answered, whatever the log does: three seconds, and as much again
/// for a machine that has other things to do.
const ANSWERED: Duration = Duration::from_secs(6);

fn within<T>(what: &str, most: Duration, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    let done = work()?;
    let took = began.elapsed();
    ensure!(took <= most, "{what} took {took:?}");
    Ok(done)
}

/// The other node purges and is heard or not; this one purges, which the log hears or not.
fn holds_one_way(direction: Direction) -> Result<()> {
    let nats = nats!();
    let relay = Relay::start(nats.port)?;
    let origin = Origin::start()?;
    let near = Node::start(node("near", nats.port, &origin))?;
    let far = Node::start(node("far", relay.port, &origin))?;
    let nodes = [near, far];
    for path in ["/a", "/own", "/kept"] {
        change(&origin, &nodes, path)?;
    }
    let [near, far] = &nodes;
    relay.hold(direction);
    within("a purge for all", MAX_LAG + ANSWERED, || {
        near.purge_everywhere("/a")
    })?;
    assert_eq!(far.page("/a")?.1, "new");
    let answer = within("a local purge", ANSWERED, || far.purge("/own", &[]))?;
    let reach = answer.header("Purge-Fleet");
    assert_eq!((answer.status, reach), (503, Some("local")));
    assert_eq!(far.page("/own")?.1, "new");
    match direction {
        // What is not acknowledged may be in the log all the same.
        Direction::ToClient => near.wait_for("/own", "new")?,
        Direction::ToServer => assert_eq!(near.page("/own")?.1, "old"),
    }
    // It is told nothing that makes it trust what it has: the origin is asked.
    let is_behind = || {
        let behind = far.metric("millpond_fleet_behind{fleet=\"edge\"}").ok()?;
        (behind == 1.0).then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_behind)
        .with_context(|| format!("never behind: {}", far.proxy.error_log()))?;
    assert_eq!(far.page("/kept")?.1, "new");

    relay.mend();
    far.warm("/a")?;
    far.purge_everywhere("/own")?;
    assert_eq!(near.page("/own")?.1, "new");
    let gaps = far.metric("millpond_fleet_gaps_total{fleet=\"edge\"}")?;
    assert_eq!(gaps, 1.0, "its first start");
    Ok(())
}

#[test]
fn node_that_is_not_heard_by_the_log_says_so_and_trusts_nothing() -> Result<()> {
    holds_one_way(Direction::ToServer)
}

#[test]
fn node_that_does_not_hear_the_log_says_so_and_trusts_nothing() -> Result<()> {
    holds_one_way(Direction::ToClient)
}

/// Owners that are not reached, or do not reach who asks, cost a wait of `hedge=`; what they say
/// too late is used for nothing.
#[test]
fn owner_behind_a_link_that_holds_one_way_costs_a_wait_and_nothing_else() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    let own = free_port()?;
    let relay = Relay::start(own)?;
    let asking = Node::start(peers::peer("n0", nats.port, &origin))?;
    let behind = peers::peer_at("n1", (nats.port, &origin), [relay.port, own]);
    let nodes = [asking, Node::start(behind)?];
    peers::wait_until_known(&nodes)?;
    for (prefix, direction) in [
        ("/out/", Direction::ToServer),
        ("/in/", Direction::ToClient),
    ] {
        let path = peers::path_of_second(&nodes, &origin, (prefix, true))?;
        // The owner has the old page, and so it would answer.
        nodes[1].warm(&path)?;
        let slow = outcome(&nodes[0], "slow")?;
        relay.hold(direction);
        let (body, _) = within("a page", ANSWERED, || ask(&nodes[0], &path))?;
        assert_eq!(body, "old", "{path}");
        assert_eq!(outcome(&nodes[0], "slow")?, slow + 1.0, "{path}");
        origin.route(&path, page("new"));
        within("a purge", ANSWERED, || nodes[0].purge_everywhere(&path))?;
        for (at, node) in nodes.iter().enumerate() {
            let (body, _) = within("a page", ANSWERED, || ask(node, &path))?;
            assert_eq!(body, "new", "{path} on node {at}");
        }
        relay.mend();
        let answered = outcome(&nodes[0], "answered")?;
        let number = std::cell::Cell::new(0);
        let is_asked = || {
            number.set(number.get() + 1);
            let next = format!("{prefix}again/{}", number.get());
            origin.route(&next, page("page"));
            ask(&nodes[0], &next).ok()?;
            (outcome(&nodes[0], "answered").ok()? > answered).then_some(())
        };
        Deadline::after(WAIT)
            .poll(is_asked)
            .context("never asked again")?;
        assert_eq!(ask(&nodes[0], &path)?.0, "new", "{path}");
    }
    Ok(())
}
