//! Variables about an answer from the cache: `$cache_age`, `$cache_ttl`, `$cache_fill_role`.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Gate, Kind, Manners, Origin, Proxy, Request, Resource,
};
use std::time::Duration;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    log_format line \"$uri $upstream_cache_status $cache_fill_role $cache_age $cache_ttl\";
    access_log %%DIR%%/a.log line;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_lock on;
        proxy_cache_valid 200 206 1h;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /sliced { proxy_pass http://%%ORIGIN%%; slice 64k; }
        location /bypass { proxy_pass http://%%ORIGIN%%; proxy_cache_bypass 1; }
        location /stale { proxy_pass http://%%ORIGIN%%; proxy_cache_use_stale http_503; }
        location /none { return 204; }
    }";

const WAIT: Duration = Duration::from_secs(20);

fn start() -> Result<(Origin, Proxy, Client)> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    Ok((origin, proxy, client))
}

/// The fields of the lines about a path, once there are so many.
fn lines(proxy: &Proxy, path: &str, count: usize) -> Result<Vec<Vec<String>>> {
    let found = || {
        let log = proxy.read_file("a.log");
        let lines = log.lines().filter(|line| line.starts_with(path));
        let lines: Vec<Vec<String>> = lines
            .map(|line| line.split(' ').skip(1).map(str::to_owned).collect())
            .collect();
        (lines.len() >= count).then_some(lines)
    };
    let found = Deadline::after(WAIT).poll(found);
    found.with_context(|| format!("{count} lines about {path}"))
}

#[test]
fn who_fills_leads_and_who_comes_later_has_no_part() -> Result<()> {
    let (origin, proxy, client) = start()?;
    let answer = Answer::new(200)
        .header("Cache-Control", "max-age=1000")
        .body("x");
    origin.route("/a", answer);
    client.get("/a")?;
    client.get("/a")?;
    let lines = lines(&proxy, "/a", 2)?;
    assert_eq!(lines[0], ["MISS", "leader", "0", "1000"]);
    assert_eq!(lines[1][..2], ["HIT", "none"]);
    let (age, ttl): (i64, i64) = (lines[1][2].parse()?, lines[1][3].parse()?);
    assert_eq!(age + ttl, 1000, "{lines:?}");
    Ok(())
}

#[test]
fn who_waits_is_a_waiter() -> Result<()> {
    let (origin, proxy, client) = start()?;
    let gate = Gate::new();
    let answer = Answer::new(200).header("Cache-Control", "max-age=1000");
    origin.route("/w", answer.offset_body(100_000, 1).hold_head(&gate));
    let mut first = client.connect()?;
    first.send_raw(&Request::get("/w").encode())?;
    origin.wait_for_requests(1)?;
    let mut second = client.connect()?;
    second.send_raw(&Request::get("/w").encode())?;
    client.get("/none")?;
    gate.open();
    first.read_response("GET")?;
    second.read_response("GET")?;
    let mut roles: Vec<String> = lines(&proxy, "/w", 2)?
        .into_iter()
        .map(|line| line[1].clone())
        .collect();
    roles.sort_unstable();
    assert_eq!(roles[0], "leader");
    // The second may have been read after the answer was whole.
    assert!(["none", "waiter"].contains(&roles[1].as_str()), "{roles:?}");
    Ok(())
}

#[test]
fn slices_have_a_leader_too() -> Result<()> {
    let (origin, proxy, client) = start()?;
    origin.resource("/sliced", &Resource::new(Manners::of(300_000)));
    for range in ["bytes=0-9", "bytes=0-9", "bytes=200000-200009"] {
        client.send(&Request::get("/sliced").header("Range", range))?;
    }
    let found = lines(&proxy, "/sliced", 3)?;
    let roles: Vec<&str> = found.iter().map(|line| line[1].as_str()).collect();
    // The second may be read while the first is stored.
    assert!(["none", "waiter"].contains(&roles[1]), "{found:?}");
    assert_eq!((roles[0], roles[2]), ("leader", "leader"), "{found:?}");
    Ok(())
}

#[test]
fn stale_answers_have_a_negative_ttl_and_others_none() -> Result<()> {
    let (origin, proxy, client) = start()?;
    let answer = |status: u16| {
        Answer::new(status)
            .header("Cache-Control", "max-age=1")
            .body("x")
    };
    origin.route("/stale", answer(200));
    client.get("/stale")?;
    origin.route("/stale", Answer::new(503));
    let is_stale = || {
        client.get("/stale").ok()?;
        let found = lines(&proxy, "/stale", 1).ok()?;
        found.into_iter().find(|line| line[0] == "STALE")
    };
    let line = Deadline::after(WAIT)
        .poll(is_stale)
        .context("a stale answer")?;
    assert!(line[3].parse::<i64>()? < 0, "{line:?}");
    origin.route(
        "/bypass",
        Answer::new(200)
            .header("Cache-Control", "no-store")
            .body("x"),
    );
    client.get("/bypass")?;
    assert_eq!(
        lines(&proxy, "/bypass", 1)?[0],
        ["BYPASS", "leader", "-", "-"]
    );
    assert_eq!(lines(&proxy, "/none", 0)?.len(), 0);
    client.get("/none")?;
    assert_eq!(lines(&proxy, "/none", 1)?[0], ["-", "-", "-", "-"]);
    Ok(())
}
