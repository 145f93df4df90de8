//! `millpond why`: a running server says what becomes of a request for a URL, and why.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Gate, Kind, LogCheck, Manners, Origin, Proxy, Request, Resource,
    binary,
};
use serde_json::Value;
use std::process::{Command, Output};
use std::time::Duration;

const CONF: &str = "
%%GLOBALS%%
control unix:%%DIR%%/control;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/pond keys_zone=pond:1m max_size=200m inactive=1d;
    proxy_cache_valid 200 206 1h;
    proxy_cache_key $host$uri;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name shop;
        proxy_cache pond;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /video { proxy_pass http://%%ORIGIN%%; slice 64k; }
        location /said {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_key $host$uri$is_args$args;
            proxy_cache_no_vary_search on;
        }
        location /free { proxy_pass http://%%ORIGIN%%; proxy_cache off; }
        location /own { return 204; }
    }
    server {
        listen 127.0.0.1:%%PORT_NAMELESS%%;
        proxy_cache pond;
        location / { proxy_pass http://%%ORIGIN%%; }
    }
}
";

const WAIT: Duration = Duration::from_secs(20);

struct Bench {
    origin: Origin,
    proxy: Proxy,
    client: Client,
}

impl Bench {
    fn start() -> Result<Bench> {
        let origin = Origin::start()?;
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .origin(&origin)
            .log_check(LogCheck::Off)
            .start()?;
        Ok(Bench {
            client: Client::new(proxy.port()),
            origin,
            proxy,
        })
    }

    fn get(&self, path: &str, fields: &[(&str, &str)]) -> Result<()> {
        let request = Request::get(path).host("shop");
        let with = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
        let response = self.client.send(&fields.iter().fold(request, with))?;
        ensure!(response.status < 400, "{path}: {}", response.status);
        Ok(())
    }

    fn run(&self, path: &str, words: &[&str]) -> Result<Output> {
        let url = if path.starts_with('/') {
            format!("http://shop:{}{path}", self.proxy.port())
        } else {
            path.to_string()
        };
        let program = binary(Kind::Millpond).context("the binary")?;
        let dir = self.proxy.dir();
        let mut command = Command::new(program);
        command.arg("why").arg(url).args(words);
        command
            .arg("-p")
            .arg(dir)
            .arg("-c")
            .arg(dir.join("nginx.conf"));
        command.output().context("millpond why")
    }

    fn said(&self, path: &str, words: &[&str]) -> Result<String> {
        let output = self.run(path, words)?;
        let said = String::from_utf8(output.stdout)?;
        let mistakes = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(mistakes.is_empty(), "{path}: {mistakes}");
        Ok(said)
    }

    /// Output of `why`, once all of this is in it: a client may have its answer before it is
    /// stored.
    fn tells(&self, path: &str, words: &[&str], expected: &[&str]) -> Result<String> {
        let mut said = String::new();
        let look = || {
            said = self.said(path, words).ok()?;
            let is_all = expected.iter().all(|text| said.contains(text));
            is_all.then(|| said.clone())
        };
        let told = Deadline::after(WAIT).poll(look);
        told.with_context(|| format!("{path}: not all of {expected:?} in\n{said}"))
    }
}

#[test]
fn the_entry_that_a_query_finds_by_no_vary_search_is_told() -> Result<()> {
    let bench = Bench::start()?;
    let answer = Answer::new(200).header("No-Vary-Search", "params=(\"utm\"), key-order");
    bench.origin.route("/said", answer.body("page"));
    // The first answer tells, the second is stored by it.
    bench.get("/said?b=2&utm=x&a=1", &[])?;
    bench.get("/said?b=2&utm=x&a=1", &[])?;
    let query = "\"a=1&b=2\" is looked up: \"utm\" do not count; their order does not";
    let told = ["it is answered from the cache\n", query];
    bench.tells("/said?utm=y&a=1&b=2", &[], &told)?;
    bench.tells("/said?a=1&b=3", &[], &["nothing is stored", "\"a=1&b=3\""])?;
    // A path that nothing was said of is looked up as it is.
    ensure!(!bench.said("/a?utm=y", &[])?.contains("No-Vary-Search"));
    Ok(())
}

#[test]
fn what_is_held_and_what_is_not_is_told() -> Result<()> {
    let bench = Bench::start()?;
    let origin = &bench.origin;
    origin.route("/a", Answer::new(200).body("page"));
    origin.resource("/video", &Resource::new(Manners::of(300_000)));
    bench.tells("/a", &[], &["nothing is stored: the origin is asked"])?;
    assert_eq!(bench.run("/a", &[])?.status.code(), Some(1));
    bench.get("/a", &[])?;
    bench.tells("/a", &[], &["it is answered from the cache\n"])?;
    bench.get("/a", &[])?;
    let lines = [
        "it is answered from the cache\n",
        "  zone      pond\n  key       shop/a\n  site      shop\n",
        ", 1 hit\n",
        "  body      4 bytes\n",
    ];
    bench.tells("/a", &[], &lines)?;
    assert_eq!(bench.run("/a", &[])?.status.code(), Some(0));

    bench.get("/video", &[("Range", "bytes=70000-70009")])?;
    let held = || {
        let said = bench.said("/video", &[]).ok()?;
        said.contains("held      65536-131071\n").then_some(said)
    };
    let said = Deadline::after(WAIT).poll(held).context("a slice")?;
    assert!(
        said.contains("what is missing of the body is fetched"),
        "{said}"
    );

    bench.tells(
        "/free",
        &[],
        &["no cache takes part: proxy_cache is off here"],
    )?;
    bench.tells(
        "/own",
        &[],
        &["no cache takes part: the server answers with 204"],
    )?;
    Ok(())
}

#[test]
fn why_an_answer_was_not_stored_is_remembered() -> Result<()> {
    let bench = Bench::start()?;
    let answer = Answer::new(200).body("x");
    let answers = [
        (
            "/cookie",
            answer.clone().header("Set-Cookie", "a=b"),
            "set-cookie, the answer sets",
        ),
        (
            "/private",
            answer.clone().header("Cache-Control", "private"),
            "private, ",
        ),
        ("/star", answer.header("Vary", "*"), "vary-star, "),
    ];
    for (path, answer, expected) in answers {
        bench.origin.route(path, answer);
        bench.get(path, &[])?;
        let lines = [
            "its last answer was not stored",
            "unstored",
            expected,
            "nobody waits for another's answer for ",
        ];
        bench.tells(path, &[], &lines)?;
    }
    let report: Value = serde_json::from_str(&bench.said("/cookie", &["--json"])?)?;
    assert_eq!(report["cache"]["not_stored"]["reason"], "set-cookie");
    assert_eq!(report["cache"]["not_stored"]["status"], 200);
    assert_eq!(report["cache"]["entry"], Value::Null);
    Ok(())
}

#[test]
fn fields_choose_the_variant() -> Result<()> {
    let bench = Bench::start()?;
    let varies = Answer::new(200).body("x").header("Vary", "Accept");
    bench.origin.route("/varies", varies);
    bench.get("/varies", &[("Accept", "text/html")])?;
    let html = ["-H", "Accept: text/html"];
    bench.tells("/varies", &html, &["it is answered from the cache\n"])?;
    let lines = [
        "only other variants are stored",
        "variants  accept: text/html\n",
    ];
    bench.tells("/varies", &["-H", "Accept: image/png"], &lines)?;
    Ok(())
}

#[test]
fn the_method_decides_too_and_a_site_without_a_name_is_a_dash() -> Result<()> {
    let bench = Bench::start()?;
    bench.origin.route("/a", Answer::new(200).body("page"));
    let port = bench.proxy.named_port("PORT_NAMELESS");
    let response = Client::new(port).send(&Request::get("/a").host("nobody"))?;
    ensure!(response.status == 200, "{}", response.status);
    let url = format!("http://nobody:{port}/a");
    let lines = ["it is answered from the cache\n", "  site      -\n"];
    bench.tells(&url, &[], &lines)?;
    bench.tells(&url, &["--method", "HEAD"], &lines)?;
    bench.tells(&url, &["--method", "post"], &["no cache takes part: "])?;
    let output = bench.run(&url, &["--method", "G T"])?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(said.contains("is no method"), "{said}");
    Ok(())
}

#[test]
fn a_fill_that_runs_is_told_of() -> Result<()> {
    let bench = Bench::start()?;
    let gate = Gate::new();
    let answer = Answer::new(200).offset_body(100_000, 1);
    bench
        .origin
        .route("/slow", answer.hold_body_at(40_000, &gate));
    let mut client = bench.client.connect()?;
    client.send_raw(&Request::get("/slow").host("shop").encode())?;
    let mut response = client.read_head("GET")?.context("a head")?;
    client.read_some(&mut response, 40_000)?;
    let lines = [
        "it is being fetched: the answer is read along with that",
        "filling   bytes 0-99999, 40000 of them are there, for ",
    ];
    bench.tells("/slow", &[], &lines)?;
    gate.open();
    client.read_body(&mut response)
}

#[test]
fn what_cannot_be_asked_is_said() -> Result<()> {
    let mut bench = Bench::start()?;
    let mistakes = |path: &str, words: &[&str]| -> Result<String> {
        let output = bench.run(path, words)?;
        assert_eq!(output.status.code(), Some(2));
        Ok(String::from_utf8(output.stderr)?)
    };
    assert!(mistakes("/a b", &[])?.contains("is no URL"));
    assert!(mistakes("/a", &["-H", "x"])?.contains("is no field"));
    bench.proxy.quit()?;
    let output = bench.run("/a", &[])?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("no process answers on "), "{said}");
    Ok(())
}
