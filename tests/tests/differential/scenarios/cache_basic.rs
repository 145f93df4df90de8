//! The cache: hits, keys, methods, bypass and what is not stored.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Framing, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        miss_then_hit(),
        keys(),
        methods(),
        convert_head_on(),
        convert_head_off(),
        min_uses(),
        bypassed_uses(),
        bypass_and_no_cache(
            "cache-bypass-and-no-cache",
            "proxy_cache_bypass $arg_by $http_x_by; proxy_no_cache $arg_no $upstream_http_x_no;",
        ),
        bypass_and_no_cache(
            "cache-bypass-and-no-cache-in-two-lines",
            "proxy_cache_bypass $arg_by; proxy_cache_bypass $http_x_by;
             proxy_no_cache $arg_no; proxy_no_cache $upstream_http_x_no;",
        ),
        request_fields_to_origin(),
        stored_fields(),
        framings(),
        length_of_a_whole_entry(),
        truncated_is_not_stored(),
        zones_and_inheritance(),
        restart_keeps_the_cache(),
        lock(),
        lock_of_uncacheable(),
        cache_off(),
        internal_redirects(),
    ]
}

fn fresh(body: &str) -> Answer {
    Answer::new(200)
        .header("Cache-Control", "max-age=60")
        .body(body)
}

/// An answer whose body counts the requests.
fn counted(scenario: Scenario, route: &str) -> Scenario {
    let answers = (1..9).map(|n| fresh(&format!("answer {n}"))).collect();
    scenario.answers(route, answers)
}

fn miss_then_hit() -> Scenario {
    counted(Scenario::cached("cache-miss-then-hit", ""), "/*")
        .gets(&["/a", "/a", "/b", "/a", "/a?x"])
}

fn keys() -> Scenario {
    let scenario = Scenario::new("cache-keys")
        .http("proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;")
        .server(
            "add_header X-Cache $upstream_cache_status;
             proxy_cache zone;
             location / { proxy_pass http://%%ORIGIN%%; }
             location /path { proxy_pass http://%%ORIGIN%%; proxy_cache_key $uri; }
             location /host { proxy_pass http://%%ORIGIN%%; proxy_cache_key $host$uri; }
             location /arg { proxy_pass http://%%ORIGIN%%; proxy_cache_key \"k$arg_k\"; }
             location /other { proxy_pass http://%%ORIGIN%%/arg; proxy_cache_key \"k$arg_k\"; }",
        );
    counted(scenario, "/*")
        .gets(&[
            "/a?1",
            "/a?2",
            "/path?1",
            "/path?2",
            "/arg/x?k=1",
            "/arg/y?k=1",
            "/other?k=1",
        ])
        .send(Request::get("/host").host("a.test"))
        .send(Request::get("/host").host("b.test"))
        .send(Request::get("/host").host("A.test"))
        .gets(&["/%61?1", "/./a?1", "//a?1"])
}

fn methods() -> Scenario {
    let scenario = Scenario::new("cache-methods")
        .http("proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;")
        .server(
            "add_header X-Cache $upstream_cache_status; proxy_cache zone;
             location / { proxy_pass http://%%ORIGIN%%; }
             location /post { proxy_pass http://%%ORIGIN%%; proxy_cache_methods POST;
                              proxy_cache_key $request_method$uri$request_body; }",
        );
    counted(scenario, "/*")
        .send(Request::post("/", "x"))
        .send(Request::post("/", "x"))
        .get("/")
        .send(Request::new("DELETE", "/"))
        .send(Request::new("PURGE", "/"))
        .send(Request::new("QUERY", "/").body("x"))
        .send(Request::new("QUERY", "/").body("x"))
        .get("/")
        .send(Request::post("/post", "x"))
        .send(Request::post("/post", "x"))
        .send(Request::post("/post", "y"))
        .gets(&["/post", "/post"])
        .head("/post")
}

fn convert_head_on() -> Scenario {
    // On one connection: nginx answers HEAD before the answer is stored.
    counted(Scenario::cached("cache-convert-head", ""), "/*").keep(vec![
        Request::head("/a"),
        Request::head("/a"),
        Request::get("/a"),
        Request::get("/b"),
        Request::head("/b"),
    ])
}

fn convert_head_off() -> Scenario {
    let directives = "proxy_cache_convert_head off; proxy_cache_key $request_method$uri;";
    let scenario =
        counted(Scenario::cached("cache-convert-head-off", directives), "/*").keep(vec![
            Request::head("/a"),
            Request::head("/a"),
            Request::get("/a"),
            Request::get("/a"),
            Request::head("/a"),
        ]);
    // Nobody knows how long the bodies are that these speak of.
    [
        ("/chunked", Framing::Chunked),
        ("/closed", Framing::UntilClose),
    ]
    .into_iter()
    .fold(scenario, |scenario, (path, framing)| {
        let answer = fresh("body").framing(framing);
        scenario.answer(path, answer).head(path).head(path)
    })
}

fn min_uses() -> Scenario {
    let scenario = Scenario::cached("cache-min-uses", "proxy_cache_min_uses 3;");
    counted(scenario, "/*").gets(&["/a", "/a", "/b", "/a", "/a", "/b"])
}

/// Requests that go past the cache are uses of it, too, and may store.
fn bypassed_uses() -> Scenario {
    let directives = "proxy_cache_key $uri; proxy_cache_min_uses 3; proxy_cache_bypass $arg_by;";
    let answer = Answer::new(200).header("Cache-Control", "max-age=60");
    Scenario::cached("cache-bypass-min-uses", directives)
        .answer("/*", answer.body("x"))
        .gets(&["/a?by=1", "/a", "/a", "/a"])
        .gets(&["/b?by=1", "/b?by=1", "/b?by=1", "/b"])
        .gets(&["/c", "/c?by=1", "/c", "/c"])
        .gets(&["/d", "/d", "/d?by=1", "/d"])
}

fn bypass_and_no_cache(id: &'static str, directives: &str) -> Scenario {
    counted(Scenario::cached(id, directives), "/*")
        .answer("/marked", fresh("marked").header("X-No", "1"))
        .gets(&[
            "/a", "/a?by=1", "/a?by=1", "/a?by=0", "/b?no=1", "/b?no=1", "/c?no=0", "/c?no=0",
        ])
        .gets(&["/marked", "/marked"])
        .get("/a")
        .get_with("/a", "X-By", "1")
        .get("/a")
}

fn request_fields_to_origin() -> Scenario {
    let mut request = Request::get("/a");
    for (name, value) in [
        ("Range", "bytes=0-1"),
        ("If-Range", "\"x\""),
        ("If-None-Match", "\"x\""),
        ("If-Match", "*"),
        ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("Cache-Control", "no-cache"),
        ("If-Unmodified-Since", "Sun, 06 Nov 2094 08:49:37 GMT"),
        ("Pragma", "no-cache"),
        ("Cookie", "a=1"),
        ("Authorization", "Basic x"),
        ("Accept-Encoding", "gzip"),
    ] {
        request = request.header(name, value);
    }
    counted(Scenario::cached("cache-request-fields", ""), "/*")
        .send(request.clone())
        .send(request)
        .get("/a")
}

fn stored_fields() -> Scenario {
    let answer = fresh("body")
        .reason("Custom Words")
        .header("Set-Not", "1")
        .header("X-A", "1")
        .header("X-A", "2")
        .header("Content-Type", "text/x; charset=a")
        .header("Content-Language", "fr")
        .header("Age", "3")
        .header("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
        .header("Server", "origin")
        .header("Keep-Alive", "5")
        .header("Link", "</a>")
        .header("Warning", "199 - x");
    Scenario::cached("cache-stored-fields", "proxy_hide_header X-Hidden;")
        .answer("/a", answer.header("X-Hidden", "1").etag("\"e\""))
        .gets(&["/a", "/a"])
        .head("/a")
}

fn framings() -> Scenario {
    let answer = fresh("0123456789");
    let large = Answer::new(200)
        .header("Cache-Control", "max-age=60")
        .offset_body(500_000, 1);
    Scenario::cached("cache-framings", "")
        .answer("/length", answer.clone())
        .answer(
            "/chunked",
            answer.clone().framing(Framing::Chunked).trailer("X-T", "1"),
        )
        .answer("/close", answer.framing(Framing::UntilClose))
        .answer("/empty", fresh(""))
        .answer("/large", large.clone())
        .answer("/large-chunked", large.framing(Framing::Chunked))
        .gets(&[
            "/length", "/length", "/chunked", "/chunked", "/close", "/close", "/empty", "/empty",
        ])
        .gets(&["/large", "/large", "/large-chunked", "/large-chunked"])
        .raw("GET /chunked HTTP/1.0\r\n\r\n")
        .ignore("content-length")
        .ignore("transfer-encoding")
}

fn length_of_a_whole_entry() -> Scenario {
    Scenario::cached("cache-length-of-entry", "")
        .answer("/a", fresh("0123456789").framing(Framing::Chunked))
        .act(|run| run.client().get("/a").map(|_| ()))
        .get("/a")
}

fn truncated_is_not_stored() -> Scenario {
    let short = || {
        Answer::new(200)
            .header("Cache-Control", "max-age=60")
            .offset_body(20_000, 1)
    };
    let chunked = || short().framing(Framing::Chunked);
    Scenario::cached("cache-truncated", "")
        .answers("/length", vec![short().drop_after(9_000), short()])
        .answers("/chunked", vec![chunked().drop_after(9_000), chunked()])
        .gets(&[
            "/length", "/length", "/length", "/chunked", "/chunked", "/chunked",
        ])
        // Only the last of a chunked body's servings is certain to know its length.
        .ignore("content-length")
        .ignore("transfer-encoding")
}

fn zones_and_inheritance() -> Scenario {
    let scenario = Scenario::new("cache-zones")
        .http(
            "proxy_cache_path %%DIR%%/one levels=1:2 keys_zone=one:1m max_size=10m inactive=1h;
             proxy_cache_path %%DIR%%/two keys_zone=two:1m use_temp_path=off;
             proxy_cache one;",
        )
        .server(
            "add_header X-Cache $upstream_cache_status;
             location / { proxy_pass http://%%ORIGIN%%; proxy_cache_key k; }
             location /two { proxy_pass http://%%ORIGIN%%; proxy_cache two; proxy_cache_key k; }
             location /off { proxy_pass http://%%ORIGIN%%; proxy_cache off; proxy_cache_key k; }
             location /var { proxy_pass http://%%ORIGIN%%; proxy_cache $arg_z;
                 proxy_cache_key k; }",
        );
    counted(scenario, "/*").gets(&[
        "/",
        "/two",
        "/off",
        "/",
        "/two",
        "/off",
        "/var?z=one",
        "/var?z=two",
    ])
}

fn restart_keeps_the_cache() -> Scenario {
    counted(Scenario::cached("cache-restart", ""), "/*")
        .gets(&["/a", "/b"])
        .act(|run| run.proxy.restart())
        .get_until("/a", &["HIT"])
        .gets(&["/b", "/c"])
}

fn lock() -> Scenario {
    Scenario::cached("cache-lock", "proxy_cache_lock on;")
        .computed("/*", |request| {
            fresh(&request.target).delay_head(std::time::Duration::from_millis(200))
        })
        .together("/a", 4)
        .get("/a")
}

fn lock_of_uncacheable() -> Scenario {
    let answer = Answer::new(200)
        .header("Cache-Control", "no-store")
        .body("x");
    Scenario::cached(
        "cache-lock-timeout",
        "proxy_cache_lock on; proxy_cache_lock_timeout 300ms;",
    )
    .answer(
        "/*",
        answer.delay_head(std::time::Duration::from_millis(100)),
    )
    .together("/a", 2)
}

fn cache_off() -> Scenario {
    Scenario::new("cache-status-without-cache")
        .server(
            "add_header X-Cache \"[$upstream_cache_status]\";
             location / { proxy_pass http://%%ORIGIN%%; } location /r { return 200 x; }",
        )
        .answer("/*", fresh("x"))
        .gets(&["/a", "/r"])
}

fn internal_redirects() -> Scenario {
    let scenario = Scenario::new("cache-and-internal-redirects")
        .http("proxy_cache_path %%DIR%%/cache keys_zone=zone:1m;")
        .server(
            "add_header X-Cache $upstream_cache_status always; proxy_cache zone;
             proxy_cache_valid any 1m;
             location / { proxy_pass http://%%ORIGIN%%; }
             location /e { proxy_pass http://%%ORIGIN%%; proxy_intercept_errors on;
                           error_page 404 = /fallback; }
             location /t { try_files /none @up; }
             location @up { proxy_pass http://%%ORIGIN%%; }",
        );
    scenario
        .answer("/e", Answer::new(404).body("e"))
        .answer("/fallback", fresh("fallback"))
        .answer("/t", fresh("t"))
        .answer("/x", fresh("x").header("X-Accel-Redirect", "/fallback"))
        .gets(&["/e", "/e", "/t", "/t", "/x", "/x"])
}
