//! `limit_req`, `limit_conn`, `stub_status`: how many requests, and how many at a time.
//!
//! Every fact holds for nginx, too, and is checked there when its binary is at hand.

use anyhow::Result;
use millpond_testkit::{Client, Kind, Proxy, Request};

// The rates are so low that no request of a test is paid back before its end.
const CONF: &str = r#"
    limit_req_zone $arg_key zone=slow:1m rate=1r/m;
    limit_req_zone $arg_other zone=other:1m rate=1r/m;
    limit_conn_zone $arg_key zone=one:1m;
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name localhost;
        root %%DIR%%/www;
        add_header X-Req "$limit_req_status" always;
        add_header X-Conn "$limit_conn_status" always;
        location /strict { limit_req zone=slow; try_files /a =404; }
        location /burst { limit_req zone=slow burst=2 nodelay; try_files /a =404; }
        location /dry {
            limit_req zone=slow;
            limit_req_dry_run on;
            try_files /a =404;
        }
        location /status {
            limit_req zone=slow;
            limit_req_status 429;
            try_files /a =404;
        }
        location /two {
            limit_req zone=slow burst=5 nodelay;
            limit_req zone=other;
            try_files /a =404;
        }
        location /wait {
            limit_req zone=slow burst=5;
            limit_req zone=other burst=5;
            try_files /a =404;
        }
        location /conn {
            limit_conn one 1;
            limit_rate 1k;
            try_files /long =404;
        }
        location /conn-two { limit_conn one 2; try_files /a =404; }
        location /numbers { stub_status; }
    }"#;

fn everywhere(check: impl Fn(&Proxy, &Client) -> Result<()>) -> Result<()> {
    for kind in Kind::both() {
        let proxy = Proxy::new(kind, CONF)
            .file("www/a", "a")
            .file("www/long", "x".repeat(100_000))
            .start()?;
        check(&proxy, &Client::new(proxy.port()))?;
    }
    Ok(())
}

fn outcomes(client: &Client, path: &str, count: usize) -> Result<Vec<(u16, String)>> {
    let ask = |_| {
        let response = client.send(&Request::get(path).host("localhost"))?;
        let status = response.header("X-Req").unwrap_or_default().to_owned();
        Ok((response.status, status))
    };
    (0..count).map(ask).collect()
}

fn expected(rows: &[(u16, &str)]) -> Vec<(u16, String)> {
    let own = |(status, word): &(u16, &str)| (*status, (*word).to_owned());
    rows.iter().map(own).collect()
}

#[test]
fn requests_above_the_burst_are_refused() -> Result<()> {
    everywhere(|proxy, client| {
        let (passed, rejected) = ((200, "PASSED"), (503, "REJECTED"));
        for (path, rows) in [
            ("/strict?key=a", vec![passed, rejected, rejected]),
            ("/strict?key=b", vec![passed, rejected]),
            ("/burst?key=c", vec![passed, passed, passed, rejected]),
            ("/dry?key=d", vec![passed, (200, "REJECTED_DRY_RUN")]),
            ("/status?key=e", vec![passed, (429, "REJECTED")]),
            ("/two?key=f&other=x", vec![passed, rejected]),
            ("/two?key=f&other=y", vec![passed]),
            ("/strict", vec![(200, ""), (200, "")]),
        ] {
            let found = outcomes(client, path, rows.len())?;
            assert_eq!(found, expected(&rows), "{path}");
        }
        assert!(proxy.error_log().contains("limiting requests, excess: 1."));
        Ok(())
    })
}

#[test]
fn connections_count_while_they_are_answered() -> Result<()> {
    everywhere(|_, client| {
        let slow = Request::get("/conn?key=a").host("localhost");
        let mut first = client.connect()?;
        first.send_raw(&slow.encode())?;
        let head = first.read_head("GET")?;
        assert_eq!(head.map(|head| head.status), Some(200));
        for (path, status) in [
            ("/conn?key=a", 503),
            ("/conn-two?key=a", 200),
            ("/conn-two?key=b", 200),
        ] {
            let response = client.send(&Request::get(path).host("localhost"))?;
            assert_eq!(response.status, status, "{path}");
        }
        Ok(())
    })
}

#[test]
fn numbers_are_shown_as_nginx_shows_them() -> Result<()> {
    everywhere(|_, client| {
        let mut connection = client.connect()?;
        let request = Request::get("/numbers").host("localhost");
        connection.exchange(&request)?;
        let text = connection.exchange(&request)?.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.first(), Some(&"Active connections: 1 "));
        assert_eq!(lines.get(1), Some(&"server accepts handled requests"));
        let counts: Vec<u64> = lines
            .get(2)
            .map(|line| line.split_whitespace().flat_map(str::parse).collect())
            .unwrap_or_default();
        assert!(
            matches!(counts.as_slice(), [accepts, handled, requests]
            if accepts == handled && *requests == accepts + 1),
            "{text}"
        );
        assert_eq!(lines.get(3), Some(&"Reading: 0 Writing: 1 Waiting: 0 "));
        let post = client.send(&Request::post("/numbers", "x").host("localhost"))?;
        assert_eq!(post.status, 405);
        Ok(())
    })
}

/// The first request of a key finds every bucket empty, also that of a limit that is not the last.
#[test]
fn the_first_request_of_a_key_waits_for_no_limit() -> Result<()> {
    everywhere(|_, client| {
        let passed = expected(&[(200, "PASSED")]);
        assert_eq!(outcomes(client, "/wait?key=h&other=h", 1)?, passed);
        Ok(())
    })
}
