//! Results of two articles on caching, shown again with the configurations in `conf/examples/`.
//!
//! "Smart and Efficient Byte-Range Caching" has a 10 MB file of offsets behind a line of 1 MB/s;
//! "Cache Placement Strategies" chooses one of two caches by name or by hash. One test keeps the
//! article's sizes and times; the others hold the origin at a gate, so that they take no longer
//! than the machine needs.

use anyhow::{Context, Result};
use millpond_testkit::{
    Answer, Client, Deadline, Gate, Kind, Origin, Proxy, Ranges, Request, Response, binary,
};
use std::process::Command;
use std::time::{Duration, Instant};

/// Lines of the file: each is its own offset.
const LINES: usize = 1024 * 1024;
const LINE_LEN: usize = 10;
/// The range that the article asks for, and what is there.
const RANGE: &str = "bytes=5000000-5000009";
const IN_RANGE: &[u8] = b"005000000\n";

const DEFAULT: &str = include_str!("../../conf/examples/byte-range-default.conf");
const LOCK: &str = include_str!("../../conf/examples/byte-range-lock.conf");
const SLICE: &str = include_str!("../../conf/examples/byte-range-slice.conf");
const MAP: &str = include_str!("../../conf/examples/cache-placement-map.conf");
const SPLIT: &str = include_str!("../../conf/examples/cache-placement-split.conf");

/// Beginning of every example, which the test kit replaces.
const BY_HAND: &str = "daemon off;\npid /tmp/millpond.pid;\nerror_log stderr notice;\n";

/// Starts an example in a directory of its own, in front of `origin`; answers say which zone was
/// chosen.
fn start(example: &str, origin: &Origin) -> Result<Proxy> {
    assert!(example.contains(BY_HAND), "an example begins as all do");
    let zone = if example.contains("proxy_cache $cache;") {
        "add_header X-Zone $cache;"
    } else {
        ""
    };
    let server =
        format!("listen 127.0.0.1:%%PORT%%; add_header X-Cache $upstream_cache_status; {zone}");
    let conf = example
        .replace(BY_HAND, "%%GLOBALS%%\n")
        .replace("access_log /dev/stdout;", "%%HTTP%%\naccess_log off;")
        .replace("listen 8080;", &server)
        .replace("127.0.0.1:8081", "%%ORIGIN%%")
        .replace("/tmp/", "%%DIR%%/");
    Proxy::new(Kind::Millpond, &conf).origin(origin).start()
}

fn offsets() -> Vec<u8> {
    (0..LINES)
        .flat_map(|line| format!("{:09}\n", line * LINE_LEN).into_bytes())
        .collect()
}

fn file() -> Answer {
    Answer::new(200)
        .body(offsets())
        .etag("\"a00000-51ad1a207accc\"")
        .last_modified("Tue, 14 Jul 2015 08:29:12 GMT")
        .header("Content-Type", "text/plain")
        .ranges(Ranges::Supported)
}

fn get_range(client: &Client, range: &str) -> Result<Response> {
    client.send(&Request::get("/10Mb.txt").header("Range", range))
}

fn assert_is_the_range(response: &Response) {
    assert_eq!(response.status, 206);
    assert_eq!(
        response.header("Content-Range"),
        Some("bytes 5000000-5000009/10485760")
    );
    assert_eq!(response.body, IN_RANGE);
}

/// Waits until a request for the range is a hit, and gives it.
fn wait_for_hit(client: &Client) -> Result<Response> {
    Deadline::after(Duration::from_secs(20))
        .poll(|| {
            let response = get_range(client, RANGE).ok()?;
            (response.header("X-Cache") == Some("HIT")).then_some(response)
        })
        .context("the file was never cached")
}

/// The ranges that the origin was asked for, in order.
fn ranges_asked(origin: &Origin) -> Vec<Option<String>> {
    let asked = origin.requests();
    asked
        .iter()
        .map(|request| request.header("Range").map(str::to_string))
        .collect()
}

/// The slice of the file that holds the article's range, as it is asked for beside the fill: what
/// is wanted, then what lies before it.
const BESIDE: [&str; 2] = ["bytes=5000000-5242879", "bytes=4980736-4999999"];

/// All of the file, and [`BESIDE`].
fn fill_and_beside() -> Vec<Option<String>> {
    let beside = BESIDE.map(|range| Some(range.to_string()));
    [None].into_iter().chain(beside).collect()
}

/// True to the article in size and speed: a range from the middle of the file, for which nginx
/// waits half of the ten seconds, comes at once; the file is kept all the same, and every later
/// range is served at once.
#[test]
fn a_cold_range_at_one_megabyte_a_second_comes_at_once() {
    let origin = Origin::start().unwrap();
    origin.route("/10Mb.txt", file().rate(1024 * 1024));
    let proxy = start(DEFAULT, &origin).unwrap();
    let client = Client::new(proxy.port());

    let started = Instant::now();
    let first = get_range(&client, RANGE).unwrap();
    assert_is_the_range(&first);
    let sent = origin.sent_bytes();
    assert!(sent < offsets().len() as u64, "{sent} bytes were sent");

    // The client has what it wanted; the fill goes on to the end of the file, at its own speed.
    let whole = client.get("/10Mb.txt").unwrap();
    let waited = started.elapsed().as_secs_f64();
    assert!(whole.body == offsets(), "the whole file");
    assert!(waited > 9.0, "{waited} s");

    assert_is_the_range(&wait_for_hit(&client).unwrap());
    assert_eq!(ranges_asked(&origin), fill_and_beside());
}

/// While a file is on its way, ranges are answered at once and the origin sends the file once, and
/// at most one slice beside it, whether there is a lock or not.
#[test]
fn repeated_ranges_while_the_file_comes_cost_one_transfer() {
    for (name, example) in [("default", DEFAULT), ("lock", LOCK)] {
        let origin = Origin::start().unwrap();
        let gate = Gate::new();
        origin.route("/10Mb.txt", file().hold_body_at(6_000_000, &gate));
        let proxy = start(example, &origin).unwrap();
        let client = Client::new(proxy.port());
        for _ in 0..10 {
            assert_is_the_range(&get_range(&client, RANGE).unwrap());
        }
        let asked = ranges_asked(&origin);
        // A fill that came this far at once needs nothing beside it.
        assert!(
            fill_and_beside().starts_with(&asked),
            "{name}: while it comes: {asked:?}"
        );
        gate.open();
        let whole = client.get("/10Mb.txt").unwrap();
        assert!(whole.body == offsets(), "{name}: the whole file");
        assert_is_the_range(&wait_for_hit(&client).unwrap());
        assert!(
            fill_and_beside().starts_with(&ranges_asked(&origin)),
            "{name}: in all"
        );
    }
}

/// Clients that want bytes which are still behind the gate get them by one request beside the fill.
#[test]
fn ranges_that_are_not_there_yet_are_asked_for_once_beside_the_fill() {
    let origin = Origin::start().unwrap();
    let gate = Gate::new();
    origin.route("/10Mb.txt", file().hold_body_at(1_000_000, &gate));
    let proxy = start(DEFAULT, &origin).unwrap();
    let client = Client::new(proxy.port());
    let early = get_range(&client, "bytes=0-9").unwrap();
    assert_eq!(early.body, b"000000000\n");

    for _ in 0..3 {
        assert_is_the_range(&get_range(&client, RANGE).unwrap());
    }
    gate.open();
    assert_is_the_range(&wait_for_hit(&client).unwrap());
    let asked = ranges_asked(&origin);
    assert!(fill_and_beside().starts_with(&asked), "{asked:?}");
    assert_eq!(asked.get(1), fill_and_beside().get(1));
}

/// Ten bytes cost one slice of 1 MB, and the origin is asked for that slice only: first for its
/// end, where the ten bytes are, then for what lies before.
#[test]
fn with_slices_ten_bytes_cost_one_slice() {
    let origin = Origin::start().unwrap();
    origin.route("/10Mb.txt", file());
    let proxy = start(SLICE, &origin).unwrap();
    let client = Client::new(proxy.port());
    for expected in ["MISS", "HIT", "HIT"] {
        let response = get_range(&client, RANGE).unwrap();
        assert_is_the_range(&response);
        assert_eq!(response.header("X-Cache"), Some(expected));
    }
    let end = Some("bytes=5000000-5242879".to_string());
    let gap = Some("bytes=4194304-4999999".to_string());
    let response = get_range(&client, "bytes=4194304-5242879").unwrap();
    assert_eq!(response.body.len(), 1024 * 1024);
    assert_eq!(ranges_asked(&origin), [end, gap]);
    assert_eq!(origin.sent_bytes(), 1024 * 1024);
}

/// A range over the border of two slices needs both, one of which is there, and the whole file the
/// other eight; no byte is sent twice.
#[test]
fn slices_are_fetched_once_and_put_together() {
    let origin = Origin::start().unwrap();
    origin.route("/10Mb.txt", file());
    let proxy = start(SLICE, &origin).unwrap();
    let client = Client::new(proxy.port());
    let whole = offsets();
    assert_is_the_range(&get_range(&client, RANGE).unwrap());
    let over = get_range(&client, "bytes=5242870-5242889").unwrap();
    assert_eq!(
        (over.status, over.body.as_slice()),
        (206, &whole[5_242_870..5_242_890])
    );
    // Of the first slice, what lies before the range comes behind it.
    let first = get_range(&client, "bytes=4194304-5242879").unwrap();
    assert!(first.body == whole[4_194_304..5_242_880], "the first slice");
    assert_eq!(origin.sent_bytes(), 2 * 1024 * 1024);
    let all = client.get("/10Mb.txt").unwrap();
    assert_eq!(all.status, 200);
    assert!(all.body == whole, "the whole file");
    assert_eq!(origin.sent_bytes(), whole.len() as u64);
}

/// The kind of file decides on the cache, and a cache that is lost takes only its own entries
/// along.
#[test]
fn a_map_chooses_the_cache_by_the_kind_of_file() {
    let origin = Origin::start().unwrap();
    origin.route("/*", Answer::new(200).body("body"));
    let mut proxy = start(MAP, &origin).unwrap();
    let client = Client::new(proxy.port());
    let cases = [
        ("/film.mp4", "disk_cache"),
        ("/film.mp4?start=10", "disk_cache"),
        ("/dir/film.avi", "disk_cache"),
        ("/film.mp4.html", "ssd_cache"),
        ("/filmXmp4", "ssd_cache"),
        ("/", "ssd_cache"),
    ];
    for status in ["MISS", "HIT"] {
        for (path, zone) in cases {
            let response = client.get(path).unwrap();
            let seen = (response.header("X-Zone"), response.header("X-Cache"));
            assert_eq!(seen, (Some(zone), Some(status)), "{path}");
        }
    }
    proxy.quit().unwrap();
    std::fs::remove_dir_all(proxy.dir().join("disk_cache")).unwrap();
    proxy.restart().unwrap();
    for (path, zone) in cases {
        let expected = if zone == "disk_cache" { "MISS" } else { "HIT" };
        let response = client.get(path).unwrap();
        assert_eq!(response.header("X-Cache"), Some(expected), "{path}");
    }
}

/// Half of the URIs go to each cache, and each always to the same.
#[test]
fn split_clients_spreads_over_two_caches() {
    const PATHS: usize = 200;
    let origin = Origin::start().unwrap();
    origin.route("/*", Answer::new(200).body("body"));
    let proxy = start(SPLIT, &origin).unwrap();
    let client = Client::new(proxy.port());
    let mut on_first = 0;
    for number in 0..PATHS {
        let path = format!("/{number}.txt");
        let (one, two) = (client.get(&path).unwrap(), client.get(&path).unwrap());
        assert_eq!(one.header("X-Zone"), two.header("X-Zone"), "{path}");
        assert_eq!(two.header("X-Cache"), Some("HIT"), "{path}");
        on_first += usize::from(one.header("X-Zone") == Some("disk1"));
    }
    // The hash is fixed, so this holds always or never; an even spread is within a fifth of the
    // half.
    assert!(
        (80..=120).contains(&on_first),
        "{on_first} of {PATHS} on the first"
    );
    assert_eq!(origin.requests().len(), PATHS);
}

/// The listings as they were printed are refused, with every mistake at its place.
#[test]
fn the_slips_of_the_listings_are_explained() {
    let map = "events {}\nhttp {\n    map $request_uri $cache {\n        ~.mp4(?.*)?$  disk_cache;\n\n        default ssd_cache;\n    }\n}\n";
    let split = "events {}\nhttp {\n    upstream upstreams {\n        upstream-server-1;\n        upstream-server-2;\n    }\n}\n";
    for (text, expected) in [
        (
            map,
            &[
                "invalid regular expression \".mp4(?.*)?$\"",
                "nginx.conf:4:9",
                "unrecognized character after (?",
            ][..],
        ),
        (
            split,
            &[
                "unknown directive \"upstream-server-1\"",
                "nginx.conf:4:9",
                "written \"server upstream-server-1;\"",
                "unknown directive \"upstream-server-2\"",
                "nginx.conf:5:9",
            ],
        ),
    ] {
        let said = test_configuration(text).unwrap();
        for part in expected {
            assert!(said.contains(part), "{part:?} is not in:\n{said}");
        }
    }
}

/// Message of `-t` about a configuration that is wrong.
fn test_configuration(text: &str) -> Result<String> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("nginx.conf"), text)?;
    let output = Command::new(binary(Kind::Millpond).context("no binary")?)
        .arg("-t")
        .arg("-p")
        .arg(dir.path())
        .args(["-c", "nginx.conf", "-e", "error.log"])
        .output()?;
    assert!(!output.status.success(), "a wrong configuration is refused");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}
