//! `millpond cache export --sqlite` and `millpond cache sql`: the catalogue as a database is what
//! `millpond cache ls` lists, a file is whole or not there, and a query changes nothing.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Kind, Origin, Proxy, binary};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);
/// Entries of the large test, a multiple of 100; `CATALOGUE_ENTRIES` sets another number.
const ENTRIES: usize = 1000;
/// Requests that are sent before their answers are read.
const BATCH: usize = 100;

const CONF: &str = "
%%GLOBALS%%
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/pond keys_zone=pond:4m max_size=500m inactive=1d;
    proxy_cache_valid 200 404 1h;
    proxy_cache_key $host$uri;
    keepalive_requests 100000;
    server {
        listen 127.0.0.1:%%PORT%%;
        cache_site $host;
        proxy_cache_tag $upstream_http_xkey;
        proxy_cache pond;
        # Served from the origin once for all: what the entries differ in is their key.
        location / { proxy_pass http://%%ORIGIN%%; }
    }
}
";

fn start() -> Result<(Origin, Proxy)> {
    let origin = Origin::start()?;
    let page = Answer::new(200)
        .body("page")
        .header("xkey", "all pages")
        .header("Content-Type", "text/html; charset=utf-8");
    origin.route("/*", page);
    let image = Answer::new(200)
        .offset_body(3000, 1)
        .header("Content-Type", "image/png");
    origin.route("/image/*", image);
    origin.route("/gone/*", Answer::new(404).body("gone"));
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    Ok((origin, proxy))
}

/// Asks for so many pages of ten hosts on one connection.
fn fill(proxy: &Proxy, count: usize) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    stream.set_read_timeout(Some(WAIT))?;
    let mut said = vec![0; 64 << 10];
    let numbers: Vec<usize> = (0..count).collect();
    for batch in numbers.chunks(BATCH) {
        let mut out = String::new();
        for number in batch {
            let folder = match number % 10 {
                0 => "image",
                1 => "gone",
                _ => "page",
            };
            let host = number / 10 % 10;
            out.push_str(&format!(
                "GET /{folder}/{number} HTTP/1.1\r\nHost: site{host}.example\r\n\r\n"
            ));
        }
        stream.write_all(out.as_bytes())?;
        let mut answers = 0;
        let mut tail = Vec::new();
        while answers < batch.len() {
            let count = stream.read(&mut said)?;
            ensure!(count > 0, "the connection ended");
            tail.extend_from_slice(&said[..count]);
            let found = tail.windows(9).filter(|it| it == b"HTTP/1.1 ").count();
            answers += found;
            let keep = tail.len().min(8);
            tail.drain(..tail.len() - keep);
        }
    }
    Ok(())
}

fn command(dir: &Path, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(binary(Kind::Millpond).context("the binary")?);
    command.arg("cache").args(words).arg("-p").arg(dir);
    command.arg("-c").arg(dir.join("nginx.conf"));
    Ok(command)
}

fn said(proxy: &Proxy, words: &[&str]) -> Result<String> {
    text(command(proxy.dir(), words)?.output()?)
}

fn text(output: Output) -> Result<String> {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{error}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Answer of the real `sqlite3`; none where there is none.
fn sqlite(database: &Path, query: &str) -> Result<Option<String>> {
    let run = Command::new("sqlite3").arg(database).arg(query).output();
    match run {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            millpond_testkit::skip("sqlite3 is not installed");
            Ok(None)
        }
        run => text(run?).map(Some),
    }
}

/// Entries, bytes held and hits, by something.
fn sums(rows: &[Value], by: &str, count: &str) -> BTreeMap<String, [u64; 3]> {
    let mut sums = BTreeMap::<String, [u64; 3]>::new();
    for row in rows {
        let number = |name: &str| row[name].as_u64().unwrap_or_default();
        let entries = if count.is_empty() { 1 } else { number(count) };
        let name = row[by].as_str().unwrap_or_default().to_string();
        let sum = sums.entry(name).or_default();
        for (sum, more) in sum
            .iter_mut()
            .zip([entries, number("held"), number("hits")])
        {
            *sum += more;
        }
    }
    sums
}

fn rows(text: &str) -> Result<Vec<Value>> {
    text.lines()
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
}

#[test]
fn a_database_adds_up_to_what_is_listed() -> Result<()> {
    let entries = match std::env::var("CATALOGUE_ENTRIES") {
        Ok(number) => number.parse()?,
        Err(_) => ENTRIES,
    };
    let (_origin, mut proxy) = start()?;
    fill(&proxy, entries)?;
    fill(&proxy, 50)?;
    let file = proxy.dir().join("catalogue.db");
    let path = file.to_str().context("a path")?;
    said(&proxy, &["export", "--sqlite", path])?;
    let listed = rows(&said(&proxy, &["ls", "--json"])?)?;
    assert_eq!(listed.len(), entries);
    let (tenth, most) = (entries / 10, entries / 10 * 8);
    let by_site = "SELECT * FROM by_site";
    let queries = [
        said(&proxy, &["sql", by_site, "--json", "--from", path])?,
        said(&proxy, &["sql", by_site, "--json"])?,
    ];
    for asked in &queries {
        let asked = sums(&rows(asked)?, "site", "entries");
        assert_eq!(asked.len(), 10);
        assert_eq!(asked, sums(&listed, "site", ""));
    }
    let types = said(
        &proxy,
        &["sql", "SELECT type, entries FROM by_type", "--csv"],
    )?;
    assert_eq!(
        types,
        format!("type,entries\n,{tenth}\nimage/png,{tenth}\ntext/html,{most}\n")
    );
    if let Some(check) = sqlite(&file, "PRAGMA integrity_check; PRAGMA foreign_key_check")? {
        assert_eq!(check, "ok\n");
        let counted = "SELECT count(*), sum(held), sum(status = 404) FROM entries";
        let held: u64 = listed.iter().filter_map(|row| row["held"].as_u64()).sum();
        let counted = sqlite(&file, counted)?.context("sqlite3")?;
        assert_eq!(counted, format!("{entries}|{held}|{tenth}\n"));
        let tags = sqlite(&file, "SELECT tag, entries FROM by_tag")?;
        assert_eq!(tags, Some(format!("all|{most}\npages|{most}\n")));
        let ranges = sqlite(&file, "SELECT sum(behind - first) FROM ranges")?;
        assert_eq!(ranges, Some(format!("{held}\n")));
    }
    // The same at rest.
    proxy.quit()?;
    let at_rest = said(&proxy, &["sql", by_site, "--json"])?;
    let names = ["site", "entries", "held", "length", "fresh", "oldest"];
    let settled = |text: &str| -> Result<Vec<Vec<String>>> {
        let rows = rows(text)?;
        let row = |row: &Value| names.iter().map(|name| row[name].to_string()).collect();
        Ok(rows.iter().map(row).collect())
    };
    assert_eq!(settled(&at_rest)?, settled(&queries[0])?);
    Ok(())
}

#[test]
fn filters_columns_and_queries_agree() -> Result<()> {
    let (_origin, proxy) = start()?;
    fill(&proxy, 200)?;
    for (filter, condition, count) in [
        (&["--status", "404"][..], "status = 404", 20),
        (&["--status", "4xx"], "status / 100 = 4", 20),
        (&["--type", "image"], "type LIKE 'image/%'", 20),
        (&["--type", "text/html"], "type = 'text/html'", 160),
        (&["--fresh"], "is_fresh", 200),
        (&["--stale"], "NOT is_fresh", 0),
        (&["--site", "site3.example"], "site = 'site3.example'", 20),
        (
            &["--tag", "pages"],
            "number IN (SELECT entry FROM tags WHERE tag = 'pages')",
            160,
        ),
    ] {
        let words = [&["ls", "--columns", "key"], filter].concat();
        let listed = said(&proxy, &words)?.lines().count();
        assert_eq!(listed, count, "{filter:?}");
        let all = "SELECT count(*) AS n FROM entries";
        let query = format!("{all} WHERE {condition}");
        let asked = said(&proxy, &["sql", &query, "--csv"])?;
        assert_eq!(asked, format!("n\n{count}\n"), "{condition}");
        let words = [&["sql", all, "--csv"], filter].concat();
        assert_eq!(said(&proxy, &words)?, format!("n\n{count}\n"), "{filter:?}");
    }
    let columns = "url,type,status";
    let shown = said(
        &proxy,
        &[
            "ls",
            "--columns",
            columns,
            "--type",
            "image",
            "--limit",
            "1",
        ],
    )?;
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert!(
        words[0].starts_with("//site") && words[0].contains(".example/image/"),
        "{shown}"
    );
    assert_eq!(words[1..], ["image/png", "200"]);
    let refused = command(proxy.dir(), &["sql", "DELETE FROM entries"])?.output()?;
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr)?.contains("only SELECT is answered"));
    Ok(())
}

/// Names in a folder.
fn names(dir: &Path) -> Result<Vec<PathBuf>> {
    let names = fs::read_dir(dir)?.map(|file| Ok(file?.path()));
    names.collect()
}

#[test]
fn an_export_that_is_stopped_leaves_what_was_there() -> Result<()> {
    // A process that begins a list and never ends it.
    let dir = tempfile::tempdir()?;
    let path = dir.path().display();
    let conf = format!(
        "control unix:{path}/socket; events {{}}
         http {{ proxy_cache_path {path}/z keys_zone=z:1m; }}"
    );
    fs::write(dir.path().join("nginx.conf"), conf)?;
    let listener = UnixListener::bind(dir.path().join("socket"))?;
    let (begun, has_begun) = mpsc::channel();
    std::thread::spawn(move || begin_a_list(&listener, &begun));
    let out = dir.path().join("out");
    fs::create_dir(&out)?;
    let file = out.join("catalogue.db");
    fs::write(&file, "before")?;
    let words = ["export", "--sqlite", file.to_str().context("a path")?];
    let mut export = command(dir.path(), &words)?.stderr(Stdio::null()).spawn()?;
    let _list = has_begun.recv_timeout(WAIT).context("it begins")??;
    assert_eq!(names(&out)?.len(), 2);
    let pid = Pid::from_raw(i32::try_from(export.id())?).context("a process")?;
    kill_process(pid, Signal::INT)?;
    assert_eq!(export.wait()?.code(), Some(130));
    assert_eq!(names(&out)?, std::slice::from_ref(&file));
    assert_eq!(fs::read(&file)?, b"before");
    Ok(())
}

/// Serves the facts of a zone, and the beginning of the list of its entries; the list goes on as
/// long as the stream that is sent lives.
fn begin_a_list(listener: &UnixListener, begun: &mpsc::Sender<Result<UnixStream>>) {
    let serve = || -> Result<UnixStream> {
        let zone = format!(
            "{{\"name\":\"z\",\"path\":\"{}\",\"is_running\":true,\"records\":9,\"bytes\":9,\
             \"live_bytes\":9,\
             \"max_size\":null,\"index_bytes\":9,\"purges\":0,\"inactive\":9,\"disks\":[],\
             \"live\":null}}",
            dir_of(listener)?.join("z").display()
        );
        let report = format!(
            "{{\"version\":\"0\",\"pid\":1,\"zones\":[{zone}],\"answers\":null,\"hit_ratio\":null}}"
        );
        let mut request = [0; 4096];
        let (mut stream, _) = listener.accept()?;
        ensure!(stream.read(&mut request)? > 0);
        let length = report.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{report}"
        )?;
        let (mut stream, _) = listener.accept()?;
        ensure!(stream.read(&mut request)? > 0);
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        )?;
        Ok(stream)
    };
    // Whoever waits has given up otherwise.
    let _ = begun.send(serve());
}

fn dir_of(listener: &UnixListener) -> Result<PathBuf> {
    let address = listener.local_addr()?;
    let path = address.as_pathname().context("a path")?;
    Ok(path.parent().context("a folder")?.to_path_buf())
}
