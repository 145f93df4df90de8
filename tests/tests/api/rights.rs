//! Rights: the clients, what they may do, and with which methods.

use super::bench::Bench;
use anyhow::{Result, ensure};
use millpond_testkit::{Client, Kind, Proxy, Request};
use serde_json::Value;

#[test]
fn nothing_is_changed_where_writing_is_off() -> Result<()> {
    let bench = Bench::start()?;
    ensure!(bench.get("shop", "/pages/one")?.status == 200);
    let purge = "millpond/1/zones/pond/purge?type=all";
    for (method, path, status) in [
        ("POST", format!("/read/{purge}"), 405),
        ("GET", format!("/api/{purge}"), 405),
        ("POST", format!("/closed/{purge}"), 403),
        ("DELETE", "/read/9/http/requests".to_string(), 405),
        ("DELETE", format!("/api/{purge}"), 405),
        (
            "PATCH",
            "/read/9/http/upstreams/farm/servers/0".to_string(),
            405,
        ),
        ("TRACE", "/api/9/".to_string(), 405),
    ] {
        let response = bench.ask(method, &path)?;
        ensure!(
            response.status == status,
            "{method} {path}: {}",
            response.status
        );
        if status == 405 && method != "TRACE" {
            let said: Value = serde_json::from_str(&response.text())?;
            ensure!(
                said["error"].is_string() || said["error"]["status"] == 405,
                "{said}"
            );
        }
    }
    ensure!(bench.told("/millpond/1/purges")?["purges"] == serde_json::json!([]));
    ensure!(bench.ask("POST", &format!("/api/{purge}"))?.status == 200);
    ensure!(bench.told("/millpond/1/purges")?["purges"][0]["kind"] == "all");
    Ok(())
}

/// Nothing is changed by what the page of another site can have a browser send, also over plain
/// HTTP.
#[test]
fn page_of_another_site_changes_nothing() -> Result<()> {
    let bench = Bench::start()?;
    ensure!(bench.get("shop", "/pages/one")?.status == 200);
    let targets = [
        ("POST", "/api/millpond/1/zones/pond/purge?type=all"),
        ("POST", "/api/9/http/upstreams/farm/servers"),
        ("PATCH", "/api/9/http/upstreams/farm/servers/0"),
        ("DELETE", "/api/9/http/upstreams/farm/servers/0"),
        ("DELETE", "/api/9/http/caches/pond"),
    ];
    let port = bench.proxy.port();
    let body = format!("{{\"server\": \"127.0.0.1:{port}\"}}");
    let json = ("Content-Type", "application/json");
    let foreign: [&[(&str, &str)]; 10] = [
        &[json, ("Origin", "http://evil.example")],
        &[json, ("Origin", "null")],
        &[json, ("Referer", "http://evil.example/page")],
        &[json, ("Sec-Fetch-Site", "cross-site")],
        &[json, ("Sec-Fetch-Site", "same-site")],
        &[
            json,
            ("Origin", "http://shop"),
            ("Origin", "http://evil.example"),
        ],
        &[
            json,
            ("Referer", "http://shop/"),
            ("Referer", "http://evil.example/"),
        ],
        &[json, json],
        &[],
        &[("Content-Type", "text/plain")],
    ];
    for (method, target) in targets {
        for fields in foreign {
            let request = Request::new(method, target).host("shop").body(&body);
            let add = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
            let response = bench.client.send(&fields.iter().fold(request, add))?;
            ensure!(
                response.status == 403,
                "{method} {target} {fields:?}: {}",
                response.status
            );
        }
        // The page's own name points to this machine (DNS rebinding).
        let rebound = Request::new(method, target)
            .host("evil.example")
            .body(&body);
        let rebound = rebound.header("Content-Type", "application/json");
        let status = bench
            .client
            .send(&rebound.header("Origin", "http://evil.example"))?
            .status;
        ensure!(status == 403, "{method} {target} of another host: {status}");
    }
    ensure!(bench.told("/millpond/1/purges")?["purges"] == serde_json::json!([]));
    let servers = bench.told("/9/http/upstreams/farm/servers")?;
    ensure!(
        servers.as_array().is_some_and(|all| all.len() == 2),
        "{servers}"
    );
    Ok(())
}

/// Programs need one field, and pages of the same origin that, too.
#[test]
fn programs_and_own_pages_change_what_they_may() -> Result<()> {
    let bench = Bench::start()?;
    let target = "/api/millpond/1/zones/pond/purge?type=all";
    let port = bench.proxy.port();
    let (name, address) = (format!("shop:{port}"), format!("127.0.0.1:{port}"));
    for (host, fields) in [
        ("shop", &[("Content-Type", "application/json")][..]),
        ("shop", &[("Millpond-Api", "1")]),
        (
            &name,
            &[("Millpond-Api", "1"), ("Origin", &format!("http://{name}"))],
        ),
        (
            &address,
            &[
                ("Millpond-Api", "1"),
                ("Origin", &format!("http://{address}")),
            ],
        ),
        (
            "localhost",
            &[("Millpond-Api", "1"), ("Referer", "http://localhost/x")],
        ),
    ] {
        let request = Request::post(target, "").host(host);
        let add = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
        let response = bench.client.send(&fields.iter().fold(request, add))?;
        // Under another name it is another server's, which has no API.
        ensure!(
            response.status == 200,
            "{host} {fields:?}: {}",
            response.text()
        );
    }
    Ok(())
}

/// `hosts=` names those under which the API is asked, also for what changes nothing.
#[test]
fn listed_hosts_are_the_only_names() -> Result<()> {
    let conf = "server { listen 127.0.0.1:%%PORT%%; server_name here; \
                location /api { api write=on hosts=stats.example,other.example; } \
                location /read { api; } }";
    let proxy = Proxy::new(Kind::Millpond, conf).start()?;
    let client = Client::new(proxy.port());
    for (host, path, expected) in [
        ("stats.example", "/api/9/", 200),
        ("OTHER.example:80", "/api/9/", 200),
        ("here", "/api/9/", 200),
        ("127.0.0.1", "/api/9/", 200),
        ("evil.example", "/api/9/", 403),
        ("evil.example", "/read/9/", 200),
    ] {
        let status = client.send(&Request::get(path).host(host))?.status;
        ensure!(status == expected, "{host}{path}: {status}");
    }
    Ok(())
}

#[test]
fn methods_that_tell_have_answers_of_their_own() -> Result<()> {
    let bench = Bench::start()?;
    for path in [
        "/api/9/connections",
        "/read/millpond/1/zones/pond/entries",
        "/read/openapi.json",
    ] {
        let head = bench.ask("HEAD", path)?;
        ensure!(
            head.status == 200 && head.body.is_empty(),
            "{path}: {}",
            head.status
        );
    }
    for (path, allow) in [("/api/9/", "POST"), ("/read/", "OPTIONS")] {
        let options = bench.ask("OPTIONS", path)?;
        ensure!(options.status == 204, "{path}: {}", options.status);
        ensure!(options.header("Allow").is_some_and(|it| it.contains(allow)));
    }
    let told = bench.ask("GET", "/read/9/connections")?;
    ensure!(told.header("Cache-Control") == Some("no-store"));
    ensure!(bench.ask("GET", "/apix")?.status == 404);
    Ok(())
}
