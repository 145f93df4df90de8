//! `proxy_cache_encodings`: stored answers in content codings that are made once.

use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Kind, Origin, Proxy, Ranges, Request, Response};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m;
    proxy_cache_key $uri;
    proxy_cache_valid any 1h;
    proxy_cache_encodings br zstd gzip;
    add_header X-Cache $upstream_cache_status always;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_purge PURGE types=host,tag,all;
        proxy_cache_tag $upstream_http_x_tag;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /rfc/ { proxy_pass http://%%ORIGIN%%; proxy_cache_conformance rfc9111; }
        location /live/ { proxy_pass http://%%ORIGIN%%; gzip on; gzip_min_length 1; }
        location /off/ { proxy_pass http://%%ORIGIN%%; proxy_cache_encodings off; }
        location /sub/ { proxy_pass http://%%ORIGIN%%; sub_filter pond lake; }
        location /cut/ { proxy_pass http://%%ORIGIN%%; proxy_cache_encodings gzip:1 max_length=8k; }
        location /slices/ {
            proxy_pass http://%%ORIGIN%%;
            slice 4k;
            proxy_set_header Range $slice_range;
        }
        location = /metrics { metrics; }
    }";

/// Time that an encoding may take to be made on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const MODIFIED: &str = "Tue, 02 Jan 2024 03:04:05 GMT";

fn page(version: &str) -> String {
    format!("<p>{version}: the pond freezes over, and the mill stands still.</p>\n").repeat(300)
}

fn answer(body: &str) -> Answer {
    Answer::new(200)
        .header("Content-Type", "text/html")
        .header("ETag", "\"one\"")
        .header("Last-Modified", MODIFIED)
        .header("X-Tag", "pages")
        .body(body)
}

struct Site {
    client: Client,
    proxy: Proxy,
    origin: Origin,
}

impl Site {
    fn start() -> Result<Self> {
        Site::start_with(CONF)
    }

    fn start_with(conf: &str) -> Result<Self> {
        let origin = Origin::start()?;
        origin.route("/*", answer(&page("one")));
        let proxy = Proxy::new(Kind::Millpond, conf).origin(&origin).start()?;
        Ok(Site {
            client: Client::new(proxy.port()),
            proxy,
            origin,
        })
    }

    fn get(&self, path: &str, codings: &str) -> Result<Response> {
        self.client
            .send(&Request::get(path).header("Accept-Encoding", codings))
    }

    /// Asks until the answer is in a coding.
    fn get_in(&self, path: &str, coding: &str) -> Result<Response> {
        let look = || match self.get(path, coding) {
            Ok(response) if !is_stored_in(&response, coding) => None,
            done => Some(done),
        };
        let kept = Deadline::after(PATIENCE).poll(look);
        kept.with_context(|| format!("{path} is not kept in {coding}"))?
    }

    /// The sum of a metric's samples that have a text in their labels.
    fn metric(&self, name: &str, label: &str) -> Result<u64> {
        let text = self.client.get("/metrics")?.text();
        let lines = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(values.sum())
    }
}

/// True for a stored encoding: one that is made while it is sent has no strong validator.
fn is_stored_in(response: &Response, coding: &str) -> bool {
    let etag = response.header("ETag").unwrap_or_default();
    response.header("Content-Encoding") == Some(coding) && !etag.starts_with("W/")
}

/// The text of a whole body in a coding.
fn decode(coding: Option<&str>, body: &[u8]) -> Result<String> {
    let mut text = String::new();
    match coding {
        None => text.push_str(std::str::from_utf8(body)?),
        Some("br") => {
            brotli::Decompressor::new(body, 4096).read_to_string(&mut text)?;
        }
        Some("gzip") => {
            flate2::read::GzDecoder::new(body).read_to_string(&mut text)?;
        }
        Some("zstd") => {
            zstd::stream::read::Decoder::new(body)?.read_to_string(&mut text)?;
        }
        Some(other) => anyhow::bail!("{other}"),
    }
    Ok(text)
}

fn text(response: &Response) -> Result<String> {
    decode(response.header("Content-Encoding"), &response.body)
}

#[test]
fn each_coding_is_made_once_and_is_a_representation_of_its_own() -> Result<()> {
    let site = Site::start()?;
    for path in ["/a", "/rfc/a"] {
        let missed = site.get(path, "br")?;
        assert_eq!(missed.header("Content-Encoding"), None, "{path}");
        assert_eq!(missed.header("Vary"), Some("Accept-Encoding"), "{path}");
        let mut tags = vec!["\"one\"".to_owned()];
        for coding in ["br", "zstd", "gzip"] {
            let response = site.get_in(path, coding)?;
            assert_eq!(text(&response)?, page("one"));
            assert!(
                response.body.len() < 400,
                "{coding} {}",
                response.body.len()
            );
            assert_eq!(response.header("Vary"), Some("Accept-Encoding"));
            assert_eq!(response.header("X-Cache"), Some("HIT"));
            assert_eq!(response.header("Content-Type"), Some("text/html"));
            let tag = response.header("ETag").context("no tag")?.to_owned();
            assert!(tag.starts_with(&format!("\"one-{coding}-")), "{tag}");
            assert!(!tags.contains(&tag));
            tags.push(tag);
            let head = Request::new("HEAD", path).header("Accept-Encoding", coding);
            let length = site.client.send(&head)?;
            assert_eq!(
                length.header("Content-Length"),
                Some(response.body.len().to_string().as_str())
            );
        }
        let plain = site.client.get(path)?;
        assert_eq!(plain.text(), page("one"));
        assert_eq!(plain.header("ETag"), Some("\"one\""));
        assert_eq!(plain.header("Vary"), Some("Accept-Encoding"));
    }
    assert_eq!(site.origin.requests().len(), 2);
    assert_eq!(site.metric("millpond_zone_encodings_total", "made")?, 6);
    assert!(site.metric("millpond_zone_encoded_responses_total", "")? >= 12);
    assert!(site.metric("millpond_zone_encoding_saved_bytes_total", "")? > 12 * 10_000);
    // An encoding is no entry of its own, and has bytes.
    let of = "zone=\"z\"";
    assert_eq!(site.metric("millpond_site_entries", of)?, 2);
    let bytes = site.metric("millpond_site_held_body_bytes", of)?;
    assert!(bytes > 2 * page("one").len() as u64, "{bytes}");
    Ok(())
}

#[test]
fn clients_get_what_they_like_most_of_what_is_there() -> Result<()> {
    let site = Site::start()?;
    site.client.get("/a")?;
    site.get_in("/a", "gzip")?;
    // What is there is served while what is liked more is made.
    let first = site.get("/a", "br, gzip;q=0.9")?;
    assert!(is_stored_in(&first, "gzip") || is_stored_in(&first, "br"));
    site.get_in("/a", "br")?;
    site.get_in("/a", "zstd")?;
    for (codings, expected) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip, zstd", Some("zstd")),
        ("gzip, br;q=0.5", Some("gzip")),
        ("gzip;q=0", None),
        ("identity", None),
        ("", None),
    ] {
        let response = site.get("/a", codings)?;
        assert_eq!(response.header("Content-Encoding"), expected, "{codings}");
        assert_eq!(text(&response)?, page("one"), "{codings}");
    }
    Ok(())
}

#[test]
fn ranges_and_conditions_are_those_of_the_encoding() -> Result<()> {
    let site = Site::start()?;
    for path in ["/a", "/rfc/a"] {
        site.client.get(path)?;
        let whole = site.get_in(path, "br")?;
        let tag = whole.header("ETag").context("no tag")?;
        let ask = |codings: &str, (name, value): (&str, &str)| {
            let request = Request::get(path).header("Accept-Encoding", codings);
            site.client
                .send(&request.header("Range", "bytes=10-29").header(name, value))
        };
        let part = ask("br", ("If-Range", tag))?;
        assert_eq!(part.status, 206, "{path}");
        assert_eq!(part.body, whole.body[10..30]);
        let total = format!("bytes 10-29/{}", whole.body.len());
        assert_eq!(part.header("Content-Range"), Some(total.as_str()));
        // What holds for one representation does not for another, and a date tells them not apart.
        for (codings, condition) in [
            ("br", "\"one\""),
            ("identity", tag),
            ("br", MODIFIED),
            ("identity", MODIFIED),
        ] {
            let response = ask(codings, ("If-Range", condition))?;
            assert_eq!(response.status, 200, "{path} {codings} {condition}");
            assert_eq!(text(&response)?, page("one"));
        }
        let request = Request::get(path).header("Accept-Encoding", "br");
        let unchanged = site.client.send(&request.header("If-None-Match", tag))?;
        assert_eq!(
            (unchanged.status, unchanged.header("ETag")),
            (304, Some(tag))
        );
        let request = Request::get(path).header("Accept-Encoding", "br");
        let other = site
            .client
            .send(&request.header("If-None-Match", "\"one\""))?;
        assert_eq!(other.status, 200);
    }
    Ok(())
}

#[test]
fn what_is_purged_or_replaced_takes_its_encodings_along() -> Result<()> {
    let site = Site::start()?;
    site.client.get("/a")?;
    let first = site.get_in("/a", "br")?;
    let bodies = ["two", "three", "four"].map(page);
    let purges: [&[(&str, &str)]; 3] = [&[], &[("Cache-Tag", "pages")], &[("Purge-Type", "all")]];
    for (body, fields) in bodies.iter().zip(purges) {
        // The same validators, however wrong that is of the origin.
        site.origin.route("/*", answer(body));
        let mut purge = Request::new("PURGE", "/a");
        for (name, value) in fields {
            purge = purge.header(name, value);
        }
        assert_eq!(site.client.send(&purge)?.status, 200);
        let missed = site.get("/a", "br")?;
        assert_eq!(missed.header("X-Cache"), Some("MISS"));
        assert_eq!(text(&missed)?, *body);
        let response = site.get_in("/a", "br")?;
        assert_eq!(text(&response)?, *body);
        assert_ne!(response.header("ETag"), first.header("ETag"));
    }
    Ok(())
}

#[test]
fn what_is_not_worth_it_or_not_allowed_stays_as_it_is() -> Result<()> {
    let site = Site::start()?;
    let html = |body: &str| answer(body);
    let mut seed = 1u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    })
    .take(20_000)
    .collect();
    let typed = |name: &str| Answer::new(200).header("Content-Type", name);
    site.origin
        .route("/image", typed("image/png").body(page("one")));
    site.origin.route("/short", html("short"));
    site.origin.route("/noise", typed("text/html").body(noise));
    site.origin.route(
        "/missing",
        Answer::new(404)
            .header("Content-Type", "text/html")
            .body(page("one")),
    );
    site.origin.route(
        "/encoded",
        html(&page("one")).header("Content-Encoding", "gzip"),
    );
    site.origin.route(
        "/rfc/untouched",
        html(&page("one")).header("Cache-Control", "no-transform, max-age=100"),
    );
    site.origin
        .route("/slices/a", html(&page("one")).ranges(Ranges::Supported));
    let paths = [
        "/image",
        "/short",
        "/noise",
        "/missing",
        "/off/a",
        "/sub/a",
        "/cut/a",
        "/slices/a",
        "/rfc/untouched",
        "/encoded",
    ];
    for path in paths {
        site.get(path, "br, zstd, gzip")?;
    }
    // What is made is made one after another, so that these had their turn before the last.
    site.client.get("/a")?;
    site.get_in("/a", "br")?;
    for path in paths {
        site.get(path, "br, zstd, gzip")?;
    }
    site.client.get("/b")?;
    site.get_in("/b", "br")?;
    for path in paths {
        let response = site.get(path, "br, zstd, gzip")?;
        let coding = response.header("Content-Encoding");
        assert_eq!(coding, (path == "/encoded").then_some("gzip"), "{path}");
    }
    assert_eq!(site.metric("millpond_zone_encodings_total", "\"made\"")?, 2);
    assert_eq!(
        site.metric("millpond_zone_encodings_total", "not_shorter")?,
        1
    );
    // One that may not be transformed says nothing of codings, and one that may be does.
    let varies = |path| Ok::<_, anyhow::Error>(site.get(path, "br")?.header("Vary").is_some());
    assert!(!varies("/rfc/untouched")? && !varies("/image")? && !varies("/off/a")?);
    assert!(varies("/noise")?);
    Ok(())
}

/// A zone that is full of what nobody asks for again takes what is asked for twice.
#[test]
fn nothing_is_encoded_that_a_full_zone_would_refuse() -> Result<()> {
    let conf = CONF.replace("max_size=64m", "max_size=16m admission=second-hit");
    let site = Site::start_with(&conf)?;
    let image = Answer::new(200)
        .header("Content-Type", "image/png")
        .body(vec![7; 200_000]);
    site.origin.route("/image/*", image);
    site.client.get("/a")?;
    let mut number = 0;
    while site.metric("millpond_zone_evicted_total", "")? == 0 {
        site.client.get(&format!("/image/{number}"))?;
        site.client.get("/a")?;
        number += 1;
        ensure!(number < 1000, "the zone does not fill");
    }
    let outcomes = |name: &str| site.metric("millpond_zone_encodings_total", name);
    site.get_in("/a", "br")?;
    // It was asked for, as often as a second has gone by, and encoded once.
    assert_eq!(outcomes("\"made\"")?, 1);
    assert_eq!(outcomes("not_stored")?, 0);
    assert!(outcomes("not_chosen")? >= 1);
    Ok(())
}

#[test]
fn live_compression_goes_on_until_the_encoding_is_there() -> Result<()> {
    let site = Site::start()?;
    site.client.get("/live/a")?;
    let look = || {
        let response = site.get("/live/a", "gzip")?;
        let is_right = response.header("Content-Encoding") == Some("gzip")
            && response.header("Vary") == Some("Accept-Encoding")
            && text(&response)? == page("one");
        ensure!(is_right, "{:?}", response.header("Content-Encoding"));
        Ok(is_stored_in(&response, "gzip"))
    };
    let stored = Deadline::after(PATIENCE).poll(|| match look() {
        Ok(false) => None,
        done => Some(done),
    });
    stored.context("it is not kept")?.map(drop)
}

#[test]
fn encodings_survive_a_restart_and_a_crash_leaves_no_wrong_bytes() -> Result<()> {
    let mut site = Site::start()?;
    site.client.get("/a")?;
    let before = site.get_in("/a", "br")?;
    site.proxy.restart()?;
    let after = site.get("/a", "br")?;
    let tag = |response: &Response| response.header("ETag").map(str::to_owned);
    assert_eq!((tag(&after), &after.body), (tag(&before), &before.body));
    // While encodings are made.
    for number in 0..20 {
        site.get(&format!("/{number}"), "zstd")?;
    }
    site.get_in("/7", "zstd")?;
    for number in 0..20 {
        site.get(&format!("/{number}"), "zstd")?;
    }
    site.proxy.kill9()?;
    site.proxy.restart()?;
    for number in 0..20 {
        for coding in ["zstd", "br"] {
            let response = site.get(&format!("/{number}"), coding)?;
            assert_eq!(text(&response)?, page("one"), "{number}");
        }
    }
    Ok(())
}
