//! Server and location that a request gets.

use crate::scenario::Scenario;
use millpond_testkit::{Answer, Request};

/// The scenarios of this subject.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        server_names(),
        server_without_name(),
        server_name_with_an_empty_label(),
        last_handler_of_several(),
        default_server(),
        locations_of_all_kinds(),
        locations_are_matched_on_the_decoded_uri(),
        nested_locations(),
        regex_captures(),
        server_name_captures(),
        named_location(),
        auto_redirect(),
        merge_slashes(),
        internal_location(),
        limit_except(),
    ]
}

fn named_servers(names: &[(&str, &str)]) -> String {
    names
        .iter()
        .map(|(name, answer)| {
            format!(
                "server {{ listen 127.0.0.1:%%PORT%%; server_name {name};
                    return 200 \"{answer}\"; }}\n"
            )
        })
        .collect()
}

fn hosts(mut scenario: Scenario, hosts: &[&str]) -> Scenario {
    for host in hosts {
        scenario = scenario.send(Request::get("/").host(host));
    }
    scenario
}

fn server_names() -> Scenario {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let scenario = Scenario::new("server-names").http(&named_servers(&[
        ("first.test", "first"),
        ("exact.test www.exact.test", "exact"),
        ("*.wild.test", "front"),
        ("www.wild.*", "back"),
        (".both.test", "dot"),
        ("~^re\\d+\\.test$", "regex"),
        ("~^re1\\.test$", "second regex"),
        ("*.long.wild.test", "longer front"),
        ("$hostname", "$server_name"),
    ]));
    hosts(
        scenario,
        &[
            machine.trim(),
            "$hostname",
            "exact.test",
            "WWW.Exact.Test",
            "exact.test:8080",
            "exact.test.",
            "a.wild.test",
            "a.b.wild.test",
            "a.long.wild.test",
            "wild.test",
            "www.wild.org",
            "www.wild.test",
            "both.test",
            "x.both.test",
            "re1.test",
            "rex.test",
            "unknown.test",
        ],
    )
}

/// A host may begin with a dot: its first label is empty, and one all the same.
fn server_name_with_an_empty_label() -> Scenario {
    Scenario::new("server-name-with-an-empty-label")
        .http(
            "server { listen 127.0.0.1:%%PORT%%; server_name *.test; return 200 under; }
             server { listen 127.0.0.1:%%PORT%%; server_name .a.other; return 200 self; }
             server { listen 127.0.0.1:%%PORT%%; server_name www.*; return 200 before; }",
        )
        .server("location / { return 200 other; }")
        .raw("GET / HTTP/1.1\r\nHost: .test\r\nConnection: close\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nHost: .a.test\r\nConnection: close\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nHost: .a.other\r\nConnection: close\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nHost: .b.other\r\nConnection: close\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nHost: .www.x\r\nConnection: close\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nHost: www.\r\nConnection: close\r\n\r\n")
}

/// The last one of handlers of several modules in one location answers.
fn last_handler_of_several() -> Scenario {
    Scenario::new("last-handler-of-several")
        .server(
            "location /http { fastcgi_pass 127.0.0.1:1; proxy_pass http://%%ORIGIN%%; }
             location /refused { proxy_pass http://%%ORIGIN%%; fastcgi_pass 127.0.0.1:1; }
             location /gif { proxy_pass http://%%ORIGIN%%; empty_gif; }
             location /not-gif { empty_gif; proxy_pass http://%%ORIGIN%%; }
             location /twice { empty_gif; empty_gif; }
             location /of-three { uwsgi_pass 127.0.0.1:1; stub_status; proxy_pass http://%%ORIGIN%%;
                 if ($arg_a) { set $b c; } }",
        )
        .answer("/*", Answer::new(200).body("origin"))
        .gets(&[
            "/http",
            "/refused",
            "/gif",
            "/not-gif",
            "/twice",
            "/of-three",
            "/of-three?a=b",
        ])
}

fn server_without_name() -> Scenario {
    let conf = "server { listen 127.0.0.1:%%PORT%%; server_name a.test; return 200 $host; }
                server { listen 127.0.0.1:%%PORT%%; server_name \"\"; return 200 \"none:$host\"; }";
    Scenario::new("server-without-name")
        .http(conf)
        .raw("GET / HTTP/1.0\r\n\r\n")
        .raw("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n")
        .raw("GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n")
        .raw("GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
}

fn default_server() -> Scenario {
    let conf = "server { listen 127.0.0.1:%%PORT%%; server_name a.test; return 200 a; }
                server { listen 127.0.0.1:%%PORT%% default_server; server_name b.test;
                    return 200 b; }
                server { listen 127.0.0.1:%%PORT_TWO%%; server_name c.test; return 200 c; }";
    hosts(
        Scenario::new("default-server").http(conf),
        &["a.test", "b.test", "c.test", "d.test"],
    )
}

fn locations_of_all_kinds() -> Scenario {
    Scenario::new("locations-of-all-kinds")
        .server(
            "location / { return 200 root; }
             location = / { return 200 exact-root; }
             location = /exact { return 200 exact; }
             location /images/ { return 200 images; }
             location ^~ /images/raw/ { return 200 raw; }
             location ~ \\.gif$ { return 200 gif; }
             location ~* \\.png$ { return 200 png; }
             location ~ ^/images/a { return 200 images-a; }
             location /pre { return 200 pre; }
             location /prefix { return 200 prefix; }",
        )
        .gets(&[
            "/",
            "/?x",
            "/exact",
            "/exact/",
            "/exactly",
            "/images/b",
            "/images/a.gif",
            "/images/a.PNG",
            "/images/raw/a.gif",
            "/x.GIF",
            "/x.PnG",
            "/pre",
            "/prefi",
            "/prefix/x",
            "/images",
        ])
}

fn locations_are_matched_on_the_decoded_uri() -> Scenario {
    Scenario::new("location-decoded-uri")
        .server(
            "location / { return 200 \"$uri|$request_uri|$args\"; }
             location \"/a b\" { return 200 \"space|$uri\"; }
             location /up { return 200 \"up|$uri\"; }",
        )
        .gets(&[
            "/a%20b",
            "/%75p",
            "/x/../up",
            "/x/./y",
            "/x/%2e%2e/up",
            "/x%2fy",
            "/x%3Fy?z",
            "/a%00b",
            "/../x",
            "/x/..",
            "/%zz",
            "/x#frag",
            "/a+b",
            "/x/...",
            "//up",
        ])
}

fn nested_locations() -> Scenario {
    Scenario::new("nested-locations")
        .server(
            "location /a/ {
                 add_header X-Outer a;
                 location /a/b/ { return 200 a-b; }
                 location ~ \\.txt$ { return 200 a-txt; }
                 return 200 a;
             }
             location ~ ^/r/ {
                 location ~ \\.gif$ { return 200 r-gif; }
                 return 200 r;
             }
             location ~ \\.txt$ { return 200 txt; }",
        )
        .gets(&[
            "/a/",
            "/a/b/",
            "/a/b/x.txt",
            "/a/x.txt",
            "/x.txt",
            "/r/x",
            "/r/x.gif",
        ])
}

fn regex_captures() -> Scenario {
    Scenario::new("regex-captures")
        .server(
            "location ~ ^/n/(?<first>[^/]+)/(?P<second>[^/]*) { return 200 \"$first-$second-$1-$2\"; }
             location ~ ^/u/(.+)/(.+)$ { return 200 \"$2-$1\"; }
             location ~* ^/(I)/(x)?$ { return 200 \"[$1][$2]\"; }",
        )
        .gets(&["/n/a/b", "/n/a/", "/u/a/b/c", "/i/", "/I/x", "/u/%61/b"])
}

fn server_name_captures() -> Scenario {
    let conf = "server { listen 127.0.0.1:%%PORT%%; server_name ~^(?<who>[a-z]+)\\.(.+)\\.test$;
                return 200 \"$who $1 $2 $server_name\"; }";
    hosts(
        Scenario::new("server-name-captures").http(conf),
        &["bob.eu.test", "BOB.eu.test", "x.y.z.test", "none"],
    )
}

fn named_location() -> Scenario {
    Scenario::new("named-location")
        .server(
            "location /a { try_files /none @fallback; }
             location /b { error_page 404 = @fallback; return 404; }
             location /c { error_page 404 @fallback; return 404; }
             location @fallback { return 200 \"$uri $request_uri\"; }",
        )
        .gets(&["/a?x", "/b", "/c", "/@fallback"])
}

fn auto_redirect() -> Scenario {
    Scenario::new("auto-redirect")
        .server(
            "location /dir/ { proxy_pass http://%%ORIGIN%%; }
             location /plain/ { return 200 plain; }
             location = /exact/ { return 200 exact; }",
        )
        .gets(&["/dir", "/dir?a=b", "/plain", "/exact"])
}

fn merge_slashes() -> Scenario {
    let conf = "server { listen 127.0.0.1:%%PORT%%; server_name on.test; return 200 $uri; }
                server { listen 127.0.0.1:%%PORT%%; server_name off.test; merge_slashes off;
                         return 200 $uri; }";
    let mut scenario = Scenario::new("merge-slashes").http(conf);
    for host in ["on.test", "off.test"] {
        for path in ["//a", "/a//b///c", "/a/%2f/b", "/a//../b"] {
            scenario = scenario.send(Request::get(path).host(host));
        }
    }
    scenario
}

fn internal_location() -> Scenario {
    Scenario::new("internal-location")
        .server(
            "location /in { internal; return 200 in; }
             location /go { rewrite ^ /in last; }
             error_page 403 /in;
             location /err { return 403; }",
        )
        .gets(&["/in", "/go", "/err"])
}

fn limit_except() -> Scenario {
    Scenario::new("limit-except")
        .server(
            "location / { limit_except GET { deny all; } return 200 ok; }
             location /files/ { limit_except GET { deny all; } }",
        )
        .file("html/files/a", "a")
        .gets(&["/files/a"])
        .head("/files/a")
        .send(Request::post("/files/a", "x"))
        .send(Request::new("DELETE", "/files/a"))
}
