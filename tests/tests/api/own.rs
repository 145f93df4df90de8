//! Our own part of the API: lists, fills, purges, disks.

use super::bench::Bench;
use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Gate, Request};
use serde_json::Value;

fn lines(text: &str) -> Result<Vec<Value>> {
    let lines = text.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}

#[test]
fn entries_are_listed_and_shown() -> Result<()> {
    let bench = Bench::start()?;
    for number in 0..300 {
        ensure!(bench.get("shop", &format!("/pages/{number}"))?.status == 200);
    }
    let response = bench.ask("GET", "/api/millpond/1/zones/pond/entries?detail=1")?;
    ensure!(response.is_chunked() && response.is_complete());
    let all = lines(&response.text())?;
    let end = all.last().context("an end")?;
    ensure!(
        end["end"]["listed"] == 300 && end["end"]["is_complete"] == true,
        "{end}"
    );
    let some = bench.ask(
        "GET",
        "/api/millpond/1/zones/pond/entries?prefix=/pages/29&limit=3",
    )?;
    ensure!(lines(&some.text())?.len() == 4, "{}", some.text());
    let one = bench.told("/millpond/1/zones/pond/entry?key=/pages/7")?;
    ensure!(one["entries"][0]["site"] == "shop", "{one}");
    let disks = bench.told("/millpond/1/disks")?;
    ensure!(disks["disks"][0]["zone"] == "pond" && disks["disks"][0]["state"] == "live");
    for path in [
        "zones/lake",
        "zones/pond/entry?key=/none",
        "zones/pond/x",
        "x",
    ] {
        let response = bench.ask("GET", &format!("/api/millpond/1/{path}"))?;
        ensure!(response.status == 404, "{path}: {}", response.status);
    }
    for query in ["limit=x", "nothing=1", "limit=1&limit=2"] {
        let path = format!("/api/millpond/1/zones/pond/entries?{query}");
        ensure!(bench.ask("GET", &path)?.status == 400, "{query}");
    }
    Ok(())
}

#[test]
fn a_list_that_nobody_reads_ends() -> Result<()> {
    let bench = Bench::start()?;
    for number in 0..50 {
        ensure!(bench.get("shop", &format!("/pages/{number}"))?.status == 200);
    }
    for _ in 0..100 {
        let mut connection = bench.client.connect()?;
        let path = "/api/millpond/1/zones/pond/entries?detail=1";
        connection.send_raw(&Request::get(path).host("shop").encode())?;
    }
    // None of them keeps a place for good.
    bench.settles("/millpond/1/disks", |_| true)?;
    Ok(())
}

#[test]
fn what_is_being_filled_is_told_while_it_is() -> Result<()> {
    let bench = Bench::start()?;
    let gate = Gate::new();
    let slow = Answer::new(200)
        .offset_body(100_000, 1)
        .hold_body_at(40_000, &gate);
    bench.origin.route("/pages/slow", slow);
    let mut connection = bench.client.connect()?;
    connection.send_raw(&Request::get("/pages/slow").host("shop").encode())?;
    let fills = bench.settles("/millpond/1/fills", |it| {
        it["fills"][0]["received"].as_u64() >= Some(40_000)
    })?;
    let fill = &fills["fills"][0];
    ensure!(
        fill["key"] == "/pages/slow" && fill["zone"] == "pond",
        "{fills}"
    );
    ensure!(
        fill["length"] == 100_000 && fill["site"] == "shop",
        "{fills}"
    );
    let farm = bench.told("/9/http/upstreams/farm")?;
    ensure!(farm["peers"][0]["active"] == 1, "{farm}");
    gate.open();
    ensure!(connection.read_response("GET")?.body.len() == 100_000);
    bench.settles("/millpond/1/fills", |it| {
        it["fills"] == serde_json::json!([])
    })?;
    Ok(())
}
