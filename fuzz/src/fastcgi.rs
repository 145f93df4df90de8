//! Records of FastCGI: streams and faults are the same whole and in pieces, and nothing follows an
//! end.

use bytes::BytesMut;
use millpond_wire::fastcgi::record::{Event, RecordDecoder};

use crate::pieces;

/// The result of decoding: pieces of each stream joined, and the end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    /// The text of each kind of event, one after another.
    events: Vec<(std::mem::Discriminant<Event>, Vec<u8>)>,
    fault: Option<String>,
    has_ended: bool,
}

/// Decodes records, whole and in pieces.
pub fn run(data: &[u8]) {
    let Some((how, bytes)) = pieces::split(data) else {
        return;
    };
    let whole = decode(std::iter::once(bytes));
    assert_eq!(whole, decode(pieces::cut(how, bytes)));
}

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = RecordDecoder::new();
    let mut buf = BytesMut::new();
    let mut decoded = Decoded::default();
    for piece in pieces {
        buf.extend_from_slice(piece);
        // Each round takes a byte or ends.
        for _ in 0..=buf.len() + 1 {
            if decoded.fault.is_some() || decoded.has_ended {
                break;
            }
            match decoder.decode(&mut buf) {
                Ok(Event::NeedMore) => break,
                Ok(Event::EndRequest) => {
                    decoded.has_ended = true;
                    assert_eq!(decoder.decode(&mut buf), Ok(Event::EndRequest));
                }
                Ok(event) => {
                    let kind = std::mem::discriminant(&event);
                    let bytes = content(&event);
                    match decoded.events.last_mut() {
                        Some((last, joined)) if *last == kind => joined.extend_from_slice(&bytes),
                        _ => decoded.events.push((kind, bytes)),
                    }
                }
                Err(fault) => decoded.fault = Some(fault.to_string()),
            }
        }
    }
    decoded
}

fn content(event: &Event) -> Vec<u8> {
    match event {
        Event::Stdout(bytes) | Event::Stderr(bytes) => bytes.to_vec(),
        Event::NeedMore | Event::StdoutEnd | Event::EndRequest => Vec::new(),
    }
}
