//! Regular expressions that give up: within the limits of the engine it is not known whether they
//! match, and whoever sends the text can bring that about. So it is neither a match nor none, but a
//! 500 and an alert, wherever an expression may stand.

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, Request};
use std::time::Duration;

/// The longest time that anything here may take.
const WAIT: Duration = Duration::from_secs(10);

/// Text that the expressions below cannot be matched with in any sensible time: each `a` more
/// doubles it.
const EVIL: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";

/// Configuration with expressions that a look-ahead keeps from the engine that takes linear time.
const CONF: &str = r#"
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
    map $http_x_evil $mapped { default no; "~*(?!x)^(a+)+$" yes; }
    server {
        listen 127.0.0.1:%%PORT%%;
        location /if { if ($http_x_evil ~* "(?!x)^(a+)+$") { return 403; } return 200 if; }
        location /if-not { if ($http_x_evil !~* "(?!x)^(a+)+$") { return 200 not; } return 403; }
        location /map { if ($mapped = yes) { return 403; } return 200 map; }
        location /text { return 200 $mapped; }
        location /header { add_header X-Mapped $mapped; proxy_pass http://%%ORIGIN%%/plain; }
        location /rewrite/ { rewrite "(?!x)^/rewrite/(a+)+$" /if last; return 200 rewrite; }
        location ~ "(?!x)^/location/(a+)+$" { return 403; }
        location /location/ { return 200 location; }
        location /asked { proxy_set_header X-Mapped $mapped; proxy_pass http://%%ORIGIN%%/asked; }
        location /key {
            proxy_cache z; proxy_cache_key $mapped; proxy_cache_valid 1h;
            proxy_pass http://%%ORIGIN%%/key;
        }
        location /referer {
            valid_referers "~(?!x)^(a+)+$";
            if ($invalid_referer) { return 200 invalid; }
            return 200 valid;
        }
        location /gzip {
            gzip on; gzip_min_length 1; gzip_types *; gzip_disable "(?!x)^(a+)+$";
            proxy_pass http://%%ORIGIN%%/plain;
        }
        location /redirect {
            proxy_pass http://%%ORIGIN%%/redirect;
            proxy_redirect "~(?!x)^/(a+)+$" /x;
        }
        location /domain {
            proxy_pass http://%%ORIGIN%%/cookie; proxy_cookie_domain "~(?!x)^(a+)+$" x;
        }
        location /path {
            proxy_pass http://%%ORIGIN%%/cookie; proxy_cookie_path "~(?!x)^/(a+)+$" x;
        }
        location /flags {
            proxy_pass http://%%ORIGIN%%/cookie; proxy_cookie_flags "~(?!x)^(a+)+$" secure;
        }
        location /split {
            fastcgi_split_path_info "(?!x)^/split/((?:a+)+)(/.*)$";
            fastcgi_param SCRIPT_NAME $fastcgi_script_name;
            fastcgi_pass 127.0.0.1:1;
        }
        location /page {
            error_page 500 /error;
            if ($http_x_evil ~* "(?!x)^(a+)+$") { return 403; }
            return 200 page;
        }
        location /error { return 503 error; }
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name "~(?!x)^(a+)+$";
        return 403;
    }"#;

fn start(origin: &Origin) -> Result<Proxy> {
    origin.route(
        "/plain",
        Answer::new(200)
            .header("Content-Type", "text/x")
            .body("plain"),
    );
    origin.route(
        "/redirect",
        Answer::new(302).header("Location", &format!("/{EVIL}")),
    );
    let cookie = format!("{EVIL}=1; Domain={EVIL}; Path=/{EVIL}");
    origin.route("/cookie", Answer::new(200).header("Set-Cookie", &cookie));
    for path in ["/asked", "/key"] {
        origin.route(path, Answer::new(200).body("asked"));
    }
    Proxy::new(Kind::Millpond, CONF)
        .origin(origin)
        .log_check(LogCheck::Off)
        .start()
}

fn ask(path: &str, evil: &str) -> Request {
    Request::get(path)
        .header("X-Evil", evil)
        .header("User-Agent", evil)
        .header("Referer", &format!("http://{evil}"))
        .header("Accept-Encoding", "gzip")
}

/// A match that nginx would let through as "no match" is refused, and the error log has an alert of
/// each.
#[test]
fn expression_that_gives_up_is_500_and_an_alert_in_every_directive() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    let paths = [
        "/if",
        "/if-not",
        "/map",
        "/text",
        "/header",
        "/asked",
        "/key",
        "/referer",
        "/gzip",
        "/redirect",
        "/domain",
        "/path",
        "/flags",
    ];
    let with_evil = [
        format!("/rewrite/{EVIL}"),
        format!("/location/{EVIL}"),
        format!("/split/{EVIL}"),
    ];
    let all = paths
        .iter()
        .copied()
        .chain(with_evil.iter().map(String::as_str));
    for (count, path) in all.enumerate() {
        let response = client.send(&ask(path, EVIL))?;
        assert_eq!(response.status, 500, "{path}: {}", response.text());
        let alerts = || {
            let log = proxy.error_log();
            let lines = log.lines().filter(|line| line.contains("[alert]"));
            let lines = lines.filter(|line| line.contains("pcre2_match() failed"));
            (lines.count() > count).then_some(())
        };
        Deadline::after(WAIT)
            .poll(alerts)
            .with_context(|| format!("an alert for {path}"))?;
    }
    let asked: Vec<_> = origin.requests();
    let is_late = |path: &str| path == "/asked" || path == "/key";
    assert!(
        !asked.iter().any(|request| is_late(request.path())),
        "the origin was asked"
    );
    Ok(())
}

/// A host for which the name of a server cannot be matched reaches no server.
#[test]
fn server_name_that_gives_up_is_500() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    let host = format!("{}_", EVIL.trim_end_matches('!'));
    assert_eq!(client.send(&Request::get("/if").host(&host))?.status, 500);
    assert_eq!(client.send(&Request::get("/if").host("aaa"))?.status, 403);
    assert_eq!(client.send(&Request::get("/if").host("b"))?.status, 200);
    Ok(())
}

/// The answer may be a page; that is made without the expression, and the next request is not
/// concerned.
#[test]
fn error_page_of_an_expression_that_gave_up_is_sent() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    let response = client.send(&ask("/page", EVIL))?;
    assert_eq!(
        (response.status, response.text()),
        (500, "error".to_owned())
    );
    for (path, evil, status) in [("/page", "b", 200), ("/page", "aa", 403), ("/if", "b", 200)] {
        assert_eq!(
            client.send(&ask(path, evil))?.status,
            status,
            "{path} {evil}"
        );
    }
    Ok(())
}

/// The error of a part of a page is told in the page, as other errors there.
#[test]
fn expression_of_a_page_that_gives_up_is_an_error_in_the_page() -> Result<()> {
    let origin = Origin::start()?;
    let page =
        "<!--#if expr=\"$http_x_evil = /(?!x)^(a+)+(b|c)/\" -->yes<!--#else -->no<!--#endif -->";
    origin.route(
        "/",
        Answer::new(200)
            .header("Content-Type", "text/html")
            .body(page),
    );
    let conf = "server { listen 127.0.0.1:%%PORT%%; ssi on; location / { proxy_pass http://%%ORIGIN%%; } }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    let get = |evil| client.send(&Request::get("/").header("X-Evil", evil));
    assert_eq!(get("aab")?.text(), "yes");
    assert_eq!(get("b")?.text(), "no");
    let text = get(EVIL)?.text();
    assert!(text.contains("an error occurred"), "{text}");
    Ok(())
}
