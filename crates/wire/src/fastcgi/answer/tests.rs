//! Bodies: whole, too short, too long.

use proptest::prelude::*;

use super::super::record::tests::record;
use super::*;

/// The result of decoding a body, and the bytes that were left over.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Waiting,
    Ended(BodyEnd),
    Broken(BodyFault),
}

fn read(expected: Expected, first: &[u8], pieces: &[&[u8]]) -> (Vec<u8>, Outcome) {
    let first = Bytes::copy_from_slice(first);
    let mut body = StdoutBody::new(RecordDecoder::new(), first);
    body.expect(expected);
    let mut buf = BytesMut::new();
    let mut data = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match body.next(&mut buf) {
                Ok(BodyEvent::NeedMore) => break,
                Ok(BodyEvent::Data(bytes)) => data.extend_from_slice(&bytes),
                Ok(BodyEvent::Stderr(_)) => {}
                Ok(BodyEvent::End(end)) => return (data, Outcome::Ended(end)),
                Err(fault) => return (data, Outcome::Broken(fault)),
            }
        }
    }
    (data, Outcome::Waiting)
}

fn records(body: &[u8]) -> Vec<u8> {
    [record(6, body, 3), record(6, b"", 0), record(3, &[0; 8], 0)].concat()
}

#[test]
fn a_body_is_held_to_its_length() {
    use Expected::{Any, Exactly, NoneOr};
    let clean = || Outcome::Ended(BodyEnd::Clean);
    let excess = || Outcome::Ended(BodyEnd::Excess);
    let truncated = || Outcome::Broken(BodyFault::Truncated);
    for (expected, sent, body, outcome) in [
        (Any, "12345", "12345", clean()),
        (Any, "", "", clean()),
        (Exactly(5), "12345", "12345", clean()),
        (Exactly(5), "1234567", "12345", excess()),
        (Exactly(5), "1234", "1234", truncated()),
        (Exactly(5), "", "", truncated()),
        (Exactly(0), "", "", clean()),
        (Exactly(0), "1", "", excess()),
        (NoneOr(Some(5)), "", "", clean()),
        (NoneOr(Some(5)), "12345", "12345", clean()),
        (NoneOr(Some(5)), "123456", "12345", excess()),
        (NoneOr(Some(5)), "1234", "1234", truncated()),
        (NoneOr(None), "1234", "1234", clean()),
    ] {
        // With the head comes nothing, the begin, or all of what a record holds.
        for with_head in [0, sent.len() / 2, sent.len()] {
            let (first, rest) = sent.as_bytes().split_at(with_head);
            let rest = match rest {
                [] => [record(6, b"", 0), record(3, &[0; 8], 0)].concat(),
                rest => records(rest),
            };
            let found = read(expected, first, &[&rest]);
            let context = format!("{expected:?} {sent:?} {with_head}");
            assert_eq!(found.0, body.as_bytes(), "{context}");
            assert_eq!(found.1, outcome, "{context}");
        }
    }
}

#[test]
fn a_request_that_ends_without_its_stream_has_ended() {
    let input = [record(6, b"12", 0), record(3, &[0; 8], 0)].concat();
    let found = read(Expected::Any, b"", &[&input]);
    assert_eq!(found, (b"12".to_vec(), Outcome::Ended(BodyEnd::Clean)));
}

#[test]
fn a_body_is_whole_before_its_request_ends() {
    for (expected, input, is_whole) in [
        (Expected::Any, record(6, b"12", 0), false),
        (Expected::Any, record(6, b"", 0), true),
        (Expected::Exactly(2), record(6, b"12", 0), true),
        (Expected::Exactly(3), record(6, b"12", 0), false),
    ] {
        let mut body = StdoutBody::new(RecordDecoder::new(), Bytes::new());
        body.expect(expected);
        let mut buf = BytesMut::from(&input[..]);
        while body.next(&mut buf) != Ok(BodyEvent::NeedMore) {}
        assert_eq!(body.is_whole(), is_whole, "{expected:?} {input:?}");
    }
}

proptest! {
    #[test]
    fn a_body_does_not_depend_on_cuts(
        sent in prop::collection::vec(any::<u8>(), 0..30),
        length in prop::option::of(0u64..30),
        size in 1usize..9,
    ) {
        let expected = length.map_or(Expected::Any, Expected::Exactly);
        let input: Vec<u8> = sent.chunks(size).flat_map(|part| record(6, part, 1)).collect();
        let input = [input, record(6, b"", 0), record(3, &[0; 8], 0)].concat();
        let whole = read(expected, b"", &[&input]);
        let bytes: Vec<_> = input.chunks(1).collect();
        prop_assert_eq!(read(expected, b"", &bytes), whole);
    }
}
