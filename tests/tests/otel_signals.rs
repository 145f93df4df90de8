//! `otel_metrics` and `otel_logs`: what a collector gets beside spans, and the way to it by TLS.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Attribute, Batch, Client, CollectedPoint, Collector, Deadline, Kind, LogCheck, Proxy, binary,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// The longest wait for something that must come.
const WAIT: Duration = Duration::from_secs(20);

const CACHE: &str = "proxy_cache_path cache keys_zone=z:1m max_size=8m;";

/// A configuration that sends something to an endpoint.
fn conf(endpoint: &str, lines: &str, server: &str) -> String {
    format!(
        "otel_exporter {{ endpoint {endpoint}; interval 10ms; }}
        {lines}
        {CACHE}
        server {{
            listen 127.0.0.1:%%PORT%%; server_name localhost;
            location = /metrics {{ metrics; }}
            {server}
        }}"
    )
}

fn label<'a>(point: &'a CollectedPoint, name: &str) -> &'a str {
    match point.labels.get(name) {
        Some(Attribute::Text(text)) => text,
        _ => "",
    }
}

/// The last value of a metric that a collector was told.
fn last<'a>(batches: &'a [Batch], name: &str) -> Option<&'a CollectedPoint> {
    let mut points = batches.iter().flat_map(|batch| &batch.points);
    points.rfind(|point| point.metric == name)
}

/// The kinds of the metrics on a page, by their names.
fn kinds(page: &str) -> BTreeSet<(String, u64)> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .filter_map(|line| {
            let (name, kind) = line.split_once(' ')?;
            let shape = match kind {
                "counter" => 7,
                "histogram" => 9,
                "summary" => 11,
                _ => 5,
            };
            Some((name.to_owned(), shape))
        })
        .collect()
}

#[test]
fn metrics_are_those_of_the_page_in_both_forms_of_otlp() -> Result<()> {
    for (path, expected) in [
        (
            "",
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        ),
        ("/otlp/v1/traces", "/otlp/v1/metrics"),
    ] {
        let collector = Collector::start()?;
        let endpoint = format!("http://127.0.0.1:{}{path}", collector.port());
        let server = "location / { return 200; }";
        let text = conf(&endpoint, "otel_metrics 1s;", server);
        let proxy = Proxy::new(Kind::Millpond, &text).start()?;
        let client = Client::new(proxy.port());
        for _ in 0..3 {
            client.get("/")?;
        }
        let requests = collector.wait_for(|batches| {
            let point = last(batches, "millpond_http_requests_total")?;
            (point.number >= 3.0).then(|| point.clone())
        })?;
        assert_eq!(requests.shape, 7);
        assert!(requests.times.0 > 0 && requests.times.1 >= requests.times.0);
        let page = client.get("/metrics")?.text();
        let all = collector.batches();
        assert!(all.iter().all(|batch| batch.path == expected), "{all:?}");
        let points = all.iter().flat_map(|batch| &batch.points);
        let told: BTreeSet<_> = points
            .map(|point| (point.metric.clone(), point.shape))
            .collect();
        assert_eq!(told, kinds(&page));
        let zone = last(&all, "millpond_zone_limit_bytes").context("no zone")?;
        assert_eq!((label(zone, "zone"), zone.number), ("z", 8_388_608.0));
        let sent = last(&all, "millpond_otel_records_sent_total").context("no count")?;
        assert_eq!(label(sent, "signal"), "logs");
        let times = all.iter().flat_map(|batch| &batch.points);
        for point in times.filter(|point| point.shape == 9) {
            let (counts, bounds) = &point.buckets;
            assert_eq!(counts.len(), bounds.len() + 1);
            assert_eq!(counts.iter().sum::<u64>() as f64, point.number);
        }
    }
    Ok(())
}

/// The end of a process tells what the last reading did not have.
#[test]
fn metrics_are_told_a_last_time_at_the_end() -> Result<()> {
    let collector = Collector::start()?;
    let endpoint = format!("127.0.0.1:{}", collector.port());
    let text = conf(&endpoint, "otel_metrics 1h;", "location / { return 200; }");
    let mut proxy = Proxy::new(Kind::Millpond, &text).start()?;
    let client = Client::new(proxy.port());
    for _ in 0..5 {
        client.get("/")?;
    }
    assert!(collector.batches().is_empty());
    proxy.quit()?;
    let batches = collector.batches();
    let requests = last(&batches, "millpond_http_requests_total").context("no requests")?;
    // One may be that of the test kit, which asks if the server is there.
    assert!(requests.number >= 5.0, "{requests:?}");
    Ok(())
}

#[test]
fn lines_have_their_level_and_the_facts_of_the_request() -> Result<()> {
    let collector = Collector::start()?;
    let endpoint = format!("http://127.0.0.1:{}/v1/traces", collector.port());
    let server = "location /files/ { root html; } error_log quiet.log emerg;";
    let text = conf(&endpoint, "otel_logs notice;", server);
    let builder = Proxy::new(Kind::Millpond, &text).log_check(LogCheck::Off);
    let mut proxy = builder.start()?;
    let client = Client::new(proxy.port());
    assert_eq!(client.get("/files/a?b=c")?.status, 404);
    let found = collector.wait_for(|batches| {
        let mut lines = batches.iter().flat_map(|batch| &batch.lines);
        lines.find(|line| line.body.contains("open()")).cloned()
    })?;
    assert_eq!(found.severity, (17, "error".to_owned()));
    assert!(found.time > 0);
    assert!(
        found.body.contains("No such file or directory"),
        "{found:?}"
    );
    for (name, value) in [
        ("millpond.client", "127.0.0.1"),
        ("millpond.server", "localhost"),
        ("millpond.request", "GET /files/a?b=c HTTP/1.1"),
    ] {
        let expected = Attribute::Text(value.to_owned());
        assert_eq!(found.attributes.get(name), Some(&expected), "{found:?}");
    }
    // A reload without the line ends it; the process's own lines were heard until then.
    proxy.set_conf(&conf(&endpoint, "", server))?;
    proxy.reload()?;
    let taken = "millpond_config_reloads_total{result=\"success\"} 2\n";
    let is_taken = || {
        client
            .get("/metrics")
            .ok()?
            .text()
            .contains(taken)
            .then_some(())
    };
    Deadline::after(WAIT).poll(is_taken).context("no reload")?;
    collector.wait_for(|batches| {
        let mut lines = batches.iter().flat_map(|batch| &batch.lines);
        lines.find(|line| line.body == "reconfiguring").cloned()
    })?;
    assert_eq!(client.get("/files/late")?.status, 404);
    proxy.quit()?;
    let all = collector.batches();
    let mut lines = all.iter().flat_map(|batch| &batch.lines);
    assert!(!lines.any(|line| line.body.contains("late")), "{all:?}");
    Ok(())
}

/// Names of the threads of a process.
fn threads(proxy: &Proxy) -> Result<Vec<String>> {
    let pid = proxy.pid().context("it runs")?;
    let mut names = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        names.push(name.trim().to_string());
    }
    Ok(names)
}

/// An exporter that nobody asked for anything costs no thread and no connection.
#[test]
fn exporters_without_records_do_not_begin() -> Result<()> {
    let collector = Collector::start()?;
    let endpoint = format!("127.0.0.1:{}", collector.port());
    let server = "location / { return 200; } location = /none { root html; }";
    let lines = "otel_metrics off; otel_logs off;";
    let text = conf(&endpoint, lines, server);
    let builder = Proxy::new(Kind::Millpond, &text).log_check(LogCheck::Off);
    let proxy = builder.start()?;
    let client = Client::new(proxy.port());
    client.get("/")?;
    assert_eq!(client.get("/none")?.status, 404);
    let names = threads(&proxy)?;
    assert!(!names.iter().any(|name| name == "otel"), "{names:?}");
    assert!(collector.batches().is_empty());
    Ok(())
}

/// The certificate of an authority of a name, and one of localhost with its key.
fn certificates(name: &str) -> Result<[String; 3]> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let authority = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params
        .distinguished_name
        .push(DnType::CommonName, "localhost");
    let certificate = params.signed_by(&key, &issuer)?.pem();
    Ok([authority, certificate, key.serialize_pem()])
}

/// A collector behind TLS gets all three signals, if its certificate is that of its name and of an
/// authority that is believed.
#[test]
fn collectors_are_spoken_to_by_tls_and_judged() -> Result<()> {
    let [authority, certificate, key] = certificates("root")?;
    let [stranger, _, _] = certificates("stranger")?;
    let collector = Collector::start()?;
    let text = "%%GLOBALS%%
        events {}
        stream { server {
            listen 127.0.0.1:%%PORT%% ssl;
            ssl_certificate %%DIR%%/cert.pem; ssl_certificate_key %%DIR%%/key.pem;
            ssl_alpn h2 http/1.1;
            proxy_pass 127.0.0.1:%%COLLECTOR%%;
        } }";
    let door = Proxy::new(Kind::Millpond, text)
        .value("COLLECTOR", &collector.port().to_string())
        .file("cert.pem", certificate)
        .file("key.pem", key)
        .log_check(LogCheck::Off)
        .start()?;
    let start = |host: &str, path: &str, trusted: &str| {
        let endpoint = format!("https://{host}:{}{path}", door.port());
        let text = conf(
            &format!("{endpoint}; trusted_certificate %%DIR%%/ca.pem"),
            "otel_trace on; otel_metrics 1s; otel_logs notice;",
            "location / { root html; }",
        );
        Proxy::new(Kind::Millpond, &text)
            .file("ca.pem", trusted)
            .log_check(LogCheck::Off)
            .start()
    };
    for path in ["", "/v1/traces"] {
        let before = collector.batches().len();
        let proxy = start("localhost", path, &authority)?;
        assert_eq!(Client::new(proxy.port()).get("/none")?.status, 404);
        collector.wait_for(|batches| {
            let new = batches.get(before..)?;
            let has = |some: fn(&Batch) -> bool| new.iter().any(some);
            let all = has(|it| !it.spans.is_empty())
                && has(|it| !it.points.is_empty())
                && has(|it| !it.lines.is_empty());
            all.then_some(())
        })?;
    }
    let before = collector.batches().len();
    for (host, trusted, reason) in [
        (
            "localhost",
            &stranger,
            "unable to verify the first certificate",
        ),
        ("127.0.0.1", &authority, "does not match"),
    ] {
        let proxy = start(host, "", trusted)?;
        Client::new(proxy.port()).get("/")?;
        let told = || Some(proxy.error_log()).filter(|log| log.contains("OTel export failure"));
        let log = Deadline::after(WAIT).poll(told).context("no line")?;
        assert!(log.contains(reason), "{reason}: {log}");
    }
    assert_eq!(collector.batches().len(), before);
    Ok(())
}

#[test]
fn mistakes_are_told_by_name() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let exporter = |endpoint: &str| format!("otel_exporter {{ endpoint {endpoint}; }}");
    for (lines, message) in [
        (
            "otel_metrics 10s;".to_owned(),
            "\"otel_exporter\" block is missing",
        ),
        (
            "otel_logs warn;".to_owned(),
            "\"otel_exporter\" block is missing",
        ),
        (
            exporter("http://a/x") + "otel_metrics 10s;",
            "the path of \"endpoint\" must end in \"/v1/traces\"",
        ),
        (
            exporter("a:1") + "otel_metrics 10ms;",
            "invalid value \"10ms\" in \"otel_metrics\" directive",
        ),
        (
            exporter("a:1") + "otel_logs loud;",
            "invalid value \"loud\" in \"otel_logs\" directive",
        ),
        (
            exporter("a:1") + "otel_logs warn; otel_logs off;",
            "\"otel_logs\" directive is duplicate",
        ),
        (
            "otel_exporter { endpoint a:1; weight 1; }".to_owned(),
            "unknown directive \"weight\" in \"otel_exporter\"",
        ),
        (
            "otel_exporter { endpoint a:1; header x; }".to_owned(),
            "invalid number of arguments in \"header\" directive of \"otel_exporter\"",
        ),
        (
            "otel_exporter { endpoint a:1; interval x; }".to_owned(),
            "\"interval\" directive of \"otel_exporter\" has an invalid value",
        ),
    ] {
        let text = format!("events {{}} pid x.pid; http {{ {lines} }}");
        std::fs::write(dir.path().join("main.conf"), text)?;
        let output = Command::new(binary(Kind::Millpond).context("no binary")?)
            .args(["-t", "-e", "stderr", "-c", "main.conf", "-p"])
            .arg(dir.path())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && said.contains(message),
            "{lines}: {said}"
        );
    }
    Ok(())
}
