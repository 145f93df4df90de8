//! Logs: what a request writes, what a log that cannot be written costs, and what survives.
//!
//! A log never stops a request: disks that are full, pipes that nobody reads and servers that are
//! away cost lines, and the error log says so once a second at most.

use anyhow::{Context, Result, ensure};
use flate2::read::MultiGzDecoder;
use millpond_testkit::{Client, Deadline, Kind, LogCheck, Proxy, Request};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time that anything here may take.
const WAIT: Duration = Duration::from_secs(20);

/// A server that answers everything, with `rest` in its location.
fn serving(http: &str, rest: &str) -> String {
    format!(
        "{http} server {{ listen 127.0.0.1:%%PORT%%; keepalive_requests 100000; \
         location / {{ {rest} return 200 ok; }} }}"
    )
}

/// Sends requests on one connection; every one must be answered.
fn request(port: u16, targets: impl Iterator<Item = String>) -> Result<()> {
    let mut connection = Client::new(port).connect()?;
    for target in targets {
        let response = connection.exchange(&Request::get(&target))?;
        ensure!(response.status == 200, "{target}: {}", response.status);
    }
    Ok(())
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let poll = Deadline::after(WAIT).poll(|| is_so().then_some(()));
    poll.with_context(|| format!("waited in vain: {what}"))
}

fn fifo(path: &Path) -> Result<()> {
    Ok(mknodat(
        CWD,
        path,
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )?)
}

/// A full disk costs lines and no requests, and is told once a second at most.
#[test]
fn full_disk_costs_lines_only() -> Result<()> {
    let conf = serving("", "access_log /dev/full; access_log %%DIR%%/good.log;");
    let mut proxy = Proxy::new(Kind::Millpond, &conf)
        .log_check(LogCheck::Off)
        .start()?;
    let start = Instant::now();
    request(proxy.port(), (0..200).map(|number| format!("/{number}")))?;
    proxy.wait_for_lines("good.log", 200)?;
    let told = || -> Vec<String> {
        let lines = proxy.grave_log_lines();
        lines
            .into_iter()
            .filter(|line| line.contains("lines lost"))
            .collect()
    };
    wait_until("the loss is told", || !told().is_empty())?;
    let seconds = start.elapsed().as_secs() as usize;
    assert!(told().len() <= seconds + 2, "{:?}", told());
    let expected = "write() to \"/dev/full\" failed (28: No space left on device)";
    assert!(told()[0].contains(expected), "{}", told()[0]);
    proxy.quit()
}

/// An error log on a full disk costs lines, and the log of the process tells it.
#[test]
fn full_error_log_is_told_elsewhere() -> Result<()> {
    let conf = serving("", "error_log /dev/full info; root /nowhere;");
    let conf = conf.replace("return 200 ok;", "");
    let mut proxy = Proxy::new(Kind::Millpond, &conf)
        .log_check(LogCheck::Off)
        .start()?;
    let response = Client::new(proxy.port()).get("/missing")?;
    assert_eq!(response.status, 404);
    wait_until("the loss is told", || {
        proxy
            .error_log()
            .contains("write() to \"/dev/full\" failed (28")
    })?;
    proxy.quit()
}

/// A FIFO that nobody reads stops no request; what was first is still there for a late reader.
#[test]
fn fifo_nobody_reads_stops_nothing() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("log");
    fifo(&path)?;
    let conf = serving("log_format uri $request_uri;", "access_log %%FIFO%% uri;");
    let mut proxy = Proxy::new(Kind::Millpond, &conf)
        .value("FIFO", &path.to_string_lossy())
        .log_check(LogCheck::Off)
        .start()?;
    // More than the pipe and the queue hold.
    let padding = "x".repeat(800);
    let targets = (0..4000).map(|number| format!("/{number}/{padding}"));
    request(proxy.port(), targets)?;
    wait_until("the loss is told", || proxy.error_log().contains("is late"))?;
    let reader = BufReader::new(File::open(&path)?);
    for (number, line) in reader.lines().take(1000).enumerate() {
        ensure!(line?.starts_with(&format!("/{number}/")), "line {number}");
    }
    proxy.quit()
}

/// A slow reader gets every line, in order, as long as the queue holds them.
#[test]
fn slow_reader_gets_every_line() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("log");
    fifo(&path)?;
    let conf = serving("log_format uri $request_uri;", "access_log %%FIFO%% uri;");
    let mut proxy = Proxy::new(Kind::Millpond, &conf)
        .value("FIFO", &path.to_string_lossy())
        .start()?;
    let padding = "x".repeat(500);
    request(
        proxy.port(),
        (0..500).map(|number| format!("/{number}/{padding}")),
    )?;
    let reader = BufReader::new(File::open(&path)?);
    for (number, line) in reader.lines().take(500).enumerate() {
        ensure!(line?.starts_with(&format!("/{number}/")), "line {number}");
    }
    proxy.quit()
}

/// Renaming and reopening under load loses no line and doubles none, buffered or not.
#[test]
fn rotation_under_load_loses_no_line() -> Result<()> {
    const COUNT: usize = 3000;
    let conf = serving(
        "log_format uri $request_uri;",
        "access_log %%DIR%%/plain.log uri; access_log %%DIR%%/buffered.log uri buffer=4k;",
    );
    let mut proxy = Proxy::new(Kind::Millpond, &conf).start()?;
    let port = proxy.port();
    let load =
        std::thread::spawn(move || request(port, (0..COUNT).map(|number| format!("/{number}"))));
    let mut rotations = 0;
    while !load.is_finished() && rotations < 50 {
        rotations += 1;
        for name in ["plain", "buffered"] {
            let log = proxy.dir().join(format!("{name}.log"));
            std::fs::rename(&log, proxy.dir().join(format!("{name}.{rotations}")))?;
        }
        proxy.signal(Signal::USR1)?;
        let is_there = |name| proxy.dir().join(name).exists();
        wait_until("the logs are reopened", || {
            is_there("plain.log") && is_there("buffered.log")
        })?;
    }
    load.join()
        .map_err(|_| anyhow::anyhow!("the load panicked"))??;
    assert!(rotations > 1);
    proxy.quit()?;
    for name in ["plain", "buffered"] {
        let mut seen = HashSet::new();
        for entry in std::fs::read_dir(proxy.dir())? {
            let entry = entry?.file_name().to_string_lossy().into_owned();
            if entry.starts_with(name) {
                for line in proxy.read_file(&entry).lines() {
                    assert!(seen.insert(line.to_owned()), "{name}: {line} twice");
                }
            }
        }
        assert_eq!(seen.len(), COUNT, "{name}");
    }
    Ok(())
}

/// Lines that were written of a compressed log can be read after a crash, whole lines only.
#[test]
fn compressed_log_is_readable_after_a_kill() -> Result<()> {
    let conf = serving(
        "log_format uri $request_uri;",
        "access_log %%DIR%%/log.gz uri gzip=4 buffer=1k flush=1h;",
    );
    let mut proxy = Proxy::new(Kind::Millpond, &conf).start()?;
    request(proxy.port(), (0..1000).map(|number| format!("/{number}")))?;
    proxy.kill9()?;
    let mut text = String::new();
    MultiGzDecoder::new(File::open(proxy.dir().join("log.gz"))?).read_to_string(&mut text)?;
    let expected: String = (0..text.lines().count())
        .map(|number| format!("/{number}\n"))
        .collect();
    assert!(text.len() > 2000 && text == expected);
    Ok(())
}

/// Several syslog servers get each line, over UDP and Unix sockets, of accesses and of errors.
#[test]
fn syslog_servers_get_accesses_and_errors() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("socket");
    let (udp, unix) = (UdpSocket::bind("127.0.0.1:0")?, UnixDatagram::bind(&path)?);
    udp.set_read_timeout(Some(WAIT))?;
    unix.set_read_timeout(Some(WAIT))?;
    let conf = serving(
        "log_format uri $request_uri;",
        "access_log syslog:server=%%UDP%%,facility=user,tag=pond,nohostname uri;
         access_log syslog:server=unix:%%UNIX%%,severity=warn,nohostname uri if=$arg_log;
         error_log syslog:server=unix:%%UNIX%%,nohostname;
         error_log syslog:server=unix:/nowhere/at/all;
         access_log syslog:server=unix:/nowhere/at/all;",
    )
    .replace("return 200 ok;", "");
    let mut proxy = Proxy::new(Kind::Millpond, &conf)
        .value("UDP", &udp.local_addr()?.to_string())
        .value("UNIX", &path.to_string_lossy())
        .start()?;
    for target in ["/quiet", "/loud?log=1"] {
        assert_eq!(Client::new(proxy.port()).get(target)?.status, 404);
    }
    let mut buf = [0; 4096];
    let mut datagrams = Vec::new();
    for _ in 0..2 {
        let count = udp.recv(&mut buf)?;
        datagrams.push(String::from_utf8_lossy(&buf[..count]).into_owned());
    }
    assert!(datagrams[0].starts_with("<14>") && datagrams[0].ends_with(" pond: /quiet"));
    assert!(datagrams[1].ends_with(" pond: /loud?log=1"));
    datagrams.clear();
    for _ in 0..3 {
        let count = unix.recv(&mut buf)?;
        datagrams.push(String::from_utf8_lossy(&buf[..count]).into_owned());
    }
    assert!(datagrams[0].starts_with("<187>") && datagrams[0].contains("[error]"));
    assert!(datagrams[2].starts_with("<188>") && datagrams[2].ends_with(" nginx: /loud?log=1"));
    wait_until("the loss is told", || {
        proxy
            .error_log()
            .contains("send() to syslog server \"unix:/nowhere/at/all\" failed (2")
    })?;
    proxy.quit()
}

/// The fields of an event of the journal whose values have no line ends.
fn journal_fields(socket: &UnixDatagram) -> Result<HashMap<String, String>> {
    let mut buf = [0; 32 * 1024];
    let count = socket.recv(&mut buf)?;
    let text = std::str::from_utf8(&buf[..count])?;
    let field = |line: &str| {
        line.split_once('=')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
    };
    let fields: Option<_> = text.lines().map(field).collect();
    fields.with_context(|| format!("no fields: {text}"))
}

/// The journal gets what is known of a request as fields of their own, whose values are those of
/// the variables of the same name, and the process's events at their priority.
#[test]
fn journal_gets_facts_as_fields() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("journal");
    let socket = UnixDatagram::bind(&path)?;
    socket.set_read_timeout(Some(WAIT))?;
    let conf = format!(
        "server {{ listen 127.0.0.1:%%PORT%%; server_name shop.example; cache_site site-$host; \
         error_log journald:socket={0}; add_header X-Id $request_id always; \
         location / {{ root %%DIR%%; }} \
         location /up {{ proxy_pass http://127.0.0.1:1/; error_log journald:tag=up,socket={0}; }} }}",
        path.display()
    );
    let proxy = Proxy::new(Kind::Millpond, &conf).start()?;
    let request = |target: &str| Request::get(target).host("shop.example");
    let mut client = Client::new(proxy.port()).connect()?;
    let response = client.exchange(&request("/none").header("Referer", "http://a/"))?;
    assert_eq!(response.status, 404);
    let event = journal_fields(&socket)?;
    let id = response.header("X-Id").context("no id")?.to_owned();
    for (name, value) in [
        ("PRIORITY", "3"),
        ("SYSLOG_IDENTIFIER", "millpond"),
        ("MILLPOND_CLIENT", "127.0.0.1"),
        ("MILLPOND_SERVER", "shop.example"),
        ("MILLPOND_REQUEST", "GET /none HTTP/1.1"),
        ("MILLPOND_REQUEST_ID", id.as_str()),
        ("MILLPOND_SITE", "site-shop.example"),
        ("MILLPOND_HOST", "shop.example"),
        ("MILLPOND_REFERRER", "http://a/"),
    ] {
        assert_eq!(
            event.get(name).map(String::as_str),
            Some(value),
            "{event:?}"
        );
    }
    let number = event.get("MILLPOND_CONNECTION").context("no number")?;
    let message = event.get("MESSAGE").context("no message")?;
    let start = format!("*{number} open() \"");
    assert!(message.starts_with(&start), "{message}");
    assert!(
        message.contains("(2: No such file or directory), client: 127.0.0.1"),
        "{message}"
    );
    assert!(!event.contains_key("MILLPOND_UPSTREAM"), "{event:?}");

    assert_eq!(client.exchange(&request("/up"))?.status, 502);
    let event = journal_fields(&socket)?;
    let upstream = event.get("MILLPOND_UPSTREAM").context("no upstream")?;
    assert_eq!(upstream, "http://127.0.0.1:1/");
    assert_eq!(
        event.get("SYSLOG_IDENTIFIER").map(String::as_str),
        Some("up")
    );
    Ok(())
}

/// Texts that `taken` finds in the lines of the error log when each target was asked for once and
/// has one; the folder of the proxy is `DIR`.
fn logged(
    kind: Kind,
    conf: &str,
    targets: &[&str],
    taken: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>> {
    let proxy = Proxy::new(kind, conf).log_check(LogCheck::Off).start()?;
    let client = Client::new(proxy.port());
    for target in targets {
        client.get(target)?;
    }
    let lines = || {
        let log = proxy.error_log();
        let lines: Vec<String> = log.lines().filter_map(&taken).collect();
        (lines.len() == targets.len()).then_some(lines)
    };
    let lines = Deadline::after(WAIT).poll(lines);
    let lines = lines.with_context(|| proxy.error_log())?;
    let dir = proxy.dir().display().to_string();
    Ok(lines.iter().map(|line| line.replace(&dir, "DIR")).collect())
}

/// An error line names its upstream by scheme, address and URI, the same as nginx's.
#[test]
fn the_upstream_of_an_error_is_named_as_nginx_names_it() -> Result<()> {
    let conf = "upstream away { server 127.0.0.1:1 down; }
         server { listen 127.0.0.1:%%PORT%%;
             location /a/ { proxy_pass http://127.0.0.1:1/b/; }
             location / { proxy_pass http://127.0.0.1:1; }
             location /none { proxy_pass http://away; }
             location /unix { proxy_pass http://unix:%%DIR%%/nobody:/x; }
             location /fastcgi { fastcgi_pass 127.0.0.1:1; }
             location /uwsgi { uwsgi_pass unix:%%DIR%%/nobody; } }";
    let targets = [
        "/a/x?q=1", "/y%20z", "/none?a", "/unix/y", "/fastcgi", "/uwsgi",
    ];
    let named = |kind| logged(kind, conf, &targets, upstream_of);
    let ours = named(Kind::Millpond)?;
    let expected = [
        "http://127.0.0.1:1/b/x?q=1",
        "http://127.0.0.1:1/y%20z",
        "http://away/none?a",
        "http://unix:DIR/nobody:/x/y",
        "fastcgi://127.0.0.1:1",
        "uwsgi://unix:DIR/nobody:",
    ];
    assert_eq!(ours, expected);
    assert_eq!(named(Kind::Nginx)?, expected);
    Ok(())
}

/// An error line about a connection that was not made says and grades it as nginx's does: this
/// machine's refusals are critical, those of a peer are errors.
#[test]
fn a_connection_that_is_not_made_is_told_as_nginx_tells_it() -> Result<()> {
    let conf = "server { listen 127.0.0.1:%%PORT%%;
             location /missing { proxy_pass http://unix:%%DIR%%/nobody:/; }
             location /folder { proxy_pass http://unix:%%DIR%%:/; }
             location /refused { proxy_pass http://127.0.0.1:1; }
             location /foreign { proxy_bind 192.0.2.1; proxy_pass http://127.0.0.1:1; } }";
    let targets = ["/missing", "/folder", "/refused", "/foreign"];
    let told = |kind| logged(kind, conf, &targets, connect_failure_of);
    let ours = told(Kind::Millpond)?;
    let expected = [
        "[crit] connect() to unix:DIR/nobody failed (2: No such file or directory)",
        "[error] connect() to unix:DIR failed (111: Connection refused)",
        "[error] connect() failed (111: Connection refused)",
        "[crit] bind(192.0.2.1) failed (99: Cannot assign requested address)",
    ];
    assert_eq!(ours, expected);
    assert_eq!(told(Kind::Nginx)?, expected);
    Ok(())
}

/// The level of a line of the error log that tells of a connection, and what it says.
fn connect_failure_of(line: &str) -> Option<String> {
    let (said, _) = line.split_once(" while connecting to upstream")?;
    let level = said.get(said.find('[')?..=said.find(']')?)?;
    let (_, message) = said.split_once(": *")?.1.split_once(' ')?;
    Some(format!("{level} {message}"))
}

/// The upstream that a line of the error log names.
fn upstream_of(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(", upstream: \"")?;
    Some(rest.split_once('"')?.0.to_string())
}

/// Times are those of the zone that TZ names.
#[test]
fn times_are_of_the_zone_that_the_environment_names() -> Result<()> {
    if !Path::new("/usr/share/zoneinfo/Asia/Tokyo").is_file() {
        millpond_testkit::skip("there is no database of time zones");
        return Ok(());
    }
    let conf = "server { listen 127.0.0.1:%%PORT%%; return 200 \"$time_iso8601 $time_local\"; }";
    for kind in Kind::both() {
        for (zone, offset) in [
            ("Asia/Tokyo", "+09"),
            (":Asia/Tokyo", "+09"),
            ("CET-1", "+01"),
        ] {
            let proxy = Proxy::new(kind, conf).variable("TZ", zone).start()?;
            let text = Client::new(proxy.port()).get("/")?.text();
            assert!(
                text.contains(&format!("{offset}:00 ")),
                "{kind:?} {zone}: {text}"
            );
            assert!(
                text.ends_with(&format!("{offset}00")),
                "{kind:?} {zone}: {text}"
            );
        }
    }
    Ok(())
}
