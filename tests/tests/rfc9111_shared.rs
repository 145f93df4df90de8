//! Answers that must not reach another client than the one that they were meant for: variants,
//! fields of one connection, digests of other bytes, cookies.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use millpond_testkit::{
    Answer, Client, Framing, Kind, Manners, Origin, Proxy, Request, Resource, Response,
};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    gzip on;
    gzip_types text/plain;
    gzip_min_length 1;
    map $http_x_language $language { default -; ~. $http_x_language; }
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri;
        proxy_cache_conformance rfc9111;
        add_header X-Cache $upstream_cache_status always;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /kept/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_valid any 1h; }
        location /open/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache_valid any 1h;
            proxy_ignore_headers Set-Cookie;
        }
        location /head/ { proxy_pass http://%%ORIGIN%%/; proxy_cache_convert_head off; }
        location /sliced/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache_valid any 1h;
            slice 1k;
            proxy_set_header Range $slice_range;
        }
        location /parts/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache off;
            slice 1k;
            proxy_set_header Range $slice_range;
        }
        location /gunzip/ { proxy_pass http://%%ORIGIN%%/; gzip off; gunzip on; }
        location /trailed/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache off;
            proxy_pass_trailers on;
        }
        location /sub/ {
            proxy_pass http://%%ORIGIN%%/;
            gzip off;
            sub_filter body text;
            sub_filter_types *;
        }
        location /proto/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_key $http_x_forwarded_proto$uri;
        }
        location /cookie/ { proxy_pass http://%%ORIGIN%%; proxy_cache_key $cookie_lang$uri; }
        location /mapped/ { proxy_pass http://%%ORIGIN%%; proxy_cache_key $language$uri; }
        location /early/ {
            set $early $http_x_language;
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_key $early$uri;
        }
        location /named/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_set_header Host $http_host;
            proxy_cache_key $host$uri;
        }
        location /nginx/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache_conformance nginx;
            proxy_cache_revalidate on;
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

    /// A resource in two languages whose first answer is `first`; all later ones have this Vary.
    fn speaks_two(&self, path: &str, first: Answer, vary: &'static str) {
        let count = AtomicUsize::new(0);
        self.origin.answer_with(path, move |request| {
            let language = request.header("Accept-Language").unwrap_or("en");
            let tag = format!("\"{language}\"");
            let later = |status| {
                Answer::new(status)
                    .etag(&tag)
                    .header("Cache-Control", "max-age=100")
                    .header("Vary", vary)
            };
            if request.header("If-None-Match") == Some(&tag) {
                return later(304);
            }
            match count.fetch_add(1, Ordering::Relaxed) {
                0 => first.clone().etag(&tag).body(language),
                _ => later(200).body(language),
            }
        });
    }
}

fn control(value: &str) -> Answer {
    Answer::new(200)
        .header("Cache-Control", value)
        .etag("\"v\"")
        .body("body")
}

fn stale() -> Answer {
    Answer::new(200)
        .header("Cache-Control", "max-age=1")
        .header("Age", "9")
}

fn label(response: &Response) -> &str {
    response.header("X-Cache").unwrap_or("-")
}

/// RFC 9111 §4.1: a stored answer is for requests that match its Vary, and §3.2 makes that of a 304
/// its own.
#[test]
fn a_304_that_brings_a_vary_selects_by_it() -> Result<()> {
    let bench = bench()?;
    let get = |path: &str, language: &str| bench.get_with(path, "Accept-Language", language);
    bench.speaks_two("/a", stale(), "Accept-Language");
    assert_eq!(get("/a", "en")?.text(), "en");
    let renewed = get("/a", "en")?;
    assert_eq!((label(&renewed), &*renewed.text()), ("REVALIDATED", "en"));
    assert_eq!(renewed.header("Vary"), Some("Accept-Language"));
    let other = get("/a", "de")?;
    assert_eq!((label(&other), &*other.text()), ("MISS", "de"));
    let same = get("/a", "en")?;
    assert_eq!((label(&same), &*same.text()), ("HIT", "en"));
    Ok(())
}

/// A 304 that brings another Vary makes it its own also for a variant besides the first.
#[test]
fn a_304_that_changes_the_vary_of_a_variant_leaves_no_wrong_one() -> Result<()> {
    let bench = bench()?;
    let by_agent = |agent: &str| {
        stale()
            .header("Vary", "User-Agent")
            .etag("\"en\"")
            .body(agent)
    };
    let by_language = |status| {
        Answer::new(status)
            .header("Cache-Control", "max-age=100")
            .header("Vary", "Accept-Language")
    };
    let answers = vec![
        by_agent("one"),
        by_agent("two"),
        by_language(304).etag("\"en\""),
        by_language(200).body("en"),
        by_language(200).body("de"),
    ];
    bench.origin.sequence("/a", answers);
    let get = |agent: &str, language: &str| {
        let request = Request::get("/a").header("User-Agent", agent);
        let request = request.header("Accept-Language", language);
        bench.client.send(&request).map(|response| response.text())
    };
    assert_eq!(get("one", "en")?, "one");
    assert_eq!(get("two", "en")?, "two");
    assert_eq!(get("two", "en")?, "two");
    assert_eq!(get("two", "en")?, "en");
    assert_eq!(get("one", "de")?, "de");
    for agent in ["one", "two", "three"] {
        assert_eq!(get(agent, "en")?, "en", "{agent}");
        assert_eq!(get(agent, "de")?, "de", "{agent}");
    }
    assert_eq!(bench.origin.requests().len(), 5);
    Ok(())
}

/// §4.1: a Vary of `*` matches nobody, also if a 304 says it.
#[test]
fn a_304_with_a_vary_of_star_is_for_its_request_alone() -> Result<()> {
    let bench = bench()?;
    let fresh = Answer::new(304)
        .etag("\"v\"")
        .header("Cache-Control", "max-age=100")
        .header("Vary", "*");
    let old = control("max-age=1").header("Age", "9");
    let new = control("max-age=100").body("new");
    bench.origin.sequence("/a", vec![old, fresh, new]);
    bench.get("/a")?;
    assert_eq!(label(&bench.get("/a")?), "REVALIDATED");
    let next = bench.get("/a")?;
    assert_eq!((label(&next), &*next.text()), ("MISS", "new"));
    Ok(())
}

/// §4.3.5: what HEAD says of the Vary counts as well.
#[test]
fn a_head_that_changes_the_vary_leaves_no_wrong_variant() -> Result<()> {
    let bench = bench()?;
    let told = control("max-age=100").header("Vary", "Accept-Language");
    bench.origin.sequence(
        "/a",
        vec![
            control("max-age=0"),
            told,
            control("max-age=100").body("de"),
        ],
    );
    bench.get_with("/head/a", "Accept-Language", "en")?;
    bench
        .client
        .send(&Request::head("/head/a").header("Accept-Language", "en"))?;
    let other = bench.get_with("/head/a", "Accept-Language", "de")?;
    assert_eq!(other.text(), "de");
    Ok(())
}

/// RFC 9110 §7.6.1: what Connection names is for one connection: it is neither stored, nor taken
/// from a 304, nor passed on.
#[test]
fn fields_of_a_connection_are_not_freshened() -> Result<()> {
    let bench = bench()?;
    let first = control("max-age=0").header("X-Hop", "stored");
    let second = Answer::new(304)
        .etag("\"v\"")
        .header("Cache-Control", "max-age=100")
        .header("Connection", "keep-alive, x-hop, X-Secret")
        .header("X-Hop", "hop")
        .header("X-Secret", "1");
    bench.origin.sequence("/a", vec![first, second]);
    bench.get("/a")?;
    for expected in ["REVALIDATED", "HIT"] {
        let response = bench.get("/a")?;
        assert_eq!(label(&response), expected);
        assert_eq!(response.header("X-Hop"), Some("stored"));
        assert_eq!(response.header("X-Secret"), None);
    }
    Ok(())
}

/// A field that Connection names is of that message only, also in a stored answer: a 304 may bring
/// such a field for all.
#[test]
fn a_field_is_of_the_connection_of_its_own_message_only() -> Result<()> {
    let bench = bench()?;
    let first = control("max-age=0")
        .header("Connection", "X-Once")
        .header("X-Once", "1");
    let second = Answer::new(304)
        .etag("\"v\"")
        .header("Cache-Control", "max-age=100")
        .header("X-Once", "2");
    bench.origin.sequence("/a", vec![first, second]);
    assert_eq!(bench.get("/a")?.header("X-Once"), None);
    for expected in ["REVALIDATED", "HIT"] {
        let response = bench.get("/a")?;
        assert_eq!(
            (label(&response), response.header("X-Once")),
            (expected, Some("2"))
        );
    }
    Ok(())
}

const DIGESTS: [(&str, &str); 4] = [
    ("Content-Digest", "sha-256=:YWJj:"),
    ("Content-MD5", "Q2hlY2sgSW50ZWdyaXR5IQ=="),
    ("Repr-Digest", "sha-256=:ZGVm:"),
    ("Digest", "sha-256=Z2hp"),
];

fn digested(answer: Answer) -> Answer {
    DIGESTS
        .iter()
        .fold(answer, |answer, (name, value)| answer.header(name, value))
}

/// The digests that an answer has.
fn digests(response: &Response) -> Vec<&'static str> {
    let names = DIGESTS.iter().map(|(name, _)| *name);
    names
        .filter(|name| response.header(name).is_some())
        .collect()
}

const WHOLE: [&str; 4] = ["Content-Digest", "Content-MD5", "Repr-Digest", "Digest"];
const OF_REPRESENTATION: [&str; 2] = ["Repr-Digest", "Digest"];

/// RFC 9530 §2, §3: Content-Digest is of the content of its message, Repr-Digest of the whole
/// representation; so are Content-MD5 and Digest before them.
#[test]
fn a_part_has_no_digest_of_the_whole_content() -> Result<()> {
    let bench = bench()?;
    let whole = digested(control("max-age=100")).header("Content-Type", "image/png");
    bench.origin.route("/a", whole);
    assert_eq!(digests(&bench.get("/a")?), WHOLE);
    assert_eq!(digests(&bench.get("/a")?), WHOLE);
    for range in ["bytes=1-2", "bytes=0-0,2-3"] {
        let part = bench.get_with("/a", "Range", range)?;
        assert_eq!(part.status, 206);
        assert_eq!(digests(&part), OF_REPRESENTATION, "{range}");
    }
    let unchanged = bench.get_with("/a", "If-None-Match", "\"v\"")?;
    assert_eq!(unchanged.status, 304);
    assert_eq!(digests(&unchanged), OF_REPRESENTATION);
    Ok(())
}

/// A filter that changes a body makes another representation of it, which loses the digest.
#[test]
fn what_is_changed_on_its_way_has_no_digest_of_what_it_was() -> Result<()> {
    let bench = bench()?;
    let text = digested(control("max-age=100")).header("Content-Type", "text/plain");
    bench
        .origin
        .route("/a", text.clone().body("body ".repeat(50)));
    for expected in ["MISS", "HIT"] {
        let zipped = bench.get_with("/a", "Accept-Encoding", "gzip")?;
        assert_eq!(zipped.header("Content-Encoding"), Some("gzip"));
        assert_eq!((label(&zipped), digests(&zipped)), (expected, vec![]));
    }
    assert_eq!(digests(&bench.get("/a")?), WHOLE);
    assert_eq!(digests(&bench.get("/sub/a")?), Vec::<&str>::new());
    assert_eq!(
        bench.get("/nginx/a")?.header("Content-Digest"),
        Some(DIGESTS[0].1)
    );
    let zipped = bench.get_with("/nginx/a", "Accept-Encoding", "gzip")?;
    assert_eq!(digests(&zipped), Vec::<&str>::new());
    Ok(())
}

/// RFC 9530 §2: a digest may come in a trailer, too.
#[test]
fn a_digest_in_a_trailer_goes_with_the_bytes_that_it_is_of() -> Result<()> {
    let bench = bench()?;
    let answer = Answer::new(200)
        .header("Content-Type", "text/plain")
        .framing(Framing::Chunked)
        .trailer("Content-Digest", "sha-256=:YWJj:")
        .trailer("X-Other", "1")
        .body("body ".repeat(50));
    bench.origin.route("/a", answer);
    let request = Request::get("/trailed/a").header("TE", "trailers");
    let plain = bench.client.send(&request)?;
    assert_eq!(
        plain.trailers.value("Content-Digest"),
        Some("sha-256=:YWJj:")
    );
    let zipped = bench
        .client
        .send(&request.header("Accept-Encoding", "gzip"))?;
    assert_eq!(zipped.header("Content-Encoding"), Some("gzip"));
    assert_eq!(zipped.trailers.value("Content-Digest"), None);
    assert_eq!(zipped.trailers.value("X-Other"), Some("1"));
    Ok(())
}

/// The digest of one slice is not that of the whole body, with and without a cache.
#[test]
fn a_body_in_slices_has_no_digest_of_one() -> Result<()> {
    let bench = bench()?;
    let body = "x".repeat(4000);
    bench.origin.answer_with("/a", move |request| {
        let range = request.header("Range").unwrap_or("bytes=0-3999");
        let range = range.trim_start_matches("bytes=");
        let (start, end) = range.split_once('-').unwrap_or(("0", ""));
        let start: usize = start.parse().unwrap_or(0);
        let end = end.parse().unwrap_or(3999).min(3999);
        digested(Answer::new(206))
            .header("Cache-Control", "max-age=100")
            .etag("\"v\"")
            .header("Content-Range", &format!("bytes {start}-{end}/4000"))
            .body(&body[start..=end])
    });
    for path in ["/sliced/a", "/sliced/a", "/parts/a"] {
        let whole = bench.get(path)?;
        assert_eq!((whole.status, whole.body.len()), (200, 4000), "{path}");
        assert_eq!(digests(&whole), OF_REPRESENTATION, "{path}");
        let part = bench.get_with(path, "Range", "bytes=10-19")?;
        assert_eq!((part.status, part.body.len()), (206, 10), "{path}");
        assert_eq!(digests(&part), OF_REPRESENTATION, "{path}");
    }
    Ok(())
}

/// A 304 has no content, and so no word on the digest of what is stored.
#[test]
fn a_304_brings_no_digest() -> Result<()> {
    let bench = bench()?;
    let empty = Answer::new(304)
        .etag("\"v\"")
        .header("Cache-Control", "max-age=100")
        .header("Content-Digest", "sha-256=:bm9uZQ==:")
        .header("Repr-Digest", "sha-256=:bm9uZQ==:");
    bench
        .origin
        .sequence("/a", vec![digested(control("max-age=0")), empty]);
    bench.get("/a")?;
    for expected in ["REVALIDATED", "HIT"] {
        let response = bench.get("/a")?;
        assert_eq!(label(&response), expected);
        for (name, value) in DIGESTS {
            assert_eq!(response.header(name), Some(value), "{name}");
        }
    }
    Ok(())
}

/// An answer that sets a cookie is for one client, unless the origin says for how long all may have
/// it.
#[test]
fn a_cookie_is_shared_by_the_word_of_the_origin_only() -> Result<()> {
    let bench = bench()?;
    let old = "Tue, 14 Jul 2015 08:29:12 GMT";
    let plain = || Answer::new(200).etag("\"v\"").header("Set-Cookie", "s=1");
    for (path, answer, expected) in [
        ("/kept/silent", plain(), "MISS"),
        (
            "/kept/public",
            plain().header("Cache-Control", "public"),
            "MISS",
        ),
        ("/heuristic", plain().last_modified(old), "MISS"),
        ("/kept/modified", plain().last_modified(old), "MISS"),
        (
            "/validated",
            plain().header("Cache-Control", "no-cache"),
            "MISS",
        ),
        (
            "/kept/age",
            plain().header("Cache-Control", "max-age=100"),
            "HIT",
        ),
        (
            "/shared",
            plain().header("Cache-Control", "s-maxage=100"),
            "HIT",
        ),
        (
            "/expires",
            plain().header("Expires", "Fri, 01 Jan 2100 00:00:00 GMT"),
            "HIT",
        ),
        ("/open/silent", plain(), "HIT"),
    ] {
        let route = path.rsplit_once('/').map_or(path, |(_, name)| name);
        bench.origin.route(&format!("/{route}"), answer.body(path));
        let first = bench.get(path)?;
        assert_eq!(first.header("Set-Cookie"), Some("s=1"), "{path}");
        assert_eq!(label(&bench.get(path)?), expected, "{path}");
    }
    Ok(())
}

/// A 304 that sets a cookie sets it for the client that asked.
#[test]
fn the_cookie_of_a_304_is_not_shared() -> Result<()> {
    let bench = bench()?;
    for (path, fresh, shared) in [
        ("/silent", Answer::new(304).etag("\"v\""), None),
        (
            "/stated",
            Answer::new(304)
                .etag("\"v\"")
                .header("Cache-Control", "max-age=100"),
            Some("s=1"),
        ),
    ] {
        let first = control("max-age=100").header("Age", "99");
        let fresh = fresh.header("Set-Cookie", "s=1");
        bench.origin.sequence(path, vec![first, fresh]);
        bench.get(path)?;
        let request = Request::get(path).header("Cache-Control", "no-cache");
        let renewed = bench.client.send(&request)?;
        assert_eq!(label(&renewed), "REVALIDATED", "{path}");
        assert_eq!(renewed.header("Set-Cookie"), Some("s=1"), "{path}");
        let hit = bench.get(path)?;
        assert_eq!(
            (label(&hit), hit.header("Set-Cookie")),
            ("HIT", shared),
            "{path}"
        );
    }
    Ok(())
}

/// RFC 9111 §4.1: a stored answer is that to a request with these fields. The origin does not get
/// those that Connection names (RFC 9110 §7.6.1), so its answer is one to another request.
#[test]
fn fields_that_connection_names_choose_nothing() -> Result<()> {
    let bench = bench()?;
    for (path, name, value) in [
        ("/proto/a", "X-Forwarded-Proto", "https"),
        ("/cookie/a", "Cookie", "lang=de"),
        ("/mapped/a", "X-Language", "de"),
        ("/early/a", "X-Language", "de"),
        ("/varied", "Origin", "https://app.test"),
    ] {
        bench.origin.answer_with(path, move |request| {
            let answer = control("max-age=100").header("Vary", "Origin");
            answer.body(request.header(name).unwrap_or("without"))
        });
        let named = Request::get(path)
            .header("Connection", name)
            .header(name, value);
        assert_eq!(bench.client.send(&named)?.text(), "without", "{path}");
        let other = bench.get_with(path, name, value)?;
        assert_eq!(
            (label(&other), other.text()),
            ("MISS", value.into()),
            "{path}"
        );
        let again = bench.get_with(path, name, value)?;
        assert_eq!(
            (label(&again), again.text()),
            ("HIT", value.into()),
            "{path}"
        );
        // And the other way: what was stored with the field is not for a request without it.
        assert_eq!(bench.client.send(&named)?.text(), "without", "{path}");
    }
    Ok(())
}

/// A Connection that names nothing else of the request changes nothing.
#[test]
fn usual_connections_are_looked_up() -> Result<()> {
    let bench = bench()?;
    bench.origin.route("/a", control("max-age=100"));
    bench.get("/a")?;
    for connection in [
        "keep-alive",
        "close",
        "X-Not-There",
        "Upgrade, HTTP2-Settings",
    ] {
        let asked = Request::get("/a")
            .header("Connection", connection)
            .header("Keep-Alive", "timeout=5")
            .header("HTTP2-Settings", "AAMAAABkAAQAAP__")
            .header("Upgrade", "h2c");
        let hit = bench.client.send(&asked)?;
        assert_eq!(label(&hit), "HIT", "{connection}");
    }
    Ok(())
}

/// RFC 9112 §3.2.2: the Host of a request in absolute form is that of its target, so that nobody
/// has another host's answer stored for it.
#[test]
fn a_target_in_absolute_form_says_the_host() -> Result<()> {
    let bench = bench()?;
    bench.origin.answer_with("/named/a", |request| {
        let answer = Answer::new(200).header("Cache-Control", "max-age=100");
        answer.body(request.header("Host").unwrap_or("none"))
    });
    for (target, host, expected) in [
        ("http://a.test/named/a", "evil.test", "a.test"),
        ("/named/a", "a.test", "a.test"),
        ("http://b.test:99/named/a", "b.test:77", "b.test:99"),
    ] {
        let answer = bench.client.send(&Request::get(target).host(host))?;
        assert_eq!(answer.text(), expected, "{target} {host}");
    }
    Ok(())
}

/// Nobody has another host's answer stored by naming Host in Connection.
#[test]
fn a_host_that_connection_names_goes_on() -> Result<()> {
    let bench = bench()?;
    bench.origin.answer_with("/named/b", |request| {
        let answer = Answer::new(200).header("Cache-Control", "max-age=100");
        answer.body(request.header("Host").unwrap_or("none"))
    });
    let named = Request::get("/named/b").host("a.test");
    for connection in ["Host", "host, X-Other"] {
        let asked = named.clone().header("Connection", connection);
        let answer = bench.client.send(&asked.header("X-Other", "1"))?;
        assert_eq!(answer.text(), "a.test", "{connection}");
    }
    assert_eq!(bench.client.send(&named)?.text(), "a.test");
    Ok(())
}

/// RFC 9111 §5.2.1.7: what is stored of a body in slices answers `only-if-cached`, or 504.
#[test]
fn only_what_is_stored_of_a_body_in_slices_answers() -> Result<()> {
    let bench = bench()?;
    bench
        .origin
        .resource("/a", &Resource::new(Manners::of(5000)));
    let ask = |range: Option<&str>| {
        let mut asked = Request::get("/sliced/a").header("Cache-Control", "only-if-cached");
        if let Some(range) = range {
            asked = asked.header("Range", range);
        }
        bench.client.send(&asked).map(|answer| answer.status)
    };
    assert_eq!(ask(Some("bytes=0-10"))?, 504);
    bench.get_with("/sliced/a", "Range", "bytes=0-10")?;
    let before = bench.origin.requests().len();
    for (range, expected) in [
        (Some("bytes=0-10"), 206),
        (Some("bytes=1000-1023"), 206),
        (Some("bytes=0-3000"), 504),
        (Some("bytes=4000-"), 504),
        (Some("bytes=0-1,4000-4001"), 504),
        (None, 504),
    ] {
        assert_eq!(ask(range)?, expected, "{range:?}");
    }
    assert_eq!(bench.origin.requests().len(), before);
    Ok(())
}
