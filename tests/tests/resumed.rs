//! Bodies that break off while they are stored: the rest is asked for, of the same version.
//!
//! RFC 9110 §15.3.7.3: parts are combined "if they all share the same strong validator".

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Answer, Client, Deadline, End, Gate, Kind, Lie, Origin, Proxy, Ranges, Recorded, Request,
    offset_bytes,
};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const LEN: u64 = 3 * MIB;
/// Bytes that come at first.
const BREAK: u64 = MIB + 777;
const WAIT: Duration = Duration::from_secs(20);

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=256m;
    proxy_cache z;
    proxy_cache_key $request_method$uri;
    proxy_cache_valid 200 1h;
    proxy_cache_lock on;
    proxy_cache_methods GET HEAD POST;
    error_log %%DIR%%/error.log info;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Cache $upstream_cache_status always;
        location = /metrics { metrics; }
        location / { proxy_pass http://%%ORIGIN%%; }
        location /off/ { proxy_pass http://%%ORIGIN%%; proxy_cache_resume off; }
        location /silent/ { proxy_pass http://%%ORIGIN%%; proxy_read_timeout 300ms; }
    }";

struct Site {
    origin: Origin,
    proxy: Proxy,
}

impl Site {
    fn start() -> Result<Site> {
        let origin = Origin::start()?;
        let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
        Ok(Site { origin, proxy })
    }

    /// Requests for a path so far: method, Range and If-Range.
    fn asked(&self, path: &str) -> Vec<(String, Option<String>, Option<String>)> {
        let requests = self.origin.requests();
        let of_path = requests.iter().filter(|it| it.path() == path);
        let owned = |value: Option<&str>| value.map(str::to_owned);
        of_path
            .map(|it| {
                let fields = (owned(it.header("Range")), owned(it.header("If-Range")));
                (it.method.clone(), fields.0, fields.1)
            })
            .collect()
    }

    /// The cache's word about a request, and the body, if it is whole.
    fn get(&self, path: &str) -> Result<(String, Vec<u8>)> {
        let answer = Client::new(self.proxy.port()).get(path)?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        let is_cut = matches!(answer.end, End::Truncated(_));
        ensure!(!is_cut, "{path}: broken after {}", answer.body.len());
        let label = answer.header("X-Cache").context("no label")?.to_owned();
        Ok((label, answer.body))
    }

    /// The whole comes, once stored and once from the zone.
    fn expect_whole(&self, path: &str) -> Result<()> {
        for label in ["MISS", "HIT"] {
            let (told, body) = self.get(path).with_context(|| path.to_owned())?;
            assert_eq!(told, label, "{path}");
            assert!(body == offset_bytes(0..LEN, 1), "{path}: another body");
        }
        Ok(())
    }

    /// The body breaks off, after so many requests, and nothing is stored.
    fn expect_broken(&self, path: &str, requests: usize) -> Result<()> {
        let cut = Client::new(self.proxy.port()).get(path)?;
        assert!(matches!(cut.end, End::Truncated(_)), "{path} is whole");
        assert!(cut.body == offset_bytes(0..BREAK, 1), "{path}: other bytes");
        assert_eq!(self.asked(path).len(), requests, "{path}");
        let whole = Answer::new(200).offset_body(LEN, 9);
        self.origin.route(path, whole);
        let (told, body) = self.get(path)?;
        assert_eq!(told, "MISS", "{path}");
        assert!(body == offset_bytes(0..LEN, 9), "{path}: another body");
        Ok(())
    }
}

/// An answer whose rest can be asked for.
fn page() -> Answer {
    let answer = Answer::new(200).offset_body(LEN, 1).etag("\"v1\"");
    answer.ranges(Ranges::Supported)
}

fn is_first(request: &Recorded) -> bool {
    request.header("Range").is_none()
}

/// A page that breaks off, and another answer to whoever asks for the rest.
fn breaks_off(site: &Site, path: &str, first: Answer, then: Answer) {
    site.origin.answer_with(path, move |request| {
        if is_first(request) {
            first.clone().drop_after(BREAK)
        } else {
            then.clone()
        }
    });
}

#[test]
fn the_rest_is_asked_for_and_clients_get_the_whole() -> Result<()> {
    let site = Site::start()?;
    breaks_off(&site, "/once", page(), page());
    site.expect_whole("/once")?;
    let rest = format!("bytes={BREAK}-{}", LEN - 1);
    let get = || "GET".to_owned();
    assert_eq!(
        site.asked("/once"),
        [
            (get(), None, None),
            (get(), Some(rest), Some("\"v1\"".to_owned()))
        ]
    );
    let line = format!("upstream broke off after {BREAK} bytes of the body, asking for the rest");
    assert!(site.proxy.error_log().contains(&line));
    // It breaks off in each mebibyte, and goes on in the next.
    site.origin.answer_with("/often", |request| {
        let start = request.header("Range").map_or(0, first_byte);
        page().drop_at((start / MIB + 1) * MIB)
    });
    site.expect_whole("/often")?;
    assert_eq!(site.asked("/often").len() as u64, LEN / MIB);
    let metrics = Client::new(site.proxy.port()).get("/metrics")?.text();
    // One of the first path, and two of this one.
    let line = "\nmillpond_zone_rules_total{zone=\"z\",rule=\"resumed\"} 3\n";
    assert!(metrics.contains(line), "{metrics}");
    // Last-Modified is strong where the answer is younger.
    let dated = Answer::new(200)
        .offset_body(LEN, 1)
        .ranges(Ranges::Supported)
        .header("Date", "Tue, 01 Mar 2022 00:00:00 GMT")
        .last_modified("Sat, 01 Jan 2022 00:00:00 GMT");
    breaks_off(&site, "/dated", dated.clone(), dated);
    site.expect_whole("/dated")
}

/// The first byte of a range.
fn first_byte(range: &str) -> u64 {
    let digits = range.trim_start_matches("bytes=").split('-').next();
    digits.and_then(|it| it.parse().ok()).unwrap_or(0)
}

#[test]
fn an_origin_that_falls_silent_is_asked_once_more() -> Result<()> {
    let site = Site::start()?;
    let gate = Gate::new();
    let silent = page().hold_body_at(BREAK, &gate);
    site.origin.answer_with("/silent/page", move |request| {
        if is_first(request) {
            silent.clone()
        } else {
            page()
        }
    });
    site.expect_whole("/silent/page")?;
    assert_eq!(site.asked("/silent/page").len(), 2);
    gate.open();
    Ok(())
}

#[test]
fn all_who_wait_for_one_fill_get_the_rest() -> Result<()> {
    let site = Site::start()?;
    let gate = Gate::new();
    let held = page().hold_head(&gate);
    breaks_off(&site, "/shared", page(), held);
    std::thread::scope(|scope| -> Result<()> {
        let reading: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| site.get("/shared")))
            .collect();
        let is_asked = || (site.asked("/shared").len() == 2).then_some(());
        let asked = Deadline::after(WAIT).poll(is_asked);
        gate.open();
        asked.context("the rest is never asked for")?;
        for one in reading {
            let (_, body) = one.join().expect("a reader does not panic")?;
            assert!(body == offset_bytes(0..LEN, 1), "another body");
        }
        Ok(())
    })?;
    assert_eq!(site.asked("/shared").len(), 2);
    Ok(())
}

#[test]
fn bytes_of_another_version_or_another_place_are_never_joined() -> Result<()> {
    let site = Site::start()?;
    let version = |etag: &str| Answer::new(200).offset_body(LEN, 2).etag(etag);
    let ranged = |etag: &str| version(etag).ranges(Ranges::Unconditional);
    for (path, rest) in [
        ("/changed", version("\"v2\"").ranges(Ranges::Supported)),
        ("/changed-206", ranged("\"v2\"")),
        ("/weak-206", ranged("W/\"v1\"")),
        ("/error", Answer::new(503)),
        ("/other-bytes", page().lie(Lie::OtherBytes(16))),
        ("/other-place", page().lie(Lie::OtherPlace(16))),
        ("/total", page().lie(Lie::Total(LEN + 1))),
        ("/unknown-total", page().lie(Lie::UnknownTotal)),
        ("/fewer", page().lie(Lie::Fewer(1))),
        ("/fewer-untold", page().lie(Lie::FewerUntold(1))),
        ("/no-content-range", page().lie(Lie::NoContentRange)),
        ("/garbled", page().lie(Lie::GarbledContentRange)),
    ] {
        breaks_off(&site, path, page(), rest);
        site.expect_broken(path, 2)?;
    }
    // It is asked three times, and never gets on.
    breaks_off(&site, "/stuck", page(), page().drop_after(0));
    site.expect_broken("/stuck", 4)
}

#[test]
fn what_cannot_be_asked_for_in_parts_breaks_off_as_ever() -> Result<()> {
    let site = Site::start()?;
    let tagged = |etag: &str| Answer::new(200).offset_body(LEN, 1).etag(etag);
    let plain = Answer::new(200).offset_body(LEN, 1);
    for (path, first) in [
        ("/weak", tagged("W/\"v1\"").ranges(Ranges::Supported)),
        ("/no-ranges", tagged("\"v1\"")),
        ("/no-validator", plain.ranges(Ranges::Supported)),
        ("/off/page", page()),
    ] {
        breaks_off(&site, path, first, page());
        site.expect_broken(path, 1)?;
    }
    // Another method is never repeated.
    breaks_off(&site, "/post", page(), page());
    let post = Request::post("/post", "x");
    let cut = Client::new(site.proxy.port()).send(&post)?;
    assert!(matches!(cut.end, End::Truncated(_)), "it is whole");
    assert_eq!(site.asked("/post").len(), 1);
    Ok(())
}
