//! `location`, `server_name`, `merge_slashes`: which block answers.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Client, Kind, LogCheck, Proxy, Request};

const CONF: &str = r#"
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name localhost "";
        location / { return 200 root; }
        location = /exact { return 200 exact; }
        location /exact { return 200 prefix; }
        location ^~ /stop/ {
            return 200 stop;
            location ~ \.in$ { return 200 "in stop"; }
        }
        location /pre/ {
            return 200 pre;
            location ^~ /pre/deep/ { return 200 deep; }
            location = /pre/equal { return 200 equal; }
            location ~ \.in$ { return 200 "in pre"; }
        }
        location ~ ^/re/(?<number>\d+)$ { return 200 "re $number $1"; }
        location ~* \.X$ {
            return 200 x;
            location ~ ^/y { return 200 "y in x"; }
        }
        location ~ \.in$ { return 200 in; }
        location /inside { internal; return 200 inside; location /inside/more { return 200 more; } }
        location /path/ { return 200 "$uri"; }
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name first.example *.wild.example last.example.* ~^(?<sub>.+)\.re\.example$
                    .both.example;
        return 200 "$server_name $sub";
    }
    server {
        listen 127.0.0.1:%%PORT_RAW%%;
        merge_slashes off;
        return 200 "$uri";
    }"#;

fn everywhere(check: impl Fn(&Proxy, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF).start()?;
        check(&proxy, &Client::new(proxy.port()))?;
    }
    Ok(())
}

#[test]
fn the_search_has_nginx_s_order() -> Result<()> {
    everywhere(|_, client| {
        for (path, text) in [
            ("/nothing", "root"),
            ("/exact", "exact"),
            ("/exact/", "prefix"),
            ("/exactly.in", "in"),
            ("/stop/a", "stop"),
            ("/stop/a.in", "in stop"),
            ("/stop/a.x", "stop"),
            ("/pre/a", "pre"),
            ("/pre/a.in", "in pre"),
            ("/pre/a.x", "x"),
            ("/pre/equal", "equal"),
            ("/pre/deep/a", "deep"),
            ("/pre/deep/a.in", "in"),
            ("/re/12", "re 12 12"),
            ("/re/x", "root"),
            ("/A.x", "x"),
            ("/y.X", "y in x"),
        ] {
            let response = client.send(&Request::get(path).host("localhost"))?;
            assert_eq!(response.text(), text, "{path}");
        }
        for path in ["/inside", "/inside/more"] {
            let response = client.send(&Request::get(path).host("localhost"))?;
            assert_eq!(response.status, 404, "{path}");
        }
        Ok(())
    })
}

#[test]
fn paths_are_normalized_before_the_search() -> Result<()> {
    everywhere(|_, client| {
        for (path, text) in [
            ("/path//a///b", "/path/a/b"),
            ("/path/./a/../b", "/path/b"),
            ("/path/%61%2Fb", "/path/a/b"),
            ("/x/%2e%2e/path/%25", "/path/%"),
            ("http://localhost/path/a?b", "/path/a"),
        ] {
            let response = client.send(&Request::get(path).host("localhost"))?;
            assert_eq!(response.text(), text, "{path}");
        }
        for path in ["/..", "/a/../../b", "/%", "/%zz", "/%00"] {
            let response = client.send(&Request::get(path).host("localhost"))?;
            assert_eq!(response.status, 400, "{path}");
        }
        Ok(())
    })
}

#[test]
fn slashes_stay_where_they_are_not_merged() -> Result<()> {
    everywhere(|proxy, _| {
        let client = Client::new(proxy.named_port("PORT_RAW"));
        for (path, text) in [("//a///b", "//a///b"), ("//a/../b", "//b"), ("/%2f", "//")] {
            assert_eq!(client.get(path)?.text(), text, "{path}");
        }
        Ok(())
    })
}

#[test]
fn hosts_choose_the_server() -> Result<()> {
    everywhere(|_, client| {
        for (host, text) in [
            ("first.example", "first.example "),
            ("FIRST.example.:80", "first.example "),
            ("a.wild.example", "first.example "),
            ("a.b.wild.example", "first.example "),
            ("wild.example", "root"),
            ("last.example.com", "first.example "),
            ("a.re.example", "first.example a"),
            ("both.example", "first.example "),
            ("a.both.example", "first.example "),
            ("unknown", "root"),
        ] {
            let response = client.send(&Request::get("/").host(host))?;
            assert_eq!(response.text(), text, "{host}");
        }
        let response = client.send(&Request::get("http://first.example/").host("localhost"))?;
        assert_eq!(response.text(), "first.example ");
        Ok(())
    })
}

#[test]
fn an_escaped_line_feed_at_the_end_is_no_way_around_an_expression() -> Result<()> {
    everywhere(|_, client| {
        let response = client.send(&Request::get("/a.in%0a").host("localhost"))?;
        assert_eq!(response.text(), "in");
        Ok(())
    })
}

/// An expression that backtracks without end is given up after a bounded time, and answered with
/// 500 as in nginx; one without look-around costs linear time anyway.
#[test]
fn expressions_that_explode_are_given_up() -> Result<()> {
    let conf = r#"server {
        listen 127.0.0.1:%%PORT%%;
        location ~ "^/behind/(a+)+(?=x)b$" { return 200 backtracking; }
        location ~ "^/linear/(a+)+b$" { return 200 linear; }
        location / { return 200 neither; }
    }"#;
    let proxy = Proxy::new(Kind::Millpond, conf)
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    let many = "a".repeat(4000);
    for (path, expected) in [
        (format!("/behind/{many}b"), None),
        (format!("/linear/{many}c"), Some("neither")),
        (format!("/linear/{many}b"), Some("linear")),
    ] {
        // The client waits ten seconds; without a limit the first would take longer than anybody.
        let response = client.get(&path)?;
        match expected {
            Some(text) => assert_eq!(response.text(), text),
            None => assert_eq!(response.status, 500),
        }
    }
    Ok(())
}
