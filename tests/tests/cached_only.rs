//! `cached_only`: crawlers that get what is stored and cost no origin; answers that are kept stale
//! for them by `proxy_cache_valid … stale=`, and 425, which is not stored.

use std::time::Duration;

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, Origin, Proxy, Ranges, Request, Response};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m;
    map $http_user_agent $is_bot { default 0; ~bot 1; }
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_key $uri;
        proxy_cache_valid any 1h;
        add_header X-Cache $upstream_cache_status always;
        add_header X-Why $cache_status_reason always;
        cached_only $is_bot;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /later/ { proxy_pass http://%%ORIGIN%%; cached_only_retry_after 2m; }
        location /bypass/ { proxy_pass http://%%ORIGIN%%; proxy_cache_bypass 1; }
        location /brief/ { proxy_pass http://%%ORIGIN%%; proxy_cache_valid 1s; }
        location /rfc/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_valid 1s;
            proxy_cache_conformance rfc9111;
        }
        location /slices/ { proxy_pass http://%%ORIGIN%%; slice 4k; }
        location /kept/ {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache_valid 1s stale=1h;
            proxy_cache_background_update on;
        }
        location /page/ { proxy_pass http://%%ORIGIN%%; error_page 503 /busy; }
        location = /busy { return 503 busy; }
    }";

/// Longer than a second of freshness, and than anything takes here.
const SOON: Duration = Duration::from_secs(10);

struct Site {
    client: Client,
    _proxy: Proxy,
    origin: Origin,
}

impl Site {
    fn start() -> Result<Self> {
        let origin = Origin::start()?;
        origin.route("/*", Answer::new(200).body("page"));
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        Ok(Site {
            client: Client::new(proxy.port()),
            _proxy: proxy,
            origin,
        })
    }

    fn bot(&self, path: &str) -> Result<Response> {
        self.client
            .send(&Request::get(path).header("User-Agent", "bot"))
    }

    /// Asks as a bot until the answer is not fresh any more.
    fn bot_when_stale(&self, path: &str) -> Result<Response> {
        let look = || match self.bot(path) {
            Ok(response) if response.header("X-Cache") == Some("HIT") => None,
            done => Some(done),
        };
        let looked = Deadline::after(SOON).poll(look);
        looked.context("it stays fresh")?
    }
}

fn refused(response: &Response) -> (u16, Option<&str>, Option<&str>) {
    let (after, why) = (response.header("Retry-After"), response.header("X-Why"));
    (response.status, after, why)
}

#[test]
fn a_bot_gets_what_is_stored_and_never_makes_the_origin_asked() -> Result<()> {
    let site = Site::start()?;
    let none = (503, Some("60"), Some("cached-only"));
    assert_eq!(refused(&site.bot("/a")?), none);
    assert_eq!(refused(&site.bot("/bypass/a")?), none);
    assert_eq!(refused(&site.bot("/later/a")?).1, Some("120"));
    let page = site.bot("/page/a")?;
    assert_eq!(
        (refused(&page).1, page.text().as_str()),
        (Some("60"), "busy")
    );
    assert!(site.origin.requests().is_empty());
    for path in ["/a", "/bypass/a"] {
        assert_eq!(
            site.client
                .get(path)?
                .header("X-Cache")
                .map(|it| it != "HIT"),
            Some(true)
        );
        let response = site.bot(path)?;
        assert_eq!(
            (response.status, response.header("X-Cache")),
            (200, Some("HIT"))
        );
    }
    assert_eq!(site.origin.requests().len(), 2);
    // A request that the cache is not asked for goes on.
    let post = Request::new("POST", "/a")
        .header("User-Agent", "bot")
        .body("x");
    assert_eq!(site.client.send(&post)?.status, 200);
    Ok(())
}

#[test]
fn a_stale_answer_is_served_to_a_bot_and_not_updated_for_it() -> Result<()> {
    let site = Site::start()?;
    for path in ["/brief/a", "/rfc/a"] {
        site.client.get(path)?;
        site.origin.forget_requests();
        let stale = site.bot_when_stale(path)?;
        assert_eq!((stale.status, stale.text().as_str()), (200, "page"));
        assert_eq!(stale.header("X-Cache"), Some("STALE"));
        assert_eq!(stale.header("X-Why"), Some("cached-only"));
        assert_eq!(site.bot(path)?.header("X-Cache"), Some("STALE"));
        assert!(site.origin.requests().is_empty());
    }
    // The origin's word is stronger.
    let bound = Answer::new(200).header("Cache-Control", "max-age=1, must-revalidate");
    site.origin.route("/rfc/bound", bound.body("page"));
    site.client.get("/rfc/bound")?;
    let refused = site.bot_when_stale("/rfc/bound")?;
    assert_eq!(refused.status, 503);
    Ok(())
}

#[test]
fn a_bot_gets_no_body_of_which_a_slice_is_missing() -> Result<()> {
    let site = Site::start()?;
    let file = Answer::new(200).etag("\"v\"").offset_body(40_000, 1);
    site.origin
        .route("/slices/a", file.ranges(Ranges::Supported));
    let first = Request::get("/slices/a").header("Range", "bytes=0-99");
    assert_eq!(site.client.send(&first)?.status, 206);
    assert_eq!(site.bot("/slices/a")?.status, 503);
    assert_eq!(site.client.get("/slices/a")?.body.len(), 40_000);
    site.origin.forget_requests();
    // The last slices may be on their way to the store.
    let look = || match site.bot("/slices/a") {
        Ok(response) if response.status == 503 => None,
        done => Some(done),
    };
    let whole = Deadline::after(SOON).poll(look).context("not kept")??;
    assert_eq!((whole.status, whole.body.len()), (200, 40_000));
    assert!(site.origin.requests().is_empty());
    Ok(())
}

#[test]
fn answers_are_served_stale_for_as_long_as_their_line_says() -> Result<()> {
    let site = Site::start()?;
    site.client.get("/kept/a")?;
    site.origin.route("/kept/a", Answer::new(200).body("new"));
    let look = || match site.client.get("/kept/a") {
        Ok(response) if response.header("X-Cache") == Some("HIT") => None,
        done => Some(done),
    };
    let stale = Deadline::after(SOON)
        .poll(look)
        .context("it stays fresh")??;
    assert_eq!(stale.header("X-Cache"), Some("STALE"));
    assert_eq!(stale.text(), "page");
    // One that states its lifetime itself has no more than that.
    let stated = Answer::new(200).header("Cache-Control", "max-age=1");
    site.origin.route("/kept/b", stated.body("page"));
    let look = || match site.client.get("/kept/b") {
        Ok(response) if matches!(response.header("X-Cache"), Some("HIT" | "MISS")) => None,
        done => Some(done),
    };
    let expired = Deadline::after(SOON)
        .poll(look)
        .context("it stays fresh")??;
    assert_eq!(expired.header("X-Cache"), Some("EXPIRED"));
    Ok(())
}

#[test]
fn too_early_is_not_any_status() -> Result<()> {
    let site = Site::start()?;
    for (status, expected) in [(425, "MISS"), (404, "HIT")] {
        let path = format!("/{status}");
        site.origin.route(&path, Answer::new(status).body("x"));
        site.client.get(&path)?;
        let again = site.client.get(&path)?;
        assert_eq!(
            (again.status, again.header("X-Cache")),
            (status, Some(expected))
        );
    }
    Ok(())
}
