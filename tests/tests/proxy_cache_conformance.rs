//! `proxy_cache_conformance rfc9111`: a shared cache by the book. Each test names the section that
//! it follows; nothing here holds under nginx's rules.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request, Response};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri;
        proxy_cache_conformance rfc9111;
        add_header X-Cache $upstream_cache_status always;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /head/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_convert_head off; }
        location /kept/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_valid 200 1h; }
        location /nginx/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache_conformance nginx;
            proxy_cache_valid 200 1h;
        }
    }";

struct Bench {
    origin: Origin,
    _proxy: Proxy,
    client: Client,
}

fn bench() -> Result<Bench> {
    let origin = Origin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    Ok(Bench {
        origin,
        _proxy: proxy,
        client,
    })
}

impl Bench {
    fn get(&self, path: &str) -> Result<Response> {
        self.client.get(path)
    }

    fn get_with(&self, path: &str, field: &str, value: &str) -> Result<Response> {
        self.client.send(&Request::get(path).header(field, value))
    }
}

fn control(value: &str) -> Answer {
    Answer::new(200)
        .header("Cache-Control", value)
        .etag("\"v\"")
        .body("body")
}

fn label(response: &Response) -> &str {
    response.header("X-Cache").unwrap_or("-")
}

/// §4.2.3: the age that an answer came with counts; §5.1: hits tell it, with the origin's Date.
#[test]
fn age_counts_and_is_told() -> Result<()> {
    let bench = bench()?;
    bench
        .origin
        .route("/young", control("max-age=100").header("Age", "40"));
    bench
        .origin
        .route("/old", control("max-age=100").header("Age", "100"));
    assert_eq!(bench.get("/young")?.header("Age"), Some("40"));
    let hit = bench.get("/young")?;
    let age: u64 = hit.header("Age").unwrap_or("").parse()?;
    assert_eq!(label(&hit), "HIT");
    assert!((40..60).contains(&age), "{age}");
    bench.get("/old")?;
    assert_eq!(label(&bench.get("/old")?), "EXPIRED");
    let dated = control("max-age=100").header("Date", "Sun, 06 Nov 1994 08:49:37 GMT");
    bench.origin.route("/dated", dated);
    let date = bench.get("/dated")?.header("Date").map(str::to_string);
    assert_eq!(date.as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    Ok(())
}

/// §5.2.1: what requests ask for.
#[test]
fn requests_are_heard() -> Result<()> {
    let bench = bench()?;
    bench
        .origin
        .route("/a", control("max-age=100").header("Age", "50"));
    let only = bench.get_with("/a", "Cache-Control", "only-if-cached")?;
    assert_eq!(only.status, 504);
    bench.get("/a")?;
    for (value, expected) in [
        ("only-if-cached", "HIT"),
        ("max-age=80", "HIT"),
        ("max-age=10", "EXPIRED"),
        ("min-fresh=10", "HIT"),
        ("min-fresh=60", "EXPIRED"),
        ("no-cache", "EXPIRED"),
    ] {
        let response = bench.get_with("/a", "Cache-Control", value)?;
        assert_eq!(label(&response), expected, "{value}");
    }
    assert_eq!(
        label(&bench.get_with("/a", "Pragma", "no-cache")?),
        "EXPIRED"
    );
    bench.origin.route("/secret", control("max-age=100"));
    bench.get_with("/secret", "Cache-Control", "no-store")?;
    assert_eq!(label(&bench.get("/secret")?), "MISS");
    Ok(())
}

/// §3.2, §4.3.4: a 304 makes the entry fresh and updates its fields.
#[test]
fn a_304_updates_the_stored_fields() -> Result<()> {
    let bench = bench()?;
    let first = control("max-age=0")
        .header("X-Version", "1")
        .header("X-Old", "o");
    let second = Answer::new(304)
        .header("Cache-Control", "max-age=100")
        .header("X-Version", "2")
        .etag("\"v\"");
    bench.origin.sequence("/a", vec![first, second]);
    bench.get("/a")?;
    for expected in ["REVALIDATED", "HIT"] {
        let response = bench.get("/a")?;
        assert_eq!(label(&response), expected);
        assert_eq!(response.header("X-Version"), Some("2"));
        assert_eq!(response.header("X-Old"), Some("o"));
        assert_eq!(response.text(), "body");
    }
    let asked = bench.origin.requests();
    assert_eq!(asked[1].header("If-None-Match"), Some("\"v\""));
    Ok(())
}

/// §4.3.4: a 304 that names another version than the stored one updates nothing; the new version is
/// asked for.
#[test]
fn a_304_of_another_version_updates_nothing() -> Result<()> {
    let bench = bench()?;
    let other = Answer::new(304)
        .header("Cache-Control", "max-age=100")
        .etag("\"w\"");
    let new = Answer::new(200)
        .header("Cache-Control", "max-age=100")
        .etag("\"w\"")
        .body("new");
    bench
        .origin
        .sequence("/a", vec![control("max-age=0"), other, new]);
    bench.get("/a")?;
    for expected in ["EXPIRED", "HIT"] {
        let response = bench.get("/a")?;
        assert_eq!(label(&response), expected);
        assert_eq!(response.header("ETag"), Some("\"w\""));
        assert_eq!(response.text(), "new");
    }
    let asked = bench.origin.requests();
    assert_eq!(asked[1].header("If-None-Match"), Some("\"v\""));
    assert_eq!(asked[2].header("If-None-Match"), None);
    Ok(())
}

/// §4.4: unsafe methods that succeed invalidate their URI, and that of Location on the same host.
#[test]
fn unsafe_methods_invalidate() -> Result<()> {
    let bench = bench()?;
    bench.origin.route("/a", control("max-age=100"));
    bench.origin.route("/b", control("max-age=100"));
    bench.origin.route("/c", control("max-age=100"));
    for path in ["/a", "/b", "/c"] {
        bench.get(path)?;
        assert_eq!(label(&bench.get(path)?), "HIT");
    }
    let moved = Answer::new(201).header("Location", "b");
    bench.origin.route(
        "/a",
        moved.header("Content-Location", "http://other.example/c"),
    );
    bench.client.send(&Request::post("/a", "x"))?;
    bench.origin.route("/a", control("max-age=100"));
    assert_eq!(label(&bench.get("/a")?), "MISS");
    assert_eq!(label(&bench.get("/b")?), "MISS");
    assert_eq!(label(&bench.get("/c")?), "HIT");
    bench.origin.route("/a", Answer::new(500));
    bench.client.send(&Request::post("/a", "x"))?;
    assert_eq!(label(&bench.get("/a")?), "HIT");
    Ok(())
}

/// §4.3.4, RFC 9875 §2: tags and groups are those of the fields that a 304 has updated.
#[test]
fn purges_look_at_the_tags_that_a_304_brought() -> Result<()> {
    let origin = Origin::start()?;
    let conf = "
        proxy_cache_path %%DIR%%/zone keys_zone=z:1m;
        server {
            listen 127.0.0.1:%%PORT%%;
            proxy_cache z;
            proxy_cache_key $uri;
            proxy_cache_conformance rfc9111;
            proxy_cache_groups on;
            proxy_cache_tag $upstream_http_surrogate_key;
            proxy_cache_purge PURGE from 127.0.0.1 types=tag;
            add_header X-Cache $upstream_cache_status;
            location / { proxy_pass http://%%ORIGIN%%; }
        }";
    let mut proxy = Proxy::new(Kind::Millpond, conf).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    let tagged = |status: u16, number: u8, control: &str| {
        Answer::new(status)
            .etag("\"e\"")
            .header("Cache-Control", control)
            .header("Surrogate-Key", &format!("t{number}"))
            .header("Cache-Groups", &format!("\"g{number}\""))
    };
    let purge = |tag: &str| client.send(&Request::new("PURGE", "/").header("Surrogate-Key", tag));
    let change = |group: &str| {
        let told = format!("\"{group}\"");
        origin.route(
            "/change",
            Answer::new(200).header("Cache-Group-Invalidation", &told),
        );
        client.send(&Request::post("/change", "x"))
    };
    for (path, by) in [("/tag", "t"), ("/group", "g")] {
        origin.route(path, tagged(200, 1, "max-age=0").body("body"));
        client.get(path)?;
        origin.route(path, tagged(304, 2, "max-age=100"));
        assert_eq!(label(&client.get(path)?), "REVALIDATED");
        for (number, expected) in [(1, "HIT"), (2, "MISS")] {
            let name = format!("{by}{number}");
            if by == "t" {
                purge(&name)?
            } else {
                change(&name)?
            };
            origin.route(path, tagged(200, 2, "max-age=100").body("body"));
            assert_eq!(label(&client.get(path)?), expected, "{name}");
        }
    }
    proxy.quit()
}

/// §4.4: the target URI is invalidated, whatever of a request is in the key.
#[test]
fn unsafe_methods_invalidate_what_has_the_method_in_its_key() -> Result<()> {
    let origin = Origin::start()?;
    let keys = [
        "$request_method$host$request_uri",
        "$request_method|$uri$is_args$args",
        "$host$request_uri$content_length",
        "$host$request_uri$request_body",
    ];
    let locations: String = keys
        .iter()
        .enumerate()
        .map(|(number, key)| {
            format!(
                "location /{number} {{
                    proxy_pass http://%%ORIGIN%%;
                    proxy_cache z;
                    proxy_cache_key \"{key}\";
                    proxy_cache_conformance rfc9111;
                    add_header X-Cache $upstream_cache_status;
                }}"
            )
        })
        .collect();
    let conf = format!(
        "proxy_cache_path %%DIR%%/zone keys_zone=z:1m;
         server {{ listen 127.0.0.1:%%PORT%%; {locations} }}"
    );
    let mut proxy = Proxy::new(Kind::Millpond, &conf).origin(&origin).start()?;
    origin.answer_with("/*", |_| control("max-age=100"));
    let client = Client::new(proxy.port());
    for (number, key) in keys.iter().enumerate() {
        let path = format!("/{number}?a");
        client.get(&path)?;
        assert_eq!(label(&client.get(&path)?), "HIT", "{key}");
        client.send(&Request::post(&path, "x"))?;
        assert_eq!(label(&client.get(&path)?), "MISS", "{key}");
    }
    proxy.quit()
}

/// §3, §3.5, §4.2.2: what is stored, and for how long when the origin says nothing.
#[test]
fn storing_follows_the_origin_then_the_configuration() -> Result<()> {
    let bench = bench()?;
    let old = "Tue, 14 Jul 2015 08:29:12 GMT";
    let cases = [
        ("/private", control("private, max-age=9"), "MISS"),
        (
            "/cookie",
            control("max-age=90").header("Set-Cookie", "a=b"),
            "HIT",
        ),
        (
            "/heuristic",
            Answer::new(200).last_modified(old).body("x"),
            "HIT",
        ),
        ("/silent", Answer::new(200).body("x"), "MISS"),
        (
            "/created",
            Answer::new(201).last_modified(old).body("x"),
            "MISS",
        ),
        (
            "/validated",
            control("no-cache").revalidates(),
            "REVALIDATED",
        ),
        (
            "/zone",
            Answer::new(200).header("Expires", "Fri, 01 Jan 2100 00:00:00 UTC"),
            "EXPIRED",
        ),
    ];
    for (path, answer, expected) in cases {
        bench.origin.route(path, answer);
        bench.get(path)?;
        let again = bench.get(path)?;
        assert_eq!(label(&again), expected, "{path}");
    }
    bench.get("/kept/silent")?;
    assert_eq!(label(&bench.get("/kept/silent")?), "HIT");
    bench.origin.route("/user", control("max-age=100"));
    bench.get_with("/user", "Authorization", "Basic x")?;
    assert_eq!(label(&bench.get("/user")?), "MISS");
    bench.origin.route("/all", control("public, max-age=100"));
    bench.get_with("/all", "Authorization", "Basic x")?;
    assert_eq!(label(&bench.get("/all")?), "HIT");
    Ok(())
}

/// §4.2.4: without the origin a stale entry is served unless it is forbidden.
#[test]
fn stale_entries_are_served_without_the_origin_unless_forbidden() -> Result<()> {
    let bench = bench()?;
    for (path, value, expected) in [
        ("/free", "max-age=0", ("STALE", 200)),
        ("/bound", "max-age=0, must-revalidate", ("EXPIRED", 504)),
        ("/shared", "s-maxage=0", ("EXPIRED", 504)),
        ("/window", "max-age=0, stale-if-error=60", ("STALE", 200)),
        ("/over", "max-age=0, stale-if-error=0", ("EXPIRED", 502)),
    ] {
        let aged = control(value).header("Age", "5");
        bench.origin.sequence(path, vec![aged, Answer::raw("")]);
        bench.get(path)?;
        let response = bench.get(path)?;
        assert_eq!((label(&response), response.status), expected, "{path}");
    }
    let failing = vec![
        control("max-age=0, stale-if-error=60"),
        Answer::new(503).body("no"),
    ];
    bench.origin.sequence("/status", failing);
    bench.get("/status")?;
    assert_eq!(bench.get("/status")?.text(), "body");
    Ok(())
}

/// RFC 9110 §7.6.1, §7.6.3, §13.2.2: fields of a connection, Via, and the order of conditions.
#[test]
fn the_proxy_keeps_the_rules_of_intermediaries() -> Result<()> {
    let bench = bench()?;
    let hop = control("max-age=100")
        .header("Connection", "X-Hop")
        .header("X-Hop", "1")
        .header("Via", "1.1 behind")
        .last_modified("Tue, 14 Jul 2015 08:29:12 GMT");
    bench.origin.route("/a", hop);
    let request = Request::get("/a")
        .header("Connection", "X-Mine")
        .header("X-Mine", "1")
        .header("Via", "1.0 front");
    for expected in ["MISS", "HIT"] {
        let response = bench.client.send(&request)?;
        assert_eq!(
            (label(&response), response.header("X-Hop")),
            (expected, None)
        );
        assert_eq!(response.header("Via"), Some("1.1 behind, 1.1 millpond"));
    }
    let asked = bench.origin.requests();
    assert_eq!(asked[0].header("X-Mine"), None);
    assert_eq!(asked[0].header("Via"), Some("1.0 front, 1.1 millpond"));
    let both = Request::get("/a")
        .header("If-None-Match", "\"v\"")
        .header("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(bench.client.send(&both)?.status, 304);
    assert_eq!(bench.get_with("/a", "Range", "bytes=1-2")?.status, 206);
    Ok(())
}

/// §4.2.1, §4.2.3: what cannot be read makes stale, and Date is what Expires and age count from.
#[test]
fn dates_and_numbers_are_read_with_care() -> Result<()> {
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 09:49:37 GMT";
    let bench = bench()?;
    let plain = || Answer::new(200).etag("\"v\"").body("body");
    let cases = [
        // Fresh for an hour, but made in 1994.
        (
            "/old",
            plain().header("Date", DATE).header("Expires", LATER),
            "EXPIRED",
        ),
        (
            "/lower",
            plain().header("Expires", "Fri, 01 Jan 2100 00:00:00 gmt"),
            "HIT",
        ),
        ("/zero", plain().header("Expires", "0"), "EXPIRED"),
        ("/word", control("max-age=ten"), "EXPIRED"),
        ("/negative", control("max-age=-1"), "EXPIRED"),
        ("/fraction", control("max-age=10.5"), "EXPIRED"),
        ("/quoted", control("max-age=\"100\""), "HIT"),
        ("/huge", control("max-age=99999999999999999999"), "HIT"),
        ("/first", control("max-age=100, max-age=0"), "HIT"),
        ("/age", control("max-age=100").header("Age", "lots"), "HIT"),
        ("/case", control("MAX-AGE=100, FOO"), "HIT"),
        (
            "/star",
            control("max-age=100").header("Vary", "Accept, *"),
            "MISS",
        ),
        ("/private", control("max-age=100, private=\"X-A\""), "MISS"),
        (
            "/no-cache",
            control("max-age=100, no-cache=\"X-A\""),
            "EXPIRED",
        ),
        (
            "/known",
            control("max-age=100, no-store, must-understand"),
            "HIT",
        ),
        ("/shared", control("max-age=0, s-maxage=100"), "HIT"),
    ];
    for (path, answer, expected) in cases {
        bench.origin.route(path, answer);
        bench.get(path)?;
        assert_eq!(label(&bench.get(path)?), expected, "{path}");
    }
    Ok(())
}

/// RFC 5861 §3, RFC 8246: what an origin allows beyond and promises within the lifetime.
#[test]
fn extensions_of_cache_control_are_obeyed() -> Result<()> {
    let bench = bench()?;
    let behind = control("max-age=1, stale-while-revalidate=600").header("Age", "10");
    bench.origin.route("/behind", behind);
    bench.get("/behind")?;
    assert_eq!(label(&bench.get("/behind")?), "STALE");
    bench.origin.route(
        "/fixed",
        control("max-age=100, immutable").header("Age", "5"),
    );
    bench.get("/fixed")?;
    let reload = bench.get_with("/fixed", "Cache-Control", "max-age=0")?;
    assert_eq!(label(&reload), "HIT");
    let forced = bench.get_with("/fixed", "Cache-Control", "no-cache")?;
    assert_eq!(label(&forced), "EXPIRED");
    Ok(())
}

/// §4.3.2: without Last-Modified, If-Modified-Since is weighed against the stored Date.
#[test]
fn date_stands_for_last_modified() -> Result<()> {
    let bench = bench()?;
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let dated = Answer::new(200)
        .header("Cache-Control", "max-age=9999999999")
        .header("Date", date)
        .body("body");
    bench.origin.route("/a", dated);
    bench.get("/a")?;
    let same = bench.get_with("/a", "If-Modified-Since", date)?;
    assert_eq!(same.status, 304);
    let before = "Sun, 06 Nov 1994 08:49:36 GMT";
    let older = bench.get_with("/a", "If-Modified-Since", before)?;
    assert_eq!(older.status, 200);
    Ok(())
}

/// RFC 9110 §9.3.3: an answer to POST that says that it is what GET would give, and for how long.
#[test]
fn a_get_is_answered_from_a_stored_post() -> Result<()> {
    let bench = bench()?;
    let old = "Tue, 14 Jul 2015 08:29:12 GMT";
    let answer = |location: &str| control("max-age=100").header("Content-Location", location);
    let heuristic = Answer::new(200)
        .header("Content-Location", "/heuristic")
        .last_modified(old)
        .body("x");
    let cases = [
        ("/same", answer("/same"), "HIT"),
        ("/abs", answer("http://localhost/abs"), "HIT"),
        ("/other", answer("/same"), "MISS"),
        ("/host", answer("http://other.example/host"), "MISS"),
        ("/none", control("max-age=100"), "MISS"),
        ("/heuristic", heuristic, "MISS"),
        (
            "/failed",
            Answer::new(404).header("Content-Location", "/failed"),
            "MISS",
        ),
    ];
    for (path, answer, expected) in cases {
        let get = Answer::new(200).body("from a get");
        bench.origin.sequence(path, vec![answer.clone(), get]);
        let posted = bench.client.send(
            &Request::post(path, "x")
                .header("If-None-Match", "\"v\"")
                .header("Range", "bytes=0-1"),
        )?;
        assert_eq!(label(&posted), "-", "{path}");
        assert_ne!(posted.status, 304, "{path}");
        let got = bench.get(path)?;
        assert_eq!(label(&got), expected, "{path}");
        if expected == "HIT" {
            assert_eq!(
                (posted.text(), got.text()),
                ("body".to_string(), "body".to_string())
            );
        }
    }
    let asked = bench.origin.requests();
    assert_eq!(asked[0].header("If-None-Match"), Some("\"v\""));
    Ok(())
}

/// §4.3.5: HEAD that goes on as HEAD freshens or invalidates what is stored for GET, and is never
/// an answer to it.
#[test]
fn head_tells_of_what_is_stored() -> Result<()> {
    let bench = bench()?;
    let head = |path: &str| bench.client.send(&Request::head(path));
    let old = || control("max-age=0").header("X-Version", "1");
    let cases = [
        (
            "/same",
            control("max-age=100").header("X-Version", "2"),
            "HIT",
            Some("2"),
        ),
        (
            "/other",
            Answer::new(200).etag("\"w\"").body("other"),
            "MISS",
            None,
        ),
    ];
    for (path, answer, expected, version) in cases {
        let new = Answer::new(200).etag("\"w\"").body("new");
        bench.origin.sequence(path, vec![old(), answer, new]);
        let path = format!("/head{path}");
        bench.get(&path)?;
        assert_eq!(label(&head(&path)?), "EXPIRED", "{path}");
        let got = bench.get(&path)?;
        assert_eq!(
            (label(&got), got.header("X-Version")),
            (expected, version),
            "{path}"
        );
        let body = if expected == "HIT" { "body" } else { "new" };
        assert_eq!(got.text(), body);
    }
    bench.origin.route("/first", control("max-age=100"));
    head("/head/first")?;
    assert_eq!(bench.get("/head/first")?.text(), "body");
    Ok(())
}

/// A location under nginx's rules hears none of this.
#[test]
fn nginxs_rules_stay_nginxs() -> Result<()> {
    let bench = bench()?;
    bench
        .origin
        .route("/a", control("max-age=100").header("Age", "500"));
    bench.get("/nginx/a")?;
    let response = bench.get_with("/nginx/a", "Cache-Control", "no-cache")?;
    assert_eq!(
        (label(&response), response.header("Age")),
        ("HIT", Some("500"))
    );
    Ok(())
}
