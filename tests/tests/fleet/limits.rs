//! `limit_req_zone … fleet=NAME:split`, `limit_conn_zone … fleet=NAME:split`: limits of all nodes
//! together.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, Origin, Proxy, ProxyBuilder};

use crate::kit::{NODE, Nats, Node, Relay, WAIT, node_of};
use crate::lines::mistakes;
use crate::nats;

/// Inside of the http block of a node without a cache: limits alone make it follow.
const LIMITS: &str = "
    fleet edge {
        nats nats://127.0.0.1:%%NATS%%;
        node %%NODE%%;
        replicas 1;
        max_lag 3s;
    }
    limit_req_zone $arg_key zone=rate:1m rate=4r/s fleet=edge:split;
    limit_conn_zone $arg_key zone=count:1m fleet=edge:split;
    limit_req_log_level info;
    limit_conn_log_level info;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Conf one always;
        root %%DIR%%/www;
        location /rate { limit_req zone=rate; try_files /a =404; }
        location /count { limit_conn count 4; limit_rate 1k; try_files /long =404; }
        location = /ready { health; }
        location = /metrics { metrics; }
    }";

/// The rate of the zone.
const RATE: u32 = 4;

fn limiter(name: &str, nats: u16) -> ProxyBuilder {
    Proxy::new(Kind::Millpond, LIMITS)
        .file("www/a", "a")
        .file("www/long", "x".repeat(100_000))
        .value("NODE", name)
        .value("NATS", &nats.to_string())
}

/// Waits until a node splits its limits among so many.
fn wait_for_split(node: &Node, count: u64) -> Result<()> {
    let name = "millpond_fleet_split_nodes{fleet=\"edge\"}";
    let is_so = || (node.metric(name).ok()? == count as f64).then_some(());
    Deadline::after(WAIT)
        .poll(is_so)
        .with_context(|| format!("never {count}: {}", node.proxy.error_log()))
}

/// Number of requests for a key that a node answers at a time, of five.
fn held_at_once(client: &Client, key: &str) -> Result<usize> {
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut connection = client.connect()?;
        let head = format!("GET /count?key={key} HTTP/1.1\r\nHost: a\r\n\r\n");
        connection.send_raw(head.as_bytes())?;
        let head = connection.read_head("GET")?.context("a head")?;
        if head.status == 200 {
            held.push(connection);
        }
    }
    Ok(held.len())
}

/// Time in which so many requests pass all of these nodes together, asked without a pause; the
/// first of a key at each of them passes for nothing, and is not counted.
fn time_of(nodes: &[&Node], key: &str, count: u32) -> Result<Duration> {
    let passes = |node: &Node| -> Result<u32> {
        let answer = node.client.get(&format!("/rate?key={key}"))?;
        Ok(u32::from(answer.status == 200))
    };
    let began = Instant::now();
    for node in nodes {
        passes(node)?;
    }
    let mut passed = 0;
    while passed < count {
        for node in nodes {
            passed += passes(node)?;
        }
    }
    Ok(began.elapsed())
}

/// All nodes together let through what the rate says: no more, and not as little as half of it.
fn assert_rate(nodes: &[&Node], key: &str) -> Result<()> {
    // Each lets through as many.
    let count = 3 * nodes.len() as u32;
    let time = time_of(nodes, key, count)?;
    let expected = Duration::from_secs(1) * count / RATE;
    // Milliseconds are whole in a bucket, each time that one is filled.
    assert!(
        time >= expected * 98 / 100,
        "{key}: {time:?} < {expected:?}"
    );
    assert!(time < expected * 2, "{key}: {time:?}, not {expected:?}");
    Ok(())
}

#[test]
fn nodes_share_a_limit_as_they_come_and_go() -> Result<()> {
    let nats = nats!();
    let mut first = Node::start(limiter("n1", nats.port))?;
    wait_for_split(&first, 1)?;
    assert_rate(&[&first], "alone")?;
    assert_eq!(held_at_once(&first.client, "alone")?, 4);

    let second = Node::start(limiter("n2", nats.port))?;
    let third = Node::start(limiter("n3", nats.port))?;
    for node in [&first, &second, &third] {
        wait_for_split(node, 3)?;
    }
    assert_rate(&[&first, &second, &third], "three")?;
    // Four among three.
    let mut parts = Vec::new();
    for node in [&first, &second, &third] {
        parts.push(held_at_once(&node.client, "three")?);
    }
    assert_eq!(parts, [2, 1, 1]);

    // A node that dies leaves its share to the others.
    first.proxy.kill9()?;
    for node in [&second, &third] {
        wait_for_split(node, 2)?;
    }
    assert_rate(&[&second, &third], "two")?;
    assert_eq!(held_at_once(&second.client, "two")?, 2);
    Ok(())
}

#[test]
fn node_that_is_cut_off_keeps_its_share_over_a_reload_too() -> Result<()> {
    let nats = nats!();
    let link = Relay::start(nats.port)?;
    let mut cut = Node::start(limiter("n1", link.port))?;
    let other = Node::start(limiter("n2", nats.port))?;
    wait_for_split(&cut, 2)?;
    wait_for_split(&other, 2)?;
    link.cut();
    // The others have the whole, once it is not heard of.
    wait_for_split(&other, 1)?;
    assert_eq!(held_at_once(&cut.client, "cut")?, 2);
    // Its threads are others then.
    let conf = LIMITS.replace("max_lag 3s", "max_lag 4s");
    cut.proxy
        .set_conf(&conf.replace("X-Conf one", "X-Conf two"))?;
    cut.proxy.reload()?;
    let is_new = || {
        let answer = cut.client.get("/rate").ok()?;
        (answer.header("X-Conf") == Some("two")).then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_new)
        .context("never reloaded")?;
    assert_eq!(held_at_once(&cut.client, "reloaded")?, 2);
    link.mend();
    wait_for_split(&other, 2)?;
    assert_eq!(held_at_once(&other.client, "mended")?, 2);
    Ok(())
}

#[test]
fn fleets_of_limits_are_checked() -> Result<()> {
    let table = [
        (
            "fleet=edge",
            "it must be \"fleet=name:split\" or \"fleet=name:lease\"",
        ),
        ("fleet=:split", "it must be \"fleet=name:split\""),
        ("fleet=:lease", "it must be \"fleet=name:split\""),
        ("fleet=edge:other", "it must be \"fleet=name:split\""),
        ("fleet=other:split", "fleet \"other\" is unknown"),
    ];
    for (word, why) in table {
        for line in [
            "limit_req_zone $uri zone=x:1m rate=1r/s",
            "limit_conn_zone $uri zone=x:1m",
        ] {
            let block = "fleet edge { nats nats://127.0.0.1:4222; }";
            let text = mistakes(&format!("{block} {line} {word};"))?;
            assert!(text.contains(why), "{line} {word}: {text}");
        }
    }
    let block = "fleet edge { nats nats://127.0.0.1:4222; }
        limit_req_zone $uri zone=x:1m rate=1r/s fleet=edge:split;
        limit_conn_zone $uri zone=y:1m fleet=edge:split;";
    assert_eq!(mistakes(block)?, "");
    let leased = block.replace(":split", ":lease");
    assert_eq!(mistakes(&leased)?, "");
    let limits = |first: u8, second: u8| {
        let server = format!(
            "server {{ listen 127.0.0.1:1; location /a {{ limit_conn y {first}; }}
             location /b {{ limit_conn y {second}; }} }}"
        );
        mistakes(&format!("{leased} {server}"))
    };
    assert_eq!(limits(4, 4)?, "");
    let why = "limit_conn zone \"y\" is leased, so all of its limits must have one number";
    let text = limits(4, 2)?;
    assert!(text.contains(why), "{text}");
    for (word, why) in [
        ("fleet=edge:lease", "it must be \"fleet=name:split\""),
        ("fleet=:split", "it must be \"fleet=name:split\""),
        ("split", "it must be \"fleet=name:split\""),
        ("fleet=other:split", "fleet \"other\" is unknown"),
    ] {
        let text = mistakes(&format!("{block} cache_site_quota shop 1g {word};"))?;
        assert!(text.contains(why), "{word}: {text}");
    }
    assert_eq!(
        mistakes(&format!(
            "{block} cache_site_quota shop 1g fleet=edge:split;"
        ))?,
        ""
    );
    for how in ["split", "lease"] {
        let zone = format!("limit_conn_zone $remote_addr zone=z:1m fleet=edge:{how};");
        let text = mistakes(&format!("{block} }} stream {{ {zone} }} http {{"))?;
        assert!(text.contains("is not supported in \"stream\""), "{text}");
    }
    Ok(())
}

/// A node whose zone may hold so much of a site, together with the others.
fn holder(name: &str, nats: u16, origin: &Origin) -> ProxyBuilder {
    let quota = "cache_site_quota shop 1m fleet=edge:split;\n    proxy_cache z;";
    let limited = NODE.replace("proxy_cache z;", quota);
    let conf = limited.replace("location / {", "location / { cache_site shop;");
    node_of(&conf, (name, nats), origin)
}

#[test]
fn nodes_share_the_quota_of_a_site_as_they_come_and_go() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body(vec![b'x'; 50_000]));
    let quota = |node: &Node| node.metric("millpond_site_quota_bytes{site=\"shop\"");
    let held = |node: &Node| node.metric("millpond_site_quota_held_bytes{site=\"shop\"");
    let wait_for_quota = |node: &Node, bytes: u32| {
        let is_so = || (quota(node).ok()? == f64::from(bytes)).then_some(());
        Deadline::after(WAIT)
            .poll(is_so)
            .with_context(|| format!("never {bytes}"))
    };
    let fill = |node: &Node| -> Result<()> {
        for number in 0..30 {
            node.page(&format!("/{number}"))?;
        }
        Ok(())
    };
    let first = Node::start(holder("n1", nats.port, &origin))?;
    wait_for_quota(&first, 1 << 20)?;
    fill(&first)?;
    assert!(held(&first)? > 900_000.0);

    let mut second = Node::start(holder("n2", nats.port, &origin))?;
    wait_for_quota(&second, 512 << 10)?;
    fill(&second)?;
    for node in [&first, &second] {
        let is_less = || (held(node).ok()? <= f64::from(512 << 10)).then_some(());
        Deadline::after(WAIT)
            .poll(is_less)
            .context("too much is held")?;
    }
    assert!(held(&second)? > 400_000.0);

    second.proxy.kill9()?;
    wait_for_quota(&first, 1 << 20)?;
    fill(&first)?;
    assert!(held(&first)? > 900_000.0);
    Ok(())
}
