//! `js_cache_key`, `js_cache_verdict`, `r.cache`: what scripts decide of the cache, and ask of it.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, Request, binary};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
    js_import one.js;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Cache $upstream_cache_status;
        add_header X-Why $cache_status_reason;
        proxy_cache z;
        location /judged/ {
            proxy_pass http://%%ORIGIN%%;
            js_cache_verdict one.judge;
            proxy_cache_revalidate on;
        }
        location /keyed/ {
            proxy_pass http://%%ORIGIN%%;
            js_cache_key one.key;
            proxy_cache_valid 1h;
        }
        location /told/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_valid 1h;
            js_header_filter one.tell;
        }
        location /ask { js_content one.ask; }
        location /purge { js_content one.purge; }
    }";

const ONE: &str = "
    let calls = 0;
    function judge(r) {
        calls++;
        ngx.log(ngx.WARN, `judged ${r.uri} ${r.status} ${r.headersOut['X-Kind']} ${calls}`);
        switch (r.headersOut['X-Kind']) {
        case 'private': return false;
        case 'out': return { store: false };
        case 'hour': return { ttl: 3600, stale: 60, tags: ['t1', 't2'] };
        case 'varies': return { ttl: 60, vary: 'X-Device' };
        case 'never': return { ttl: 0 };
        case 'throws': throw new Error('on purpose');
        case 'text': return 'yes';
        case 'wrong': return { ttl: 'long' };
        case 'unknown': return { time: 1 };
        case 'loops': for (;;);
        case 'waits': return new Promise(() => {});
        case 'changes': r.headersOut['X-Kind'] = 'x'; return { ttl: 60 };
        case 'answers': r.return(200); return { ttl: 60 };
        case 'later': return Promise.resolve({ ttl: 60 });
        }
    }
    function key(r) {
        switch (r.args.k) {
        case 'none': return '';
        case 'throws': throw new Error('on purpose');
        }
        return r.uri + '|' + (r.headersIn['X-Device'] || 'any');
    }
    function tell(r) {
        const c = r.cache;
        r.headersOut['X-Told'] = `${c.status} ${c.reason} ${c.ttl > 3500}`;
        r.headersOut['X-Key'] = c.key.slice(-7);
        r.headersOut['X-Found'] = String(c.lookup() !== null);
    }
    function ask(r) {
        const found = r.cache.lookup(r.args.key, 'z');
        r.return(200, JSON.stringify(found === null ? null
            : [found.status, found.ttl > 3500, found.age < 60, found.size, found.tags]));
    }
    async function purge(r) {
        const order = JSON.parse(r.requestText);
        try {
            r.return(200, String(await r.cache.purge(order)));
        } catch (error) {
            r.return(400, error.message);
        }
    }
    export default { judge, key, tell, ask, purge };";

fn proxy(origin: &Origin) -> Result<Proxy> {
    Proxy::new(Kind::Millpond, CONF)
        .file("one.js", ONE)
        .origin(origin)
        .log_check(LogCheck::Off)
        .start()
}

fn status_of(client: &Client, target: &str) -> Result<String> {
    let response = client.get(target)?;
    ensure!(response.status == 200, "{target}: {}", response.status);
    Ok(response.header("X-Cache").unwrap_or("-").to_owned())
}

/// Lines of the log about verdicts for a path.
fn verdicts(proxy: &Proxy, path: &str) -> usize {
    let log = proxy.error_log();
    log.lines()
        .filter(|line| line.contains(&format!("judged {path} ")))
        .count()
}

#[test]
fn a_verdict_is_asked_for_once_and_obeyed() -> Result<()> {
    let origin = Origin::start()?;
    let of = |kind: &str| Answer::new(200).header("X-Kind", kind).body("body");
    origin.route(
        "/judged/private",
        of("private").header("Cache-Control", "max-age=60"),
    );
    origin.route(
        "/judged/out",
        of("out").header("Cache-Control", "max-age=60"),
    );
    origin.route(
        "/judged/never",
        of("never").header("Cache-Control", "max-age=60"),
    );
    origin.route(
        "/judged/left",
        of("left").header("Cache-Control", "max-age=60"),
    );
    origin.route("/judged/untold", of("left"));
    origin.route(
        "/judged/hour",
        of("hour").header("Cache-Control", "no-store"),
    );
    origin.route("/judged/cookie", of("hour").header("Set-Cookie", "a=b"));
    origin.route("/judged/later", of("later"));
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    for (path, second) in [
        ("/judged/private", "MISS"),
        ("/judged/out", "MISS"),
        ("/judged/never", "MISS"),
        ("/judged/left", "HIT"),
        ("/judged/untold", "MISS"),
        ("/judged/hour", "HIT"),
        ("/judged/cookie", "HIT"),
        ("/judged/later", "HIT"),
    ] {
        ensure!(status_of(&client, path)? == "MISS", "{path}");
        ensure!(status_of(&client, path)? == second, "{path}");
        ensure!(status_of(&client, path)? == second, "{path}");
        let count = if second == "HIT" { 1 } else { 3 };
        ensure!(
            verdicts(&proxy, path) == count,
            "{path}: {}",
            proxy.error_log()
        );
    }
    let response = client.get("/judged/private")?;
    ensure!(
        response.header("X-Why") == Some("script"),
        "{:?}",
        response.header("X-Why")
    );
    Ok(())
}

#[test]
fn tags_of_a_verdict_can_be_purged_by() -> Result<()> {
    let origin = Origin::start()?;
    let answer = Answer::new(200).header("X-Kind", "hour").body("body");
    origin.route("/judged/hour", answer);
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    ensure!(status_of(&client, "/judged/hour")? == "MISS");
    let log = proxy.error_log();
    ensure!(log.contains("judged /judged/hour 200 hour"), "{log}");
    // What a script gives as tags can be purged by.
    let key = format!("http{}/judged/hour", origin.address());
    let ask = |key: &str| {
        Ok::<_, anyhow::Error>(client.get(&format!("/ask?key={key}"))?.text().to_owned())
    };
    let found = ask(&key)?;
    ensure!(found == r#"[200,true,true,4,["t1","t2"]]"#, "{found}");
    let purge = |order: &str| -> Result<(u16, String)> {
        let response = client.send(&Request::new("POST", "/purge").body(order))?;
        Ok((response.status, response.text().to_owned()))
    };
    let done = purge(r#"{"tag": ["t2", "other"], "zone": "z"}"#)?;
    ensure!(done == (200, "true".into()), "{done:?}");
    ensure!(ask(&key)? == "null");
    ensure!(status_of(&client, "/judged/hour")? == "MISS");
    let order = format!("{{\"key\": \"{key}\", \"zone\": \"z\"}}");
    ensure!(purge(&order)? == (200, "true".into()));
    ensure!(purge(&order)? == (200, "false".into()));
    for (order, why) in [
        (
            r#"{"zone": "none", "key": "a"}"#,
            "cache \"none\" not found",
        ),
        (r#"{"key": "a"}"#, "there is no cache here"),
        (
            r#"{"key": "a", "tag": "b", "zone": "z"}"#,
            "one thing to purge",
        ),
        (
            r#"{"keys": "a", "zone": "z"}"#,
            "\"keys\" is no part of a purge",
        ),
        (r#"{"zone": "z"}"#, "there is no key here"),
    ] {
        let (status, text) = purge(order)?;
        ensure!(
            status == 400 && text.contains(why),
            "{order}: {status} {text}"
        );
    }
    Ok(())
}

#[test]
fn a_verdict_that_fails_keeps_the_answer_out() -> Result<()> {
    let origin = Origin::start()?;
    origin.answer_with("/judged/*", |request| {
        let kind = request.target.trim_start_matches("/judged/").to_owned();
        let control = ("Cache-Control", "max-age=60");
        Answer::new(200)
            .header("X-Kind", &kind)
            .header(control.0, control.1)
            .body("body")
    });
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    for kind in [
        "throws", "text", "wrong", "unknown", "loops", "waits", "changes", "answers",
    ] {
        let path = format!("/judged/{kind}");
        for _ in 0..2 {
            let response = client.get(&path)?;
            ensure!(
                response.status == 200 && response.text() == "body",
                "{kind}"
            );
            ensure!(response.header("X-Cache") == Some("MISS"), "{kind}");
            ensure!(response.header("X-Why") == Some("script"), "{kind}");
        }
    }
    let log = proxy.error_log();
    for line in [
        "js exception: Error: on purpose at judge (",
        "a verdict is an object, or false",
        "\"ttl\" of a verdict is not what it should be",
        "\"time\" of a verdict is not what it should be",
        "js script was stopped after 250 ms",
        "async operation inside \"one.judge\"",
        "cannot change an answer that is judged",
        "cannot return for an answer that is there",
    ] {
        ensure!(log.contains(line), "{line}: {log}");
    }
    Ok(())
}

#[test]
fn variants_are_those_that_a_verdict_names() -> Result<()> {
    let origin = Origin::start()?;
    origin.answer_with("/judged/varies", |request| {
        let device = request.header("X-Device").unwrap_or("none").to_owned();
        Answer::new(200)
            .header("X-Kind", "varies")
            .header("Vary", "*")
            .body(device)
    });
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    for (device, status) in [("a", "MISS"), ("b", "MISS"), ("a", "HIT"), ("b", "HIT")] {
        let request = Request::new("GET", "/judged/varies").header("X-Device", device);
        let response = client.send(&request)?;
        ensure!(response.text() == device, "{}", response.text());
        ensure!(response.header("X-Cache") == Some(status), "{device}");
    }
    Ok(())
}

#[test]
fn a_304_is_judged_as_the_answer_was() -> Result<()> {
    let origin = Origin::start()?;
    origin.answer_with("/judged/again", |request| {
        let status = if request.header("If-None-Match").is_some() {
            304
        } else {
            200
        };
        Answer::new(status)
            .header("X-Kind", "hour")
            .header("ETag", "\"1\"")
            .body("body")
    });
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    ensure!(status_of(&client, "/judged/again")? == "MISS");
    let key = format!("http{}/judged/again", origin.address());
    let order = format!("{{\"key\": \"{key}\", \"zone\": \"z\", \"soft\": true}}");
    let purged = client.send(&Request::new("POST", "/purge").body(order))?;
    ensure!(purged.text() == "true", "{}", purged.text());
    let status = status_of(&client, "/judged/again")?;
    ensure!(
        status == "REVALIDATED" || status == "STALE" || status == "UPDATING",
        "{status}"
    );
    let is_fresh = || {
        let found = client.get(&format!("/ask?key={key}")).ok()?;
        found.text().starts_with("[200,true").then_some(())
    };
    ensure!(
        Deadline::after(Duration::from_secs(10))
            .poll(is_fresh)
            .is_some()
    );
    ensure!(
        verdicts(&proxy, "/judged/again") == 2,
        "{}",
        proxy.error_log()
    );
    Ok(())
}

#[test]
fn a_key_is_what_a_function_says() -> Result<()> {
    let origin = Origin::start()?;
    origin.answer_with("/keyed/*", |request| {
        Answer::new(200).body(request.header("X-Device").unwrap_or("none"))
    });
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    for (target, device, status) in [
        ("/keyed/a?x=1", "phone", "MISS"),
        ("/keyed/a?x=2", "phone", "HIT"),
        ("/keyed/a", "desk", "MISS"),
        ("/keyed/a", "desk", "HIT"),
    ] {
        let request = Request::new("GET", target).header("X-Device", device);
        let response = client.send(&request)?;
        ensure!(
            response.header("X-Cache") == Some(status),
            "{target} {device}"
        );
        ensure!(response.text() == device);
    }
    // Without a key of its own a request would share that of others.
    ensure!(client.get("/keyed/a?k=none")?.status == 500);
    ensure!(client.get("/keyed/a?k=throws")?.status == 500);
    ensure!(
        proxy
            .error_log()
            .contains("function \"one.key\" returned nothing")
    );
    Ok(())
}

#[test]
fn the_head_of_an_answer_tells_what_the_cache_did() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/told/a", Answer::new(200).body("body"));
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    for told in ["MISS", "HIT fresh true"] {
        let response = client.get("/told/a")?;
        let said = response.header("X-Told").unwrap_or_default();
        ensure!(said.starts_with(told), "{said}");
        ensure!(response.header("X-Key") == Some("/told/a"));
    }
    ensure!(client.get("/told/a")?.header("X-Found") == Some("true"));
    Ok(())
}

#[test]
fn explain_tells_what_a_script_would_decide() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = proxy(&origin)?;
    let dir = tempfile::tempdir()?;
    let conf = CONF
        .replace("%%DIR%%", &dir.path().to_string_lossy())
        .replace("%%PORT%%", &proxy.port().to_string())
        .replace("%%ORIGIN%%", &origin.address());
    let path = dir.path().join("nginx.conf");
    fs::write(&path, format!("events {{}} http {{ {conf} }}"))?;
    fs::write(dir.path().join("one.js"), ONE)?;
    let explain = |kind: &str| -> Result<String> {
        let done = Command::new(binary(Kind::Millpond).context("the binary")?)
            .args(["explain", "-c"])
            .arg(&path)
            .arg(format!("http://127.0.0.1:{}/judged/a", proxy.port()))
            .args(["--answer", &format!("HTTP/1.1 200; X-Kind: {kind}")])
            .output()?;
        let all = [done.stdout, done.stderr].concat();
        Ok(String::from_utf8_lossy(&all).into_owned())
    };
    for (kind, lines) in [
        (
            "hour",
            [
                "fresh for 3600 s: the function of js_cache_verdict says so",
                "t1 t2, by js_cache_verdict",
            ],
        ),
        (
            "private",
            ["no: the function of js_cache_verdict says so", ""],
        ),
    ] {
        let told = explain(kind)?;
        for line in lines {
            ensure!(told.contains(line), "{line}: {told}");
        }
    }
    Ok(())
}

#[test]
fn why_tells_what_a_script_says_of_the_stored_answer() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = proxy(&origin)?;
    let client = Client::new(proxy.port());
    let why = |path: &str| -> Result<String> {
        let done = Command::new(binary(Kind::Millpond).context("the binary")?)
            .args(["why", &format!("http://127.0.0.1:{}{path}", proxy.port())])
            .arg("-p")
            .arg(proxy.dir())
            .arg("-c")
            .arg(proxy.dir().join("nginx.conf"))
            .output()?;
        let all = [done.stdout, done.stderr].concat();
        Ok(String::from_utf8_lossy(&all).into_owned())
    };
    for (path, kind, expected) in [
        (
            "/judged/hour",
            "hour",
            "fresh for 3600 s, stale for 60 s more, tags t1 t2 (js_cache_verdict)",
        ),
        (
            "/judged/varies",
            "varies",
            "fresh for 60 s, varies by X-Device (js_cache_verdict)",
        ),
    ] {
        origin.route(path, Answer::new(200).header("X-Kind", kind).body("a"));
        ensure!(client.get(path)?.status == 200);
        let told = Deadline::after(Duration::from_secs(10)).poll(|| {
            let told = why(path).ok()?;
            told.contains(expected).then_some(())
        });
        told.with_context(|| format!("{expected}: {}", why(path).unwrap_or_default()))?;
    }
    Ok(())
}
