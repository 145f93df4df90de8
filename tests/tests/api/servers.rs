//! Servers of a group are changed, added and removed while requests go on.

use super::bench::Bench;
use anyhow::{Result, ensure};
use millpond_testkit::{Answer, Origin};
use serde_json::{Value, json};

const SERVERS: &str = "/api/9/http/upstreams/farm/servers";

impl Bench {
    fn tell(&self, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
        let request = super::bench::asking(method, path);
        let response = self.client.send(&request.body(body.to_string()))?;
        let text = response.text();
        let said = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text)?
        };
        Ok((response.status, said))
    }

    /// Origins that pages come from.
    fn origins(&self, round: &str, requests: usize) -> Result<Vec<String>> {
        let mut said = Vec::new();
        for number in 0..requests {
            let response = self.get("shop", &format!("/pages/{round}/{number}"))?;
            ensure!(response.status == 200, "{number}: {}", response.status);
            said.push(response.text());
        }
        said.sort();
        said.dedup();
        Ok(said)
    }
}

#[test]
fn a_server_is_added_drained_and_removed() -> Result<()> {
    let bench = Bench::start()?;
    let other = Origin::start()?;
    other.route("/*", Answer::new(200).body("another"));
    ensure!(bench.origins("a", 3)? == ["a page of ten"]);
    let wanted = json!({"server": other.address(), "weight": 3});
    let (status, added) = bench.tell("POST", SERVERS, &wanted)?;
    ensure!(
        status == 201 && added["id"] == 2 && added["weight"] == 3,
        "{added}"
    );
    ensure!(bench.origins("b", 6)? == ["a page of ten", "another"]);
    let (status, said) = bench.tell("PATCH", &format!("{SERVERS}/0"), &json!({"drain": true}))?;
    ensure!(
        status == 200 && said["drain"] == true && said["weight"] == 3,
        "{said}"
    );
    ensure!(bench.origins("c", 4)? == ["another"]);
    bench.settles("/9/http/upstreams/farm", |it| {
        let peer = &it["peers"][0];
        peer["state"] == "draining" && peer["requests"].as_u64() > Some(3)
    })?;
    let up = json!({"drain": false, "max_conns": 9});
    let (status, said) = bench.tell("PATCH", &format!("{SERVERS}/0"), &up)?;
    ensure!(
        status == 200 && said["drain"].is_null() && said["max_conns"] == 9,
        "{said}"
    );
    let (status, left) = bench.tell("DELETE", &format!("{SERVERS}/2"), &json!(null))?;
    let ids: Vec<&Value> = left
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| &it["id"])
        .collect();
    ensure!(status == 200 && ids == [0, 1], "{left}");
    ensure!(bench.origins("d", 4)? == ["a page of ten"]);
    // Its number is nobody else's.
    let (_, again) = bench.tell("POST", SERVERS, &wanted)?;
    ensure!(again["id"] == 3, "{again}");
    // The configuration says how it begins.
    bench.proxy.reload()?;
    bench.settles("/9/nginx", |it| it["generation"] == 2)?;
    let servers = bench.told("/9/http/upstreams/farm/servers")?;
    ensure!(servers.as_array().map(Vec::len) == Some(2), "{servers}");
    Ok(())
}

/// Cases that are refused: method, server, body, status and code.
fn refused() -> Vec<(&'static str, &'static str, Value, u16, &'static str)> {
    let (new, one) = ("", "/0");
    let anywhere = "127.0.0.1:1";
    vec![
        ("POST", new, json!([]), 415, "JsonError"),
        ("POST", new, json!({}), 400, "UpstreamConfFormatError"),
        (
            "POST",
            new,
            json!({"server": "a.example"}),
            400,
            "UpstreamBadAddress",
        ),
        (
            "POST",
            new,
            json!({"server": anywhere, "x": 1}),
            400,
            "UpstreamConfFormatError",
        ),
        (
            "POST",
            new,
            json!({"x": "y".repeat(70_000)}),
            413,
            "BodyTooLarge",
        ),
        (
            "PATCH",
            new,
            json!({"weight": 1}),
            405,
            "MethodNotSupported",
        ),
        ("PUT", new, json!({"weight": 1}), 405, "MethodNotSupported"),
        ("DELETE", new, json!(null), 405, "MethodNotSupported"),
        (
            "POST",
            one,
            json!({"server": anywhere}),
            405,
            "MethodNotSupported",
        ),
        ("PATCH", "/9", json!({}), 404, "UpstreamServerNotFound"),
        ("PATCH", "/x", json!({}), 400, "UpstreamBadServerId"),
        (
            "PATCH",
            one,
            json!({"max_conns": 1, "weight": 0}),
            400,
            "UpstreamBadWeight",
        ),
    ]
}

#[test]
fn what_cannot_be_changed_is_refused_with_its_code() -> Result<()> {
    let bench = Bench::start()?;
    let before = bench.told("/9/http/upstreams")?;
    let refuses = |method: &str, path: &str, body: &Value, expected: (u16, &str)| -> Result<()> {
        let (status, said) = bench.tell(method, path, body)?;
        let code = said["error"]["code"].as_str().unwrap_or_default();
        ensure!((status, code) == expected, "{method} {path} {body}: {said}");
        ensure!(
            said["request_id"].is_string() && said["href"].is_string(),
            "{said}"
        );
        Ok(())
    };
    for (method, server, body, status, code) in refused() {
        refuses(method, &format!("{SERVERS}{server}"), &body, (status, code))?;
    }
    let new = json!({"server": "127.0.0.1:1"});
    for (path, expected) in [
        (SERVERS.replace("/api/", "/read/"), (405, "MethodDisabled")),
        (SERVERS.replace("farm", "fixed"), (400, "UpstreamStatic")),
        (SERVERS.replace("farm", "lake"), (404, "UpstreamNotFound")),
    ] {
        refuses("POST", &path, &new, expected)?;
    }
    ensure!(
        bench.told("/9/http/upstreams")? == before,
        "something was changed"
    );
    Ok(())
}
