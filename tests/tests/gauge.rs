//! `millpond gauge` against Millpond over HTTPS, in HTTP/1.1 and in HTTP/2: its modules find what
//! is right, and its figures are those that the server counts itself.
//!
//! The origin is the gauge's own, over HTTPS, too.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy, binary, free_port};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:10m max_size=200m;
    server {
        listen 127.0.0.1:%%PORT%%;
        location = /metrics { metrics; }
    }
    server {
        listen 127.0.0.1:%%PORT_TLS%% ssl;
        listen 127.0.0.1:%%PORT_CLEAR%% http2;
        http2 on;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_session_cache shared:sessions:1m;
        proxy_cache z;
        proxy_cache_key $uri;
        proxy_cache_lock on;
        proxy_cache_valid 200 206 1h;
        proxy_http_version 1.1;
        proxy_set_header Connection '';
        add_header X-Cache-Status $upstream_cache_status;
        location / { proxy_pass https://127.0.0.1:%%BACK%%; }
    }";

/// Words for each protocol, and the number of connections of eight users.
const WAYS: [(&[&str], u64); 3] = [
    (&["--protocol", "http1"], 8),
    (&["--protocol", "http2"], 8),
    (&["--protocol", "http2", "--streams", "4"], 2),
];

/// A server that the gauge asks, and the port of the gauge's origin.
struct Asked {
    proxy: Proxy,
    back: u16,
}

impl Asked {
    fn start() -> Result<Asked> {
        Asked::start_with(LogCheck::On)
    }

    fn start_with(log_check: LogCheck) -> Result<Asked> {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)?;
        let back = free_port()?;
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .value("BACK", &back.to_string())
            .file("cert.pem", made.cert.pem())
            .file("key.pem", made.signing_key.serialize_pem())
            .log_check(log_check)
            .start()?;
        Ok(Asked { proxy, back })
    }

    /// The report of a run over HTTPS, in which nothing was wrong.
    fn gauge(&self, words: &[&str]) -> Result<Value> {
        let url = format!("https://127.0.0.1:{}", self.proxy.named_port("PORT_TLS"));
        self.gauge_at(&url, &[words, &["--ca", &self.ca()]].concat())
    }

    /// The file with the server's certificate.
    fn ca(&self) -> String {
        self.proxy.dir().join("cert.pem").display().to_string()
    }

    fn gauge_at(&self, url: &str, words: &[&str]) -> Result<Value> {
        let report = self.proxy.dir().join("report.json");
        let mut command = Command::new(binary(Kind::Millpond).context("no binary")?);
        command
            .args(["gauge", "run", "-q", "--users", "8", "--threads", "1"])
            .args(["--behind", "10s", "--url", url, "--json"])
            .arg(&report)
            .args(["--origin", &format!("127.0.0.1:{}", self.back)])
            .args(["--origin-https"])
            .args(words);
        // A connection of anybody may have the port for a moment between two runs.
        let output = Deadline::after(Duration::from_secs(20))
            .poll(|| {
                let output = command.output().ok()?;
                let is_taken = String::from_utf8_lossy(&output.stderr).contains("cannot listen");
                (!is_taken).then_some(output)
            })
            .context("the origin's port stays taken")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{words:?}: {}\n{text}",
            output.status
        );
        serde_json::from_slice(&std::fs::read(report)?).context("a report")
    }

    /// The sum of a counter's lines that have a text.
    fn counted(&self, name: &str, having: &str) -> Result<u64> {
        let page = Client::new(self.proxy.port()).get("/metrics")?.text();
        let lines = page.lines().filter(|line| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            rest.starts_with(['{', ' ']) && rest.contains(having)
        });
        let numbers = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(numbers.sum())
    }

    /// Waits until a counter is what the gauge counted.
    fn counts(&self, name: &str, having: &str, wanted: u64) -> Result<()> {
        let mut last = None;
        let found = Deadline::after(Duration::from_secs(10)).poll(|| {
            last = self.counted(name, having).ok();
            (last == Some(wanted)).then_some(())
        });
        found.with_context(|| format!("{name} {having}: {last:?}, wanted {wanted}"))
    }
}

fn number(report: &Value, path: &str) -> Result<u64> {
    let found = report.pointer(path).and_then(Value::as_u64);
    found.with_context(|| format!("{path} is no number in {report}"))
}

#[test]
fn modules_find_nothing_wrong_in_either_protocol() -> Result<()> {
    for (way, connections) in WAYS {
        let asked = Asked::start()?;
        let run = |words: &[&str]| asked.gauge(&[words, way].concat());
        let hot = run(&["simple", "-n", "400", "--size", "16k"])?;
        assert_eq!(number(&hot, "/requests")?, 400);
        assert_eq!(number(&hot, "/statuses/200")?, 400);
        assert_eq!(number(&hot, "/connections/opened")?, connections, "{way:?}");
        let ranges = run(&["range", "-n", "808", "--size", "300k"])?;
        let of_ranges = |path| number(&ranges, path);
        let (wholes, parts) = (of_ranges("/statuses/200")?, of_ranges("/statuses/206")?);
        assert_eq!(wholes + parts, 808, "{way:?}");
        assert!(parts >= 700, "{way:?}: a hundred ranges of each: {parts}");
        // Each user has resources of its own: wholes are misses, and ranges hits.
        assert_eq!(of_ranges("/cache_statuses/MISS")?, wholes);
        assert_eq!(of_ranges("/cache_statuses/HIT")?, parts);
        // The origin is slow enough that all ask before its answer is there.
        let words = ["coalesce", "-n", "40", "--size", "200k", "--delay", "100ms"];
        let coalesced = run(&words)?;
        assert_eq!(number(&coalesced, "/origin/requests")?, 5, "{way:?}");
        assert_eq!(number(&coalesced, "/origin/most_asked")?, 1);
        let slow = run(&["zipf", "-n", "40", "--size", "20k", "--read-rate", "1m"])?;
        assert_eq!(number(&slow, "/requests")?, 40);
        run(&["soak", "-n", "200", "--size", "10k"])?;
    }
    Ok(())
}

#[test]
fn figures_are_those_that_the_server_counts() -> Result<()> {
    for (way, connections) in WAYS {
        let asked = Asked::start()?;
        let report = asked.gauge(&[&["zipf", "-n", "500", "--size", "4k"], way].concat())?;
        asked.counts("millpond_tls_handshakes_total", "", connections)?;
        let http2 = if way.contains(&"http2") {
            connections
        } else {
            0
        };
        asked.counts("millpond_http2_connections_total", "", http2)?;
        asked.counts("millpond_http2_resets_total", "", 0)?;
        let statuses = report["cache_statuses"].as_object().context("statuses")?;
        for (status, count) in statuses {
            let label = format!("status=\"{}\"", status.to_lowercase());
            let count = count.as_u64().context("a count")?;
            asked.counts("millpond_cache_responses_total", &label, count)?;
        }
        // What is right in sum may be wrong in part: the origin's side adds up as well.
        let asked_origin = number(&report, "/origin/requests")?;
        asked.counts("millpond_origin_exchanges_total", "", asked_origin)?;
    }
    Ok(())
}

#[test]
fn handshakes_are_full_or_resumed_as_the_server_counts_them() -> Result<()> {
    for protocol in ["http1", "http2"] {
        let asked = Asked::start()?;
        let run = ["simple", "-n", "200", "--size", "1k", "--reconnect"];
        let words = [&run[..], &["--protocol", protocol]].concat();
        let report = asked.gauge(&words)?;
        assert_eq!(number(&report, "/connections/opened")?, 200);
        // Each user has sessions of its own: the first handshake is a full one.
        assert_eq!(number(&report, "/connections/full")?, 8, "{protocol}");
        assert_eq!(number(&report, "/connections/resumed")?, 192, "{protocol}");
        assert_eq!(number(&report, "/connections/repeated")?, 0, "{protocol}");
        let name = "millpond_tls_handshakes_total";
        asked.counts(name, "session=\"new\"", 8)?;
        asked.counts(name, "session=\"resumed\"", 192)?;
        let report = asked.gauge(&[&words[..], &["--no-resumption"]].concat())?;
        assert_eq!(number(&report, "/connections/full")?, 200, "{protocol}");
        asked.counts(name, "session=\"new\"", 208)?;
        asked.counts(name, "session=\"resumed\"", 192)?;
        asked.counts("millpond_tls_handshakes_failed_total", "", 0)?;
    }
    Ok(())
}

#[test]
fn http2_in_clear_text_is_asked_by_prior_knowledge() -> Result<()> {
    let asked = Asked::start()?;
    let url = format!("http://127.0.0.1:{}", asked.proxy.named_port("PORT_CLEAR"));
    let words = [
        "simple",
        "-n",
        "200",
        "--protocol",
        "http2",
        "--streams",
        "8",
    ];
    let report = asked.gauge_at(&url, &words)?;
    assert_eq!(number(&report, "/connections/opened")?, 1);
    assert_eq!(number(&report, "/connections/full")?, 0);
    asked.counts("millpond_http2_connections_total", "", 1)
}

#[test]
fn certificate_that_nobody_vouches_for_is_a_fault() -> Result<()> {
    // What has no origin is logged.
    let asked = Asked::start_with(LogCheck::Off)?;
    let url = format!("https://127.0.0.1:{}", asked.proxy.named_port("PORT_TLS"));
    let ca = &*asked.ca();
    for (words, said) in [
        (
            &["--ca", ca, "--server-name", "other.example"][..],
            "not valid for name",
        ),
        (&["--ca", ca][..], ""),
        (&["--insecure", "--server-name", "other.example"][..], ""),
    ] {
        let output = Command::new(binary(Kind::Millpond).context("no binary")?)
            .args([
                "gauge", "run", "given", "--path", "/", "-q", "-n", "1", "-u", "1",
            ])
            .args(["--url", &url])
            .args(words)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        // There is no origin: the server answers 502, unless it was not asked at all.
        let wanted = if said.is_empty() {
            "status 502"
        } else {
            "no TLS"
        };
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains(wanted) && text.contains(said),
            "{words:?}: {text}"
        );
    }
    Ok(())
}
