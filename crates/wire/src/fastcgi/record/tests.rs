//! Records as they come: good, bad, in pieces.

use proptest::prelude::*;

use super::*;

/// A record as an application writes it.
pub(crate) fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    let mut out = vec![1, kind, 0, 1, high, low, padding, 0];
    out.extend_from_slice(content);
    out.resize(out.len() + usize::from(padding), 0xaa);
    out
}

/// The result of decoding a stream: pieces of STDOUT are put together, since cuts are not part of
/// it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    stdout: Vec<u8>,
    stderr: Vec<Bytes>,
    is_stdout_ended: bool,
    is_ended: bool,
    fault: Option<Fault>,
    rest: Vec<u8>,
}

fn decode(pieces: &[&[u8]]) -> Outcome {
    let mut decoder = RecordDecoder::new();
    let mut buf = BytesMut::new();
    let mut outcome = Outcome::default();
    for piece in pieces {
        buf.extend_from_slice(piece);
        if outcome.fault.is_some() {
            continue;
        }
        loop {
            match decoder.decode(&mut buf) {
                Ok(Event::NeedMore) => break,
                Ok(Event::Stdout(bytes)) => {
                    assert!(!bytes.is_empty());
                    outcome.stdout.extend_from_slice(&bytes);
                }
                Ok(Event::Stderr(bytes)) => outcome.stderr.push(bytes),
                Ok(Event::StdoutEnd) => outcome.is_stdout_ended = true,
                Ok(Event::EndRequest) => {
                    outcome.is_ended = true;
                    break;
                }
                Err(fault) => {
                    outcome.fault = Some(fault);
                    break;
                }
            }
        }
    }
    outcome.rest = buf.to_vec();
    outcome
}

fn answer() -> Vec<u8> {
    [
        record(6, b"Status: 200\n\n", 3),
        record(7, b"a warning\n", 6),
        record(7, b"", 0),
        record(6, b"body", 4),
        record(6, b"", 8),
        record(3, &[0; 8], 5),
    ]
    .concat()
}

#[test]
fn an_answer_is_read_however_it_is_cut() {
    let answer = answer();
    let expected = Outcome {
        stdout: b"Status: 200\n\nbody".to_vec(),
        stderr: vec![Bytes::from_static(b"a warning\n")],
        is_stdout_ended: true,
        is_ended: true,
        ..Outcome::default()
    };
    assert_eq!(decode(&[&answer]), expected);
    for at in 0..answer.len() {
        let (first, second) = answer.split_at(at);
        assert_eq!(decode(&[first, second]), expected, "cut at {at}");
    }
    let bytes: Vec<&[u8]> = answer.chunks(1).collect();
    assert_eq!(decode(&bytes), expected);
}

#[test]
fn what_follows_the_end_is_left_alone() {
    let input = [answer(), b"more".to_vec()].concat();
    let outcome = decode(&[&input]);
    assert!(outcome.is_ended);
    assert_eq!(outcome.rest, b"more");
}

#[test]
fn an_end_is_told_when_its_padding_has_come() {
    let input = record(3, &[0; 8], 5);
    let (most, _) = input.split_at(input.len() - 1);
    assert!(!decode(&[most]).is_ended);
}

#[test]
fn records_for_somebody_else_are_faults() {
    let with = |at: usize, byte: u8| {
        let mut head = record(6, b"", 0);
        head[at] = byte;
        decode(&[&head]).fault
    };
    assert_eq!(with(0, 2), Some(Fault::Version(2)));
    for kind in [0, 1, 2, 4, 5, 8, 9, 10, 11, 255] {
        assert_eq!(with(1, kind), Some(Fault::Kind(kind)));
    }
    assert_eq!(with(2, 1), Some(Fault::Id(257)));
    assert_eq!(with(3, 0), Some(Fault::Id(0)));
    // The last byte is reserved.
    assert_eq!(with(7, 1), None);
}

#[test]
fn a_long_stream_is_cut_into_records() {
    let content = vec![b'x'; CONTENT_MAX * 2 + 1];
    let mut out = BytesMut::new();
    write_stream(&mut out, Sent::Params, &content);
    let mut lens = Vec::new();
    while let Some(head) = out.first_chunk::<HEAD_LEN>() {
        assert_eq!(head[..4], [1, 4, 0, 1]);
        let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
        lens.push(len);
        let _ = out.split_to(HEAD_LEN + len);
    }
    assert_eq!(lens, [CONTENT_MAX, CONTENT_MAX, 1, 0]);
}

#[test]
fn a_request_begins_as_a_responder_that_keeps_its_connection_or_not() {
    for (after, flags) in [(AfterAnswer::Close, 0), (AfterAnswer::Keep, 1)] {
        let mut out = BytesMut::new();
        write_begin(&mut out, after);
        let expected = [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, flags, 0, 0, 0, 0, 0];
        assert_eq!(out[..], expected);
    }
}

/// Streams of records, most of them good, cut short or followed by anything.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![8 => prop::sample::select(vec![3u8, 6, 7]), 1 => any::<u8>()];
    let content = prop::collection::vec(any::<u8>(), 0..20);
    let one = (kind, content, 0u8..9)
        .prop_map(|(kind, content, padding)| record(kind, &content, padding));
    let garbage = prop::collection::vec(any::<u8>(), 0..12);
    (prop::collection::vec(one, 0..8), garbage)
        .prop_map(|(records, garbage)| [records.concat(), garbage].concat())
}

proptest! {
    #[test]
    fn any_bytes_are_read_alike_in_one_piece_and_in_many(
        input in stream(),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = decode(&[&input]);
        let (left, right) = input.split_at(cut.index(input.len() + 1));
        prop_assert_eq!(&decode(&[left, right]), &whole);
        let bytes: Vec<_> = input.chunks(1).collect();
        prop_assert_eq!(&decode(&bytes), &whole);
    }
}
