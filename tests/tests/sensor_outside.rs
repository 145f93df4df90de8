//! Sensors that look at more than the process: peers, room on disks, scrubs, names, clocks, logs,
//! encrypted requests; and findings that are sent to a database.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, binary, free_port,
};
use rcgen::{CertificateParams, KeyPair};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const WAIT: Duration = Duration::from_secs(20);

/// A sensor as a monitor sees it.
#[derive(Debug)]
struct Seen {
    status: Option<i32>,
    line: String,
    error: String,
}

fn run(words: &[&str]) -> Result<Seen> {
    let mut command = Command::new(binary(Kind::Millpond).context("no binary")?);
    let output = command.arg("sensor").args(words).output()?;
    Ok(Seen {
        status: output.status.code(),
        line: String::from_utf8(output.stdout)?.trim_end().to_string(),
        error: String::from_utf8(output.stderr)?,
    })
}

/// Asks about a proxy, by the socket beside its pid file.
fn sense(proxy: &Proxy, words: &str) -> Result<Seen> {
    let socket = proxy.dir().join("server.control").display().to_string();
    let words: Vec<&str> = words.split_whitespace().collect();
    run(&[&words[..], &["--socket", &socket]].concat())
}

fn assert_seen(seen: &Seen, status: i32, start: &str) {
    assert_eq!(seen.status, Some(status), "{seen:?}");
    assert!(seen.line.starts_with(start), "{seen:?}");
}

#[test]
fn peer_that_failed_is_told_and_the_last_one_is_critical() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200));
    let conf = "
        upstream pool { server %%ORIGIN%%; server 127.0.0.1:%%DEAD%% max_fails=1; }
        upstream lone { server 127.0.0.1:%%DEAD%%; server %%ORIGIN%% down; }
        server {
            listen 127.0.0.1:%%PORT%%;
            location / { proxy_pass http://pool; }
        }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .origin(&origin)
        .value("DEAD", &free_port()?.to_string())
        .log_check(LogCheck::Off)
        .start()?;
    let seen = sense(&proxy, "peer -w 0")?;
    assert_seen(
        &seen,
        0,
        "PEER OK: 3 peers are available | unavailable=0;0; peers=3 ",
    );
    let client = Client::new(proxy.port());
    let failed = || {
        client.get("/").ok()?;
        let seen = sense(&proxy, "peer --upstream pool -w 0").ok()?;
        Some(seen).filter(|seen| seen.status == Some(1))
    };
    let seen = Deadline::after(WAIT)
        .poll(failed)
        .context("no peer failed")?;
    assert!(
        seen.line
            .contains(" of pool is unavailable | unavailable=1;0; peers=2 ")
    );
    assert_seen(
        &sense(&proxy, "peer --upstream no")?,
        3,
        "PEER UNKNOWN: there is no such",
    );
    Ok(())
}

#[test]
fn upstream_without_peers_is_critical() -> Result<()> {
    // A group of one is never given up, so that it takes two.
    let conf = "
        upstream pool { server 127.0.0.1:%%DEAD%%; server 127.0.0.2:%%DEAD%%; }
        server { listen 127.0.0.1:%%PORT%%; location / { proxy_pass http://pool; } }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .value("DEAD", &free_port()?.to_string())
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    let failed = || {
        client.get("/").ok()?;
        let seen = sense(&proxy, "peer").ok()?;
        Some(seen).filter(|seen| seen.status == Some(2))
    };
    let seen = Deadline::after(WAIT)
        .poll(failed)
        .context("a peer is left")?;
    assert_seen(
        &seen,
        2,
        "PEER CRITICAL: no peer is left of pool | unavailable=2",
    );
    Ok(())
}

#[test]
fn room_and_scrubs_of_disks_are_told() -> Result<()> {
    let conf = "
        proxy_cache_path %%DIR%%/one keys_zone=pond:1m max_size=6m memory=0 scrub=1d;
        server { listen 127.0.0.1:%%PORT%%; location / { return 200 here; } }";
    let proxy = Proxy::new(Kind::Millpond, conf).start()?;
    let path = proxy.dir().join("one").display().to_string();
    let seen = sense(&proxy, "space -w 0: -c 0:")?;
    assert_seen(&seen, 0, "SPACE OK: ");
    assert!(
        seen.line
            .contains(&format!(" % are free in {path} | {path}=")),
        "{seen:?}"
    );
    // The kernel's own figures, by another program.
    let output = Command::new("df")
        .args(["--output=avail", "-B1", &path])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let free: f64 = text.lines().nth(1).context("no figure")?.trim().parse()?;
    let value = seen.line.rsplit_once('=').context("no value")?.1;
    let told: f64 = value.trim_end_matches('B').parse()?;
    // Others write to this disk, too.
    assert!((told - free).abs() < 4e9, "{told} {free}");
    assert_seen(&sense(&proxy, "space -c 101:")?, 2, "SPACE CRITICAL: ");
    let seen = sense(&proxy, "scrub -w 2 -c 7")?;
    assert_seen(
        &seen,
        0,
        "SCRUB OK: 1 disks are scrubbed, and nothing was damaged",
    );
    assert!(seen.line.contains(&format!("{path}=0")), "{seen:?}");
    assert_seen(
        &sense(&proxy, "scrub --zone no")?,
        3,
        "SCRUB UNKNOWN: there is no such disk",
    );
    Ok(())
}

#[test]
fn lines_of_the_last_minutes_are_counted_also_of_the_file_before() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("access.log");
    let file = path.display().to_string();
    // By another program, so that zone and format are not ours.
    let stamp = |before: &str| -> Result<String> {
        let format = "+%d/%b/%Y:%H:%M:%S %z";
        let date = Command::new("date")
            .args(["-d", before, format])
            .env("LC_ALL", "C")
            .output()?;
        Ok(String::from_utf8(date.stdout)?.trim().to_string())
    };
    let line = |before: &str, status: u16| -> Result<String> {
        Ok(format!(
            "1.2.3.4 - - [{}] \"GET / HTTP/1.1\" {status} 5\n",
            stamp(before)?
        ))
    };
    std::fs::write(
        dir.path().join("access.log.1"),
        line("1 hour ago", 502)? + &line("2 minutes ago", 502)?,
    )?;
    std::fs::write(&path, line("1 minute ago", 200)? + &line("now", 502)?)?;
    let log = |more: &[&str]| {
        run(&[
            &["log", "--file", &file, "--pattern", "\" 5[0-9][0-9] "],
            more,
        ]
        .concat())
    };
    let seen = log(&["-w", "0.1", "-c", "10"])?;
    assert_seen(
        &seen,
        1,
        "LOG WARNING: 2 of 3 lines match in 300 s, 0.40 a minute | rate=0.4;0.1;10",
    );
    let seen = log(&["--over", "30s", "-c", "1"])?;
    assert_seen(
        &seen,
        2,
        "LOG CRITICAL: 1 of 1 lines match in 30 s, 2.00 a minute",
    );
    let seen = run(&["log", "--file", "/no/such/file", "--pattern", "x"])?;
    assert_seen(&seen, 3, "LOG UNKNOWN: /no/such/file: No such file");
    Ok(())
}

#[test]
fn error_log_of_a_process_is_understood() -> Result<()> {
    let conf = "server { listen 127.0.0.1:%%PORT%%; root %%DIR%%/none; }";
    let proxy = Proxy::new(Kind::Millpond, conf).start()?;
    Client::new(proxy.port()).get("/missing")?;
    let file = proxy.dir().join("error.log").display().to_string();
    let logged = || {
        let words = [
            "log",
            "--file",
            &file,
            "--pattern",
            "\\[error\\].*missing",
            "-c",
            "0",
        ];
        run(&words).ok().filter(|seen| seen.status == Some(2))
    };
    let seen = Deadline::after(WAIT).poll(logged).context("no line")?;
    assert!(seen.line.starts_with("LOG CRITICAL: 1 of "), "{seen:?}");
    Ok(())
}

#[test]
fn names_without_an_address_are_critical() -> Result<()> {
    let seen = run(&["dns", "--name", "localhost", "-c", "5"])?;
    assert_seen(
        &seen,
        0,
        "DNS OK: 1 names have addresses, the slowest after ",
    );
    assert!(seen.line.contains("s;;5 names=1 failed=0"), "{seen:?}");
    let words = [
        "dns",
        "--name",
        "localhost",
        "--name",
        "no..name",
        "-t",
        "5s",
    ];
    let seen = run(&words)?;
    assert_seen(&seen, 2, "DNS CRITICAL: no..name: ");
    // The names of a configuration: one that resolves, one that does not, one that is no name.
    let dir = tempfile::tempdir()?;
    let conf = dir.path().join("nginx.conf").display().to_string();
    let text = "events {} http { upstream pool { server localhost:81; server 10.0.0.1; } server { \
                location / { proxy_pass http://pool; } } }";
    std::fs::write(&conf, text)?;
    let seen = run(&["dns", "--conf", &conf])?;
    assert_seen(&seen, 0, "DNS OK: 1 names have addresses");
    Ok(())
}

/// A time server whose clock is off by so many seconds, for one question.
fn time_server(off: f64) -> Result<(String, JoinHandle<Result<()>>)> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(WAIT))?;
    let address = socket.local_addr()?.to_string();
    let serve = move || {
        let mut question = [0; 100];
        let (len, from) = socket.recv_from(&mut question)?;
        ensure!(
            len == 48 && question[0] == 0x23,
            "not a question of version 4"
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let stamp = ((now + off + 2_208_988_800.0) * 4_294_967_296.0) as u64;
        let mut answer = [0; 48];
        answer[0] = 0x24;
        answer[1] = 2;
        answer[24..32].copy_from_slice(&question[40..48]);
        answer[32..40].copy_from_slice(&stamp.to_be_bytes());
        answer[40..48].copy_from_slice(&stamp.to_be_bytes());
        socket.send_to(&answer, from)?;
        Ok(())
    };
    Ok((address, std::thread::spawn(serve)))
}

#[test]
fn clock_is_compared_with_a_server_and_with_dates() -> Result<()> {
    for (off, status) in [(0.0, 0), (30.0, 2), (-30.0, 2)] {
        let (address, server) = time_server(off)?;
        let seen = run(&["clock", "--server", &address, "-w", "1", "-c", "10"])?;
        server.join().ok().context("the server panicked")??;
        assert_eq!(seen.status, Some(status), "{seen:?}");
        let value = seen.line.split("offset=").nth(1).context("no value")?;
        let told: f64 = value.split('s').next().context("no value")?.parse()?;
        // One second for a machine that is busy.
        assert!((told - f64::abs(off)).abs() < 1.0, "{seen:?}");
        let side = if off < 0.0 {
            " s ahead of "
        } else {
            " s behind "
        };
        assert!(off == 0.0 || seen.line.contains(side), "{seen:?}");
    }
    let silent = UdpSocket::bind("127.0.0.1:0")?;
    let address = silent.local_addr()?.to_string();
    let seen = run(&["clock", "--server", &address, "-t", "200ms"])?;
    assert_seen(&seen, 3, "CLOCK UNKNOWN: no answer of the time server");
    let origin = Origin::start()?;
    origin.route(
        "/old",
        Answer::new(200).header("Date", "Mon, 23 Nov 2026 04:00:00 GMT"),
    );
    let url = |path: &str| format!("http://{}{path}", origin.address());
    let seen = run(&["clock", "--url", &url("/old"), "-c", "5"])?;
    assert_seen(&seen, 2, "CLOCK CRITICAL: ");
    let conf = "server { listen 127.0.0.1:%%PORT%%; return 200 x; }";
    let proxy = Proxy::new(Kind::Millpond, conf).start()?;
    let url = format!("http://127.0.0.1:{}/", proxy.port());
    assert_seen(&run(&["clock", "--url", &url, "-c", "5"])?, 0, "CLOCK OK: ");
    Ok(())
}

#[test]
fn encrypted_requests_verify_the_certificate() -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["localhost".to_string()])?;
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key)?.pem();
    let conf = "server { listen 127.0.0.1:%%PORT%% ssl; ssl_certificate %%DIR%%/a.pem; \
                ssl_certificate_key %%DIR%%/a.key; return 200 x; }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .file("a.pem", &pem)
        .file("a.key", key.serialize_pem())
        .start()?;
    let authorities = proxy.dir().join("a.pem").display().to_string();
    let url = |host: &str| format!("https://{host}:{}/", proxy.port());
    let seen = run(&["latency", "--url", &url("localhost"), "--ca", &authorities])?;
    assert_seen(&seen, 0, "LATENCY OK: status 200 after ");
    let seen = run(&["latency", "--url", &url("127.0.0.1"), "--ca", &authorities])?;
    assert_seen(&seen, 2, "LATENCY CRITICAL: no answer from 127.0.0.1");
    let seen = run(&["latency", "--url", &url("127.0.0.1"), "--insecure"])?;
    assert_seen(&seen, 0, "LATENCY OK: status 200 after ");
    Ok(())
}

/// A request as it came, head and body.
struct Came {
    head: String,
    body: serde_json::Value,
}

/// A receiver of one message, which answers with this.
fn receiver(answer: &'static str) -> Result<(String, JoinHandle<Result<Came>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let serve = move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(WAIT))?;
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let count = stream.read(&mut piece)?;
            ensure!(count > 0, "it ends half-way");
            text.extend_from_slice(&piece[..count]);
            let all = String::from_utf8_lossy(&text).into_owned();
            let Some((head, body)) = all.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() == length.context("no length")?.parse::<usize>()? {
                stream.write_all(answer.as_bytes())?;
                let body = serde_json::from_str(body)?;
                return Ok(Came {
                    head: head.to_string(),
                    body,
                });
            }
        }
    };
    Ok((url, std::thread::spawn(serve)))
}

#[test]
fn findings_are_sent_as_otlp() -> Result<()> {
    let proxy = Proxy::new(
        Kind::Millpond,
        "server { listen 127.0.0.1:%%PORT%%; return 200 x; }",
    )
    .start()?;
    let page = format!("http://127.0.0.1:{}/", proxy.port());
    let (url, server) = receiver("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")?;
    let words = [
        "latency",
        "--url",
        &page,
        "-c",
        "0:0",
        "--push",
        &url,
        "--push-header",
    ];
    let seen = run(&[&words[..], &["Authorization: Bearer x"]].concat())?;
    assert_seen(&seen, 2, "LATENCY CRITICAL: status 200");
    let came = server.join().ok().context("the receiver panicked")??;
    assert!(
        came.head.starts_with("POST /v1/metrics HTTP/1.0\r\n"),
        "{}",
        came.head
    );
    for field in ["Content-Type: application/json", "Authorization: Bearer x"] {
        assert!(came.head.contains(field), "{}", came.head);
    }
    let resource = &came.body["resourceMetrics"][0];
    let name = &resource["resource"]["attributes"][0];
    assert_eq!(name["key"], "service.name");
    assert_eq!(name["value"]["stringValue"], "millpond");
    let metrics = resource["scopeMetrics"][0]["metrics"]
        .as_array()
        .context("no metrics")?;
    let named = |name: &str| -> Result<&serde_json::Value> {
        let found = metrics.iter().find(|metric| metric["name"] == name);
        Ok(&found.with_context(|| format!("no {name}"))?["gauge"]["dataPoints"][0])
    };
    assert_eq!(named("millpond.sensor.state")?["asDouble"], 2.0);
    let time = named("millpond.sensor.latency.seconds")?;
    assert!(
        time["asDouble"].as_f64().is_some_and(|time| time > 0.0),
        "{time}"
    );
    assert_eq!(time["attributes"][0]["value"]["stringValue"], "time");
    let nanos: u128 = time["timeUnixNano"].as_str().context("no text")?.parse()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    assert!(now.abs_diff(nanos) < WAIT.as_nanos(), "{nanos} {now}");
    Ok(())
}

#[test]
fn finding_that_is_not_taken_is_unknown() -> Result<()> {
    let answers = [
        "HTTP/1.1 503 x\r\nContent-Length: 5\r\n\r\nbusy\n",
        "HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedDataPoints\":\"1\"}}",
    ];
    for answer in answers {
        let (url, server) = receiver(answer)?;
        let seen = run(&["dns", "--name", "localhost", "--push", &url])?;
        server.join().ok().context("the receiver panicked")??;
        assert_seen(&seen, 3, "DNS OK: ");
        assert!(seen.error.starts_with("millpond: not sent to "), "{seen:?}");
    }
    let nobody = format!("http://127.0.0.1:{}/v1/metrics", free_port()?);
    let seen = run(&["dns", "--name", "localhost", "--push", &nobody])?;
    assert_seen(&seen, 3, "DNS OK: ");
    Ok(())
}
