//! A server of HTTP/2: what comes out does not depend on how the input was cut, and what is held
//! and written is bounded.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millpond_wire::http2::frame::PREFACE;
use millpond_wire::http2::{Config, Connection, End, Event, Role};

use crate::pieces;

/// Most bytes that wait to be written for an input of a few kilobytes.
const OUTPUT_MOST: usize = 200_000;

/// Serves the input behind a good preface, in several ways.
pub fn run(data: &[u8]) {
    let Some((how, bytes)) = pieces::split(data) else {
        return;
    };
    let mut input = PREFACE.to_vec();
    // Settings, so that more than their lack is tried.
    input.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    input.extend(bytes);
    let whole = serve(how, std::iter::once(&input[..]));
    let cut = serve(how, pieces::cut(how, &input));
    assert_eq!(whole, cut, "pieces decide what is served");
}

/// The events of a server.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    heads: Vec<(u32, Vec<u8>)>,
    bodies: Vec<(u32, u8)>,
    ends: Vec<u32>,
    failed: Option<String>,
}

fn serve<'a>(how: u8, pieces: impl Iterator<Item = &'a [u8]>) -> Told {
    let config = Config {
        // Streams that are never released make no difference then.
        max_concurrent_streams: 1000,
        stream_window: u32::from(how) * 100,
        chunk_len: usize::from(how) + 1,
        ..Config::default()
    };
    let mut server = Connection::new(Role::Server, config);
    let mut told = Told::default();
    let mut input = BytesMut::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(event) = server.next_event(&mut input, Duration::ZERO) {
            heed(&mut server, event, &mut told);
        }
        // A frame that is read as a whole is short.
        assert!(input.len() < 1000, "{} bytes are left", input.len());
    }
    server.produce(usize::MAX);
    assert!(server.output().len() < OUTPUT_MOST);
    told
}

fn heed(server: &mut Connection, event: Event, told: &mut Told) {
    match event {
        Event::Request { stream, head, .. } => {
            assert!(head.host().is_some() || !head.authority().is_empty());
            told.heads.push((stream, head.line().to_vec()));
            server.send_answer(stream, (200, End::Later), |out| out.content_length(6));
            server.push(stream, Bytes::from_static(b"answer"));
            server.finish(stream, None);
        }
        Event::Refused { stream, refused } => {
            told.heads
                .push((stream, refused.why.to_string().into_bytes()));
            server.send_answer(stream, (refused.status(), End::WithHead), |_| {});
        }
        Event::Data { stream, bytes } => {
            told.bodies.extend(bytes.iter().map(|byte| (stream, *byte)));
            server.consume(stream, bytes.len());
        }
        Event::End { stream, .. } | Event::Malformed { stream, .. } => told.ends.push(stream),
        Event::Gone { stream, .. } => told.ends.push(stream),
        Event::Failed(fault) => {
            assert!(told.failed.is_none() && server.is_finished());
            told.failed = Some(fault.to_string());
        }
        _ => {}
    }
}
