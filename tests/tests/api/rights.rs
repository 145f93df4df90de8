//! Who may do what, and with which methods.

use super::bench::Bench;
use anyhow::{Result, ensure};
use millpond_testkit::Request;
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
    let other = Request::post(&format!("/api/{purge}"), "").host("shop");
    let other = other.header("Sec-Fetch-Site", "cross-site");
    ensure!(bench.client.send(&other)?.status == 403);
    ensure!(bench.told("/millpond/1/purges")?["purges"] == serde_json::json!([]));
    ensure!(bench.ask("POST", &format!("/api/{purge}"))?.status == 200);
    ensure!(bench.told("/millpond/1/purges")?["purges"][0]["kind"] == "all");
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
