//! `proxy_http_version 2`, `grpc_pass`: origins that are asked in HTTP/2.
//!
//! The origin is the engine in the role of a server, where it behaves; where it does not, its
//! frames are written by hand.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use millpond_testkit::{
    Client, Deadline, Kind, LogCheck, Proxy, Request, binary, read_until, skip,
};
use millpond_wire::http2::{Code, Config, End, Event, Farewell, RequestLine, Role};
use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

mod hostile;
mod peer;

use peer::{Peer, Talk, WAIT, block, frame};

/// RFC 9113 §8.2.2, and gRPC over HTTP/2.
#[test]
fn grpc_calls_reach_their_server_and_their_status_the_client() -> Result<()> {
    let peer = Peer::start(Config::default(), |talk, heard| {
        let body = talk.body(heard.stream)?;
        assert_eq!(body, b"ping");
        talk.answer(heard.stream, &[("grpc-status", "0")], "pong".to_owned())
    })?;
    let proxy = peer.proxy(Kind::Millpond)?;
    let call = Request::post("/pkg.Svc/Call", "ping")
        .header("TE", "trailers")
        .header("Connection", "TE, Keep-Alive, X-Hop")
        .header("Keep-Alive", "5")
        .header("Upgrade", "h2c")
        .header("X-Mixed", "Yes");
    let response = Client::new(proxy.port()).send(&call)?;
    assert_eq!((response.status, &*response.text()), (200, "pong"));
    assert_eq!(response.trailers.value("grpc-status"), Some("0"));
    let heard = &peer.heard()[0];
    assert_eq!(heard.line, "POST /pkg.Svc/Call HTTP/2.0");
    for (name, value) in [
        ("host", Some("kept")),
        ("te", Some("trailers")),
        ("content-length", Some("4")),
        ("x-mixed", Some("Yes")),
        ("x-set", Some("POST")),
        ("connection", None),
        ("keep-alive", None),
        ("upgrade", None),
    ] {
        assert_eq!(heard.field(name), value, "{name}");
    }
    Ok(())
}

#[test]
fn a_declared_group_keeps_its_connections_and_a_host_does_not() -> Result<()> {
    let peer = Peer::start(Config::default(), |talk, heard| {
        talk.body(heard.stream)?;
        if heard.path() == "/last" {
            talk.engine.go_away(Farewell::Last);
        } else {
            talk.engine.ping([7; 8]);
        }
        talk.answer(heard.stream, &[], String::new())
    })?;
    let proxy = peer.proxy(Kind::Millpond)?;
    let client = Client::new(proxy.port());
    for path in ["/a", "/b", "/last", "/c", "/new/1", "/new/2"] {
        assert_eq!(client.get(path)?.status, 200, "{path}");
    }
    let heard = peer.heard();
    let places: Vec<_> = heard.iter().map(|it| (it.connection, it.stream)).collect();
    assert_eq!(places, [(1, 1), (1, 3), (1, 5), (2, 1), (3, 1), (4, 1)]);
    Ok(())
}

/// RFC 9113 §8.7: nothing was done with a request that was refused.
#[test]
fn a_request_that_a_kept_connection_refuses_is_sent_on_a_new_one() -> Result<()> {
    let peer = Peer::start(Config::default(), |talk, heard| {
        talk.body(heard.stream)?;
        let is_kept = heard.stream > 1;
        if heard.path() == "/never" || (heard.path() == "/refused" && is_kept) {
            talk.engine.reset(heard.stream, Code::REFUSED_STREAM);
            return talk.flush();
        }
        talk.answer(heard.stream, &[], String::new())
    })?;
    let proxy = peer.proxy(Kind::Millpond)?;
    let client = Client::new(proxy.port());
    assert_eq!(client.get("/a")?.status, 200);
    assert_eq!(client.send(&Request::post("/refused", "once"))?.status, 200);
    assert_eq!(client.send(&Request::post("/never", "once"))?.status, 502);
    let heard = peer.heard();
    let places: Vec<_> = heard.iter().map(|it| (it.path(), it.connection)).collect();
    let expected = [
        ("/a", 1),
        ("/refused", 1),
        ("/refused", 2),
        ("/never", 2),
        ("/never", 3),
    ];
    assert_eq!(places, expected);
    assert!(proxy.error_log().contains("rejected request with error 7"));
    Ok(())
}

/// RFC 9113 §8.7 lets a refused request be repeated, but of a body that was passed on while it came
/// only the rest is there.
#[test]
fn a_refused_request_goes_to_no_other_peer_with_the_rest_of_its_body() -> Result<()> {
    let refusing = Peer::start(Config::default(), |talk, heard| {
        while !matches!(talk.next()?, Event::Data { .. }) {}
        talk.engine.reset(heard.stream, Code::REFUSED_STREAM);
        talk.flush()
    })?;
    let other = Peer::simple()?;
    let conf = "
        upstream two { server 127.0.0.1:%%PEER%%; server 127.0.0.1:%%OTHER%% backup; }
        server {
            listen 127.0.0.1:%%PORT%%;
            location / {
                proxy_pass http://two;
                proxy_http_version 2;
                proxy_request_buffering off;
                proxy_next_upstream error timeout invalid_header;
            }
        }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .value("PEER", &refusing.port.to_string())
        .value("OTHER", &other.port.to_string())
        .log_check(LogCheck::Off)
        .start()?;
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    stream.set_read_timeout(Some(WAIT))?;
    let head = "PUT /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    // The head is on its way before there is a body.
    let is_asked = || (!refusing.heard().is_empty()).then_some(());
    Deadline::after(WAIT).poll(is_asked).context("a request")?;
    stream.write_all(b"3\r\none\r\n")?;
    let answer = read_until(&mut stream, "</html>\r\n")?;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(other.heard().is_empty());
    Ok(())
}

/// A part of the answer comes before the next part of the request is sent.
#[test]
fn bodies_go_both_ways_at_once() -> Result<()> {
    let peer = Peer::start(Config::default(), |talk, heard| {
        let id = heard.stream;
        talk.engine.send_answer(id, (200, End::Later), |_| {});
        loop {
            match talk.next()? {
                Event::Data { stream, bytes } => {
                    talk.engine.consume(stream, bytes.len());
                    talk.engine.push(stream, bytes);
                    talk.flush()?;
                }
                Event::End { .. } => break,
                _ => {}
            }
        }
        talk.engine.finish(id, None);
        talk.engine.release(id);
        talk.flush()
    })?;
    let proxy = peer.proxy(Kind::Millpond)?;
    for path in ["/pkg.Svc/Chat", "/live/"] {
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))?;
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        for word in ["one", "two", "three"] {
            let chunk = format!("{:x}\r\n{word}\r\n", word.len());
            stream.write_all(chunk.as_bytes())?;
            read_until(&mut stream, &format!("{word}\r\n"))?;
        }
        stream.write_all(b"0\r\n\r\n")?;
        read_until(&mut stream, "0\r\n\r\n")?;
    }
    // A body of unknown length has no framing of HTTP/1.
    for heard in peer.heard() {
        assert_eq!(heard.field("transfer-encoding"), None);
        assert_eq!(heard.field("content-length"), None);
    }
    Ok(())
}

/// A client that gives its stream up is not waited for, though the origin is silent.
#[test]
fn a_call_that_its_client_gives_up_is_given_up() -> Result<()> {
    let (sender, ended) = std::sync::mpsc::channel();
    let peer = Peer::start(Config::default(), move |talk, heard| {
        let head = (200, End::Later);
        talk.engine.send_answer(heard.stream, head, |_| {});
        let outcome = loop {
            match talk.next() {
                Ok(_) => {}
                Err(error) => break error.to_string(),
            }
        };
        Ok(sender.send(outcome)?)
    })?;
    let conf = "server {
        listen 127.0.0.1:%%PORT%%;
        http2 on;
        location / { grpc_pass 127.0.0.1:%%PEER%%; }
    }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .value("PEER", &peer.port.to_string())
        .log_check(LogCheck::Off)
        .start()?;
    let socket = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    let mut client = Talk::new(socket, Role::Client, Config::default())?;
    let line = RequestLine {
        method: b"POST",
        scheme: b"http",
        authority: b"a",
        path: b"/pkg.Svc/Watch",
    };
    let opened = client.engine.open(&line, End::WithHead, |_| {});
    let stream = opened.context("a stream")?;
    while !matches!(client.next()?, Event::Answer { .. }) {}
    client.engine.reset(stream, Code::CANCEL);
    client.flush()?;
    assert_eq!(ended.recv_timeout(WAIT)?, "closed");
    Ok(())
}

/// Small messages are no flood however fast they come, and however many wait while their server
/// pauses: those that wait are bounded by the window.
#[test]
fn a_call_of_many_small_messages_reaches_its_server_whole() -> Result<()> {
    const MESSAGES: usize = 60_000;
    const MESSAGE: &[u8] = &[0; 5];
    let (go, pause) = channel();
    let pause = Mutex::new(pause);
    let peer = Peer::start(Config::default(), move |talk, heard| {
        let pause = pause.lock().unwrap_or_else(PoisonError::into_inner);
        pause.recv_timeout(WAIT)?;
        let body = talk.body(heard.stream)?;
        talk.answer(
            heard.stream,
            &[("grpc-status", "0")],
            body.len().to_string(),
        )
    })?;
    let conf = "server {
        listen 127.0.0.1:%%PORT%%;
        http2 on;
        location / { grpc_pass 127.0.0.1:%%PEER%%; }
    }";
    let proxy = Proxy::new(Kind::Millpond, conf)
        .value("PEER", &peer.port.to_string())
        .start()?;
    let socket = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    let mut client = Talk::new(socket, Role::Client, Config::default())?;
    let line = RequestLine {
        method: b"POST",
        scheme: b"http",
        authority: b"a",
        path: b"/pkg.Svc/Chat",
    };
    let opened = client.engine.open(&line, End::Later, |_| {});
    let stream = opened.context("a stream")?;
    for number in 0..MESSAGES {
        if number == MESSAGES / 2 {
            go.send(())?;
        }
        while client.engine.room(stream) == 0 {
            client.next()?;
        }
        client.engine.push(stream, Bytes::from_static(MESSAGE));
        // Each message is a frame.
        client.flush()?;
    }
    client.engine.finish(stream, None);
    client.has_body = true;
    let body = client.body(stream)?;
    assert_eq!(body, (MESSAGES * MESSAGE.len()).to_string().as_bytes());
    Ok(())
}

/// More than any window goes through, in both directions, with windows of the origin that are
/// small.
#[test]
fn windows_hold_nothing_up() -> Result<()> {
    const SENT: usize = 300_000;
    const ANSWERED: usize = 20_000_000;
    let config = Config {
        // Smaller ones are refused before they are known.
        stream_window: 65_535,
        ..Config::default()
    };
    let peer = Peer::start(config, |talk, heard| {
        let body = talk.body(heard.stream)?;
        assert_eq!(body.len(), SENT);
        talk.answer(heard.stream, &[], "y".repeat(ANSWERED))
    })?;
    let proxy = peer.proxy(Kind::Millpond)?;
    for path in ["/live/", "/a", "/pkg.Svc/Long"] {
        let request = Request::post(path, "x".repeat(SENT));
        let response = Client::new(proxy.port()).send(&request)?;
        assert_eq!(
            (response.status, response.body.len()),
            (200, ANSWERED),
            "{path}"
        );
        assert!(response.body.iter().all(|byte| *byte == b'y'));
    }
    Ok(())
}

/// RFC 9113 §8.2, §8.3: what cannot be said in HTTP/1 is not passed on; and other faults.
#[test]
fn answers_that_are_none_are_refused() -> Result<()> {
    const OK: (&str, &str) = (":status", "200");
    let head = |fields: &[(&str, &str)]| frame(1, 5, 1, &block(fields));
    let invalid = "upstream sent invalid header";
    let value = "l".repeat(120);
    let mut long = vec![OK];
    long.extend([("x-long", &*value); 50]);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (head(&[OK, ("x-a", "1\r\nset-cookie: b")]), invalid),
        (head(&[OK, ("x-a", "1\0")]), invalid),
        (head(&[OK, ("x-a: 1\r\nx-b", "2")]), invalid),
        (head(&[OK, ("X-A", "1")]), invalid),
        (head(&[OK, ("x:a", "1")]), invalid),
        (head(&[OK, ("connection", "close")]), invalid),
        (head(&[OK, ("transfer-encoding", "chunked")]), invalid),
        (head(&[("x-a", "1")]), invalid),
        (head(&[OK, OK]), invalid),
        (head(&[(":status", "20")]), invalid),
        (
            head(&[OK, ("content-length", "1"), ("content-length", "2")]),
            invalid,
        ),
        (frame(1, 5, 1, &[0xff; 9]), invalid),
        (
            head(&[OK, ("content-length", "1")]),
            "prematurely closed stream",
        ),
        (head(&long), "too large http2 header"),
        (
            frame(3, 0, 1, &8u32.to_be_bytes()),
            "rejected request with error 8",
        ),
        (
            frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]),
            "goaway with error 2",
        ),
        (frame(5, 4, 1, &[0, 0, 0, 2]), "unexpected push promise"),
        (frame(0, 1, 1, b"x"), "upstream sent"),
        (frame(4, 0, 0, b"x"), "upstream sent"),
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "upstream sent"),
    ];
    let (bytes, texts): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let peer = Peer::start(Config::default(), move |talk, heard| {
        let number: usize = heard.path()["/new/".len()..].parse()?;
        talk.socket.write_all(&bytes[number])?;
        while talk.next().is_ok() {}
        Ok(())
    })?;
    let proxy = peer.proxy(Kind::Millpond)?;
    for (number, text) in texts.iter().enumerate() {
        let response = Client::new(proxy.port()).get(&format!("/new/{number}"))?;
        assert_eq!(response.status, 502, "{number} {text}");
        let log = proxy.error_log();
        let target = format!("/new/{number} ");
        let found = log.lines().rfind(|line| line.contains(&target));
        let line = found.context("a line in the log")?;
        assert!(line.contains(text), "{number} {text}: {line}");
    }
    Ok(())
}

/// nginx: a body that is broken off, or longer or shorter than its length, is not whole.
#[test]
fn bodies_that_are_broken_are_not_whole() -> Result<()> {
    let head = |length| {
        frame(
            1,
            4,
            1,
            &block(&[(":status", "200"), ("content-length", length)]),
        )
    };
    let answers = [
        [head("4"), frame(0, 1, 1, b"abc")].concat(),
        [head("4"), frame(0, 1, 1, b"abcde")].concat(),
        [
            head("4"),
            frame(0, 0, 1, b"abc"),
            frame(3, 0, 1, &[0, 0, 0, 2]),
        ]
        .concat(),
        [head("4"), frame(0, 0, 1, b"abc"), frame(7, 0, 0, &[0; 8])].concat(),
    ];
    let count = answers.len();
    let peer = Peer::start(Config::default(), move |talk, heard| {
        let number: usize = heard.path()["/new/".len()..].parse()?;
        talk.socket.write_all(&answers[number])?;
        while talk.next().is_ok() {}
        Ok(())
    })?;
    let proxy = peer.proxy(Kind::Millpond)?;
    for number in 0..count {
        let response = Client::new(proxy.port()).get(&format!("/new/{number}"))?;
        assert!(!response.is_complete(), "{number}");
    }
    Ok(())
}

/// RFC 9113 §6.8, §8.7: a request that the peer has not looked at is asked again, where the peer
/// goes in peace; nginx's 502 where it does not.
#[test]
fn a_peer_that_goes_in_peace_is_asked_again() -> Result<()> {
    for (code, status) in [(Code::NO_ERROR, 200), (Code::INTERNAL_ERROR, 502)] {
        let peer = Peer::start(Config::default(), move |talk, heard| {
            talk.body(heard.stream)?;
            if heard.connection == 1 && heard.stream == 3 {
                let payload = [1u32.to_be_bytes(), code.0.to_be_bytes()].concat();
                talk.socket.write_all(&frame(7, 0, 0, &payload))?;
                bail!("gone");
            }
            talk.answer(heard.stream, &[], String::new())
        })?;
        let proxy = peer.proxy(Kind::Millpond)?;
        let client = Client::new(proxy.port());
        assert_eq!(client.get("/a")?.status, 200);
        // A POST, too: it was not acted on.
        let response = client.send(&Request::post("/b", "body"))?;
        assert_eq!(response.status, status, "{code:?}");
        let heard = peer.heard();
        let last = heard.last().context("a request")?;
        assert_eq!(last.connection, if status == 200 { 2 } else { 1 });
    }
    Ok(())
}

const TLS_BACK: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        http2 on;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        return 200 \"$server_protocol $scheme $host $ssl_alpn_protocol\";
    }";

const TLS_FRONT: &str = "
    grpc_ssl_trusted_certificate cert.pem;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { proxy_pass https://127.0.0.1:%%BACK%%; proxy_http_version 2; }
        location /old { proxy_pass https://127.0.0.1:%%BACK%%; }
        location /pkg. { grpc_pass grpcs://127.0.0.1:%%BACK%%; }
        location /judged {
            grpc_pass grpcs://127.0.0.1:%%BACK%%;
            grpc_ssl_verify on;
            grpc_ssl_name back.example;
        }
        location /other {
            grpc_pass grpcs://127.0.0.1:%%BACK%%;
            grpc_ssl_verify on;
            grpc_ssl_name other.example;
        }
    }";

/// RFC 9113 §3.2: over TLS it is agreed on in the handshake.
#[test]
fn over_tls_h2_is_offered() -> Result<()> {
    let key = rcgen::KeyPair::generate()?;
    let params = rcgen::CertificateParams::new(vec!["back.example".to_owned()])?;
    let certificate = params.self_signed(&key)?.pem();
    let back = Proxy::new(Kind::Millpond, TLS_BACK)
        .file("cert.pem", &certificate)
        .file("key.pem", key.serialize_pem())
        .start()?;
    let front = Proxy::new(Kind::Millpond, TLS_FRONT)
        .file("cert.pem", &certificate)
        .value("BACK", &back.port().to_string())
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(front.port());
    let by_h2 = "HTTP/2.0 https 127.0.0.1 h2";
    for (path, said) in [
        ("/", by_h2),
        ("/pkg.Svc/Call", by_h2),
        ("/judged", by_h2),
        ("/old", "HTTP/1.1 https 127.0.0.1 "),
    ] {
        assert_eq!(client.get(path)?.text(), said, "{path}");
    }
    assert_eq!(client.get("/other")?.status, 502);
    Ok(())
}

/// nginx: an error page may say it in the words of gRPC.
#[test]
fn an_error_page_may_be_an_answer_of_grpc() -> Result<()> {
    let proxy = Peer::simple()?.proxy(Kind::Millpond)?;
    let response = Client::new(proxy.port()).send(&Request::post("/dead/", "x"))?;
    assert_eq!(response.status, 204);
    assert_eq!(response.header("grpc-status"), Some("14"));
    Ok(())
}

#[test]
fn the_server_may_be_named_by_variables() -> Result<()> {
    let peer = Peer::simple()?;
    let proxy = peer.proxy(Kind::Millpond)?;
    let client = Client::new(proxy.port());
    let address = format!("127.0.0.1:{}", peer.port);
    for to in [
        "kept",
        "grpc://kept",
        &address,
        &format!("grpc://{address}"),
    ] {
        let path = format!("/var/?to={to}");
        assert_eq!(client.get(&path)?.text(), path);
    }
    assert_eq!(
        client.get("/var/?to=grpc://127.0.0.1")?.status,
        500,
        "no port"
    );
    Ok(())
}

/// Debian's nginx has grpc_pass, and no proxy_http_version 2.
const ALIKE: &str = "
    upstream kept { server 127.0.0.1:%%PEER%%; keepalive 4; }
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { grpc_pass kept; }
        location /set/ {
            grpc_pass grpc://127.0.0.1:%%PEER%%;
            grpc_set_header Host named.example;
            grpc_set_header X-Method $request_method;
            grpc_set_header X-Dropped '';
            grpc_hide_header Content-Type;
        }
        location /rewritten/ { rewrite ^/rewritten/(.*)$ /to/$1 break; grpc_pass kept; }
        location /caught/ { grpc_pass kept; grpc_intercept_errors on; error_page 404 /to/page; }
    }";

/// Requests as the origin has heard them, and what clients got.
#[derive(Debug, Default)]
struct Told {
    heard: Vec<(String, Vec<(String, String)>)>,
    answers: Vec<(u16, String, [Option<String>; 3])>,
}

fn told_by(kind: Kind, requests: &[Request]) -> Result<Told> {
    let peer = Peer::start(Config::default(), |talk, heard| {
        let body = talk.body(heard.stream)?;
        if !heard.path().ends_with("missing") {
            return talk.answer(heard.stream, &[], format!("{} bytes", body.len()));
        }
        let write = |head: &mut millpond_wire::http2::HeadWriter<'_>| {
            head.any(b"x-why", b"missing");
            head.content_length(0);
        };
        let status = (404, End::WithHead);
        talk.engine.send_answer(heard.stream, status, write);
        talk.engine.release(heard.stream);
        talk.flush()
    })?;
    let port = peer.port.to_string();
    let proxy = Proxy::new(kind, ALIKE)
        .value("PEER", &port)
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(proxy.port());
    let mut told = Told::default();
    for request in requests {
        let response = client.send(request)?;
        let fields = ["Content-Type", "Content-Length", "X-Why"]
            .map(|name| response.header(name).map(str::to_owned));
        told.answers
            .push((response.status, response.text(), fields));
    }
    for mut heard in peer.heard() {
        for (_, value) in &mut heard.fields {
            *value = value.replace(&port, "PEER");
        }
        heard.fields.sort();
        told.heard.push((heard.line, heard.fields));
    }
    Ok(told)
}

#[test]
fn grpc_is_as_with_nginx() -> Result<()> {
    if binary(Kind::Nginx).is_none() {
        skip("there is no nginx");
        return Ok(());
    }
    let requests = [
        Request::get("/a?b=c"),
        Request::get("/a%20b"),
        Request::head("/a"),
        Request::post("/a", "body"),
        Request::post("/a", "x".repeat(100_000)),
        Request::new("PUT", "/a").chunks(&["one", "two"]),
        Request::new("DELETE", "/a"),
        Request::get("/a").header("TE", "gzip, trailers"),
        Request::get("/a").header("TE", "gzip"),
        Request::get("/set/a")
            .header("X-Dropped", "1")
            .header("X-Kept", "2"),
        Request::get("/rewritten/a%20b?c"),
        Request::get("/missing"),
        Request::get("/caught/missing"),
    ];
    let ours = told_by(Kind::Millpond, &requests)?;
    let theirs = told_by(Kind::Nginx, &requests)?;
    for (number, request) in requests.iter().enumerate() {
        assert_eq!(ours.answers[number], theirs.answers[number], "{request:?}");
        assert_eq!(ours.heard[number], theirs.heard[number], "{request:?}");
    }
    assert_eq!(ours.heard.len(), theirs.heard.len());
    Ok(())
}
