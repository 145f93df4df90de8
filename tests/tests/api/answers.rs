//! Every answer of the document, from a process in use.

use super::bench::{Bench, document};
use super::schema::check;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Values for the parameters of paths.
const NAMES: [(&str, &str); 7] = [
    ("{version}", "9"),
    ("{cache}", "pond"),
    ("{upstream}", "farm"),
    ("{server}", "1"),
    ("{worker}", "0"),
    ("{limit}", ""),
    ("{zone}", ""),
];

fn filled(path: &str) -> String {
    let zone = match path {
        _ if path.contains("server_zones") => "shop",
        _ if path.contains("location_zones") => "pages",
        _ if path.contains("limit_conns") => "few",
        _ if path.contains("limit_reqs") => "slow",
        _ => "pond",
    };
    NAMES.iter().fold(path.to_string(), |path, (name, value)| {
        let value = if value.is_empty() { zone } else { value };
        path.replace(name, value)
    })
}

/// The query without which nothing is answered.
fn query(path: &str, method: &str) -> &'static str {
    match (path.rsplit('/').next(), method) {
        (Some("why"), _) => "?url=http://shop:PORT/pages/one",
        (Some("entry"), _) => "?key=/pages/one",
        (Some("entries"), _) => "?detail=1&progress=1",
        (Some("purge"), _) => "?type=prefix&what=/pages/t",
        (Some("events"), _) => "?for=0",
        (Some("warm"), "delete") => "?id=1",
        _ => "",
    }
}

/// All operations: first those that change nothing, and last those that remove something.
fn in_order(document: &Value) -> Result<Vec<(&str, &str, &Value)>> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().context("paths")? {
        for (method, operation) in methods.as_object().context("methods")? {
            all.push((path.as_str(), method.as_str(), operation));
        }
    }
    let order = ["get", "post", "patch", "delete"];
    all.sort_by_key(|(_, method, _)| order.iter().position(|it| it == method));
    Ok(all)
}

/// The status of an answer when all is right, and what it is then.
fn right_answer(operation: &Value) -> Result<(u16, &Value)> {
    let responses = operation["responses"].as_object().context("responses")?;
    let mut right = responses
        .iter()
        .filter(|(status, _)| status.starts_with('2'));
    let (status, response) = right.next().context("a right answer")?;
    Ok((status.parse()?, response))
}

/// The names that are documented for a query.
fn names(operation: &Value) -> Vec<String> {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let names = parameters.filter(|it| it["in"] == "query");
    let mut names: Vec<String> = names
        .filter_map(|it| it["name"].as_str())
        .map(str::to_string)
        .collect();
    names.sort();
    names
}

#[test]
fn every_parameter_that_is_understood_is_in_the_document() -> Result<()> {
    let bench = Bench::start()?;
    let document = document()?;
    let mut asked = 0;
    for (path, method, operation) in in_order(&document)? {
        if !path.starts_with("/millpond/1") {
            continue;
        }
        let target = format!("/api{}?a_slip_of_the_pen=1", filled(path));
        let response = bench.ask(&method.to_uppercase(), &target)?;
        let text = response.text();
        ensure!(response.status == 400, "{target}: {text}");
        // The error tells what there is.
        let said: Value = serde_json::from_str(&text)?;
        let said = said["error"].as_str().context("an error")?;
        let (_, known) = said.split_once(": there are ").context(text.clone())?;
        let mut known: Vec<String> = known.split(", ").map(str::to_string).collect();
        known.retain(|name| name != "none");
        known.sort();
        ensure!(known == names(operation), "{target}: {known:?}");
        asked += 1;
    }
    ensure!(asked > 10, "{asked} paths");
    Ok(())
}

#[test]
fn every_answer_is_what_the_document_says() -> Result<()> {
    let bench = Bench::start()?;
    for path in ["/pages/one", "/pages/two", "/pages/one", "/pages/inside/x"] {
        ensure!(bench.get("shop", path)?.status == 200);
    }
    bench.settles("/9/http/caches/pond", |it| it["hit"]["responses"] == 1)?;
    let document = document()?;
    let served = bench.told("/openapi.json")?;
    ensure!(served == document, "another document is served");
    let mut answered = 0;
    for (path, method, operation) in in_order(&document)? {
        // A fleet needs a server of NATS: tests/tests/fleet asks it.
        if path.contains("{fleet}") {
            continue;
        }
        let port = bench.proxy.port().to_string();
        let query = query(path, method).replace("PORT", &port);
        let target = format!("/api{}{query}", filled(path));
        let request = super::bench::asking(&method.to_uppercase(), &target);
        let warmed = format!(r#"{{"urls": ["http://shop:{port}/pages/one"]}}"#);
        let request = match operation.get("requestBody") {
            Some(_) if path.ends_with("/warm") => request.body(warmed),
            Some(_) => request.body(r#"{"server": "127.0.0.1:1", "weight": 2, "down": true}"#),
            None => request,
        };
        let response = bench.client.send(&request)?;
        let text = response.text();
        let (status, expected) = right_answer(operation)?;
        ensure!(
            response.status == status,
            "{method} {target}: {} {text}",
            response.status
        );
        ensure!(response.is_complete(), "{target}: cut");
        answered += 1;
        let Some(content) = expected.get("content") else {
            ensure!(text.is_empty(), "{target}: {text}");
            continue;
        };
        let kind = response.header("Content-Type").context("a type")?;
        let schema = &content[kind]["schema"];
        ensure!(schema.is_object(), "{target}: {kind}");
        let values: Vec<&str> = match kind {
            "application/x-ndjson" => text.lines().collect(),
            "text/event-stream" => text
                .lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .collect(),
            _ => vec![&text],
        };
        for value in values {
            let value: Value = serde_json::from_str(value)?;
            if let Err(error) = check(&document, schema, &value) {
                anyhow::bail!("{target}: {error}");
            }
        }
    }
    ensure!(answered > 35, "{answered} answers");
    Ok(())
}

#[test]
fn fields_choose_members_and_names() -> Result<()> {
    let bench = Bench::start()?;
    for (path, expected) in [
        ("/", "[1,2,3,4,5,6,7,8,9]"),
        ("/9/http/caches/?fields=", "[\"pond\"]"),
        (
            "/9/http/caches?fields=cold,none",
            "{\"pond\":{\"cold\":false}}",
        ),
        ("/9/http/upstreams/farm?fields=zone", "{\"zone\":\"farm\"}"),
        ("/9/processes?fields=x", "{}"),
        ("/3/processes", "{\"respawned\":0}"),
        (
            "/9/http/upstreams/farm/servers?fields=weight",
            "[{\"weight\":3},{\"weight\":1}]",
        ),
    ] {
        let said = bench.told(path)?;
        let expected: Value = serde_json::from_str(expected)?;
        ensure!(said == expected, "{path}: {said}");
    }
    for (path, status, code) in [
        ("/10/", 404, "UnknownVersion"),
        ("/0/nginx", 404, "UnknownVersion"),
        ("/9/stream", 404, "PathNotFound"),
        ("/x", 404, "PathNotFound"),
        ("/9/http/caches/lake", 404, "CacheNotFound"),
        ("/9/http/upstreams/lake", 404, "UpstreamNotFound"),
        (
            "/9/http/upstreams/farm/servers/x",
            400,
            "UpstreamBadServerId",
        ),
        (
            "/9/http/upstreams/farm/servers/2",
            404,
            "UpstreamServerNotFound",
        ),
        ("/9/http/server_zones/pages", 404, "ServerZoneNotFound"),
    ] {
        let response = bench.ask("GET", &format!("/api{path}"))?;
        let said: Value = serde_json::from_str(&response.text())?;
        ensure!(response.status == status, "{path}: {said}");
        ensure!(said["error"]["code"] == code, "{path}: {said}");
        ensure!(said["error"]["status"] == status, "{path}: {said}");
    }
    Ok(())
}
