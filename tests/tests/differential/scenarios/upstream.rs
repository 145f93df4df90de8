//! Groups of servers: balancing, backups, failures and the next one.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};
use std::time::Duration;

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        round_robin(),
        weights(),
        backup_and_down(),
        next_upstream_by_status(),
        next_upstream_limits(),
        next_upstream_for_posts(),
        next_upstream_to_nobody(),
        max_fails(),
        no_live_upstreams(),
        hash_balancing(),
        ip_hash_and_least_conn(),
        upstream_keepalive(),
    ]
}

fn named(body: &str) -> Answer {
    Answer::new(200).body(body)
}

/// A scenario with three origins that say their names.
fn three(id: &'static str) -> Scenario {
    Scenario::new(id)
        .answer("/*", named("one"))
        .answer_at("ORIGIN2", "/*", named("two"))
        .answer_at("ORIGIN3", "/*", named("three"))
}

fn round_robin() -> Scenario {
    three("upstream-round-robin")
        .http("upstream u { server %%ORIGIN%%; server %%ORIGIN2%%; server %%ORIGIN3%%; }")
        .server("location / { proxy_pass http://u; }")
        .gets(&["/1", "/2", "/3", "/4", "/5"])
}

fn weights() -> Scenario {
    let mut scenario = three("upstream-weights")
        .http(
            "upstream u { server %%ORIGIN%% weight=5; server %%ORIGIN2%% weight=1;
                          server %%ORIGIN3%% weight=2; }",
        )
        .server("location / { proxy_pass http://u; }");
    for index in 0..16 {
        scenario = scenario.get(&format!("/{index}"));
    }
    scenario
}

fn backup_and_down() -> Scenario {
    three("upstream-backup")
        .http(
            "upstream b { server 127.0.0.1:1; server %%ORIGIN2%% backup;
                server %%ORIGIN3%% backup; }
             upstream d { server %%ORIGIN%% down; server %%ORIGIN2%%; }",
        )
        .server(
            "add_header X-Up \"$upstream_addr $upstream_status\";
             location /b { proxy_pass http://b; } location /d { proxy_pass http://d; }",
        )
        .gets(&["/b/1", "/b/2", "/b/3", "/d/1", "/d/2"])
}

fn next_upstream_by_status() -> Scenario {
    let mut conf = String::new();
    let mut http = String::new();
    let mut scenario = Scenario::new("proxy-next-upstream");
    for status in [403, 404, 429, 500, 502, 503, 504] {
        http.push_str(&format!(
            "upstream u{status} {{ server %%ORIGIN%% max_fails=0;
                server %%ORIGIN2%% max_fails=0; }}\n"
        ));
        conf.push_str(&format!(
            "location /{status} {{ proxy_pass http://u{status};
                proxy_next_upstream http_{status}; }}\n"
        ));
        scenario = scenario
            .answer(&format!("/{status}"), Answer::new(status).body("bad"))
            .get(&format!("/{status}"));
    }
    scenario
        .http(&http)
        .http("upstream plain { server %%ORIGIN%% max_fails=0; server %%ORIGIN2%% max_fails=0; }")
        .server("add_header X-Up \"$upstream_status\" always;")
        .server(&conf)
        .server(
            "location /default { proxy_pass http://plain; }
             location /empty { proxy_pass http://plain; proxy_next_upstream invalid_header; }
             location /off { proxy_pass http://plain; proxy_next_upstream off; }",
        )
        .answer("/default", Answer::new(500).body("bad"))
        .answer("/empty", Answer::raw("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"))
        .answer("/off", Answer::raw(""))
        .answer_at("ORIGIN2", "/*", named("second"))
        .gets(&["/default", "/default"])
}

fn next_upstream_limits() -> Scenario {
    Scenario::new("proxy-next-upstream-limits")
        .http(
            "upstream u { server %%ORIGIN%% max_fails=0; server %%ORIGIN2%% max_fails=0;
                          server %%ORIGIN3%% max_fails=0; }
             upstream t { server %%ORIGIN%% max_fails=0; server %%ORIGIN2%% max_fails=0; }",
        )
        .server(
            "add_header X-Up \"$upstream_status\" always;
             location /tries { proxy_pass http://u; proxy_next_upstream http_500;
                               proxy_next_upstream_tries 2; }
             location /time { proxy_pass http://t; proxy_next_upstream http_500;
                              proxy_next_upstream_timeout 100ms; }",
        )
        .answer("/tries", Answer::new(500).body("1"))
        .answer_at("ORIGIN2", "/tries", Answer::new(500).body("2"))
        .answer_at("ORIGIN3", "/tries", Answer::new(500).body("3"))
        .answer(
            "/time",
            Answer::new(500)
                .delay_head(Duration::from_millis(300))
                .body("slow"),
        )
        .answer_at("ORIGIN2", "/time", named("second"))
        .gets(&["/tries", "/time"])
}

fn next_upstream_for_posts() -> Scenario {
    Scenario::new("proxy-next-upstream-non-idempotent")
        .http("upstream u { server %%ORIGIN%% max_fails=0; server %%ORIGIN2%% max_fails=0; }")
        .http("upstream v { server %%ORIGIN%% max_fails=0; server %%ORIGIN2%% max_fails=0; }")
        .http("upstream w { server 127.0.0.1:1 max_fails=0; server %%ORIGIN2%% max_fails=0; }")
        .server(
            "add_header X-Up \"$upstream_status\" always;
             location /no { proxy_pass http://u; proxy_next_upstream error http_500; }
             location /yes { proxy_pass http://v;
                 proxy_next_upstream error http_500 non_idempotent; }
             location /refused { proxy_pass http://w; }",
        )
        .answer("/*", Answer::new(500).body("first"))
        .answer_at("ORIGIN2", "/*", named("second"))
        .send(Request::post("/no", "body"))
        .send(Request::post("/yes", "body"))
        .send(Request::post("/refused", "body"))
}

/// An answer that a client gets in the end is no failure of the server that gave it: one page with
/// an error does not take a site off line.
fn next_upstream_to_nobody() -> Scenario {
    let mut scenario = Scenario::new("upstream-next-to-nobody")
        .http(
            "upstream u { server %%ORIGIN%%; server %%ORIGIN2%%; }
             upstream tried { server %%ORIGIN%%; server %%ORIGIN2%%; }
             upstream least { least_conn; server %%ORIGIN%%; server %%ORIGIN2%%; }
             upstream spare { server %%ORIGIN%%; server %%ORIGIN2%% backup; }",
        )
        .server(
            "proxy_next_upstream error timeout http_500 http_503 http_404;
             add_header X-Up $upstream_status always;
             location /u/ { proxy_pass http://u; }
             location /tried/ { proxy_next_upstream_tries 1; proxy_pass http://tried; }
             location /least/ { proxy_pass http://least; }
             location /spare/ { proxy_pass http://spare; }",
        )
        .answer("/*", named("one"))
        .answer_at("ORIGIN2", "/*", named("two"));
    for name in ["u", "tried", "least", "spare"] {
        for status in [500, 503, 404] {
            let path = format!("/{name}/{status}");
            let answer = Answer::new(status).body("error");
            scenario = scenario
                .answer(&path, answer.clone())
                .answer_at("ORIGIN2", &path, answer)
                .gets(&[&path, &format!("/{name}/a"), &format!("/{name}/b"), &path])
                .get(&format!("/{name}/c"));
        }
    }
    scenario
}

fn max_fails() -> Scenario {
    Scenario::new("upstream-max-fails")
        .http(
            "upstream u { server %%ORIGIN%% max_fails=2 fail_timeout=60s; server %%ORIGIN2%%; }
             upstream one { server %%ORIGIN%% max_fails=1; }",
        )
        .server(
            "add_header X-Up \"$upstream_status\" always;
             location /u { proxy_pass http://u; proxy_next_upstream http_500; }
             location /one { proxy_pass http://one; proxy_next_upstream http_500; }",
        )
        .answer("/*", Answer::new(500).body("bad"))
        .answer_at("ORIGIN2", "/*", named("second"))
        .gets(&["/u", "/u", "/u", "/u", "/u", "/u", "/one", "/one"])
}

fn no_live_upstreams() -> Scenario {
    Scenario::new("no-live-upstreams")
        .http("upstream u { server 127.0.0.1:1; server 127.0.0.1:2; }")
        .http("upstream d { server 127.0.0.1:1 down; server 127.0.0.1:2 down; }")
        .server(
            "add_header X-Up \"$upstream_status|$upstream_addr\" always;
             location / { proxy_pass http://u; } location /d { proxy_pass http://d; }",
        )
        .gets(&["/", "/", "/d"])
}

fn hash_balancing() -> Scenario {
    let mut scenario = three("upstream-hash")
        .http(
            "upstream h { hash $arg_k; server %%ORIGIN%%; server %%ORIGIN2%%;
                server %%ORIGIN3%% weight=2; }
             upstream f { hash $arg_k; server 127.0.0.1:1; server %%ORIGIN2%%;
                 server %%ORIGIN3%%; }",
        )
        .server("location /h { proxy_pass http://h; } location /f { proxy_pass http://f; }");
    for key in 0..8 {
        scenario = scenario.get(&format!("/h?k={key}"));
    }
    scenario.gets(&["/f?k=a", "/f?k=b", "/f?k=c"])
}

fn ip_hash_and_least_conn() -> Scenario {
    three("upstream-ip-hash-least-conn")
        .http(
            "upstream i { ip_hash; server %%ORIGIN%%; server %%ORIGIN2%%; server %%ORIGIN3%%; }
             upstream l { least_conn; server %%ORIGIN%%; server %%ORIGIN2%%; server %%ORIGIN3%%; }",
        )
        .server("location /i { proxy_pass http://i; } location /l { proxy_pass http://l; }")
        .gets(&["/i", "/i", "/i", "/l", "/l", "/l", "/l"])
}

fn upstream_keepalive() -> Scenario {
    Scenario::new("upstream-keepalive")
        .http("upstream u { server %%ORIGIN%%; keepalive 2; }")
        .server(
            "location / { proxy_pass http://u; proxy_set_header Connection \"\"; }
             location /close { proxy_pass http://u; proxy_set_header Connection close; }",
        )
        .answer("/*", named("ok"))
        .answer(
            "/chunked",
            named("ok").framing(millpond_testkit::Framing::Chunked),
        )
        .answer("/bye", named("ok").header("Connection", "close"))
        .gets(&["/1", "/chunked", "/2"])
        .head("/3")
        .send(Request::post("/4", "body"))
        .act(|run| note_connections(run, "kept"))
        .gets(&["/bye", "/5", "/close", "/6"])
        .act(|run| note_connections(run, "after closes"))
}

/// Notes on how many connections the origin's requests came.
fn note_connections(run: &mut crate::run::Run, name: &str) -> anyhow::Result<()> {
    let requests = run.origin(crate::scenario::ORIGIN)?.requests();
    let mut connections: Vec<u64> = requests.iter().map(|request| request.connection).collect();
    connections.dedup();
    run.note(name, &connections.len().to_string());
    Ok(())
}
