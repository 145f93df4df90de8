//! HTTP/3 for clients, as the crates `quinn` and `h3` speak it: requests through the cache, bodies
//! both ways, reloads, and what strangers may cost.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use millpond_testkit::{Answer, Framing, Gate, LogCheck, Origin, offset_bytes};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

mod clients;
mod early;
mod floods;
mod kit;
mod network;
mod plain;
mod qlog;

use kit::{CONF, Identity, ask, asked, connect, flight, get, identity, proxy, request, run};

/// The longest wait for packets to a client that says nothing: longer than `client_header_timeout`.
const KNOCK_WAIT: Duration = Duration::from_secs(3);
/// RFC 9114 §8.1: `H3_REQUEST_INCOMPLETE`.
const REQUEST_INCOMPLETE: u64 = 0x10d;

#[test]
fn answers_come_from_the_cache_and_say_how() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    origin.route("/page", Answer::new(200).body("a page"));
    let proxy = proxy(&origin, &identity).start()?;
    run(async {
        let mut client = connect(proxy.port(), &identity).await?;
        for state in ["MISS", "HIT", "HIT"] {
            let answer = get(&mut client, "/page").await?;
            ensure!(answer.head.status() == 200);
            ensure!(answer.header("x-cache") == state, "{:?}", answer.head);
            ensure!(answer.header("content-length") == "6");
            ensure!(answer.body == b"a page");
        }
        let told = get(&mut client, "/told").await?;
        ensure!(told.text() == "HTTP/3.0 h3 https TLSv1.3 localhost");
        let head = ask(&mut client.send, request("HEAD", "/page")?, &[]).await?;
        ensure!(head.body.is_empty() && head.header("content-length") == "6");
        let none = get(&mut client, "/none").await?;
        ensure!(none.head.status() == 404);
        Ok(())
    })?;
    ensure!(asked(&origin, "/page").len() == 1);
    let lines = proxy.wait_for_lines("h3.log", 6)?;
    ensure!(lines[0] == "GET /page 200 6 HTTP/3.0 h3", "{lines:?}");
    ensure!(lines[4] == "HEAD /page 200 0 HTTP/3.0 h3", "{lines:?}");
    Ok(())
}

/// RFC 7838 §3: answers over TLS say where HTTP/3 is, those of servers without it do not.
#[test]
fn answers_over_tls_tell_of_the_port() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let proxy = proxy(&origin, &identity).start()?;
    let port = proxy.port();
    for (name, version, told) in [
        ("localhost", "--http1.1", true),
        ("localhost", "--http2", true),
        ("off.localhost", "--http1.1", false),
    ] {
        let output = Command::new("curl")
            .args(["-sSk", "-D", "-", "-o", "/dev/null", version])
            .args(["--resolve", &format!("{name}:{port}:127.0.0.1")])
            .arg(format!("https://{name}:{port}/few"))
            .output()?;
        ensure!(output.status.success(), "{output:?}");
        let head = String::from_utf8(output.stdout)?.to_ascii_lowercase();
        let field = format!("alt-svc: h3=\":{port}\"; ma=86400\r\n");
        ensure!(head.contains(&field) == told, "{name} {version}: {head}");
    }
    run(async {
        let mut client = connect(port, &identity).await?;
        let answer = get(&mut client, "/few").await?;
        ensure!(answer.head.headers().get("alt-svc").is_none());
        Ok(())
    })
}

#[test]
fn large_bodies_come_whole_both_ways() -> Result<()> {
    const LEN: u64 = 3_000_000;
    let (origin, identity) = (Origin::start()?, identity()?);
    origin.route("/large", Answer::new(200).offset_body(LEN, 1));
    origin.route("/plain", Answer::new(200).offset_body(LEN, 1));
    let proxy = proxy(&origin, &identity).start()?;
    run(async {
        let mut client = connect(proxy.port(), &identity).await?;
        for path in ["/large", "/large", "/plain"] {
            let answer = get(&mut client, path).await?;
            ensure!(answer.body == offset_bytes(0..LEN, 1), "{path}");
        }
        let body: Vec<Bytes> = offset_bytes(0..LEN, 1)
            .chunks(100_000)
            .map(Bytes::copy_from_slice)
            .collect();
        let mut known = request("POST", "/known")?;
        known.headers_mut().insert("content-length", LEN.into());
        ask(&mut client.send, known, &body).await?;
        ask(&mut client.send, request("POST", "/unknown")?, &body).await?;
        ask(&mut client.send, request("POST", "/empty")?, &[]).await?;
        Ok(())
    })?;
    for (path, len) in [("/known", LEN), ("/unknown", LEN), ("/empty", 0)] {
        let came = asked(&origin, path);
        ensure!(came.len() == 1, "{path}");
        ensure!(came[0].body == offset_bytes(0..len, 1), "{path}");
    }
    Ok(())
}

/// RFC 9114 §4.1.2: also where the body is nobody's business.
#[test]
fn a_length_that_lies_is_refused() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let proxy = proxy(&origin, &identity).start()?;
    // On one thread head and end of a request go out together, so that no answer comes before.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut client = connect(proxy.port(), &identity).await?;
        for (length, body, status) in [("5", "", 400), ("2", "abc", 400), ("3", "abc", 200)] {
            let mut lying = request("POST", "/told")?;
            lying
                .headers_mut()
                .insert("content-length", length.parse()?);
            let answer = ask(&mut client.send, lying, &[Bytes::from(body)]).await?;
            ensure!(
                answer.head.status() == status,
                "{length}: {}",
                answer.head.status()
            );
        }
        Ok(())
    })
}

/// RFC 9114 §4.1.2: a request that ends before its length is malformed, and one that is reset is
/// none: no origin gets it as a whole one.
#[test]
fn bodies_that_break_off_are_whole_for_no_origin() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    origin.route("/*", Answer::new(200).body("taken"));
    let mut proxy = proxy(&origin, &identity).start()?;
    let passing = "proxy_buffering off; proxy_request_buffering off; proxy_http_version 1.1;";
    proxy.set_conf(&CONF.replace("proxy_buffering off;", passing))?;
    proxy.restart()?;
    run(async {
        let mut client = connect(proxy.port(), &identity).await?;
        for path in ["/collected", "/plain/passed"] {
            let mut short = request("POST", &format!("{path}/short"))?;
            short.headers_mut().insert("content-length", 10.into());
            let mut stream = client.send.send_request(short).await?;
            stream.send_data(Bytes::from_static(b"four")).await?;
            stream.finish().await?;
            let answer = stream.recv_response().await;
            ensure!(
                answer.as_ref().map_or(400, |head| head.status().as_u16()) == 400,
                "{path}: {answer:?}"
            );
            for length in [None, Some(10)] {
                let mut reset = request("POST", &format!("{path}/reset"))?;
                if let Some(length) = length {
                    reset.headers_mut().insert("content-length", length.into());
                }
                let mut stream = client.send.send_request(reset).await?;
                stream.send_data(Bytes::from_static(b"four")).await?;
                stream.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
            }
        }
        // Whatever was passed on of them was so before this one.
        let whole = request("POST", "/plain/passed/whole")?;
        let answer = ask(&mut client.send, whole, &[Bytes::from_static(b"all")]).await?;
        ensure!(answer.text() == "taken");
        Ok(())
    })?;
    let came: Vec<String> = origin.requests().into_iter().map(|it| it.target).collect();
    ensure!(came == ["/plain/passed/whole"], "{came:?}");
    Ok(())
}

#[test]
fn trailers_of_origins_end_the_answer() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let answer = Answer::new(200).body("sum").framing(Framing::Chunked);
    origin.route("/plain", answer.trailer("X-Sum", "12"));
    let passing = "proxy_buffering off; proxy_pass_trailers on; proxy_http_version 1.1;
        proxy_set_header TE trailers; proxy_set_header Connection TE;";
    let mut proxy = proxy(&origin, &identity).start()?;
    proxy.set_conf(&CONF.replace("proxy_buffering off;", passing))?;
    proxy.restart()?;
    run(async {
        let mut client = connect(proxy.port(), &identity).await?;
        let answer = get(&mut client, "/plain").await?;
        ensure!(answer.body == b"sum");
        let trailers = answer.trailers.context("no trailers")?;
        ensure!(trailers.get("x-sum").is_some_and(|value| value == "12"));
        Ok(())
    })
}

/// Many streams, one fetch: requests of one connection and of others wait for the same answer.
#[test]
fn requests_for_one_thing_are_one_fetch() -> Result<()> {
    const STREAMS: usize = 50;
    let (origin, identity) = (Origin::start()?, identity()?);
    let gate = Gate::new();
    let answer = Answer::new(200).body("one for all").hold_head(&gate);
    origin.route("/one", answer);
    let proxy = proxy(&origin, &identity).start()?;
    run(async {
        let mut clients = Vec::new();
        let mut asked = JoinSet::new();
        for _ in 0..2 {
            let client = connect(proxy.port(), &identity).await?;
            for _ in 0..STREAMS {
                let (mut send, request) = (client.send.clone(), request("GET", "/one")?);
                asked.spawn(async move { ask(&mut send, request, &[]).await });
            }
            clients.push(client);
        }
        origin.wait_for_requests(1)?;
        gate.open();
        while let Some(answer) = asked.join_next().await {
            ensure!(answer??.text() == "one for all");
        }
        Ok(())
    })?;
    ensure!(asked(&origin, "/one").len() == 1);
    Ok(())
}

#[test]
fn reload_lets_connections_finish_and_new_ones_begin() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let gate = Gate::new();
    origin.route("/slow", Answer::new(200).body("at last").hold_head(&gate));
    let mut proxy = proxy(&origin, &identity).start()?;
    run(async {
        let mut old = connect(proxy.port(), &identity).await?;
        ensure!(get(&mut old, "/few").await?.text() == "few");
        let (mut send, slow) = (old.send.clone(), request("GET", "/slow")?);
        let waiting = tokio::spawn(async move { ask(&mut send, slow, &[]).await });
        origin.wait_for_requests(1)?;
        proxy.set_conf(&CONF.replace("return 200 few", "return 200 other"))?;
        proxy.reload()?;
        // A signal takes its time; whoever connects before it is served as before.
        loop {
            let mut new = connect(proxy.port(), &identity).await?;
            match get(&mut new, "/few").await?.text().as_str() {
                "few" => {}
                text => break ensure!(text == "other"),
            }
        }
        gate.open();
        ensure!(waiting.await??.text() == "at last");
        // GOAWAY, and the end without an error.
        let end = old.task.await?;
        ensure!(end.is_h3_no_error(), "{end:?}");
        Ok(())
    })
}

/// The process that took over, which is ended with this.
struct Successor(Pid);

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have ended.
        let _gone = kill_process(self.0, Signal::KILL);
    }
}

/// Both processes read the same sockets, and each gets its own packets.
#[test]
fn a_new_binary_takes_new_connections_and_the_old_one_finishes_its_own() -> Result<()> {
    const LEN: u64 = 1_000_000;
    const OTHERS: usize = 20;
    let (origin, identity) = (Origin::start()?, identity()?);
    let gate = Gate::new();
    let long = Answer::new(200).offset_body(LEN, 1);
    origin.route("/plain", long.hold_body_at(LEN / 2, &gate));
    let proxy = proxy(&origin, &identity).log_check(LogCheck::Off).start()?;
    run(async {
        let mut old = connect(proxy.port(), &identity).await?;
        let first = get(&mut old, "/pid").await?.text();
        let (mut send, long) = (old.send.clone(), request("GET", "/plain")?);
        let waiting = tokio::spawn(async move { ask(&mut send, long, &[]).await });
        origin.wait_for_requests(1)?;
        proxy.signal(Signal::USR2)?;
        let second = loop {
            let mut new = connect(proxy.port(), &identity).await?;
            // One that the old process took in its last moment ends without a request.
            match get(&mut new, "/pid").await.map(|answer| answer.text()) {
                Ok(pid) if pid != first => break pid,
                _ => {}
            }
        };
        let id = Pid::from_raw(second.parse()?).context("a process id")?;
        let _successor = Successor(id);
        for _ in 0..OTHERS {
            // Another socket of the old process may have its last moment later.
            let mut new = loop {
                let mut new = connect(proxy.port(), &identity).await?;
                match get(&mut new, "/pid").await.map(|answer| answer.text()) {
                    Ok(pid) if pid == second => break new,
                    Ok(pid) => ensure!(pid == first, "a third process: {pid}"),
                    Err(_) => ensure!(new.task.await?.is_h3_no_error(), "it ends otherwise"),
                }
            };
            for _ in 0..OTHERS {
                ensure!(get(&mut new, "/pid").await?.text() == second);
            }
        }
        gate.open();
        ensure!(waiting.await??.body == offset_bytes(0..LEN, 1));
        let end = old.task.await?;
        ensure!(end.is_h3_no_error(), "{end:?}");
        Ok(())
    })
}

#[test]
fn keepalive_requests_end_a_connection_in_peace() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let proxy = proxy(&origin, &identity).start()?;
    run(async {
        let mut client = connect(proxy.port(), &identity).await?;
        for _ in 0..3 {
            ensure!(get(&mut client, "/few").await?.text() == "few");
        }
        let mut count = 3;
        while get(&mut client, "/few").await.is_ok() {
            count += 1;
            ensure!(count < 1001, "no end after {count}");
        }
        Ok(())
    })
}

#[test]
fn clients_show_their_address_where_that_is_wanted() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let proxy = proxy(&origin, &identity).start()?;
    run(async {
        let mut client = connect(proxy.named_port("PORT_SHOW"), &identity).await?;
        ensure!(get(&mut client, "/").await?.text() == "shown");
        Ok(())
    })?;
    let socket = knock(proxy.named_port("PORT_SHOW"), &identity)?;
    let mut room = [0; 2048];
    let len = socket.recv(&mut room)?;
    ensure!(is_retry(&room[..len]), "{:02x?}", &room[..len]);
    Ok(())
}

/// A socket that has sent a first flight, of a client that says no more.
fn knock(port: u16, identity: &Identity) -> Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(KNOCK_WAIT))?;
    for packet in flight(identity)? {
        socket.send_to(&packet, ("127.0.0.1", port))?;
    }
    Ok(socket)
}

/// RFC 9000 §17.2.5.
fn is_retry(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first & 0xf0 == 0xf0)
}

/// RFC 9000 §8.1: three times as much, before the client's address is known for true.
#[test]
fn strangers_get_three_times_what_they_sent_and_no_more() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let proxy = proxy(&origin, &identity).start()?;
    let socket = knock(proxy.named_port("PORT_SHORT"), &identity)?;
    let (mut room, mut all) = ([0; 2048], 0);
    while let Ok(len) = socket.recv(&mut room) {
        all += len;
    }
    let sent: usize = flight(&identity)?.iter().map(Vec::len).sum();
    ensure!(all >= 1200 && all <= 3 * sent, "{all} of {sent}");
    Ok(())
}

/// The price of a handshake is paid by those who show their address, once many are under way.
#[test]
fn floods_of_first_packets_have_to_show_their_address() -> Result<()> {
    const KNOCKS: usize = 400;
    // 64 of each worker, and those that came before the first was counted.
    const TAKEN_MOST: usize = 2 * 64;
    let (origin, identity) = (Origin::start()?, identity()?);
    let proxy = proxy(&origin, &identity).start()?;
    let mut taken = 0;
    for _ in 0..KNOCKS {
        let socket = knock(proxy.port(), &identity)?;
        let mut room = [0; 2048];
        let len = socket.recv(&mut room)?;
        taken += usize::from(!is_retry(&room[..len]));
    }
    ensure!((64..=TAKEN_MOST).contains(&taken), "{taken} handshakes");
    run(async {
        let mut client = connect(proxy.port(), &identity).await?;
        ensure!(get(&mut client, "/few").await?.text() == "few");
        Ok(())
    })
}

/// nginx: a request whose head does not come in `client_header_timeout` is reset (RFC 9114 §8.1);
/// its connection was not idle meanwhile, and goes on.
#[test]
fn a_head_that_does_not_come_is_reset_alone() -> Result<()> {
    let (origin, identity) = (Origin::start()?, identity()?);
    let proxy = proxy(&origin, &identity).start()?;
    let port = proxy.named_port("PORT_SHORT");
    run(async {
        let mut client = connect(port, &identity).await?;
        let (mut send, mut receive) = client.quic.open_bi().await?;
        // HEADERS of 16 bytes, of which one comes.
        send.write_all(&[1, 16, 0]).await?;
        let end = receive.read_to_end(100).await;
        let reset = matches!(
            &end,
            Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(code)))
                if code.into_inner() == REQUEST_INCOMPLETE
        );
        ensure!(reset, "{end:?}");
        ensure!(get(&mut client, "/").await?.text() == "short");
        client.close().await;
        Ok(())
    })
}
