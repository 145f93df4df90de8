//! WebSockets over HTTP/2 (RFC 8441): configurations written for HTTP/1.1 serve them, and a tunnel
//! is a stream like any other to its neighbours.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{
    Deadline, Kind, LogCheck, Protocol, Proxy, Request, Tunnel, WebSocketOrigin, masked_message,
    plain_message,
};
use rustix::process::Signal;
use std::time::Duration;

const CONF: &str = "
    map $http_upgrade $connection_upgrade { default upgrade; '' close; }
    log_format line '$uri $request_method $http_upgrade $http_connection $status $upstream_status '
                    '$body_bytes_sent $upstream_bytes_received $server_protocol $request';
    access_log %%DIR%%/a.log line;
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=10m;
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_upgrade;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass http://%%ORIGIN%%; }
        location /cached/ {
            proxy_pass http://%%ORIGIN%%/;
            proxy_cache z;
            proxy_cache_valid any 1h;
        }
        location /short/ { proxy_pass http://%%ORIGIN%%/; proxy_read_timeout 200ms; }
        location /unasked/ { proxy_pass http://%%ORIGIN%%/; proxy_set_header Connection close; }
        location /own { return 200 own; }
        location /gone { return 410; }
    }";

const WAIT: Duration = Duration::from_secs(20);

fn start() -> Result<(WebSocketOrigin, Proxy)> {
    let origin = WebSocketOrigin::start()?;
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .over(Protocol::Streams)
        .value("ORIGIN", &origin.address())
        .log_check(LogCheck::On)
        .start()?;
    Ok((origin, proxy))
}

fn open(proxy: &Proxy, path: &str) -> Result<Tunnel> {
    let request = Request::get(path)
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Protocol", "chat");
    Tunnel::open(proxy.port(), "websocket", &request)
}

/// Sends a message, and reads its echo.
fn echo(tunnel: &mut Tunnel, text: &[u8]) -> Result<()> {
    tunnel.write(&masked_message(text))?;
    let expected = plain_message(text);
    let came = tunnel.read(expected.len())?;
    ensure!(came == expected, "{} bytes came", came.len());
    Ok(())
}

/// Lines of the log about a path, once there is one.
fn logged(proxy: &Proxy, path: &str) -> Result<String> {
    let found = || {
        let log = proxy.read_file("a.log");
        let is_it = |line: &&str| line.split(' ').next() == Some(path);
        log.lines().find(is_it).map(str::to_owned)
    };
    let line = Deadline::after(WAIT).poll(found);
    line.with_context(|| format!("{path} in {}", proxy.read_file("a.log")))
}

/// Waits until the origin has seen a connection end so.
fn ended(origin: &WebSocketOrigin, how: &str) -> Result<()> {
    let is_seen = || origin.ends().iter().any(|end| end.contains(how));
    let seen = Deadline::after(WAIT).poll(|| is_seen().then_some(()));
    seen.with_context(|| format!("{how}: {:?}", origin.ends()))
}

/// RFC 8441 §5: 101 is 200, the key is ours, and the words of HTTP/1 stay where they are.
#[test]
fn a_connect_becomes_a_websocket_of_the_origin() -> Result<()> {
    let (origin, proxy) = start()?;
    for path in ["/echo", "/cached/echo"] {
        let mut tunnel = open(&proxy, path)?;
        assert_eq!(tunnel.status, 200);
        assert_eq!(tunnel.fields.value("Sec-WebSocket-Protocol"), Some("chat"));
        for name in ["Sec-WebSocket-Accept", "Upgrade", "Connection"] {
            assert!(!tunnel.fields.contains(name), "{:?}", tunnel.fields);
        }
        echo(&mut tunnel, b"hello")?;
        echo(&mut tunnel, &[7; 1 << 20])?;
        tunnel.end()?;
        assert!(tunnel.read(1)?.is_empty(), "its end is the origin's end");
        // Five bytes and 1 MiB, each with a head of its frame.
        let sent = 2 + 5 + 10 + (1 << 20);
        let line = logged(&proxy, path)?;
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[1..6], ["GET", "websocket", "upgrade", "200", "101"]);
        assert_eq!(words[6], sent.to_string());
        assert!(words[7].parse::<usize>()? > sent, "{line}");
        assert_eq!(words[8..], ["HTTP/2.0", "CONNECT", path, "HTTP/2.0"]);
    }
    let heads = origin.requests();
    let key = |at: usize| heads[at].fields.value("Sec-WebSocket-Key");
    assert!(key(0).is_some() && key(0) != key(1), "{heads:?}");
    Ok(())
}

/// A client takes no answer for a WebSocket that is none.
#[test]
fn other_answers_pass_unless_they_could_be_misread() -> Result<()> {
    let (origin, proxy) = start()?;
    for (path, status) in [
        ("/denied", 403),
        ("/gone", 410),
        ("/unasked/echo", 400),
        ("/wrong", 502),
        ("/page", 501),
        ("/own", 501),
    ] {
        let mut tunnel = open(&proxy, path)?;
        assert_eq!(tunnel.status, status, "{path}");
        let body = tunnel.read(1000)?;
        if path == "/denied" {
            assert_eq!(body, b"not for you");
        }
        let line = logged(&proxy, path)?;
        assert!(line.contains(&format!(" {status} ")), "{line}");
    }
    let asked = origin.requests().len();
    let other = Tunnel::open(proxy.port(), "connect-udp", &Request::get("/echo"))?;
    assert_eq!(other.status, 501);
    assert_eq!(origin.requests().len(), asked);
    // The connection is whole.
    echo(&mut open(&proxy, "/echo")?, b"still here")
}

/// RFC 8441 §5: the end of a direction is END_STREAM and FIN.
#[test]
fn each_side_ends_for_itself() -> Result<()> {
    let (origin, proxy) = start()?;
    let mut tunnel = open(&proxy, "/last")?;
    let last = plain_message(b"the last word");
    assert_eq!(tunnel.read(1000)?, last);
    tunnel.write(&masked_message(b"not yet"))?;
    ended(&origin, "not yet")?;
    tunnel.write(&masked_message(b"and more"))?;
    tunnel.end()?;
    ended(&origin, "and more")?;
    ended(&origin, "ended")
}

/// RFC 8441 §5: a reset is RST_STREAM with CANCEL.
#[test]
fn a_side_that_is_torn_off_tears_the_other_one_off() -> Result<()> {
    let (origin, proxy) = start()?;
    let mut tunnel = open(&proxy, "/echo")?;
    echo(&mut tunnel, b"hello")?;
    tunnel.reset();
    ended(&origin, "reset by peer")?;
    let mut tunnel = open(&proxy, "/torn")?;
    tunnel.write(&masked_message(b"go"))?;
    let error = tunnel.read(1).err().context("no reset came")?;
    let reason = error.downcast_ref::<h2::Error>().and_then(|it| it.reason());
    assert_eq!(reason, Some(h2::Reason::CANCEL), "{error:#}");
    echo(&mut open(&proxy, "/echo")?, b"still here")
}

#[test]
fn a_silent_tunnel_ends() -> Result<()> {
    let (origin, proxy) = start()?;
    let mut tunnel = open(&proxy, "/short/echo")?;
    echo(&mut tunnel, b"hello")?;
    assert!(tunnel.read(1)?.is_empty());
    ended(&origin, "ended")
}

/// A client that does not read, and an origin that does not, hold up their own tunnel alone.
#[test]
fn a_slow_side_slows_its_tunnel_alone() -> Result<()> {
    let (_origin, proxy) = start()?;
    let mut slow = open(&proxy, "/count")?;
    let first = slow.read(100)?;
    assert_eq!(first.len(), 100);
    // This origin reads nothing: both windows and all sockets on the way fill up.
    let mut full = open(&proxy, "/count")?;
    full.set_timeout(Duration::from_millis(300));
    let much = masked_message(&[1; 64 << 10]);
    while full.write(&much).is_ok() {}
    let client = Protocol::Streams.client(proxy.port());
    for _ in 0..20 {
        echo(&mut open(&proxy, "/echo")?, &[5; 100_000])?;
        assert_eq!(client.get("/gone")?.status, 410);
    }
    // Its bytes come in order, whatever waited meanwhile.
    let came = slow.read(1_000_000)?;
    assert_eq!(came.len(), 1_000_000);
    slow.reset();
    let line = logged(&proxy, "/count")?;
    let words: Vec<&str> = line.split(' ').collect();
    let received: usize = words[7].parse()?;
    // What was not read stayed with the origin, but for a window and a buffer or two.
    assert!(received < (3 << 20), "{line}");
    Ok(())
}

#[test]
fn a_tunnel_outlives_a_reload_and_the_process_waits_for_it() -> Result<()> {
    let (_origin, mut proxy) = start()?;
    let mut tunnel = open(&proxy, "/echo")?;
    echo(&mut tunnel, b"before")?;
    proxy.reload()?;
    echo(&mut open(&proxy, "/echo")?, b"beside")?;
    echo(&mut tunnel, b"behind")?;
    proxy.signal(Signal::QUIT)?;
    echo(&mut tunnel, b"at the end")?;
    tunnel.end()?;
    assert!(tunnel.read(1)?.is_empty());
    drop(tunnel);
    proxy.quit()
}

/// Twenty thousand messages of a byte are a chat, and no flood.
#[test]
fn small_messages_are_no_flood() -> Result<()> {
    let (_origin, proxy) = start()?;
    let mut tunnel = open(&proxy, "/echo")?;
    let (message, echo) = (masked_message(b"x"), plain_message(b"x"));
    for _ in 0..20 {
        for _ in 0..1000 {
            tunnel.write(&message)?;
        }
        let came = tunnel.read(1000 * echo.len())?;
        ensure!(came == echo.repeat(1000), "{} bytes came", came.len());
    }
    Ok(())
}

#[test]
fn many_tunnels_live_beside_requests() -> Result<()> {
    let (_origin, proxy) = start()?;
    let client = Protocol::Streams.client(proxy.port());
    let mut tunnels = Vec::new();
    for _ in 0..60 {
        tunnels.push(open(&proxy, "/echo")?);
    }
    for round in 0..5u8 {
        for (number, tunnel) in tunnels.iter_mut().enumerate() {
            echo(tunnel, &vec![round; 1000 + number])?;
        }
        assert_eq!(client.get("/own")?.text(), "own");
    }
    Ok(())
}
