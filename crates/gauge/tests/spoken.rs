//! The built-in origin, asked in uwsgi and FastCGI by a client by hand, byte by byte as a server's
//! `uwsgi_pass` and `fastcgi_pass` do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use millpond_gauge::origin::{Origin, OriginConf, Spoken};

const VARIABLES: [(&str, &str); 3] = [
    ("REQUEST_URI", "/some/name-100000.bin?a=b"),
    ("REQUEST_METHOD", "GET"),
    ("HTTP_RANGE", "bytes=1000-80999"),
];

/// An origin that is asked in a protocol, and a connection to it.
fn start(spoken: Spoken, change: impl FnOnce(&mut OriginConf)) -> (Origin, TcpStream) {
    let mut conf = OriginConf {
        spoken,
        ..OriginConf::new()
    };
    change(&mut conf);
    let origin = Origin::start(conf).expect("started");
    let stream = TcpStream::connect(origin.address()).expect("connected");
    let timeout = Some(Duration::from_secs(20));
    stream.set_read_timeout(timeout).expect("a timeout");
    (origin, stream)
}

/// Head and body.
fn parts(answer: &[u8]) -> (String, &[u8]) {
    let mut fours = answer.windows(4);
    let end = 4 + fours
        .position(|four| four == b"\r\n\r\n")
        .expect("the end of a head");
    let head = String::from_utf8(answer[..end].to_vec()).expect("text");
    (head, &answer[end..])
}

/// A record of FastCGI.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).expect("short").to_be_bytes();
    [&[1, kind, 0, 9, len[0], len[1], 0, 0], content].concat()
}

/// A request of FastCGI, on a connection that stays.
fn fastcgi_request() -> Vec<u8> {
    let mut params = Vec::new();
    for (name, value) in VARIABLES {
        params.extend([name.len() as u8, value.len() as u8]);
        params.extend([name.as_bytes(), value.as_bytes()].concat());
    }
    let begin = record(1, &[0, 1, 1, 0, 0, 0, 0, 0]);
    [begin, record(4, &params), record(4, &[]), record(5, &[])].concat()
}

/// The answer to a request of FastCGI, and whether its end was told.
fn fastcgi_answer(stream: &mut TcpStream) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut answer = Vec::new();
    loop {
        let mut head = [0; 8];
        if stream.read_exact(&mut head).is_err() {
            return (answer, None);
        }
        assert_eq!((head[0], &head[2..4]), (1, &[0, 9][..]), "version, number");
        let len = u16::from_be_bytes([head[4], head[5]]);
        let mut content = vec![0; usize::from(len) + usize::from(head[6])];
        stream.read_exact(&mut content).expect("the content");
        content.truncate(usize::from(len));
        match head[1] {
            6 => answer.extend(content),
            3 => return (answer, Some(content)),
            other => panic!("a record of type {other}"),
        }
    }
}

#[test]
fn uwsgi_is_answered_as_http_and_ends_the_connection() {
    let (origin, mut stream) = start(Spoken::Uwsgi, |_| {});
    let mut variables = Vec::new();
    for text in VARIABLES.iter().flat_map(|(name, value)| [name, value]) {
        variables.extend(u16::try_from(text.len()).expect("short").to_le_bytes());
        variables.extend(text.as_bytes());
    }
    let size = u16::try_from(variables.len()).expect("short").to_le_bytes();
    let packet = [&[0, size[0], size[1], 0], &variables[..]].concat();
    stream.write_all(&packet).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the end");
    let (head, body) = parts(&answer);
    assert!(
        head.starts_with("HTTP/1.1 206 Partial Content\r\n"),
        "{head}"
    );
    assert!(
        head.contains("Content-Range: bytes 1000-80999/100000\r\n"),
        "{head}"
    );
    assert!(!head.contains("Connection"), "{head}");
    assert_eq!(body.len(), 80_000);
    let asked = origin.asked("/some/name-100000.bin");
    assert_eq!((asked.requests, asked.body_bytes), (1, 80_000));
}

#[test]
fn fastcgi_is_answered_in_records_and_goes_on() {
    let (origin, mut stream) = start(Spoken::Fastcgi, |_| {});
    let mut bodies = Vec::new();
    for _ in 0..2 {
        stream.write_all(&fastcgi_request()).expect("sent");
        let (answer, end) = fastcgi_answer(&mut stream);
        assert_eq!(end.as_deref(), Some(&[0; 8][..]));
        let (head, body) = parts(&answer);
        assert!(
            head.starts_with("Status: 206 Partial Content\r\n"),
            "{head}"
        );
        assert!(head.contains("X-Generation: 0\r\n"), "{head}");
        assert_eq!(body.len(), 80_000);
        bodies.push(body.to_vec());
    }
    assert_eq!(bodies[0], bodies[1]);
    let counts = origin.counts();
    assert_eq!((counts.requests, counts.connections), (2, 1));
}

#[test]
fn failures_are_told_and_cuts_are_not() {
    let (_origin, mut stream) = start(Spoken::Fastcgi, |conf| conf.failures = 1.0);
    stream.write_all(&fastcgi_request()).expect("sent");
    let (answer, end) = fastcgi_answer(&mut stream);
    assert!(parts(&answer).0.starts_with("Status: 503 "), "{answer:?}");
    assert!(end.is_some());
    let (_origin, mut stream) = start(Spoken::Fastcgi, |conf| conf.cuts = 1.0);
    stream.write_all(&fastcgi_request()).expect("sent");
    let (answer, end) = fastcgi_answer(&mut stream);
    assert_eq!((parts(&answer).1.len(), end), (40_000, None));
}
