//! A client of HTTP/2: what comes out does not depend on how the input was cut, answers are such as
//! HTTP allows, and what is held and written is bounded.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_wire::header::Fields;
use millpond_wire::http2::{BodyLength, Config, Connection, End, Event, RequestLine, Role};

use crate::pieces;

/// Most bytes that wait to be written for an input of a few kilobytes.
const OUTPUT_MOST: usize = 200_000;
/// Bytes of the body of each request that has one.
const BODY: &[u8] = &[b'b'; 1000];

/// Asks, and reads the input as the origin's, in several ways.
pub fn run(data: &[u8]) {
    let Some((how, bytes)) = pieces::split(data) else {
        return;
    };
    // Settings, so that more than their lack is tried.
    let mut input = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    input.extend(bytes);
    let whole = ask(how, std::iter::once(&input[..]));
    let cut = ask(how, pieces::cut(how, &input));
    assert_eq!(whole, cut, "pieces decide what is heard");
}

/// The events of a client.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    heads: Vec<(u32, u16, usize)>,
    bodies: Vec<(u32, u8)>,
    ends: Vec<u32>,
    failed: Option<String>,
}

/// A client of four requests: two without a body, one with one, and one for a head only.
fn asking(how: u8) -> Connection {
    let config = Config {
        stream_window: u32::from(how) * 100,
        connection_window: 1 << 20,
        // As towards origins.
        table_size: if how.is_multiple_of(2) { 0 } else { 4096 },
        chunk_len: usize::from(how) + 1,
        ..Config::default()
    };
    let mut client = Connection::new(Role::Client, config);
    for (method, end) in [
        (&b"GET"[..], End::WithHead),
        (b"POST", End::Later),
        (b"HEAD", End::WithHead),
        (b"GET", End::WithHead),
    ] {
        let line = RequestLine {
            method,
            scheme: b"http",
            authority: b"a",
            path: b"/",
        };
        let stream = client.open(&line, end, |_| {});
        if let (Some(stream), End::Later) = (stream, end) {
            client.push(stream, Bytes::from_static(BODY));
            client.finish(stream, None);
        }
    }
    client
}

fn ask<'a>(how: u8, pieces: impl Iterator<Item = &'a [u8]>) -> Told {
    let mut client = asking(how);
    let mut told = Told::default();
    let mut input = BytesMut::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(event) = client.next_event(&mut input, Duration::ZERO) {
            heed(&mut client, event, &mut told);
        }
        // A frame that is read as a whole is short.
        assert!(input.len() < 1000, "{} bytes are left", input.len());
    }
    client.produce(usize::MAX);
    assert!(client.output().len() < OUTPUT_MOST);
    told
}

fn heed(client: &mut Connection, event: Event, told: &mut Told) {
    match event {
        Event::Answer {
            stream,
            status,
            fields,
            body,
            ..
        } => {
            assert!((200..1000).contains(&status), "{status}");
            check(&fields);
            let is_bare = matches!(status, 204 | 304);
            assert!(!is_bare || body == BodyLength::None, "{status} {body:?}");
            told.heads.push((stream, status, fields.len()));
        }
        Event::Interim {
            stream,
            status,
            fields,
        } => {
            assert!((100..200).contains(&status) && status != 101, "{status}");
            check(&fields);
            told.heads.push((stream, status, fields.len()));
        }
        Event::Data { stream, bytes } => {
            assert!(!bytes.is_empty());
            told.bodies.extend(bytes.iter().map(|byte| (stream, *byte)));
            client.consume(stream, bytes.len());
        }
        Event::End { stream, trailers } => {
            trailers.iter().for_each(check);
            told.ends.push(stream);
        }
        Event::Malformed { stream, .. } | Event::Gone { stream, .. } => told.ends.push(stream),
        Event::Failed(fault) => {
            assert!(told.failed.is_none() && client.is_finished());
            told.failed = Some(fault.to_string());
        }
        Event::Request { .. } | Event::Refused { .. } => panic!("a request to a client"),
        _ => {}
    }
}

/// Asserts that fields can be passed on to a client of HTTP/1.
fn check(fields: &Fields) {
    for field in fields.iter() {
        // RFC 9113 §8.2.1: other bytes that are in no token may pass.
        let is_name = |byte: &u8| byte.is_ascii_graphic() && *byte != b':';
        assert!(!field.name.is_empty() && field.name.iter().all(is_name));
        let is_control = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
        assert!(!field.value.iter().any(is_control));
        assert!(!field.name.eq_ignore_ascii_case(b"transfer-encoding"));
        assert!(!field.name.eq_ignore_ascii_case(b"connection"));
    }
}
