//! `health`, `shutdown_delay`: what balancers and orchestrators are told.

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);

const HTTP: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=pond:1m max_size=16m;
    server {
        listen 127.0.0.1:%%PORT%%;
        location = /ready { health; }
        location = /live { health live; }
        location = /here { return 200 here; }
        location /api/ { api; }
    }";

fn conf(directives: &str) -> String {
    format!("%%GLOBALS%% {directives} events {{}}\nhttp {{ %%HTTP%% {HTTP} }}")
}

const WELL: &str = "{\"live\":true,\"ready\":true,\"reasons\":[]}\n";

/// Waits until the zone is loaded.
fn wait_until_ready(client: &Client) -> Result<()> {
    let is_ready = || (client.get("/ready").ok()?.status == 200).then_some(());
    Deadline::after(WAIT).poll(is_ready).context("never ready")
}

#[test]
fn process_that_serves_is_ready_by_every_way() -> Result<()> {
    let proxy = Proxy::new(Kind::Millpond, &conf("")).start()?;
    let client = Client::new(proxy.port());
    wait_until_ready(&client)?;
    for path in ["/ready", "/live", "/api/millpond/1/health"] {
        let answer = client.get(path)?;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, WELL),
            "{path}"
        );
        assert_eq!(answer.header("Content-Type"), Some("application/json"));
        assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    }
    let mut stream = UnixStream::connect(proxy.dir().join("server.control"))?;
    stream.write_all(b"GET /api/millpond/1/health HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    assert!(
        said.starts_with("HTTP/1.1 200") && said.ends_with(WELL),
        "{said}"
    );
    Ok(())
}

/// Readiness falls at once, and everything is still answered, on new connections, too.
#[test]
fn process_that_is_to_quit_says_so_and_goes_on_for_the_delay() -> Result<()> {
    let mut proxy = Proxy::new(Kind::Millpond, &conf("shutdown_delay 1h;")).start()?;
    let client = Client::new(proxy.port());
    wait_until_ready(&client)?;
    proxy.signal(Signal::QUIT)?;
    let not_ready = || Some(client.get("/ready").ok()?).filter(|answer| answer.status == 503);
    let answer = Deadline::after(WAIT)
        .poll(not_ready)
        .context("still ready")?;
    let told = "{\"live\":true,\"ready\":false,\"reasons\":[\"the process is ending\"]}\n";
    assert_eq!(answer.text(), told);
    assert_eq!(client.get("/live")?.status, 200);
    assert_eq!(client.get("/here")?.text(), "here");
    // The second one ends the wait.
    proxy.quit()
}

#[test]
fn delay_ends_by_itself() -> Result<()> {
    let proxy = Proxy::new(Kind::Millpond, &conf("shutdown_delay 300ms;")).start()?;
    let client = Client::new(proxy.port());
    wait_until_ready(&client)?;
    proxy.signal(Signal::QUIT)?;
    let refused = || client.get("/here").err();
    Deadline::after(WAIT).poll(refused).context("it goes on")?;
    Ok(())
}

#[test]
fn other_words_are_refused() -> Result<()> {
    let wrong = "server { listen 127.0.0.1:%%PORT%%; location / { health dead; } }";
    let failure = Proxy::new(Kind::Millpond, wrong).start().err();
    let said = failure.context("it starts")?.to_string();
    assert!(
        said.contains("\"health\" is \"live\" or \"ready\", not \"dead\""),
        "{said}"
    );
    let proxy = Proxy::new(Kind::Millpond, &conf("")).start()?;
    let post = millpond_testkit::Request::post("/ready", "x");
    assert_eq!(Client::new(proxy.port()).send(&post)?.status, 405);
    Ok(())
}

/// A zone that can keep nothing makes every request one for the origin.
#[test]
fn process_whose_zone_has_lost_all_disks_is_not_ready() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).offset_body(4000, 1));
    let conf = "
        proxy_cache_path %%DIR%%/m1/one keys_zone=z:1m max_size=6m memory=0 disk=%%DIR%%/m2/two;
        server {
            listen 127.0.0.1:%%PORT%%;
            location = /ready { health; }
            location / { proxy_pass http://%%ORIGIN%%; proxy_cache z; proxy_cache_valid 200 1h; }
        }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .origin(&origin)
        .file("m1/.keep", "")
        .file("m2/.keep", "")
        // A disk that fails is an error.
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    wait_until_ready(&client)?;
    for mount in ["m1", "m2"] {
        let path = proxy.dir().join(mount);
        std::fs::rename(&path, proxy.dir().join(format!("{mount}-gone")))?;
        std::fs::write(&path, "no folder")?;
    }
    let mut number = 0;
    let lost = || {
        number += 1;
        client.get(&format!("/{number}")).ok()?;
        Some(client.get("/ready").ok()?).filter(|answer| answer.status == 503)
    };
    let answer = Deadline::after(WAIT).poll(lost).context("still ready")?;
    let reason = "zone \\\"z\\\" has lost all of its disks";
    assert!(answer.text().contains(reason), "{}", answer.text());
    Ok(())
}
