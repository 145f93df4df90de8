//! Content and bills of sites: after everything that may happen in a day, the statistics, the logs,
//! the list of entries and the clients' own account say the same.
//!
//! A longer day than the one of each build: `CDN_DAY_HOURS=100 CDN_DAY_SITES=300` (or more) in the
//! environment. `SEED=n` replays one.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, Ranges, Recorded, Request, binary,
    sites_in_answer, sites_in_file,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

const CONF: &str = r#"
%%GLOBALS%%
worker_processes 2;
control unix:%%DIR%%/control;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/a keys_zone=z:1m %%ZONE%% disk=%%DIR%%/b;
    proxy_cache_valid 200 1d;
    proxy_cache_key $host$uri;
    proxy_set_header Host $host;
    add_header X-Cache $upstream_cache_status always;
    log_format bill "$cache_site $upstream_cache_status $body_bytes_sent";
    log_format asked "$cache_site $upstream_bytes_received $upstream_bytes_sent";
    upstream_log %%DIR%%/asked.log asked;
    server {
        listen 127.0.0.1:%%PORT%%;
        # Customers have names; others are counted by themselves once something is stored.
        server_name %%SITES%%;
        cache_site $host;
        access_log %%DIR%%/bill.log bill;
        location / { proxy_pass http://%%ORIGIN%%; proxy_cache z; }
        location /free/ { proxy_pass http://%%ORIGIN%%; }
        location /video/ { proxy_pass http://%%ORIGIN%%; proxy_cache z; slice 16k; }
    }
}
"#;

const VIDEO: u64 = 100_000;

/// Counts that a site is billed for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bill {
    requests: u64,
    bytes: u64,
    hits: u64,
    hit_bytes: u64,
}

/// Counts of the requests to a site's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asked {
    requests: u64,
    received: u64,
    sent: u64,
}

/// Counts of what a site holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    entries: u64,
    body_bytes: u64,
}

/// Statistics of a site.
#[derive(Clone, Debug, Default)]
struct Site {
    bill: Bill,
    asked: Asked,
    held: Held,
    removed: BTreeMap<String, u64>,
}

type BySite<T> = BTreeMap<String, T>;

/// A small generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

struct Bench {
    origin: Origin,
    proxy: Proxy,
}

impl Bench {
    fn start(zone: &str) -> Result<Bench> {
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).offset_body(3000, 1));
        let video = Answer::new(200)
            .offset_body(VIDEO, 2)
            .etag("\"v\"")
            .ranges(Ranges::Supported);
        origin.route("/video/*", video);
        let most = from_environment("CDN_DAY_SITES", 300);
        let sites: Vec<String> = (0..most).map(|it| format!("site{it}.example")).collect();
        let sites = sites.join(" ");
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .origin(&origin)
            .value("ZONE", zone)
            .value("SITES", &sites)
            .log_check(LogCheck::Off)
            .start()?;
        Ok(Bench { origin, proxy })
    }

    fn get(&self, site: &str, path: &str) -> Result<()> {
        let response = Client::new(self.proxy.port()).send(&Request::get(path).host(site))?;
        ensure!(response.status == 200, "{site}{path}: {}", response.status);
        Ok(())
    }

    fn api(&self, method: &str, what: &str) -> Result<Value> {
        let mut stream = UnixStream::connect(self.proxy.dir().join("control"))?;
        let ask = format!(
            "{method} /api/millpond/1/{what} HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(ask.as_bytes())?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        ensure!(said.starts_with("HTTP/1.1 200"), "{what}: {said}");
        let start = said.find('{').context("a body")?;
        Ok(serde_json::from_str(&said[start..])?)
    }

    /// Statistics of all sites.
    fn sites(&self) -> Result<BySite<Site>> {
        let said = self.api("GET", "sites")?;
        let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
        let or_none = |value: &Value| value.as_u64().unwrap_or(0);
        let mut sites = BySite::new();
        for site in said["sites"].as_array().context("sites")? {
            let held = &site["held"];
            let on_disks = site["disks"].as_array().context("disks")?;
            let sum = |name: &str| on_disks.iter().map(|disk| number(&disk[name])).sum::<u64>();
            for name in ["entries", "slices", "bytes", "body_bytes"] {
                ensure!(number(&held[name]) == sum(name), "{name} of disks: {site}");
            }
            let removed = site["removed"].as_object().context("removed")?;
            let name = site["site"].as_str().context("a name")?;
            let found = Site {
                bill: Bill {
                    requests: number(&site["requests"]),
                    bytes: number(&site["bytes"]),
                    hits: or_none(&site["answers"]["HIT"]["requests"]),
                    hit_bytes: or_none(&site["answers"]["HIT"]["bytes"]),
                },
                asked: Asked {
                    requests: number(&site["origin"]["requests"]),
                    received: number(&site["origin"]["received"]),
                    sent: number(&site["origin"]["sent"]),
                },
                held: Held {
                    entries: number(&held["entries"]),
                    body_bytes: number(&held["body_bytes"]),
                },
                removed: removed
                    .iter()
                    .map(|(why, count)| (why.clone(), number(count)))
                    .collect(),
            };
            sites.insert(name.to_string(), found);
        }
        Ok(sites)
    }

    fn site(&self, name: &str) -> Result<Site> {
        Ok(self.sites()?.remove(name).unwrap_or_default())
    }

    fn cache(&self, words: &[&str]) -> Result<String> {
        let output = Command::new(binary(Kind::Millpond).context("the binary")?)
            .args(["cache"])
            .args(words)
            .arg("-c")
            .arg(self.proxy.dir().join("nginx.conf"))
            .output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {error}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Sums of a list of all entries.
    fn listed(&self) -> Result<BySite<Held>> {
        let mut sites = BySite::<Held>::new();
        for line in self.cache(&["ls", "--json"])?.lines() {
            let entry: Value = serde_json::from_str(line)?;
            let name = entry["site"].as_str().context("a site")?;
            let held = sites.entry(name.to_string()).or_default();
            held.entries += 1;
            held.body_bytes += entry["held"].as_u64().context("a size")?;
        }
        Ok(sites)
    }

    /// Waits until the statistics say of what is held the same as a list.
    fn settle_held(&self) -> Result<BySite<Held>> {
        let mut last = None;
        let is_same = || {
            let counted = self.sites().ok()?.into_iter();
            let counted = counted.map(|(name, site)| (name, site.held));
            let counted: BySite<Held> = counted.filter(|it| it.1 != Held::default()).collect();
            let listed = self.listed().ok()?;
            last = Some((counted.clone(), listed.clone()));
            (counted == listed).then_some(counted)
        };
        let settled = Deadline::after(WAIT).poll(is_same);
        settled.with_context(|| format!("counted, listed: {last:?}"))
    }

    /// Waits until a site holds so much.
    fn settle(&self, site: &str, expected: Held) -> Result<()> {
        let held = || (self.site(site).ok()?.held == expected).then_some(());
        let settled = Deadline::after(WAIT).poll(held);
        settled.with_context(|| format!("{:?} instead of {expected:?}", self.site(site)))?;
        let listed = self.settle_held()?;
        ensure!(listed.get(site).copied().unwrap_or_default() == expected);
        Ok(())
    }

    /// Waits until all that was counted is in the file of the counters.
    fn settle_file(&self) -> Result<()> {
        let file = self.proxy.dir().join("a.sites");
        let mut last = None;
        let is_written = || {
            let counted = sites_in_answer(&self.api("GET", "sites").ok()?);
            let written = sites_in_file(&file).ok()?;
            let is_same = counted == written;
            last = Some((counted, written));
            is_same.then_some(())
        };
        let settled = Deadline::after(WAIT).poll(is_written);
        settled.with_context(|| format!("counted, written: {last:?}"))
    }
}

/// Right after filling, after a restart, after a purge, after `inactive`.
#[test]
fn a_site_holds_what_its_entries_add_up_to() -> Result<()> {
    let mut bench = Bench::start("max_size=100m inactive=1d")?;
    for number in 0..10 {
        bench.get("one.example", &format!("/{number}"))?;
        bench.get("two.example", &format!("/{number}"))?;
    }
    bench.get("two.example", "/video/a")?;
    let held = |entries, body_bytes| Held {
        entries,
        body_bytes,
    };
    bench.settle("one.example", held(10, 30_000))?;
    bench.settle("two.example", held(11, 130_000))?;
    bench.proxy.quit()?;
    let said = bench.cache(&["stat", "--sites", "--json"])?;
    let said: Value = serde_json::from_str(&said)?;
    let sites = said["zones"][0]["sites"].as_array().context("sites")?;
    let names: Vec<&str> = sites.iter().filter_map(|it| it["site"].as_str()).collect();
    ensure!(names == ["two.example", "one.example"], "{said}");
    ensure!(
        sites[0]["entries"] == 11 && sites[0]["slices"] == 7,
        "{said}"
    );
    ensure!(sites[0]["body_bytes"] == 130_000, "{said}");
    bench.proxy.restart()?;
    bench.settle("one.example", held(10, 30_000))?;
    bench.settle("two.example", held(11, 130_000))?;
    let purge = "zones/z/purge?type=site&what=one.example";
    ensure!(bench.api("POST", purge)?["zone"] == "z");
    bench.settle("one.example", Held::default())?;
    bench.settle("two.example", held(11, 130_000))?;
    ensure!(bench.site("one.example")?.removed["purged"] == 10);
    let short = CONF.replace("%%ZONE%%", "max_size=100m inactive=1s");
    bench.proxy.set_conf(&short)?;
    bench.proxy.reload()?;
    bench.settle("two.example", Held::default())?;
    // The counters of what left outlive the process.
    bench.proxy.quit()?;
    bench.proxy.restart()?;
    let (one, two) = (bench.site("one.example")?, bench.site("two.example")?);
    ensure!((one.removed["purged"], one.removed["inactive"]) == (10, 0));
    ensure!((two.removed["purged"], two.removed["inactive"]) == (0, 11));
    let text = bench.cache(&["stat", "--sites"])?;
    ensure!(text.contains("0 sites"), "{text}");
    bench.proxy.quit()
}

/// After more came than the zone has room for.
#[test]
fn a_zone_that_is_too_small_counts_what_is_left() -> Result<()> {
    let mut bench = Bench::start("max_size=4m inactive=1d admission=all")?;
    let client = Client::new(bench.proxy.port());
    for part in 0..4 {
        let mut connection = client.connect()?;
        for number in 0..500 {
            let site = format!("site{}.example", number % 5);
            let request = Request::get(&format!("/{part}/{number}")).host(&site);
            ensure!(connection.exchange(&request)?.status == 200);
        }
    }
    bench.settle_held()?;
    let (mut left, mut evicted, mut refused) = (0, 0, 0);
    for site in bench.sites()?.into_values() {
        left += site.held.entries;
        evicted += site.removed["evicted"];
        refused += site.removed["lost"];
    }
    ensure!(
        left + evicted + refused <= 2000,
        "{left} {evicted} {refused}"
    );
    ensure!(left > 100 && evicted > 100, "{left} {evicted} {refused}");
    bench.proxy.quit()
}

/// Slices go with their entries: with those that are evicted or replaced, over restarts and
/// crashes.
#[test]
fn no_slice_counts_whose_entry_is_gone() -> Result<()> {
    let mut bench = Bench::start("max_size=4m inactive=1d admission=all")?;
    let mut dice = Dice(7);
    let mut watch = |bench: &Bench, videos: std::ops::Range<u64>| -> Result<()> {
        let client = Client::new(bench.proxy.port());
        for number in videos {
            let start = dice.roll(VIDEO - 1);
            let end = (start + dice.roll(40_000)).min(VIDEO - 1);
            let request = Request::get(&format!("/video/{number}"))
                .host(&format!("site{}.example", number % 3))
                .header("Range", &format!("bytes={start}-{end}"));
            // One that had begun when the version changed is cut off.
            let _ = client.send(&request);
        }
        Ok(())
    };
    watch(&bench, 0..200)?;
    let held = bench.settle_held()?;
    ensure!(held.values().all(|it| it.body_bytes > 0) && held.len() == 3);
    let evicted: u64 = bench
        .sites()?
        .values()
        .map(|it| it.removed["evicted"])
        .sum();
    ensure!(evicted > 20, "{evicted}");
    // Another version: parts of entries are asked for that are not held.
    let video = Answer::new(200)
        .offset_body(VIDEO, 3)
        .etag("\"w\"")
        .ranges(Ranges::Supported);
    bench.origin.route("/video/*", video);
    watch(&bench, 180..200)?;
    watch(&bench, 180..200)?;
    bench.settle_held()?;
    bench.proxy.quit()?;
    bench.proxy.restart()?;
    bench.settle_held()?;
    watch(&bench, 200..300)?;
    bench.proxy.kill9()?;
    bench.proxy.restart()?;
    bench.settle_held()?;
    bench.proxy.quit()
}

/// Asks for pages of sites; returns what a client got of each.
fn ask(bench: &Bench, seed: u64, (requests, sites): (u64, u64)) -> Result<BySite<Bill>> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bills = BySite::<Bill>::new();
    let mut connection = Client::new(bench.proxy.port()).connect()?;
    for _ in 0..requests {
        // Some sites have most of the visitors.
        let most = dice.roll(sites) + 1;
        let site = format!("site{}.example", dice.roll(most));
        let page = dice.roll(6);
        let request = match dice.roll(10) {
            0 => Request::get(&format!("/free/{page}")),
            1 => Request::head(&format!("/page/{page}")),
            2 | 3 => {
                let start = dice.roll(VIDEO - 1);
                let end = (start + 1 + dice.roll(40_000)).min(VIDEO - 1);
                let range = format!("bytes={start}-{end}");
                Request::get(&format!("/video/{}", page % 2)).header("Range", &range)
            }
            4 => Request::get(&format!("/video/{}", page % 2)),
            _ => Request::get(&format!("/page/{page}")),
        };
        let response = connection.exchange(&request.host(&site))?;
        ensure!(matches!(response.status, 200 | 206), "{}", response.status);
        let bill = bills.entry(site).or_default();
        bill.requests += 1;
        bill.bytes += response.body.len() as u64;
        if response.header("X-Cache") == Some("HIT") {
            bill.hits += 1;
            bill.hit_bytes += response.body.len() as u64;
        }
    }
    Ok(bills)
}

/// An hour: several clients at once.
fn hour(bench: &Bench, seed: u64, load: (u64, u64), account: &mut BySite<Bill>) -> Result<()> {
    let parts: Result<Vec<BySite<Bill>>> = std::thread::scope(|scope| {
        let clients = 0..4;
        let started: Vec<_> = clients
            .map(|client| scope.spawn(move || ask(bench, seed * 4 + client, load)))
            .collect();
        let ended = started.into_iter();
        ended
            .map(|client| client.join().expect("a client does not panic"))
            .collect()
    });
    for (site, more) in parts?.into_iter().flatten() {
        let sum = account.entry(site).or_default();
        sum.requests += more.requests;
        sum.bytes += more.bytes;
        sum.hits += more.hits;
        sum.hit_bytes += more.hit_bytes;
    }
    Ok(())
}

/// The bills that the access log comes to.
fn logged(log: &str) -> Result<BySite<Bill>> {
    let mut bills = BySite::<Bill>::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [site, status, bytes] = words[..] else {
            anyhow::bail!("not a line of the access log: {line}");
        };
        let bytes: u64 = bytes.parse()?;
        let bill = bills.entry(site.to_string()).or_default();
        bill.requests += 1;
        bill.bytes += bytes;
        if status == "HIT" {
            bill.hits += 1;
            bill.hit_bytes += bytes;
        }
    }
    Ok(bills)
}

/// Counts of the requests to origins by the upstream log.
fn exchanged(log: &str) -> Result<BySite<Asked>> {
    let mut all = BySite::<Asked>::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [site, received, sent] = words[..] else {
            anyhow::bail!("not a line of the upstream log: {line}");
        };
        let asked = all.entry(site.to_string()).or_default();
        asked.requests += 1;
        asked.received += received.parse::<u64>()?;
        asked.sent += sent.parse::<u64>()?;
    }
    Ok(all)
}

/// Numbers of requests to origins, by the origins' own account.
fn heard(requests: &[Recorded]) -> BySite<u64> {
    let mut all = BySite::new();
    for request in requests {
        let host = request.header("Host").unwrap_or_default();
        *all.entry(host.to_string()).or_default() += 1;
    }
    all
}

/// Waits until the statistics, both logs and the origin say what the clients say.
fn compare(bench: &Bench, account: &BySite<Bill>) -> Result<()> {
    let mut last = String::new();
    let is_right = || {
        let sites = bench.sites().ok()?;
        let named = |it: &(&String, &Site)| it.1.bill.requests > 0;
        let bills: BySite<Bill> = sites
            .iter()
            .filter(named)
            .map(|(name, site)| (name.clone(), site.bill.clone()))
            .collect();
        let asked: BySite<Asked> = sites
            .iter()
            .filter(|(_, site)| site.asked.requests > 0)
            .map(|(name, site)| (name.clone(), site.asked))
            .collect();
        let in_log = logged(&bench.proxy.read_file("bill.log")).ok()?;
        let of_origins = exchanged(&bench.proxy.read_file("asked.log")).ok()?;
        let counts = of_origins
            .iter()
            .map(|(name, it)| (name.clone(), it.requests));
        let counts: BySite<u64> = counts.collect();
        let wrong = [
            ("the bill", bills != *account),
            ("the access log", in_log != *account),
            ("the upstream log", of_origins != asked),
            ("the origin", counts != heard(&bench.origin.requests())),
        ];
        let wrong: Vec<&str> = wrong.iter().filter(|it| it.1).map(|it| it.0).collect();
        last = format!("{wrong:?}: {bills:?} {in_log:?} {account:?} {asked:?} {of_origins:?}");
        wrong.is_empty().then_some(())
    };
    Deadline::after(WAIT).poll(is_right).context(last)
}

fn from_environment(name: &str, usual: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.and_then(|it| it.parse().ok()).unwrap_or(usual)
}

#[test]
fn the_bills_of_a_day_are_right() -> Result<()> {
    let hours = from_environment("CDN_DAY_HOURS", 5);
    let load = (60, from_environment("CDN_DAY_SITES", 300));
    let first = from_environment("SEED", 1);
    println!("SEED={first}");
    let mut bench = Bench::start("max_size=900m inactive=1d")?;
    let mut account = BySite::new();
    let mut dice = Dice(first);
    for number in 0..hours {
        hour(&bench, first * 1000 + number, load, &mut account)?;
        compare(&bench, &account).with_context(|| format!("hour {number}"))?;
        bench
            .settle_held()
            .with_context(|| format!("hour {number}"))?;
        match number % 5 {
            0 => {
                let what = format!("site{}.example", dice.roll(3));
                let purge = format!("zones/z/purge?type=site&what={what}");
                bench.api("POST", &purge)?;
                bench.settle(&what, Held::default())?;
            }
            1 => {
                bench.proxy.quit()?;
                bench.proxy.restart()?;
            }
            2 => {
                bench.settle_file()?;
                bench.proxy.kill9()?;
                bench.proxy.restart()?;
            }
            3 => bench.proxy.reload()?,
            _ => {
                let purge = "zones/z/purge?type=wildcard&what=*/video/0";
                bench.api("POST", purge)?;
            }
        }
        compare(&bench, &account).with_context(|| format!("after hour {number}"))?;
        let held = bench.settle_held();
        held.with_context(|| format!("after hour {number}"))?;
    }
    let sites = bench.sites()?;
    ensure!(sites.len() > 100, "{} sites", sites.len());
    bench.proxy.quit()
}
