//! Origins of HTTP/2 that attack: each is refused by the sentence of the RFC that it breaks, tells
//! nobody else's answer, and costs no more than its connection.
//!
//! A case is the bytes that an origin sends as its answer. Before an answer's head they are a bad
//! gateway, behind it they cut the body, which is not stored.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use millpond_testkit::{Client, Deadline, Kind, Proxy, Request, read_until};
use millpond_wire::http2::{Code, Config, End, Event, Gone};

use super::peer::{Peer, WAIT, block, frame};

const CONF: &str = "
    proxy_cache_path %%DIR%%/cache keys_zone=z:1m max_size=64m;
    upstream kept { server 127.0.0.1:%%PEER%%; keepalive 4; }
    upstream lines { server 127.0.0.1:%%PEER%%; keepalive 4; keepalive_streams 8; }
    server {
        listen 127.0.0.1:%%PORT%%;
        proxy_http_version 2;
        client_max_body_size 0;
        location / { proxy_pass http://127.0.0.1:%%PEER%%; }
        location /kept/ { proxy_pass http://kept/; }
        location /lines/ { proxy_pass http://lines/; }
        location /pkg. { grpc_pass grpc://127.0.0.1:%%PEER%%; }
        location /stored/ {
            proxy_pass http://127.0.0.1:%%PEER%%/;
            proxy_cache z;
            proxy_cache_valid 200 204 1h;
        }
        location /live/ {
            proxy_pass http://kept/;
            proxy_request_buffering off;
            proxy_send_timeout 500ms;
            proxy_read_timeout 500ms;
        }
        location /live-lines/ {
            proxy_pass http://lines/;
            proxy_request_buffering off;
            proxy_send_timeout 500ms;
            proxy_read_timeout 500ms;
        }
        location /hasty/ { proxy_pass http://kept/; proxy_read_timeout 300ms; }
    }";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
/// RFC 9218 §7.1.
const PRIORITY_UPDATE: u8 = 16;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

const OK: (&str, &str) = (":status", "200");

/// Bytes at the end of a case behind which the origin closes.
const CLOSE: &[u8] = b"(the end)";

/// A word of the proxy to an origin that it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// GOAWAY.
    Leave(Code),
    /// RST_STREAM.
    Reset(Code),
}

/// An attack of an origin.
struct Case {
    /// The sentence that is broken.
    rule: &'static str,
    bytes: Vec<u8>,
    /// Words of the log.
    text: &'static str,
    /// The word that the origin is told, if it can still read it.
    word: Option<Word>,
}

impl Case {
    /// A fault that ends the connection (RFC 9113 §5.4.1).
    fn ends(rule: &'static str, bytes: Vec<u8>, text: &'static str, code: Code) -> Case {
        let word = Some(Word::Leave(code));
        Case {
            rule,
            bytes,
            text,
            word,
        }
    }

    /// A fault that ends the stream (RFC 9113 §5.4.2).
    fn resets(rule: &'static str, bytes: Vec<u8>, text: &'static str, code: Code) -> Case {
        let word = Some(Word::Reset(code));
        Case {
            rule,
            bytes,
            text,
            word,
        }
    }

    /// The end of the connection behind these bytes.
    fn closes(rule: &'static str, bytes: &[u8], text: &'static str) -> Case {
        let word = None;
        Case {
            rule,
            bytes: [bytes, CLOSE].concat(),
            text,
            word,
        }
    }

    /// More than is read: the connection is closed while the origin writes.
    fn floods(rule: &'static str, bytes: Vec<u8>, text: &'static str) -> Case {
        let word = None;
        Case {
            rule,
            bytes,
            text,
            word,
        }
    }
}

/// An origin that answers by the bytes of cases, and by its path where that names none.
struct Attacker {
    peer: Peer,
    words: Arc<Mutex<HashMap<usize, Vec<Word>>>>,
}

impl Attacker {
    /// Each answer begins with these bytes.
    fn start(prefix: &[u8], cases: &[Case]) -> Result<Attacker> {
        let answer_of = |case: &Case| [prefix, &case.bytes].concat();
        let answers: Vec<Vec<u8>> = cases.iter().map(answer_of).collect();
        let words: Arc<Mutex<HashMap<usize, Vec<Word>>>> = Arc::default();
        let on_thread = Arc::clone(&words);
        let peer = Peer::start(Config::default(), move |talk, heard| {
            let Some(number) = number_of(heard.path()) else {
                talk.body(heard.stream)?;
                return talk.answer(heard.stream, &[], heard.path().to_owned());
            };
            // Frames about a stream of a kept connection are about the first one.
            ensure!(
                heard.stream == 1,
                "a second request on an attacker's connection"
            );
            // It may be closed in the middle.
            let (bytes, is_last) = match answers[number].strip_suffix(CLOSE) {
                Some(bytes) => (bytes, true),
                None => (&answers[number][..], false),
            };
            let _ = talk.socket.write_all(bytes);
            ensure!(!is_last, "the end");
            loop {
                let word = match talk.next()? {
                    Event::GoneAway { code, .. } => Word::Leave(code),
                    Event::Gone {
                        why: Gone::ByPeer(code),
                        ..
                    } => Word::Reset(code),
                    Event::Request { .. } => bail!("a second request"),
                    _ => continue,
                };
                let mut words = on_thread.lock().unwrap_or_else(PoisonError::into_inner);
                words.entry(number).or_default().push(word);
                ensure!(
                    !matches!(word, Word::Reset(_)),
                    "a connection for each case"
                );
            }
        })?;
        Ok(Attacker { peer, words })
    }

    fn words(&self, number: usize) -> Vec<Word> {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.get(&number).cloned().unwrap_or_default()
    }

    /// Waits until the origin was told this.
    fn wait_for(&self, number: usize, case: &Case) -> Result<()> {
        let Some(word) = case.word else {
            return Ok(());
        };
        let is_told = || self.words(number).contains(&word).then_some(());
        let waited = Deadline::after(WAIT).poll(is_told);
        waited.with_context(|| format!("{}: {word:?}, not {:?}", case.rule, self.words(number)))
    }
}

/// The number of the case that a path asks for.
fn number_of(path: &str) -> Option<usize> {
    path.rsplit('/').next()?.parse().ok()
}

/// Waits for a line of the error log about a request that says this.
fn wait_for_line(proxy: &Proxy, target: &str, case: &Case) -> Result<()> {
    let request = format!("{target} HTTP/");
    let is_told = || {
        let log = proxy.error_log();
        let mut lines = log.lines().filter(|line| line.contains(&request));
        lines.any(|line| line.contains(case.text)).then_some(())
    };
    let waited = Deadline::after(WAIT).poll(is_told);
    waited.with_context(|| {
        let log = proxy.error_log();
        let lines: Vec<_> = log.lines().filter(|line| line.contains(&request)).collect();
        format!(
            "{} at {target}: no {:?} in {lines:#?}",
            case.rule, case.text
        )
    })
}

/// Memory that attacks may leave behind (arbitrary: a part of what a flood sends).
const LEFT_BEHIND: u64 = 24 << 20;

/// Memory that the proxy has, in bytes.
fn resident(proxy: &Proxy) -> Result<u64> {
    let pid = proxy.pid().context("a process")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.context("VmRSS")?.parse::<u64>()? * 1024)
}

/// Asserts that attacks have left little behind.
fn assert_bounded(proxy: &Proxy, before: u64) -> Result<()> {
    let grown = resident(proxy)?.saturating_sub(before);
    assert!(grown < LEFT_BEHIND, "{grown} bytes more");
    Ok(())
}

/// Asserts that a case is a bad gateway wherever it is asked for, and that others are served.
fn assert_refused(cases: &[Case]) -> Result<()> {
    let attacker = Attacker::start(b"", cases)?;
    let proxy = attacker.peer.proxy_of(Kind::Millpond, CONF)?;
    let client = Client::new(proxy.port());
    assert_eq!(client.get("/good")?.text(), "/good");
    let before = resident(&proxy)?;
    for (number, case) in cases.iter().enumerate() {
        for place in ["/", "/lines/", "/pkg.S/", "/stored/"] {
            let target = format!("{place}{number}");
            let response = client.get(&target).context(case.rule)?;
            assert_eq!(response.status, 502, "{} at {target}", case.rule);
            wait_for_line(&proxy, &target, case)?;
        }
        attacker.wait_for(number, case)?;
        assert_eq!(client.get("/good")?.text(), "/good", "{}", case.rule);
    }
    assert_bounded(&proxy, before)
}

/// Asserts that a case cuts a body of which three bytes have come, and that it is not stored.
fn assert_cuts(cases: &[Case], head: &[(&str, &str)]) -> Result<()> {
    let head = frame(HEADERS, END_HEADERS, 1, &block(head));
    let prefix = [head, frame(DATA, 0, 1, b"abc")].concat();
    let attacker = Attacker::start(&prefix, cases)?;
    let proxy = attacker.peer.proxy_of(Kind::Millpond, CONF)?;
    let client = Client::new(proxy.port());
    assert_eq!(client.get("/good")?.text(), "/good");
    let before = resident(&proxy)?;
    for (number, case) in cases.iter().enumerate() {
        for place in ["/", "/lines/", "/stored/", "/stored/"] {
            let target = format!("{place}{number}");
            let before = attacker.peer.heard().len();
            let response = client.get(&target).context(case.rule)?;
            // What comes with the head may be seen before that goes out.
            let is_refused = response.status == 502;
            assert!(
                is_refused || !response.is_complete(),
                "{} at {target}",
                case.rule
            );
            assert!(
                attacker.peer.heard().len() > before,
                "{} at {target}: stored",
                case.rule
            );
            wait_for_line(&proxy, &target, case)?;
        }
        attacker.wait_for(number, case)?;
        assert_eq!(client.get("/good")?.text(), "/good", "{}", case.rule);
    }
    assert_bounded(&proxy, before)
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &payload)
}

fn number(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

/// Faults that end the connection by PROTOCOL_ERROR, all with the same words in the log.
fn ends_by_protocol<const COUNT: usize>(
    text: &'static str,
    cases: [(&'static str, Vec<u8>); COUNT],
) -> impl Iterator<Item = Case> {
    let cases = cases.into_iter();
    cases.map(move |(rule, bytes)| Case::ends(rule, bytes, text, Code::PROTOCOL_ERROR))
}

/// Frames for streams that there are not.
fn faults_of_streams() -> Vec<Case> {
    let head = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(&[OK]));
    let idle = [
        ("§5.1 HEADERS on an idle stream", head(3)),
        ("§5.1 DATA on an idle stream", frame(DATA, 0, 9, b"x")),
        ("§5.1 RST_STREAM", frame(RST_STREAM, 0, 3, &number(8))),
        ("§5.1 WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 3, &number(1))),
        ("§5.1.1 a stream of the server's own", head(2)),
        ("§5.1.1 DATA on an even stream", frame(DATA, 0, 2, b"x")),
    ];
    let misplaced = [
        ("§6.1 DATA on stream 0", frame(DATA, 0, 0, b"x")),
        ("§6.2 HEADERS on stream 0", head(0)),
        ("§6.3 PRIORITY on stream 0", frame(PRIORITY, 0, 0, &[0; 5])),
        ("§6.4 RST_STREAM", frame(RST_STREAM, 0, 0, &number(8))),
        ("§6.5 SETTINGS with a stream", frame(SETTINGS, 0, 1, &[])),
        ("§6.7 PING with a stream", frame(PING, 0, 1, &[0; 8])),
        ("§6.8 GOAWAY with a stream", frame(GOAWAY, 0, 1, &[0; 8])),
    ];
    ends_by_protocol("frame for an idle stream", idle)
        .chain(ends_by_protocol(
            "frame with incorrect identifier",
            misplaced,
        ))
        .collect()
}

/// Frames of a wrong length.
fn faults_of_lengths() -> Vec<Case> {
    let cases = [
        ("§6.4 of RST_STREAM", frame(RST_STREAM, 0, 1, &[0; 3])),
        ("§6.5 of SETTINGS", frame(SETTINGS, 0, 0, &[0; 5])),
        ("§6.5 a payload of ACK", frame(SETTINGS, ACK, 0, &[0; 6])),
        ("§6.7 of PING", frame(PING, 0, 0, &[0; 7])),
        ("§6.9 of WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0; 3])),
    ];
    let longest = frame(DATA, 0, 1, &[0; 16_385]);
    let (code, too_long) = (Code::FRAME_SIZE_ERROR, "longer than its maximum");
    cases
        .into_iter()
        .map(|(rule, bytes)| Case::ends(rule, bytes, "frame with incorrect length", code))
        .chain([Case::ends(
            "§4.2 above the maximum",
            longest,
            too_long,
            code,
        )])
        .collect()
}

/// Values that are none.
fn faults_of_values() -> Vec<Case> {
    let padded = [
        (
            "§6.1 padding of DATA",
            frame(DATA, PADDED, 1, &[4, 0, 0, 0]),
        ),
        (
            "§6.2 padding of HEADERS",
            frame(HEADERS, 5 | PADDED, 1, &[9, 0x88]),
        ),
    ];
    let settings = [
        ("§6.5.2 a server that enables push", setting(2, 1)),
        ("§6.5.2 SETTINGS_ENABLE_PUSH of 2", setting(2, 2)),
        (
            "§6.5.2 SETTINGS_MAX_FRAME_SIZE below 2^14",
            setting(5, 16_383),
        ),
        (
            "§6.5.2 SETTINGS_MAX_FRAME_SIZE above 2^24-1",
            setting(5, 1 << 24),
        ),
    ];
    let still = [(
        "§6.9 an increment of 0",
        frame(WINDOW_UPDATE, 0, 0, &number(0)),
    )];
    let grown = frame(WINDOW_UPDATE, 0, 0, &number(0x7fff_ffff));
    let flow = Code::FLOW_CONTROL_ERROR;
    let windows = [
        Case::ends(
            "§6.5.2 a window above 2^31-1",
            setting(4, 1 << 31),
            "WINDOW_SIZE",
            flow,
        ),
        Case::ends(
            "§6.9.1 a window above 2^31-1",
            grown,
            "violates flow control",
            flow,
        ),
    ];
    ends_by_protocol("padded frame", padded)
        .chain(ends_by_protocol(
            "SETTINGS frame with incorrect value",
            settings,
        ))
        .chain(ends_by_protocol("window increment 0", still))
        .chain(windows)
        .collect()
}

/// Frames where they may not stand.
fn faults_of_order() -> Vec<Case> {
    let begun = frame(HEADERS, END_STREAM, 1, &[0x88]);
    let within = |next: Vec<u8>| [begun.clone(), next].concat();
    let pushed = frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]);
    let update = frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1");
    let blocks = [
        (
            "§6.2 a frame in a block",
            within(frame(PING, 0, 0, &[0; 8])),
        ),
        (
            "§6.10 of another stream",
            within(frame(CONTINUATION, 4, 3, &[])),
        ),
    ];
    let nothing = [(
        "§6.10 CONTINUATION of nothing",
        frame(CONTINUATION, 4, 1, &[0x88]),
    )];
    let push = [("§6.6, §8.4 PUSH_PROMISE though it is disabled", pushed)];
    let updates = [("RFC 9218 §7.1 PRIORITY_UPDATE of a server", update)];
    ends_by_protocol("inappropriate frame", blocks)
        .chain(ends_by_protocol("unexpected CONTINUATION", nothing))
        .chain(ends_by_protocol("unexpected push promise", push))
        .chain(ends_by_protocol("PRIORITY_UPDATE", updates))
        .collect()
}

/// Frames of a wrong shape, at a wrong place, or with values that there are not.
fn faults_of_frames() -> Vec<Case> {
    let all = [
        faults_of_streams(),
        faults_of_lengths(),
        faults_of_values(),
        faults_of_order(),
    ];
    all.into_iter().flatten().collect()
}

/// RFC 9113 §5.4.1: an error of the connection ends it, with a GOAWAY that says which.
#[test]
fn frames_that_break_the_connection_are_a_bad_gateway() -> Result<()> {
    assert_refused(&faults_of_frames())
}

/// The same behind a head: the body has been cut, whatever came of it.
#[test]
fn frames_that_break_the_connection_cut_the_body() -> Result<()> {
    assert_cuts(&faults_of_frames(), &[OK])
}

/// RFC 9113 §5.4.2: an error of the stream resets it.
#[test]
fn frames_that_break_the_stream_are_a_bad_gateway() -> Result<()> {
    let protocol = Code::PROTOCOL_ERROR;
    assert_refused(&[
        Case::resets(
            "§6.9 an increment of 0",
            frame(WINDOW_UPDATE, 0, 1, &number(0)),
            "window increment 0",
            protocol,
        ),
        Case::resets(
            "§8.1 DATA before the head",
            frame(DATA, 0, 1, b"x"),
            "invalid header",
            protocol,
        ),
    ])
}

fn head(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(fields))
}

/// Fields that no answer has, behind its status.
const BAD_FIELDS: [(&str, &str, &str); 18] = [
    ("§8.2.1 a name in capitals", "X-A", "1"),
    ("§8.2.1 a name with a space", "x a", "1"),
    ("§8.2.1 a name with a control", "x\u{7f}", "1"),
    ("§8.2.1 a colon in a name", "x:", "1"),
    ("§8.2.1 NUL in a value", "x-a", "a\0b"),
    ("§8.2.1 CR in a value", "x-a", "a\rb"),
    ("§8.2.1 LF in a value", "x-a", "a\nset-cookie: b"),
    ("§8.2.1 a space at the begin", "x-a", " a"),
    ("§8.2.1 a tab at the end", "x-a", "a\t"),
    ("§8.2.2 connection", "connection", "x-a"),
    ("§8.2.2 keep-alive", "keep-alive", "1"),
    ("§8.2.2 proxy-connection", "proxy-connection", "close"),
    ("§8.2.2 transfer-encoding", "transfer-encoding", "chunked"),
    ("§8.2.2 upgrade", "upgrade", "h2c"),
    ("§8.3 a pseudo field of requests", ":path", "/"),
    ("§8.1.1 no number", "content-length", "1x"),
    ("§8.1.1 a sign", "content-length", "+0"),
    ("§8.1.1 65 bits", "content-length", "18446744073709551616"),
];

/// Heads whose pseudo fields are not those of an answer.
const BAD_HEADS: [(&str, &[(&str, &str)]); 8] = [
    ("§8.3 a status behind a field", &[("x-a", "1"), OK]),
    ("§8.3.2 no status", &[("content-type", "a/b")]),
    ("§8.3.2 two statuses", &[OK, OK]),
    ("§8.3.2 a status of two digits", &[(":status", "99")]),
    ("§8.3.2 no number", &[(":status", "2OO")]),
    ("§8.6 101", &[(":status", "101")]),
    ("§8.1 an interim answer that ends", &[(":status", "103")]),
    (
        "§8.1.1 two lengths",
        &[OK, ("content-length", "0"), ("content-length", "1")],
    ),
];

/// RFC 9113 §8.1.1: a malformed answer is an error of its stream.
#[test]
fn malformed_heads_are_a_bad_gateway() -> Result<()> {
    let by_field = BAD_FIELDS.map(|(rule, name, value)| (rule, head(&[OK, (name, value)])));
    let whole = BAD_HEADS.map(|(rule, fields)| (rule, head(fields)));
    let text = "upstream sent invalid header";
    let cases = by_field.into_iter().chain(whole);
    let malformed = cases.map(|it| Case::resets(it.0, it.1, text, Code::PROTOCOL_ERROR));
    assert_refused(&malformed.collect::<Vec<_>>())
}

/// RFC 9113 §4.3: a block that cannot be read is an error of the connection.
#[test]
fn blocks_that_cannot_be_read_are_a_bad_gateway() -> Result<()> {
    let block = |bytes: &[u8]| {
        frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            1,
            &[&[0x88][..], bytes].concat(),
        )
    };
    let cases = [
        (
            "RFC 7541 §2.3.3 an index beyond both tables",
            block(&[0xbe]),
        ),
        (
            "RFC 7541 §2.3.3 a name beyond both tables",
            block(&[0x7e, 0]),
        ),
        ("RFC 7541 §6.1 index 0", block(&[0x80])),
        (
            "RFC 7541 §5.1 an integer that is too large",
            block(&[0xff; 12]),
        ),
        (
            "RFC 7541 §5.2 padding of more than seven bits",
            block(&[0, 1, b'a', 0x82, 0xff, 0xff]),
        ),
        (
            "RFC 7541 §5.2 padding that is not of EOS",
            block(&[0, 1, b'a', 0x81, 0]),
        ),
        (
            "RFC 7541 §5.2 EOS in a text",
            block(&[0, 1, b'a', 0x84, 0xff, 0xff, 0xff, 0xff]),
        ),
        ("RFC 7541 §4.2 a new size behind a field", block(&[0x20])),
        (
            "RFC 7541 §6.3 a size above the setting",
            frame(HEADERS, 5, 1, &[0x3f, 0xe1, 0x1f, 0x88]),
        ),
    ];
    let text = "upstream sent invalid header";
    let unreadable = cases.map(|it| Case::ends(it.0, it.1, text, Code::COMPRESSION_ERROR));
    assert_refused(&unreadable)
}

/// RFC 9113 §8.1, §8.1.1: a body that is not whole, or has something behind it that is none of it.
fn faults_of_bodies() -> Vec<Case> {
    let trailers = |flags, fields: &[(&str, &str)]| frame(HEADERS, flags, 1, &block(fields));
    let (protocol, closed) = (Code::PROTOCOL_ERROR, "prematurely closed");
    let reset = |code| frame(RST_STREAM, 0, 1, &number(code));
    let close = |code| frame(GOAWAY, 0, 0, &[number(0), number(code)].concat());
    let invalid = "upstream sent invalid header";
    vec![
        Case::floods(
            "§6.4 RST_STREAM in the body",
            reset(8),
            "rejected request with error 8",
        ),
        Case::floods(
            "§8.1 RST_STREAM of NO_ERROR before the end",
            reset(0),
            "rejected request with error 0",
        ),
        Case::floods(
            "§6.8 GOAWAY that leaves the stream out",
            close(2),
            "goaway with error 2",
        ),
        Case::resets(
            "§8.1 trailers with a status",
            trailers(5, &[OK]),
            invalid,
            protocol,
        ),
        Case::resets(
            "§8.1 trailers with a pseudo field",
            trailers(5, &[(":path", "/")]),
            invalid,
            protocol,
        ),
        Case::resets(
            "§8.1 trailers that do not end the stream",
            trailers(4, &[("x-a", "1")]),
            "trailer without end stream flag",
            protocol,
        ),
        Case::resets(
            "§8.2.2 trailers with a field of connections",
            trailers(5, &[("connection", "x")]),
            invalid,
            protocol,
        ),
        Case::resets(
            "§6.9.1 a stream's window above 2^31-1",
            frame(WINDOW_UPDATE, 0, 1, &number(0x7fff_ffff)),
            "violates flow control",
            Code::FLOW_CONTROL_ERROR,
        ),
        Case::closes(
            "§8.1 the end of the connection before that of the stream",
            &[],
            closed,
        ),
        Case::closes(
            "§4.1 the end of the connection in a frame",
            &[0, 0, 1, 0, 0, 0, 0, 0, 1],
            closed,
        ),
    ]
}

/// RFC 9113 §8.1.1, RFC 9111 §3.3: what is not whole is not stored.
#[test]
fn bodies_that_break_off_are_cut_and_not_stored() -> Result<()> {
    assert_cuts(&faults_of_bodies(), &[OK])?;
    // RFC 9110 §8.6: a length, of which three bytes have come.
    assert_cuts(&faults_of_bodies(), &[OK, ("content-length", "4")])
}

/// RFC 9113 §8.1.1: the frames of DATA have as many bytes as content-length says.
#[test]
fn lengths_that_lie_cut_the_body() -> Result<()> {
    let protocol = Code::PROTOCOL_ERROR;
    let shorter = "prematurely closed stream";
    let longer = "larger than indicated content length";
    let data = |flags, bytes: &[u8]| frame(DATA, flags, 1, bytes);
    // Nothing is said of a stream that both ends have ended.
    let cases = [
        Case::floods("§8.1.1 fewer bytes", data(END_STREAM, b""), shorter),
        Case::floods(
            "§8.1.1 fewer bytes, by one",
            data(END_STREAM, b"de"),
            shorter,
        ),
        Case::floods("§8.1.1 more bytes", data(END_STREAM, b"defg"), longer),
        Case::resets(
            "§8.1.1 more bytes without an end",
            data(0, b"defg"),
            longer,
            protocol,
        ),
    ];
    assert_cuts(&cases, &[OK, ("content-length", "6")])?;
    // RFC 9110 §15.3.5, §15.4.5: no body at all.
    let head = |status| block(&[(":status", status), ("content-length", "3")]);
    let with_body = |status| {
        [
            frame(HEADERS, END_HEADERS, 1, &head(status)),
            frame(DATA, 1, 1, b"abc"),
        ]
        .concat()
    };
    let cases = [
        Case::floods("RFC 9110 §15.3.5 a body behind 204", with_body("204"), ""),
        Case::floods("RFC 9110 §15.4.5 a body behind 304", with_body("304"), ""),
    ];
    let attacker = Attacker::start(b"", &cases)?;
    let proxy = attacker.peer.proxy_of(Kind::Millpond, CONF)?;
    let client = Client::new(proxy.port());
    for number in 0..cases.len() {
        for place in ["/", "/lines/", "/stored/"] {
            let response = client.get(&format!("{place}{number}"))?;
            assert!(
                [204, 304, 502].contains(&response.status),
                "{}",
                response.status
            );
            assert!(!response.text().contains("abc"), "{place}{number}");
        }
        assert_eq!(client.get("/good")?.text(), "/good");
    }
    Ok(())
}

/// RFC 9113 §5.1, closed: what comes behind the end is an error, and nobody's answer.
#[test]
fn nothing_behind_the_end_is_the_next_answer() -> Result<()> {
    let whole = [
        frame(HEADERS, END_HEADERS, 1, &block(&[OK])),
        frame(DATA, END_STREAM, 1, b"whole"),
    ]
    .concat();
    let evil = |stream| {
        let head = frame(HEADERS, END_HEADERS, stream, &block(&[OK]));
        [head, frame(DATA, END_STREAM, stream, b"evil")].concat()
    };
    let cases = [
        Case::floods("§5.1 HEADERS behind the end", evil(1), ""),
        Case::floods(
            "§5.1 DATA behind the end",
            frame(DATA, END_STREAM, 1, b"evil"),
            "",
        ),
        Case::floods("§5.1.1 an answer to what was not asked", evil(3), ""),
        Case::floods("§8.4 an answer that is pushed", evil(2), ""),
        Case::floods(
            "§6.2 a head for the next stream that has begun",
            frame(HEADERS, END_HEADERS, 3, &block(&[OK]))[..8].to_vec(),
            "",
        ),
    ];
    let attacker = Attacker::start(&whole, &cases)?;
    let proxy = attacker.peer.proxy_of(Kind::Millpond, CONF)?;
    let client = Client::new(proxy.port());
    for (number, case) in cases.iter().enumerate() {
        for place in ["/kept/", "/lines/", "/stored/"] {
            let response = client.get(&format!("{place}{number}"))?;
            let text = response.text();
            let is_right = response.status == 502 || text == "whole" || !response.is_complete();
            assert!(is_right, "{}: {} {text}", case.rule, response.status);
            for _ in 0..2 {
                let target = format!("{place}good");
                assert_eq!(
                    client.get(&target)?.text(),
                    "/good",
                    "{} at {target}",
                    case.rule
                );
            }
        }
    }
    Ok(())
}

/// RFC 9113 §10.5.1: blocks that are longer than they look, or have no end.
fn floods_of_blocks() -> Vec<Case> {
    let both = END_HEADERS | END_STREAM;
    let bomb = |fields: &[u8]| frame(HEADERS, both, 1, &[&[0x88], fields].concat());
    let continued = |fragment: &[u8], count| {
        let next = frame(CONTINUATION, 0, 1, fragment);
        [frame(HEADERS, END_STREAM, 1, &[0x88]), next.repeat(count)].concat()
    };
    // "accept-encoding: gzip, deflate" is one byte.
    let indexed = bomb(&[0x90; 16_000]);
    // A name of five bits a letter.
    let huffman = bomb(&[&[0, 0x7f, 0x81, 0x7c][..], &[0x18; 16_000]].concat());
    let long = "too large http2 header";
    let frames = "flood: CONTINUATION frames";
    let empty = continued(b"", 10_000);
    vec![
        Case::floods("§10.5.1 many fields in few bytes", indexed, long),
        Case::floods("RFC 7541 §7.3 a text in Huffman's code", huffman, long),
        Case::floods("§6.10 CONTINUATION of nothing", empty, frames),
        Case::floods("§6.10 CONTINUATION", continued(&[0x90; 16_000], 1000), long),
    ]
}

/// RFC 9113 §10.5: work for nothing is counted, and ends its connection.
fn floods() -> Vec<Case> {
    let long = frame(SETTINGS, 0, 0, &[9; 12_000]);
    let priority = frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 9]);
    let update = frame(WINDOW_UPDATE, 0, 0, &number(1));
    let frames = [
        ("§6.5 SETTINGS", setting(4, 65_535), "SETTINGS frames"),
        ("§6.5 ACK", frame(SETTINGS, ACK, 0, &[]), "SETTINGS frames"),
        ("§6.5 many settings in one frame", long, "long frames"),
        ("§6.7 PING", frame(PING, 0, 0, &[7; 8]), "PING frames"),
        ("§6.7 ACK", frame(PING, ACK, 0, &[7; 8]), "PING frames"),
        ("§5.3 PRIORITY", priority, "PRIORITY frames"),
        ("§5.5", frame(0x77, 0, 0, b"?"), "frames of unknown kinds"),
        ("§6.9 WINDOW_UPDATE", update, "WINDOW_UPDATE frames"),
    ];
    let of_frames = frames.into_iter().map(|(rule, frame, text)| {
        let count = (1 << 20) / frame.len();
        Case::floods(rule, frame.repeat(count.min(60_000)), text)
    });
    of_frames.chain(floods_of_blocks()).collect()
}

#[test]
fn floods_before_a_head_are_a_bad_gateway() -> Result<()> {
    let interim = block(&[(":status", "103"), ("link", "</a>")]);
    let interims = frame(HEADERS, END_HEADERS, 1, &interim).repeat(20_000);
    let text = "too many interim answers";
    let mut cases = floods();
    cases.push(Case::floods("§8.1 interim answers", interims, text));
    assert_refused(&cases)
}

/// Bytes of frames that carry nothing: more than the proxy bears of a connection.
const SENT_FOR_NOTHING: usize = 9 << 20;

/// DATA of no bytes makes an answer go on for ever, and is no progress.
#[test]
fn floods_in_a_body_cut_it() -> Result<()> {
    let mut cases = floods();
    for (rule, flags, payload) in [
        ("§10.5 empty DATA", 0, &b""[..]),
        ("§10.7 DATA of padding", PADDED, &[3, 0, 0, 0]),
    ] {
        let frame = frame(DATA, flags, 1, payload);
        let bytes = frame.repeat(SENT_FOR_NOTHING / frame.len());
        cases.push(Case::floods(rule, bytes, "flood: frames without payload"));
    }
    assert_cuts(&cases, &[OK])
}

/// The head of a request with a body without a length.
fn begin_upload(proxy: &Proxy, target: &str) -> Result<TcpStream> {
    let mut socket = TcpStream::connect(("127.0.0.1", proxy.port()))?;
    socket.set_read_timeout(Some(WAIT))?;
    let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    socket.write_all(head.as_bytes())?;
    Ok(socket)
}

/// True once something has come.
fn is_answered(socket: &TcpStream) -> Result<bool> {
    socket.set_nonblocking(true)?;
    let has_come = socket.peek(&mut [0]).is_ok();
    socket.set_nonblocking(false)?;
    Ok(has_come)
}

/// RFC 9113 §5.2.2: who takes nothing stalls its own stream. It has `proxy_send_timeout` for it,
/// and the client is not asked for what nobody takes.
#[test]
fn an_origin_that_takes_nothing_of_an_upload_times_out() -> Result<()> {
    const SENT: usize = 64 << 20;
    // What is not consumed makes no room.
    let peer = Peer::start(Config::default(), |talk, _| {
        loop {
            talk.next()?;
        }
    })?;
    let proxy = peer.proxy_of(Kind::Millpond, CONF)?;
    for target in ["/live/up", "/live-lines/up"] {
        let mut socket = begin_upload(&proxy, target)?;
        socket.set_write_timeout(Some(Duration::from_millis(200)))?;
        let chunk = [&b"10000\r\n"[..], &[b'x'; 65_536], b"\r\n"].concat();
        let mut taken = 0;
        while taken < SENT && !is_answered(&socket)? && socket.write_all(&chunk).is_ok() {
            taken += chunk.len();
        }
        assert!(taken < SENT / 4, "{target}: {taken} bytes");
        let answer = read_until(&mut socket, "</html>\r\n")?;
        assert!(answer.starts_with("HTTP/1.1 504"), "{target}: {answer}");
    }
    Ok(())
}

/// nginx: `proxy_send_timeout` is for two writes, and `proxy_read_timeout` for two reads, not for
/// all of an exchange; half of it passes between two parts of this one.
#[test]
fn an_upload_that_goes_on_does_not_time_out() -> Result<()> {
    const PARTS: usize = 5;
    const PAUSE: Duration = Duration::from_millis(250);
    let config = Config {
        // That of clients that were told nothing.
        stream_window: 65_535,
        ..Config::default()
    };
    let peer = Peer::start(config, |talk, heard| {
        let body = talk.body(heard.stream)?;
        talk.answer(heard.stream, &[], body.len().to_string())
    })?;
    // This one opens its window late, and by little.
    let slow = Peer::start(config, move |talk, heard| {
        for part in 1..=PARTS {
            std::thread::park_timeout(PAUSE);
            let window = config.stream_window + 10 * part as u32;
            talk.engine.set_window(heard.stream, window);
            talk.flush()?;
        }
        let body = talk.body(heard.stream)?;
        talk.answer(heard.stream, &[], body.len().to_string())
    })?;
    let conf = CONF
        .replace(
            "upstream lines {",
            "upstream slow { server 127.0.0.1:%%SLOW%%; }
        upstream lines {",
        )
        .replace(
            "location /hasty/",
            "location /slow/ { proxy_pass http://slow; proxy_send_timeout 500ms; }
        location /hasty/",
        );
    let proxy = Proxy::new(Kind::Millpond, &conf)
        .value("PEER", &peer.port.to_string())
        .value("SLOW", &slow.port.to_string())
        .start()?;
    let port = proxy.port();
    let upload = move |target: &str| -> Result<String> {
        let mut socket = begin_upload(&proxy, target)?;
        for _ in 0..PARTS {
            std::thread::park_timeout(PAUSE);
            socket.write_all(b"a\r\n0123456789\r\n")?;
        }
        std::thread::park_timeout(PAUSE);
        socket.write_all(b"0\r\n\r\n")?;
        read_until(&mut socket, "0\r\n\r\n")
    };
    std::thread::scope(|scope| -> Result<()> {
        let upload = &upload;
        let asked = ["/live/up", "/live-lines/up"].map(|it| scope.spawn(move || upload(it)));
        let len = config.stream_window as usize + 10 * PARTS;
        let request = Request::post("/slow/up", "x".repeat(len));
        let late = Client::new(port).send(&request)?;
        assert_eq!((late.status, late.text()), (200, len.to_string()));
        for asked in asked {
            let answer = asked.join().expect("no panic")?;
            assert!(answer.contains("\r\n50\r\n"), "{answer}");
        }
        Ok(())
    })
}

/// Words about the connection are no answer: an origin that says nothing else is given up after
/// `proxy_read_timeout`, as one that does not end its trailers.
#[test]
fn signs_of_life_and_slow_trailers_are_given_up() -> Result<()> {
    let peer = Peer::start(Config::default(), |talk, heard| {
        let id = heard.stream;
        if heard.path() == "/trailers" {
            talk.engine.send_answer(id, (200, End::Later), |_| {});
            talk.engine.push(id, Bytes::from_static(b"body"));
            talk.flush()?;
            talk.socket
                .write_all(&frame(HEADERS, END_STREAM, id, b"\0"))?;
            while talk.next().is_ok() {}
            bail!("closed");
        }
        loop {
            talk.socket.write_all(&frame(PING, 0, 0, &[7; 8]))?;
            std::thread::park_timeout(Duration::from_millis(50));
        }
    })?;
    let proxy = peer.proxy_of(Kind::Millpond, CONF)?;
    let client = Client::new(proxy.port());
    let begun = Instant::now();
    assert_eq!(client.get("/hasty/pings")?.status, 504);
    let response = client.get("/hasty/trailers")?;
    assert_eq!((response.status, &*response.text()), (200, "body"));
    assert!(!response.is_complete());
    assert!(begun.elapsed() < WAIT, "{:?}", begun.elapsed());
    assert!(proxy.error_log().contains("upstream timed out"));
    Ok(())
}
