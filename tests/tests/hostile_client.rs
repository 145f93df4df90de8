//! Clients that misbehave: no request is smuggled past the proxy, nothing is reused wrongly, and
//! whoever is slow, endless or gone leaves nothing behind.

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Deadline, Kind, LogCheck, Origin, Proxy, Request};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const CONF: &str = "
    client_header_timeout 500ms;
    client_body_timeout 500ms;
    lingering_timeout 500ms;
    lingering_time 1s;
    upstream u { server %%ORIGIN%%; keepalive 4; }
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_http_version 1.1;
        proxy_set_header Connection '';
        location / { proxy_pass http://u; }
        location /unbuffered/ { proxy_pass http://u; proxy_request_buffering off; }
        location /return { return 200 returned; }
        location /missing { return 404; }
        location /small { client_max_body_size 10; proxy_pass http://u; }
        location /status { stub_status; }
    }";

const WAIT: Duration = Duration::from_secs(10);

/// Request that follows one which must end its connection.
const SECOND: &str = "GET /second HTTP/1.1\r\nHost: h\r\n\r\n";

fn start() -> Result<(Origin, Proxy, Client)> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("passed"));
    let proxy = Proxy::new(Kind::Millpond, CONF).origin(&origin).start()?;
    let client = Client::new(proxy.port());
    Ok((origin, proxy, client))
}

fn targets(origin: &Origin) -> Vec<String> {
    origin.requests().into_iter().map(|r| r.target).collect()
}

/// Waits until only the asking connection is left.
fn wait_for_calm(client: &Client) -> Result<()> {
    let status = || client.get("/status").map(|response| response.text());
    Deadline::after(WAIT)
        .poll(|| {
            status()
                .ok()
                .filter(|text| text.starts_with("Active connections: 1 "))
        })
        .with_context(|| format!("connections stay: {:?}", status()))?;
    Ok(())
}

fn open_files(proxy: &Proxy) -> Result<usize> {
    let pid = proxy.pid().context("it runs")?;
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// A client that is too slow with its head, or gets no answer, sees a reset only where that is
/// asked for.
#[test]
fn timed_out_connections_are_reset_where_that_is_wanted() -> Result<()> {
    let start = |reset: &str| {
        // Long enough that what is sent at once comes in time.
        let conf = format!(
            "client_header_timeout 3s; reset_timedout_connection {reset};
            server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 444; }} }}"
        );
        Proxy::new(Kind::Millpond, &conf).start()
    };
    let (on, off) = (start("on")?, start("off")?);
    let (begun, whole) = (
        "GET / HTTP/1.1\r\nHost",
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    let reset = Some(ErrorKind::ConnectionReset);
    // Without a byte, no request has begun.
    let cases = [
        (&on, begun, reset),
        (&on, whole, reset),
        (&on, "", None),
        (&off, begun, None),
        (&off, whole, None),
    ];
    let mut open = Vec::new();
    for (proxy, sent, expected) in cases {
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.write_all(sent.as_bytes())?;
        open.push((stream, sent, expected));
    }
    for (number, (mut stream, sent, expected)) in open.into_iter().enumerate() {
        let ended = stream.read(&mut [0]);
        let ended = ended.map_err(|error| error.kind());
        assert_eq!(ended, expected.map_or(Ok(0), Err), "{number}: {sent:?}");
    }
    Ok(())
}

/// Framing that two parties could read in two ways.
const AMBIGUOUS: [(&str, u16); 36] = [
    (
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
    ("Transfer-Encoding: identity\r\n\r\n", 501),
    ("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    ("Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 501),
    ("Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501),
    (
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    ("Transfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n", 501),
    ("Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400),
    ("Transfer-Encoding: chunked\rX: y\r\n\r\n0\r\n\r\n", 400),
    ("Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
    ("Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400),
    ("Content-Length: 3, 3\r\n\r\nabc", 400),
    ("Content-Length: +3\r\n\r\nabc", 400),
    ("Content-Length: -3\r\n\r\nabc", 400),
    ("Content-Length: 0x3\r\n\r\nabc", 400),
    ("Content-Length: 18446744073709551619\r\n\r\nabc", 400),
    ("Content-Length:\r\n\r\nabc", 400),
    ("Content-Length : 3\r\n\r\nabc", 400),
    ("X: a\0b\r\n\r\n", 400),
    ("X\0: a\r\n\r\n", 400),
    ("X: a\r\n b\r\n\r\n", 400),
    ("X: a\rb\r\n\r\n", 400),
    ("Host: other\r\n\r\n", 400),
    (
        "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
        400,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
        400,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n5;a\nhello\r\n0\r\n\r\n",
        400,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n5;a\rX\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    (
        "Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
        400,
    ),
];

/// The request is refused, the connection ends, and the origin sees neither it nor what follows.
#[test]
fn ambiguous_framing_is_refused_and_ends_the_connection() -> Result<()> {
    let (origin, _proxy, client) = start()?;
    for (rest, status) in AMBIGUOUS {
        let text = format!("POST /first HTTP/1.1\r\nHost: h\r\n{rest}{SECOND}");
        let responses = client.send_raw(text.as_bytes())?;
        let statuses: Vec<u16> = responses.iter().map(|r| r.status).collect();
        assert_eq!(statuses, [status], "{rest:?}");
    }
    assert_eq!(targets(&origin), Vec::<String>::new());
    Ok(())
}

/// Hosts that are none are refused, before anything is routed by them.
#[test]
fn hosts_that_are_none_are_refused() -> Result<()> {
    let (origin, _proxy, client) = start()?;
    for host in [
        "",
        "Host:\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
        "Host: a@b\r\n",
        "Host: a\0\r\n",
        "Host: a:99999\r\n",
        "Host: a:b\r\n",
        "Host: [::1\r\n",
        "Host: a..b\r\n",
        "Host: a?b\r\n",
        "Host: a#b\r\n",
        "Host: a\u{1}\r\n",
    ] {
        let text = format!("GET /first HTTP/1.1\r\n{host}\r\n{SECOND}");
        let responses = client.send_raw(text.as_bytes())?;
        let statuses: Vec<u16> = responses.iter().map(|r| r.status).collect();
        assert_eq!(statuses, [400], "{host:?}");
    }
    assert_eq!(targets(&origin), Vec::<String>::new());
    Ok(())
}

/// A body that no handler wanted is not the next request.
#[test]
fn an_unread_body_is_not_the_next_request() -> Result<()> {
    let (origin, _proxy, client) = start()?;
    let inner = "GET /inner HTTP/1.1\r\nHost: h\r\n\r\n";
    let len = inner.len();
    let last = "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let length = format!("Content-Length: {len}\r\n\r\n{inner}");
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n{inner}\r\n0\r\n\r\n");
    let broken = format!("Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n{inner}X0\r\n\r\n");
    let expected = format!("Expect: 100-continue\r\n{length}");
    for (path, body, statuses) in [
        ("/return", &length, &[200, 200][..]),
        ("/return", &chunked, &[200, 200]),
        ("/return", &broken, &[400]),
        ("/missing", &chunked, &[404, 200]),
        ("/missing", &broken, &[404]),
        ("/return", &expected, &[200]),
        ("/small", &length, &[413]),
        ("/small", &chunked, &[413]),
    ] {
        origin.forget_requests();
        let text = format!("POST {path} HTTP/1.1\r\nHost: h\r\n{body}{last}");
        let responses = client.send_raw(text.as_bytes())?;
        let seen: Vec<u16> = responses.iter().map(|r| r.status).collect();
        assert_eq!(seen, statuses, "{path} {body:?}");
        let passed = if statuses.len() == 2 {
            vec!["/last".to_string()]
        } else {
            vec![]
        };
        assert_eq!(targets(&origin), passed, "{path} {body:?}");
    }
    Ok(())
}

/// A sender of a head or a body drop by drop, or without an end, is left within the timeouts.
#[test]
fn slow_and_endless_senders_are_left() -> Result<()> {
    let (_origin, _proxy, client) = start()?;
    let head = "POST /return HTTP/1.1\r\nHost: h\r\n";
    for (start, drop) in [
        ("GET /return HTTP/1.1\r\n".to_string(), "X: y\r\n"),
        (
            format!("{head}Transfer-Encoding: chunked\r\n\r\n"),
            "1\r\na\r\n",
        ),
        (format!("{head}Content-Length: 100000000\r\n\r\n"), "a"),
    ] {
        let mut connection = client.connect()?;
        connection.send_raw(start.as_bytes())?;
        let begun = Instant::now();
        let left = Deadline::after(WAIT).poll(|| connection.send_raw(drop.as_bytes()).err());
        assert!(
            left.is_some(),
            "{start:?} goes on after {:?}",
            begun.elapsed()
        );
    }
    wait_for_calm(&client)
}

/// A storm of broken-off exchanges leaves no connection, no file and no count behind.
#[test]
fn a_storm_of_leavers_leaves_nothing_behind() -> Result<()> {
    let (origin, proxy, client) = start()?;
    origin.route("/large", Answer::new(200).offset_body(4 << 20, 1));
    client.get("/warm")?;
    let before = open_files(&proxy)?;
    for turn in 0..200 {
        let mut connection = client.connect()?;
        let text = match turn % 5 {
            0 => "GET /large HTTP/1.1\r\nHost: h\r\n\r\n",
            1 => "GET /large HT",
            2 => "POST /unbuffered/ HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf",
            3 => "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf",
            _ => "GET /return HTTP/1.1\r\nHost: h\r\n\r\n",
        };
        connection.send_raw(text.as_bytes())?;
        if turn % 10 == 0 {
            connection.read_head("GET")?;
        }
    }
    wait_for_calm(&client)?;
    // Four idle connections to the origin may stay in each worker.
    let after = open_files(&proxy)?;
    assert!(after <= before + 8, "{before} files before, {after} after");
    Ok(())
}

/// Many idle connections do not hold up the end, which would else come after an hour.
#[test]
fn idle_connections_close_at_once_on_quit() -> Result<()> {
    let conf = "client_header_timeout 1h; keepalive_timeout 1h;
        server { listen 127.0.0.1:%%PORT%%; location /return { return 200 returned; } }";
    let mut proxy = Proxy::new(Kind::Millpond, conf).start()?;
    let client = Client::new(proxy.port());
    let mut idle = Vec::new();
    for turn in 0..300 {
        let mut connection = client.connect()?;
        if turn % 2 == 0 {
            connection.exchange(&Request::get("/return"))?;
        }
        idle.push(connection);
    }
    let begun = Instant::now();
    proxy.quit()?;
    // The test kit ends what does not end by itself within ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(9));
    Ok(())
}

/// Thousands of requests that are sent at once let others have their turn.
#[test]
fn requests_that_come_together_do_not_hold_up_others() -> Result<()> {
    let conf = "
        log_format turns '$uri';
        server {
            listen 127.0.0.1:%%PORT%%;
            access_log %%DIR%%/turns.log turns;
            keepalive_requests 10000;
            location /many { return 200 'many'; }
            location /other { return 200 'other'; }
        }";
    let proxy = Proxy::new(Kind::Millpond, conf).start()?;
    let client = Client::new(proxy.port());
    let mut many = client.connect()?;
    many.send_raw(&Request::get("/many").encode().repeat(2000))?;
    many.read_response("GET")?;
    assert_eq!(client.get("/other")?.text(), "other");
    for _ in 1..2000 {
        assert_eq!(many.read_response("GET")?.status, 200);
    }
    let turns = proxy.wait_for_lines("turns.log", 2001)?;
    assert_eq!(turns.last().map(String::as_str), Some("/many"));
    Ok(())
}

/// A server whose users are in a file.
fn with_users(users: &str) -> Result<Proxy> {
    let conf = "%%GLOBALS%% events { worker_connections 2048; }
        http { %%HTTP%%
            server {
                listen 127.0.0.1:%%PORT%%;
                auth_basic x;
                auth_basic_user_file %%DIR%%/users;
                location /in { try_files /users =404; root %%DIR%%; }
            }
        }";
    Proxy::new(Kind::Millpond, conf)
        .file("users", users)
        .log_check(LogCheck::Off)
        .start()
}

/// The field of a user `a`.
fn basic(password: &str) -> String {
    format!("Basic {}", base64(format!("a:{password}").as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        (0..4).map(move |at| {
            if at <= chunk.len() {
                char::from(DIGITS[(bits >> (18 - 6 * at) & 63) as usize])
            } else {
                '='
            }
        })
    });
    digits.collect()
}

/// The time that a hash takes grows with its password, so a long one is wrong without it.
#[test]
fn passwords_of_more_than_512_bytes_are_wrong() -> Result<()> {
    for (len, status) in [(511, 200), (512, 200), (513, 401), (4000, 401)] {
        let password = "p".repeat(len);
        let proxy = with_users(&format!("a:{{PLAIN}}{password}\n"))?;
        let request = Request::get("/in").header("Authorization", &basic(&password));
        let response = Client::new(proxy.port()).send(&request)?;
        assert_eq!(response.status, status, "{len}");
    }
    Ok(())
}

/// Many passwords at once take as many threads as there are cores, and beyond a queue 503.
#[test]
fn passwords_are_hashed_by_few_threads() -> Result<()> {
    const CLIENTS: usize = 600;
    // Forty times the usual rounds: all of them would take a minute, sending them far less.
    let hash = "$6$rounds=200000$saltsaltsalt$";
    let proxy = with_users(&format!("a:{hash}{}\n", "x".repeat(86)))?;
    let client = Client::new(proxy.port());
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        connections.push(client.connect()?);
    }
    let request = Request::get("/in").header("Authorization", &basic("wrong"));
    for connection in &mut connections {
        connection.send_raw(&request.encode())?;
    }
    // Whoever came while every place was taken was refused: most of them, and hardly the first.
    let mut statuses = connections.iter_mut().skip(1).rev().map(|connection| {
        let response = connection.read_response("GET")?;
        Ok::<_, anyhow::Error>(response.status)
    });
    let refused = statuses.find(|status| !matches!(status, Ok(401)));
    assert_eq!(refused.context("nobody was refused")??, 503);
    let pid = proxy.pid().context("a process")?;
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?.count();
    let cores = std::thread::available_parallelism()?.get();
    // The main thread, a worker, those that hash, and those that wait to be used again.
    assert!(threads <= 2 * cores + 8, "{threads} threads, {cores} cores");
    // Whoever waits for the first place gets an answer.
    assert_eq!(connections[0].read_response("GET")?.status, 401);
    Ok(())
}
