//! `proxy_cache_vary`: variants that are told apart by a value of the configuration.

use anyhow::Result;
use millpond_testkit::{Answer, Client, Kind, Origin, Proxy, Request};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=16m;
    proxy_cache z;
    proxy_cache_valid any 1h;
    map $http_accept $kind { default ''; ~text/markdown markdown; }
    add_header X-Cache $upstream_cache_status always;
    proxy_cache_vary Accept as $kind;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /bypass/ { proxy_pass http://%%ORIGIN%%; proxy_cache_bypass $arg_new; }
        location /rfc/ { proxy_pass http://%%ORIGIN%%; proxy_cache_conformance rfc9111; }
        location /lang/ { proxy_pass http://%%ORIGIN%%; proxy_cache_vary User-Agent as $arg_class; }
        # Goes on in a location of other rules.
        location /moved/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_intercept_errors on;
            error_page 404 = /again/a;
        }
        location /again/ { proxy_pass http://%%ORIGIN%%; proxy_cache_vary User-Agent as $arg_class; }
    }";

const BROWSERS: [&str; 3] = ["text/html,*/*;q=0.8", "*/*", "image/avif,image/webp"];
const AGENTS: [&str; 2] = ["text/markdown", "text/markdown, text/html;q=0.5"];

struct Site {
    client: Client,
    _proxy: Proxy,
    origin: Origin,
}

impl Site {
    fn start() -> Result<Site> {
        let origin = Origin::start()?;
        origin.answer_with("/*", |request| {
            let accept = request.header("Accept").unwrap_or_default();
            let kind = if accept.contains("markdown") {
                "markdown"
            } else {
                "html"
            };
            let status = if request.path().starts_with("/moved/") {
                404
            } else {
                200
            };
            let answer = Answer::new(status).header("Vary", "Accept");
            answer.body(kind)
        });
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        Ok(Site {
            client: Client::new(proxy.port()),
            _proxy: proxy,
            origin,
        })
    }

    /// The cache's word about a request, and the body.
    fn ask(&self, target: &str, accept: &str) -> Result<(String, String)> {
        let request = Request::get(target).header("Accept", accept);
        let answer = self.client.send(&request)?;
        let status = answer.header("X-Cache").unwrap_or("-").to_owned();
        Ok((status, answer.text()))
    }

    /// The same where it is expected.
    fn expect(&self, target: &str, accept: &str, expected: (&str, &str)) -> Result<()> {
        let (status, body) = self.ask(target, accept)?;
        assert_eq!((&*status, &*body), expected, "{target} {accept}");
        Ok(())
    }
}

#[test]
fn spellings_of_one_class_share_a_variant() -> Result<()> {
    let site = Site::start()?;
    for (kind, spellings) in [("html", &BROWSERS[..]), ("markdown", &AGENTS)] {
        for (number, accept) in spellings.iter().enumerate() {
            let status = if number == 0 { "MISS" } else { "HIT" };
            site.expect("/a", accept, (status, kind))?;
        }
    }
    assert_eq!(site.origin.requests().len(), 2);
    // An empty value is that of a request without the field.
    let bare = site.client.get("/a")?;
    assert_eq!(bare.header("X-Cache"), Some("HIT"));
    assert_eq!(bare.text(), "html");
    Ok(())
}

#[test]
fn class_is_the_same_when_the_answer_is_stored_past_the_look_up() -> Result<()> {
    let site = Site::start()?;
    site.expect("/bypass/a", BROWSERS[0], ("MISS", "html"))?;
    site.expect("/bypass/a?new=", AGENTS[0], ("MISS", "markdown"))?;
    site.expect("/bypass/a?new=1", AGENTS[0], ("BYPASS", "markdown"))?;
    site.expect("/bypass/a?new=1", AGENTS[1], ("BYPASS", "markdown"))?;
    site.expect("/bypass/a?new=", AGENTS[1], ("HIT", "markdown"))?;
    site.expect("/bypass/a", BROWSERS[1], ("HIT", "html"))
}

/// RFC 9111 §4.1: the fields of both requests are compared.
#[test]
fn fields_are_compared_where_the_rfc_is_followed() -> Result<()> {
    let site = Site::start()?;
    for accept in BROWSERS {
        site.expect("/rfc/a", accept, ("MISS", "html"))?;
        site.expect("/rfc/a", accept, ("HIT", "html"))?;
    }
    Ok(())
}

#[test]
fn inner_fields_take_the_place_of_outer_ones_and_count_in_their_location() -> Result<()> {
    let site = Site::start()?;
    for target in ["/lang/a", "/moved/a"] {
        site.expect(target, BROWSERS[0], ("MISS", "html"))?;
        site.expect(target, BROWSERS[1], ("MISS", "html"))?;
        site.expect(target, BROWSERS[1], ("HIT", "html"))?;
    }
    Ok(())
}

#[test]
fn wrong_lines_are_refused() {
    for (line, why) in [
        (
            "proxy_cache_vary Accept-Encoding as $a;",
            "told apart already",
        ),
        ("proxy_cache_vary Accept by $arg_a;", "must be `as`"),
        ("proxy_cache_vary Accept;", "invalid number of arguments"),
        ("proxy_cache_vary 'a b' as $arg_a;", "name of a field"),
    ] {
        let conf = format!("server {{ listen 127.0.0.1:%%PORT%%; {line} }}");
        let started = Proxy::new(Kind::Millpond, &conf).start();
        let error = started
            .err()
            .map(|it| format!("{it:#}"))
            .unwrap_or_default();
        assert!(error.contains(why), "{line}: {error}");
    }
}
