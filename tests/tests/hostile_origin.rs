//! Origins that misbehave: what comes of their answers is bounded, told to the client, and never
//! stored.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Result;
use millpond_testkit::{Answer, Client, End, Framing, Kind, Origin, Proxy, Request};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m;
    upstream u { server %%ORIGIN%%; keepalive 4; }
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_http_version 1.1;
        proxy_set_header Connection '';
        proxy_read_timeout 5s;
        location / { proxy_pass http://u; }
        location /live/ { proxy_pass http://u/; proxy_buffering off; }
        location /stored/ { proxy_pass http://u/; proxy_cache z; proxy_cache_valid 200 1h; }
    }";

fn start(origin: &Origin) -> Result<Proxy> {
    Proxy::new(Kind::Millpond, CONF).origin(origin).start()
}

/// Statuses that this server never sends of its own are passed on when an origin sends them.
#[test]
fn statuses_of_closed_connections_are_passed_on_from_an_origin() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    for status in [408, 444, 494, 499, 599] {
        origin.route("/odd", Answer::new(status).body("odd"));
        let response = client.get("/odd")?;
        assert_eq!(
            (response.status, response.text()),
            (status, "odd".to_string())
        );
    }
    Ok(())
}

/// An answer that breaks off is given as far as it came, then the connection ends; nobody else
/// gets it.
#[test]
fn a_body_that_breaks_off_is_sent_as_far_as_it_came_and_not_stored() -> Result<()> {
    let origin = Origin::start()?;
    let whole = Answer::new(200).offset_body(100_000, 1);
    origin.route("/length", whole.clone().drop_after(50_000));
    let chunked = whole.framing(Framing::Chunked).drop_after(40_960);
    origin.route("/chunked", chunked);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    origin.route(
        "/coding",
        Answer::raw(format!("{head}5\r\nhello\r\nzz\r\n")),
    );
    origin.route(
        "/extension",
        Answer::raw(format!("{head}5\r\nhello\r\n5;{}", "a".repeat(1 << 20))),
    );
    origin.route(
        "/trailers",
        Answer::raw(format!(
            "{head}5\r\nhello\r\n0\r\n{}",
            "a: b\r\n".repeat(100_000)
        )),
    );
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    for (path, len) in [
        ("/length", 50_000),
        ("/chunked", 40_960),
        ("/coding", 5),
        ("/extension", 5),
        ("/trailers", 5),
    ] {
        for place in ["", "/live", "/stored", "/stored"] {
            origin.forget_requests();
            let response = client.get(&format!("{place}{path}"))?;
            assert_eq!(response.status, 200, "{place}{path}");
            let is_cut = matches!(response.end, End::Truncated(_));
            assert!(is_cut, "{place}{path}: {:?}", response.end);
            assert_eq!(response.body.len(), len, "{place}{path}");
            assert_eq!(origin.requests().len(), 1, "{place}{path}");
        }
    }
    Ok(())
}

/// Heads that are none, or that say two things at once, are a bad gateway.
#[test]
fn heads_that_cannot_be_trusted_are_refused() -> Result<()> {
    let origin = Origin::start()?;
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    for head in [
        "\0\u{1}garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200.5\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200.5 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "hello",
    ] {
        origin.route("/", Answer::raw(head));
        for place in ["/", "/live/", "/stored/"] {
            let response = client.get(place)?;
            assert_eq!(response.status, 502, "{head:?} at {place}");
        }
    }
    Ok(())
}

/// Heads without an end, and interim answers without one, are given up soon.
#[test]
fn heads_without_an_end_are_given_up() -> Result<()> {
    let origin = Origin::start()?;
    let line = "X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(10_000);
    origin.route("/fields", Answer::raw(format!("HTTP/1.1 200 OK\r\n{line}")));
    origin.route("/line", Answer::raw("H".repeat(1_000_000)));
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    origin.route("/interim", Answer::raw(format!("{interim}{last}")));
    let few = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(50);
    origin.route("/few", Answer::raw(format!("{few}{last}")));
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    for (path, status) in [
        ("/fields", 502),
        ("/line", 502),
        ("/interim", 502),
        ("/few", 200),
    ] {
        assert_eq!(client.get(path)?.status, status, "{path}");
    }
    Ok(())
}

/// Bytes behind the announced end are nobody's answer.
#[test]
fn bytes_beyond_the_end_are_not_the_next_answer() -> Result<()> {
    let origin = Origin::start()?;
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    origin.route("/good", Answer::new(200).body("good"));
    let proxy = start(&origin)?;
    let client = Client::new(proxy.port());
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        origin.route("/more", Answer::raw(format!("{head}{evil}")));
        let response = client.get("/more")?;
        assert!(["", "hello"].contains(&&*response.text()), "{head:?}");
        assert_eq!(client.get("/good")?.text(), "good", "{head:?}");
    }
    Ok(())
}

/// A kept connection that dies does not tell whether its request was acted on: one that changes
/// something is not sent again, one that does not is.
#[test]
fn a_post_is_not_repeated_when_a_kept_connection_dies() -> Result<()> {
    for (method, status, count) in [("POST", 502, 1), ("PATCH", 502, 1), ("GET", 200, 2)] {
        let origin = Origin::start()?;
        origin.route("/warm", Answer::new(200).body("warm"));
        let silence = Answer::raw("");
        let answer = Answer::new(200).body("done");
        origin.sequence("/order", vec![silence, answer]);
        let proxy = start(&origin)?;
        let client = Client::new(proxy.port());
        assert_eq!(client.get("/warm")?.text(), "warm");
        origin.forget_requests();
        let mut request = Request::new(method, "/order");
        if method != "GET" {
            request = request.body("one ticket");
        }
        assert_eq!(client.send(&request)?.status, status, "{method}");
        assert_eq!(origin.requests().len(), count, "{method}");
    }
    Ok(())
}

/// Serves connections as an origin that sends a second answer, `pause` after each that it was asked
/// for.
fn serve_twice(listener: &TcpListener, pause: Duration) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        std::thread::spawn(move || answer_twice(stream, pause));
    }
}

fn answer_twice(mut stream: TcpStream, pause: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let answer = |text: &str| {
        let len = text.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{text}")
    };
    let mut head = Vec::new();
    let mut block = [0; 4096];
    loop {
        let count = stream.read(&mut block)?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(&block[..count]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let path = String::from_utf8_lossy(&head)
            .split(' ')
            .nth(1)
            .unwrap_or_default()
            .to_owned();
        head.clear();
        stream.write_all(answer(&path).as_bytes())?;
        if !pause.is_zero() {
            std::thread::park_timeout(pause);
        }
        stream.write_all(answer("evil").as_bytes())?;
    }
}

/// Number of requests of others that get what an origin sends unasked, by the time after which it
/// does: what has come when a request goes out is nobody's answer; what comes later cannot be told
/// from one.
#[test]
#[ignore = "a measurement: what comes while a request is on its way cannot be told from its answer"]
fn second_answers_by_the_time_after_which_they_come() -> Result<()> {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 300;
    for pause in [0, 20, 100, 300, 600, 1000, 2000].map(Duration::from_micros) {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || serve_twice(&listener, pause));
        let origin = Origin::start()?;
        let conf = CONF.replace("%%ORIGIN%%", &address.to_string());
        let proxy = Proxy::new(Kind::Millpond, &conf).origin(&origin).start()?;
        let port = proxy.port();
        let ask = move |client: usize| -> Result<usize> {
            let mut connection = Client::new(port).connect()?;
            let mut evil = 0;
            for number in 0..REQUESTS {
                let path = format!("/{client}/{number}");
                let response = connection.exchange(&Request::get(&path))?;
                evil += usize::from(response.text() != path);
            }
            Ok(evil)
        };
        let clients = (0..CLIENTS).map(|client| std::thread::spawn(move || ask(client)));
        let clients: Vec<_> = clients.collect();
        let mut evil = 0;
        for client in clients {
            evil += client.join().expect("no panic")?;
        }
        println!("{evil} of {} after {pause:?}", CLIENTS * REQUESTS);
    }
    Ok(())
}
