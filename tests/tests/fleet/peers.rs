//! `proxy_cache_peers`, `node … address=`, `peer_secret`: one fetch from the origin for all nodes,
//! and purges that hold through them.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Deadline, Gate, Kind, Origin, Proxy, ProxyBuilder, Ranges, Request, free_port,
    offset_bytes,
};
use rustix::process::Signal;

use crate::kit::{Nats, Node, Relay, WAIT, page};
use crate::nats;

/// Length of a body that comes in many pieces.
const LONG: u64 = 1 << 20;

/// Inside of the http block of a node that owns keys.
pub(crate) const PEER: &str = "
    fleet edge {
        nats nats://127.0.0.1:%%NATS%%;
        node %%NODE%% address=127.0.0.1:%%ADDRESS%%;
        replicas 1;
        max_lag 3s;
        peer_secret secret;
    }
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m fleet=edge;
    proxy_cache z;
    proxy_cache_key $uri;
    proxy_cache_valid 200 1h;
    proxy_cache_revalidate on;
    proxy_cache_lock_timeout 1h;
    proxy_cache_lock_age 1h;
    proxy_cache_peers owner hedge=1s;
    proxy_cache_purge PURGE from 127.0.0.1 types=tag,all;
    map $http_accept $kind { default page; ~markdown text; }
    proxy_cache_vary Accept as $kind;
    gzip on;
    gzip_types text/plain;
    gzip_min_length 1;
    proxy_cache_encodings br min_length=1;
    server {
        listen 127.0.0.1:%%PORT%%;
        %%LISTEN%%
        add_header X-Cache $upstream_cache_status always;
        add_header X-Node $upstream_node always;
        add_header X-Ttl $cache_ttl always;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /brief/ { proxy_pass http://%%ORIGIN%%; proxy_cache_valid 200 1s; }
        location /own/ { proxy_pass http://%%ORIGIN%%; proxy_cache_key $uri$server_port; }
        location /hasty/ { proxy_pass http://%%ORIGIN%%; proxy_cache_peers owner hedge=100ms; }
        location = /ready { health; }
        location = /metrics { metrics; }
    }";

pub(crate) fn peer(name: &str, nats: u16, origin: &Origin) -> ProxyBuilder {
    let conf = PEER.replace("%%ADDRESS%%", "%%PORT%%");
    at(&conf.replace("%%LISTEN%%", ""), (name, nats), origin)
}

/// A node that tells one port and listens at another one.
pub(crate) fn peer_at(
    name: &str,
    (nats, origin): (u16, &Origin),
    [told, own]: [u16; 2],
) -> ProxyBuilder {
    let conf = PEER.replace("%%ADDRESS%%", &told.to_string());
    let listen = format!("listen 127.0.0.1:{own};");
    at(&conf.replace("%%LISTEN%%", &listen), (name, nats), origin)
}

/// A node with an address of its own.
pub(crate) fn at(conf: &str, (name, nats): (&str, u16), origin: &Origin) -> ProxyBuilder {
    Proxy::new(Kind::Millpond, conf)
        .origin(origin)
        .value("NODE", name)
        .value("NATS", &nats.to_string())
        .file("secret", "a secret of all nodes\n")
}

pub(crate) fn active(node: &Node) -> Result<f64> {
    node.metric("millpond_fleet_peer_requests_active{fleet=\"edge\"}")
}

pub(crate) fn outcome(node: &Node, result: &str) -> Result<f64> {
    node.metric(&format!(
        "millpond_fleet_peer_requests_total{{fleet=\"edge\",result=\"{result}\"}}"
    ))
}

/// Nodes that all know each other.
fn peers(nats: &Nats, count: usize) -> Result<(Origin, Vec<Node>)> {
    let origin = Origin::start()?;
    let start = |number| Node::start(peer(&format!("n{number}"), nats.port, &origin));
    let nodes = (0..count).map(start).collect::<Result<Vec<_>>>()?;
    wait_until_known(&nodes)?;
    Ok((origin, nodes))
}

/// Waits until every node has heard of all.
pub(crate) fn wait_until_known(nodes: &[Node]) -> Result<()> {
    wait_until_heard(nodes, nodes.len())
}

/// Waits until each of these nodes has heard of so many.
pub(crate) fn wait_until_heard<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    count: usize,
) -> Result<()> {
    for node in nodes {
        let is_known = || {
            let known = node.metric("millpond_fleet_nodes{fleet=\"edge\"}").ok()?;
            (known >= count as f64).then_some(())
        };
        Deadline::after(WAIT)
            .poll(is_known)
            .context("never known")?;
    }
    Ok(())
}

/// The body of a page, and the node that was asked for it.
pub(crate) fn ask(node: &Node, path: &str) -> Result<(String, Option<String>)> {
    let answer = node.client.get(path)?;
    ensure!(answer.status == 200, "{path}: {}", answer.status);
    let asked = answer.header("X-Node").filter(|it| *it != "-");
    Ok((answer.text(), asked.map(str::to_owned)))
}

pub(crate) fn count(origin: &Origin, path: &str) -> usize {
    let requests = origin.requests();
    requests.iter().filter(|it| it.path() == path).count()
}

/// A path that a node does not own, with the number of the owner.
fn path_of_another(
    nodes: &[Node],
    origin: &Origin,
    from: usize,
    prefix: &str,
) -> Result<(String, usize)> {
    for number in 0..1000 {
        let path = format!("{prefix}{number}");
        origin.route(&path, page("old"));
        if let (_, Some(name)) = ask(&nodes[from], &path)? {
            let owner = name.trim_start_matches('n').parse()?;
            ensure!(owner < nodes.len(), "{name}");
            return Ok((path, owner));
        }
    }
    anyhow::bail!("it owns everything")
}

#[test]
fn what_is_asked_on_all_nodes_at_once_is_asked_of_the_origin_once() -> Result<()> {
    let nats = nats!();
    let (origin, nodes) = peers(&nats, 5)?;
    for number in 0..6 {
        let path = format!("/new/{number}");
        let gate = Gate::new();
        origin.route(&path, page("body").hold_head(&gate));
        std::thread::scope(|scope| -> Result<()> {
            let asking: Vec<_> = nodes
                .iter()
                .map(|node| scope.spawn(|| ask(node, &path)))
                .collect();
            let are_waiting = || {
                let active = nodes.iter().map(active).collect::<Result<Vec<_>>>();
                (active.ok()?.iter().sum::<f64>() >= 4.0).then_some(())
            };
            let waiting = Deadline::after(WAIT).poll(are_waiting);
            gate.open();
            waiting.context("they never wait for one")?;
            for asked in asking {
                assert_eq!(asked.join().unwrap()?.0, "body");
            }
            Ok(())
        })?;
        assert_eq!(count(&origin, &path), 1, "{path}");
        // Nodes keep what they are asked for again.
        for node in &nodes {
            node.warm(&path)?;
            assert_eq!(ask(node, &path)?, ("body".to_owned(), None));
        }
        assert_eq!(count(&origin, &path), 1, "{path}");
    }
    for node in &nodes {
        for result in ["slow", "failed", "refused", "rejected", "behind"] {
            assert_eq!(outcome(node, result)?, 0.0, "{result}");
        }
    }
    Ok(())
}

#[test]
fn answers_of_a_peer_are_those_of_the_origin_and_age_with_it() -> Result<()> {
    let nats = nats!();
    let (origin, nodes) = peers(&nats, 2)?;
    let (path, owner) = path_of_another(&nodes, &origin, 0, "/fields/")?;
    let text = page("a text").header("Content-Type", "text/plain");
    let expiring = text.header("X-Accel-Expires", "100").header("X-Own", "1");
    origin.route(&path, expiring);
    nodes[owner].purge_everywhere(&path)?;
    // The owner's copy is older than the one that is made of it.
    ask(&nodes[owner], &path)?;
    let ttl = |node: &Node| -> Result<i64> {
        let answer = node.client.get(&path)?;
        Ok(answer.header("X-Ttl").context("a ttl")?.parse()?)
    };
    let is_older = || (ttl(&nodes[owner]).ok()? <= 98).then_some(());
    Deadline::after(WAIT)
        .poll(is_older)
        .context("never older")?;
    for (at, expected) in ["MISS", "HIT", "HIT"].into_iter().enumerate() {
        let answer = nodes[0].client.get(&path)?;
        assert_eq!(answer.header("X-Cache"), Some(expected), "{at}");
        assert_eq!(answer.text(), "a text");
        assert_eq!(answer.header("X-Own"), Some("1"));
        assert_eq!(answer.header("Millpond-Peer"), None);
        assert_eq!(answer.header("X-Accel-Expires"), None);
        assert_eq!(answer.header("Content-Encoding"), None);
    }
    assert!(ttl(&nodes[0])? <= 98, "{}", ttl(&nodes[0])?);
    let requests = origin.requests();
    assert!(
        requests
            .iter()
            .all(|it| it.header("Millpond-Peer").is_none())
    );
    // HEAD, conditions and codings are the asking node's own matter.
    let request = Request::get(&path).header("If-None-Match", "\"a text\"");
    assert_eq!(nodes[0].client.send(&request)?.status, 304);
    let request = Request::get(&path).header("Accept-Encoding", "gzip");
    let zipped = nodes[0].client.send(&request)?;
    assert_eq!(zipped.header("Content-Encoding"), Some("gzip"));
    Ok(())
}

/// The asking node tells the owner what its client sent: both find the same class in it.
#[test]
fn classes_of_a_vary_are_those_of_all_nodes() -> Result<()> {
    let nats = nats!();
    let (origin, nodes) = peers(&nats, 3)?;
    for number in 0..6 {
        let path = format!("/kinds/{number}");
        origin.route(&path, page("both").header("Vary", "Accept"));
        let (pages, texts) = (
            ["text/html", "*/*"],
            ["text/markdown", "a/b, text/markdown"],
        );
        for (at, accept) in pages.into_iter().chain(texts).enumerate() {
            for node in &nodes {
                let request = Request::get(&path).header("Accept", accept);
                assert_eq!(node.client.send(&request)?.text(), "both");
            }
            assert_eq!(count(&origin, &path), at / 2 + 1, "{path}, {accept}");
        }
    }
    Ok(())
}

#[test]
fn stale_copies_are_validated_by_the_owner_once_for_all() -> Result<()> {
    let nats = nats!();
    let (origin, nodes) = peers(&nats, 3)?;
    let (path, owner) = path_of_another(&nodes, &origin, 0, "/brief/")?;
    for node in &nodes {
        node.warm(&path)?;
    }
    let is_stale = || {
        let answer = nodes[0].client.get(&path).ok()?;
        (answer.header("X-Cache") == Some("REVALIDATED")).then_some(answer)
    };
    let answer = Deadline::after(WAIT)
        .poll(is_stale)
        .context("never stale")?;
    assert_eq!(answer.text(), "old");
    assert_eq!(answer.header("X-Node"), Some(format!("n{owner}").as_str()));
    let requests = origin.requests();
    let fetched = requests.iter().filter(|it| it.path() == path);
    let whole = fetched.filter(|it| it.header("If-None-Match").is_none());
    assert_eq!(whole.count(), 1, "the body was fetched once");
    Ok(())
}

#[test]
fn node_that_dies_or_stands_still_costs_no_failed_request() -> Result<()> {
    let nats = nats!();
    let (origin, mut nodes) = peers(&nats, 3)?;
    let (stuck, owner) = path_of_another(&nodes, &origin, 0, "/hasty/")?;
    nodes[owner].proxy.stop()?;
    // It is asked as long as its beats are not missed, and passed by each time.
    let before = count(&origin, &stuck);
    assert_eq!(ask(&nodes[0], &stuck)?.0, "old");
    assert_eq!(count(&origin, &stuck), before + 1);
    assert_eq!(outcome(&nodes[0], "slow")?, 1.0);
    nodes[owner].proxy.signal(Signal::CONT)?;
    nodes[owner].wait_until_ready()?;

    let paths: Vec<String> = (0..40).map(|number| format!("/dead/{number}")).collect();
    for path in &paths {
        origin.route(path, page("page"));
    }
    nodes[owner].proxy.kill9()?;
    for path in &paths {
        for (at, node) in nodes.iter().enumerate() {
            if at != owner {
                assert_eq!(ask(node, path)?.0, "page", "{path} on node {at}");
            }
        }
    }
    assert!(outcome(&nodes[0], "failed")? >= 1.0);
    // Once its beats are missed, others own its keys: whole rows of new ones are asked of nobody
    // who is gone.
    let rounds = std::cell::Cell::new(0);
    let is_left = || {
        let before = outcome(&nodes[0], "failed").ok()?;
        for number in 0..20 {
            let path = format!("/left/{}/{number}", rounds.get());
            origin.route(&path, page("page"));
            ask(&nodes[0], &path).ok()?;
        }
        rounds.set(rounds.get() + 1);
        (outcome(&nodes[0], "failed").ok()? == before).then_some(())
    };
    Deadline::after(WAIT).poll(is_left).context("never left")
}

/// A long body, of which the origin has parts.
fn long() -> Answer {
    let answer = Answer::new(200).offset_body(LONG, 1);
    answer.etag("\"long\"").ranges(Ranges::Supported)
}

/// A path of the second of two nodes, of which no answer is stored; the first one has asked for it
/// before or not.
pub(crate) fn path_of_second(
    nodes: &[Node],
    origin: &Origin,
    (prefix, was_asked): (&str, bool),
) -> Result<String> {
    for number in 0..1000 {
        let path = format!("{prefix}{number}");
        origin.route(&path, page("old"));
        if ask(&nodes[1], &path)?.1.is_none() {
            if was_asked {
                ask(&nodes[0], &path)?;
            }
            nodes[0].purge_everywhere(&path)?;
            return Ok(path);
        }
    }
    anyhow::bail!("it owns nothing")
}

/// An answer that only passes and one that is kept here: the origin has the rest of both.
#[test]
fn owner_that_dies_in_the_middle_of_an_answer_breaks_none_off() -> Result<()> {
    let nats = nats!();
    let (origin, mut nodes) = peers(&nats, 2)?;
    let gate = Gate::new();
    let mut reading = Vec::new();
    for asked in [("/passed/", false), ("/filled/", true)] {
        let path = path_of_second(&nodes, &origin, asked)?;
        origin.forget_requests();
        origin.sequence(&path, vec![long().hold_body_at(LONG / 2, &gate), long()]);
        let mut connection = nodes[0].client.connect()?;
        connection.ask(&Request::get(&path))?;
        let mut answer = connection.read_head("GET")?.context("no answer")?;
        assert_eq!(answer.header("X-Node"), Some("n1"), "{path}");
        connection.read_some(&mut answer, LONG as usize / 4)?;
        reading.push((path, connection, answer));
    }
    nodes[1].proxy.kill9()?;
    for (path, mut connection, mut answer) in reading {
        connection.read_body(&mut answer)?;
        assert!(answer.body == offset_bytes(0..LONG, 1), "{path}");
        let requests = origin.requests();
        let of_path = requests.iter().filter(|it| it.path() == path);
        let conditions: Vec<_> = of_path.map(|it| it.header("If-Range")).collect();
        assert!(
            conditions.contains(&Some("\"long\"")),
            "{path}: {conditions:?}"
        );
    }
    gate.open();
    Ok(())
}

/// Each node says that it has the address of the next one: who is asked for a key never owns it by
/// its own view, and would ask on, round and round; and all wait for each other.
#[test]
fn nodes_with_wrong_views_ask_the_origin_and_nobody_goes_round_in_circles() -> Result<()> {
    const NODES: usize = 3;
    let nats = nats!();
    let origin = Origin::start()?;
    let ports = [free_port()?, free_port()?, free_port()?];
    let start = |number: usize| {
        let told = [ports[(number + 1) % NODES], ports[number]];
        Node::start(peer_at(&format!("n{number}"), (nats.port, &origin), told))
    };
    let nodes = (0..NODES).map(start).collect::<Result<Vec<_>>>()?;
    wait_until_known(&nodes)?;
    for number in 0..20 {
        let path = format!("/circle/{number}");
        origin.route(&path, page(&path));
        std::thread::scope(|scope| -> Result<()> {
            let asking: Vec<_> = nodes
                .iter()
                .map(|node| scope.spawn(|| ask(node, &path)))
                .collect();
            for asked in asking {
                assert_eq!(asked.join().unwrap()?.0, path);
            }
            Ok(())
        })?;
        nodes[0].warm(&path)?;
        // One for each node, and one for each that was asked beside its own.
        assert!(count(&origin, &path) <= 2 * NODES, "{path}");
    }
    let of_all = |result| {
        nodes
            .iter()
            .map(|node| outcome(node, result))
            .sum::<Result<f64>>()
    };
    assert!(of_all("served")? >= 1.0);
    assert!(of_all("rejected")? >= 1.0, "nobody asks itself");
    Ok(())
}

#[test]
fn keys_that_owners_make_otherwise_and_requests_that_are_not_signed_are_refused() -> Result<()> {
    let nats = nats!();
    let (origin, nodes) = peers(&nats, 2)?;
    for number in 0..8 {
        let path = format!("/own/{number}");
        origin.route(&path, page("page"));
        assert_eq!(ask(&nodes[0], &path)?.0, "page");
        assert_eq!(ask(&nodes[0], &path)?.0, "page");
        assert_eq!(count(&origin, &path), 1);
    }
    let refused = outcome(&nodes[0], "refused")?;
    assert!(refused >= 1.0);
    assert_eq!(outcome(&nodes[1], "rejected")?, refused);
    for value in [
        "",
        "v=1",
        "v=1;zone=7a;key=00;log=00;at=0;time=0;from=00;mac=00",
    ] {
        let request = Request::get("/own/1").header("Millpond-Peer", value);
        assert_eq!(nodes[0].client.send(&request)?.status, 403, "{value}");
    }
    Ok(())
}

#[test]
fn purge_while_a_peer_fetches_holds_on_both() -> Result<()> {
    let nats = nats!();
    let (origin, nodes) = peers(&nats, 3)?;
    let (path, owner) = path_of_another(&nodes, &origin, 0, "/fetch/")?;
    let third = 3 - owner;
    nodes[third].purge_everywhere(&path)?;
    for held in ["head", "body"] {
        let gate = Gate::new();
        let page_before: Answer = page("old version of the page");
        let old = match held {
            "head" => page_before.hold_head(&gate),
            _ => page_before.hold_body_at(4, &gate),
        };
        origin.forget_requests();
        origin.route(&path, old);
        std::thread::scope(|scope| -> Result<()> {
            let asking: Vec<_> = [0, 0, owner]
                .map(|at| &nodes[at])
                .map(|node| scope.spawn(|| ask(node, &path)))
                .into_iter()
                .collect();
            let begun = origin.wait_for_requests(1);
            let is_asked = || (active(&nodes[owner]).ok()? >= 1.0).then_some(());
            let asked = Deadline::after(WAIT).poll(is_asked);
            let purged = nodes[third].purge_everywhere(&path);
            origin.route(&path, page("new"));
            gate.open();
            begun?;
            asked.context("the owner is never asked")?;
            purged?;
            for asked in asking {
                asked.join().unwrap()?;
            }
            Ok(())
        })?;
        for round in 0..3 {
            for (at, node) in nodes.iter().enumerate() {
                assert_eq!(ask(node, &path)?.0, "new", "{held} {round} on node {at}");
            }
        }
        nodes[third].purge_everywhere(&path)?;
    }
    Ok(())
}

/// An owner that has not heard of a purge has the old page, and by its own clock it is fresh.
#[test]
fn owner_that_missed_a_purge_is_not_believed() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    let relay = Relay::start(nats.port)?;
    let nodes = [
        Node::start(peer("n0", nats.port, &origin))?,
        Node::start(peer("n1", relay.port, &origin))?,
    ];
    wait_until_known(&nodes)?;
    let (path, _) = path_of_another(&nodes, &origin, 0, "/missed/")?;
    nodes[1].warm(&path)?;
    nodes[0].warm(&path)?;
    origin.route(&path, page("new"));
    relay.cut();
    assert_eq!(
        nodes[0].purge(&path, &[])?.header("Purge-Fleet"),
        Some("acknowledged")
    );
    // At once, while the owner counts as alive and serves the old page as fresh.
    assert_eq!(ask(&nodes[0], &path)?.0, "new");
    assert_eq!(ask(&nodes[0], &path)?.0, "new");
    relay.mend();
    nodes[1].wait_for(&path, "new")
}

/// A client that is told that a purge holds on this node only is not served what other nodes have.
#[test]
fn what_only_this_node_purged_is_not_asked_of_others() -> Result<()> {
    let mut nats = nats!();
    let (origin, nodes) = peers(&nats, 2)?;
    let (path, owner) = path_of_another(&nodes, &origin, 0, "/local/")?;
    assert_eq!(owner, 1);
    nodes[1].warm(&path)?;
    nodes[0].warm(&path)?;
    origin.route(&path, page("new"));
    nats.kill()?;
    let answer = nodes[0].purge(&path, &[])?;
    assert_eq!(
        (answer.status, answer.header("Purge-Fleet")),
        (503, Some("local"))
    );
    for _ in 0..3 {
        assert_eq!(ask(&nodes[0], &path)?, ("new".to_owned(), None));
    }
    nats.restart()?;
    let is_purged = || nodes[0].purge_everywhere(&path).ok();
    Deadline::after(WAIT)
        .poll(is_purged)
        .context("never purged")?;
    assert_eq!(ask(&nodes[1], &path)?.0, "new");
    Ok(())
}
