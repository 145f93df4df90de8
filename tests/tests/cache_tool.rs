//! `millpond cache` and the control socket: what is listed is what is stored, whether a process
//! serves it or not; looking changes nothing; a purge holds.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, Ranges, Request, binary,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);

const CONF: &str = "
%%GLOBALS%%
%%CONTROL%%
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/pond keys_zone=pond:1m max_size=200m inactive=1d;
    proxy_cache_path %%DIR%%/lake keys_zone=lake:1m max_size=200m inactive=1d;
    proxy_cache_valid 200 1h;
    add_header X-Cache $upstream_cache_status always;
    proxy_cache_key $host$uri;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name shop;
        proxy_cache_tag $upstream_http_xkey;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache pond; }
        location /video/ { proxy_pass http://%%ORIGIN%%; proxy_cache pond; slice 64k; }
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name blog;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache lake; }
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name keyed;
        proxy_cache_key $scheme://$host$uri;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache lake; }
    }
}
";

struct Bench {
    _origin: Origin,
    proxy: Proxy,
    client: Client,
}

impl Bench {
    fn start() -> Result<Bench> {
        Bench::start_with("", LogCheck::On)
    }

    fn start_with(control: &str, log_check: LogCheck) -> Result<Bench> {
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).body("page").header("xkey", "all"));
        origin.route("/large", Answer::new(200).offset_body(300_000, 1));
        let varies = Answer::new(200).body("varies").header("Vary", "Accept");
        origin.route("/varies", varies);
        let video = Answer::new(200)
            .offset_body(1_000_000, 2)
            .etag("\"v\"")
            .ranges(Ranges::Supported);
        origin.route("/video/*", video);
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .origin(&origin)
            .value("CONTROL", control)
            .log_check(log_check)
            .start()?;
        Ok(Bench {
            client: Client::new(proxy.port()),
            _origin: origin,
            proxy,
        })
    }

    fn get(&self, host: &str, path: &str, fields: &[(&str, &str)]) -> Result<String> {
        let request = Request::get(path).host(host);
        let request = fields.iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let response = self.client.send(&request)?;
        Ok(response.header("X-Cache").context("a label")?.to_string())
    }

    /// Pages, a large one, two variants and two slices.
    fn fill(&self) -> Result<()> {
        for number in 0..10 {
            self.get("shop", &format!("/page/{number}"), &[])?;
            self.get("blog", &format!("/page/{number}"), &[])?;
        }
        self.get("shop", "/page/3", &[])?;
        self.get("shop", "/large", &[])?;
        self.get("shop", "/varies", &[("Accept", "text/html")])?;
        self.get("shop", "/varies", &[("Accept", "image/png")])?;
        for range in ["bytes=0-9", "bytes=200000-200009"] {
            self.get("shop", "/video/a", &[("Range", range)])?;
        }
        // Who was answered with the first bytes of a slice does not wait for the rest of it.
        let are_whole = || {
            let shown = self.said(&["show", "shop/video/a"]).ok()?;
            let is_whole = shown.contains("held      0-65535 196608-262143");
            let listed = self.keys(&[]).ok()?;
            (is_whole && listed.len() == 24).then_some(())
        };
        Deadline::after(WAIT)
            .poll(are_whole)
            .context("all is stored")
    }

    fn cache(&self, words: &[&str]) -> Result<Output> {
        cache(self.proxy.dir(), words)
    }

    fn said(&self, words: &[&str]) -> Result<String> {
        let output = self.cache(words)?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{words:?}: {error}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The keys of a list, in order.
    fn keys(&self, words: &[&str]) -> Result<Vec<String>> {
        let words: Vec<&str> = ["ls", "--json"].iter().chain(words).copied().collect();
        let mut keys: Vec<String> = rows(&self.said(&words)?)?
            .iter()
            .map(|row| row["key"].as_str().unwrap_or_default().to_string())
            .collect();
        if !words.contains(&"--sort") {
            keys.sort();
        }
        Ok(keys)
    }

    /// Every byte of both zones.
    fn snapshot(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut files = BTreeMap::new();
        for zone in ["pond", "lake"] {
            for file in fs::read_dir(self.proxy.dir().join(zone))? {
                let path = file?.path();
                files.insert(path.display().to_string(), fs::read(path)?);
            }
        }
        Ok(files)
    }
}

fn cache(dir: &Path, words: &[&str]) -> Result<Output> {
    let binary = binary(Kind::Millpond).context("the binary")?;
    let mut command = Command::new(binary);
    command.arg("cache").args(words).arg("-p").arg(dir);
    command.arg("-c").arg(dir.join("nginx.conf"));
    Ok(command.output()?)
}

fn rows(text: &str) -> Result<Vec<Value>> {
    text.lines()
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
}

/// Lists without what may differ between two moments.
fn settled(text: &str) -> Result<Vec<String>> {
    let mut rows = rows(text)?;
    for row in &mut rows {
        let row = row.as_object_mut().context("an object")?;
        row.remove("hits");
        row.remove("used");
        if let Some(detail) = row.get_mut("detail").and_then(Value::as_object_mut) {
            detail.remove("age");
        }
    }
    let mut lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    lines.sort();
    Ok(lines)
}

#[test]
fn a_running_process_and_its_store_at_rest_say_the_same() -> Result<()> {
    let mut bench = Bench::start()?;
    bench.fill()?;
    let commands: [&[&str]; 4] = [
        &["ls", "--json"],
        &["export"],
        &["ls", "--json", "--site", "blog", "--zone", "lake"],
        &["verify", "--json"],
    ];
    let mut running = Vec::new();
    for words in commands {
        running.push(settled(&bench.said(words)?)?);
    }
    // Ten pages of each site, a large one, two variants, and the slices of one video.
    assert_eq!(running[0].len(), 24, "{:#?}", running[0]);
    assert_eq!(running[2].len(), 10);
    let shown = bench.said(&["show", "shop/video/a"])?;
    assert!(shown.contains("held      0-65535 196608-262143"), "{shown}");
    let stat: Value = serde_json::from_str(&bench.said(&["stat", "--json"])?)?;
    assert_eq!(stat["pid"], bench.proxy.pid().context("a process")?);
    assert_eq!(stat["answers"]["HIT"]["requests"], 1);
    bench.proxy.quit()?;
    for (words, running) in commands.iter().zip(&running) {
        assert_eq!(&settled(&bench.said(words)?)?, running, "{words:?}");
        let noted = String::from_utf8(bench.cache(words)?.stderr)?;
        assert_eq!(noted, "", "{words:?}");
    }
    assert!(
        bench
            .said(&["show", "shop/video/a"])?
            .contains("held      0-65535 196608")
    );
    let stat: Value = serde_json::from_str(&bench.said(&["stat", "--json"])?)?;
    assert_eq!(stat["pid"], Value::Null);
    assert_eq!(stat["zones"][1]["is_running"], false);
    Ok(())
}

#[test]
fn lists_are_filtered_and_put_in_order() -> Result<()> {
    let bench = Bench::start()?;
    bench.fill()?;
    let table: [(&[&str], usize); 14] = [
        (&[], 24),
        (&["--zone", "pond"], 14),
        (&["--site", "shop"], 14),
        (&["--host", "blog"], 10),
        (&["--tag", "all"], 10),
        (&["--prefix", "shop/p"], 10),
        (&["--prefix", "shop/page/1", "--site", "blog"], 0),
        (&["--larger", "100k"], 2),
        (&["--larger", "200k"], 1),
        (&["--smaller", "100"], 22),
        (&["--older", "1h"], 0),
        (&["--newer", "1h"], 24),
        (&["--unused", "1h"], 0),
        (&["--limit", "3"], 3),
    ];
    for (filter, count) in table {
        assert_eq!(bench.keys(filter)?.len(), count, "{filter:?}");
    }
    assert_eq!(
        bench.keys(&["--hits", "1", "--tag", "all"])?,
        ["shop/page/3"]
    );
    assert_eq!(bench.keys(&["--no-hits", "--tag", "all"])?.len(), 9);
    let largest = bench.keys(&["--sort", "size", "--limit", "2"])?;
    assert_eq!(largest, ["shop/large", "shop/video/a"]);
    let last = bench.keys(&["--sort", "key", "--reverse", "--limit", "1"])?;
    assert_eq!(last, ["shop/video/a"]);
    // A line for each, nothing else, when nobody looks.
    let text = bench.said(&["ls", "--prefix", "shop/page"])?;
    let is_row = |line: &str| line.contains(" 200 shop ") && !line.contains('\u{1b}');
    assert_eq!(
        text.lines().filter(|line| is_row(line)).count(),
        10,
        "{text}"
    );
    Ok(())
}

#[test]
fn all_of_an_entry_is_shown_by_key_id_and_url() -> Result<()> {
    let bench = Bench::start()?;
    bench.fill()?;
    let url = format!("http://shop:{}/varies", bench.proxy.port());
    let by_key = bench.said(&["show", "shop/varies"])?;
    for text in [
        "image/png",
        "text/html",
        "status    200",
        "xkey",
        "Vary: Accept",
        "fresh     for",
    ] {
        assert_eq!(by_key.contains(text), text != "xkey", "{text}: {by_key}");
    }
    assert!(bench.said(&["show", &url])?.contains("image/png"));
    let json: Value = serde_json::from_str(&bench.said(&["show", "shop/large", "--json"])?)?;
    let entry = &json["entries"][0];
    assert_eq!(entry["length"], 300_000);
    let id = entry["id"].as_str().context("an id")?;
    assert!(bench.said(&["show", id])?.starts_with("shop/large\n"));
    let absent = bench.cache(&["show", "shop/absent"])?;
    assert_eq!(absent.status.code(), Some(1));
    Ok(())
}

#[test]
fn a_purge_by_the_tool_holds_while_a_process_serves_and_at_rest() -> Result<()> {
    let mut bench = Bench::start()?;
    bench.fill()?;
    let said = bench.said(&["purge", "--prefix", "shop/page/1", "--dry-run"])?;
    assert!(
        said.contains("pond: prefix \"shop/page/1\": 1 entry would be purged"),
        "{said}"
    );
    assert_eq!(bench.get("shop", "/page/1", &[])?, "HIT");
    let said = bench.said(&["purge", "shop/page/1"])?;
    assert!(
        said.contains("pond: exact \"shop/page/1\": 1 entry purged"),
        "{said}"
    );
    assert_eq!(bench.get("shop", "/page/1", &[])?, "MISS");
    let url = format!("http://shop:{}/page/2", bench.proxy.port());
    bench.said(&["purge", &url])?;
    assert_eq!(bench.get("shop", "/page/2", &[])?, "MISS");
    assert_eq!(bench.cache(&["purge", "nothing"])?.status.code(), Some(1));
    assert_eq!(bench.cache(&["purge", "--all"])?.status.code(), Some(2));
    assert!(bench.proxy.error_log().contains("by the control socket"));

    bench.proxy.quit()?;
    bench.said(&["purge", "--site", "blog"])?;
    bench.said(&["purge", "shop/large"])?;
    assert_eq!(bench.keys(&["--zone", "lake"])?.len(), 0);
    assert_eq!(bench.keys(&["--zone", "pond"])?.len(), 13);
    bench.proxy.restart()?;
    assert_eq!(bench.get("blog", "/page/1", &[])?, "MISS");
    assert_eq!(bench.get("shop", "/large", &[])?, "MISS");
    assert_eq!(bench.get("shop", "/page/1", &[])?, "HIT");
    bench.said(&["purge", "--all", "--zone", "pond", "--soft"])?;
    assert_eq!(bench.get("shop", "/page/1", &[])?, "EXPIRED");
    // A key that reads like a URL, where nothing listens.
    assert_eq!(bench.get("keyed", "/page/1", &[])?, "MISS");
    bench.said(&["purge", "http://keyed/page/1"])?;
    assert_eq!(bench.get("keyed", "/page/1", &[])?, "MISS");
    Ok(())
}

/// Bytes that live in a zone are told apart from what its files take, which stay until a segment
/// goes.
#[test]
fn live_bytes_are_told_apart_from_those_of_files() -> Result<()> {
    let bench = Bench::start()?;
    bench.fill()?;
    let look = || -> Result<(u64, u64)> {
        let said = bench.said(&["stat", "--json", "--zone", "pond"])?;
        let said: serde_json::Value = serde_json::from_str(&said)?;
        let zone = &said["zones"][0];
        let number = |name: &str| zone[name].as_u64().context("a number");
        let sum = zone["disks"].as_array().context("disks")?.iter();
        let sum: u64 = sum.filter_map(|disk| disk["live_bytes"].as_u64()).sum();
        ensure!(sum == number("live_bytes")?, "{zone}");
        Ok((number("live_bytes")?, number("bytes")?))
    };
    let held = || -> Result<u64> {
        let said = bench.said(&["stat", "--sites", "--json", "--zone", "pond"])?;
        let said: serde_json::Value = serde_json::from_str(&said)?;
        let sites = said["zones"][0]["sites"].as_array().context("sites")?;
        Ok(sites.iter().filter_map(|site| site["bytes"].as_u64()).sum())
    };
    let (live, files) = look()?;
    assert!(live > 0 && live < files, "{live} of {files}");
    assert_eq!(live, held()?);
    bench.said(&["purge", "shop/large"])?;
    let is_less = || look().ok().filter(|(now, _)| *now < live);
    let (_, now) = Deadline::after(WAIT).poll(is_less).context("less lives")?;
    assert_eq!(now, files);
    let said = bench.said(&["stat", "--zone", "pond"])?;
    ensure!(said.contains("  live      "), "{said}");
    Ok(())
}

#[test]
fn looking_at_a_store_that_was_not_closed_leaves_every_byte() -> Result<()> {
    let mut bench = Bench::start()?;
    bench.fill()?;
    let running = bench.keys(&[])?;
    // Entries are found before they are written; this waits until they are.
    let written = Deadline::after(WAIT).poll(|| {
        let stat = bench.said(&["stat", "--json"]).ok()?;
        let stat: Value = serde_json::from_str(&stat).ok()?;
        let zones = stat["zones"].as_array()?.clone();
        let is_written = |zone: &Value| zone["live"]["queued_bytes"] == 0;
        zones.iter().all(is_written).then_some(())
    });
    written.context("bytes wait for the disk")?;
    bench.proxy.kill9()?;
    let before = bench.snapshot()?;
    assert_eq!(bench.keys(&[])?, running);
    for words in [
        &["verify"][..],
        &["stat"],
        &["export"],
        &["show", "shop/large"],
    ] {
        bench.said(words)?;
    }
    bench.said(&["purge", "--prefix", "shop", "--dry-run"])?;
    assert!(bench.snapshot()? == before, "something changed");
    // The socket that the process left does not keep another from starting.
    bench.proxy.restart()?;
    assert_eq!(bench.get("shop", "/large", &[])?, "HIT");
    assert_eq!(bench.keys(&[])?, running);
    Ok(())
}

#[test]
fn a_zone_on_several_disks_is_one_zone() -> Result<()> {
    let bench = Bench::start()?;
    let mut proxy = bench.proxy;
    let disks = "max_size=200m inactive=1d disk=%%DIR%%/second";
    let conf = CONF.replace("%%CONTROL%%", "");
    proxy.set_conf(&conf.replacen("max_size=200m inactive=1d", disks, 1))?;
    proxy.restart()?;
    let mut bench = Bench { proxy, ..bench };
    bench.fill()?;
    let listed = bench.keys(&["--zone", "pond"])?;
    assert_eq!(listed.len(), 14);
    let on_disks = |bench: &Bench| -> Result<u64> {
        let stat: Value = serde_json::from_str(&bench.said(&["stat", "--json"])?)?;
        let disks = stat["zones"][0]["disks"].as_array().context("disks")?;
        assert_eq!(disks.len(), 2);
        for disk in disks {
            assert_eq!(disk["state"], "live", "{disk}");
            assert!(disk["records"].as_u64() > Some(0), "{disk}");
        }
        Ok(disks.iter().filter_map(|it| it["records"].as_u64()).sum())
    };
    let records = on_disks(&bench)?;
    assert!(
        bench
            .said(&["stat", "--zone", "pond"])?
            .contains("/second live, weight 1")
    );
    bench.proxy.quit()?;
    assert_eq!(bench.keys(&["--zone", "pond"])?, listed);
    assert_eq!(on_disks(&bench)?, records);
    bench.said(&["purge", "--tag", "all", "--zone", "pond"])?;
    assert_eq!(bench.keys(&["--zone", "pond"])?.len(), 4);
    bench.proxy.restart()?;
    assert_eq!(bench.keys(&["--zone", "pond"])?.len(), 4);
    assert_eq!(bench.get("shop", "/large", &[])?, "HIT");
    Ok(())
}

#[test]
fn damage_is_found_and_removed_only_when_told() -> Result<()> {
    let mut bench = Bench::start()?;
    bench.fill()?;
    bench.proxy.quit()?;
    let body = millpond_testkit::offset_bytes(100_000..101_000, 1);
    for (path, mut bytes) in bench.snapshot()? {
        let found = bytes.windows(body.len()).position(|window| window == body);
        if let Some(at) = found {
            bytes[at] ^= 1;
            fs::write(path, bytes)?;
        }
    }
    let verified = bench.cache(&["verify"])?;
    assert_eq!(verified.status.code(), Some(1));
    let said = String::from_utf8(verified.stdout)?;
    assert!(said.contains("shop/large\n") && said.contains("pond: ") && said.contains("1 corrupt"));
    assert!(
        said.contains("lake: 10 records, 40 of bodies: all sound"),
        "{said}"
    );
    assert_eq!(bench.keys(&["--larger", "250k"])?.len(), 1);
    let removed = bench.cache(&["verify", "--remove"])?;
    assert!(String::from_utf8(removed.stdout)?.contains("1 corrupt and removed"));
    assert!(bench.said(&["verify"])?.contains("pond: "));
    assert_eq!(bench.keys(&["--larger", "250k"])?.len(), 0);
    Ok(())
}

#[test]
fn the_socket_is_private_follows_reloads_and_goes_at_the_end() -> Result<()> {
    let mut bench = Bench::start()?;
    let dir = bench.proxy.dir().to_path_buf();
    let usual = dir.join("server.control");
    let mode = fs::metadata(&usual)?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let said = ask(&usual, "GET /api/millpond/1/zones/pond")?;
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.contains("\"name\":\"pond\""));
    for (request, status) in [
        ("GET /", 404),
        ("GET /api/millpond/1/zones/none", 404),
        ("GET /api/millpond/1/zones/pond/entries?colour=red", 400),
        ("GET /api/millpond/1/zones/pond/purge?type=all", 405),
        ("POST /api/millpond/1/zones/pond/purge", 400),
        (
            "POST /api/millpond/1/zones/pond/purge?type=every&what=x",
            400,
        ),
        ("DELETE /api/millpond/1/", 405),
    ] {
        let said = ask(&usual, request)?;
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {said}"
        );
        assert!(said.contains("{\"error\":"), "{request}: {said}");
    }
    let moved = dir.join("moved");
    let conf = CONF.replace("%%CONTROL%%", "control unix:moved;");
    bench.proxy.set_conf(&conf)?;
    bench.proxy.reload()?;
    let has_moved = || (moved.exists() && !usual.exists()).then_some(());
    Deadline::after(WAIT).poll(has_moved).context("it moves")?;
    bench.get("shop", "/page/1", &[])?;
    assert_eq!(bench.keys(&[])?, ["shop/page/1"]);
    bench
        .proxy
        .set_conf(&CONF.replace("%%CONTROL%%", "control off;"))?;
    bench.proxy.reload()?;
    let is_gone = || (!moved.exists()).then_some(());
    Deadline::after(WAIT).poll(is_gone).context("it goes")?;
    let listed = bench.cache(&["ls"])?;
    assert_eq!(listed.status.code(), Some(2));
    let said = String::from_utf8(listed.stderr)?;
    assert!(
        said.contains("is in use by a process, and \"control\" is off"),
        "{said}"
    );
    bench.proxy.set_conf(&conf)?;
    bench.proxy.restart()?;
    assert!(moved.exists());
    bench.proxy.quit()?;
    assert!(!moved.exists());
    Ok(())
}

/// Sends a request line, and reads the whole answer.
fn ask(socket: &Path, line: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(WAIT))?;
    write!(stream, "{line} HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

#[test]
fn the_socket_of_another_process_is_left_to_it() -> Result<()> {
    let other = tempfile::tempdir()?;
    let path = other.path().join("taken");
    let listener = UnixListener::bind(&path)?;
    let control = format!("control unix:{};", path.display());
    let Err(refused) = Bench::start_with(&control, LogCheck::Off) else {
        anyhow::bail!("it started");
    };
    let said = format!("{refused:#}");
    assert!(
        said.contains("bind() to unix:") && said.contains("in use"),
        "{said}"
    );
    // A reload that wants it changes nothing.
    let bench = Bench::start_with("", LogCheck::Off)?;
    let mut proxy = bench.proxy;
    proxy.set_conf(&CONF.replace("%%CONTROL%%", &control))?;
    proxy.reload()?;
    let is_told = || proxy.error_log().contains("bind() to unix:").then_some(());
    Deadline::after(WAIT).poll(is_told).context("it is told")?;
    assert!(proxy.dir().join("server.control").exists());
    assert_eq!(
        bench.client.send(&Request::get("/a").host("shop"))?.status,
        200
    );
    // Nobody listens any more: what is left is replaced.
    drop(listener);
    proxy.reload()?;
    let has_moved = || (!proxy.dir().join("server.control").exists()).then_some(());
    Deadline::after(WAIT).poll(has_moved).context("it moves")?;
    assert!(ask(&path, "GET /api/millpond/1/")?.contains("\"pond\""));
    Ok(())
}

#[test]
fn a_changed_binary_takes_the_socket_over() -> Result<()> {
    let mut bench = Bench::start()?;
    bench.fill()?;
    let listed = bench.keys(&[])?;
    let old = bench.proxy.pid().context("a process")?;
    bench.proxy.signal(Signal::USR2)?;
    let pid_file = bench.proxy.dir().join("server.pid");
    let new = Deadline::after(WAIT).poll(|| {
        let pid: i32 = fs::read_to_string(&pid_file).ok()?.trim().parse().ok()?;
        Pid::from_raw(pid).filter(|_| u32::try_from(pid).ok() != Some(old))
    });
    let new = Successor(new.context("a successor")?);
    assert_eq!(bench.keys(&[])?, listed);
    let process = |bench: &Bench| -> Result<Value> {
        let stat: Value = serde_json::from_str(&bench.said(&["stat", "--json"])?)?;
        Ok(stat["pid"].clone())
    };
    assert_eq!(process(&bench)?, new.0.as_raw_nonzero().get());
    bench.proxy.quit()?;
    assert_eq!(process(&bench)?, new.0.as_raw_nonzero().get());
    kill_process(new.0, Signal::TERM)?;
    let socket = bench.proxy.dir().join("server.control");
    let is_gone = || (!socket.exists()).then_some(());
    Deadline::after(WAIT).poll(is_gone).context("it goes")?;
    Ok(())
}

/// Ends the process with itself.
struct Successor(Pid);

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have ended.
        let _gone = kill_process(self.0, Signal::KILL);
    }
}

#[test]
fn what_cannot_be_done_is_said() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let conf = |text: &str| fs::write(dir.path().join("nginx.conf"), text);
    let path = dir.path().display();
    let run = |words: &[&str]| -> Result<(Option<i32>, String)> {
        let output = cache(dir.path(), words)?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    for (text, words, expected) in [
        ("events {}", &["ls"][..], "no zone"),
        ("events {", &["ls"], "millpond check"),
        ("", &["list"], "usage: millpond cache"),
        ("", &["ls", "--colour"], "invalid option: \"--colour\""),
        ("", &["ls", "--older", "soon"], "write a time"),
        ("zone", &["ls"], "there is no store in"),
        ("zone", &["ls", "--zone", "y"], "no zone \"y\"; there is: z"),
        ("zone", &["purge", "--all"], "there is no store in"),
        ("zone", &["verify", "--remove"], "there is no store in"),
    ] {
        let zone = format!("events {{}} http {{ proxy_cache_path {path}/z keys_zone=z:1m; }}");
        let text = if text == "zone" {
            zone
        } else {
            text.to_string()
        };
        conf(&format!("pid {path}/x.pid; {text}"))?;
        let (code, said) = run(words)?;
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
    assert!(!dir.path().join("z").exists());
    let help = cache(dir.path(), &["--help"])?;
    assert!(help.status.success() && help.stdout.starts_with(b"usage: millpond cache"));
    Ok(())
}
