//! `metrics`: what a page tells, and what Prometheus makes of it.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, Origin, Protocol, Proxy, Request, Response, free_port,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const CONF: &str = "
%%GLOBALS%%
worker_processes 2;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m scrub=1d;
    proxy_cache_valid 200 1h;
    proxy_cache_key $host$uri;
    limit_req_zone all zone=few:1m rate=1000r/s;
    limit_conn_zone all zone=some:1m;
    upstream origins { server %%ORIGIN%%; }
    server {
        listen 127.0.0.1:%%PORT%%;
        status_zone front;
        cache_site a.example;
        location / {
            status_zone pages;
            proxy_pass http://origins; proxy_cache z; cache_site $host;
            limit_req zone=few burst=1000 nodelay;
            limit_conn some 1000;
        }
        location /api/ { api write=on; }
        location = /metrics { metrics sites=2; }
        location = /metrics/plus { metrics names=nginxplus; }
        location = /metrics/vts { metrics sites=9 names=vts; }
    }
}
";

const WAIT: Duration = Duration::from_secs(30);
const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";

/// The samples of a page by their series.
type Samples = BTreeMap<String, f64>;

fn samples(page: &str) -> Result<Samples> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let read = lines.map(|line| {
        let (series, number) = line.rsplit_once(' ').context("a sample")?;
        Ok((series.to_string(), number.parse()?))
    });
    read.collect()
}

fn page(proxy: &Proxy, path: &str, accept: &str) -> Result<Response> {
    let request = Request::get(path)
        .host("m.example")
        .header("Accept", accept);
    let response = Client::new(proxy.port()).send(&request)?;
    ensure!(response.status == 200, "{path}: {}", response.status);
    Ok(response)
}

/// Waits until a page says what it must: an answer is counted after its last byte.
fn settle(proxy: &Proxy, path: &str, expected: &[(&str, f64)]) -> Result<()> {
    let mut last = Samples::new();
    let are_right = || {
        last = samples(&page(proxy, path, "*/*").ok()?.text()).ok()?;
        let mut expected = expected.iter();
        expected
            .all(|(series, number)| last.get(*series) == Some(number))
            .then_some(())
    };
    let settled = Deadline::after(WAIT).poll(are_right);
    let wrong: Vec<_> = expected
        .iter()
        .map(|(series, number)| (series, number, last.get(*series)))
        .filter(|(_, number, found)| Some(*number) != *found)
        .collect();
    settled.with_context(|| format!("{path}: {wrong:?}"))
}

/// Asks for pages of four sites, each twice: the first time it is a miss, then a hit.
fn drive((protocol, proxy): (Protocol, &Proxy), round: usize) -> Result<()> {
    let mut connection = protocol.client(proxy.port()).connect()?;
    for (site, pages) in [
        ("a.example", 5),
        ("b.example", 4),
        ("c.example", 3),
        ("d.example", 2),
    ] {
        for number in 0..2 * pages {
            let path = format!("/{round}/{}", number / 2);
            let response = connection.exchange(&Request::get(&path).host(site))?;
            ensure!(response.status == 200, "{path}: {}", response.status);
        }
    }
    Ok(())
}

fn start(protocol: Protocol) -> Result<(Origin, Proxy)> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("a page of 18 bytes"));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .over(protocol)
        .origin(&origin)
        .start()?;
    Ok((origin, proxy))
}

fn pages_say_what_clients_got_and_origins_were_asked(protocol: Protocol) -> Result<()> {
    let (_origin, mut proxy) = start(protocol)?;
    drive((protocol, &proxy), 0)?;
    settle(
        &proxy,
        "/metrics",
        &[
            ("millpond_cache_responses_total{status=\"hit\"}", 14.0),
            ("millpond_cache_responses_total{status=\"miss\"}", 14.0),
            ("millpond_cache_response_bytes_total{status=\"hit\"}", 252.0),
            ("millpond_http_request_seconds_count{status=\"hit\"}", 14.0),
            (
                "millpond_http_first_byte_seconds_count{status=\"miss\"}",
                14.0,
            ),
            (
                "millpond_origin_exchanges_total{reason=\"miss\",result=\"2xx\"}",
                14.0,
            ),
            (
                "millpond_origin_header_seconds_count{reason=\"miss\"}",
                14.0,
            ),
            (
                "millpond_zone_responses_total{zone=\"z\",status=\"hit\"}",
                14.0,
            ),
            (
                "millpond_zone_stored_bytes_total{zone=\"z\",status=\"miss\"}",
                252.0,
            ),
            ("millpond_zone_records{zone=\"z\"}", 14.0),
            (
                "millpond_location_zone_responses_total{zone=\"pages\",code=\"200\"}",
                28.0,
            ),
            (
                "millpond_site_requests_total{site=\"a.example\",status=\"hit\"}",
                5.0,
            ),
            (
                "millpond_site_requests_total{site=\"*\",status=\"hit\"}",
                5.0,
            ),
            ("millpond_site_entries{site=\"a.example\",zone=\"z\"}", 5.0),
            ("millpond_site_held_body_bytes{site=\"*\",zone=\"z\"}", 90.0),
            ("millpond_site_cache_bytes_total{site=\"b.example\"}", 72.0),
            ("millpond_site_origin_bytes_total{site=\"b.example\"}", 72.0),
            (
                "millpond_limit_req_requests_total{zone=\"few\",outcome=\"passed\"}",
                28.0,
            ),
            (
                "millpond_limit_conn_requests_total{zone=\"some\",outcome=\"rejected_dry_run\"}",
                0.0,
            ),
            ("millpond_log_lost_lines_total{reason=\"file\"}", 0.0),
        ],
    )?;
    proxy.quit()
}

#[test]
fn pages_have_the_names_of_other_programs_where_that_is_said() -> Result<()> {
    let (_origin, mut proxy) = start(Protocol::Http1)?;
    drive((Protocol::Http1, &proxy), 0)?;
    settle(
        &proxy,
        "/metrics/plus",
        &[
            ("nginxplus_up", 1.0),
            (
                "nginxplus_location_zone_requests{location_zone=\"pages\"}",
                28.0,
            ),
            ("nginxplus_limit_request_passed{zone=\"few\"}", 28.0),
            ("nginxplus_limit_connection_rejected{zone=\"some\"}", 0.0),
            ("nginxplus_cache_hit_responses{zone=\"z\"}", 14.0),
            ("nginxplus_cache_miss_bytes{zone=\"z\"}", 252.0),
        ],
    )?;
    settle(
        &proxy,
        "/metrics/vts",
        &[
            (
                "nginx_vts_cache_requests_total{cache_zone=\"z\",status=\"hit\"}",
                14.0,
            ),
            (
                "nginx_vts_server_cache_total{host=\"d.example\",status=\"miss\"}",
                2.0,
            ),
        ],
    )?;
    proxy.quit()
}

#[test]
fn a_client_gets_the_format_that_it_asks_for() -> Result<()> {
    let (_origin, mut proxy) = start(Protocol::Http1)?;
    drive((Protocol::Http1, &proxy), 0)?;
    let hits = "millpond_http_request_seconds_count{status=\"hit\"}";
    settle(&proxy, "/metrics", &[(hits, 14.0)])?;
    let text = page(&proxy, "/metrics", "*/*")?;
    let open = page(&proxy, "/metrics", OPEN_METRICS)?;
    let plus = page(&proxy, "/metrics/plus", OPEN_METRICS)?;
    for (response, content_type) in [
        (&text, "text/plain; version=0.0.4; charset=utf-8"),
        (
            &open,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        (&plus, "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        assert_eq!(response.header("Content-Type"), Some(content_type));
        assert_eq!(response.header("Cache-Control"), Some("no-store"));
    }
    assert!(open.text().ends_with("\n# EOF\n"));
    assert!(
        open.text()
            .contains("# TYPE millpond_http_requests counter\n")
    );
    assert!(
        text.text()
            .contains("# TYPE millpond_http_requests_total counter\n")
    );
    let series = |page: &Response| -> Result<Vec<String>> {
        let all = samples(&page.text())?.into_keys();
        // The answers that are compared are themselves among what is counted.
        Ok(all.filter(|it| !it.contains("status=\"none\"")).collect())
    };
    assert_eq!(series(&text)?, series(&open)?);
    let client = Client::new(proxy.port());
    assert_eq!(client.send(&Request::head("/metrics"))?.status, 200);
    assert_eq!(client.send(&Request::post("/metrics", ""))?.status, 405);
    proxy.quit()
}

#[test]
fn the_trace_of_a_request_reaches_the_origin_as_it_came() -> Result<()> {
    let (origin, mut proxy) = start(Protocol::Http1)?;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = Request::get("/a")
        .header("traceparent", parent)
        .header("tracestate", "x=1");
    Client::new(proxy.port()).send(&request)?;
    let requests = origin.wait_for_requests(1)?;
    let asked = requests.first().context("a request")?;
    assert_eq!(asked.header("traceparent"), Some(parent));
    assert_eq!(asked.header("tracestate"), Some("x=1"));
    proxy.quit()
}

/// A trace begins where a request has none, as the documentation has it.
#[test]
fn a_trace_begins_where_a_request_has_none() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("x"));
    let conf = "
%%GLOBALS%%
events { }
http {
    %%HTTP%%
    map $request_id $span { \"~^(?<begin>.{16})\" $begin; }
    map $http_traceparent $trace { \"\" \"00-$request_id-$span-01\"; default $http_traceparent; }
    proxy_set_header traceparent $trace;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
    }
}
";
    let mut proxy = Proxy::new(Kind::Millpond, conf).origin(&origin).start()?;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let client = Client::new(proxy.port());
    client.send(&Request::get("/a"))?;
    client.send(&Request::get("/b").header("traceparent", parent))?;
    let requests = origin.wait_for_requests(2)?;
    let traces = requests.iter().map(|it| it.header("traceparent"));
    let [Some(begun), Some(passed)] = traces.collect::<Vec<_>>()[..] else {
        anyhow::bail!("{requests:?}");
    };
    let shape = regex::Regex::new("^00-[0-9a-f]{32}-[0-9a-f]{16}-01$")?;
    ensure!(shape.is_match(begun), "{begun}");
    assert_eq!(passed, parent);
    proxy.quit()
}

#[test]
fn a_page_tells_how_the_last_reload_and_the_last_purges_went() -> Result<()> {
    let (_origin, mut proxy) = start(Protocol::Http1)?;
    let outcome = |taken: f64, failed: f64, is_right: f64| {
        [
            ("millpond_config_reloads_total{result=\"success\"}", taken),
            ("millpond_config_reloads_total{result=\"failure\"}", failed),
            ("millpond_config_last_reload_successful", is_right),
        ]
    };
    settle(&proxy, "/metrics", &outcome(1.0, 0.0, 1.0))?;
    let first = samples(&page(&proxy, "/metrics", "*/*")?.text())?;
    let at = "millpond_config_last_reload_success_timestamp_seconds";
    ensure!(first.get(at).is_some_and(|at| *at > 1e9), "{first:?}");
    proxy.set_log_check(LogCheck::Off);
    proxy.set_conf("events { } nonsense;")?;
    proxy.reload()?;
    settle(&proxy, "/metrics", &outcome(1.0, 1.0, 0.0))?;
    let then = samples(&page(&proxy, "/metrics", "*/*")?.text())?;
    ensure!(first.get(at) == then.get(at), "{then:?}");
    proxy.set_conf(CONF)?;
    proxy.reload()?;
    settle(&proxy, "/metrics", &outcome(2.0, 1.0, 1.0))?;
    for (what, count) in [("type=all", 1), ("type=prefix&what=/a&soft=1", 2)] {
        for _ in 0..count {
            let path = format!("/api/millpond/1/zones/z/purge?{what}");
            let response = Client::new(proxy.port())
                .send(&Request::post(&path, "").header("Millpond-Api", "1"))?;
            ensure!(response.status == 200, "{}", response.text());
        }
    }
    let purges = [
        (
            "millpond_zone_purges_total{zone=\"z\",kind=\"all\",mode=\"hard\"}",
            1.0,
        ),
        (
            "millpond_zone_purges_total{zone=\"z\",kind=\"prefix\",mode=\"soft\"}",
            2.0,
        ),
        ("millpond_disk_scrub_running{zone=\"z\",disk=\"DIR\"}", 0.0),
    ];
    let disk = purges[2]
        .0
        .replace("DIR", &proxy.dir().join("cache").display().to_string());
    settle(&proxy, "/metrics", &purges[..2])?;
    let last = samples(&page(&proxy, "/metrics", "*/*")?.text())?;
    ensure!(last.contains_key(&disk), "{disk} in {last:?}");
    Ok(())
}

fn contrib() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib")
}

/// True if a program of Prometheus is there; a machine that has none skips what needs it.
fn is_installed(program: &str) -> bool {
    let version = Command::new(program).arg("--version").output();
    let is_there = version.is_ok_and(|output| output.status.success());
    if !is_there {
        millpond_testkit::skip(&format!("{program} is not installed"));
    }
    is_there
}

fn promtool(args: &[&str], input: &str) -> Result<()> {
    let mut child = Command::new("promtool")
        .args(args)
        .current_dir(contrib().join("prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // The input is written beside the reading: neither side may fill its pipe and wait.
    let mut stdin = child.stdin.take().context("its input")?;
    let input = input.to_string();
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output()?;
    let _ = writing.join();
    let said = [stdout, stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(status.success(), "promtool {args:?}: {said}");
    Ok(())
}

#[test]
fn promtool_finds_nothing_to_blame() -> Result<()> {
    if !is_installed("promtool") {
        return Ok(());
    }
    let (_origin, mut proxy) = start(Protocol::Http1)?;
    drive((Protocol::Http1, &proxy), 0)?;
    promtool(
        &["check", "metrics"],
        &page(&proxy, "/metrics", "*/*")?.text(),
    )?;
    proxy.quit()?;
    promtool(&["check", "rules", "millpond.rules.yml"], "")?;
    promtool(&["test", "rules", "millpond.rules.test.yml"], "")
}

/// A Prometheus that reads the metrics of a proxy, and the rules.
struct Prometheus {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(target: u16) -> Result<Prometheus> {
        let dir = tempfile::tempdir()?;
        let rules = contrib().join("prometheus/millpond.rules.yml");
        let conf = format!(
            "global: {{ scrape_interval: 300ms, scrape_timeout: 300ms, \
             evaluation_interval: 300ms }}\n\
             rule_files: [{rules:?}]\n\
             scrape_configs:\n\
             - {{ job_name: millpond, \
             static_configs: [ {{ targets: [\"127.0.0.1:{target}\"] }} ] }}\n"
        );
        let conf_path = dir.path().join("prometheus.yml");
        fs::write(&conf_path, conf)?;
        let port = free_port()?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", conf_path.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.path().join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(["--log.level=error", "--web.enable-lifecycle"])
            .stdout(Stdio::null())
            .spawn()?;
        let _dir = dir;
        Ok(Prometheus { child, port, _dir })
    }

    /// Answer of the program's API, without the wrapping.
    fn ask(&self, path: &str) -> Result<Value> {
        let response = Client::new(self.port).get(path)?;
        let said: Value = serde_json::from_slice(&response.body)
            .with_context(|| format!("{path}: {}", response.text()))?;
        ensure!(said["status"] == "success", "{path}: {said}");
        Ok(said["data"].clone())
    }

    /// The samples of an expression.
    fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let encoded: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let data = self.ask(&format!("/api/v1/query?query={encoded}"))?;
        let result = data["result"].as_array();
        Ok(result
            .with_context(|| format!("{expression}: {data}"))?
            .clone())
    }

    /// Waits until an expression has samples.
    fn wait_for(&self, expression: &str) -> Result<()> {
        let has_some = || (!self.query(expression).ok()?.is_empty()).then_some(());
        let waited = Deadline::after(WAIT).poll(has_some);
        waited.with_context(|| {
            format!(
                "no samples: {expression}, {:?}",
                self.ask("/api/v1/targets")
            )
        })
    }
}

/// The expressions of the dashboard as Grafana sends them.
fn dashboard() -> Result<Vec<String>> {
    let text = fs::read_to_string(contrib().join("grafana/millpond.json"))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let variables = dashboard["templating"]["list"]
        .as_array()
        .context("variables")?;
    ensure!(variables.iter().any(|it| it["type"] == "datasource"));
    let panels = dashboard["panels"].as_array().context("panels")?;
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let expressions = targets.map(|target| {
        ensure!(target["datasource"]["uid"] == "${datasource}", "{target}");
        let expression = target["expr"].as_str().context("an expression")?;
        let filled = expression
            .replace("$__rate_interval", "1m")
            .replace("$job", "millpond")
            .replace("$instance", ".*");
        ensure!(!filled.contains('$'), "{filled}");
        Ok(filled)
    });
    expressions.collect()
}

#[test]
fn prometheus_answers_every_question_of_the_dashboard_and_the_rules() -> Result<()> {
    if !is_installed("prometheus") {
        return Ok(());
    }
    let (_origin, mut proxy) = start(Protocol::Http1)?;
    drive((Protocol::Http1, &proxy), 0)?;
    let prometheus = Prometheus::start(proxy.port())?;
    prometheus.wait_for("up{job=\"millpond\"} == 1")?;
    // Rates are of what happens between two looks.
    drive((Protocol::Http1, &proxy), 1)?;
    prometheus.wait_for("increase(millpond_cache_responses_total{status=\"hit\"}[1m]) > 0")?;
    prometheus.wait_for("instance:millpond_cache_hits:ratio_rate5m > 0")?;
    let questions = dashboard()?;
    assert!(questions.len() > 30);
    let known = fs::read_to_string(contrib().join("../docs/metrics.md"))?;
    for question in &questions {
        // There is neither a fleet nor a second tier here.
        let of_fleet = ["millpond_fleet_", "millpond_tier_"].iter().find_map(|it| {
            let named = &question[question.find(it)?..];
            named.split(['{', '[', ' ', ')']).next()
        });
        match of_fleet {
            Some(name) => {
                prometheus.query(question)?;
                assert!(known.contains(&format!("`{name}`")), "{question}");
            }
            // A rate needs a second sample.
            None => prometheus.wait_for(question)?,
        }
    }
    let groups = prometheus.ask("/api/v1/rules")?;
    let groups = groups["groups"].as_array().context("groups")?;
    let rules: Vec<&Value> = groups
        .iter()
        .filter_map(|it| it["rules"].as_array())
        .flatten()
        .collect();
    assert!(rules.len() > 15);
    for rule in rules {
        assert_ne!(rule["health"], "err", "{rule}");
        if rule["type"] == "recording" {
            prometheus.wait_for(rule["query"].as_str().context("a query")?)?;
        }
    }
    let alerts = prometheus.query("ALERTS{alertstate=\"firing\"}")?;
    assert!(alerts.is_empty(), "{alerts:?}");
    // Formats are chosen by the field that it sends; both make the same series.
    let metadata = prometheus.ask("/api/v1/metadata?metric=millpond_http_requests")?;
    assert_eq!(
        metadata["millpond_http_requests"][0]["type"], "counter",
        "{metadata}"
    );
    drop(prometheus);
    proxy.quit()
}

millpond_testkit::each_protocol!(
    [Http1, Http2, Streams]
    pages_say_what_clients_got_and_origins_were_asked,
);

const RULES: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    proxy_cache z;
    proxy_cache_valid 200 1h;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /search { proxy_pass http://%%ORIGIN%%; proxy_cache_methods GET QUERY; }
        location /graphql { proxy_pass http://%%ORIGIN%%; proxy_cache_graphql on; }
        location /said { proxy_pass http://%%ORIGIN%%; proxy_cache_no_vary_search on; }
        location /stored { proxy_pass http://%%ORIGIN%%; cached_only 1; }
        location /group { proxy_pass http://%%ORIGIN%%; proxy_cache_groups on; }
        location /class { proxy_pass http://%%ORIGIN%%; proxy_cache_vary Accept as $arg_class; }
        location = /metrics { metrics; }
    }";

#[test]
fn a_zone_counts_what_rules_beyond_ordinary_caching_decide() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("hello"));
    let said = Answer::new(200).header("No-Vary-Search", "params=(\"utm\")");
    origin.route("/said", said.body("said"));
    let invalidates = Answer::new(200).header("Cache-Group-Invalidation", "\"x\", \"y\"");
    origin.route("/group", invalidates.body("done"));
    let varied = Answer::new(200).header("Vary", "Accept-Language, Accept");
    origin.route("/class", varied.body("varied"));
    let proxy = Proxy::new(Kind::Millpond, RULES).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let query = || Request::new("QUERY", "/search").header("Content-Type", "text/plain");
    let graphql = |text: &str| {
        let post = Request::post("/graphql", format!("{{\"query\":\"{text}\"}}"));
        post.header("Content-Type", "application/json")
    };
    let requests = [
        query().body("a"),
        query().body("a"),
        query().body("b"),
        graphql("{a}"),
        graphql("{a}"),
        graphql("{a}"),
        graphql("mutation {a}"),
        // No query of GraphQL, though it comes where that is spoken.
        Request::get("/graphql"),
        Request::get("/graphql"),
        Request::get("/said?utm=1"),
        Request::get("/said?utm=2"),
        Request::get("/said?utm=3"),
        Request::get("/said?utm=4"),
        Request::get("/stored"),
        Request::post("/group", "x"),
        // What does not vary is of no class.
        Request::get("/class/plain?class=a"),
        Request::get("/class/plain?class=a"),
        Request::get("/class?class=a"),
        Request::get("/class?class=a").header("Accept", "text/html"),
        Request::get("/class?class=a").header("Accept", "*/*"),
    ];
    for request in &requests {
        client.send(request)?;
    }
    let page = client.get("/metrics")?.text();
    for (rule, count) in [
        ("query_hit", 1),
        ("graphql_hit", 2),
        ("graphql_passed", 1),
        ("no_vary_search_hit", 2),
        ("class_hit", 2),
        ("cached_only_refused", 1),
        ("group_invalidated", 2),
    ] {
        let line = format!("\nmillpond_zone_rules_total{{zone=\"z\",rule=\"{rule}\"}} {count}\n");
        ensure!(page.contains(&line), "{line}{page}");
    }
    Ok(())
}
