//! A second wire runs what HTTP/1 does: requests of one connection side by side, the cache behind
//! them, ranges, interim answers, trailers, clients that are slow or leave.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_conf::{LoadOptions, ParseContext, load_text};
use millpond_exchange::worker::{Generation, Shared, Worker};
use millpond_proxy::cache::zones::Registry;
use millpond_server::directives;
use millpond_testkit::{Answer as Answered, Framing, Gate, Origin};

mod pipes;

use pipes::{Answer, Caller};

const CONF: &str = r#"events {} http {
    proxy_cache_path DIR/cache keys_zone=z:1m max_size=64m;
    server {
        listen 127.0.0.1:1;
        http2 on;
        client_max_body_size 1m;
        send_timeout 30s;
        location / {
            proxy_pass http://ORIGIN;
            proxy_cache z;
            proxy_cache_lock on;
            proxy_cache_valid 200 1h;
            add_header X-Cache $upstream_cache_status;
        }
        location /passed/ {
            proxy_pass http://ORIGIN/;
            early_hints 1;
            proxy_pass_trailers on;
        }
        location /echo { proxy_pass http://ORIGIN; proxy_request_buffering off; }
        location /facts { return 200 "$remote_addr $connection_requests $request_length"; }
        location /silent { return 444; }
        location /limited { limit_rate 500k; proxy_pass http://ORIGIN/long; }
    }
}"#;

const ALL: u32 = u32::MAX / 2;
/// Nothing takes so long, unless a test fails.
const PATIENCE: Duration = Duration::from_secs(30);

struct Bench {
    origin: Origin,
    generation: Rc<Generation>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let origin = Origin::start().expect("an origin");
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().to_str().expect("a name");
        let text = CONF
            .replace("DIR", home)
            .replace("ORIGIN", &origin.address());
        let mut cx = ParseContext::new(home, home);
        let options = LoadOptions::default();
        let tree = load_text("x.conf", text.as_str(), &options, &mut cx.diagnostics);
        let (conf, cx) = directives::build(&tree, cx);
        let mistakes = cx.diagnostics.iter().map(|it| &it.message);
        let mut conf = conf.unwrap_or_else(|| panic!("{:?}", Vec::from_iter(mistakes)));
        let shared = Arc::new(Shared::default());
        let opened = Registry::of(&shared).open(&mut conf, &shared.sites);
        opened.expect("a cache");
        let worker = Rc::new(Worker::new(0, shared));
        let generation = Generation::new(worker, Arc::new(conf));
        generation.begin();
        Bench {
            origin,
            generation,
            _dir: dir,
        }
    }

    fn connect(&self) -> Caller {
        Caller::connect(&self.generation)
    }

    /// Goes on with other tasks until the origin was asked so often.
    async fn until_asked(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.origin.requests().len() < count {
            assert!(Instant::now() < deadline, "{:?}", self.origin.requests());
            tokio::task::yield_now().await;
        }
    }
}

/// Runs a test as a worker runs its connections.
fn run(test: impl AsyncFnOnce(Bench)) {
    let runtime = tokio::runtime::LocalRuntime::new().expect("a runtime");
    runtime.block_on(async { test(Bench::new()).await });
}

fn long_body() -> Vec<u8> {
    (0..200_000u32).flat_map(u32::to_be_bytes).collect()
}

#[test]
fn requests_of_one_connection_that_want_the_same_share_one_fetch() {
    run(async |bench| {
        let gate = Gate::new();
        let answer = Answered::new(200).body(long_body());
        bench
            .origin
            .route("/long", answer.hold_body_at(1000, &gate));
        let mut caller = bench.connect();
        caller.ask(1, ("/long", ""), ALL).await;
        caller.ask(2, ("/long", ""), ALL).await;
        // Both have the begin before there is more.
        caller.until(1, |it| it.body.len() == 1000).await;
        caller.until(2, |it| it.body.len() == 1000).await;
        gate.open();
        for stream in [2, 1] {
            let answer = caller.answer(stream).await;
            assert_eq!((answer.status(), answer.is_whole), ("200", true));
            assert!(answer.body == long_body(), "{stream}");
        }
        caller.ask(3, ("/long", ""), ALL).await;
        let hit = caller.answer(3).await;
        assert_eq!(hit.field("X-Cache"), Some("HIT"));
        assert!(hit.body == long_body());
        assert_eq!(bench.origin.requests().len(), 1);
    });
}

#[test]
fn streams_go_on_beside_one_whose_client_takes_nothing() {
    run(async |bench| {
        bench
            .origin
            .route("/long", Answered::new(200).body(long_body()));
        bench
            .origin
            .route("/short", Answered::new(200).body("short"));
        let mut caller = bench.connect();
        caller.ask(1, ("/long", ""), 10).await;
        let begun = caller.until(1, |it| it.body.len() == 10).await;
        assert!(!begun.has_ended());
        for (stream, path) in [(2, "/short"), (3, "/long"), (4, "/facts")] {
            caller.ask(stream, (path, ""), ALL).await;
            let answer = caller.answer(stream).await;
            assert!(answer.is_whole, "{path}: {answer:?}");
        }
        assert!(caller.so_far(3).body == long_body());
        assert_eq!(caller.so_far(1).body.len(), 10);
        caller.give(1, ALL).await;
        assert!(caller.answer(1).await.body == long_body());
    });
}

#[test]
fn ranges_and_conditions_are_answered_from_the_cache() {
    run(async |bench| {
        let ranged = Answered::new(200).header("Accept-Ranges", "bytes");
        let tagged = ranged.etag("\"1\"").body(long_body());
        bench.origin.route("/long", tagged);
        let mut caller = bench.connect();
        caller.ask(1, ("/long", ""), ALL).await;
        caller.answer(1).await;
        caller
            .ask(2, ("/long", "Range: bytes=400001-400100\r\n"), ALL)
            .await;
        caller
            .ask(3, ("/long", "If-None-Match: \"1\"\r\n"), 0)
            .await;
        caller
            .ask(4, ("/long", "Range: bytes=900000-\r\n"), ALL)
            .await;
        let part = caller.answer(2).await;
        assert_eq!(
            (part.status(), part.field("Content-Length")),
            ("206", Some("100"))
        );
        assert!(part.body == long_body()[400_001..=400_100]);
        let same = caller.answer(3).await;
        assert_eq!(
            (same.status(), same.body.len(), same.is_whole),
            ("304", 0, true)
        );
        assert_eq!(caller.answer(4).await.status(), "416");
        assert_eq!(bench.origin.requests().len(), 1);
    });
}

#[test]
fn interim_answers_and_trailers_are_the_streams_own() {
    run(async |bench| {
        let raw = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n\
                   HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
        bench.origin.route("/hints", Answered::raw(raw));
        let answer = Answered::new(200).body("sum").framing(Framing::Chunked);
        bench.origin.route("/sum", answer.trailer("X-Sum", "5"));
        let mut caller = bench.connect();
        caller.ask(1, ("/passed/hints", ""), ALL).await;
        caller.ask(2, ("/passed/sum", ""), ALL).await;
        let hinted = caller.answer(1).await;
        let interim: Vec<_> = hinted.interim.iter().map(|it| it.trim_end()).collect();
        assert_eq!(interim, ["HTTP/1.1 103 Early Hints\r\nLink: </a.css>"]);
        assert_eq!((hinted.status(), &*hinted.body), ("200", &b"body"[..]));
        let summed = caller.answer(2).await;
        assert_eq!(
            (&*summed.body, summed.trailers.trim_end()),
            (&b"sum"[..], "X-Sum: 5")
        );
        // Neither chunks nor a connection that ends are any business of a stream.
        assert_eq!(summed.field("Transfer-Encoding"), None);
        assert_eq!(summed.field("Connection"), None);
    });
}

#[test]
fn bodies_of_requests_come_side_by_side() {
    run(async |bench| {
        bench
            .origin
            .route("/echo", Answered::new(200).body("taken"));
        let mut caller = bench.connect();
        caller.post(1, "/echo", 6).await;
        caller.post(2, "/echo", 6).await;
        for stream in [1, 2, 1, 2] {
            caller
                .body(stream, if stream == 1 { b"abc" } else { b"xyz" })
                .await;
        }
        for stream in [2, 1] {
            caller.body(stream, b"").await;
            let answer = caller.answer(stream).await;
            assert_eq!((answer.status(), &*answer.body), ("200", &b"taken"[..]));
        }
        let asked = bench.origin.requests();
        let mut bodies: Vec<_> = asked.iter().map(|it| it.body.as_slice()).collect();
        bodies.sort_unstable();
        assert_eq!(bodies, [b"abcabc", b"xyzxyz"]);
        caller.post(3, "/echo", 2 << 20).await;
        assert_eq!(caller.answer(3).await.status(), "413");
    });
}

/// The fetch of a stream that was left ends, and the next one on the connection is answered; a
/// fetch that others wait for goes on.
#[test]
fn a_stream_that_is_left_leaves_the_others_alone() {
    run(async |bench| {
        let gate = Gate::new();
        bench
            .origin
            .route("/held", Answered::new(200).body("late").hold_head(&gate));
        bench
            .origin
            .route("/short", Answered::new(200).body("short"));
        let mut caller = bench.connect();
        caller.ask(1, ("/held", ""), ALL).await;
        caller.ask(2, ("/held", ""), ALL).await;
        bench.until_asked(1).await;
        caller.reset(1).await;
        caller.ask(3, ("/short", ""), ALL).await;
        assert_eq!(caller.answer(3).await.body, b"short");
        gate.open();
        let answer = caller.answer(2).await;
        assert_eq!((answer.status(), &*answer.body), ("200", &b"late"[..]));
        assert!(caller.so_far(1).body.is_empty());
    });
}

#[test]
fn an_answer_that_breaks_off_resets_its_stream_only() {
    run(async |bench| {
        let broken = Answered::new(200).body(long_body()).drop_after(100_000);
        bench.origin.route("/broken", broken);
        bench
            .origin
            .route("/short", Answered::new(200).body("short"));
        let mut caller = bench.connect();
        caller.ask(1, ("/passed/broken", ""), ALL).await;
        caller.ask(2, ("/silent", ""), ALL).await;
        caller.ask(3, ("/short", ""), ALL).await;
        let broken: Answer = caller.answer(1).await;
        assert!(broken.is_reset && !broken.is_whole);
        assert!(long_body().starts_with(&broken.body));
        let silent = caller.answer(2).await;
        assert_eq!((silent.is_reset, &*silent.head), (true, ""));
        assert_eq!(caller.answer(3).await.body, b"short");
    });
}

#[test]
fn each_stream_has_facts_of_its_own() {
    run(async |bench| {
        let mut caller = bench.connect();
        for (stream, fields) in [(1, ""), (2, "X-Long: 0123456789\r\n")] {
            caller.ask(stream, ("/facts", fields), ALL).await;
        }
        let first = "GET /facts HTTP/1.1\r\nHost: a\r\n\r\n".len();
        let second = first + "X-Long: 0123456789\r\n".len();
        for (stream, len) in [(1, first), (2, second)] {
            let answer = caller.answer(stream).await;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(text, format!("127.0.0.1 {stream} {len}"));
        }
    });
}

#[test]
fn a_limited_rate_is_kept_on_a_stream() {
    run(async |bench| {
        bench
            .origin
            .route("/long", Answered::new(200).body(long_body()));
        let mut caller = bench.connect();
        let begun = Instant::now();
        caller.ask(1, ("/limited", ""), ALL).await;
        let answer = caller.answer(1).await;
        // nginx: the share of the first second at once, that of the second a second later.
        assert!(begun.elapsed() >= Duration::from_millis(990));
        assert!(answer.body == long_body() && answer.is_whole);
    });
}
