//! `proxy_cache_graphql`: queries of GraphQL by POST and GET share entries, and nothing else that
//! is posted is ever stored.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request, Response};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    proxy_cache z;
    proxy_cache_key $host$request_uri;
    proxy_cache_valid 1h;
    client_body_buffer_size 1k;
    add_header X-Cache $upstream_cache_status always;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /graphql {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_graphql on;
            proxy_cache_purge PURGE from 127.0.0.1;
            location /graphql/post { proxy_pass http://%%ORIGIN%%; proxy_cache_methods POST; }
            location /graphql/args { proxy_pass http://%%ORIGIN%%; proxy_cache_key $uri$is_args$args; }
            location /graphql/rfc {
                proxy_pass http://%%ORIGIN%%;
                proxy_cache_conformance rfc9111;
                proxy_cache_methods QUERY;
            }
            location /graphql/usual { proxy_pass http://%%ORIGIN%%/; proxy_cache_key $scheme$proxy_host$uri$is_args$args; }
        }
    }";

struct Site {
    client: Client,
    _proxy: Proxy,
    origin: Origin,
}

impl Site {
    fn start() -> Result<Self> {
        let origin = Origin::start()?;
        origin.answer_with("/*", |request| {
            let told = format!("{} {}", request.method, request.target);
            Answer::new(200).body([told.as_bytes(), b" ", &request.body].concat())
        });
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

    fn post(&self, path: &str, content: &str) -> Result<String> {
        Ok(self.send(&post(path, content))?.0)
    }

    fn get(&self, target: &str) -> Result<String> {
        Ok(self.send(&Request::get(target))?.0)
    }
}

fn post(path: &str, content: &str) -> Request {
    Request::post(path, content).header("Content-Type", "application/json")
}

#[test]
fn a_query_by_post_and_the_same_by_get_have_one_entry() -> Result<()> {
    let site = Site::start()?;
    let content = r#"{"query": "query q($n: Int) { a(n: $n) { b, c } }", "variables": {"n": 1}}"#;
    let query = "query=query+q($n:Int)%7Ba(n:$n)%7Bb+c%7D%7D&variables=%7B%22n%22:1%7D";
    for (path, rest) in [("", ""), ("/post", ""), ("/args", "&k=1"), ("/usual", "")] {
        let (posted, got) = (
            format!("/graphql{path}{}", rest.replace('&', "?")),
            format!("/graphql{path}?{query}{rest}"),
        );
        assert_eq!(site.post(&posted, content)?, "MISS", "{posted}");
        assert_eq!(
            site.post(&posted, &content.replace(' ', "  "))?,
            "HIT",
            "{posted}"
        );
        let (status, response) = site.send(&Request::get(&got))?;
        assert_eq!(status, "HIT", "{got}");
        assert!(response.text().starts_with("POST "), "{}", response.text());
        assert_eq!(site.get(&format!("{got}&other=1"))?, "MISS");
        assert_eq!(site.post(&posted, &content.replace("1}", "2}"))?, "MISS");
        assert_eq!(site.get(&got.replace("22:1", "22:2"))?, "HIT");
    }
    // What GET has filled answers POST, and HEAD.
    assert_eq!(site.get("/graphql?query=%7Bx%7D")?, "MISS");
    let (status, response) = site.send(&post("/graphql", r#"{"query":"{ x }"}"#))?;
    assert_eq!(status, "HIT");
    assert!(response.text().starts_with("GET /graphql?query="));
    assert_eq!(
        site.send(&Request::head("/graphql?query=%7B+x+%7D"))?.0,
        "HIT"
    );
    Ok(())
}

#[test]
fn mutations_subscriptions_and_what_is_no_query_are_passed_on_each_time() -> Result<()> {
    let site = Site::start()?;
    let long = format!(r##"{{"query":"{{a}} #{}"}}"##, "x".repeat(2000));
    let contents = [
        r#"{"query":"mutation { a }"}"#,
        r#"{"query":"subscription { a }"}"#,
        r#"{"query":"query q { a } mutation m { b }","operationName":"q"}"#,
        r#"{"query":"{ a "}"#,
        r#"{"query":"{ a }","query":"{ b }"}"#,
        r#"[{"query":"{ a }"}]"#,
        r#"{"query":"{ a }","doc":1}"#,
        "query={a}",
        "",
        &long,
    ];
    let mut asked = 0;
    for content in contents {
        for path in ["/graphql", "/graphql/post"] {
            for _ in 0..2 {
                let (status, response) = site.send(&post(path, content))?;
                asked += 1;
                assert_eq!(status, "-", "{content}");
                assert_eq!(response.text(), format!("POST {path} {content}"));
            }
        }
    }
    for target in [
        "/graphql?query=mutation%7Ba%7D",
        "/graphql?query=%7Ba",
        "/graphql?query=%7Ba%7D&query=%7Bb%7D",
    ] {
        for _ in 0..2 {
            assert_eq!(site.get(target)?, "-", "{target}");
            asked += 1;
        }
    }
    let query = r#"{"query":"{ a }"}"#;
    let requests = [
        Request::post("/graphql", query),
        Request::post("/graphql", query).header("Content-Type", "text/plain"),
        post("/graphql", query).header("Content-Encoding", "x"),
        post("/graphql?query=%7Bb%7D", query),
        Request::new("PUT", "/graphql").body(query),
    ];
    for request in requests {
        for _ in 0..2 {
            assert_eq!(site.send(&request)?.0, "-", "{request:?}");
            asked += 1;
        }
    }
    assert_eq!(site.origin.requests().len(), asked);
    Ok(())
}

#[test]
fn other_requests_are_looked_up_as_without_the_directive() -> Result<()> {
    let site = Site::start()?;
    assert_eq!(site.get("/graphql?a=1")?, "MISS");
    assert_eq!(site.get("/graphql?a=1")?, "HIT");
    assert_eq!(site.get("/graphql")?, "MISS");
    // Elsewhere a query is an argument.
    assert_eq!(site.get("/?query=%7Ba%7D")?, "MISS");
    assert_eq!(site.get("/?query=%7B+a%7D")?, "MISS");
    for _ in 0..2 {
        assert_eq!(site.post("/", r#"{"query":"{ a }"}"#)?, "-");
    }
    Ok(())
}

#[test]
fn a_purge_of_a_prefix_finds_queries() -> Result<()> {
    let site = Site::start()?;
    let query = r#"{"query":"{ a }"}"#;
    assert_eq!(site.post("/graphql", query)?, "MISS");
    assert_eq!(site.post("/graphql", query)?, "HIT");
    let purge = Request::new("PURGE", "/graphql").header("Purge-Type", "prefix");
    assert!(site.client.send(&purge)?.status < 300);
    assert_eq!(site.post("/graphql", query)?, "MISS");
    Ok(())
}

/// RFC 9111 §4.4: what was changed is not answered as it was, however it was asked for.
#[test]
fn a_mutation_removes_the_answers_to_the_queries_of_its_uri_and_no_others() -> Result<()> {
    let site = Site::start()?;
    let query = r#"{"query": "{ a }"}"#;
    let asked = |path: &str| -> Result<[String; 3]> {
        let content = Request::new("QUERY", path)
            .header("Content-Type", "application/json")
            .body(query);
        Ok([
            site.post(path, query)?,
            site.get(&format!("{path}?query=%7Ba%7D"))?,
            site.send(&content)?.0,
        ])
    };
    let (own, other) = ("/graphql/rfc", "/graphql/rfc2");
    for path in [own, other] {
        asked(path)?;
        assert_eq!(asked(path)?, ["HIT", "HIT", "HIT"], "{path}");
    }
    site.post(own, r#"{"query": "mutation { set(a: 1) }"}"#)?;
    assert_eq!(
        asked(own)?,
        ["MISS", "HIT", "MISS"],
        "one entry for POST and GET"
    );
    assert_eq!(asked(other)?, ["HIT", "HIT", "HIT"]);
    site.send(&Request::new("DELETE", own))?;
    assert_eq!(asked(own)?, ["MISS", "HIT", "MISS"]);
    Ok(())
}
