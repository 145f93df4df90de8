//! Counters are what clients and the origin saw, to the unit.

use super::bench::Bench;
use anyhow::{Result, ensure};
use millpond_testkit::Request;

#[test]
fn zones_count_what_clients_got() -> Result<()> {
    let bench = Bench::start()?;
    let mut sent = 0;
    let mut received = 0;
    for (host, path, status) in [
        ("shop", "/pages/one", 200),
        ("shop", "/pages/one", 200),
        ("shop", "/pages/inside/one", 200),
        ("shop", "/pages/quiet/one", 204),
        ("shop", "/pages/if/one", 201),
        ("shop", "/pages/if/one?a=1", 202),
        ("shop", "/moved", 200),
        ("shop", "/none", 404),
        ("blog", "/", 200),
        ("blog", "/", 200),
    ] {
        let mut connection = bench.client.connect()?;
        let request = Request::get(path).host(host);
        let bytes = request.encode();
        let response = connection.exchange(&request)?;
        ensure!(response.status == status, "{path}: {}", response.status);
        if host == "blog" {
            received += bytes.len();
            // The head is what is left of the whole.
            sent += response.body.len();
        }
    }
    let mut connection = bench.client.connect()?;
    connection.send_raw(&Request::get("/gone").host("shop").encode())?;
    connection.expect_close()?;

    let blog = bench.settles("/9/http/server_zones/blog", |it| {
        it["responses"]["2xx"] == 2
    })?;
    ensure!(blog["requests"] == 2 && blog["processing"] == 0, "{blog}");
    ensure!(blog["received"] == received, "{blog}");
    ensure!(blog["sent"].as_u64() > Some(sent as u64 + 100), "{blog}");
    // What asks is being answered.
    let shop = bench.settles("/9/http/server_zones/shop", |it| {
        it["discarded"] == 1 && it["processing"] == 1
    })?;
    ensure!(shop["responses"]["codes"]["404"] == 1, "{shop}");
    ensure!(shop["responses"]["codes"]["204"] == 1, "{shop}");
    let zones = bench.settles("/9/http/location_zones", |it| {
        let requests = |zone: &str| it[zone]["requests"].as_u64();
        requests("pages") >= Some(4) && requests("moved") >= Some(1)
    })?;
    for (zone, requests, code) in [
        ("pages", 4, "201"),
        ("chosen", 1, "202"),
        ("moved", 1, "200"),
    ] {
        let zone = &zones[zone];
        ensure!(zone["requests"] == requests, "{zones}");
        ensure!(zone["responses"]["total"] == requests, "{zones}");
        ensure!(zone["responses"]["codes"][code] == 1, "{zones}");
        ensure!(zone["processing"].is_null(), "{zones}");
    }
    ensure!(zones.get("shop").is_none() && zones["api"].is_object());
    Ok(())
}

#[test]
fn caches_and_peers_count_what_they_did_also_over_a_reload() -> Result<()> {
    let bench = Bench::start()?;
    for path in ["/pages/a", "/pages/b", "/pages/a", "/pages/a"] {
        ensure!(bench.get("shop", path)?.text() == "a page of ten");
    }
    for round in 0..2 {
        let cache = bench.settles("/9/http/caches/pond", |it| {
            it["miss"]["responses_written"] == 2 && it["hit"]["responses"] == 2
        })?;
        ensure!(cache["hit"]["bytes"] == 26, "{cache}");
        ensure!(cache["miss"]["bytes"] == 26, "{cache}");
        ensure!(cache["miss"]["bytes_written"] == 26, "{cache}");
        ensure!(
            cache["size"].as_u64() > Some(0) && cache["max_size"] == 100 << 20,
            "{cache}"
        );
        let farm = bench.told("/9/http/upstreams/farm")?;
        let (peer, dead) = (&farm["peers"][0], &farm["peers"][1]);
        ensure!(peer["server"] == bench.origin.address(), "{farm}");
        ensure!(
            peer["requests"] == 2 && peer["responses"]["codes"]["200"] == 2,
            "{farm}"
        );
        ensure!(peer["weight"] == 3 && peer["max_conns"] == 50, "{farm}");
        ensure!(peer["state"] == "up" && dead["state"] == "down", "{farm}");
        ensure!(peer["active"] == 0 && peer["fails"] == 0, "{farm}");
        ensure!(
            peer["selected"].is_string() && dead["selected"].is_null(),
            "{farm}"
        );
        let generation = bench.told("/9/nginx")?["generation"].as_u64();
        ensure!(generation == Some(1 + round), "{generation:?}");
        if round == 0 {
            bench.proxy.reload()?;
            bench.settles("/9/nginx", |it| it["generation"] == 2)?;
        }
    }
    Ok(())
}

#[test]
fn limits_count_what_they_did() -> Result<()> {
    let bench = Bench::start()?;
    for (path, status) in [
        ("/slow?k=a", 200),
        ("/slow?k=a", 200),
        ("/slow?k=a", 503),
        ("/slow?k=b", 200),
        // Without a key nothing is limited, nor counted.
        ("/slow", 200),
        ("/dry?k=a", 200),
        ("/dry?k=a", 200),
        ("/dry?k=a", 200),
    ] {
        let response = bench.get("shop", path)?;
        ensure!(response.status == status, "{path}: {}", response.status);
    }
    for round in 0..2 {
        let limits = bench.told("/9/http/limit_reqs")?;
        let expected = serde_json::json!({
            "slow": {"passed": 3, "delayed": 0, "rejected": 1, "delayed_dry_run": 0, "rejected_dry_run": 0},
            "dry": {"passed": 1, "delayed": 0, "rejected": 0, "delayed_dry_run": 1, "rejected_dry_run": 1},
        });
        ensure!(limits == expected, "{limits}");
        let few = bench.told("/9/http/limit_conns/few")?;
        let expected = serde_json::json!({"passed": 3, "rejected": 0, "rejected_dry_run": 0});
        ensure!(few == expected, "{few}");
        if round == 0 {
            bench.proxy.reload()?;
            bench.settles("/9/nginx", |it| it["generation"] == 2)?;
        }
    }
    ensure!(bench.ask("GET", "/api/9/http/limit_reqs/few")?.status == 404);
    ensure!(bench.ask("DELETE", "/api/9/http/limit_reqs/slow")?.status == 204);
    let slow = bench.told("/9/http/limit_reqs/slow?fields=passed,rejected")?;
    ensure!(
        slow == serde_json::json!({"passed": 0, "rejected": 0}),
        "{slow}"
    );
    let dry = bench.told("/9/http/limit_reqs/dry")?;
    ensure!(dry["passed"] == 1, "{dry}");
    Ok(())
}

#[test]
fn workers_and_connections_add_up() -> Result<()> {
    let bench = Bench::start()?;
    let mut idle = bench.client.connect()?;
    ensure!(idle.exchange(&Request::get("/").host("blog"))?.status == 200);
    let is_idle = |it: &serde_json::Value| it["idle"] == 1 && it["active"] == 1;
    bench.settles("/9/connections", is_idle)?;
    let all = bench.told("/9/connections")?["accepted"].as_u64();
    let workers = bench.told("/9/workers")?;
    let workers = workers.as_array().cloned().unwrap_or_default();
    ensure!(workers.len() == 2, "{workers:?}");
    let each = workers
        .iter()
        .map(|it| it["connections"]["accepted"].as_u64());
    // The question itself came on a connection of its own.
    ensure!(each.sum::<Option<u64>>() == all.map(|all| all + 1));
    Ok(())
}

#[test]
fn counters_begin_anew_where_that_is_allowed_and_metrics_go_on() -> Result<()> {
    let bench = Bench::start()?;
    for _ in 0..3 {
        ensure!(bench.get("shop", "/pages/a")?.status == 200);
        ensure!(bench.get("blog", "/")?.status == 200);
    }
    let paths = [
        ("/9/http/server_zones/blog", "/requests"),
        ("/9/http/location_zones/pages", "/requests"),
        ("/9/http/caches/pond", "/hit/responses"),
        ("/9/http/upstreams/farm", "/peers/0/requests"),
        ("/9/connections", "/accepted"),
        ("/9/http/requests", "/total"),
    ];
    let counted = |it: &serde_json::Value, member: &str| {
        it.pointer(member).and_then(serde_json::Value::as_u64)
    };
    for (path, member) in paths {
        let read = format!("/read{path}");
        ensure!(bench.ask("DELETE", &read)?.status == 405, "{read}");
        let before = bench.settles(path, |it| counted(it, member) > Some(0))?;
        ensure!(counted(&before, member) > Some(0), "{before}");
    }
    bench.settles("/9/http/caches/pond", |it| it["hit"]["responses"] == 2)?;
    bench.settles("/9/http/server_zones/blog", |it| {
        it["responses"]["2xx"] == 3
    })?;
    bench.settles("/9/http/location_zones/pages", |it| {
        it["responses"]["2xx"] == 3
    })?;
    for (path, member) in paths {
        let response = bench.ask("DELETE", &format!("/api{path}"))?;
        ensure!(response.status == 204 && response.body.is_empty(), "{path}");
        // What asks is counted itself, as a connection and a request.
        let after = bench.told(path)?;
        let most = u64::from(member == "/accepted" || member == "/total") * 20;
        ensure!(counted(&after, member) <= Some(most), "{path}: {after}");
    }
    ensure!(bench.get("blog", "/")?.status == 200);
    let blog = bench.settles("/9/http/server_zones/blog", |it| {
        it["responses"]["2xx"] == 1
    })?;
    ensure!(blog["requests"] == 1 && blog["processing"] == 0, "{blog}");
    // Our own part counts on.
    let all = bench.told("/millpond/1/")?;
    ensure!(all["answers"]["HIT"]["requests"] == 2, "{all}");
    for (path, status) in [
        ("/9/http/server_zones/none", 404),
        ("/9/http/server_zones", 405),
        ("/9/nginx", 405),
        ("/9/x", 404),
        ("/9/processes", 204),
        ("/9/workers/1", 204),
        ("/9/workers/7", 404),
    ] {
        let response = bench.ask("DELETE", &format!("/api{path}"))?;
        ensure!(response.status == status, "{path}: {}", response.status);
    }
    Ok(())
}
