//! `dashboard`: the page, its events, and what a browser makes of them.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Browser, Client, Deadline, Kind, LogCheck, Origin, Proxy, Request, read_until,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const CONF: &str = "
%%GLOBALS%%
worker_processes 2;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    proxy_cache_valid 200 1h;
    proxy_cache_key $host$uri;
    cache_site_info sites.toml;
    limit_req_zone all zone=few:1m rate=1000r/s;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            status_zone pages;
            proxy_pass http://%%ORIGIN%%; proxy_cache z; cache_site $host;
            limit_req zone=few burst=1000 nodelay;
        }
        location = /look { dashboard; }
        location = /purge { proxy_cache_purge z a.example/page; }
        location /closed { dashboard; deny all; }
    }
}
";

const WAIT: Duration = Duration::from_secs(30);

fn start(origin: &Origin) -> Result<Proxy> {
    origin.route("/*", Answer::new(200).body("some bytes of a page"));
    Proxy::new(Kind::Millpond, CONF)
        .origin(origin)
        .log_check(LogCheck::Off)
        .file("sites.toml", "[\"a.example\"]\nowner = \"ann\"\n")
        .start()
}

/// Asks for a page of a site as often as this.
fn ask(proxy: &Proxy, site: &str, times: usize) -> Result<()> {
    ask_for(proxy, (site, "/page"), times)
}

fn ask_for(proxy: &Proxy, (site, path): (&str, &str), times: usize) -> Result<()> {
    let mut connection = Client::new(proxy.port()).connect()?;
    for _ in 0..times {
        let response = connection.exchange(&Request::get(path).host(site))?;
        ensure!(response.status == 200, "{}", response.status);
    }
    Ok(())
}

/// Begins to read events; HTTP/1.0, so that nothing is around them.
fn look(proxy: &Proxy) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    stream.write_all(b"GET /look?events HTTP/1.0\r\nHost: d.example\r\n\r\n")?;
    Ok(stream)
}

/// The next event.
fn next_event(stream: &mut TcpStream) -> Result<Value> {
    loop {
        let came = read_until(stream, "\n\n")?;
        let line = came.lines().rev().find_map(|it| it.strip_prefix("data: "));
        if let Some(line) = line.filter(|_| !came.contains("event: history")) {
            return Ok(serde_json::from_str(line)?);
        }
    }
}

#[test]
fn the_page_is_one_and_may_ask_nobody_else() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    let page = client.get("/look")?;
    ensure!(page.status == 200, "{}", page.status);
    ensure!(page.header("Content-Type") == Some("text/html; charset=utf-8"));
    ensure!(page.header("Cache-Control") == Some("no-store"));
    let policy = page.header("Content-Security-Policy").context("a policy")?;
    for part in ["default-src 'none'", "connect-src 'self'", "'sha256-"] {
        ensure!(policy.contains(part), "{policy}");
    }
    let head = client.send(&Request::head("/look?events"))?;
    let content_type = head.header("Content-Type").unwrap_or_default();
    ensure!(content_type.starts_with("text/event-stream") && head.body.is_empty());
    ensure!(client.send(&Request::post("/look", "x"))?.status == 405);
    for path in ["/closed", "/closed?events"] {
        ensure!(client.get(path)?.status == 403, "{path}");
    }
    ensure!(origin.requests().is_empty());
    Ok(())
}

/// True if the process has a thread that makes events.
fn has_thread(pid: u32) -> Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = std::fs::read_to_string(thread?.path().join("comm"));
        // One that ends meanwhile is not it.
        if name.is_ok_and(|name| name.trim() == "dashboard") {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn events_tell_what_was_counted() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    let never = Answer::new(200).header("Cache-Control", "no-store");
    origin.route("/never", never.body("x"));
    ask_for(&proxy, ("n.example", "/never"), 3)?;
    ask(&proxy, "a.example", 5)?;
    let mut stream = look(&proxy)?;
    // An answer is counted after its last byte.
    let is_whole = |event: &Value| {
        event["answers"][0][0] == 4
            && event["answers"][1][0] == 4
            && event["origin"]["requests"] == 4
            && event["upstreams"][0]["peers"][0]["requests"] == 4
            && event["sites"][0][8] == 1
            && event["status_zones"][0]["requests"] == 8
            && event["zones"][0]["records"] == 1
    };
    let deadline = Deadline::after(WAIT);
    let event = deadline.poll(|| next_event(&mut stream).ok().filter(is_whole));
    let event = event.context("an event with four hits")?;
    ensure!(event["statuses"][0] == "HIT", "{event}");
    let site = &event["sites"][0];
    ensure!(
        *site
            == json!([
                "a.example",
                5,
                100,
                5,
                4,
                80,
                1,
                site[7],
                1,
                site[9],
                ["ann"]
            ]),
        "{site}"
    );
    ensure!(event["zones"][0]["disks"][0]["state"] == "live", "{event}");
    ensure!(
        event["missing"]["urls"] == json!([["n.example/never", 3]]),
        "{event}"
    );
    let peers = event["upstreams"][0]["peers"].as_array().context("peers")?;
    ensure!(peers.len() == 1 && peers[0]["requests"] == 4, "{event}");
    ensure!(event["fills"] == json!([]) && event["purges"] == json!([]));
    ensure!(event["descriptions"] == json!(["owner"]), "{event}");
    let zone = &event["status_zones"][0];
    ensure!(
        zone["name"] == "pages" && zone["kind"] == "location",
        "{zone}"
    );
    ensure!(
        event["limits"] == json!([{"name": "few", "kind": "limit_req", "counts": [8, 0, 0, 0, 0]}]),
        "{event}"
    );
    ensure!(zone["classes"] == json!([0, 8, 0, 0, 0]) && zone["processing"].is_null());
    let purged = Client::new(proxy.port()).get("/purge")?;
    ensure!(purged.status == 200, "{}", purged.status);
    let is_there = |event: &Value| event["purges"][0]["what"] == "a.example/page";
    let later = deadline.poll(|| next_event(&mut stream).ok().filter(is_there));
    ensure!(later.context("a purge")?["purges"][0]["mode"] == "hard");
    let numbers = |name: &str| event["times"][name].as_array().cloned().unwrap_or_default();
    let sum = |name: &str| -> u64 { numbers(name).iter().filter_map(Value::as_u64).sum() };
    ensure!(numbers("bounds_us").len() + 1 == numbers("origin").len());
    ensure!(sum("cached") == 4 && sum("origin") == 4, "{event}");
    ends_with_its_viewer(&proxy, stream)
}

/// A viewer costs a thread, and without one there is none.
fn ends_with_its_viewer(proxy: &Proxy, stream: TcpStream) -> Result<()> {
    let pid = proxy.pid().context("a process")?;
    ensure!(has_thread(pid)?);
    drop(stream);
    let is_gone = || (!has_thread(pid).ok()?).then_some(());
    Deadline::after(WAIT).poll(is_gone).context("no thread")?;
    Ok(())
}

#[test]
fn a_page_that_is_opened_is_told_of_the_last_minutes() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    let mut stream = look(&proxy)?;
    let mut came = String::new();
    while !came.contains("\ndata: ") {
        came = read_until(&mut stream, "\n\n")?;
    }
    ensure!(came.contains("event: history\n"), "{came}");
    let line = came.lines().find_map(|it| it.strip_prefix("data: "));
    let told: Value = serde_json::from_str(line.context("a line")?)?;
    let notes = told["totals"].as_array().context("notes")?;
    ensure!(!notes.is_empty() && told["statuses"][0] == "HIT", "{told}");
    let names = |value: &Value| -> Vec<String> {
        value
            .as_object()
            .into_iter()
            .flat_map(|it| it.keys().cloned())
            .collect()
    };
    // What charts are drawn of is the same in notes and in events.
    let event = next_event(&mut stream)?;
    for name in names(&notes[0]) {
        ensure!(
            names(&notes[0][&name]) == names(&event[&name]),
            "{name}: {event}"
        );
        ensure!(event.get(&name).is_some(), "{name}: {event}");
    }
    ensure!(event["started"] == told["started"] && event["pid"] == told["pid"]);
    Ok(())
}

#[test]
fn viewers_are_few_and_a_reload_sends_them_to_the_new_configuration() -> Result<()> {
    let origin = Origin::start()?;
    let mut proxy = start(&origin)?;
    let mut viewers = Vec::new();
    for number in 0..64 {
        let mut viewer = look(&proxy)?;
        let head = read_until(&mut viewer, "\n\n")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{number}: {head}");
        viewers.push(viewer);
    }
    let client = Client::new(proxy.port());
    let refused = client.get("/look?events")?;
    ensure!(refused.status == 503, "{}", refused.status);
    ensure!(refused.header("Retry-After").is_some());
    // One goes: at its next event that is seen.
    viewers.pop();
    let taken = Deadline::after(WAIT).poll(|| {
        let mut viewer = look(&proxy).ok()?;
        let head = read_until(&mut viewer, "\n\n").ok()?;
        head.starts_with("HTTP/1.1 200").then_some(viewer)
    });
    viewers.push(taken.context("a place that is given back")?);
    proxy.reload()?;
    for viewer in &mut viewers {
        viewer.set_read_timeout(Some(WAIT))?;
        // The end, and no error.
        viewer.read_to_end(&mut Vec::new())?;
    }
    let mut viewer = look(&proxy)?;
    next_event(&mut viewer)?;
    // Nor does an end wait for those who look.
    proxy.quit()?;
    viewer.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The names of the sites that are shown.
const SITES: &str = "[...document.querySelectorAll('#sites tbody tr')]\
                     .map(row => row.cells[0].textContent + ' ' + row.cells[8].textContent)\
                     .filter(row => row.includes('.example')).join()";
const STATE: &str = "document.getElementById('state').dataset.state";

fn focus_heading(browser: &mut Browser, title: &str) -> Result<()> {
    let heading = format!(
        "[...document.querySelectorAll('#sites th button')]\
         .find(it => it.textContent === '{title}').focus()"
    );
    browser.eval(&heading)?;
    Ok(())
}

/// Whoever is silent reads nothing and says nothing, as a client whose machine was turned off.
#[test]
fn silent_viewers_give_their_places_back() -> Result<()> {
    let conf = CONF.replace("look { dashboard;", "look { dashboard view=2s;");
    ensure!(conf != CONF);
    let proxy = Proxy::new(Kind::Millpond, &conf)
        .origin(&Origin::start()?)
        .log_check(LogCheck::Off)
        .file("sites.toml", "")
        .start()?;
    let client = Client::new(proxy.port());
    let mut silent = Vec::new();
    // On a machine that is busy the first may have gone before the last has come.
    let seen = Deadline::after(WAIT).poll(|| {
        silent.extend((0..64).filter_map(|_| look(&proxy).ok()));
        (client.get("/look?events").ok()?.status == 503).then_some(())
    });
    seen.context("all places are taken")?;
    let taken = Deadline::after(WAIT).poll(|| {
        let mut viewer = look(&proxy).ok()?;
        let head = read_until(&mut viewer, "\n\n").ok()?;
        head.starts_with("HTTP/1.1 200").then_some(())
    });
    taken.context("a place that is given back")?;
    drop(silent);
    Ok(())
}

#[test]
fn a_browser_shows_sorts_filters_and_outlives_a_restart() -> Result<()> {
    let Some(mut browser) = Browser::start(1280, 900)? else {
        millpond_testkit::skip("there is no Chromium");
        return Ok(());
    };
    let origin = Origin::start()?;
    let mut proxy = start(&origin)?;
    ask(&proxy, "a.example", 3)?;
    ask(&proxy, "b.example", 2)?;
    let own = format!("http://127.0.0.1:{}/look", proxy.port());
    browser.open(&own)?;
    browser.wait_for(STATE, &json!("live"))?;
    browser.wait_for(SITES, &json!("a.example 3,b.example 2"))?;
    browser.wait_for(
        "document.querySelectorAll('.tile').length > 5",
        &json!(true),
    )?;

    // It goes on by itself.
    ask(&proxy, "b.example", 5)?;
    focus_heading(&mut browser, "All requests")?;
    browser.press("Enter")?;
    browser.wait_for(SITES, &json!("b.example 7,a.example 3"))?;
    let sorted = "document.querySelector('#sites th[aria-sort]').getAttribute('aria-sort')";
    browser.wait_for(sorted, &json!("descending"))?;
    browser.press("Enter")?;
    browser.wait_for(SITES, &json!("a.example 3,b.example 7"))?;
    browser.wait_for(sorted, &json!("ascending"))?;
    browser.press("/")?;
    browser.type_text("B.EX")?;
    browser.wait_for(SITES, &json!("b.example 7"))?;
    let wide = "document.documentElement.scrollWidth <= innerWidth";
    browser.wait_for(wide, &json!(true))?;
    let phone = json!({ "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true });
    browser.call("Emulation.setDeviceMetricsOverride", phone)?;
    browser.wait_for(wide, &json!(true))?;
    let problems = browser.take_problems();
    ensure!(problems.is_empty(), "{problems:?}");

    // What is lost is said, and found again. Counters of sites go on, so the table does.
    proxy.quit()?;
    browser.wait_for(STATE, &json!("lost"))?;
    proxy.restart()?;
    browser.wait_for(STATE, &json!("live"))?;
    ask(&proxy, "b.example", 1)?;
    browser.wait_for(SITES, &json!("b.example 8"))?;
    let marked = "document.querySelectorAll('.plot .mark').length > 0";
    browser.wait_for(marked, &json!(true))?;
    let problems = browser.take_problems();
    let unexpected = problems.iter().find(|it| !it.contains("\"network\""));
    ensure!(unexpected.is_none(), "{unexpected:?}");

    let requests = browser.take_requests();
    let others: Vec<&String> = requests
        .iter()
        .filter(|url| !url.starts_with(&own) && !url.starts_with("data:"))
        .collect();
    ensure!(others.is_empty(), "{others:?}");
    ensure!(requests.contains(&format!("{own}?events")), "{requests:?}");
    Ok(())
}
