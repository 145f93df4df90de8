//! `GET /fleets/NAME/sites`, `millpond fleet sites`: counters of sites of all nodes, summed; no
//! restart loses anything or counts it twice.

use anyhow::{Context, Result};
use millpond_testkit::{Deadline, Origin, Request};
use serde_json::Value;

use crate::kit::{NODE, Nats, Node, WAIT, node_of, page};
use crate::peers::wait_until_known;
use crate::{nats, run};

/// A site of its own, beside the server without a name, whose requests nobody counts here.
const SHOP: &str = "
    cache_site_counters %%DIR%%/own.sites;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name shop.example;
        location / { proxy_pass http://%%ORIGIN%%; }
    }";

fn counting(name: &str, nats: u16, origin: &Origin) -> Result<Node> {
    let conf = format!("{NODE}{SHOP}");
    Node::start(node_of(&conf, (name, nats), origin))
}

/// Asks a node for a page of the site so often.
fn ask(node: &Node, count: usize) -> Result<()> {
    for _ in 0..count {
        let request = Request::get("/page").host("shop.example");
        assert_eq!(node.client.send(&request)?.status, 200);
    }
    Ok(())
}

fn report(node: &Node) -> Result<(u16, Value)> {
    let answer = node.client.get("/api/millpond/1/fleets/edge/sites")?;
    Ok((answer.status, serde_json::from_str(&answer.text())?))
}

fn shop(report: &Value) -> Option<&Value> {
    let mut sites = report["sites"].as_array()?.iter();
    sites.find(|site| site["site"] == "shop.example")
}

/// Waits until a node says that all have counted so many requests.
fn wait_for(node: &Node, requests: u64) -> Result<Value> {
    let mut last = Value::Null;
    let is_sum = || {
        last = report(node).ok()?.1;
        (shop(&last)?["requests"] == requests).then(|| last.clone())
    };
    let found = Deadline::after(WAIT).poll(is_sum);
    found.with_context(|| format!("never {requests}: {last}"))
}

#[test]
fn counters_of_all_nodes_are_summed_over_restarts_and_deaths() -> Result<()> {
    let mut nats = nats!();
    let origin = Origin::start()?;
    origin.route("/page", page("0123456789"));
    let start = |number| counting(&format!("n{number}"), nats.port, &origin);
    let mut nodes = (0..3).map(start).collect::<Result<Vec<_>>>()?;
    wait_until_known(&nodes)?;
    ask(&nodes[0], 3)?;
    ask(&nodes[1], 2)?;
    let sum = wait_for(&nodes[2], 5)?;
    let site = shop(&sum).context("a site")?;
    // Two nodes have fetched it, three answers came from what they had.
    assert_eq!(site["bytes"], 50);
    assert_eq!(
        (&site["cache_bytes"], &site["origin_bytes"]),
        (&30.into(), &20.into())
    );
    assert_eq!(site["answers"]["HIT"]["requests"], 3);
    assert_eq!(site["answers"]["MISS"]["requests"], 2);
    assert_eq!(site["origin"]["requests"], 2);
    for part in sum["nodes"].as_array().context("nodes")? {
        assert_eq!(part["is_live"], true, "{part}");
        assert!(
            part["age_ms"].as_u64().context("an age")? < 60_000,
            "{part}"
        );
    }
    assert_eq!(sum["nodes"].as_array().map(Vec::len), Some(3));

    // What a node has counted stays when it goes on, and when it never comes back.
    nodes[0].proxy.quit()?;
    nodes[0].proxy.restart()?;
    nodes[1].proxy.kill9()?;
    ask(&nodes[0], 1)?;
    wait_for(&nodes[2], 6)?;
    // A file that was lost still counts, and the one in its place, too.
    nodes[0].proxy.quit()?;
    std::fs::remove_file(nodes[0].proxy.dir().join("own.sites"))?;
    nodes[0].proxy.restart()?;
    ask(&nodes[0], 4)?;
    wait_for(&nodes[2], 10)?;
    let is_silent = || {
        let parts = report(&nodes[0]).ok()?.1["nodes"].clone();
        let live = parts.as_array()?.iter().map(|it| it["is_live"] == true);
        (live.collect::<Vec<_>>() == [true, false, true]).then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_silent)
        .context("never silent")?;

    let (status, said, _) = run(&nodes[0], &["fleet", "sites"])?;
    assert_eq!(status, Some(0), "{said}");
    for part in [
        "fleet edge\n",
        "  n1 ",
        ", silent\n",
        "  shop.example\n",
        "\n         10 ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }

    counters_of_who_leaves_stay(&mut nodes, 10)?;

    nats.kill()?;
    let is_told = || report(&nodes[2]).ok().filter(|(status, _)| *status == 503);
    let told = Deadline::after(WAIT).poll(is_told).context("never 503")?;
    assert!(told.1["error"].as_str().is_some_and(|it| !it.is_empty()));
    let answer = nodes[2].client.get("/api/millpond/1/fleets/other/sites")?;
    assert_eq!(answer.status, 404);
    Ok(())
}

/// The second node is silent, and leaves; a sum is that of all.
fn counters_of_who_leaves_stay(nodes: &mut [Node], sum: u64) -> Result<()> {
    let target = "/api/millpond/1/fleets/edge/nodes/n1";
    let leaving = Request::new("DELETE", target).header("Millpond-Api", "1");
    let answer = nodes[2].client.send(&leaving)?;
    assert_eq!(
        (answer.status, answer.text().trim()),
        (200, r#"{"fleet":"edge","node":"n1"}"#)
    );
    let left = report(&nodes[2])?.1;
    let parts = left["nodes"].as_array().context("nodes")?.iter();
    let names: Vec<_> = parts.map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["n0", "n2"]);
    assert_eq!(shop(&left).context("a site")?["requests"], sum);
    // And is not counted twice when it comes back all the same.
    nodes[1].proxy.restart()?;
    ask(&nodes[1], 1)?;
    wait_for(&nodes[2], sum + 1)?;
    Ok(())
}

/// Without a file there is nothing that a restart would not lose.
#[test]
fn node_without_a_file_of_counters_tells_none_and_is_named() -> Result<()> {
    let nats = nats!();
    let origin = Origin::start()?;
    origin.route("/page", page("page"));
    let conf = format!("{NODE}{SHOP}").replace("%%DIR%%/own.sites", "off");
    let with = counting("with", nats.port, &origin)?;
    let without = Node::start(node_of(&conf, ("without", nats.port), &origin))?;
    ask(&without, 2)?;
    ask(&with, 1)?;
    wait_for(&without, 1)?;
    let parts = |report: Value| {
        let parts = report["nodes"].as_array().cloned().unwrap_or_default();
        parts
            .iter()
            .map(|it| (it["name"].clone(), it["age_ms"].is_null()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        parts(report(&with)?.1),
        [("with".into(), false), ("without".into(), true)]
    );
    assert_eq!(run(&with, &["fleet", "sites"])?.0, Some(1));
    Ok(())
}
