//! Requests that HTTP/2 can carry and HTTP/1 must not see (RFC 9113 §8.2, §8.3, §10.3): each is
//! refused before it is looked up or passed on; and what is allowed arrives as it was meant.
//!
//! Heads are written by hand, in HPACK without a table, so that any bytes may stand in them.

use anyhow::{Context, Result, ensure};
use millpond_testkit::{Answer, Kind, LogCheck, Origin, Proxy};
use millpond_wire::http2::hpack::decode::{Bounds, Decoded, Decoder};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(30);

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
    server {
        listen 127.0.0.1:%%PORT%% http2;
        add_header X-Cache $upstream_cache_status always;
        location / {
            proxy_pass http://%%ORIGIN%%;
            proxy_cache z;
            proxy_cache_valid any 1h;
            proxy_cache_methods GET HEAD POST;
            proxy_cache_key $request_method$host$request_uri$request_body;
        }
    }";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

type Pair = (&'static str, &'static str);

/// A field as the origin is to get it, once or not at all.
type Wanted = (&'static str, Option<&'static str>);

/// A request: its head, its body, and the fields behind that.
#[derive(Clone, Debug)]
struct Sent {
    what: &'static str,
    head: Vec<(Vec<u8>, Vec<u8>)>,
    body: Option<&'static str>,
    trailers: Vec<Pair>,
}

const GET: [Pair; 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "a"),
];

fn sent(what: &'static str, head: &[Pair]) -> Sent {
    let pairs = head.iter();
    Sent {
        what,
        head: pairs
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect(),
        body: None,
        trailers: Vec::new(),
    }
}

/// A GET with more fields.
fn with(what: &'static str, more: &[Pair]) -> Sent {
    sent(what, &[&GET[..], more].concat())
}

/// A GET with another pseudo field, or with none of that name.
fn with_pseudo(what: &'static str, name: &str, value: Option<&'static str>) -> Sent {
    let mut head = GET.to_vec();
    if let Some(at) = head.iter().position(|(it, _)| *it == name) {
        match value {
            Some(value) => head[at].1 = value,
            None => drop(head.remove(at)),
        }
    }
    sent(what, &head)
}

/// A POST with a body.
fn post(what: &'static str, more: &[Pair], body: &'static str) -> Sent {
    let mut head = GET.to_vec();
    head[0].1 = "POST";
    head.extend(more);
    Sent {
        body: Some(body),
        ..sent(what, &head)
    }
}

/// A POST with fields behind its body.
fn trailed(what: &'static str, trailers: &[Pair]) -> Sent {
    Sent {
        trailers: trailers.to_vec(),
        ..post(what, &[], "body")
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let text = |text: &[u8]| [&[text.len() as u8], text].concat();
    [vec![0], text(name), text(value)].concat()
}

/// The end of an exchange.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    status: Option<u16>,
    /// True if the cache was asked.
    is_looked_up: bool,
    /// True if the connection was ended, too.
    is_over: bool,
}

impl Sent {
    fn bytes(&self) -> Vec<u8> {
        let fields = self.head.iter();
        let block: Vec<u8> = fields
            .flat_map(|(name, value)| literal(name, value))
            .collect();
        let flags = match self.body {
            None => END_STREAM,
            Some(_) => 0,
        };
        let mut all = frame(HEADERS, END_HEADERS | flags, 1, &block);
        if let Some(body) = self.body {
            let flags = u8::from(self.trailers.is_empty());
            all.extend(frame(DATA, flags, 1, body.as_bytes()));
        }
        if !self.trailers.is_empty() {
            let mut block = Vec::new();
            for (name, value) in &self.trailers {
                block.extend(literal(name.as_bytes(), value.as_bytes()));
            }
            all.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
        }
        all
    }

    /// Asks on a connection of its own, and reads until the stream has ended.
    fn ask(&self, port: u16) -> Result<Ended> {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(WAIT))?;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let hello = frame(SETTINGS, 0, 0, &[]);
        socket.write_all(&[&preface[..], &hello, &self.bytes()].concat())?;
        let mut ended = Ended {
            status: None,
            is_looked_up: false,
            is_over: false,
        };
        let mut decoder = Decoder::new();
        while let Some((kind, flags, payload)) = read_frame(&mut socket)? {
            match kind {
                HEADERS => read_head(&mut decoder, &payload, &mut ended)?,
                GOAWAY => ended.is_over = true,
                _ => {}
            }
            let is_end = kind <= HEADERS && flags & END_STREAM != 0;
            if is_end || [RST_STREAM, GOAWAY].contains(&kind) {
                break;
            }
        }
        Ok(ended)
    }
}

/// A frame; none at the end of the connection.
fn read_frame(socket: &mut TcpStream) -> Result<Option<(u8, u8, Vec<u8>)>> {
    let mut head = [0; 9];
    match socket.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(error.into()),
        Err(_) => return Ok(None),
    }
    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; len as usize];
    socket.read_exact(&mut payload)?;
    Ok(Some((head[3], head[4], payload)))
}

fn read_head(decoder: &mut Decoder, block: &[u8], ended: &mut Ended) -> Result<()> {
    let bounds = Bounds {
        text: 1 << 16,
        list: 1 << 16,
    };
    let mut sink = |field: Decoded<'_>| match field.name {
        b":status" => {
            let text = std::str::from_utf8(field.value).unwrap_or_default();
            ended.status = text.parse().ok();
        }
        b"x-cache" => ended.is_looked_up = true,
        _ => {}
    };
    decoder.decode(block, bounds, &mut sink)?;
    Ok(())
}

fn start() -> Result<(Origin, Proxy)> {
    let origin = Origin::start()?;
    origin.route("/*", Answer::new(200).body("reached"));
    let proxy = Proxy::new(Kind::Millpond, CONF)
        .origin(&origin)
        .log_check(LogCheck::Off)
        .start()?;
    Ok((origin, proxy))
}

/// Asserts that requests are refused, before a key is made of them and before an origin is asked.
#[track_caller]
fn assert_refused(all: &[Sent], statuses: &[u16]) -> Result<()> {
    let (origin, proxy) = start()?;
    for case in all {
        let ended = case.ask(proxy.port()).context(case.what)?;
        let is_refused = ended.is_over
            || ended.status.is_some_and(|status| statuses.contains(&status))
            // A body that is none may come when nothing can be said any more.
            || (ended.status.is_none() && case.body.is_some());
        ensure!(is_refused, "{}: {ended:?}", case.what);
        ensure!(!ended.is_looked_up, "{}: {ended:?}", case.what);
        let asked = origin.requests();
        ensure!(asked.is_empty(), "{}: {asked:?}", case.what);
    }
    // Nothing of it was kept for those who ask as they should.
    ensure!(with("a good one", &[]).ask(proxy.port())?.status == Some(200));
    ensure!(origin.requests().len() == 1);
    Ok(())
}

/// RFC 9113 §8.2.1.
#[test]
fn names_and_values_that_http1_would_read_otherwise() -> Result<()> {
    let mut all = vec![
        with("a line end in a value", &[("x-a", "1\r\nHost: evil")]),
        with("a line feed in a value", &[("x-a", "1\nHost: evil")]),
        with("a carriage return in a value", &[("x-a", "1\rHost: evil")]),
        with("a line end at the end of a value", &[("x-a", "1\r\n")]),
        with("a NUL in a value", &[("x-a", "1\0")]),
        with("a space before a value", &[("x-a", " 1")]),
        with("a space behind a value", &[("x-a", "1 ")]),
        with("a tab before a value", &[("x-a", "\t1")]),
        with("a tab behind a value", &[("x-a", "1\t")]),
        with("a space in a name", &[("x a", "1")]),
        with("a space behind a name", &[("x-a ", "1")]),
        with("a space before a name", &[(" x-a", "1")]),
        with("a tab in a name", &[("x\ta", "1")]),
        with("a colon behind a name", &[("x-a:", "1")]),
        with("a colon in a name", &[("x:a", "1")]),
        with("a line end in a name", &[("x\r\nhost: evil\r\nb", "1")]),
        with("a line feed in a name", &[("x\na", "1")]),
        with("a carriage return in a name", &[("x\ra", "1")]),
        with("a NUL in a name", &[("x\0a", "1")]),
        with("a control in a name", &[("x\u{1}a", "1")]),
        with("DEL in a name", &[("x\u{7f}a", "1")]),
        with("a capital in a name", &[("X-A", "1")]),
        with("a capital in a known name", &[("Content-length", "0")]),
        with("a name of nothing", &[("", "1")]),
        with("a line end in a cookie", &[("cookie", "a=1\r\nHost: evil")]),
    ];
    let mut beyond = with("a byte beyond ASCII in a name", &[]);
    beyond.head.push((b"x\xffa".to_vec(), b"1".to_vec()));
    all.push(beyond);
    assert_refused(&all, &[400])
}

/// RFC 9113 §8.2.2.
#[test]
fn fields_of_connections() -> Result<()> {
    let all = [
        with("Transfer-Encoding", &[("transfer-encoding", "chunked")]),
        with("another one", &[("transfer-encoding", "identity")]),
        post(
            "Transfer-Encoding of a body",
            &[("transfer-encoding", "chunked")],
            "0\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        with("Connection", &[("connection", "x-a")]),
        with("Connection: close", &[("connection", "close")]),
        with("Keep-Alive", &[("keep-alive", "timeout=5")]),
        with("Proxy-Connection", &[("proxy-connection", "close")]),
        with("Upgrade", &[("upgrade", "h2c")]),
        with("TE", &[("te", "gzip")]),
        with("TE with more", &[("te", "trailers, gzip")]),
        with("TE twice", &[("te", "trailers"), ("te", "trailers")]),
    ];
    assert_refused(&all, &[400])
}

/// RFC 9113 §8.3.1.
#[test]
fn hosts_that_two_parties_could_read_in_two_ways() -> Result<()> {
    let no_authority = |what, hosts: &[Pair]| {
        let mut head = GET[..3].to_vec();
        head.extend(hosts);
        sent(what, &head)
    };
    let all = [
        with("another Host", &[("host", "evil")]),
        with("a second Host", &[("host", "a"), ("host", "evil")]),
        with("the same Host twice", &[("host", "a"), ("host", "a")]),
        no_authority("two Hosts", &[("host", "a"), ("host", "b")]),
        no_authority("one Host twice", &[("host", "a"), ("host", "a")]),
        no_authority("no host", &[]),
        no_authority("an empty Host", &[("host", "")]),
        with_pseudo("an empty authority", ":authority", Some("")),
        with_pseudo("a space in an authority", ":authority", Some("a b")),
        with_pseudo("a path in an authority", ":authority", Some("a/b")),
        with_pseudo("a user in an authority", ":authority", Some("user@a")),
        with_pseudo("a line end", ":authority", Some("a\r\nx: y")),
        with_pseudo("a list of authorities", ":authority", Some("a, b")),
    ];
    assert_refused(&all, &[400])
}

/// RFC 9113 §8.3, §8.3.1, §8.5.
#[test]
fn pseudo_fields_that_are_no_request_line() -> Result<()> {
    let connect = |what, more: &[Pair]| {
        let head = [&[(":method", "CONNECT"), (":authority", "a:1")], more].concat();
        sent(what, &head)
    };
    let rest = [(":scheme", "http"), (":path", "/")];
    let mut all = vec![
        with_pseudo("an empty path", ":path", Some("")),
        with_pseudo("no path", ":path", None),
        with_pseudo("a path that is relative", ":path", Some("a")),
        with_pseudo("a path that is a URI", ":path", Some("http://evil/")),
        with_pseudo("a space in a path", ":path", Some("/a b")),
        with_pseudo("a request in a path", ":path", Some("/ HTTP/1.1\r\nx: y")),
        with_pseudo("a line feed in a path", ":path", Some("/a\nb")),
        with_pseudo("a tab in a path", ":path", Some("/a\tb")),
        with_pseudo("a NUL in a path", ":path", Some("/a\0")),
        with_pseudo("a fragment", ":path", Some("/a#b")),
        with_pseudo("a fragment of a query", ":path", Some("/a?b#c")),
        with_pseudo("a star for a path", ":path", Some("*")),
        sent(
            "a star for the path of OPTIONS",
            &[
                (":method", "OPTIONS"),
                (":scheme", "http"),
                (":path", "*"),
                (":authority", "a"),
            ],
        ),
        with_pseudo("no method", ":method", None),
        with_pseudo("an empty method", ":method", Some("")),
        with_pseudo("a method in small letters", ":method", Some("get")),
        with_pseudo("a space in a method", ":method", Some("GET /evil")),
        with_pseudo("a line end in a method", ":method", Some("GET\r\n")),
        with_pseudo("no scheme", ":scheme", None),
        with_pseudo("an empty scheme", ":scheme", Some("")),
        with_pseudo("a line end in a scheme", ":scheme", Some("http\r\n")),
        with_pseudo("a scheme that is none", ":scheme", Some("http://a/?")),
        with("a pseudo field that is not known", &[(":other", "1")]),
        with("that of an answer", &[(":status", "200")]),
        with("a protocol without CONNECT", &[(":protocol", "websocket")]),
        connect("CONNECT", &[]),
        connect("CONNECT with a path", &rest),
        connect(
            "CONNECT of a protocol that is not known",
            &[rest[0], rest[1], (":protocol", "x")],
        ),
        connect(
            "CONNECT of a protocol without a path",
            &[(":protocol", "websocket")],
        ),
        sent("CONNECT without an authority", &[(":method", "CONNECT")]),
    ];
    for pair in GET {
        all.push(with("a pseudo field twice", &[pair]));
        all.push(with("a pseudo field behind a field", &[("x-a", "1"), pair]));
    }
    // nginx's answers to methods that are not allowed, and to protocols that are not there.
    assert_refused(&all, &[400, 405, 501])
}

/// RFC 9113 §8.1.1.
#[test]
fn lengths_that_lie() -> Result<()> {
    let smuggled = "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";
    let length = |value: &'static str| [("content-length", value)];
    let all = [
        with("a length without a body", &length("5")),
        with("a sign", &length("+0")),
        with("a minus", &length("-1")),
        with("a list", &length("0, 0")),
        with("another base", &length("0x0")),
        with("two numbers", &length("0 0")),
        with("nothing", &length("")),
        with("too large a number", &length("18446744073709551616")),
        post("a body that is longer", &length("4"), smuggled),
        post("a body that is shorter", &length("4"), "two"),
        post("a body where there is none", &length("0"), smuggled),
        post("no number", &length("four"), "four"),
        post(
            "the same length twice",
            &[("content-length", "4"), ("content-length", "4")],
            "four",
        ),
        post(
            "two lengths",
            &[("content-length", "4"), ("content-length", "0")],
            "four",
        ),
        Sent {
            trailers: vec![("x-a", "1")],
            ..post("a shorter body, and trailers", &length("9"), "four")
        },
    ];
    assert_refused(&all, &[400])
}

/// RFC 9113 §8.1, §8.2, §8.3: trailers are fields like others, and have no pseudo fields.
#[test]
fn trailers_that_are_none() -> Result<()> {
    let all = [
        trailed("a pseudo field", &[(":path", "/evil")]),
        trailed("the status", &[(":status", "200")]),
        trailed(
            "a pseudo field behind others",
            &[("x-a", "1"), (":path", "/")],
        ),
        trailed(
            "a field of connections",
            &[("transfer-encoding", "chunked")],
        ),
        trailed("another one", &[("connection", "close")]),
        trailed("a capital", &[("X-A", "1")]),
        trailed("a colon", &[("x:a", "1")]),
        trailed("a space", &[("x a", "1")]),
        trailed("a line end", &[("x-a", "1\r\nHost: evil")]),
        trailed("a NUL", &[("x-a", "1\0")]),
        trailed("a length that is none", &[("content-length", "four")]),
    ];
    assert_refused(&all, &[400])
}

/// A request that is allowed comes to the origin as it was meant: once, in HTTP/1's words.
#[test]
fn what_is_allowed_arrives_as_it_was_meant() -> Result<()> {
    let (origin, proxy) = start()?;
    let path = |path: &'static str| with_pseudo("a path", ":path", Some(path));
    let mut host = sent("a Host and no authority", &GET[..3]);
    host.head.push((b"host".to_vec(), b"a".to_vec()));
    let cases: Vec<(Sent, &str, Vec<Wanted>)> = vec![
        (
            with(
                "crumbs of a cookie (RFC 9113 section 8.2.3)",
                &[
                    ("cookie", "a=1"),
                    ("x-a", "1"),
                    ("cookie", "b=2"),
                    ("cookie", "c"),
                ],
            ),
            "/",
            vec![("Cookie", Some("a=1; b=2; c")), ("X-A", Some("1"))],
        ),
        (with("TE: trailers", &[("te", "trailers")]), "/", vec![]),
        (with("the same Host", &[("host", "a")]), "/", vec![]),
        (host, "/", vec![]),
        (
            with("spaces and commas within a value", &[("x-a", "a, b\tc")]),
            "/",
            vec![("X-A", Some("a, b\tc"))],
        ),
        (
            path("/a?b c".split(' ').next().unwrap_or_default()),
            "/a?b",
            vec![],
        ),
        (
            post("a body of its length", &[("content-length", "4")], "four"),
            "/",
            vec![("Content-Length", Some("4")), ("Transfer-Encoding", None)],
        ),
        (
            post("a body without a length", &[], "some"),
            "/",
            vec![("Content-Length", Some("4")), ("Transfer-Encoding", None)],
        ),
        (
            trailed("a body with trailers", &[("x-sum", "1")]),
            "/",
            vec![("Content-Length", Some("4")), ("X-Sum", None)],
        ),
    ];
    for (mut case, target, fields) in cases {
        // Each is asked for, and not had.
        let (origin_before, what) = (origin.requests().len(), case.what);
        let number = format!("a{origin_before}");
        for (name, value) in &mut case.head {
            if [&b":authority"[..], b"host"].contains(&&name[..]) {
                *value = number.clone().into_bytes();
            }
        }
        let ended = case.ask(proxy.port()).context(what)?;
        ensure!(ended.status == Some(200), "{what}: {ended:?}");
        let asked = origin.requests();
        ensure!(asked.len() == origin_before + 1, "{what}: {asked:?}");
        let last = asked.last().context("nothing was asked")?;
        ensure!(last.target == target, "{what}: {}", last.target);
        for (name, value) in fields {
            let all: Vec<_> = last.headers.all(name).collect();
            let expected: Vec<_> = value.into_iter().collect();
            ensure!(all == expected, "{what}: {name} {all:?}");
        }
    }
    Ok(())
}
