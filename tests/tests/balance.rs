//! `hash`, `ip_hash`, `least_conn`, `random`, `max_conns`: which peer a request goes to.
//!
//! Where a key decides, nginx is asked the same when its binary is at hand: a cluster of both must
//! cut the keys the same way.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Gate, Kind, Origin, Proxy, Request, binary};

/// Origins that only differ in their ports.
fn origins(count: usize) -> Result<Vec<Origin>> {
    let start = |_| {
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).body("x"));
        Ok(origin)
    };
    (0..count).map(start).collect()
}

fn conf(method: &str, servers: &[(String, &str)]) -> String {
    let servers: String = servers
        .iter()
        .map(|(address, more)| format!("server {address} {more}; "))
        .collect();
    format!(
        "upstream u {{ {method} {servers} }}
        server {{
            listen 127.0.0.1:%%PORT%%;
            location / {{ proxy_pass http://u; add_header X-Peer $upstream_addr always; }}
        }}"
    )
}

/// The peers that requests for 60 paths go to.
fn cut(kind: Kind, conf: &str) -> Result<Vec<String>> {
    let proxy = Proxy::new(kind, conf).start()?;
    let client = Client::new(proxy.port());
    let ask = |number| {
        let response = client.get(&format!("/{number}"))?;
        Ok(response.header("X-Peer").context("a peer")?.to_string())
    };
    (0..60).map(ask).collect()
}

/// A key goes to the same peer with this program and with nginx.
#[test]
fn keys_are_cut_as_nginx_cuts_them() -> Result<()> {
    let origins = origins(4)?;
    let more = ["", "weight=3", "down", ""];
    let servers: Vec<(String, &str)> = origins.iter().map(Origin::address).zip(more).collect();
    for method in [
        "hash $uri;",
        "hash $uri consistent;",
        "hash a$uri$args consistent;",
        "ip_hash;",
    ] {
        let conf = conf(method, &servers);
        let ours = cut(Kind::Millpond, &conf)?;
        let different: BTreeMap<&String, ()> = ours.iter().map(|peer| (peer, ())).collect();
        assert_eq!(
            different.len(),
            if method == "ip_hash;" { 1 } else { 3 },
            "{method}"
        );
        if binary(Kind::Nginx).is_some() {
            assert_eq!(ours, cut(Kind::Nginx, &conf)?, "{method}");
        }
    }
    Ok(())
}

/// Of a ring, one server's end moves its own keys only.
#[test]
fn a_ring_keeps_the_keys_of_those_who_stay() -> Result<()> {
    let origins = origins(3)?;
    let servers: Vec<(String, &str)> = origins.iter().map(|it| (it.address(), "")).collect();
    let before = cut(Kind::Millpond, &conf("hash $uri consistent;", &servers))?;
    let after = cut(
        Kind::Millpond,
        &conf("hash $uri consistent;", &servers[..2]),
    )?;
    let gone = &servers[2].0;
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after || before == gone, "{before} {after}");
    }
    Ok(())
}

/// A busy peer is left to itself by `least_conn`, and by `random two` of two; `max_conns` is never
/// passed, over all workers.
#[test]
fn busy_peers_are_left_alone() -> Result<()> {
    for (method, more) in [
        ("least_conn;", ""),
        ("random two;", ""),
        ("", "max_conns=1"),
    ] {
        let origins = origins(2)?;
        let gate = Gate::new();
        for origin in &origins {
            origin.route(
                "/slow",
                Answer::new(200).body("slow").hold_body_at(1, &gate),
            );
        }
        let servers: Vec<(String, &str)> = origins.iter().map(|it| (it.address(), more)).collect();
        let conf = format!(
            "%%GLOBALS%% worker_processes 4; events {{}} http {{ %%HTTP%% {} }}",
            conf(method, &servers)
        );
        let proxy = Proxy::new(Kind::Millpond, &conf).start()?;
        let client = Client::new(proxy.port());
        let mut slow = client.connect()?;
        slow.send_raw(&Request::get("/slow").encode())?;
        let mut head = slow.read_head("GET")?.context("a head")?;
        let busy = head.header("X-Peer").context("a peer")?.to_string();
        for _ in 0..10 {
            let response = client.get("/")?;
            assert_ne!(
                response.header("X-Peer"),
                Some(busy.as_str()),
                "{method}{more}"
            );
        }
        gate.open();
        slow.read_body(&mut head)?;
    }
    Ok(())
}

/// A request to a group of which every peer is full gets a 502 that says whose group it was.
#[test]
fn a_full_group_is_a_bad_gateway() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    origin.route(
        "/slow",
        Answer::new(200).body("slow").hold_body_at(1, &gate),
    );
    let servers = [(origin.address(), "max_conns=1")];
    let proxy = Proxy::new(Kind::Millpond, &conf("", &servers)).start()?;
    let client = Client::new(proxy.port());
    let mut slow = client.connect()?;
    slow.send_raw(&Request::get("/slow").encode())?;
    let mut head = slow.read_head("GET")?.context("a head")?;
    let response = client.get("/")?;
    assert_eq!(
        (response.status, response.header("X-Peer")),
        (502, Some("u"))
    );
    gate.open();
    slow.read_body(&mut head)?;
    Ok(())
}
