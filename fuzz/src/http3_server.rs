//! A server of HTTP/3: what comes out does not depend on how the input was cut, and what is held
//! and written is bounded.
//!
//! The input is dealt out to streams: a byte says which, the next how many bytes follow, and if the
//! stream ends.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use millpond_wire::http3::{Code, Config, Connection, End, Event, Transport, Unsent};

use crate::pieces;

/// Most bytes that are written for an input of a few kilobytes.
const OUTPUT_MOST: usize = 200_000;
/// The streams that a byte may mean: control, encoder, decoder, and requests.
const STREAMS: [u64; 8] = [2, 6, 10, 0, 4, 8, 12, 14];

/// Serves the input in several ways.
pub fn run(data: &[u8]) {
    let Some((how, bytes)) = pieces::split(data) else {
        return;
    };
    let whole = serve(how, bytes, usize::MAX);
    let cut = serve(how, bytes, 1 + usize::from(how) % 7);
    assert_eq!(whole, cut, "pieces decide what is served");
}

/// The events of a server.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    heads: Vec<(u64, Vec<u8>)>,
    bodies: BTreeMap<u64, Vec<u8>>,
    ends: Vec<u64>,
    failed: Option<String>,
}

/// A transport that counts.
#[derive(Default)]
struct Sink {
    len: usize,
}

impl Transport for Sink {
    fn send(&mut self, _stream: u64, pieces: &mut [Bytes]) -> Result<usize, Unsent> {
        let mut taken = 0;
        for piece in pieces {
            taken += std::mem::take(piece).len();
        }
        self.len += taken;
        Ok(taken)
    }

    fn finish(&mut self, _stream: u64) {}
    fn reset(&mut self, _stream: u64, _code: Code) {}
    fn stop(&mut self, _stream: u64, _code: Code) {}
}

fn serve(how: u8, mut rest: &[u8], step: usize) -> Told {
    let mut server = Connection::new(Config {
        blocked_streams: 2,
        table_capacity: u32::from(how) * 16,
        ..Config::default()
    });
    for stream in [3, 7, 11] {
        server.attach(stream);
    }
    let mut told = Told::default();
    let mut sink = Sink::default();
    let now = Duration::ZERO;
    STREAMS
        .iter()
        .for_each(|stream| server.opened(*stream, now));
    while let [which, len, after @ ..] = rest {
        let stream = STREAMS[usize::from(*which) % STREAMS.len()];
        let (part, after) = after.split_at(usize::from(*len & 0x7f).min(after.len()));
        rest = after;
        for piece in part.chunks(step.min(part.len().max(1))) {
            // Who holds more than one piece has asked for it.
            if !piece.is_empty() {
                server.receive(stream, Bytes::copy_from_slice(piece), now);
            }
            heed_all(&mut server, &mut told);
        }
        if len & 0x80 != 0 {
            server.receive_end(stream, now);
            heed_all(&mut server, &mut told);
        }
        server.flush(&mut sink, usize::MAX);
        heed_all(&mut server, &mut told);
    }
    assert!(sink.len < OUTPUT_MOST);
    told
}

fn heed_all(server: &mut Connection, told: &mut Told) {
    while let Some(event) = server.next_event() {
        heed(server, event, told);
    }
}

fn heed(server: &mut Connection, event: Event, told: &mut Told) {
    match event {
        Event::Request { stream, head, .. } => {
            assert!(head.host().is_some() || !head.authority().is_empty());
            told.heads.push((stream, head.line().to_vec()));
            server.send_answer(stream, (200, End::Later), |out| out.content_length(6));
        }
        Event::Refused { stream, refused } => {
            told.heads
                .push((stream, refused.why.to_string().into_bytes()));
            server.send_answer(stream, (refused.status(), End::WithHead), |_| {});
        }
        Event::Data { stream, bytes } => {
            told.bodies.entry(stream).or_default().extend(&bytes[..]);
            server.consume(stream, bytes.len());
        }
        Event::End { stream, .. } | Event::Malformed { stream, .. } => {
            told.ends.push(stream);
            server.push(stream, Bytes::from_static(b"answer"));
            server.finish(stream, None);
        }
        Event::Gone { stream, .. } => told.ends.push(stream),
        Event::Failed(fault) => {
            assert!(told.failed.is_none() && server.is_finished());
            told.failed = Some(fault.to_string());
        }
        _ => {}
    }
}
