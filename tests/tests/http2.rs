//! HTTP/2 for clients, over clear text with prior knowledge, as the `h2` crate speaks it; nginx
//! answers the same requests. Encrypted connections are looked at by curl.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use h2::client::{self, SendRequest};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use millpond_testkit::{Answer, Gate, Kind, LogCheck, Origin, Protocol, Proxy, offset_bytes};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const WAIT: Duration = Duration::from_secs(60);

const CONF: &str = "%%GLOBALS%%
    events {}
    http {
        %%HTTP%%
        log_format h2 '$request_method $uri $status $body_bytes_sent $server_protocol \
                       $connection_requests';
        access_log %%DIR%%/h2.log h2;
        proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
        client_body_buffer_size 8k;
        client_max_body_size 0;
        server {
            listen 127.0.0.1:%%PORT%% http2;
            add_header X-Cache $upstream_cache_status;
            location / {
                proxy_pass http://%%ORIGIN%%;
                proxy_cache z;
                proxy_cache_valid 200 1h;
                proxy_cache_lock on;
                proxy_cache_lock_timeout 20s;
            }
            location /few { keepalive_requests 3; return 200 few; }
            location /plain { proxy_pass http://%%ORIGIN%%; proxy_buffering off; }
            location /denied { return 403; }
        }
    }";

/// Runs a test with a time limit; connections are moved by a thread of their own.
fn run(test: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let all = tokio::time::timeout(WAIT, test);
        all.await.context("the test took too long")?
    })
}

/// A connection, whose frames are moved by a task.
struct Connected {
    send: SendRequest<Bytes>,
    task: JoinHandle<Result<(), h2::Error>>,
}

async fn connect(proxy: &Proxy) -> Result<Connected> {
    connect_with(proxy, &mut client::Builder::new()).await
}

async fn connect_with(proxy: &Proxy, builder: &mut client::Builder) -> Result<Connected> {
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    let socket = TcpStream::connect(address).await?;
    let (send, connection) = builder.handshake(socket).await?;
    Ok(Connected {
        send,
        task: tokio::spawn(connection),
    })
}

fn request(method: &str, path: &str) -> Result<Request<()>> {
    let uri = format!("http://localhost{path}");
    Ok(Request::builder().method(method).uri(uri).body(())?)
}

async fn read_all(mut body: RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>)> {
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        all.extend_from_slice(&piece);
    }
    Ok((all, body.trailers().await?))
}

impl Connected {
    /// Sends a request without a body; its answer comes when it is waited for.
    async fn ask(&mut self, request: Request<()>) -> Result<client::ResponseFuture> {
        self.send = self.send.clone().ready().await?;
        Ok(self.send.send_request(request, true)?.0)
    }

    async fn get(&mut self, path: &str) -> Result<Response<Vec<u8>>> {
        whole(self.ask(request("GET", path)?).await?).await
    }
}

async fn whole(answer: client::ResponseFuture) -> Result<Response<Vec<u8>>> {
    let (head, body) = answer.await?.into_parts();
    Ok(Response::from_parts(head, read_all(body).await?.0))
}

fn field<'a>(answer: &'a Response<Vec<u8>>, name: &str) -> &'a str {
    let value = answer.headers().get(name);
    value.and_then(|it| it.to_str().ok()).unwrap_or_default()
}

fn start(kind: Kind, origin: &Origin) -> Result<Proxy> {
    Proxy::new(kind, CONF)
        .origin(origin)
        .log_check(LogCheck::Off)
        .start()
}

#[test]
fn streams_of_a_connection_share_one_fetch_and_all_get_their_answers() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    let held = Answer::new(200).offset_body(100_000, 1).hold_head(&gate);
    origin.route("/one", held);
    for kind in Kind::both() {
        let proxy = start(kind, &origin)?;
        origin.forget_requests();
        run(async {
            // Room for all bodies, which are read one after the other.
            let mut builder = client::Builder::new();
            builder.initial_connection_window_size(4 << 20);
            let mut connected = connect_with(&proxy, &mut builder).await?;
            let mut answers = Vec::new();
            for _ in 0..20 {
                answers.push(connected.ask(request("GET", "/one")?).await?);
            }
            // A stream that waits holds nobody up.
            ensure!(connected.get("/denied").await?.status() == 403);
            gate.open();
            for answer in answers {
                let answer = whole(answer).await?;
                ensure!(answer.status() == 200, "{kind:?}: {}", answer.status());
                ensure!(*answer.body() == offset_bytes(0..100_000, 1));
            }
            Ok(())
        })?;
        let asked = origin.requests().len();
        ensure!(asked == 1, "{kind:?}: the origin was asked {asked} times");
    }
    Ok(())
}

/// Method, path, fields.
type Case = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

#[test]
fn answers_are_those_of_nginx() -> Result<()> {
    let origin = Origin::start()?;
    let body = Answer::new(200).offset_body(20_000, 1).etag("\"v1\"");
    origin.route(
        "/a",
        body.header("Connection", "X-Hop").header("X-Hop", "1"),
    );
    origin.route("/none", Answer::new(204));
    origin.route(
        "/moved",
        Answer::new(301).header("Location", "/a").body("moved"),
    );
    let cases: &[Case] = &[
        ("GET", "/a", &[]),
        ("GET", "/a", &[("range", "bytes=100-199")]),
        ("GET", "/a", &[("range", "bytes=-5")]),
        ("GET", "/a", &[("range", "bytes=30000-")]),
        ("GET", "/a", &[("range", "bytes=0-1,5-6")]),
        ("GET", "/a", &[("if-none-match", "\"v1\"")]),
        ("HEAD", "/a", &[]),
        ("GET", "/none", &[]),
        ("GET", "/moved", &[]),
        ("GET", "/denied", &[]),
        ("GET", "/few", &[]),
        ("OPTIONS", "/denied", &[]),
        ("GET", "/nobody-has-this", &[]),
    ];
    let mut all = Vec::new();
    for kind in Kind::both() {
        let proxy = start(kind, &origin)?;
        let mut answers = Vec::new();
        run(async {
            for (method, path, fields) in cases {
                let mut connected = connect(&proxy).await?;
                let mut request = request(method, path)?;
                for (name, value) in *fields {
                    request.headers_mut().append(*name, value.parse()?);
                }
                let answer = whole(connected.ask(request).await?).await?;
                let mut fields: Vec<String> = answer
                    .headers()
                    .iter()
                    // What differs by nature: names, times and the boundary of several ranges.
                    .filter(|(name, _)| {
                        !["server", "date", "content-type"].contains(&name.as_str())
                    })
                    .map(|(name, value)| format!("{name}: {value:?}"))
                    .collect();
                fields.sort();
                let is_own_page = answer.status().is_client_error();
                let is_parts = field(&answer, "content-type").starts_with("multipart/");
                let body = if is_own_page || is_parts {
                    fields.retain(|line| !line.starts_with("content-length"));
                    Vec::new()
                } else {
                    answer.body().clone()
                };
                answers.push((method, path, answer.status(), fields, body));
            }
            Ok(())
        })?;
        all.push(answers);
    }
    let [ours, nginx] = &all[..] else {
        // Without nginx there is nothing to compare.
        return Ok(());
    };
    for (ours, nginx) in ours.iter().zip(nginx) {
        ensure!(ours == nginx, "ours {ours:?}\nnginx {nginx:?}");
    }
    Ok(())
}

#[test]
fn a_stream_that_is_not_read_holds_no_other_up() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/long", Answer::new(200).offset_body(5 << 20, 1));
    origin.route("/short", Answer::new(200).offset_body(1000, 2));
    let proxy = start(Kind::Millpond, &origin)?;
    run(async {
        let mut builder = client::Builder::new();
        builder
            .initial_window_size(10_000)
            .initial_connection_window_size(1 << 20);
        let mut connected = connect_with(&proxy, &mut builder).await?;
        let slow = connected.ask(request("GET", "/long")?).await?.await?;
        for _ in 0..50 {
            let answer = connected.get("/short").await?;
            ensure!(*answer.body() == offset_bytes(0..1000, 2));
        }
        let (body, _) = read_all(slow.into_body()).await?;
        ensure!(body == offset_bytes(0..5 << 20, 1));
        Ok(())
    })
}

#[test]
fn long_bodies_go_up_and_trailers_come_down() -> Result<()> {
    let origin = Origin::start()?;
    let len = 3 << 20;
    origin.answer_with("/plain", move |asked| {
        let is_whole = asked.body == offset_bytes(0..len, 7);
        Answer::new(200)
            .body(if is_whole { "whole" } else { "changed" })
            .framing(millpond_testkit::Framing::Chunked)
            .trailer("X-Sum", "12")
    });
    let proxy = Proxy::new(
        Kind::Millpond,
        &CONF.replace("proxy_buffering off;", "proxy_buffering off; proxy_pass_trailers on; proxy_http_version 1.1; proxy_set_header TE trailers; proxy_set_header Connection TE;"),
    )
    .origin(&origin)
    .log_check(LogCheck::Off)
    .start()?;
    run(async {
        let mut connected = connect(&proxy).await?;
        connected.send = connected.send.clone().ready().await?;
        let (answer, mut body) = connected
            .send
            .send_request(request("POST", "/plain")?, false)?;
        let mut rest = Bytes::from(offset_bytes(0..len, 7));
        while !rest.is_empty() {
            body.reserve_capacity(rest.len());
            let room = std::future::poll_fn(|cx| body.poll_capacity(cx)).await;
            let count = room.context("the stream ended")??.min(rest.len());
            let piece = rest.split_to(count);
            body.send_data(piece, rest.is_empty())?;
        }
        let answer = answer.await?;
        ensure!(answer.status() == 200);
        let (body, trailers) = read_all(answer.into_body()).await?;
        ensure!(body == b"whole", "{}", String::from_utf8_lossy(&body));
        let trailers = trailers.context("no trailers")?;
        ensure!(trailers.get("x-sum").is_some_and(|value| value == "12"));
        Ok(())
    })
}

/// RFC 9110 §10.1.1: nobody is let wait for a word that never comes.
#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/plain", Answer::new(200).body("taken"));
    let proxy = start(Kind::Millpond, &origin)?;
    run(async {
        let mut socket = begin(&proxy).await?;
        // POST, http, /plain, a; expect: 100-continue.
        let block = b"\x83\x86\x04\x06/plain\x01\x01a\x0f\x14\x0c100-continue";
        socket.write_all(&frame(1, 4, 1, block)).await?;
        let mut came = Vec::new();
        let has = |came: &[u8], text: &[u8]| came.windows(text.len()).any(|window| window == text);
        // HEADERS of the stream, which do not end it.
        while !has(&came, &[1, 4, 0, 0, 0, 1]) {
            ensure!(socket.read_buf(&mut came).await? > 0, "{came:?}");
        }
        socket.write_all(&frame(0, 1, 1, b"body")).await?;
        while !has(&came, b"taken") {
            ensure!(socket.read_buf(&mut came).await? > 0, "{came:?}");
        }
        Ok(())
    })?;
    ensure!(origin.requests()[0].body == b"body");
    Ok(())
}

/// nginx: who reads a body opens its window as soon as the head is there.
#[test]
fn a_long_body_that_comes_with_its_head_is_read() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/plain", Answer::new(200).body("taken"));
    let conf = CONF.replace("server {", "server { http2_body_preread_size 1k;");
    let proxy = Proxy::new(Kind::Millpond, &conf)
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    run(async {
        let mut socket = begin(&proxy).await?;
        let mut came = Vec::new();
        // Until our settings are acknowledged the server cannot know that its own are obeyed.
        while came.len() < 9 {
            ensure!(socket.read_buf(&mut came).await? > 0, "{came:?}");
        }
        let mut bytes = frame(4, 1, 0, &[]);
        // POST, http, /plain, a; content-length: 3000.
        let block = b"\x83\x86\x04\x06/plain\x01\x01a\x0f\x0d\x043000";
        bytes.extend(frame(1, 4, 1, block));
        bytes.extend(frame(0, 1, 1, &[b'x'; 3000]));
        socket.write_all(&bytes).await?;
        let has = |came: &[u8], text: &[u8]| came.windows(text.len()).any(|window| window == text);
        while !has(&came, b"taken") {
            ensure!(socket.read_buf(&mut came).await? > 0, "{came:?}");
        }
        Ok(())
    })?;
    ensure!(origin.requests()[0].body == [b'x'; 3000]);
    Ok(())
}

/// RFC 9110 §8.6: the origin is told that there are no bytes, since the client did not say so.
#[test]
fn a_body_that_ends_without_a_byte_has_a_length_for_the_origin() -> Result<()> {
    let origin = Origin::start()?;
    origin.route("/plain", Answer::new(200));
    let proxy = start(Kind::Millpond, &origin)?;
    run(async {
        let connected = connect(&proxy).await?;
        let mut send = connected.send.clone().ready().await?;
        let (answer, mut stream) = send.send_request(request("POST", "/plain")?, false)?;
        stream.send_data(Bytes::new(), true)?;
        ensure!(answer.await?.status() == 200);
        let asked = &origin.requests()[0];
        ensure!(asked.header("Content-Length") == Some("0"), "{asked:?}");
        ensure!(asked.header("Transfer-Encoding").is_none(), "{asked:?}");
        Ok(())
    })
}

#[test]
fn a_stream_that_is_reset_ends_its_request_alone() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    origin.route("/plain", Answer::new(200).body("late").hold_head(&gate));
    let proxy = start(Kind::Millpond, &origin)?;
    run(async {
        let mut connected = connect(&proxy).await?;
        let mut send = connected.send.clone().ready().await?;
        let (answer, mut stream) = send.send_request(request("GET", "/plain")?, true)?;
        origin.wait_for_requests(1)?;
        stream.send_reset(Reason::CANCEL);
        drop(answer);
        let lines = proxy.wait_for_lines("h2.log", 1)?;
        ensure!(
            lines[0].starts_with("GET /plain 499 0 HTTP/2.0 1"),
            "{lines:?}"
        );
        let answer = connected.get("/few").await?;
        ensure!(answer.body() == b"few");
        gate.open();
        Ok(())
    })
}

#[test]
fn a_connection_ends_after_its_requests_and_says_so() -> Result<()> {
    let origin = Origin::start()?;
    for kind in Kind::both() {
        let conf = CONF.replace("http2;", "http2; keepalive_requests 3;");
        let proxy = Proxy::new(kind, &conf)
            .origin(&origin)
            .log_check(LogCheck::Off)
            .start()?;
        run(async {
            let mut connected = connect(&proxy).await?;
            for _ in 0..3 {
                ensure!(connected.get("/few").await?.status() == 200);
            }
            // The end of a connection that was told of is no error.
            connected.task.await??;
            Ok(())
        })?;
        let lines = proxy.wait_for_lines("h2.log", 3)?;
        let expected = ["1", "2", "3"].map(|number| format!("GET /few 200 3 HTTP/2.0 {number}"));
        ensure!(lines == expected, "{kind:?}: {lines:?}");
    }
    Ok(())
}

#[test]
fn a_reload_lets_requests_end_and_loses_none() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    origin.route("/plain", Answer::new(200).body("late").hold_head(&gate));
    let proxy = start(Kind::Millpond, &origin)?;
    run(async {
        let mut connected = connect(&proxy).await?;
        let late = connected.ask(request("GET", "/plain")?).await?;
        origin.wait_for_requests(1)?;
        proxy.reload()?;
        // The old connection takes requests until its client has heard that it is over.
        let answer = connected.get("/few").await;
        if let Err(error) = &answer {
            let known = error.downcast_ref::<h2::Error>();
            ensure!(known.is_some_and(h2::Error::is_go_away), "{error}");
        }
        let mut fresh = connect(&proxy).await?;
        ensure!(fresh.get("/few").await?.status() == 200);
        gate.open();
        let late = whole(late).await?;
        ensure!(late.body() == b"late");
        connected.task.await??;
        Ok(())
    })
}

#[test]
fn idle_connections_end_with_their_configuration() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(Kind::Millpond, &origin)?;
    run(async {
        let mut idle = connect(&proxy).await?;
        ensure!(idle.get("/few").await?.status() == 200);
        // The idle connection is a quiet one after the time for which a client may still ask.
        let begin = std::time::Instant::now();
        let mut other = connect(&proxy).await?;
        while begin.elapsed() < Duration::from_millis(400) {
            ensure!(other.get("/denied").await?.status() == 403);
        }
        proxy.reload()?;
        idle.task.await??;
        other.task.await??;
        Ok(())
    })
}

/// The bytes of a frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    let mut bytes = len.to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A connection of which the preface was sent.
async fn begin(proxy: &Proxy) -> Result<TcpStream> {
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    let mut socket = TcpStream::connect(address).await?;
    socket
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await?;
    socket.write_all(&frame(4, 0, 0, &[])).await?;
    Ok(socket)
}

/// Tests that take a protocol mean these.
#[test]
fn the_kits_clients_speak_what_they_are_made_for() -> Result<()> {
    let origin = Origin::start()?;
    for (protocol, second) in [
        (Protocol::Http1, "HTTP/1.1 1"),
        (Protocol::Http2, "HTTP/2.0 1"),
        (Protocol::Streams, "HTTP/2.0 2"),
    ] {
        let proxy = start(Kind::Millpond, &origin)?;
        for _ in 0..2 {
            ensure!(protocol.client(proxy.port()).get("/denied")?.status == 403);
        }
        let lines = proxy.wait_for_lines("h2.log", 2)?;
        ensure!(lines[1].ends_with(second), "{protocol:?}: {lines:?}");
    }
    Ok(())
}

#[test]
fn the_process_ends_when_its_streams_have() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    origin.route("/plain", Answer::new(200).body("late").hold_head(&gate));
    let mut proxy = start(Kind::Millpond, &origin)?;
    run(async {
        let mut connected = connect(&proxy).await?;
        let late = connected.ask(request("GET", "/plain")?).await?;
        origin.wait_for_requests(1)?;
        proxy.signal(Signal::QUIT)?;
        gate.open();
        ensure!(whole(late).await?.body() == b"late");
        connected.task.await??;
        Ok(())
    })?;
    proxy.quit()
}
