//! `proxy_cache_peers owner extent=` with `slice`: each extent of a large body is fetched once for
//! all nodes, by the node that owns it, and no answer is of two versions.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Deadline, Gate, Manners, Origin, ProxyBuilder, Request, Resource, Response, Validator,
    free_port, offset_bytes,
};
use std::ops::Range;

use crate::kit::{Nats, Node, WAIT};
use crate::nats;
use crate::peers::{PEER, active, at, outcome, wait_until_known};

const SLICE: u64 = 64 << 10;
const EXTENT: u64 = 4 * SLICE;
/// Some extents, and a short last one.
const LEN: u64 = 5 * EXTENT + SLICE + 5_000;
const FILM: &str = "/film";

/// A node whose slices have this size.
fn node_with(size: u64, (name, nats): (&str, u16), origin: &Origin) -> ProxyBuilder {
    let conf = conf(size).replace("%%ADDRESS%%", "%%PORT%%");
    at(&conf.replace("%%LISTEN%%", ""), (name, nats), origin)
}

fn conf(size: u64) -> String {
    PEER.replace(
        "proxy_cache_peers owner hedge=1s;",
        &format!("proxy_cache_peers owner hedge=1s extent={EXTENT}; slice {size};"),
    )
    .replace(
        "add_header X-Cache",
        "proxy_cache_bypass $http_x_bypass; add_header X-Cache",
    )
}

struct Fleet {
    origin: Origin,
    film: Resource,
    nodes: Vec<Node>,
}

impl Fleet {
    /// A node for each of these sizes of slices.
    fn start(nats: &Nats, sizes: &[u64]) -> Result<Fleet> {
        let origin = Origin::start()?;
        let film = Resource::new(Manners::of(LEN));
        origin.resource(FILM, &film);
        let start = |(number, size): (usize, &u64)| {
            let name = format!("n{number}");
            Node::start(node_with(*size, (&name, nats.port), &origin))
        };
        let sizes = sizes.iter().enumerate();
        let nodes = sizes.map(start).collect::<Result<Vec<_>>>()?;
        wait_until_known(&nodes)?;
        Ok(Fleet {
            origin,
            film,
            nodes,
        })
    }

    /// Waits until peers are asked so many questions at once.
    fn wait_until_asked(&self, count: f64) -> Result<()> {
        let are_asked = || {
            let active = self.nodes.iter().map(active).collect::<Result<Vec<_>>>();
            (active.ok()?.iter().sum::<f64>() >= count).then_some(())
        };
        Deadline::after(WAIT)
            .poll(are_asked)
            .context("peers are never asked")
    }

    /// Bytes that the origin sent of a version as ranges, in order.
    fn sent(&self, version: u16) -> Vec<Range<u64>> {
        let exchanges = self.origin.exchanges();
        let parts = exchanges
            .iter()
            .filter(|it| it.status == 206 && it.version == version);
        let mut sent: Vec<_> = parts.map(|it| it.sent_range()).collect();
        sent.retain(|range| !range.is_empty());
        sent.sort_by_key(|range| range.start);
        sent
    }

    /// Asserts that no byte of a version was sent twice; tells how many were sent.
    fn assert_sent_once(&self, version: u16) -> u64 {
        let sent = self.sent(version);
        for pair in sent.windows(2) {
            assert!(pair[0].end <= pair[1].start, "twice: {sent:?}");
        }
        sent.iter().map(|range| range.end - range.start).sum()
    }

    /// Asserts that no question to a peer was in vain.
    fn assert_answered(&self) -> Result<()> {
        for (at, node) in self.nodes.iter().enumerate() {
            for result in ["slow", "failed", "refused", "rejected", "behind"] {
                assert_eq!(outcome(node, result)?, 0.0, "{result} at {at}");
            }
        }
        Ok(())
    }
}

/// Asks for a range, or for the whole.
fn read(node: &Node, range: Option<&str>) -> Result<Response> {
    let request = Request::get(FILM);
    node.client.send(&match range {
        Some(range) => request.header("Range", range),
        None => request,
    })
}

/// Asserts that an answer is all of a range of a version.
fn check(response: &Response, range: Range<u64>, version: u16) -> Result<()> {
    ensure!(matches!(response.status, 200 | 206), "{}", response.status);
    ensure!(response.is_complete(), "it breaks off");
    ensure!(
        response.body == offset_bytes(range.clone(), version),
        "other bytes for {range:?} of {version}"
    );
    Ok(())
}

/// The version of all bytes of an answer for the whole; the beginning of it if it breaks off.
fn version_of(response: &Response) -> Result<u16> {
    ensure!(response.status == 200, "{}", response.status);
    let tag = response.header("ETag").context("an ETag")?;
    let version: u16 = tag.trim_matches(['"', 'v']).parse()?;
    let whole = offset_bytes(0..LEN, version);
    ensure!(whole.starts_with(&response.body), "bytes of two versions");
    let is_whole = response.body.len() as u64 == LEN;
    ensure!(is_whole || !response.is_complete(), "too few");
    Ok(version)
}

/// Waits until a node has all of a version.
fn wait_for(node: &Node, version: u16) -> Result<()> {
    let is_there = || {
        let whole = read(node, None).ok()?;
        (version_of(&whole).unwrap() == version && whole.is_complete()).then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_there)
        .with_context(|| format!("never version {version}: {}", node.proxy.error_log()))
}

#[test]
fn what_is_asked_of_one_body_on_all_nodes_at_once_costs_the_origin_each_slice_once() -> Result<()> {
    let nats = nats!();
    let fleet = Fleet::start(&nats, &[SLICE; 5])?;
    let gate = Gate::new();
    fleet
        .film
        .change(|manners| manners.head_gate = Some(gate.clone()));
    let asked = [
        None,
        Some(0..100),
        Some(EXTENT - 10..EXTENT + 10),
        Some(2 * EXTENT + SLICE..4 * EXTENT),
        Some(LEN - 5_000..LEN),
    ];
    std::thread::scope(|scope| -> Result<()> {
        let mut asking = Vec::new();
        for node in &fleet.nodes {
            for range in asked.clone() {
                asking.push(scope.spawn(move || -> Result<()> {
                    let field = range.as_ref().map(field_of);
                    let answer = read(node, field.as_deref())?;
                    check(&answer, range.unwrap_or(0..LEN), 1)
                }));
            }
        }
        let waiting = fleet.wait_until_asked(4.0);
        gate.open();
        waiting?;
        for asked in asking {
            asked.join().unwrap()?;
        }
        Ok(())
    })?;
    assert_eq!(fleet.assert_sent_once(1), LEN, "{:?}", fleet.sent(1));
    // All have it all now, and extents have more than one owner.
    fleet.origin.forget_requests();
    for node in &fleet.nodes {
        check(&read(node, None)?, 0..LEN, 1)?;
        check(&read(node, Some("bytes=-77"))?, LEN - 77..LEN, 1)?;
    }
    assert_eq!(fleet.origin.requests().len(), 0);
    let counts = fleet.nodes.iter().map(|node| outcome(node, "served"));
    let served = counts.collect::<Result<Vec<_>>>()?;
    assert!(
        served.iter().filter(|it| **it > 0.0).count() > 1,
        "{served:?}"
    );
    fleet.assert_answered()
}

/// A node's slices are as old as what the owner has.
#[test]
fn copies_of_slices_age_with_what_they_are_made_of() -> Result<()> {
    let nats = nats!();
    let fleet = Fleet::start(&nats, &[SLICE; 2])?;
    let expires = vec![("X-Accel-Expires", "100".to_owned())];
    fleet.film.change(|manners| manners.fields = expires);
    let ttl = |node: &Node| -> Result<i64> {
        let answer = read(node, Some("bytes=0-9"))?;
        Ok(answer.header("X-Ttl").context("a ttl")?.parse()?)
    };
    // One of them is the owner, whichever is asked first.
    ttl(&fleet.nodes[0])?;
    let is_older = || (ttl(&fleet.nodes[0]).ok()? <= 98).then_some(());
    Deadline::after(WAIT)
        .poll(is_older)
        .context("never older")?;
    let own = ttl(&fleet.nodes[1])?;
    assert!(own <= 98, "{own}");
    assert_eq!(fleet.assert_sent_once(1), SLICE);
    fleet.assert_answered()
}

/// Nobody has anything of it, and only its last bytes are wanted: what the origin sends is the head
/// with the first slice, and what is wanted.
#[test]
fn range_far_behind_costs_the_first_slice_and_its_own() -> Result<()> {
    let nats = nats!();
    let fleet = Fleet::start(&nats, &[SLICE; 3])?;
    let wanted = LEN - 5_000..LEN;
    for (at, field) in ["bytes=-5000", "bytes=1376256-", "bytes=-5000"]
        .into_iter()
        .enumerate()
    {
        check(&read(&fleet.nodes[at], Some(field))?, wanted.clone(), 1)?;
    }
    assert_eq!(fleet.sent(1), [0..SLICE, wanted]);
    fleet.assert_answered()
}

#[test]
fn body_that_changes_while_nodes_hold_parts_of_it_is_never_mixed() -> Result<()> {
    let nats = nats!();
    let fleet = Fleet::start(&nats, &[SLICE; 3])?;
    for (at, node) in fleet.nodes.iter().enumerate() {
        let start = at as u64 * EXTENT;
        let range = start..start + EXTENT + 10;
        check(&read(node, Some(&field_of(&range)))?, range, 1)?;
    }
    fleet.film.change(|manners| manners.version = 2);
    for node in &fleet.nodes {
        version_of(&read(node, None)?)?;
    }
    for node in &fleet.nodes {
        wait_for(node, 2)?;
    }
    assert_eq!(fleet.assert_sent_once(2), LEN, "{:?}", fleet.sent(2));
    fleet.assert_answered()
}

/// Bytes of a range as a field has them.
fn field_of(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end - 1)
}

/// A fleet whose first node has the first slice, and the number of the node that has the head of
/// all and no more.
fn fleet_with_head(nats: &Nats) -> Result<(Fleet, usize)> {
    let fleet = Fleet::start(nats, &[SLICE; 4])?;
    let answer = read(&fleet.nodes[0], Some("bytes=0-9"))?;
    check(&answer, 0..10, 1)?;
    let name = answer.header("X-Node").filter(|it| *it != "-");
    let owner = name.unwrap_or("n0").trim_start_matches('n').parse()?;
    Ok((fleet, owner))
}

/// The owner of the head has learnt that there is a new version, and gives it to who asks for the
/// first time; the owners of other extents hold all of the old one as fresh.
#[test]
fn owners_that_hold_an_old_version_learn_of_the_new_one_from_who_asks() -> Result<()> {
    let nats = nats!();
    let (fleet, owner) = fleet_with_head(&nats)?;
    let others = EXTENT..LEN;
    let answer = read(&fleet.nodes[0], Some(&field_of(&others)))?;
    check(&answer, others, 1)?;
    fleet.film.change(|manners| manners.version = 2);
    // A slice that it has to fetch.
    let second = SLICE..2 * SLICE;
    let answer = read(&fleet.nodes[owner], Some(&field_of(&second)))?;
    check(&answer, second, 2)?;
    let third = (1..4).find(|number| *number != owner).context("a node")?;
    check(&read(&fleet.nodes[third], None)?, 0..LEN, 2)?;
    assert_eq!(fleet.assert_sent_once(2), LEN, "{:?}", fleet.sent(2));
    fleet.assert_answered()
}

/// The other way round: who asks has the old version, and owners the new one.
#[test]
fn node_that_holds_an_old_version_learns_of_the_new_one_from_owners() -> Result<()> {
    let nats = nats!();
    let (fleet, owner) = fleet_with_head(&nats)?;
    fleet.film.change(|manners| manners.version = 2);
    let second = SLICE..2 * SLICE;
    let answer = read(&fleet.nodes[owner], Some(&field_of(&second)))?;
    check(&answer, second, 2)?;
    check(&read(&fleet.nodes[owner], None)?, 0..LEN, 2)?;
    fleet.origin.forget_requests();
    // Its first bytes are there, and of no use to who wants others.
    let wanted = EXTENT..LEN;
    let answer = read(&fleet.nodes[0], Some(&field_of(&wanted)))?;
    check(&answer, wanted, 2)?;
    check(&read(&fleet.nodes[0], None)?, 0..LEN, 2)?;
    // What it costs are questions whether it is so.
    let exchanges = fleet.origin.exchanges();
    assert!(exchanges.iter().all(|it| it.status == 304), "{exchanges:?}");
    fleet.assert_answered()
}

/// A request that may not have what is stored asks the origin for all of it, and takes nothing from
/// who else asks.
#[test]
fn what_is_bypassed_is_asked_of_the_origin() -> Result<()> {
    let nats = nats!();
    let fleet = Fleet::start(&nats, &[SLICE; 3])?;
    check(&read(&fleet.nodes[0], None)?, 0..LEN, 1)?;
    fleet.origin.forget_requests();
    let request = Request::get(FILM).header("X-Bypass", "1");
    check(&fleet.nodes[1].client.send(&request)?, 0..LEN, 1)?;
    assert_eq!(fleet.assert_sent_once(1), LEN);
    fleet.origin.forget_requests();
    for node in &fleet.nodes {
        check(&read(node, None)?, 0..LEN, 1)?;
    }
    assert_eq!(fleet.origin.requests().len(), 0);
    fleet.assert_answered()
}

#[test]
fn owners_that_die_in_the_middle_break_no_answer_off() -> Result<()> {
    let nats = nats!();
    let mut fleet = Fleet::start(&nats, &[SLICE; 3])?;
    let gate = Gate::new();
    let held = (0..5).map(|at| {
        (
            at * EXTENT + 3 * SLICE..at * EXTENT + 3 * SLICE + 1,
            gate.clone(),
        )
    });
    fleet.film.change(|manners| manners.held = held.collect());
    let mut reading = Vec::new();
    for start in [0, EXTENT, 2 * EXTENT, 3 * EXTENT] {
        let mut connection = fleet.nodes[0].client.connect()?;
        let field = format!("bytes={start}-");
        connection.ask(&Request::get(FILM).header("Range", &field))?;
        let mut answer = connection.read_head("GET")?.context("no answer")?;
        connection.read_some(&mut answer, SLICE as usize)?;
        reading.push((start, connection, answer));
    }
    fleet.wait_until_asked(1.0)?;
    for node in &mut fleet.nodes[1..] {
        node.proxy.kill9()?;
    }
    gate.open();
    for (start, mut connection, mut answer) in reading {
        connection.read_body(&mut answer)?;
        check(&answer, start..LEN, 1)?;
    }
    Ok(())
}

/// The validator says nothing of the change: what was purged is told by the position alone.
#[test]
fn purge_while_extents_are_filled_holds_on_all_nodes() -> Result<()> {
    let nats = nats!();
    let fleet = Fleet::start(&nats, &[SLICE; 3])?;
    fleet
        .film
        .change(|manners| manners.validator = Validator::Unchanging);
    for round in 1..5_u16 {
        let gate = Gate::new();
        let held = 2 * EXTENT + SLICE..2 * EXTENT + SLICE + 1;
        fleet.film.change(|manners| {
            manners.version = 2 * round - 1;
            manners.held = vec![(held, gate.clone())];
        });
        fleet.nodes[0].purge_everywhere(FILM)?;
        std::thread::scope(|scope| -> Result<()> {
            let asking: Vec<_> = fleet
                .nodes
                .iter()
                .map(|node| scope.spawn(|| read(node, None)))
                .collect();
            let waiting = fleet.wait_until_asked(1.0);
            fleet.film.change(|manners| {
                manners.version = 2 * round;
                manners.held.clear();
            });
            let purged = fleet.nodes[1].purge_everywhere(FILM);
            gate.open();
            waiting?;
            purged?;
            for asked in asking {
                asked.join().unwrap()?;
            }
            Ok(())
        })?;
        for again in 0..2 {
            for (at, node) in fleet.nodes.iter().enumerate() {
                let whole = read(node, None)?;
                check(&whole, 0..LEN, 2 * round)
                    .with_context(|| format!("round {round}, {again} on node {at}"))?;
            }
        }
    }
    Ok(())
}

#[test]
fn nodes_with_other_slices_give_the_same_bytes() -> Result<()> {
    let nats = nats!();
    // The last one fits into no extent of the others.
    let fleet = Fleet::start(&nats, &[SLICE, 2 * SLICE, 48 << 10])?;
    let starts = |at: usize, round: u64| {
        let first = at as u64 + round;
        (0..4).map(move |number| (number * 2 + first) * (LEN / 12))
    };
    for round in 0..3 {
        let nodes = fleet.nodes.iter().enumerate();
        let asked: Vec<_> = nodes
            .flat_map(|(at, node)| starts(at, round).map(move |start| (node, start)))
            .collect();
        std::thread::scope(|scope| -> Result<()> {
            let ask = |(node, start): (&Node, u64)| -> Result<()> {
                let range = start..(start + EXTENT + SLICE).min(LEN);
                check(&read(node, Some(&field_of(&range)))?, range, 1)
            };
            let asking: Vec<_> = asked
                .into_iter()
                .map(|it| scope.spawn(move || ask(it)))
                .collect();
            for asked in asking {
                asked.join().unwrap()?;
            }
            Ok(())
        })?;
    }
    for node in &fleet.nodes {
        check(&read(node, None)?, 0..LEN, 1)?;
    }
    Ok(())
}

/// Each node says that it has the address of the next one, as in `peers`: no two wait for each
/// other, and each asks the origin for what nobody else may give it.
#[test]
fn nodes_with_wrong_views_read_what_they_ask_the_origin_for() -> Result<()> {
    const NODES: usize = 3;
    let nats = nats!();
    let origin = Origin::start()?;
    let film = Resource::new(Manners::of(LEN));
    origin.resource(FILM, &film);
    let ports = [free_port()?, free_port()?, free_port()?];
    let start = |number: usize| {
        let conf = conf(SLICE)
            .replace("%%ADDRESS%%", &ports[(number + 1) % NODES].to_string())
            .replace(
                "%%LISTEN%%",
                &format!("listen 127.0.0.1:{};", ports[number]),
            );
        let name = format!("n{number}");
        Node::start(at(&conf, (&name, nats.port), &origin))
    };
    let nodes = (0..NODES).map(start).collect::<Result<Vec<_>>>()?;
    wait_until_known(&nodes)?;
    std::thread::scope(|scope| -> Result<()> {
        let asking: Vec<_> = nodes
            .iter()
            .map(|node| scope.spawn(|| read(node, None)))
            .collect();
        for asked in asking {
            check(&asked.join().unwrap()?, 0..LEN, 1)?;
        }
        Ok(())
    })?;
    let sent: u64 = origin.exchanges().iter().map(|it| it.sent()).sum();
    assert!(sent <= NODES as u64 * LEN, "{sent}");
    Ok(())
}
