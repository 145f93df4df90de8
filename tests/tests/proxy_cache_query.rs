//! `proxy_cache_methods QUERY`: answers that are told apart by the content of their requests
//! (RFC 10008).

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request, Response};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    proxy_cache z;
    proxy_cache_key $host$uri;
    proxy_cache_valid 1h;
    client_body_buffer_size 1k;
    add_header X-Cache $upstream_cache_status always;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /search {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_methods QUERY;
            proxy_cache_purge PURGE from 127.0.0.1;
            location /search/members { proxy_pass http://%%ORIGIN%%; proxy_cache_query_json members; }
            location /search/exact { proxy_pass http://%%ORIGIN%%; proxy_cache_query_json off; }
            location /search/rfc { proxy_pass http://%%ORIGIN%%; proxy_cache_conformance rfc9111; }
        }
    }";

/// A server whose answer is the content of the request.
struct Site {
    client: Client,
    _proxy: Proxy,
    origin: Origin,
}

const PATHS: [&str; 5] = [
    "/other",
    "/search",
    "/search/members",
    "/search/exact",
    "/search/rfc",
];

impl Site {
    fn start() -> Result<Self> {
        let origin = Origin::start()?;
        for path in PATHS {
            origin.answer_with(path, |request| {
                Answer::new(200)
                    .header("Cache-Control", "max-age=3600")
                    .etag("\"v\"")
                    .header("Accept-Ranges", "bytes")
                    .body([request.method.as_bytes(), b" ", &request.body].concat())
            });
        }
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        Ok(Site {
            client: Client::new(proxy.port()),
            _proxy: proxy,
            origin,
        })
    }

    fn send(&self, request: &Request) -> Result<(String, Response)> {
        let response = self.client.send(request)?;
        assert_eq!(response.status, 200, "{request:?}");
        let status = response.header("X-Cache").unwrap_or("-").to_owned();
        Ok((status, response))
    }

    fn ask(&self, path: &str, content: &str) -> Result<String> {
        let request = json(path, content);
        Ok(self.send(&request)?.0)
    }
}

fn json(path: &str, content: &str) -> Request {
    Request::new("QUERY", path)
        .header("Content-Type", "application/json; charset=utf-8")
        .body(content)
}

/// §2.7: "The cache key for a QUERY request MUST incorporate the request content and related
/// metadata."
#[test]
fn answers_to_queries_are_told_apart_by_content_and_metadata() -> Result<()> {
    let site = Site::start()?;
    let plain = || Request::new("QUERY", "/search").header("Content-Type", "text/plain");
    let requests = [
        Request::new("QUERY", "/search"),
        plain(),
        plain().body("a"),
        plain().body("b"),
        plain().body("a\n"),
        plain().header("Content-Language", "de").body("a"),
        plain().header("Content-Encoding", "x").body("a"),
        Request::new("QUERY", "/search")
            .header("Content-Type", "text/csv")
            .body("a"),
        Request::get("/search"),
    ];
    for request in &requests {
        assert_eq!(site.send(request)?.0, "MISS", "{request:?}");
    }
    let asked = site.origin.requests();
    for (request, asked) in requests.iter().zip(&asked) {
        let (status, response) = site.send(request)?;
        assert_eq!(status, "HIT", "{request:?}");
        let expected = [asked.method.as_bytes(), b" ", &asked.body].concat();
        assert_eq!(response.body, expected);
    }
    assert_eq!(site.origin.requests().len(), requests.len());
    Ok(())
}

/// §2.7: "caches MAY remove semantically insignificant differences from request content".
#[test]
fn json_that_says_the_same_is_one_query() -> Result<()> {
    let site = Site::start()?;
    let (text, spaced, turned) = (
        r#"{"q":"é","n":1}"#,
        "{ \"q\" : \"\\u00e9\",\n \"n\": 1 }",
        r#"{"n":1,"q":"é"}"#,
    );
    for (path, expected) in [
        ("/search", ["HIT", "MISS"]),
        ("/search/members", ["HIT", "HIT"]),
        ("/search/exact", ["MISS", "MISS"]),
    ] {
        assert_eq!(site.ask(path, text)?, "MISS", "{path}");
        let found = [site.ask(path, spaced)?, site.ask(path, turned)?];
        assert_eq!(found, expected, "{path}");
        assert_eq!(site.ask(path, r#"{"q":"é","n":1.0}"#)?, "MISS", "{path}");
    }
    // What the origin got is what was sent.
    let asked = site.origin.requests();
    assert!(asked.iter().any(|it| it.body == spaced.as_bytes()));
    // Readers differ in which of two members with one name they take.
    assert_eq!(site.ask("/search/members", r#"{"a":1,"a":2}"#)?, "MISS");
    assert_eq!(site.ask("/search/members", r#"{"a":2,"a":1}"#)?, "MISS");
    assert_eq!(site.ask("/search/members", r#"{"a":1, "a":2}"#)?, "HIT");
    Ok(())
}

/// §2.7: "Clients can indicate, using the "no-transform" cache directive, that they wish that no
/// such transformation happens". What is no JSON, or not said to be, is not read as that.
#[test]
fn content_is_taken_as_it_is_where_the_client_wishes_it_or_it_is_no_json() -> Result<()> {
    let site = Site::start()?;
    let sent = |name: &str, value: &str, content: &str| {
        let request = Request::new("QUERY", "/search")
            .header("Content-Type", value)
            .header("X-Test", name)
            .body(content);
        site.send(&request).map(|(status, _)| status)
    };
    assert_eq!(sent("", "application/problem+JSON", "[1]")?, "MISS");
    assert_eq!(sent("", "application/problem+JSON", "[ 1]")?, "HIT");
    assert_eq!(sent("", "text/plain", "[1]")?, "MISS");
    assert_eq!(sent("", "text/plain", "[ 1]")?, "MISS");
    assert_eq!(sent("", "application/json", "[1")?, "MISS");
    assert_eq!(sent("", "application/json", "[ 1")?, "MISS");
    let exact = |content: &str| json("/search", content).header("Cache-Control", "no-transform");
    assert_eq!(site.ask("/search", "[7 ]")?, "MISS");
    assert_eq!(site.send(&exact("[7 ]"))?.0, "MISS");
    assert_eq!(site.send(&exact("[7]"))?.0, "HIT");
    Ok(())
}

#[test]
fn queries_are_passed_on_where_no_directive_names_them_or_their_content_is_long() -> Result<()> {
    let site = Site::start()?;
    let long = "x".repeat(2000);
    for _ in 0..2 {
        assert_eq!(site.ask("/other", "1")?, "-");
        let (status, response) = site.send(&json("/search", &long))?;
        assert_eq!(status, "-");
        assert_eq!(response.body.len(), "QUERY ".len() + long.len());
    }
    let chunked = || Request::new("QUERY", "/search").chunks(&["a", "bc"]);
    assert_eq!(site.send(&chunked())?.0, "MISS");
    assert_eq!(site.send(&chunked())?.0, "HIT");
    assert_eq!(
        site.send(&Request::new("QUERY", "/search").body("abc"))?.0,
        "HIT"
    );
    Ok(())
}

#[test]
fn a_purge_of_a_prefix_finds_queries() -> Result<()> {
    let site = Site::start()?;
    assert_eq!(site.ask("/search", "1")?, "MISS");
    assert_eq!(site.ask("/search", "1")?, "HIT");
    let purge = Request::new("PURGE", "/search").header("Purge-Type", "prefix");
    assert!(site.client.send(&purge)?.status < 300);
    assert_eq!(site.ask("/search", "1")?, "MISS");
    Ok(())
}

/// §2.6 and §2.8: conditions and ranges mean what they mean for GET.
#[test]
fn conditions_and_ranges_of_queries_are_those_of_get() -> Result<()> {
    let site = Site::start()?;
    for path in ["/search", "/search/rfc"] {
        assert_eq!(site.ask(path, "12345")?, "MISS");
        let request = json(path, "12345").header("If-None-Match", "\"v\"");
        assert_eq!(site.client.send(&request)?.status, 304, "{path}");
        let request = json(path, "12345").header("Range", "bytes=6-7");
        let response = site.client.send(&request)?;
        assert_eq!(
            (response.status, &response.body[..]),
            (206, &b"12"[..]),
            "{path}"
        );
    }
    assert_eq!(site.origin.requests().len(), 2);
    Ok(())
}
