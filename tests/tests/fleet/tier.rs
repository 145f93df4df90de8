//! `proxy_cache_path … tier=`: what one node has written into the second tier is read by all, what
//! was purged never comes back from it, and what is wrong with it costs nobody an answer.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Deadline, Kind, Origin, Proxy, ProxyBuilder, Ranges, Request, Response, offset_bytes,
};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

use crate::kit::{Nats, Node, WAIT, page};
use crate::nats;
use crate::store::{Fault, FaultyRelay, ID, SECRET, Store, files};

/// Inside of the http block of a node with a tier.
const TIER: &str = "
    fleet edge {
        nats nats://127.0.0.1:%%NATS%%;
        node %%NODE%% %%ADDRESS%%;
        replicas 1;
        max_lag 3s;
        peer_secret secret;
    }
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=256m fleet=edge tier=%%TIER%%
                     tier_min_hits=1 tier_min_size=1 tier_min_ttl=1h;
    proxy_cache z;
    proxy_cache_key $uri;
    proxy_cache_valid 200 2h;
    proxy_cache_tag $upstream_http_xkey;
    proxy_cache_methods GET HEAD POST;
    proxy_cache_purge PURGE from 127.0.0.1 types=tag,host,all;
    add_header X-Cache $upstream_cache_status always;
    add_header X-Tier $upstream_tier always;
    add_header X-Node $upstream_node always;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /rfc/ { proxy_pass http://%%ORIGIN%%; proxy_cache_conformance rfc9111; }
        location /peers/ { proxy_pass http://%%ORIGIN%%; proxy_cache_peers owner hedge=1s; }
        location /sliced/ { proxy_pass http://%%ORIGIN%%; slice 1m; }
        location /short/ { proxy_pass http://%%ORIGIN%%; proxy_cache_valid 200 30m; }
        location = /ready { health; }
        location = /metrics { metrics; }
        location /api/ { api; }
    }";

/// A node whose tier is at a URL, with its other parameters behind it.
fn builder(name: &str, nats: &Nats, origin: &Origin, tier: &str) -> ProxyBuilder {
    Proxy::new(Kind::Millpond, TIER)
        .origin(origin)
        .value("NODE", name)
        .value("ADDRESS", "address=127.0.0.1:%%PORT%%")
        .value("NATS", &nats.port.to_string())
        .value("TIER", tier)
        .variable("AWS_ACCESS_KEY_ID", ID)
        .variable("AWS_SECRET_ACCESS_KEY", SECRET)
        .file("secret", "a secret of all nodes\n")
}

fn start(name: &str, nats: &Nats, origin: &Origin, tier: &str) -> Result<Node> {
    start_with(name, nats, origin, (tier, &[]))
}

/// Starts a node with a tier and with variables of its environment.
pub(crate) fn start_with(
    name: &str,
    nats: &Nats,
    origin: &Origin,
    (tier, variables): (&str, &[(&str, &str)]),
) -> Result<Node> {
    let own = builder(name, nats, origin, tier);
    let set = |node: ProxyBuilder, (name, value): &(&str, &str)| node.variable(name, value);
    let node = Node::start(variables.iter().fold(own, set))?;
    node.wait_until_read()?;
    Ok(node)
}

impl Node {
    /// Waits until it asks its tier: the ledger has been read.
    fn wait_until_read(&self) -> Result<()> {
        let number = std::cell::Cell::new(0);
        let is_asked = || {
            number.set(number.get() + 1);
            let answer = self.client.get(&format!("/none/{}", number.get())).ok()?;
            answer.header("X-Tier").map(drop)
        };
        Deadline::after(WAIT)
            .poll(is_asked)
            .with_context(|| format!("never asked: {}", self.proxy.error_log()))
    }

    pub(crate) fn reads(&self, result: &str) -> Result<f64> {
        let name = "millpond_tier_reads_total";
        self.metric(&format!("{name}{{zone=\"z\",result=\"{result}\"}}"))
    }

    pub(crate) fn writes(&self, result: &str) -> Result<f64> {
        let name = "millpond_tier_writes_total";
        self.metric(&format!("{name}{{zone=\"z\",result=\"{result}\"}}"))
    }

    /// Asks twice, and waits until a copy is written.
    pub(crate) fn write(&self, path: &str, fields: &[(&str, &str)]) -> Result<Response> {
        let before = self.writes("written")?;
        let request = || {
            let get = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
            fields.iter().fold(Request::get(path), get)
        };
        let deadline = Deadline::after(WAIT);
        let served = deadline.poll(|| {
            let answer = self.client.send(&request()).ok()?;
            (answer.header("X-Cache") == Some("HIT")).then_some(answer)
        });
        let hit = served.with_context(|| format!("no hit of {path}"))?;
        let is_written = || (self.writes("written").ok()? > before).then_some(());
        let written = deadline.poll(is_written);
        written.with_context(|| format!("{path} is never written: {}", self.said()))?;
        Ok(hit)
    }

    fn said(&self) -> String {
        let answer = self.client.get("/metrics");
        let page = answer.map(|it| it.text()).unwrap_or_default();
        let own = page.lines().filter(|it| it.starts_with("millpond_tier"));
        let lines: Vec<&str> = own.collect();
        format!("{}\n{}", lines.join("\n"), self.proxy.error_log())
    }

    /// The body of a page, and the words of cache and tier.
    pub(crate) fn seen(&self, path: &str) -> Result<(String, String, String)> {
        let answer = self.client.get(path)?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        let word = |name| answer.header(name).unwrap_or("-").to_owned();
        Ok((answer.text(), word("X-Cache"), word("X-Tier")))
    }
}

pub(crate) fn seen(body: &str, cache: &str, tier: &str) -> (String, String, String) {
    (body.to_owned(), cache.to_owned(), tier.to_owned())
}

fn file_tier(folder: &Path) -> String {
    format!("file://{}", folder.display())
}

#[test]
fn clients_that_ask_for_something_newer_do_not_get_a_copy() -> Result<()> {
    let (nats, origin, folder) = (nats!(), Origin::start()?, tempfile::tempdir()?);
    let tier = file_tier(folder.path());
    let a = start("a", &nats, &origin, &tier)?;
    origin.route(
        "/rfc/a",
        page("body").header("Cache-Control", "max-age=7200"),
    );
    a.write("/rfc/a", &[])?;
    for (name, value, asked) in [
        ("Cache-Control", "no-cache", 1),
        ("Pragma", "no-cache", 1),
        ("Cache-Control", "min-fresh=7300", 1),
        ("Cache-Control", "max-age=100", 0),
    ] {
        // A node that has nothing yet.
        let other = start("b", &nats, &origin, &tier)?;
        origin.forget_requests();
        other
            .client
            .send(&Request::get("/rfc/a").header(name, value))?;
        assert_eq!(origin.requests().len(), asked, "{value}");
    }
    Ok(())
}

#[test]
fn copy_of_one_node_is_what_another_one_answers_without_the_origin() -> Result<()> {
    let (nats, origin, folder) = (nats!(), Origin::start()?, tempfile::tempdir()?);
    let tier = file_tier(folder.path());
    let a = start("a", &nats, &origin, &tier)?;
    let plain = page("body").header("Cache-Control", "max-age=7200");
    let answer = plain.header("x-own", "1").header("x-own", "2");
    origin.route("/a", answer.clone());
    origin.route("/rfc/a", answer);
    origin.route("/short/a", page("short"));
    a.write("/a", &[])?;
    let hit = a.write("/rfc/a", &[])?;
    let b = start("b", &nats, &origin, &tier)?;
    origin.forget_requests();
    assert_eq!(b.seen("/a")?, seen("body", "MISS", "hit"));
    assert_eq!(b.seen("/a")?, seen("body", "HIT", "-"));
    let copied = b.client.get("/rfc/a")?;
    assert_eq!(
        (copied.header("X-Tier"), &copied.text()[..]),
        (Some("hit"), "body")
    );
    for name in ["etag", "cache-control", "content-length", "x-own", "date"] {
        assert_eq!(copied.header(name), hit.header(name), "{name}");
    }
    // It is as old as where it came from.
    assert!(copied.header("age").is_some(), "{copied:?}");
    let again = b.client.get("/rfc/a")?;
    assert_eq!(again.header("X-Cache"), Some("HIT"));
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
    assert!(b.reads("hit")? == 2.0 && b.reads("fault")? == 0.0);

    let tiers = |node: &Node| -> Result<Value> {
        let text = node.client.get("/api/millpond/1/tiers")?.text();
        Ok(serde_json::from_str::<Value>(&text)?["tiers"][0].take())
    };
    let (wrote, read) = (tiers(&a)?, tiers(&b)?);
    assert_eq!(
        (&wrote["zone"], &wrote["place"]),
        (&"z".into(), &tier.as_str().into())
    );
    // A head and a slice of each.
    for (name, value) in [
        ("written_objects", 4),
        ("written_bytes", 8),
        ("read_bytes", 0),
        ("queued_bytes", 0),
        ("waiting", 0),
        ("queue_limit", 256 << 20),
    ] {
        assert_eq!(wrote[name], value, "{name}: {wrote}");
    }
    assert_eq!(wrote["writes"]["written"], 2, "{wrote}");
    assert_eq!(wrote["is_left_alone"], false, "{wrote}");
    assert_eq!(
        (&read["reads"]["hit"], &read["read_bytes"]),
        (&2.into(), &8.into()),
        "{read}"
    );
    let objects = "millpond_tier_objects_total{zone=\"z\",action=\"written\"}";
    assert_eq!(a.metric(objects)?, 4.0);

    // What is fresh for less than `tier_min_ttl` is not written.
    let written = a.writes("written")?;
    for _ in 0..4 {
        a.client.get("/short/a")?;
    }
    origin.route("/last", page("last"));
    a.write("/last", &[])?;
    assert_eq!(a.writes("written")?, written + 1.0);
    Ok(())
}

#[test]
fn purged_bodies_never_come_back_whatever_purged_them() -> Result<()> {
    let (nats, origin, folder) = (nats!(), Origin::start()?, tempfile::tempdir()?);
    let tier = file_tier(folder.path());
    let [a, b, c] = ["a", "b", "c"].map(|name| start(name, &nats, &origin, &tier));
    let (a, b, c) = (a?, b?, c?);
    type Fields = &'static [(&'static str, &'static str)];
    let kinds: [(&str, &str, Fields); 6] = [
        ("/key", "/key", &[]),
        ("/soft", "/soft", &[("Purge-Soft", "1")]),
        ("/some/prefix", "/some/*", &[]),
        ("/tagged", "/", &[("xkey", "page")]),
        ("/host", "/", &[("Purge-Type", "host")]),
        ("/all", "/", &[("Purge-Type", "all")]),
    ];
    let purge = |(path, target, fields): (&str, &str, Fields)| -> Result<()> {
        origin.route(path, page("old"));
        a.write(path, &[])?;
        origin.route(path, page("new"));
        let answer = a.purge(target, &[fields, &[("Purge-Wait", "fleet")]].concat())?;
        ensure!(answer.status == 200, "{path}: {}", answer.text());
        Ok(())
    };
    for (number, kind) in kinds.into_iter().enumerate() {
        let (path, kept) = (kind.0, format!("/kept/{number}"));
        purge(kind)?;
        origin.route(&kept, page("kept"));
        a.write(&kept, &[])?;
        let found = b.seen(path)?;
        assert_eq!(found, seen("new", "MISS", "miss"), "{path}: {}", b.said());
        assert_eq!(b.reads("purged")?, (number + 1) as f64, "{path}");
        let found = b.seen(&kept)?;
        assert_eq!(found, seen("kept", "MISS", "hit"), "{path}: {}", b.said());
        // What is fetched after the purge takes the place of what was purged.
        a.write(path, &[])?;
        let found = c.seen(path)?;
        assert_eq!(found, seen("new", "MISS", "hit"), "{path}: {}", c.said());
    }
    // A node that was not there reads of them in the log.
    for (number, kind) in kinds.into_iter().enumerate().take(4) {
        let path: &'static str = format!("/late{}", kind.0).leak();
        let target = match number {
            2 => "/late/some/*",
            3 => "/",
            _ => path,
        };
        purge((path, target, kind.2))?;
    }
    origin.route("/late/kept", page("kept"));
    a.write("/late/kept", &[])?;
    let d = start("d", &nats, &origin, &tier)?;
    for (path, ..) in kinds.into_iter().take(4) {
        let path = format!("/late{path}");
        let found = d.seen(&path)?;
        assert_eq!(found, seen("new", "MISS", "miss"), "{path}: {}", d.said());
    }
    assert_eq!(d.reads("purged")?, 4.0);
    assert_eq!(d.seen("/late/kept")?, seen("kept", "MISS", "hit"));
    Ok(())
}

#[test]
fn node_that_has_lost_its_disk_takes_what_was_not_purged_meanwhile() -> Result<()> {
    let (nats, origin, folder) = (nats!(), Origin::start()?, tempfile::tempdir()?);
    let tier = file_tier(folder.path());
    let mut a = start("a", &nats, &origin, &tier)?;
    let b = start("b", &nats, &origin, &tier)?;
    for path in ["/purged", "/kept", "/killed"] {
        origin.route(path, page("old"));
        a.write(path, &[])?;
        origin.route(path, page("new"));
    }
    a.proxy.quit()?;
    std::fs::remove_dir_all(a.proxy.dir().join("cache"))?;
    b.purge_everywhere("/purged")?;
    a.proxy.restart()?;
    a.wait_until_ready()?;
    a.wait_until_read()?;
    assert_eq!(a.seen("/purged")?, seen("new", "MISS", "miss"));
    assert_eq!(a.seen("/kept")?, seen("old", "MISS", "hit"));
    // Its own purge, of which nothing is left here.
    a.purge_everywhere("/killed")?;
    a.proxy.kill9()?;
    std::fs::remove_dir_all(a.proxy.dir().join("cache"))?;
    a.proxy.restart()?;
    a.wait_until_ready()?;
    a.wait_until_read()?;
    assert_eq!(a.seen("/killed")?, seen("new", "MISS", "miss"));
    Ok(())
}

/// A node that is not up to date, or has purged alone, does not know what else was purged.
#[test]
fn node_that_is_behind_or_has_purged_alone_does_not_ask_the_tier() -> Result<()> {
    let (mut nats, origin, folder) = (nats!(), Origin::start()?, tempfile::tempdir()?);
    let tier = file_tier(folder.path());
    let a = start("a", &nats, &origin, &tier)?;
    for path in ["/a", "/b", "/c"] {
        origin.route(path, page("old"));
        a.write(path, &[])?;
        origin.route(path, page("new"));
    }
    let b = start("b", &nats, &origin, &tier)?;
    nats.kill()?;
    assert_eq!(b.purge("/a", &[])?.status, 503);
    let is_behind = || {
        let behind = b.metric("millpond_fleet_behind{fleet=\"edge\"}").ok()?;
        (behind == 1.0).then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_behind)
        .context("never behind")?;
    assert_eq!(b.seen("/b")?, seen("new", "MISS", "-"));
    nats.restart()?;
    b.wait_until_read()?;
    assert_eq!(b.seen("/a")?, seen("new", "MISS", "-"));
    assert_eq!(b.seen("/c")?, seen("old", "MISS", "hit"));
    Ok(())
}

#[test]
fn invalidated_body_is_withdrawn() -> Result<()> {
    let (nats, origin, folder) = (nats!(), Origin::start()?, tempfile::tempdir()?);
    let tier = file_tier(folder.path());
    let a = start("a", &nats, &origin, &tier)?;
    origin.route("/rfc/a", page("old"));
    a.write("/rfc/a", &[])?;
    origin.route("/rfc/a", page("new"));
    let answer = a.client.send(&Request::new("DELETE", "/rfc/a"))?;
    assert_eq!(answer.status, 200);
    let is_gone = || {
        let left = files(folder.path()).ok()?;
        (!left.iter().any(|it| it.ends_with("head"))).then_some(())
    };
    Deadline::after(WAIT).poll(is_gone).context("never gone")?;
    assert_eq!(a.seen("/rfc/a")?.0, "new");
    let b = start("b", &nats, &origin, &tier)?;
    assert_eq!(b.seen("/rfc/a")?.0, "new");
    Ok(())
}

#[test]
fn variants_and_encodings_are_kept_apart() -> Result<()> {
    let (nats, origin, folder) = (nats!(), Origin::start()?, tempfile::tempdir()?);
    let tier = file_tier(folder.path());
    let a = start("a", &nats, &origin, &tier)?;
    origin.answer_with("/vary", |request| {
        let language = request.header("Accept-Language").unwrap_or("none");
        let answer = Answer::new(200)
            .body(language)
            .header("Vary", "Accept-Language");
        answer.etag(&format!("\"{language}\""))
    });
    let languages = ["de", "en", "fr"].map(|language| ("Accept-Language", language));
    for language in &languages {
        a.write("/vary", &[*language])?;
    }
    let b = start("b", &nats, &origin, &tier)?;
    for (field, language) in languages.into_iter().chain([("Accept-Language", "it")]) {
        let answer = b
            .client
            .send(&Request::get("/vary").header(field, language))?;
        let expected = if language == "it" { "miss" } else { "hit" };
        assert_eq!(answer.header("X-Tier"), Some(expected), "{language}");
        assert_eq!(answer.text(), language);
    }
    // Purged, all are gone, also for who writes one of them again.
    a.purge_everywhere("/vary")?;
    a.write("/vary", &[languages[0]])?;
    let c = start("c", &nats, &origin, &tier)?;
    for ((field, language), expected) in languages.into_iter().zip(["hit", "miss", "miss"]) {
        let answer = c
            .client
            .send(&Request::get("/vary").header(field, language))?;
        assert_eq!(answer.header("X-Tier"), Some(expected), "{language}");
        assert_eq!(answer.text(), language);
    }
    Ok(())
}

/// With owners the tier is asked by the owner alone.
#[test]
fn owner_asks_the_tier_for_all() -> Result<()> {
    let (nats, origin, folder) = (nats!(), Origin::start()?, tempfile::tempdir()?);
    let tier = file_tier(folder.path());
    let writer = start("w", &nats, &origin, &tier)?;
    let paths: Vec<String> = (0..8).map(|number| format!("/peers/{number}")).collect();
    for path in &paths {
        origin.route(path, page("old"));
        writer.write(path, &[])?;
        origin.route(path, page("new"));
    }
    drop(writer);
    let nodes = [
        start("a", &nats, &origin, &tier)?,
        start("b", &nats, &origin, &tier)?,
    ];
    for node in &nodes {
        let live = || node.metric("millpond_fleet_nodes{fleet=\"edge\"}").ok();
        let is_known = || live().filter(|it| *it == 2.0);
        Deadline::after(WAIT)
            .poll(is_known)
            .context("never known")?;
    }
    let before = [nodes[0].reads("hit")?, nodes[1].reads("hit")?];
    let mut asked = 0;
    for path in &paths {
        let answer = nodes[0].client.get(path)?;
        assert_eq!(answer.text(), "old", "{path}");
        asked += u32::from(answer.header("X-Node").is_some_and(|it| it == "b"));
    }
    let hits = [
        nodes[0].reads("hit")? - before[0],
        nodes[1].reads("hit")? - before[1],
    ];
    assert_eq!(hits, [f64::from(8 - asked), f64::from(asked)], "{asked}");
    Ok(())
}

/// A store of S3 behind a relay, and its URL with parameters.
fn faulty() -> Result<Option<(Store, FaultyRelay, String)>> {
    let Some(store) = Store::start()? else {
        return Ok(None);
    };
    let relay = FaultyRelay::start(&store)?;
    let tier = format!(
        "s3://bucket/a/prefix tier_endpoint=http://127.0.0.1:{} tier_region=eu-north-1 \
         tier_timeout=2s",
        relay.port
    );
    Ok(Some((store, relay, tier)))
}

macro_rules! faulty {
    () => {
        match faulty()? {
            Some(faulty) => faulty,
            None => return Ok(()),
        }
    };
}

#[test]
fn faults_of_the_store_cost_one_bounded_wait_and_no_answer() -> Result<()> {
    let (nats, origin) = (nats!(), Origin::start()?);
    let (store, relay, tier) = faulty!();
    let a = start("a", &nats, &origin, &tier)?;
    let faults = [
        ("/hold", Fault::Hold("GET")),
        ("/status", Fault::Status(503)),
        ("/cut", Fault::Cut(300)),
        ("/head", Fault::Flip),
        ("/gone", Fault::Gone),
    ];
    let body = |word: &str| word.repeat(10_000);
    let page = |word: &str| {
        Answer::new(200)
            .body(body(word))
            .etag(&format!("\"{word}\""))
    };
    for (path, _) in faults {
        origin.route(path, page("old"));
        a.write(path, &[])?;
        origin.route(path, page("new"));
    }
    assert_eq!(store.objects()?.len(), 10);
    for (path, fault) in faults {
        // Each has a circuit of its own.
        let b = start(&path[1..], &nats, &origin, &tier)?;
        relay.set(fault);
        let began = Deadline::after(Duration::from_secs(10));
        let found = b.seen(path)?;
        assert!(!began.is_over(), "{path}");
        assert_eq!(
            found,
            seen(&body("new"), "MISS", "fault"),
            "{path}: {}",
            b.said()
        );
        relay.set(Fault::None);
    }
    // They are there as before, but for that whose head was not what was written.
    let b = start("b", &nats, &origin, &tier)?;
    for path in ["/hold", "/status", "/cut", "/gone"] {
        assert_eq!(b.seen(path)?, seen(&body("old"), "MISS", "hit"), "{path}");
    }
    Ok(())
}

#[test]
fn slice_that_is_wrong_or_missing_is_a_miss_and_written_again() -> Result<()> {
    let (nats, origin, folder) = (nats!(), Origin::start()?, tempfile::tempdir()?);
    let tier = file_tier(folder.path());
    let a = start("a", &nats, &origin, &tier)?;
    origin.route("/a", page("body"));
    type Damage = fn(&Path) -> std::io::Result<()>;
    let damages: [Damage; 3] = [
        |slice| std::fs::write(slice, b"bodu"),
        |slice| std::fs::write(slice, b"bod"),
        |slice| std::fs::remove_file(slice),
    ];
    a.write("/a", &[])?;
    for (number, damage) in damages.into_iter().enumerate() {
        let slices = files(folder.path())?;
        let slice = slices.iter().find(|it| !it.ends_with("head"));
        damage(slice.context("a slice")?)?;
        let b = start(&format!("b{number}"), &nats, &origin, &tier)?;
        assert_eq!(b.seen("/a")?, seen("body", "MISS", "fault"), "{number}");
        let is_gone = || files(folder.path()).ok()?.is_empty().then_some(());
        Deadline::after(WAIT).poll(is_gone).context("never gone")?;
        b.write("/a", &[])?;
        let c = start(&format!("c{number}"), &nats, &origin, &tier)?;
        assert_eq!(c.seen("/a")?, seen("body", "MISS", "hit"), "{number}");
    }
    Ok(())
}

#[test]
fn store_that_fails_again_and_again_is_left_alone() -> Result<()> {
    let (nats, origin) = (nats!(), Origin::start()?);
    let (_store, relay, tier) = faulty!();
    let a = start("a", &nats, &origin, &tier)?;
    relay.set(Fault::Status(503));
    for number in 0..5 {
        let path = format!("/{number}");
        origin.route(&path, page("body"));
        assert_eq!(a.seen(&path)?, seen("body", "MISS", "fault"));
    }
    let before = relay.count("GET ");
    origin.route("/more", page("body"));
    assert_eq!(a.seen("/more")?, seen("body", "MISS", "-"));
    assert_eq!(relay.count("GET "), before);
    assert_eq!(a.metric("millpond_tier_left_alone{zone=\"z\"}")?, 1.0);
    let log = a.proxy.error_log();
    let line = "tier of cache \"z\": it is not asked for 10 s: ";
    assert_eq!(log.matches(line).count(), 1, "{log}");
    Ok(())
}

/// A purge that is acknowledged while the copy is on its way stands behind its position.
#[test]
fn purge_while_a_copy_is_written_is_about_it() -> Result<()> {
    let (nats, origin) = (nats!(), Origin::start()?);
    let (store, relay, tier) = faulty!();
    let a = start("a", &nats, &origin, &tier)?;
    origin.route("/a", page("old"));
    relay.set(Fault::Hold("PUT"));
    a.warm("/a")?;
    let is_held = || (relay.count("PUT ") > 0).then_some(());
    Deadline::after(WAIT).poll(is_held).context("no PUT")?;
    a.purge_everywhere("/a")?;
    origin.route("/a", page("new"));
    relay.set(Fault::None);
    let is_written = || (a.writes("written").ok()? > 0.0).then_some(());
    Deadline::after(WAIT)
        .poll(is_written)
        .context("never written")?;
    assert_eq!(store.objects()?.len(), 2);
    let b = start("b", &nats, &origin, &tier)?;
    assert_eq!(b.seen("/a")?, seen("new", "MISS", "miss"));
    assert_eq!(b.reads("purged")?, 1.0);
    Ok(())
}

/// A body of seven slices, which is begun before all of it was read.
const LONG: u64 = 25 << 20;

#[test]
fn long_body_that_breaks_off_ends_with_what_the_origin_has() -> Result<()> {
    let (nats, origin) = (nats!(), Origin::start()?);
    let (_store, relay, tier) = faulty!();
    let a = start("a", &nats, &origin, &tier)?;
    let long = || {
        let answer = Answer::new(200).offset_body(LONG, 1).etag("\"1\"");
        answer.ranges(Ranges::Supported)
    };
    origin.route("/long", long());
    a.write("/long", &[])?;
    origin.forget_requests();
    let b = start("b", &nats, &origin, &tier)?;
    let whole = b.client.get("/long")?;
    assert_eq!(whole.header("X-Tier"), Some("hit"), "{}", b.said());
    assert!(whole.body == offset_bytes(0..LONG, 1));
    let count = |origin: &Origin| {
        origin
            .requests()
            .iter()
            .filter(|it| it.path() == "/long")
            .count()
    };
    assert_eq!(count(&origin), 0);

    let c = start("c", &nats, &origin, &tier)?;
    let gets = relay.count("GET ");
    let mut connection = c.client.connect()?;
    connection.ask(&Request::get("/long"))?;
    let mut answer = connection.read_head("GET")?.context("a head")?;
    relay.set(Fault::Status(503));
    connection.read_body(&mut answer)?;
    assert!(relay.count("GET ") > gets);
    assert_eq!(count(&origin), 1, "the rest");
    assert_eq!(answer.header("X-Tier"), Some("hit"));
    assert!(
        answer.body == offset_bytes(0..LONG, 1),
        "{}",
        answer.body.len()
    );
    Ok(())
}

/// A body in slices is copied once all of it is there, and ranges of it are read as ranges.
#[test]
fn ranges_of_a_body_in_slices_come_from_the_tier() -> Result<()> {
    let (nats, origin, folder) = (nats!(), Origin::start()?, tempfile::tempdir()?);
    let tier = file_tier(folder.path());
    let a = start("a", &nats, &origin, &tier)?;
    let video = |tag| {
        let answer = Answer::new(200).offset_body(LONG, 1).etag(tag);
        answer.ranges(Ranges::Supported)
    };
    origin.route("/sliced/video", video("\"1\""));
    let part = |node: &Node, range: std::ops::Range<u64>| -> Result<Response> {
        let value = format!("bytes={}-{}", range.start, range.end - 1);
        let request = Request::get("/sliced/video").header("Range", &value);
        let answer = node.client.send(&request)?;
        ensure!(answer.status == 206, "{value}: {}", answer.status);
        let told = format!("bytes {}-{}/{LONG}", range.start, range.end - 1);
        assert_eq!(answer.header("Content-Range"), Some(&told[..]));
        assert!(answer.body == offset_bytes(range, 1), "{value}");
        Ok(answer)
    };
    // As long as a part of it is missing nothing is written, however often that is asked for.
    for _ in 0..4 {
        part(&a, 0..10)?;
    }
    assert_eq!(a.writes("written")?, 0.0);
    let whole = a.client.get("/sliced/video")?;
    assert!(whole.body == offset_bytes(0..LONG, 1));
    a.write("/sliced/video", &[])?;

    let b = start("b", &nats, &origin, &tier)?;
    origin.forget_requests();
    let middle = part(&b, 9_000_000..9_000_010)?;
    assert_eq!(middle.header("X-Tier"), Some("hit"), "{}", b.said());
    part(&b, LONG - 7..LONG)?;
    part(&b, 0..6 << 20)?;
    let whole = b.client.get("/sliced/video")?;
    assert!(whole.body == offset_bytes(0..LONG, 1));
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());

    // What was purged does not come back in parts either.
    b.client.send(&Request::new("PURGE", "/sliced/video"))?;
    origin.route("/sliced/video", video("\"2\""));
    let c = start("c", &nats, &origin, &tier)?;
    for node in [&a, &b, &c] {
        let is_new = || {
            let answer = part(node, 3..5).ok()?;
            (answer.header("etag") == Some("\"2\"")).then_some(())
        };
        let seen = Deadline::after(WAIT).poll(is_new);
        seen.with_context(|| format!("it came back: {}", node.said()))?;
    }
    Ok(())
}
