//! `ssl_early_data`: what a client sends before the handshake is over, what somebody sends again
//! who has heard it, and what proxies tell each other of it (RFC 8446 §8, RFC 8470).

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Client, Deadline, Gate, Kind, LogCheck, Origin, Proxy, Request};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use super::kit::{Authority, Encrypted, WAIT, ask, client_config, encrypted, read_to};

const CONF: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_early_data (state);
        proxy_set_header X-Early '[$ssl_early_data]';
        location / { proxy_pass http://%%ORIGIN%%; }
        location /here { return 200 (state).; }
    }";

/// A client that has got a ticket.
struct Visitor {
    config: Arc<ClientConfig>,
    port: u16,
}

impl Visitor {
    fn new(authority: &Authority, port: u16) -> Result<Visitor> {
        let mut config = Arc::unwrap_or_clone(client_config(authority, None)?);
        config.enable_early_data = true;
        let visitor = Visitor {
            config: Arc::new(config),
            port,
        };
        visitor.look()?;
        Ok(visitor)
    }

    /// A visit, which brings tickets, and behind which the one worker has seen what came before.
    fn look(&self) -> Result<()> {
        let mut stream = encrypted(&self.config, self.port, "a.example")?;
        ask(&mut stream, "GET /here HTTP/1.0\r\n\r\n", ".")?;
        Ok(())
    }

    /// A connection that has not begun, and its first flight with this in it.
    fn flight(&self, early: &str) -> Result<(ClientConnection, Vec<u8>)> {
        let name = ServerName::try_from("a.example")?;
        let mut client = ClientConnection::new(Arc::clone(&self.config), name)?;
        let mut writer = client.early_data().context("no session to begin with")?;
        writer.write_all(early.as_bytes())?;
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight)?;
        }
        Ok((client, flight))
    }

    /// Sends a flight, and waits until it is answered; reads nothing.
    fn send(&self, flight: &[u8]) -> Result<TcpStream> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_read_timeout(Some(WAIT))?;
        socket.write_all(flight)?;
        ensure!(socket.peek(&mut [0])? > 0, "no answer");
        Ok(socket)
    }
}

/// Ends the handshake of a connection.
fn finish(client: ClientConnection, socket: TcpStream) -> Result<Encrypted> {
    let mut stream = StreamOwned::new(client, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

fn start(origin: &Origin) -> Result<(Proxy, Authority)> {
    let authority = Authority::new("root")?;
    let [certificate, key] = authority.sign("a.example")?;
    origin.route("/*", Answer::new(200).body("served."));
    let server = Proxy::new(Kind::Millpond, &CONF.replace("(state)", "on"))
        .origin(origin)
        .file("cert.pem", certificate)
        .file("key.pem", key)
        .log_check(LogCheck::Off)
        .start()?;
    Ok((server, authority))
}

/// RFC 8470 §3: what may be a replay waits for the end of the handshake, which nobody who only
/// repeats it can bring about. What is not safe to repeat is no exception.
#[test]
fn early_request_reaches_the_origin_once_however_often_it_is_sent() -> Result<()> {
    let origin = Origin::start()?;
    let (server, authority) = start(&origin)?;
    let visitor = Visitor::new(&authority, server.port())?;
    for (method, rest) in [
        ("GET", "\r\n"),
        ("POST", "Content-Length: 4\r\n\r\nbody"),
        ("PUT", "Content-Length: 4\r\n\r\nbody"),
        ("PURGE", "\r\n"),
    ] {
        origin.forget_requests();
        let request = format!("{method} /page HTTP/1.1\r\nHost: a.example\r\n{rest}");
        let (client, flight) = visitor.flight(&request)?;
        let own = visitor.send(&flight)?;
        let replay = visitor.send(&flight)?;
        visitor.look()?;
        assert!(origin.requests().is_empty(), "{method}: a replay is served");
        let mut stream = finish(client, own)?;
        assert!(stream.conn.is_early_data_accepted(), "{method}");
        read_to(&mut stream, "served.")?;
        let late = visitor.send(&flight)?;
        visitor.look()?;
        let requests = origin.requests();
        assert_eq!(requests.len(), 1, "{method}");
        let only = requests.first().context("a request")?;
        // It is nothing that the origin has to be told of.
        assert_eq!(only.header("Early-Data"), None, "{method}");
        assert_eq!(only.header("X-Early"), Some("[]"), "{method}");
        drop((replay, late));
    }
    Ok(())
}

/// Somebody is faster than the client whose flight it is: the client is told to say it again.
#[test]
fn client_whose_flight_was_stolen_is_served_once() -> Result<()> {
    let origin = Origin::start()?;
    let (server, authority) = start(&origin)?;
    let visitor = Visitor::new(&authority, server.port())?;
    let request = "POST /page HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nbody";
    let (client, flight) = visitor.flight(request)?;
    let _thief = visitor.send(&flight)?;
    let mut stream = finish(client, visitor.send(&flight)?)?;
    assert!(!stream.conn.is_early_data_accepted());
    assert!(origin.requests().is_empty());
    ask(&mut stream, request, "served.")?;
    assert_eq!(origin.requests().len(), 1);
    Ok(())
}

/// RFC 8446 §4.2.10: early data that is not taken is skipped, and the handshake goes on.
#[test]
fn early_data_is_skipped_where_it_is_not_wanted() -> Result<()> {
    let origin = Origin::start()?;
    let (mut server, authority) = start(&origin)?;
    let visitor = Visitor::new(&authority, server.port())?;
    let request = "GET /page HTTP/1.1\r\nHost: a.example\r\n\r\n";
    // More than one record; rustls skips 4096 bytes where nothing says how many there may be.
    let long = format!(
        "GET /page?{} HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "x".repeat(3000)
    );
    let flights = [visitor.flight(request)?, visitor.flight(&long)?];
    server.set_conf(&CONF.replace("(state)", "off"))?;
    server.reload()?;
    let config = client_config(&authority, None)?;
    let is_off = || {
        let mut stream = encrypted(&config, server.port(), "a.example").ok()?;
        let told = ask(&mut stream, "GET /here HTTP/1.0\r\n\r\n", ".").ok()?;
        told.ends_with("off.").then_some(())
    };
    Deadline::after(WAIT)
        .poll(is_off)
        .context("the new configuration")?;
    for (client, flight) in flights {
        origin.forget_requests();
        let mut stream = finish(client, visitor.send(&flight)?)?;
        assert!(!stream.conn.is_early_data_accepted());
        assert!(origin.requests().is_empty());
        ask(&mut stream, request, "served.")?;
        assert_eq!(origin.requests().len(), 1);
    }
    Ok(())
}

const BETWEEN: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_cache z;
        proxy_cache_valid 200 1h;
        proxy_cache_lock on;
        add_header X-Cache $upstream_cache_status always;
        location / { proxy_pass http://%%ORIGIN%%; }
    }";

/// RFC 8470 §5: who stands in between leaves the field as it is, and hands the answer 425 to the
/// one that has sent it; §5.2: nobody else is told 425, and it is not stored.
#[test]
fn answer_too_early_is_for_those_who_were() -> Result<()> {
    let origin = Origin::start()?;
    let gate = Gate::new();
    let held = gate.clone();
    origin.answer_with("/*", move |request| match request.header("Early-Data") {
        Some("1") => Answer::new(425).hold_head(&held),
        _ => Answer::new(200).body("served"),
    });
    let front = Proxy::new(Kind::Millpond, BETWEEN)
        .origin(&origin)
        .start()?;
    let early = Request::get("/page").header("Early-Data", "1");
    let port = front.port();
    let first = thread::spawn(move || Client::new(port).send(&early));
    origin.wait_for_requests(1)?;
    let waiting = thread::spawn(move || Client::new(port).get("/page"));
    // It waits for the first one, or asks by itself; either way it is answered.
    gate.open();
    let told = first.join().ok().context("a thread")??;
    assert_eq!((told.status, told.header("X-Cache")), (425, Some("MISS")));
    let other = waiting.join().ok().context("a thread")??;
    assert_eq!((other.status, other.text().as_str()), (200, "served"));
    // What is stored is not asked for, early or not.
    for _ in 0..2 {
        let again = Request::get("/page").header("Early-Data", "1");
        let answer = Client::new(port).send(&again)?;
        assert_eq!(
            (answer.status, answer.header("X-Cache")),
            (200, Some("HIT"))
        );
    }
    Ok(())
}
