//! `cache_site_quota`: a site holds no more of a cache than it may, and loses its own entries only.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, Manners, Origin, Proxy, Request, Resource, Response,
    binary,
};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const CONF: &str = "
%%GLOBALS%%
control unix:%%DIR%%/control;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/cache keys_zone=pond:1m max_size=100m;
    include quotas.conf;
    proxy_cache pond;
    proxy_cache_valid 1h;
    proxy_cache_key $cache_site$uri;
    add_header X-Cache $upstream_cache_status;
    log_format line \"$uri $cache_status_reason\";
    access_log %%DIR%%/a.log line;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name shop.example other.example;
        location / { proxy_pass http://%%ORIGIN%%; cache_site $host; }
        location /film { proxy_pass http://%%ORIGIN%%; cache_site $host; slice 64k; }
        location = /metrics { metrics; }
        location /api/ { api; allow 127.0.0.1; }
    }
}
";

const WAIT: Duration = Duration::from_secs(20);
const QUOTA: u64 = 1 << 20;
const BODY: usize = 100_000;

struct Bench {
    proxy: Proxy,
    client: Client,
    _origin: Origin,
}

impl Bench {
    fn start() -> Result<Bench> {
        let origin = Origin::start()?;
        origin.route("/huge*", Answer::new(200).body(vec![b'h'; 2 << 20]));
        origin.route("/*", Answer::new(200).body(vec![b'x'; BODY]));
        for path in ["/film", "/film2"] {
            origin.resource(path, &Resource::new(Manners::of(3 << 20)));
        }
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .origin(&origin)
            .file("quotas.conf", "cache_site_quota Shop.example 1m;")
            .log_check(LogCheck::Off)
            .start()?;
        Ok(Bench {
            client: Client::new(proxy.port()),
            proxy,
            _origin: origin,
        })
    }

    fn get(&self, host: &str, path: &str) -> Result<Response> {
        self.client.send(&Request::get(path).host(host))
    }

    fn label(&self, host: &str, path: &str) -> Result<String> {
        let response = self.get(host, path)?;
        Ok(response.header("X-Cache").context("a label")?.to_owned())
    }

    /// Holdings of a site in the zone, as the API tells them.
    fn site(&self, site: &str) -> Result<Value> {
        let text = self.client.get("/api/millpond/1/zones/pond/sites")?.text();
        let report: Value = serde_json::from_str(&text)?;
        let sites = report["sites"].as_array().context("sites")?;
        let found = sites.iter().find(|it| it["site"] == site);
        Ok(found.with_context(|| text.clone())?.clone())
    }

    fn held(&self, site: &str) -> Result<u64> {
        self.site(site)?["bytes"].as_u64().context("bytes")
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let program = binary(Kind::Millpond).context("the binary")?;
        let conf = self.proxy.dir().join("nginx.conf");
        let run = Command::new(program)
            .args(words)
            .arg("-c")
            .arg(conf)
            .output()?;
        Ok(String::from_utf8_lossy(&run.stdout).into_owned())
    }
}

#[test]
fn a_site_keeps_within_its_quota_and_another_one_loses_nothing() -> Result<()> {
    let mut bench = Bench::start()?;
    for number in 0..20 {
        assert_eq!(bench.label("other.example", &format!("/{number}"))?, "MISS");
    }
    let others = bench.held("other.example")?;
    assert!(others > QUOTA);
    for number in 0..30 {
        assert_eq!(bench.label("shop.example", &format!("/{number}"))?, "MISS");
        assert!(bench.held("shop.example")? <= QUOTA, "{number}");
    }
    assert_eq!(bench.label("shop.example", "/29")?, "HIT");
    assert_eq!(bench.held("other.example")?, others);
    assert!(bench.held("shop.example")? > QUOTA - 2 * BODY as u64);
    for number in 0..20 {
        assert_eq!(bench.label("other.example", &format!("/{number}"))?, "HIT");
    }
    let held = bench.held("shop.example")?;
    bench.proxy.restart()?;
    bench.client = Client::new(bench.proxy.port());
    assert_eq!(bench.held("shop.example")?, held);
    for number in 40..60 {
        assert_eq!(bench.label("shop.example", &format!("/{number}"))?, "MISS");
        assert!(bench.held("shop.example")? <= QUOTA, "{number}");
    }
    assert_eq!(bench.label("shop.example", "/59")?, "HIT");
    Ok(())
}

#[test]
fn use_and_quota_are_told() -> Result<()> {
    let bench = Bench::start()?;
    for number in 0..15 {
        bench.get("shop.example", &format!("/{number}"))?;
    }
    bench.get("other.example", "/0")?;
    // What is larger than the quota is passed on.
    let huge = bench.get("shop.example", "/huge")?;
    assert_eq!(huge.body.len(), 2 << 20);
    assert_eq!(bench.label("shop.example", "/huge")?, "MISS");
    let logged = || {
        bench
            .proxy
            .read_file("a.log")
            .contains("/huge site-quota")
            .then_some(())
    };
    Deadline::after(WAIT)
        .poll(logged)
        .with_context(|| bench.proxy.read_file("a.log"))?;
    let shop = bench.site("shop.example")?;
    let quota = &shop["quotas"][0];
    assert_eq!(
        (&quota["zone"], &quota["bytes"]),
        (&"pond".into(), &QUOTA.into())
    );
    assert_eq!(quota["held"], shop["bytes"]);
    assert!(quota["evicted"].as_u64() >= Some(5), "{quota}");
    assert!(quota["refused"].as_u64() >= Some(2), "{quota}");
    assert!(bench.site("other.example")?["quotas"].is_null());
    let page = bench.client.get("/metrics")?.text();
    let held = &quota["held"];
    for line in [
        "millpond_site_quota_bytes{site=\"shop.example\",zone=\"pond\"} 1048576".to_owned(),
        format!("millpond_site_quota_held_bytes{{site=\"shop.example\",zone=\"pond\"}} {held}"),
    ] {
        assert!(page.contains(&line), "{line}\n{page}");
    }
    let stat = bench.run(&["cache", "stat", "--sites"])?;
    assert!(stat.contains("shop.example (of 1.0M at most; "), "{stat}");
    let url = format!("http://shop.example:{}/1", bench.proxy.port());
    let why = bench.run(&["why", &url])?;
    assert!(
        why.contains(" of 1.0M in the zone (cache_site_quota)"),
        "{why}"
    );
    Ok(())
}

#[test]
fn slices_of_a_long_body_are_kept_within_the_quota() -> Result<()> {
    let bench = Bench::start()?;
    for path in ["/film", "/film2"] {
        assert_eq!(bench.get("shop.example", path)?.body.len(), 3 << 20);
        assert!(bench.held("shop.example")? <= QUOTA);
        assert!(bench.held("shop.example")? > QUOTA / 2);
    }
    let request = Request::get("/film2").host("shop.example");
    let end = bench.client.send(&request.header("Range", "bytes=-1000"))?;
    assert_eq!((end.status, end.body.len()), (206, 1000));
    Ok(())
}

#[test]
fn a_reload_changes_quotas() -> Result<()> {
    let bench = Bench::start()?;
    for number in 0..9 {
        bench.get("shop.example", &format!("/{number}"))?;
    }
    bench
        .proxy
        .write_file("quotas.conf", "cache_site_quota shop.example 300k;")?;
    bench.proxy.reload()?;
    let is_less = || {
        bench
            .held("shop.example")
            .is_ok_and(|held| held <= 300 << 10)
    };
    let found = Deadline::after(WAIT).poll(|| is_less().then_some(()));
    found.context("less is held")?;
    bench.proxy.write_file("quotas.conf", "")?;
    bench.proxy.reload()?;
    let has_none = || {
        bench
            .site("shop.example")
            .is_ok_and(|site| site["quotas"].is_null())
    };
    Deadline::after(WAIT)
        .poll(|| has_none().then_some(()))
        .context("no quota")?;
    for number in 10..30 {
        bench.get("shop.example", &format!("/{number}"))?;
    }
    assert!(bench.held("shop.example")? > QUOTA);
    Ok(())
}

#[test]
fn quotas_that_mean_nothing_are_refused() -> Result<()> {
    for (line, message) in [
        (
            "cache_site_quota a;",
            "invalid number of arguments in \"cache_site_quota\"",
        ),
        (
            "cache_site_quota a 1t;",
            "invalid quota \"1t\", it must be a size such as \"10g\"",
        ),
        ("cache_site_quota a 0;", "invalid quota \"0\""),
        ("cache_site_quota $host 1g;", "is a name, without variables"),
        (
            "cache_site_quota a 1g; cache_site_quota A 2g;",
            "quota of site \"A\" is duplicate",
        ),
        (
            "server { cache_site_quota a 1g; }",
            "\"cache_site_quota\" directive is not allowed here",
        ),
    ] {
        let dir = tempfile::tempdir()?;
        let text = format!("events {{}} pid x.pid; http {{ access_log off; {line} }}");
        std::fs::write(dir.path().join("main.conf"), text)?;
        let program = binary(Kind::Millpond).context("the binary")?;
        let run = Command::new(program)
            .args(["-t", "-e", "stderr", "-c", "main.conf", "-p"])
            .arg(dir.path())
            .output()?;
        let said = String::from_utf8_lossy(&run.stderr);
        ensure!(
            run.status.code() == Some(1) && said.contains(message),
            "{line}: {said}"
        );
    }
    Ok(())
}
