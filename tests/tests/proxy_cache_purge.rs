//! `proxy_cache_purge`, `proxy_cache_tag`: what is purged is gone for everybody, for good, and only
//! who may purge does.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Framing, Gate, Kind, Origin, Protocol, Proxy, Request, Response,
};
use std::process::Command;
use std::time::Duration;

const CONF: &str = "
%%GLOBALS%%
worker_processes 4;
events { }
http {
    %%HTTP%%
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=100m;
    map $request_method $is_purge { PURGE 1; default 0; }
    proxy_cache_valid 200 1h;
    proxy_cache_key $uri$is_args$args;
    proxy_cache_tag $upstream_http_surrogate_key $upstream_http_xkey;
    add_header X-Cache $upstream_cache_status always;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name one;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_purge PURGE from 127.0.0.1 10.0.0.0/8 types=host,site,tag,all;
        }
        location /plus/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_purge $is_purge types=host,site,tag,all;
        }
        location /elsewhere/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_purge PURGE from 10.0.0.0/8 types=host,site,tag,all;
        }
        location /delete/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_purge DELETE purge_all types=host,site,tag,all;
        }
        location /off/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_purge off;
        }
        location /uncached/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_purge on types=host,site,tag,all;
        }
        location /swr/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_background_update on;
            proxy_cache_use_stale updating error;
            proxy_cache_revalidate on;
            proxy_cache_purge on types=host,site,tag,all;
        }
        location ~ ^/purge(/.*) {
            proxy_cache_purge z $1$is_args$args types=host,site,tag,all;
        }
        location ~ ^/closed(/.*) {
            deny all;
            proxy_cache_purge z $1$is_args$args types=host,site,tag,all;
        }
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name two;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_key $host$uri;
            proxy_cache_purge on types=host,site,tag,all;
        }
    }
}
";

struct Bench {
    origin: Origin,
    proxy: Proxy,
    client: Client,
}

impl Bench {
    fn new(protocol: Protocol) -> Result<Bench> {
        let origin = Origin::start()?;
        origin.route(
            "/*",
            Answer::new(200)
                .body("page")
                .header("Surrogate-Key", "all page"),
        );
        let proxy = Proxy::new(Kind::Millpond, CONF)
            .over(protocol)
            .origin(&origin)
            .start()?;
        let client = protocol.client(proxy.port());
        Ok(Bench {
            origin,
            proxy,
            client,
        })
    }

    fn send(&self, request: Request) -> Result<Response> {
        self.client.send(&request)
    }

    /// Label that the cache gives a request, on a connection of its own.
    fn label(&self, path: &str) -> Result<String> {
        label(&self.client.get(path)?)
    }

    /// Stores a page and finds it.
    fn warm(&self, path: &str) -> Result<()> {
        self.client.get(path)?;
        assert_eq!(self.label(path)?, "HIT", "{path}");
        Ok(())
    }

    fn purge(&self, path: &str, fields: &[(&str, &str)]) -> Result<Response> {
        let request = Request::new("PURGE", path);
        let request = fields.iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        self.send(request)
    }
}

fn label(response: &Response) -> Result<String> {
    Ok(response.header("X-Cache").context("a label")?.to_string())
}

fn each_form_purges_its_key_and_answers_as_its_module(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol)?;
    let forms = [
        ("PURGE", "/a?x=1", "/a?x=1", 200),
        ("PURGE", "/plus/a", "/plus/a", 204),
        ("GET", "/b", "/purge/b", 200),
        ("POST", "/b", "/purge/b", 200),
    ];
    for (method, path, purge, done) in forms {
        bench.warm(path)?;
        let purged = bench.send(Request::new(method, purge))?;
        assert_eq!(purged.status, done, "{method} {purge}");
        assert_eq!(
            purged.text().contains("Successful purge"),
            done == 200,
            "{}",
            purged.text()
        );
        let again = bench.send(Request::new(method, purge))?;
        assert_eq!(again.status, 404, "{method} {purge}");
        assert_eq!(bench.label(path)?, "MISS", "{path}");
    }
    Ok(())
}

#[test]
fn the_location_form_answers_as_the_module_in_nginx() -> Result<()> {
    // The module for nginx 1.22 crashes in its other form, so only this one is compared.
    let module = "/usr/lib/nginx/modules/ngx_http_cache_purge_module.so";
    let conf = |load: &str| {
        format!(
            "{load} %%GLOBALS%% events {{ }} http {{ %%HTTP%%
            proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
            server {{
                listen 127.0.0.1:%%PORT%%;
                location / {{
                    proxy_pass http://%%ORIGIN%%;
                    proxy_cache z;
                    proxy_cache_valid 1h;
                    proxy_cache_key $uri$is_args$args;
                }}
                location ~ ^/purge(/.*) {{ proxy_cache_purge z $1$is_args$args; }}
                location ~ ^/denied(/.*) {{ deny all; proxy_cache_purge z $1; }}
            }} }}"
        )
    };
    for kind in Kind::both() {
        if kind == Kind::Nginx && !std::path::Path::new(module).exists() {
            continue;
        }
        let load = match kind {
            Kind::Nginx => format!("load_module {module};"),
            Kind::Millpond => String::new(),
        };
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).body("page"));
        let proxy = Proxy::new(kind, &conf(&load)).origin(&origin).start()?;
        let client = Client::new(proxy.port());
        let mut said = Vec::new();
        for (method, path) in [
            ("GET", "/purge/a?x"),
            ("GET", "/a?x"),
            ("HEAD", "/purge/a?x"),
            ("GET", "/purge/a?x"),
            ("GET", "/a?x"),
            ("POST", "/purge/a?x"),
            ("PURGE", "/purge/a?x"),
            ("GET", "/a?x"),
            ("GET", "/denied/a?x"),
            ("PURGE", "/purge/a?x"),
        ] {
            let response = client.send(&Request::new(method, path))?;
            let kind = response.header("Content-Type").unwrap_or_default();
            said.push((response.status, kind == "text/html"));
        }
        let expected = [
            (404, true),
            (200, false),
            (200, true),
            (404, true),
            (200, false),
            (200, true),
            (404, true),
            (200, false),
            (403, true),
            (200, true),
        ];
        assert_eq!(said, expected, "{kind:?}");
        assert_eq!(origin.requests().len(), 3, "{kind:?}");
    }
    Ok(())
}

fn only_who_may_purges(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol)?;
    bench.warm("/elsewhere/a")?;
    assert_eq!(bench.purge("/elsewhere/a", &[])?.status, 403);
    bench.warm("/a")?;
    assert_eq!(bench.client.get("/closed/a")?.status, 403);
    // Another method, no purge at all, or nothing to purge: the origin's affair.
    bench.warm("/off/a")?;
    bench.origin.forget_requests();
    for path in ["/delete/a", "/off/a", "/uncached/a"] {
        assert_eq!(bench.purge(path, &[])?.text(), "page", "{path}");
    }
    assert_eq!(bench.origin.requests().len(), 3);
    for path in ["/elsewhere/a", "/a", "/off/a"] {
        assert_eq!(bench.label(path)?, "HIT", "{path}");
    }
    let log = bench.proxy.error_log();
    assert!(
        log.contains("[error]") && log.contains("cache purge forbidden by rule"),
        "{log}"
    );
    Ok(())
}

fn fields_of_the_request_purge_more(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol)?;
    let tagged = |path: &str, tags: &str| {
        let answer = Answer::new(200).body("page").header("Surrogate-Key", tags);
        bench.origin.route(path, answer);
    };
    tagged("/img/a.png", "img one");
    tagged("/img/b.jpg", "img, two");
    tagged("/text/a", "text one");
    let paths = ["/img/a.png", "/img/b.jpg", "/text/a"];
    // What is asked for, and what is left.
    type Case = (
        &'static str,
        &'static [(&'static str, &'static str)],
        Vec<&'static str>,
    );
    let table: [Case; 14] = [
        ("/img/*", &[], vec!["/text/a"]),
        ("/img", &[("Purge-Type", "prefix")], vec!["/text/a"]),
        ("/img/*", &[("Purge-Type", "exact")], paths.to_vec()),
        (
            "/*.png",
            &[("Purge-Type", "wildcard")],
            vec!["/img/b.jpg", "/text/a"],
        ),
        ("/*/a*", &[("Purge-Type", "wildcard")], vec!["/img/b.jpg"]),
        ("/", &[("Surrogate-Key", "one")], vec!["/img/b.jpg"]),
        ("/", &[("Cache-Tag", "two,text")], vec!["/img/a.png"]),
        ("/", &[("xkey", "img")], vec!["/text/a"]),
        ("/", &[("xkey-purge", "img text")], vec![]),
        (
            "/",
            &[("Purge-Type", "tag"), ("Surrogate-Key", "On")],
            paths.to_vec(),
        ),
        ("/", &[("Purge-Type", "host")], vec![]),
        (
            "/",
            &[("Purge-Type", "host"), ("Purge-Host", "other")],
            paths.to_vec(),
        ),
        (
            "/",
            &[("Purge-Type", "site"), ("Purge-Site", "one")],
            vec![],
        ),
        ("/", &[("Purge-Type", "all")], vec![]),
    ];
    for (path, fields, left) in table {
        paths.iter().try_for_each(|path| bench.warm(path))?;
        let purged = bench.purge(path, fields)?;
        let is_exact = fields.first().is_some_and(|(_, value)| *value == "exact");
        assert_eq!(
            purged.status,
            if is_exact { 404 } else { 200 },
            "{path} {fields:?}"
        );
        for one in paths {
            let expected = if left.contains(&one) { "HIT" } else { "MISS" };
            assert_eq!(bench.label(one)?, expected, "{one} after {path} {fields:?}");
        }
    }
    for (fields, status) in [
        (&[("Purge-Type", "tag")], 400),
        (&[("Purge-Type", "many")], 400),
    ] {
        assert_eq!(bench.purge("/img/*", fields)?.status, status, "{fields:?}");
    }
    assert_eq!(bench.label("/img/a.png")?, "HIT");
    Ok(())
}

fn hosts_and_sites_are_told_apart(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol)?;
    let get = |host: &str| label(&bench.send(Request::get("/page").host(host))?);
    let hosts = ["one", "two", "alias"];
    for (purge, left) in [
        (("two", "host"), vec!["one", "alias"]),
        (("one", "site"), vec!["two"]),
        (("two", "site"), vec!["one", "alias"]),
    ] {
        // A host that no server has goes to the first one, whose key has no host: one entry.
        for host in hosts {
            get(host)?;
            assert_eq!(get(host)?, "HIT");
        }
        let request = Request::new("PURGE", "/")
            .host(purge.0)
            .header("Purge-Type", purge.1);
        assert_eq!(bench.send(request)?.status, 200);
        for host in hosts {
            let expected = match host {
                "alias" if !left.contains(&"alias") => "HIT",
                host if left.contains(&host) => "HIT",
                _ => "MISS",
            };
            assert_eq!(get(host)?, expected, "{host} after {purge:?}");
        }
    }
    Ok(())
}

fn purge_all_and_its_method_empty_the_zone(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol)?;
    bench.warm("/a")?;
    bench.warm("/delete/a")?;
    assert_eq!(
        bench.send(Request::new("DELETE", "/delete/none"))?.status,
        200
    );
    assert_eq!(bench.label("/a")?, "MISS");
    assert_eq!(bench.label("/delete/a")?, "MISS");
    Ok(())
}

fn all_variants_are_purged(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol)?;
    let answer = Answer::new(200)
        .body("page")
        .header("Vary", "Accept-Language");
    bench.origin.route("/vary", answer);
    let get = |language: &str| {
        let request = Request::get("/vary").header("Accept-Language", language);
        label(&bench.send(request)?)
    };
    for language in ["a", "b", "c", "a", "b", "c"] {
        get(language)?;
    }
    assert_eq!(bench.purge("/vary", &[])?.status, 200);
    for language in ["c", "b", "a"] {
        assert_eq!(get(language)?, "MISS", "{language}");
        assert_eq!(get(language)?, "HIT", "{language}");
    }
    Ok(())
}

/// A fill that runs goes on for those who read it, is joined by nobody, and is not found.
fn running_fills_are_purged(protocol: Protocol) -> Result<()> {
    for (fields, framing) in [
        (&[][..], Framing::Length),
        (&[("Purge-Type", "all")][..], Framing::Chunked),
        (&[("Surrogate-Key", "t")][..], Framing::Length),
        (&[("Purge-Soft", "1")][..], Framing::Length),
    ] {
        let bench = Bench::new(protocol)?;
        let gate = Gate::new();
        let body = |text: &str| {
            Answer::new(200)
                .body(text.repeat(50_000))
                .header("xkey", "t")
        };
        let old = body("old ").framing(framing).hold_body_at(100_000, &gate);
        bench.origin.sequence("/film", vec![old, body("new ")]);
        let mut reader = bench.client.connect()?;
        reader.ask(&Request::get("/film"))?;
        let mut response = reader.read_head("GET")?.context("a head")?;
        if framing == Framing::Length {
            reader.read_some(&mut response, 1000)?;
        }
        let purged = bench.purge("/film", fields)?;
        assert!(matches!(purged.status, 200 | 404), "{}", purged.status);
        let new = bench.client.get("/film")?;
        assert_eq!(new.text(), "new ".repeat(50_000), "{fields:?}");
        gate.open();
        reader.read_body(&mut response)?;
        assert_eq!(response.text(), "old ".repeat(50_000), "{fields:?}");
        let found = bench.client.get("/film")?;
        assert_eq!(found.text(), "new ".repeat(50_000), "{fields:?}");
        assert_eq!(label(&found)?, "HIT", "{fields:?}");
    }
    Ok(())
}

fn a_soft_purge_lets_stale_rules_and_revalidation_apply(protocol: Protocol) -> Result<()> {
    for fields in [
        ("Purge-Soft", "1"),
        ("Fastly-Soft-Purge", "1"),
        ("xkey-softpurge", "t"),
    ] {
        let bench = Bench::new(protocol)?;
        let answer = Answer::new(200)
            .body("page")
            .etag("\"1\"")
            .header("xkey", "t");
        bench.origin.route("/swr/a", answer.revalidates());
        bench.warm("/swr/a")?;
        assert_eq!(bench.purge("/swr/a", &[fields])?.status, 200);
        // Served at once, and updated behind.
        assert_eq!(bench.label("/swr/a")?, "STALE", "{fields:?}");
        let requests = bench.origin.wait_for_requests(2)?;
        assert_eq!(requests[1].header("If-None-Match"), Some("\"1\""));
        let is_fresh = || bench.label("/swr/a").ok().filter(|label| label == "HIT");
        let fresh = Deadline::after(Duration::from_secs(5)).poll(is_fresh);
        assert!(fresh.is_some(), "{fields:?}");
    }
    Ok(())
}

fn a_dry_run_counts_and_purges_nothing(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol)?;
    for path in ["/a/1", "/a/2", "/b"] {
        bench.warm(path)?;
    }
    for (path, count) in [("/a/*", 2), ("/b", 1), ("/c", 0), ("/*", 3)] {
        let purged = bench.purge(path, &[("Purge-Dry-Run", "1"), ("Purge-Type", "prefix")])?;
        let expected = format!("{count} entries would be purged\n");
        assert_eq!((purged.status, purged.text()), (200, expected), "{path}");
    }
    for path in ["/a/1", "/a/2", "/b"] {
        assert_eq!(bench.label(path)?, "HIT");
    }
    Ok(())
}

fn json_is_for_those_who_accept_it(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol)?;
    let json = |path: &str, fields: &[(&str, &str)]| -> Result<(u16, String)> {
        let accept = [("Accept", "text/html;q=0.5, application/json")];
        let purged = bench.purge(path, &[&accept, fields].concat())?;
        assert_eq!(purged.header("Content-Type"), Some("application/json"));
        Ok((purged.status, purged.text()))
    };
    bench.warm("/plus/a")?;
    let (status, text) = json("/plus/a", &[])?;
    assert_eq!(status, 200);
    assert!(
        text.starts_with(
            "{\"status\":\"purged\",\"zone\":\"z\",\"type\":\"exact\",\"mode\":\"hard\",\
         \"what\":\"/plus/a\",\"number\":"
        ),
        "{text}"
    );
    assert!(text.ends_with(",\"entries\":1}\n"), "{text}");
    let (status, text) = json("/plus/a", &[])?;
    assert!(
        status == 404 && text.contains("\"status\":\"not found\""),
        "{text}"
    );
    let (status, text) = json("/plus/*", &[("Purge-Soft", "1")])?;
    assert!(
        status == 200 && text.contains("\"mode\":\"soft\""),
        "{text}"
    );
    assert!(
        text.contains("\"type\":\"prefix\"") && text.contains("\"entries\":null"),
        "{text}"
    );
    Ok(())
}

fn each_purge_leaves_a_line(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol)?;
    bench.warm("/a%22b")?;
    bench.purge("/a%22b", &[])?;
    bench.purge("/img/*", &[("Purge-Soft", "1")])?;
    bench.purge("/", &[("Purge-Type", "all"), ("Purge-Dry-Run", "1")])?;
    bench.purge("/", &[("Purge-Type", "none")])?;
    let log = bench.proxy.error_log();
    for (level, text) in [
        ("[notice]", "cache purge, hard, exact \"/a"),
        (
            "[notice]",
            "cache purge, soft, prefix \"/img/\" in zone \"z\": number ",
        ),
        (
            "[notice]",
            "cache purge, hard, all \"\" in zone \"z\": dry run, 0 entries",
        ),
        (
            "[error]",
            "cache purge refused: unknown Purge-Type \"none\"",
        ),
    ] {
        let mut lines = log.lines();
        let line = lines.find(|line| line.contains(text)).context(text)?;
        assert!(
            line.contains(level) && line.contains("client: 127.0.0.1"),
            "{line}"
        );
    }
    Ok(())
}

/// Purges that were acknowledged hold after the process was killed, and other entries are there.
fn purges_outlive_a_kill(protocol: Protocol) -> Result<()> {
    let mut bench = Bench::new(protocol)?;
    let paths: Vec<String> = (0..20)
        .map(|number| format!("/{}/{number}", number % 2))
        .collect();
    for path in &paths {
        bench.warm(path)?;
    }
    // Written within a second; a kill takes nothing of it.
    for wait in 0..2 {
        assert_eq!(bench.purge(&format!("/{wait}/*"), &[])?.status, 200);
        bench.proxy.kill9()?;
        bench.proxy.restart()?;
        for path in paths
            .iter()
            .filter(|path| path.starts_with(&format!("/{wait}")))
        {
            assert_eq!(bench.label(path)?, "MISS", "{path}");
        }
    }
    bench.warm("/x")?;
    assert_eq!(bench.purge("/x", &[])?.status, 200);
    bench.proxy.kill9()?;
    bench.proxy.restart()?;
    assert_eq!(bench.label("/x")?, "MISS");
    Ok(())
}

/// Purged entries are removed behind the scenes, and the rules are forgotten.
fn purged_entries_are_swept(protocol: Protocol) -> Result<()> {
    let bench = Bench::new(protocol)?;
    for number in 0..100 {
        bench.warm(&format!("/a/{number}"))?;
    }
    bench.purge("/a/*", &[])?;
    let swept = || {
        let log = bench.proxy.error_log();
        log.contains("100 entries removed, 0 made stale")
            .then_some(())
    };
    Deadline::after(Duration::from_secs(10))
        .poll(swept)
        .context("swept")?;
    assert_eq!(bench.label("/a/1")?, "MISS");
    Ok(())
}

#[test]
fn wrong_lines_are_refused() {
    let origin = Origin::start().unwrap();
    for (line, message) in [
        (
            "proxy_cache z; proxy_cache_purge PURGE from nobody;",
            "invalid parameter \"nobody\"",
        ),
        (
            "proxy_cache z; proxy_cache_purge z $uri;",
            "incompatible with \"proxy_pass\"",
        ),
        ("proxy_cache_purge z a b;", "expected \"from\" keyword"),
    ] {
        let conf = format!(
            "proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
             server {{ listen 127.0.0.1:%%PORT%%;
                       location / {{ proxy_pass http://%%ORIGIN%%; {line} }} }}"
        );
        let started = Proxy::new(Kind::Millpond, &conf).origin(&origin).start();
        let error = started
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(error.contains(message), "{line}: {error}");
    }
    let unknown = "server { listen 127.0.0.1:%%PORT%%;
                            location / { proxy_cache_purge z $uri; } }";
    let started = Proxy::new(Kind::Millpond, unknown).start();
    let error = started
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(error.contains("zone \"z\" is unknown"), "{error}");
    let misplaced = "proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
                     server { listen 127.0.0.1:%%PORT%%; proxy_cache_purge z $uri; }";
    let started = Proxy::new(Kind::Millpond, misplaced).start();
    let error = started
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(error.contains("is not allowed here"), "{error}");
}

/// The configuration and the commands of docs/purge.md do what stands there.
#[test]
fn the_document_is_right() -> Result<()> {
    const PURGE: &str = include_str!("../../docs/purge.md");
    if Command::new("curl").arg("--version").output().is_err() {
        return Ok(());
    }
    let (_, rest) = PURGE.split_once("```nginx\n").context("a configuration")?;
    let (conf, _) = rest.split_once("```").context("its end")?;
    let conf = conf
        .replace("/var/cache/millpond", "%%DIR%%/cache")
        .replace("listen 80;", "listen 127.0.0.1:%%PORT%%;")
        .replace("http://origin.example", "http://%%ORIGIN%%");
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("page"));
    let proxy = Proxy::new(Kind::Millpond, &conf).origin(&origin).start()?;
    let blocks = PURGE.split("```console\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let mut count = 0;
    for step in blocks.flat_map(|block| block.split("$ curl").skip(1)) {
        let (arguments, expected) = step.split_once('\n').context("a line")?;
        let connect = format!("--connect-to localhost:80:127.0.0.1:{}", proxy.port());
        let command = format!("curl {connect}{arguments}");
        let output = Command::new("sh").args(["-c", &command]).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, expected, "{command}");
        count += 1;
    }
    assert!(count >= 15, "{count} commands");
    Ok(())
}

/// Four hosts in one zone, with rights to purge of their own.
struct Hosts {
    origin: Origin,
    _proxy: Proxy,
    client: Client,
}

impl Hosts {
    fn start(protocol: Protocol) -> Result<Hosts> {
        let origin = Origin::start()?;
        let page = Answer::new(200).body("page");
        origin.route("/*", page.header("Surrogate-Key", "page"));
        let server = |name: &str, form: &str| {
            format!(
                "server {{ listen 127.0.0.1:%%PORT%%; server_name {name}; proxy_cache z; \
                 proxy_cache_key $host$uri; proxy_cache_valid 1h; proxy_cache_tag \
                 $upstream_http_surrogate_key; \
                 location / {{ proxy_pass http://%%ORIGIN%%; {form} }} \
                 location ~ ^/purge(/.*) {{ proxy_cache_purge z $host$1; }} }}"
            )
        };
        let conf = format!(
            "proxy_cache_path %%DIR%%/c keys_zone=z:1m; \
             map $request_method $is {{ PURGE 1; default 0; }} {} {} {} {}",
            server("mine", "proxy_cache_purge PURGE;"),
            server("plus", "proxy_cache_purge $is;"),
            server("open", "proxy_cache_purge PURGE types=all,host;"),
            server("other", ""),
        );
        let proxy = Proxy::new(Kind::Millpond, &conf)
            .over(protocol)
            .origin(&origin)
            .log_check(millpond_testkit::LogCheck::Off)
            .start()?;
        let client = protocol.client(proxy.port());
        Ok(Hosts {
            origin,
            _proxy: proxy,
            client,
        })
    }

    fn get(&self, host: &str) -> Result<Response> {
        self.client.send(&Request::get("/a").host(host))
    }

    /// True if the page of a host is served without the origin; it is stored afterwards.
    fn is_stored(&self, host: &str) -> Result<bool> {
        self.origin.forget_requests();
        self.get(host)?;
        Ok(self.origin.requests().is_empty())
    }

    /// The status of a purge.
    fn purge(&self, host: &str, path: &str, fields: &[(&str, &str)]) -> Result<u16> {
        let request = Request::new("PURGE", path).host(host);
        let add = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
        Ok(self.client.send(&fields.iter().fold(request, add))?.status)
    }
}

/// Fields that ask for what is beyond a host and a site.
const WIDE: [&[(&str, &str)]; 5] = [
    &[("Purge-Type", "all")],
    &[("Purge-Type", "host"), ("Purge-Host", "other")],
    &[("Purge-Type", "site"), ("Purge-Site", "other")],
    &[("Surrogate-Key", "page")],
    &[("xkey-softpurge", "page")],
];

/// A client that may purge one key may not purge everybody, in no form of the directive.
fn purge_of_other_hosts_is_refused(protocol: Protocol) -> Result<()> {
    let hosts = Hosts::start(protocol)?;
    for (host, path) in [
        ("mine", "/a"),
        ("mine", "/purge/a"),
        ("plus", "/a"),
        ("plus", "/purge/a"),
    ] {
        for fields in WIDE {
            hosts.get("other")?;
            let status = hosts.purge(host, path, fields)?;
            assert_eq!(status, 403, "{host}{path} {fields:?}");
            assert!(hosts.is_stored("other")?, "{host}{path} {fields:?}");
        }
    }
    // A host may have stars in it.
    let stars = hosts.purge("*", "/*", &[("Purge-Type", "wildcard")])?;
    assert_eq!(stars, 403);
    assert!(hosts.is_stored("other")?);
    Ok(())
}

/// A purge within its own key, host and site is done, and nothing else is purged.
fn purge_within_its_own_host_and_site_is_done(protocol: Protocol) -> Result<()> {
    let hosts = Hosts::start(protocol)?;
    for host in ["mine", "plus"] {
        let own: [&[(&str, &str)]; 4] = [
            &[("Purge-Type", "host")],
            &[("Purge-Type", "site"), ("Purge-Site", host)],
            &[("Purge-Type", "prefix")],
            &[("Purge-Type", "wildcard")],
        ];
        hosts.get("other")?;
        for fields in own {
            hosts.get(host)?;
            assert!(hosts.is_stored(host)?);
            assert!(hosts.purge(host, "/a", fields)? < 300, "{host} {fields:?}");
            assert!(!hosts.is_stored(host)?, "{host} {fields:?}");
            assert!(hosts.is_stored("other")?, "{host} {fields:?}");
        }
    }
    Ok(())
}

/// `types=` names what a purge may reach, and nothing that it does not name.
fn kinds_that_the_directive_names_reach_other_hosts(protocol: Protocol) -> Result<()> {
    let hosts = Hosts::start(protocol)?;
    for fields in &WIDE[..2] {
        hosts.get("other")?;
        assert_eq!(hosts.purge("open", "/a", fields)?, 200, "{fields:?}");
        assert!(!hosts.is_stored("other")?, "{fields:?}");
    }
    for fields in &WIDE[2..] {
        assert_eq!(hosts.purge("open", "/a", fields)?, 403, "{fields:?}");
    }
    assert!(hosts.is_stored("other")?);
    Ok(())
}

millpond_testkit::each_protocol!(
    each_form_purges_its_key_and_answers_as_its_module,
    only_who_may_purges,
    fields_of_the_request_purge_more,
    hosts_and_sites_are_told_apart,
    purge_all_and_its_method_empty_the_zone,
    all_variants_are_purged,
    running_fills_are_purged,
    a_soft_purge_lets_stale_rules_and_revalidation_apply,
    a_dry_run_counts_and_purges_nothing,
    json_is_for_those_who_accept_it,
    each_purge_leaves_a_line,
    purges_outlive_a_kill,
    purged_entries_are_swept,
    purge_of_other_hosts_is_refused,
    purge_within_its_own_host_and_site_is_done,
    kinds_that_the_directive_names_reach_other_hosts,
);
