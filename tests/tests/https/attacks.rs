//! Peers that cut, replay and confuse: nothing is believed that was not said under the right name.

use anyhow::{Context, Result};
use millpond_testkit::{Answer, Client, Kind, LogCheck, Origin, Proxy, binary, skip};
use rustls::{ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use super::kit::{Authority, WAIT, ask, client_config, encrypted, server_config};
use super::openssl::s_client_with;

const STORING: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=10m;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_valid 200 1h;
        add_header X-Cache $upstream_cache_status;
        location / { proxy_pass https://127.0.0.1:%%BACK%%; }
    }";

/// The end that an origin gives its bodies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// close_notify, and then the connection.
    Said,
    /// The connection alone, as somebody on the way could end it.
    Cut,
}

/// Answers one request with a body without a length.
fn answer(socket: TcpStream, config: &Arc<rustls::ServerConfig>, end: End) -> Result<()> {
    socket.set_read_timeout(Some(WAIT))?;
    let session = ServerConnection::new(Arc::clone(config))?;
    let mut stream = StreamOwned::new(session, socket);
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece)?;
        asked.extend_from_slice(piece.get(..count).context("bytes")?);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst half")?;
    if end == End::Said {
        stream.conn.send_close_notify();
    }
    Ok(stream.flush()?)
}

#[test]
fn body_whose_end_nobody_has_said_is_not_stored() -> Result<()> {
    let authority = Authority::new("root")?;
    let config = server_config(&authority.sign("origin")?)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let ends = [End::Cut, End::Cut, End::Said];
    let origin = thread::spawn(move || -> Result<()> {
        for end in ends {
            answer(listener.accept()?.0, &config, end)?;
        }
        Ok(())
    });
    let front = Proxy::new(Kind::Millpond, STORING)
        .origin(&Origin::start()?)
        .value("BACK", &port.to_string())
        .log_check(LogCheck::Off)
        .start()?;
    let client = Client::new(front.port());
    // Broken off for the client, too: it must not take the half for the whole.
    for _ in 0..2 {
        let broken = client.get("/page")?;
        assert!(!broken.is_complete(), "{broken:?}");
    }
    for expected in ["MISS", "HIT"] {
        let whole = client.get("/page")?;
        assert_eq!(whole.text(), "first half");
        assert_eq!(whole.header("X-Cache"), Some(expected));
    }
    origin.join().ok().context("the origin")?
}

const SLOW: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        location / { proxy_pass http://127.0.0.1:%%BACK%%; }
        location /here { return 200 here; }
    }";

/// RFC 8446 §6.1: close_notify ends what its sender says, and not what it hears.
#[test]
fn client_that_has_said_its_last_is_answered_unless_it_goes() -> Result<()> {
    let authority = Authority::new("root")?;
    let [certificate, key] = authority.sign("open.example")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let front = Proxy::new(Kind::Millpond, SLOW)
        .value("BACK", &listener.local_addr()?.port().to_string())
        .file("cert.pem", certificate)
        .file("key.pem", key)
        .log_check(LogCheck::Off)
        .start()?;
    let config = client_config(&authority, None)?;
    let connect = || encrypted(&config, front.port(), "open.example");
    for stays in [true, false] {
        let mut client = connect()?;
        client.write_all(b"GET /page HTTP/1.0\r\nHost: open.example\r\n\r\n")?;
        let (mut origin, _) = listener.accept()?;
        origin.set_read_timeout(Some(WAIT))?;
        let mut asked = [0; 1024];
        assert!(origin.read(&mut asked)? > 0);
        client.conn.send_close_notify();
        client.flush()?;
        // The one worker has seen that before it sees this.
        ask(&mut connect()?, "GET /here HTTP/1.0\r\n\r\n", "here")?;
        if stays {
            origin.write_all(b"HTTP/1.0 200 OK\r\n\r\nwhole")?;
            drop(origin);
            let mut answer = String::new();
            client.read_to_string(&mut answer)?;
            assert!(answer.ends_with("whole"), "{answer}");
        } else {
            drop(client);
            assert_eq!(origin.read(&mut asked)?, 0);
        }
    }
    Ok(())
}

const TWO: &str = "
    ssl_certificate cert.pem;
    ssl_certificate_key key.pem;
    ssl_session_cache shared:one:1m;
    ssl_client_certificate ca.pem;
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name open.example;
        ssl_verify_client optional;
        return 200 '$ssl_client_verify $ssl_session_reused.';
    }
    server {
        listen 127.0.0.1:%%PORT_STRICT%% ssl;
        server_name open.example;
        ssl_verify_client on;
        return 200 '$ssl_client_verify $ssl_session_reused.';
    }";

/// A session that somebody made without a certificate at a server that does not insist on one.
#[test]
fn session_of_one_server_opens_nothing_at_another() -> Result<()> {
    let authority = Authority::new("root")?;
    let [certificate, key] = authority.sign("open.example")?;
    let back = Proxy::new(Kind::Millpond, TWO)
        .file("ca.pem", &authority.pem)
        .file("cert.pem", certificate)
        .file("key.pem", key)
        .log_check(LogCheck::Off)
        .start()?;
    let strict = back.named_port("PORT_STRICT");
    let request = "GET / HTTP/1.1\r\nHost: open.example\r\n\r\n";
    let known = client_config(&authority, Some(&authority.sign("client")?))?;
    let asked = |config, port| {
        let mut stream = encrypted(config, port, "open.example")?;
        ask(&mut stream, request, ".")
    };
    assert!(asked(&known, back.port())?.ends_with("SUCCESS .."));
    assert!(asked(&known, back.port())?.ends_with("SUCCESS r."));
    // The client offers the session of the same name and address, and the server does not take it.
    assert!(asked(&known, strict)?.ends_with("SUCCESS .."));
    assert!(asked(&known, strict)?.ends_with("SUCCESS r."));
    let unknown = client_config(&authority, None)?;
    assert!(asked(&unknown, back.port())?.ends_with("NONE .."));
    let mut stream = encrypted(&unknown, strict, "open.example")?;
    let refused = ask(&mut stream, request, "</html>\r\n")?;
    assert!(
        refused.contains("No required SSL certificate was sent"),
        "{refused}"
    );
    Ok(())
}

const TAKING: &str = "
    log_format short '$uri $status';
    access_log %%DIR%%/short.log short;
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        location /whole { proxy_pass http://%%ORIGIN%%; }
        location /now {
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_pass http://127.0.0.1:%%BACK%%;
        }
    }";

/// Ends a client's connection, so that all that it has sent arrives: one that is closed while
/// tickets wait to be read is reset, and takes away what the server has not read.
fn end_of_client(client: StreamOwned<rustls::ClientConnection, TcpStream>) {
    let mut socket = client.sock;
    let _is_reset = socket.shutdown(Shutdown::Write);
    let _is_reset = socket.read_to_end(&mut Vec::new());
}

/// RFC 9112 §8: a chunked body without its last chunk is not whole, even if the connection's end is
/// said (close_notify).
#[test]
fn request_whose_body_is_cut_off_is_not_whole_for_the_origin() -> Result<()> {
    let authority = Authority::new("root")?;
    let [certificate, key] = authority.sign("open.example")?;
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let front = Proxy::new(Kind::Millpond, TAKING)
        .origin(&origin)
        .value("BACK", &listener.local_addr()?.port().to_string())
        .file("cert.pem", certificate)
        .file("key.pem", key)
        .log_check(LogCheck::Off)
        .start()?;
    let config = client_config(&authority, None)?;
    let half = |path: &str| -> Result<_> {
        let mut client = encrypted(&config, front.port(), "open.example")?;
        let head = "HTTP/1.1\r\nHost: open.example\r\nTransfer-Encoding: chunked";
        write!(client, "POST {path} {head}\r\n\r\n5\r\nhello\r\n")?;
        client.flush()?;
        Ok(client)
    };
    for (index, end) in [End::Cut, End::Said].into_iter().enumerate() {
        let mut client = half("/whole")?;
        if end == End::Said {
            client.conn.send_close_notify();
            client.flush()?;
        }
        end_of_client(client);
        let lines = front.wait_for_lines("short.log", 2 * index + 1)?;
        let status = lines.last().and_then(|line| line.strip_prefix("/whole "));
        assert!(matches!(status, Some("400" | "499")), "{lines:?}");
        assert!(origin.requests().is_empty());
        let mut client = half("/now")?;
        let (mut socket, _) = listener.accept()?;
        socket.set_read_timeout(Some(WAIT))?;
        let mut asked = Vec::new();
        while !asked.ends_with(b"hello\r\n") {
            let mut piece = [0; 1024];
            let count = socket.read(&mut piece)?;
            assert!(count > 0, "{}", String::from_utf8_lossy(&asked));
            asked.extend_from_slice(piece.get(..count).context("bytes")?);
        }
        if end == End::Said {
            client.conn.send_close_notify();
            client.flush()?;
        }
        end_of_client(client);
        let mut rest = Vec::new();
        // An end, or a reset.
        let _ended = socket.read_to_end(&mut rest);
        assert_eq!(rest, b"", "{}", String::from_utf8_lossy(&rest));
        front.wait_for_lines("short.log", 2 * index + 2)?;
    }
    Ok(())
}

const MISDIRECTED: &str = "%%GLOBALS%%
    events {}
    http {
    %%HTTP%%
    ssl_certificate cert.pem;
    ssl_certificate_key key.pem;
    ssl_client_certificate ca.pem;
    server {
        listen 127.0.0.1:%%PORT%% ssl http2;
        server_name open.example;
        return 200;
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl http2;
        server_name free.example;
        return 200;
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl http2;
        server_name strict.example;
        ssl_verify_client on;
        return 200;
    }
    }";

/// RFC 9110 §15.5.20: what was agreed on for one name is no agreement for another that asks for a
/// certificate.
#[test]
fn host_that_asks_for_certificates_is_not_reached_by_another_name() -> Result<()> {
    for kind in Kind::both() {
        if binary(kind).is_none() {
            skip("nginx is not installed");
            continue;
        }
        let authority = Authority::new("root")?;
        let [certificate, key] = authority.sign("open.example")?;
        let [own, own_key] = authority.sign("client")?;
        let server = Proxy::new(kind, MISDIRECTED)
            .file("ca.pem", &authority.pem)
            .file("cert.pem", certificate)
            .file("key.pem", key)
            .file("own.pem", own)
            .file("own.key", own_key)
            .log_check(LogCheck::Off)
            .start()?;
        let port = server.port();
        for version in ["--http1.1", "--http2"] {
            for (name, host, expected) in [
                ("open", "open", "200"),
                ("open", "free", "200"),
                ("open", "strict", "421"),
                ("strict", "strict", "200"),
            ] {
                let output = Command::new("curl")
                    .args(["-sk", "--max-time", "60", version])
                    .args(["--cert", "own.pem", "--key", "own.key"])
                    .args(["-o", "/dev/null", "-w", "%{http_code} %{http_version}"])
                    .args(["--resolve", &format!("{name}.example:{port}:127.0.0.1")])
                    .args(["-H", &format!("Host: {host}.example")])
                    .arg(format!("https://{name}.example:{port}/"))
                    .current_dir(server.dir())
                    .output()?;
                let spoken = version.trim_start_matches("--http");
                let told = String::from_utf8(output.stdout)?;
                let what = format!("{kind:?} {name} {host}");
                assert_eq!(told, format!("{expected} {spoken}"), "{what}");
            }
        }
    }
    Ok(())
}

/// RFC 5246 §7.2.2: no_renegotiation; then nginx goes, and so do we.
#[test]
fn client_of_openssl_that_renegotiates_is_refused() -> Result<()> {
    for kind in Kind::both() {
        if binary(kind).is_none() {
            skip("nginx is not installed");
            continue;
        }
        let authority = Authority::new("root")?;
        let [certificate, key] = authority.sign("open.example")?;
        let server = Proxy::new(kind, SLOW)
            .value("BACK", "1")
            .file("cert.pem", certificate)
            .file("key.pem", key)
            .log_check(LogCheck::Off)
            .start()?;
        // The letter is a command. The program ends when its connection does.
        let said = s_client_with(&server, server.port(), (&["-tls1_2"], "R\n"))?;
        assert!(said.contains("RENEGOTIATING"), "{said}");
        assert!(said.contains("no renegotiation"), "{kind:?} {said}");
        // The server goes on.
        let said = s_client_with(
            &server,
            server.port(),
            (&["-tls1_2"], "GET /here HTTP/1.0\r\n\r\n"),
        )?;
        assert!(said.contains("200 OK"), "{kind:?} {said}");
    }
    Ok(())
}
