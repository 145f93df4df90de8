//! Chunked bodies: good, bad, in pieces.

use proptest::prelude::*;

use super::*;

/// A decoded body: its data, its trailers if it ended, or the error; and what was left over.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    data: Vec<u8>,
    end: Result<Option<Vec<(String, String)>>, ChunkError>,
    rest: Vec<u8>,
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn read_pieces(pieces: &[&[u8]], strictness: Strictness, limits: TrailerLimits) -> Outcome {
    let mut decoder = ChunkedDecoder::new(strictness, limits);
    let mut buf = BytesMut::new();
    let mut data = Vec::new();
    let mut end = Ok(None);
    for piece in pieces {
        buf.extend_from_slice(piece);
        while !decoder.is_ended() {
            match decoder.decode(&mut buf) {
                Ok(ChunkEvent::NeedMore) => break,
                Ok(ChunkEvent::Data(piece)) => {
                    assert!(!piece.is_empty());
                    data.extend_from_slice(&piece);
                }
                Ok(ChunkEvent::End { trailers }) => {
                    let trailers = trailers.iter();
                    end = Ok(Some(
                        trailers
                            .map(|field| (text(&field.name), text(&field.value)))
                            .collect(),
                    ));
                }
                Err(error) => end = Err(error),
            }
        }
    }
    // After an error nothing is said about the buffer.
    let rest = if end.is_err() {
        Vec::new()
    } else {
        buf.to_vec()
    };
    Outcome { data, end, rest }
}

fn read(input: &[u8], strictness: Strictness) -> Outcome {
    read_pieces(&[input], strictness, TrailerLimits::default())
}

#[test]
fn a_body_is_the_data_of_its_chunks() {
    for (input, data, rest) in [
        ("0\r\n\r\n", "", ""),
        ("3\r\nabc\r\n0\r\n\r\n", "abc", ""),
        (
            "3\r\nabc\r\nA\r\n0123456789\r\n000\r\n\r\nGET /",
            "abc0123456789",
            "GET /",
        ),
        ("3;a=b;c=\"d\"\r\nabc\r\n0;x\r\n\r\n", "abc", ""),
        ("3 ; a\r\nabc\r\n0\r\n\r\n", "abc", ""),
        ("3\t;\r\nabc\r\n0\r\n\r\n", "abc", ""),
        ("0000000000000003\r\nabc\r\n0\r\n\r\n", "abc", ""),
    ] {
        for strictness in [Strictness::Request, Strictness::Upstream] {
            let outcome = read(input.as_bytes(), strictness);
            assert_eq!(outcome.data, data.as_bytes(), "{input:?}");
            assert_eq!(outcome.end, Ok(Some(Vec::new())), "{input:?}");
            assert_eq!(outcome.rest, rest.as_bytes(), "{input:?}");
        }
    }
}

#[test]
fn framing_with_two_readings_is_refused_from_anyone() {
    use ChunkError::*;
    for (input, expected) in [
        ("\r\n", InvalidSize),
        ("\n0\r\n\r\n", InvalidSize),
        (" 3\r\nabc\r\n", InvalidSize),
        ("+3\r\nabc\r\n", InvalidSize),
        ("-3\r\nabc\r\n", InvalidSize),
        ("0x3\r\nabc\r\n", InvalidSize),
        ("3x\r\nabc\r\n", InvalidSize),
        ("g\r\n", InvalidSize),
        ("3_0\r\nabc\r\n", InvalidSize),
        ("3\0\r\nabc\r\n", InvalidSize),
        ("3\nabc\r\n", InvalidSize),
        ("3\x0b\r\nabc\r\n", InvalidSize),
        ("3\rabc\r\n", InvalidSize),
        ("3\r\r\nabc\r\n", InvalidSize),
        ("0\n\n", InvalidSize),
        ("0\r\r\n", InvalidSize),
        ("8000000000000000\r\n", SizeTooLarge),
        ("ffffffffffffffff\r\n", SizeTooLarge),
        ("10000000000000000\r\n", SizeTooLarge),
        ("fffffffffffffffff3\r\n", SizeTooLarge),
        ("00000000000000003\r\nabc", SizeTooLarge),
        ("3;a\nabc\r\n", InvalidExtension),
        ("3;a\rb\r\nabc\r\n", InvalidSize),
        ("3;a\0\r\nabc\r\n", InvalidExtension),
        ("0;\n\r\n", InvalidExtension),
        ("4\r\nSEE-THIS\r\n0\r\n\r\n", InvalidDataEnd),
        ("3\r\nabc\n0\r\n\r\n", InvalidDataEnd),
        ("3\r\nabc\rx", InvalidDataEnd),
        ("3\r\nabc0\r\n\r\n", InvalidDataEnd),
        ("0\r\n a: b\r\n\r\n", InvalidTrailer),
        ("0\r\na : b\r\n\r\n", InvalidTrailer),
        ("0\r\n: b\r\n\r\n", InvalidTrailer),
        ("0\r\na: b\0\r\n\r\n", InvalidTrailer),
        ("0\r\na: b\rc\r\n\r\n", InvalidTrailer),
    ] {
        for strictness in [Strictness::Request, Strictness::Upstream] {
            let outcome = read(input.as_bytes(), strictness);
            assert_eq!(outcome.end, Err(expected), "{input:?} {strictness:?}");
        }
    }
}

#[test]
fn what_nginx_tolerates_is_tolerated_from_upstreams_only() {
    for (input, expected) in [
        ("3 \r\nabc\r\n0\r\n\r\n", ChunkError::InvalidSize),
        ("3\t \r\nabc\r\n0 \r\n\r\n", ChunkError::InvalidSize),
        ("3 x\r\nabc\r\n0\r\n\r\n", ChunkError::InvalidSize),
        ("3\r\nabc\r\n0\r\n\n", ChunkError::InvalidTrailer),
    ] {
        let strict = read(input.as_bytes(), Strictness::Request);
        assert_eq!(strict.end, Err(expected), "{input:?}");
        let loose = read(input.as_bytes(), Strictness::Upstream);
        assert_eq!(loose.end, Ok(Some(Vec::new())), "{input:?}");
        assert_eq!(loose.data, b"abc", "{input:?}");
    }
    let input = b"0\r\nA: b\nc_d: e\n\n";
    let loose = read(input, Strictness::Upstream)
        .end
        .expect("good")
        .expect("ended");
    assert_eq!(
        loose,
        [("A".into(), "b".into()), ("c_d".into(), "e".into())]
    );
}

#[test]
fn trailers_are_given_out_and_odd_names_of_clients_are_dropped() {
    let input = b"1\r\nx\r\n0\r\nA: b\r\nc_d: e\r\nETag:  f \r\n\r\nnext";
    let outcome = read(input, Strictness::Request);
    let trailers = outcome.end.expect("good").expect("ended");
    assert_eq!(
        trailers,
        [("A".into(), "b".into()), ("ETag".into(), "f".into())]
    );
    assert_eq!(outcome.rest, b"next");
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let long = "a".repeat(EXTENSION_MAX as usize);
    let outcome = read(format!("0;{long}\r\n\r\n").as_bytes(), Strictness::Request);
    assert_eq!(outcome.end, Ok(Some(Vec::new())));
    for extension in [format!(";{long}a"), " ".repeat(EXTENSION_MAX as usize + 1)] {
        let outcome = read(
            format!("0{extension}\r\n\r\n").as_bytes(),
            Strictness::Request,
        );
        assert_eq!(outcome.end, Err(ChunkError::ExtensionTooLong));
    }
    let limits = TrailerLimits {
        total: 8,
        fields: 1,
    };
    for (input, expected) in [
        (
            "0\r\nA: b\r\n\r\n",
            Ok(Some(vec![("A".into(), "b".into())])),
        ),
        ("0\r\nA: bc\r\n\r\n", Err(ChunkError::TrailersTooLarge)),
        ("0\r\nAAAAAAAA", Err(ChunkError::TrailersTooLarge)),
        ("0\r\nA\r\nB\r\n\r\n", Err(ChunkError::TrailersTooLarge)),
    ] {
        let outcome = read_pieces(&[input.as_bytes()], Strictness::Request, limits);
        assert_eq!(outcome.end, expected, "{input:?}");
    }
}

#[test]
fn nothing_comes_after_the_end_or_an_error() {
    for input in ["0\r\n\r\n", "x"] {
        let mut decoder = ChunkedDecoder::new(Strictness::Request, TrailerLimits::default());
        let mut buf = BytesMut::from(input);
        let _ = decoder.decode(&mut buf);
        assert!(decoder.is_ended());
        buf.extend_from_slice(b"0\r\n\r\n");
        assert_eq!(decoder.decode(&mut buf), Err(ChunkError::Ended));
    }
}

#[test]
fn data_are_given_out_as_they_come() {
    let mut decoder = ChunkedDecoder::new(Strictness::Request, TrailerLimits::default());
    let mut buf = BytesMut::from("fffffff\r\nab");
    assert_eq!(
        decoder.decode(&mut buf),
        Ok(ChunkEvent::Data(Bytes::from("ab")))
    );
    assert_eq!(decoder.decode(&mut buf), Ok(ChunkEvent::NeedMore));
    buf.extend_from_slice(b"c");
    assert_eq!(
        decoder.decode(&mut buf),
        Ok(ChunkEvent::Data(Bytes::from("c")))
    );
}

#[test]
fn written_chunks_can_be_read() {
    for (len, expected) in [
        (1, "1\r\n"),
        (15, "f\r\n"),
        (16, "10\r\n"),
        (0xabcdef, "abcdef\r\n"),
        (u64::MAX, "ffffffffffffffff\r\n"),
    ] {
        assert_eq!(chunk_head(len).as_ref(), expected.as_bytes());
    }
    let mut out = BytesMut::new();
    out.put_slice(chunk_head(3).as_ref());
    out.put_slice(b"abc");
    out.put_slice(CHUNK_END);
    let mut plain = out.clone();
    plain.put_slice(LAST_CHUNK);
    assert_eq!(read(&plain, Strictness::Request).end, Ok(Some(Vec::new())));
    let mut trailers = Fields::new();
    trailers.push_known(Known::ETag, "x\r\ny");
    write_last_chunk(&mut out, &trailers);
    let outcome = read(&out, Strictness::Request);
    assert_eq!(outcome.data, b"abc");
    assert_eq!(outcome.end, Ok(Some(vec![("ETag".into(), "x  y".into())])));
}

/// Bytes that look like chunks often enough to get far.
fn chunked_like() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        8 => prop::sample::select(vec![
            "3\r\nabc\r\n", "1\r\nx\r\n", "a;b=c\r\n0123456789\r\n", "0\r\n", "\r\n", "\n", "\r",
            "A: b\r\n", "3", "f", " ", ";", "abc", "0\r\n\r\n",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(word, 0..16).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_read_alike_in_one_piece_and_in_many(
        input in chunked_like(),
        cut in any::<prop::sample::Index>(),
        total in 0usize..40,
    ) {
        for strictness in [Strictness::Request, Strictness::Upstream] {
            let limits = TrailerLimits { total, fields: 2 };
            let whole = read_pieces(&[&input], strictness, limits);
            let (left, right) = input.split_at(cut.index(input.len() + 1));
            prop_assert_eq!(&read_pieces(&[left, right], strictness, limits), &whole);
            let bytes: Vec<_> = input.chunks(1).collect();
            prop_assert_eq!(&read_pieces(&bytes, strictness, limits), &whole);
        }
    }

    #[test]
    fn any_body_comes_back(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
    ) {
        let mut out = BytesMut::new();
        for piece in &pieces {
            out.put_slice(chunk_head(piece.len() as u64).as_ref());
            out.put_slice(piece);
            out.put_slice(CHUNK_END);
        }
        out.put_slice(LAST_CHUNK);
        let outcome = read(&out, Strictness::Request);
        prop_assert_eq!(outcome.data, pieces.concat());
        prop_assert_eq!(outcome.end, Ok(Some(Vec::new())));
    }
}
