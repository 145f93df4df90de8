//! Answers of memcached: head and value are the same whole and in pieces, and no value is longer
//! than announced.

use bytes::BytesMut;
use millpond_wire::memcached::{BodyEnd, BodyEvent, Found, ValueBody, read_head};

use crate::pieces;

/// The key that is asked for.
const KEY: &[u8] = b"k";

/// The longest head.
const HEAD_MAX: usize = 64;

/// The result of reading an answer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    found: Option<Found>,
    fault: Option<String>,
    value: Vec<u8>,
    end: Option<BodyEnd>,
}

/// Reads an answer, whole and in pieces.
pub fn run(data: &[u8]) {
    let Some((how, bytes)) = pieces::split(data) else {
        return;
    };
    let whole = read(std::iter::once(bytes));
    let mut cut = read(pieces::cut(how, bytes));
    // Bytes behind the trailer are seen only if they are there at once.
    if cut.end == Some(BodyEnd::Clean) {
        cut.end = whole.end;
    }
    assert_eq!(whole, cut);
}

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let mut buf = BytesMut::new();
    let mut read = Read::default();
    let mut body = None;
    for piece in pieces {
        buf.extend_from_slice(piece);
        if read.found.is_none() && read.fault.is_none() {
            match read_head(&mut buf, KEY, HEAD_MAX) {
                Ok(None) => {}
                Ok(Some((found, _))) => {
                    read.found = Some(found);
                    if let Found::Value(head) = found {
                        body = Some((head.length, ValueBody::new(head)));
                    }
                }
                Err(fault) => read.fault = Some(fault.to_string()),
            }
        }
        if let Some((length, body)) = &mut body {
            take(body, &mut buf, &mut read);
            assert!(read.value.len() as u64 <= *length);
        }
    }
    read
}

fn take(body: &mut ValueBody, buf: &mut BytesMut, read: &mut Read) {
    while read.end.is_none() {
        match body.next(buf) {
            BodyEvent::NeedMore => return,
            BodyEvent::Data(bytes) => read.value.extend_from_slice(&bytes),
            BodyEvent::End(end) => read.end = Some(end),
        }
    }
}
