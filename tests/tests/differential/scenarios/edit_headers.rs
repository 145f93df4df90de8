//! Header fields of answers that are replaced and removed: `more_set_headers`,
//! `more_clear_headers`.

use crate::scenario::Scenario;
use millpond_testkit::Answer;

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        set(),
        clear(),
        conditions(),
        inheritance(),
        values(),
        special_names(),
    ]
}

fn answer() -> Answer {
    Answer::new(200)
        .header("X-Powered-By", "them")
        .header("X-Two", "one")
        .header("X-Two", "two")
        .header("X-Two-More", "three")
        .header("Cache-Control", "no-store")
        .header("Set-Cookie", "a=1")
        .header("Set-Cookie", "b=2")
        .header("Content-Type", "text/plain; charset=utf-8")
        .body("body")
}

fn set() -> Scenario {
    Scenario::new("more-set-headers")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%;
                 more_set_headers 'X-Powered-By: us' 'X-New:  spaced ' \"x-two: \";
                 more_set_headers 'X-Again: 1' 'X-Again: 2';
                 add_header X-Powered-By added always; }
             location /twice { proxy_pass http://%%ORIGIN%%; more_set_headers 'X-Two: one only'
                 'Set-Cookie: c=3' 'Cache-Control: public'; }
             location /return { more_set_headers 'X-A: b'; return 404 none; }
             location /redirect { more_set_headers 'Location: /there' 'X-A: b'; return 302 /here; }
             location /file { more_set_headers 'ETag: \"mine\"' 'X-A: b'; }",
        )
        .file("html/file", "text")
        .answer("/*", answer())
        .gets(&["/", "/twice", "/return", "/redirect", "/file", "/file-none"])
        .get_with("/file", "Range", "bytes=1-2")
}

fn clear() -> Scenario {
    Scenario::new("more-clear-headers")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%;
                 more_clear_headers X-Powered-By 'x-two' Set-Cookie 'X-Nothing: here';
                 add_header X-Two added; }
             location /all { proxy_pass http://%%ORIGIN%%; more_clear_headers 'X-Two*'; }
             location /file { more_clear_headers ETag Last-Modified Accept-Ranges; }",
        )
        .file("html/file", "text")
        .answer("/*", answer())
        .gets(&["/", "/all", "/file"])
}

fn conditions() -> Scenario {
    let mut scenario = Scenario::new("more-headers-conditions").server(
        "more_set_headers -s '404 500' 'X-Error: $status';
         more_set_headers -t 'text/plain text/html' 'X-Text: 1';
         more_set_headers -s 200 -t application/json 'X-Json: 1';
         more_clear_headers -s 403 -s 404 X-Powered-By;
         location / { proxy_pass http://%%ORIGIN%%; }
         location /return { return 500 text; }",
    );
    for status in [200, 403, 404, 500] {
        let answer = Answer::new(status).header("X-Powered-By", "them");
        let plain = answer.clone().header("Content-Type", "text/plain");
        let json = answer.header("Content-Type", "application/json");
        scenario = scenario
            .answer(&format!("/plain/{status}"), plain.body("text"))
            .answer(&format!("/json/{status}"), json.body("{}"))
            .get(&format!("/plain/{status}"))
            .get(&format!("/json/{status}"));
    }
    scenario.get("/return")
}

fn inheritance() -> Scenario {
    Scenario::new("more-headers-inheritance")
        .http("more_set_headers 'X-Level: http' 'X-Http: 1';")
        .server(
            "more_set_headers 'X-Level: server' 'X-Server: 1';
             location / { return 200 x; }
             location /own { more_set_headers 'X-Level: location'; return 200 x; }
             location /none { more_clear_headers 'X-*'; return 200 x; }
             location /nested { more_clear_headers X-Http;
                 location /nested/in { more_set_headers 'X-Http: again'; return 200 x; } }
             location /if { more_set_headers 'X-If: no';
                 if ($arg_x) { more_set_headers 'X-If: yes'; return 200 y; }
                 return 200 x; }",
        )
        .gets(&["/", "/own", "/none", "/nested/in", "/if", "/if?x=1"])
}

fn values() -> Scenario {
    Scenario::new("more-headers-values")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%;
                 more_set_headers 'X-Args: $args' 'X-Status: $status' 'X-Powered-By: $arg_by'
                     'X-Copy: $sent_http_cache_control' 'X-Colons: a:b:c'; }",
        )
        .answer("/*", answer())
        .gets(&["/?a=b", "/?by=me", "/"])
}

fn special_names() -> Scenario {
    Scenario::new("more-headers-special")
        .server(
            "location / { proxy_pass http://%%ORIGIN%%;
                 more_set_headers 'Server: mine'; add_header X-Server $sent_http_server; }
             location /type { proxy_pass http://%%ORIGIN%%;
                 more_set_headers 'Content-Type: application/x-mine'; }
             location /own-type { more_set_headers 'Content-Type: text/x-mine; charset=latin1';
                 return 200 x; }
             location /no-type { more_clear_headers Content-Type; return 200 x; }
             location /length { more_clear_headers Content-Length; return 200 text; }",
        )
        .answer("/*", answer())
        .gets(&["/", "/type", "/own-type", "/no-type", "/length"])
}
