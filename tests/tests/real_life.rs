//! The configurations of common set-ups in `conf/examples/`, each driven as its operator would see
//! it, on Millpond and on nginx: both must tell clients and origins the same.
//!
//! What is expected is also stated here, so that the tests mean something without nginx. Times of
//! keeping that are short in the examples are long here: nothing depends on how fast a test runs.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Kind, Origin, Proxy, Ranges, Recorded, Request, Response, binary,
};

/// Beginning of every example, which the test kit replaces.
const BY_HAND: &str = "daemon off;\npid /tmp/millpond.pid;\nerror_log stderr notice;\n";

/// Fields of answers that say nothing of the configuration.
const UNTOLD: [&str; 6] = [
    "date",
    "server",
    "connection",
    "expires",
    "transfer-encoding",
    "keep-alive",
];
/// Fields of requests to origins that are told.
const ASKED: [&str; 9] = [
    "host",
    "range",
    "if-none-match",
    "if-modified-since",
    "authorization",
    "cookie",
    "x-account",
    "x-forwarded-for",
    "upgrade",
];

/// One configuration with its two origins.
struct Site {
    conf: String,
    origin: Origin,
    other: Origin,
}

impl Site {
    fn new(example: &str) -> Result<Site> {
        assert!(example.contains(BY_HAND), "an example begins as all do");
        let mut conf = example
            .replace(BY_HAND, "%%GLOBALS%%\n")
            .replace("events {}", "events { }");
        let http = conf.find("http {").context("an http block")? + "http {".len();
        conf.insert_str(http, "\n%%HTTP%%\n");
        for (from, to) in [
            ("access_log /dev/stdout", "access_log %%DIR%%/access.log"),
            ("listen 8080", "listen 127.0.0.1:%%PORT%%"),
            ("127.0.0.1:8081", "%%ORIGIN%%"),
            ("127.0.0.1:8082", "%%OTHER%%"),
            ("/tmp/", "%%DIR%%/"),
            (" 1s;", " 1h;"),
        ] {
            conf = conf.replace(from, to);
        }
        Ok(Site {
            conf,
            origin: Origin::start()?,
            other: Origin::start()?,
        })
    }

    /// Sends the requests to each server, and gives what was told; the servers must agree.
    fn tell(&self, requests: &[Request]) -> Result<Vec<String>> {
        let ours = self.tell_one(Kind::Millpond, requests)?;
        if binary(Kind::Nginx).is_some() {
            let theirs = self.tell_one(Kind::Nginx, requests)?;
            assert_eq!(ours, theirs, "Millpond's on the left, nginx's on the right");
        }
        Ok(ours)
    }

    /// Compares like [`Site::tell`], for slices: the servers must answer the same, and may ask the
    /// origin in other ways and call it hit or miss by another rule.
    fn tell_of_slices(&self, requests: &[Request]) -> Result<Vec<String>> {
        let ours = self.tell_one(Kind::Millpond, requests)?;
        if binary(Kind::Nginx).is_some() {
            let theirs = self.tell_one(Kind::Nginx, requests)?;
            let answers = |lines: &[String]| -> Vec<String> {
                let answers = lines.iter().filter(|line| !line.starts_with(' '));
                answers
                    .map(|line| line.replace("x-cache: HIT", "x-cache: MISS"))
                    .collect()
            };
            let (ours, theirs) = (answers(&ours), answers(&theirs));
            assert_eq!(ours, theirs, "Millpond's on the left, nginx's on the right");
        }
        Ok(ours)
    }

    fn tell_one(&self, kind: Kind, requests: &[Request]) -> Result<Vec<String>> {
        let proxy = Proxy::new(kind, &self.conf)
            .origin(&self.origin)
            .value("OTHER", &self.other.address())
            .start()?;
        let client = Client::new(proxy.port());
        let mut lines = Vec::new();
        for request in requests {
            let response = client.send(request)?;
            lines.push(told(&response));
            for (name, origin) in [("origin", &self.origin), ("other", &self.other)] {
                lines.extend(
                    origin
                        .requests()
                        .iter()
                        .map(|asked| was_asked(name, asked, self)),
                );
                origin.forget_requests();
            }
        }
        Ok(lines)
    }
}

/// An answer that a client got.
fn told(response: &Response) -> String {
    let is_built_in = response.text().starts_with("<html>");
    let body = match response.header("Content-Encoding") {
        // Compressors differ, and a page of its own names the server.
        Some(coding) => format!("{coding} body"),
        None if is_built_in => "built-in page".to_string(),
        None if response.body.len() <= 60 => response.text(),
        None => format!("{} bytes, {:?}", response.body.len(), response.body.first()),
    };
    let fields = response.headers.0.iter();
    let mut fields: Vec<String> = fields
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !UNTOLD.contains(&name.as_str()))
        .filter(|(name, _)| !(is_built_in && name == "content-length"))
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    fields.sort();
    format!("{} | {} | {body}", response.status, fields.join(" | "))
}

/// A request that an origin got.
fn was_asked(name: &str, asked: &Recorded, site: &Site) -> String {
    let mut line = format!("  {name}: {} {}", asked.method, asked.target);
    for field in ASKED {
        if let Some(value) = asked.header(field) {
            line.push_str(&format!(" | {field}: {value}"));
        }
    }
    line.replace(&site.origin.address(), "ORIGIN")
        .replace(&site.other.address(), "OTHER")
}

/// The lines that say what the cache did, in order: status and label.
fn labels(lines: &[String]) -> Vec<String> {
    let of = |line: &String| {
        let label = line
            .split(" | ")
            .find_map(|part| part.strip_prefix("x-cache: "));
        format!(
            "{} {}",
            line.split(' ').next().unwrap_or(""),
            label.unwrap_or("-")
        )
    };
    lines
        .iter()
        .filter(|line| !line.starts_with(' '))
        .map(of)
        .collect()
}

fn asked(lines: &[String]) -> usize {
    lines.iter().filter(|line| line.starts_with(' ')).count()
}

const DATE: &str = "Tue, 14 Jul 2015 08:29:12 GMT";

#[test]
fn a_package_mirror_keeps_packages_and_indexes() -> Result<()> {
    let site = Site::new(include_str!("../../conf/examples/package-mirror.conf"))?;
    let package = Answer::new(200)
        .offset_body(100_000, 1)
        .ranges(Ranges::Supported)
        .last_modified(DATE)
        .header("Set-Cookie", "mirror=3")
        .header("Cache-Control", "no-cache");
    site.origin
        .route("/debian/pool/hello_2.10-3_amd64.deb", package);
    let index = Answer::new(200).body("Suite: stable\n").last_modified(DATE);
    site.origin
        .route("/debian/dists/stable/Release", index.revalidates());
    site.origin
        .route("/debian/none.deb", Answer::new(404).body("none\n"));
    let package = "/debian/pool/hello_2.10-3_amd64.deb";
    let lines = site.tell(&[
        Request::get(package),
        Request::get(package),
        Request::get(&format!("{package}?mirror=2")),
        Request::get(package).header("Range", "bytes=10-19"),
        Request::get(package).header("If-Modified-Since", DATE),
        Request::get("/debian/dists/stable/Release"),
        Request::get("/debian/dists/stable/Release"),
        Request::get("/debian/none.deb"),
        Request::get("/debian/none.deb"),
        Request::post(package, "x"),
        Request::get("/.index/debian/dists/stable/Release"),
    ])?;
    let expected = [
        "200 MISS", "200 HIT", "200 HIT", "206 HIT", "304 HIT", "200 MISS", "200 HIT", "404 MISS",
        "404 HIT", "403 -", "404 -",
    ];
    assert_eq!(labels(&lines), expected, "{lines:#?}");
    assert_eq!(asked(&lines), 3, "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("set-cookie")));
    Ok(())
}

#[test]
fn a_download_cache_fetches_slices_and_whole_files_by_host() -> Result<()> {
    let site = Site::new(include_str!("../../conf/examples/game-download.conf"))?;
    let chunk = Answer::new(200)
        .offset_body(3_000_000, 1)
        .etag("\"c\"")
        .ranges(Ranges::Supported);
    site.origin.route("/depot/1/chunk.bin", chunk.clone());
    site.origin.route(
        "/moved",
        Answer::new(302).header("Location", "http://a.example/x"),
    );
    let get = |host: &str| Request::get("/depot/1/chunk.bin").host(host);
    let lines = site.tell_of_slices(&[
        get("steam.example.net").header("Range", "bytes=1048570-1048579"),
        get("steam.example.net").header("Range", "bytes=1048570-1048579"),
        get("cdn7.steam.example.net").header("Range", "bytes=0-9"),
        get("steam.example.net"),
        get("other.example.net").header("Range", "bytes=2999990-"),
        get("old.example.net"),
        get("old.example.net").header("Range", "bytes=5-9"),
        Request::get("/moved").host("steam.example.net"),
        Request::get("/moved").host("steam.example.net"),
        Request::get("/lancache-heartbeat"),
    ])?;
    let expected = [
        "206 MISS", "206 HIT", "206 HIT", "200 MISS", "206 MISS", "200 MISS", "206 HIT",
        "302 MISS", "302 MISS", "204 -",
    ];
    assert_eq!(labels(&lines), expected, "{lines:#?}");
    // What is wanted first, deep in a slice; what lies before it comes behind it.
    let first = "range: bytes=1048570-2097151";
    assert!(lines[1].contains(first), "{lines:#?}");
    Ok(())
}

#[test]
fn a_gateway_routes_limits_and_shares_what_is_public() -> Result<()> {
    let site = Site::new(include_str!("../../conf/examples/api-gateway.conf"))?;
    let items = Answer::new(200)
        .header("Content-Type", "application/json")
        .header("Vary", "Accept")
        .body("[1,2]");
    site.origin.route("/items", items);
    site.origin.route("/broken", Answer::new(503).body("?"));
    site.other.route("/broken", Answer::new(200).body("spare"));
    site.other.answer_with("/internal/*", |asked| {
        Answer::new(200).body(asked.target.as_bytes())
    });
    let items = || Request::get("/v1/catalogue/items").header("Origin", "https://www.example.org");
    let lines = site.tell(&[
        items(),
        items(),
        items().header("Authorization", "Bearer x"),
        Request::new("OPTIONS", "/v1/catalogue/items").header("Origin", "https://evil.example"),
        Request::get("/v1/catalogue/broken"),
        Request::get("/v1/accounts/42/orders?page=2"),
        Request::get("/v1/accounts/me"),
        Request::get("/health"),
        Request::post("/v1/accounts/7", "{}"),
    ])?;
    let expected = [
        "200 MISS",
        "200 HIT",
        "200 BYPASS",
        "204 -",
        "200 MISS",
        "200 -",
        "404 -",
        "200 -",
        "200 -",
    ];
    assert_eq!(labels(&lines), expected, "{lines:#?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("/internal/42/orders?page=2"))
    );
    assert!(lines[0].contains("access-control-allow-origin: https://www.example.org"));
    Ok(())
}

#[test]
fn a_video_site_has_a_zone_for_films_and_one_for_the_rest() -> Result<()> {
    let site = Site::new(include_str!("../../conf/examples/video-site.conf"))?;
    let film = Answer::new(200)
        .offset_body(2_500_000, 1)
        .etag("\"f\"")
        .header("Content-Type", "video/mp4")
        .ranges(Ranges::Supported);
    site.origin.route("/films/a.mp4", film);
    let playlist = "#EXTM3U\n".repeat(40);
    let list = Answer::new(200)
        .header("Content-Type", "application/vnd.apple.mpegurl")
        .header("Cache-Control", "no-store");
    site.origin.route("/live/a.m3u8", list.body(&playlist));
    site.origin
        .route("/live/1.ts", Answer::new(200).body("segment"));
    site.origin.route(
        "/",
        Answer::new(200)
            .header("Content-Type", "text/html")
            .body("<p>hi"),
    );
    let film = || Request::get("/films/a.mp4");
    let lines = site.tell_of_slices(&[
        film().header("Range", "bytes=2000000-2000009"),
        film().header("Range", "bytes=1999990-2000019"),
        film()
            .header("Referer", "https://www.example.org/watch")
            .header("Range", "bytes=-5"),
        film().header("Referer", "https://thief.example/"),
        Request::get("/live/a.m3u8"),
        Request::get("/live/a.m3u8").header("Accept-Encoding", "gzip"),
        Request::get("/live/1.ts"),
        Request::get("/live/1.ts"),
        Request::get("/"),
        Request::head("/"),
    ])?;
    let expected = [
        "206 MISS", "206 HIT", "206 MISS", "403 -", "200 MISS", "200 HIT", "200 MISS", "200 HIT",
        "200 MISS", "200 HIT",
    ];
    assert_eq!(labels(&lines), expected, "{lines:#?}");
    Ok(())
}

#[test]
fn an_object_store_is_a_site_with_clean_names() -> Result<()> {
    let site = Site::new(include_str!("../../conf/examples/object-storage.conf"))?;
    let object = |body: &str| {
        Answer::new(200)
            .header("Content-Type", "text/html")
            .header("x-amz-request-id", "7")
            .header("Set-Cookie", "a=b")
            .etag("\"o\"")
            .body(body)
    };
    site.origin
        .route("/my-bucket/docs/index.html", object("docs"));
    site.origin
        .route("/my-bucket/errors/404.html", object("nothing here"));
    site.origin.route("/my-bucket/assets/a.css", object("css"));
    site.origin
        .route("/my-bucket/gone", Answer::new(403).body("<Error/>"));
    let lines = site.tell(&[
        Request::get("/docs/")
            .header("Cookie", "me=1")
            .header("Authorization", "Basic x"),
        Request::get("/docs/?utm=1"),
        Request::get("/docs/index.html").header("If-None-Match", "\"o\""),
        Request::head("/docs/"),
        Request::get("/gone"),
        Request::get("/gone"),
        Request::get("/assets/a.css"),
        Request::get("/assets/a.css"),
        Request::new("DELETE", "/docs/"),
    ])?;
    let expected = [
        "200 MISS", "200 HIT", "304 HIT", "200 HIT", "404 MISS", "404 HIT", "200 MISS", "200 HIT",
        "404 HIT",
    ];
    assert_eq!(labels(&lines), expected, "{lines:#?}");
    assert!(
        !lines
            .iter()
            .any(|line| line.contains("x-amz") || line.contains("cookie"))
    );
    Ok(())
}
