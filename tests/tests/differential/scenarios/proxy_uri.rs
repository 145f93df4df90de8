//! URI that the origin is asked for: the forms of `proxy_pass`.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        pass_forms(),
        pass_of_encoded_uris(),
        pass_with_variables(),
        pass_in_regex_location(),
        pass_after_rewrite(),
        pass_in_named_location(),
        pass_to_unix_socket(),
        pass_host_forms(),
    ]
}

fn pass_forms() -> Scenario {
    Scenario::new("proxy-pass-forms")
        .server(
            "location /same/ { proxy_pass http://%%ORIGIN%%; }
             location /slash/ { proxy_pass http://%%ORIGIN%%/; }
             location /new/ { proxy_pass http://%%ORIGIN%%/other/; }
             location /glue { proxy_pass http://%%ORIGIN%%/glue; }
             location /noslash/ { proxy_pass http://%%ORIGIN%%/x; }
             location /query/ { proxy_pass http://%%ORIGIN%%/q?a=b; }
             location = /exact { proxy_pass http://%%ORIGIN%%/e; }
             location /UPPER { proxy_pass HTTP://%%ORIGIN%%/upper; }
             location / { proxy_pass http://%%ORIGIN%%; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .gets(&[
            "/same/a?x=y",
            "/slash/a?x=y",
            "/slash/",
            "/new/a/b?x",
            "/glue",
            "/glued?x",
            "/noslash/a",
            "/query/a?x=y",
            "/query/",
            "/exact?x=y",
            "/UPPER/x",
            "/",
            "/?",
            "/?x",
        ])
}

fn pass_of_encoded_uris() -> Scenario {
    let mut scenario = Scenario::new("proxy-pass-encoded-uris")
        .server(
            "location /same/ { proxy_pass http://%%ORIGIN%%; }
             location /new/ { proxy_pass http://%%ORIGIN%%/x/; }
             location /decoded { proxy_pass http://%%ORIGIN%%/d; }",
        )
        .answer("/*", Answer::new(200).body("ok"));
    for rest in [
        "a%20b",
        "a%2Fb",
        "a%3Fb",
        "%41",
        "a%25b",
        "a+b",
        "a//b",
        "a/../b",
        "a/%2e%2e/b",
        "a/./b",
        "%C3%A9",
        "a;b",
        "a%23b",
        "a:b@c",
        "a~b'(c)",
        "a\"b",
        "a?b%20c//d/../e",
        "a%0Ab",
        "a|b{c}",
    ] {
        scenario = scenario.gets(&[&format!("/same/{rest}"), &format!("/new/{rest}")]);
    }
    scenario.gets(&["/dec%6Fded/a", "//same//a", "/x/../same/a"])
}

fn pass_with_variables() -> Scenario {
    Scenario::new("proxy-pass-variables")
        .http("upstream group { server %%ORIGIN%%; }")
        .server(
            "set $addr %%ORIGIN%%; set $name group;
             location /plain/ { proxy_pass http://$addr; }
             location /uri/ { proxy_pass http://$addr/fixed; }
             location /full/ { proxy_pass http://$addr$request_uri; }
             location /decoded/ { proxy_pass http://$addr$uri; }
             location /args/ { proxy_pass http://$addr/x?$args; }
             location /group/ { proxy_pass http://$name/g; }
             location /all/ { set $all http://%%ORIGIN%%/all; proxy_pass $all; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .gets(&[
            "/plain/a%20b?x=y",
            "/uri/a?x=y",
            "/full/a%20b?x=y",
            "/args/a?x=y",
            "/group/a?x",
            "/all/a?b",
            "/plain/a//b/../c",
            "/decoded/f%e4%ff",
            "/args/a?x=\u{e4}",
        ])
}

fn pass_in_regex_location() -> Scenario {
    Scenario::new("proxy-pass-regex-location")
        .server(
            "location ~ ^/r/(.*)$ { proxy_pass http://%%ORIGIN%%; }
             location ~ ^/c/(?<rest>.*)$ { proxy_pass http://%%ORIGIN%%/to/$rest$is_args$args; }
             location ~ ^/one/(.*)$ { proxy_pass http://%%ORIGIN%%/to/$1; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .gets(&[
            "/r/a%2Fb?x",
            "/c/a?x=y",
            "/c/a",
            "/one/a?x=y",
            "/one/f%e4%ff",
        ])
}

fn pass_after_rewrite() -> Scenario {
    Scenario::new("proxy-pass-after-rewrite")
        .server(
            "location /a/ { rewrite ^/a/(.*)$ /b/$1 break; proxy_pass http://%%ORIGIN%%; }
             location /c/ { rewrite ^/c/(.*)$ /b/$1 break; proxy_pass http://%%ORIGIN%%/ignored/; }
             location /d/ { rewrite ^/d/(.*)$ /e/$1 last; }
             location /e/ { proxy_pass http://%%ORIGIN%%/f/; }
             location /args/ { set $args z=1; proxy_pass http://%%ORIGIN%%; }
             location /argsuri/ { set $args z=1; proxy_pass http://%%ORIGIN%%/u/; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .gets(&[
            "/a/x%20y?z",
            "/c/x%20y?z",
            "/d/x%20y?z",
            "/a/%2F",
            "/args/x?y",
            "/argsuri/x?y",
        ])
}

fn pass_in_named_location() -> Scenario {
    Scenario::new("proxy-pass-named-location")
        .server(
            "location / { try_files /none @up; }
             location @up { proxy_pass http://%%ORIGIN%%; }
             location /if { if ($arg_x) { proxy_pass http://%%ORIGIN%%; } return 200 local; }
             location /limit { limit_except GET { proxy_pass http://%%ORIGIN%%; }
                 return 200 local; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .gets(&["/a%20b?x=y", "/a//b", "/if?x=1", "/if"])
        .send(Request::post("/a", "body"))
}

fn pass_to_unix_socket() -> Scenario {
    Scenario::new("proxy-pass-unix")
        .http("upstream u { server %%UNIX%%; }")
        .server(
            "location /plain { proxy_pass http://%%UNIX%%; }
             location /uri { proxy_pass http://%%UNIX%%:/x; }
             location /group { proxy_pass http://u; add_header X-Up $upstream_addr; }",
        )
        .answer_at("UNIX", "/*", Answer::new(200).body("ok"))
        .gets(&["/plain", "/uri/a", "/group"])
}

fn pass_host_forms() -> Scenario {
    Scenario::new("proxy-pass-host")
        .http("upstream group { server %%ORIGIN%%; }")
        .server(
            "location /addr { proxy_pass http://%%ORIGIN%%; }
             location /group { proxy_pass http://group; }
             location /port { proxy_pass http://group;
                 proxy_set_header Host $proxy_host:$proxy_port; }
             location /host { proxy_pass http://group; proxy_set_header Host $host; }
             location /http { proxy_pass http://group; proxy_set_header Host $http_host; }",
        )
        .answer("/*", Answer::new(200).body("ok"))
        .gets(&["/addr", "/group", "/port", "/host", "/http"])
        .send(Request::get("/http").host("Client:88"))
        .send(Request::get("/host").host("Client:88"))
}
