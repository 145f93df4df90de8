//! `proxy_cache_conformance rfc9111`: rules by whose letter a client is not misled. Each test names
//! the section that it follows.

use std::time::Duration;

use anyhow::{Result, ensure};
use millpond_testkit::{Answer, Client, Gate, Kind, Origin, Proxy, Request, Response};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    gzip_types text/plain;
    gzip_min_length 1;
    map $request_method $verb { GET read; default written; }
    map $uri $page { default $uri; }
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri;
        proxy_cache_conformance rfc9111;
        proxy_cache_status_header on;
        add_header X-Cache $upstream_cache_status always;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /verbs/ { proxy_pass http://%%ORIGIN%%; proxy_cache_key $verb$page; }
        location /kept/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_valid any 1h; }
        location /usual/ { proxy_pass http://%%ORIGIN%%; proxy_cache_key $proxy_host$request_uri; }
        location /deep/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_max_range_offset 10; }
        location /zipped/ { proxy_pass http://%%ORIGIN%%/; gzip on; }
        location /unzipped/ { proxy_pass http://%%ORIGIN%%/; gunzip on; }
        location /changed/ {
            proxy_pass http://%%ORIGIN%%/;
            sub_filter body text;
            sub_filter_once off;
            sub_filter_types *;
        }
        location /open/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_set_header Connection upgrade;
            proxy_set_header Upgrade $http_upgrade;
        }
        location /nginx/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache_conformance nginx;
            proxy_cache_valid any 1h;
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

    /// The fields of the last request that the origin got.
    fn last_asked(&self, field: &str) -> Option<String> {
        let requests = self.origin.requests();
        let last = requests.last()?;
        last.header(field).map(str::to_string)
    }
}

const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const AFTER_OLD: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

fn control(value: &str) -> Answer {
    Answer::new(200)
        .header("Cache-Control", value)
        .etag("\"v\"")
        .body("body")
}

fn label(response: &Response) -> &str {
    response.header("X-Cache").unwrap_or("-")
}

fn age(response: &Response) -> Result<u64> {
    Ok(response.header("Age").unwrap_or("").parse()?)
}

/// §4.2.3: what an answer took on its way is a part of its age.
#[test]
fn the_delay_of_an_answer_counts_into_its_age() -> Result<()> {
    let bench = bench()?;
    let slow = control("max-age=100").header("Age", "40");
    let slow = slow.delay_head(Duration::from_secs(2));
    bench.origin.route("/a", slow);
    bench.get("/a")?;
    let told = age(&bench.get("/a")?)?;
    assert!((42..60).contains(&told), "{told}");
    Ok(())
}

/// The delay of an answer counts also when it is a 304.
#[test]
fn the_delay_of_a_304_counts_into_the_age() -> Result<()> {
    let bench = bench()?;
    let first = control("max-age=100").header("Age", "100");
    let fresh = Answer::new(304).etag("\"v\"");
    let fresh = fresh.delay_head(Duration::from_secs(2));
    bench.origin.sequence("/a", vec![first, fresh]);
    bench.get("/a")?;
    assert_eq!(label(&bench.get("/a")?), "REVALIDATED");
    let told = age(&bench.get("/a")?)?;
    assert!((2..20).contains(&told), "{told}");
    Ok(())
}

/// RFC 9110 §6.6.1: an answer without a Date gets the one when it came, once; so does one whose
/// Date cannot be read.
#[test]
fn an_answer_without_a_date_gets_one_once() -> Result<()> {
    let bench = bench()?;
    for (path, answer) in [
        ("/none", control("max-age=100")),
        ("/bad", control("max-age=100").header("Date", "yesterday")),
    ] {
        bench.origin.route(path, answer);
        let first = bench.get(path)?.header("Date").map(str::to_string);
        ensure!(first.as_deref().is_some_and(|date| date.ends_with(" GMT")));
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        // Until a Date of this moment would be another one.
        loop {
            let hit = bench.get(path)?;
            assert_eq!((label(&hit), hit.header("Date")), ("HIT", first.as_deref()));
            if age(&hit)? > 0 {
                break;
            }
            ensure!(
                std::time::Instant::now() < deadline,
                "it does not grow older"
            );
        }
    }
    Ok(())
}

/// A 304 without a Date gets one, too: the stored Date is not that of the validation.
#[test]
fn a_304_without_a_date_gets_one() -> Result<()> {
    let bench = bench()?;
    let first = control("max-age=100").header("Date", OLD);
    bench
        .origin
        .sequence("/a", vec![first, Answer::new(304).etag("\"v\"")]);
    assert_eq!(bench.get("/a")?.header("Date"), Some(OLD));
    assert_eq!(label(&bench.get("/a")?), "REVALIDATED");
    let hit = bench.get("/a")?;
    assert_eq!(label(&hit), "HIT");
    assert_ne!(hit.header("Date"), Some(OLD));
    assert!(age(&hit)? < 60);
    Ok(())
}

/// RFC 9110 §13.1.5: If-Range is compared strongly; a date is strong when the answer was made at
/// least a second after it (§8.8.2.2).
#[test]
fn if_range_is_compared_strongly() -> Result<()> {
    let bench = bench()?;
    let tagged = |tag: &str| {
        Answer::new(200)
            .header("Cache-Control", "max-age=9999999999")
            .etag(tag)
            .body("body")
    };
    let dated = |date: &str| tagged("\"v\"").last_modified(OLD).header("Date", date);
    for (path, answer, condition, expected) in [
        ("/weak", tagged("W/\"v\""), "W/\"v\"", 200),
        ("/unweak", tagged("W/\"v\""), "\"v\"", 200),
        ("/strong", tagged("\"v\""), "\"v\"", 206),
        ("/strong-weak", tagged("\"v\""), "W/\"v\"", 200),
        ("/bare", tagged("\"v\""), "v", 200),
        ("/same-second", dated(OLD), OLD, 200),
        ("/later", dated(AFTER_OLD), OLD, 206),
        ("/later-other", dated(AFTER_OLD), AFTER_OLD, 200),
    ] {
        bench.origin.route(path, answer);
        for _ in 0..2 {
            let request = Request::get(path)
                .header("Range", "bytes=1-2")
                .header("If-Range", condition);
            assert_eq!(bench.client.send(&request)?.status, expected, "{path}");
        }
        assert_eq!(label(&bench.get(path)?), "HIT", "{path}");
    }
    Ok(())
}

/// §3.3: a range of what is being stored is served however much of it has come with the head.
#[test]
fn a_range_is_cut_from_a_body_that_is_still_coming() -> Result<()> {
    let bench = bench()?;
    let gate = Gate::new();
    let body = control("max-age=100").body("0123456789");
    bench.origin.route("/a", body.hold_body_at(3, &gate));
    for _ in 0..2 {
        let part = bench.get_with("/a", "Range", "bytes=1-2")?;
        assert_eq!((part.status, part.text().as_str()), (206, "12"));
    }
    gate.open();
    let part = bench.get_with("/a", "Range", "bytes=5-8")?;
    assert_eq!((part.status, part.text().as_str()), (206, "5678"));
    assert_eq!(bench.origin.requests().len(), 1);
    Ok(())
}

/// RFC 9110 §14.2: Range is for GET alone.
#[test]
fn a_range_of_a_head_means_nothing() -> Result<()> {
    let bench = bench()?;
    bench.origin.route(
        "/a",
        control("max-age=100")
            .body("0123456789")
            .header("Accept-Ranges", "bytes"),
    );
    for path in ["/a", "/a", "/deep/a"] {
        for range in ["bytes=1-2", "bytes=50-60", "bytes=0-0,2-2"] {
            let request = Request::head(path).header("Range", range);
            let response = bench.client.send(&request)?;
            assert_eq!(response.status, 200, "{path} {range}");
            assert_eq!(response.header("Content-Range"), None);
            assert_eq!(response.header("Content-Length"), Some("10"));
        }
        assert_eq!(bench.get_with(path, "Range", "bytes=1-2")?.status, 206);
    }
    bench
        .client
        .send(&Request::head("/deep/b").header("Range", "bytes=50-60"))?;
    assert_eq!(bench.last_asked("Range"), None);
    Ok(())
}

/// §4.3.2, RFC 9110 §13.1.1, §13.1.4: conditions that are the origin's to weigh reach it, and what
/// it answers to them is for whoever set them.
#[test]
fn conditions_for_the_origin_are_passed_on() -> Result<()> {
    let bench = bench()?;
    for name in ["If-Match", "If-Unmodified-Since"] {
        let path = format!("/kept/{name}");
        let (value, other) = match name {
            "If-Match" => ("\"v\"", "\"w\""),
            _ => ("Fri, 01 Jan 2100 00:00:00 GMT", OLD),
        };
        let (wanted, name_of) = (value.to_string(), name.to_string());
        bench
            .origin
            .answer_with(&format!("/{name}"), move |request| {
                match request.header(&name_of) {
                    Some(condition) if condition != wanted => Answer::new(412).body("no"),
                    _ => control("max-age=100"),
                }
            });
        let failed = bench.get_with(&path, name, other)?;
        assert_eq!((failed.status, failed.text()), (412, "no".to_string()));
        let met = bench.get_with(&path, name, value)?;
        assert_eq!((label(&met), met.status), ("MISS", 200), "{name}");
        assert_eq!(bench.last_asked(name).as_deref(), Some(value));
        assert_eq!(bench.last_asked("Range"), None);
        assert_eq!(label(&bench.get(&path)?), "HIT");
        let renewed = Request::get(&path)
            .header(name, other)
            .header("Cache-Control", "no-cache");
        assert_eq!(bench.client.send(&renewed)?.status, 412);
        assert_eq!(bench.last_asked(name).as_deref(), Some(other));
        assert_eq!(
            label(&bench.get(&path)?),
            "HIT",
            "it says nothing of others"
        );
    }
    Ok(())
}

/// RFC 9110 §5.3: lines of one list are one list. nginx refuses them, and so does a location that
/// follows it.
#[test]
fn lists_of_entity_tags_may_come_in_lines() -> Result<()> {
    let bench = bench()?;
    bench.origin.route("/a", control("max-age=100"));
    bench.get("/a")?;
    let two = |path: &str, name: &str, values: [&str; 2]| {
        let request = Request::get(path).header(name, values[0]);
        bench.client.send(&request.header(name, values[1]))
    };
    let (v, x, y) = ("\"v\"", "\"x\"", "\"y\"");
    for (name, values, expected) in [
        ("If-None-Match", [x, v], 304),
        ("If-None-Match", [v, x], 304),
        ("If-None-Match", [x, y], 200),
        ("If-Match", [x, v], 200),
        ("If-Match", [x, y], 412),
    ] {
        assert_eq!(
            two("/a", name, values)?.status,
            expected,
            "{name} {values:?}"
        );
        assert_eq!(two("/nginx/a", name, values)?.status, 400, "{name}");
    }
    let request = Request::get("/a").header("If-Modified-Since", OLD);
    let twice = bench
        .client
        .send(&request.header("If-Modified-Since", OLD))?;
    assert_eq!(twice.status, 400);
    Ok(())
}

/// §4.4: only what is of the same origin is invalidated, and a port is a part of that; safe methods
/// invalidate nothing (RFC 9110 §9.2.1 and the registry of methods).
#[test]
fn only_unsafe_methods_invalidate_and_only_the_same_origin() -> Result<()> {
    let bench = bench()?;
    for (host, location, expected) in [
        ("localhost", "/b", "MISS"),
        ("localhost", "/b#part", "MISS"),
        ("localhost:8080", "/b", "MISS"),
        ("localhost:8080", "b", "MISS"),
        ("localhost", "http://localhost/b", "MISS"),
        ("localhost", "http://localhost:80/b", "MISS"),
        ("localhost", "http://localhost:8080/b", "HIT"),
        ("localhost:8080", "http://localhost:8080/b", "MISS"),
        ("localhost:8080", "http://localhost/b", "HIT"),
        ("localhost:8080", "//localhost:8080/b", "MISS"),
        ("localhost:8080", "//localhost/b", "HIT"),
        ("localhost", "https://localhost/b", "MISS"),
        ("localhost:443", "https://localhost/b", "MISS"),
        ("localhost", "https://localhost:8443/b", "HIT"),
        ("[::1]:8080", "http://[::1]:8080/b", "MISS"),
        ("[::1]:8080", "http://[::1]:8081/b", "HIT"),
        ("localhost", "http://other/b", "HIT"),
        ("localhost", "ftp://localhost/b", "HIT"),
    ] {
        bench.origin.route("/b", control("max-age=100"));
        bench
            .origin
            .route("/a", Answer::new(201).header("Location", location));
        bench.get("/b")?;
        bench.client.send(&Request::post("/a", "x").host(host))?;
        assert_eq!(label(&bench.get("/b")?), expected, "{host} {location}");
    }
    // The name of the upstream is in the key, as it is without `proxy_cache_key`; or maps are.
    for (asked, other, location) in [
        ("/usual/a", "/usual/b", "/usual/b"),
        ("/usual/a", "/usual/b", "b"),
        ("/verbs/a", "/verbs/b", "b"),
        ("/verbs/a", "/verbs/a", "b"),
    ] {
        bench.origin.route(other, control("max-age=100"));
        let moved = Answer::new(201).header("Location", location);
        bench.get(other)?;
        assert_eq!(label(&bench.get(other)?), "HIT", "{asked} {other}");
        bench.origin.route(asked, moved);
        bench.client.send(&Request::post(asked, "x"))?;
        bench.origin.route(other, control("max-age=100"));
        assert_eq!(label(&bench.get(other)?), "MISS", "{asked} {other}");
    }
    for (method, expected) in [
        ("QUERY", "HIT"),
        ("PROPFIND", "HIT"),
        ("REPORT", "HIT"),
        ("SEARCH", "HIT"),
        ("OPTIONS", "HIT"),
        ("PROPPATCH", "MISS"),
        ("PUT", "MISS"),
        ("UNHEARD-OF", "MISS"),
    ] {
        bench.get("/b")?;
        bench.client.send(&Request::new(method, "/b"))?;
        assert_eq!(label(&bench.get("/b")?), expected, "{method}");
    }
    Ok(())
}

/// §3.1: what proxies say to each other is not stored; RFC 9110 §7.6.1: what is of a connection
/// goes no further.
#[test]
fn fields_of_proxies_and_connections_stop_here() -> Result<()> {
    const FIELDS: [(&str, &str); 7] = [
        ("Proxy-Authenticate", "Basic realm=x"),
        ("Proxy-Authentication-Info", "x=1"),
        ("Proxy-Authorization", "Basic x"),
        ("Proxy-Connection", "keep-alive"),
        ("Keep-Alive", "timeout=5"),
        ("Upgrade", "h2c"),
        ("TE", "trailers"),
    ];
    let bench = bench()?;
    let add = |answer: Answer, (name, value): &(&str, &str)| answer.header(name, value);
    let stored = FIELDS.iter().fold(control("max-age=100"), add);
    bench.origin.route("/a", stored);
    for expected in ["MISS", "HIT"] {
        let response = bench.get("/a")?;
        assert_eq!(label(&response), expected);
        for (name, _) in FIELDS {
            assert_eq!(response.header(name), None, "{expected} {name}");
        }
    }
    let passed = FIELDS.iter().fold(control("no-store"), add);
    bench.origin.route("/b", passed);
    let response = bench.get("/b")?;
    for name in ["Proxy-Connection", "Keep-Alive", "Upgrade", "TE"] {
        assert_eq!(response.header(name), None, "{name}");
    }
    assert!(response.header("Proxy-Authenticate").is_some());
    Ok(())
}

/// RFC 9110 §7.8: a switch of protocols says to which.
#[test]
fn a_101_keeps_its_upgrade() -> Result<()> {
    let bench = bench()?;
    bench.origin.route(
        "/a",
        Answer::raw(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
        ),
    );
    let mut connection = bench.client.connect()?;
    let request = Request::get("/open/a")
        .header("Connection", "upgrade")
        .header("Upgrade", "echo");
    connection.send_raw(&request.encode())?;
    let head = connection.read_head("GET")?;
    let head = head.ok_or_else(|| anyhow::anyhow!("no answer"))?;
    assert_eq!((head.status, head.header("Upgrade")), (101, Some("echo")));
    Ok(())
}

/// RFC 9110 §5.6.7: a year of two digits that seems more than 50 years ahead is in the past, and
/// one that does not is not. RFC 9111 §4.2: dates are read in any case.
#[test]
fn dates_are_read_by_the_rfc() -> Result<()> {
    let bench = bench()?;
    let expires = |value: &str| {
        Answer::new(200)
            .etag("\"v\"")
            .header("Expires", value)
            .body("x")
    };
    for (path, date, expected) in [
        ("/past", "Sunday, 06-Nov-94 08:49:37 GMT", "EXPIRED"),
        ("/ahead", "Tuesday, 01-Jan-75 00:00:00 GMT", "HIT"),
        ("/small", "fri, 01 jan 2100 00:00:00 gmt", "HIT"),
        ("/large", "FRI, 01 JAN 2100 00:00:00 GMT", "HIT"),
        ("/asctime", "fri jan  1 00:00:00 2100", "HIT"),
    ] {
        bench.origin.route(path, expires(date));
        bench.get(path)?;
        assert_eq!(label(&bench.get(path)?), expected, "{path}");
    }
    bench
        .origin
        .route("/since", control("max-age=100").last_modified(OLD));
    bench.get("/since")?;
    let since = bench.get_with(
        "/since",
        "If-Modified-Since",
        "SUN, 06 nov 1994 08:49:37 gmt",
    )?;
    assert_eq!(since.status, 304);
    let short = bench.get_with(
        "/since",
        "If-Modified-Since",
        "Sunday, 06-Nov-94 08:49:37 GMT",
    )?;
    assert_eq!(short.status, 304);
    Ok(())
}

/// RFC 9110 §5.5: white space around a value is no part of it, and a tab is white space.
#[test]
fn a_tab_before_a_value_is_no_part_of_it() -> Result<()> {
    let bench = bench()?;
    let answer = Answer::new(200)
        .header("Expires", "\tFri, 01 Jan 2100 00:00:00 GMT\t")
        .header("ETag", "\t\"v\"")
        .header("Age", "\t40")
        .header("Vary", "\tAccept")
        .header("X-Plain", "\t a\tb \t")
        .body("body");
    bench.origin.route("/a", answer);
    bench.get("/a")?;
    let hit = bench.get("/a")?;
    assert_eq!((label(&hit), hit.header("ETag")), ("HIT", Some("\"v\"")));
    assert_eq!(hit.header("X-Plain"), Some("a\tb"));
    assert!((40..60).contains(&age(&hit)?));
    for (name, value, expected) in [
        ("If-None-Match", "\t\"v\"", 304),
        ("If-Match", "\t\"w\"", 412),
        ("Range", "\tbytes=1-2", 206),
    ] {
        assert_eq!(
            bench.get_with("/a", name, value)?.status,
            expected,
            "{name}"
        );
    }
    let request = Request::get("/a").header("Range", "bytes=1-2");
    let request = request.header("If-Range", "\t\"v\"");
    assert_eq!(bench.client.send(&request)?.status, 206);
    bench.origin.route("/b", control("no-store"));
    bench.get_with("/b", "X-Mine", "\tvalue\t")?;
    assert_eq!(bench.last_asked("X-Mine").as_deref(), Some("value"));
    Ok(())
}

/// RFC 9211 §2, RFC 9651 §4.2: what is no list is no member of one.
#[test]
fn a_cache_status_that_is_none_does_not_spoil_ours() -> Result<()> {
    let bench = bench()?;
    for (number, lines, expected) in [
        (0, vec![""], ""),
        (1, vec!["  "], ""),
        (2, vec!["a;hit,"], ""),
        (3, vec![", a;hit"], ""),
        (4, vec!["a;hit=\"x"], ""),
        (5, vec!["behind; hit"], "behind; hit, "),
        (
            6,
            vec!["", "behind; hit", "((", "\"far\"; fwd=miss"],
            "behind; hit, \"far\"; fwd=miss, ",
        ),
    ] {
        let path = format!("/{number}");
        let answer = lines.iter().fold(control("no-store"), |answer, line| {
            answer.header("Cache-Status", line)
        });
        bench.origin.route(&path, answer);
        let told = bench.get(&path)?;
        let told = told.header("Cache-Status").unwrap_or("-").to_string();
        let ours = "millpond;fwd=uri-miss;fwd-status=200;detail=no-store";
        assert_eq!(told, format!("{expected}{ours}"), "{lines:?}");
    }
    Ok(())
}

/// RFC 9110 §7.6.2: an OPTIONS goes no further than it may; TRACE goes nowhere.
#[test]
fn max_forwards_is_counted() -> Result<()> {
    let bench = bench()?;
    bench
        .origin
        .route("/a", Answer::new(200).header("Allow", "GET"));
    let options = |value: &str| {
        let request = Request::new("OPTIONS", "/a").header("Max-Forwards", value);
        bench.client.send(&request)
    };
    for (value, passed) in [
        ("5", "4"),
        ("1", "0"),
        ("007", "6"),
        ("many", "many"),
        ("-1", "-1"),
    ] {
        assert_eq!(options(value)?.header("Allow"), Some("GET"), "{value}");
        assert_eq!(bench.last_asked("Max-Forwards").as_deref(), Some(passed));
    }
    let asked = bench.origin.requests().len();
    for value in ["0", "00"] {
        let answered = options(value)?;
        assert_eq!((answered.status, answered.body.len()), (200, 0), "{value}");
    }
    let request = Request::new("TRACE", "/a").header("Max-Forwards", "5");
    assert_eq!(bench.client.send(&request)?.status, 405);
    assert_eq!(bench.origin.requests().len(), asked);
    bench.get_with("/a", "Max-Forwards", "0")?;
    assert_eq!(bench.last_asked("Max-Forwards").as_deref(), Some("0"));
    let request = Request::new("OPTIONS", "/nginx/a").header("Max-Forwards", "0");
    assert_eq!(bench.client.send(&request)?.header("Allow"), Some("GET"));
    Ok(())
}

/// RFC 9110 §7.7, RFC 9111 §5.2.1.6, §5.2.2.6: what must not be transformed is not.
#[test]
fn no_transform_keeps_the_content_as_it_is() -> Result<()> {
    let bench = bench()?;
    let text = |value: &str| {
        control(value)
            .header("Content-Type", "text/plain")
            .body("body ".repeat(50))
    };
    bench.origin.route("/a", text("max-age=100"));
    bench
        .origin
        .route("/kept", text("max-age=100, NO-Transform"));
    let zipped = |path: &str, asked: &str| -> Result<bool> {
        let request = Request::get(path).header("Accept-Encoding", "gzip");
        let response = bench.client.send(&request.header("Cache-Control", asked))?;
        Ok(response.header("Content-Encoding").is_some())
    };
    for _ in 0..2 {
        assert!(zipped("/zipped/a", "max-age=100")?);
        assert!(!zipped("/zipped/a", "no-transform")?);
        assert!(!zipped("/zipped/kept", "max-age=100")?);
        assert_eq!(bench.get("/changed/kept")?.text(), "body ".repeat(50));
        assert_eq!(bench.get("/changed/a")?.text(), "text ".repeat(50));
    }
    let strong = bench.get_with("/zipped/kept", "Accept-Encoding", "gzip")?;
    assert_eq!(strong.header("ETag"), Some("\"v\""));
    Ok(())
}

/// §5.2.2.2: without the origin, what must be revalidated is answered with 504.
#[test]
fn what_must_be_revalidated_and_cannot_be_is_504() -> Result<()> {
    let bench = bench()?;
    for (path, value, expected) in [
        ("/must", "max-age=0, must-revalidate", 504),
        ("/proxy", "max-age=0, proxy-revalidate", 504),
        ("/shared", "s-maxage=0", 504),
        ("/checked", "no-cache", 504),
    ] {
        let aged = control(value).header("Age", "5");
        bench.origin.sequence(path, vec![aged, Answer::raw("")]);
        bench.get(path)?;
        assert_eq!(bench.get(path)?.status, expected, "{path}");
    }
    // What was never there, or may be had from its origin only because the client says so.
    bench.origin.route("/missing", Answer::raw(""));
    assert_eq!(bench.get("/missing")?.status, 502);
    bench
        .origin
        .sequence("/free", vec![control("max-age=100"), Answer::raw("")]);
    bench.get("/free")?;
    let forced = bench.get_with("/free", "Cache-Control", "no-cache")?;
    assert_eq!(forced.status, 502);
    Ok(())
}

/// RFC 9110 §7.1: the fragment is no part of the target.
#[test]
fn no_fragment_goes_to_the_origin() -> Result<()> {
    let bench = bench()?;
    bench.origin.route("/usual/a", control("max-age=100"));
    for (target, asked) in [
        ("/usual/a#part", "/usual/a"),
        ("/usual/a?b=1#part?c", "/usual/a?b=1"),
        ("/usual/a?x=%23y", "/usual/a?x=%23y"),
    ] {
        bench.get(target)?;
        let requests = bench.origin.requests();
        assert_eq!(requests.last().map(|last| &*last.target), Some(asked));
    }
    Ok(())
}

/// RFC 9110 §9.3.1: content of a GET has no meaning that others would share.
#[test]
fn an_answer_to_a_get_with_a_body_is_not_stored() -> Result<()> {
    let bench = bench()?;
    bench.origin.route("/a", control("max-age=100"));
    let with_body = Request::get("/a").body("query");
    let in_chunks = Request::get("/a").chunks(&["query"]);
    for request in [&with_body, &in_chunks, &Request::head("/a").body("query")] {
        assert_eq!(label(&bench.client.send(request)?), "MISS");
    }
    assert_eq!(label(&bench.get("/a")?), "MISS");
    assert_eq!(label(&bench.get("/a")?), "HIT");
    bench.origin.route("/b", control("max-age=100"));
    bench.client.send(&Request::get("/b").body(""))?;
    assert_eq!(label(&bench.get("/b")?), "HIT", "an empty one is none");
    Ok(())
}
