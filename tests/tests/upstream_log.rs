//! `upstream_log`: a line for each exchange, whoever caused it, with what was asked and got.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Gate, Kind, Manners, Origin, Protocol, Proxy, Request, Resource,
};
use std::time::Duration;

const CONF: &str = r#"
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    log_format line "$upstream_reason $upstream_method $upstream_uri $upstream_status "
                    "$upstream_range $upstream_clients $upstream_entry";
    log_format who "$upstream_addr|$upstream_host|$http_host|$upstream_http_content_type|"
                   "$upstream_start|$upstream_end|$upstream_bytes_sent|$upstream_bytes_received|"
                   "$upstream_response_length|$upstream_cache_status|$arg_who|$status";
    log_format json escape=json '{"uri":"$upstream_uri","type":"$upstream_http_content_type"}';
    map $upstream_status $is_error { ~^5 1; default 0; }
    upstream_log %%DIR%%/up.log line;
    upstream_log %%DIR%%/errors.log line if=$is_error;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_lock on;
        proxy_cache_valid 200 1h;
        proxy_pass http://%%ORIGIN%%;
        location /update { proxy_pass http://%%ORIGIN%%; proxy_cache_background_update on;
                           proxy_cache_use_stale updating; }
        location /revalidate { proxy_pass http://%%ORIGIN%%; proxy_cache_revalidate on; }
        location /sliced { proxy_pass http://%%ORIGIN%%; slice 64k; }
        location /off { proxy_pass http://%%ORIGIN%%; upstream_log off; }
        location /who { proxy_pass http://%%ORIGIN%%; proxy_set_header Host inner.example;
                        upstream_log %%DIR%%/who.log who; }
        location /default { proxy_pass http://%%ORIGIN%%; upstream_log %%DIR%%/default.log; }
        location /json { proxy_pass http://%%ORIGIN%%;
                         upstream_log %%DIR%%/json.log json buffer=4k flush=50ms; }
        location / { proxy_pass http://%%ORIGIN%%; }
    }"#;

const WAIT: Duration = Duration::from_secs(20);

struct Setup {
    origin: Origin,
    proxy: Proxy,
    client: Client,
}

impl Setup {
    fn new(protocol: Protocol) -> Result<Self> {
        let origin = Origin::start()?;
        let conf = CONF.replace("        proxy_pass http://%%ORIGIN%%;\n", "");
        let proxy = Proxy::new(Kind::Millpond, &conf)
            .over(protocol)
            .origin(&origin)
            .start()?;
        let client = protocol.client(proxy.port());
        Ok(Setup {
            origin,
            proxy,
            client,
        })
    }

    /// The lines about a path, once there are so many.
    fn lines(&self, path: &str, count: usize) -> Result<Vec<String>> {
        let found = || {
            let log = self.proxy.read_file("up.log");
            let lines = log.lines().filter(|line| line.contains(path));
            let lines: Vec<String> = lines.map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        };
        Deadline::after(WAIT).poll(found).with_context(|| {
            format!(
                "{count} lines about {path}: {}",
                self.proxy.read_file("up.log")
            )
        })
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn is_key(word: &str) -> bool {
    word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Asks until a line with this reason is there; answers are fresh for a second.
fn ask_until(setup: &Setup, path: &str, reason: &str) -> Result<String> {
    let found = || {
        setup.client.get(path).ok()?;
        let lines = setup.lines(path, 1).ok()?;
        lines.into_iter().find(|line| words(line)[0] == reason)
    };
    let found = Deadline::after(WAIT).poll(found);
    found.with_context(|| format!("{reason}: {}", setup.proxy.read_file("up.log")))
}

fn stored_answers_name_their_entry_and_hits_have_no_line(protocol: Protocol) -> Result<()> {
    let setup = Setup::new(protocol)?;
    setup.origin.route("/a", Answer::new(200).body("hello"));
    for _ in 0..3 {
        assert_eq!(setup.client.get("/a?x=1")?.status, 200);
    }
    let lines = setup.lines("/a", 1)?;
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = words(&lines[0]);
    assert_eq!(line[..6], ["miss", "GET", "/a?x=1", "200", "-", "1"]);
    assert!(is_key(line[6]), "{line:?}");
    Ok(())
}

fn answers_that_are_not_stored_are_passed(protocol: Protocol) -> Result<()> {
    let setup = Setup::new(protocol)?;
    setup.origin.route("/post", Answer::new(201).body("made"));
    setup.client.send(&Request::post("/post", "x"))?;
    assert_eq!(setup.lines("/post", 1)?, ["pass POST /post 201 - 1 -"]);
    let answer = Answer::new(200)
        .header("Cache-Control", "no-store")
        .body("x");
    setup.origin.route("/private", answer);
    setup.client.get("/private")?;
    assert_eq!(setup.lines("/private", 1)?, ["miss GET /private 200 - 1 -"]);
    Ok(())
}

fn waiters_are_counted(protocol: Protocol) -> Result<()> {
    let setup = Setup::new(protocol)?;
    let gate = Gate::new();
    setup.origin.route(
        "/many",
        Answer::new(200).offset_body(300_000, 1).hold_head(&gate),
    );
    let mut connections = Vec::new();
    for _ in 0..7 {
        let mut connection = setup.client.connect()?;
        connection.ask(&Request::get("/many"))?;
        connections.push(connection);
    }
    setup.origin.wait_for_requests(1)?;
    // All have been read once another request on a connection of its own is answered after them.
    let readings = || {
        let status = setup.proxy.read_file("up.log");
        setup.client.get("/other").is_ok().then_some(status)
    };
    Deadline::after(WAIT)
        .poll(readings)
        .context("another request")?;
    gate.open();
    for connection in &mut connections {
        assert_eq!(connection.read_response("GET")?.body.len(), 300_000);
    }
    let lines = setup.lines("/many", 1)?;
    assert_eq!(
        words(&lines[0])[..6],
        ["miss", "GET", "/many", "200", "-", "7"]
    );
    Ok(())
}

fn stale_entries_are_fetched_revalidated_or_updated_behind(protocol: Protocol) -> Result<()> {
    let setup = Setup::new(protocol)?;
    let answer = || {
        Answer::new(200)
            .header("Cache-Control", "max-age=1")
            .body("x")
    };
    setup.origin.route("/expire", answer());
    setup.origin.route("/update", answer());
    setup
        .origin
        .route("/revalidate", answer().etag("\"1\"").revalidates());
    let line = ask_until(&setup, "/expire", "expired")?;
    assert_eq!(words(&line)[3..6], ["200", "-", "1"]);
    let line = ask_until(&setup, "/update", "background")?;
    assert_eq!(words(&line)[3..6], ["200", "-", "0"]);
    let line = ask_until(&setup, "/revalidate", "revalidate")?;
    assert_eq!(words(&line)[3..6], ["304", "-", "1"]);
    assert!(is_key(words(&line)[6]), "{line}");
    Ok(())
}

fn slices_have_a_line_each_with_the_range_that_was_asked(protocol: Protocol) -> Result<()> {
    let setup = Setup::new(protocol)?;
    let resource = Resource::new(Manners::of(300_000));
    setup.origin.resource("/sliced", &resource);
    let request = Request::get("/sliced").header("Range", "bytes=70000-70009");
    assert_eq!(setup.client.send(&request)?.status, 206);
    let lines = setup.lines("/sliced", 1)?;
    let line = words(&lines[0]);
    assert_eq!(
        (line[0], line[3], line[5]),
        ("slice", "206", "1"),
        "{lines:?}"
    );
    assert!(line[4].starts_with("bytes=65536-"), "{lines:?}");
    assert!(is_key(line[6]), "{lines:?}");
    Ok(())
}

fn conditions_see_the_exchange_and_off_is_silent(protocol: Protocol) -> Result<()> {
    let setup = Setup::new(protocol)?;
    setup.origin.route("/off", Answer::new(200).body("x"));
    setup.origin.route("/bad", Answer::new(503).body("x"));
    setup.client.get("/off")?;
    assert_eq!(setup.client.get("/bad")?.status, 503);
    setup.client.get("/good")?;
    setup.lines("/good", 1)?;
    let errors = setup.proxy.wait_for_lines("errors.log", 1)?;
    assert_eq!(errors, ["miss GET /bad 503 - 1 -"]);
    assert!(!setup.proxy.read_file("up.log").contains("/off"));
    Ok(())
}

fn the_line_says_who_was_asked_what_and_when(protocol: Protocol) -> Result<()> {
    let setup = Setup::new(protocol)?;
    let answer = Answer::new(200)
        .header("Content-Type", "text/x")
        .body("12345");
    setup.origin.route("/who", answer);
    setup
        .client
        .send(&Request::get("/who?who=me").host("outer.example"))?;
    let lines = setup.proxy.wait_for_lines("who.log", 1)?;
    let fields: Vec<&str> = lines[0].split('|').collect();
    let address = setup.origin.address();
    assert_eq!(
        fields[..4],
        [&address, "inner.example", "outer.example", "text/x"]
    );
    let time = |text: &str| text.parse::<f64>();
    let (start, end) = (time(fields[4])?, time(fields[5])?);
    assert!(
        start > 1.7e9 && end >= start && end - start < 20.0,
        "{start} {end}"
    );
    let (sent, received): (u64, u64) = (fields[6].parse()?, fields[7].parse()?);
    assert!(sent > 40 && received > 40, "{sent} {received}");
    assert_eq!(fields[8..11], ["5", "MISS", "me"]);
    // The client's answer has no status yet when its exchange begins.
    assert_eq!(fields[11], "000");
    Ok(())
}

fn formats_are_those_of_access_logs(protocol: Protocol) -> Result<()> {
    let setup = Setup::new(protocol)?;
    let answer = Answer::new(200).header("Content-Type", "a\"b").body("x");
    setup.origin.route("/json", answer);
    setup.client.get("/json")?;
    let lines = setup.proxy.wait_for_lines("json.log", 1)?;
    assert_eq!(lines, [r#"{"uri":"/json","type":"a\"b"}"#]);
    setup.origin.route("/default", Answer::new(200).body("x"));
    setup.client.get("/default")?;
    let lines = setup.proxy.wait_for_lines("default.log", 1)?;
    let start = format!("{} - [", setup.origin.address());
    assert!(lines[0].starts_with(&start), "{lines:?}");
    assert!(lines[0].contains("] \"GET /default\" 200 "), "{lines:?}");
    Ok(())
}

fn a_peer_that_fails_has_a_line_of_its_own(protocol: Protocol) -> Result<()> {
    let origin = Origin::start()?;
    let conf = r#"
        log_format line "$upstream_addr $upstream_status";
        upstream group { server 127.0.0.1:1; server %%ORIGIN%%; }
        server { listen 127.0.0.1:%%PORT%%; upstream_log %%DIR%%/up.log line;
                 location / { proxy_pass http://group; } }"#;
    let proxy = Proxy::new(Kind::Millpond, conf)
        .over(protocol)
        .origin(&origin)
        .log_check(millpond_testkit::LogCheck::Off)
        .start()?;
    origin.route("/", Answer::new(200).body("x"));
    let client = protocol.client(proxy.port());
    let both = || {
        client.get("/").ok()?;
        let log = proxy.read_file("up.log");
        log.contains("127.0.0.1:1 502\n").then_some(log)
    };
    let log = Deadline::after(WAIT)
        .poll(both)
        .context("a failure in the log")?;
    let good = format!("{} 200\n", origin.address());
    Deadline::after(WAIT)
        .poll(|| proxy.read_file("up.log").contains(&good).then_some(()))
        .with_context(|| log)
}

millpond_testkit::each_protocol!([Http1, Http2, Streams]
    stored_answers_name_their_entry_and_hits_have_no_line,
    answers_that_are_not_stored_are_passed,
    waiters_are_counted,
    stale_entries_are_fetched_revalidated_or_updated_behind,
    slices_have_a_line_each_with_the_range_that_was_asked,
    conditions_see_the_exchange_and_off_is_silent,
    the_line_says_who_was_asked_what_and_when,
    formats_are_those_of_access_logs,
    a_peer_that_fails_has_a_line_of_its_own,
);
