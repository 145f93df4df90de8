//! The chunked coding: the same whole and in pieces; what is encoded is decoded alike; upstreams
//! are read no stricter than clients.

use bytes::BytesMut;
use millpond_wire::header::Fields;
use millpond_wire::http1::chunked::{
    CHUNK_END, ChunkError, ChunkEvent, ChunkedDecoder, Strictness, TrailerLimits, chunk_head,
    write_last_chunk,
};

use crate::pieces;

/// The result of decoding a body: its bytes, and its end, if it ended.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    body: Vec<u8>,
    end: Option<Result<Fields, ChunkError>>,
    left: Vec<u8>,
}

/// Decodes a body in several ways, and what was decoded again after encoding it.
pub fn run(data: &[u8]) {
    let Some((how, bytes)) = pieces::split(data) else {
        return;
    };
    for strictness in [Strictness::Request, Strictness::Upstream] {
        let whole = decode(strictness, std::iter::once(bytes));
        let cut = decode(strictness, pieces::cut(how, bytes));
        assert_eq!(whole.end, cut.end, "pieces decide how a body ends");
        assert_eq!(whole.body, cut.body);
        if let Some(Ok(trailers)) = &whole.end {
            assert_eq!(whole.left, cut.left);
            check_encoded(how, strictness, &whole.body, trailers);
        }
    }
    let strict = decode(Strictness::Request, std::iter::once(bytes));
    if let Some(Ok(_)) = strict.end {
        // Trailers with odd names are dropped from a client's body and kept in an upstream's, where
        // they count.
        let lax = decode(Strictness::Upstream, std::iter::once(bytes));
        match lax.end {
            Some(Err(ChunkError::TrailersTooLarge)) => assert_eq!(strict.body, lax.body),
            Some(Ok(_)) => assert_eq!((strict.body, strict.left), (lax.body, lax.left)),
            other => panic!("refused from an upstream only: {other:?}"),
        }
    }
}

fn decode<'a>(strictness: Strictness, pieces: impl Iterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = ChunkedDecoder::new(
        strictness,
        TrailerLimits {
            total: 200,
            fields: 4,
        },
    );
    let mut buf = BytesMut::new();
    let mut decoded = Decoded {
        body: Vec::new(),
        end: None,
        left: Vec::new(),
    };
    for piece in pieces {
        buf.extend_from_slice(piece);
        while decoded.end.is_none() {
            match decoder.decode(&mut buf) {
                Ok(ChunkEvent::NeedMore) => break,
                Ok(ChunkEvent::Data(data)) => {
                    assert!(!data.is_empty());
                    decoded.body.extend_from_slice(&data);
                }
                Ok(ChunkEvent::End { trailers }) => {
                    assert!(trailers.len() <= 4);
                    decoded.end = Some(Ok(trailers));
                }
                Err(error) => decoded.end = Some(Err(error)),
            }
        }
    }
    assert_eq!(decoder.is_ended(), decoded.end.is_some());
    decoded.left = buf.to_vec();
    decoded
}

fn check_encoded(how: u8, strictness: Strictness, body: &[u8], trailers: &Fields) {
    let mut out = BytesMut::new();
    for piece in pieces::cut(how, body) {
        out.extend_from_slice(chunk_head(piece.len() as u64).as_ref());
        out.extend_from_slice(piece);
        out.extend_from_slice(CHUNK_END);
    }
    write_last_chunk(&mut out, trailers);
    let again = decode(strictness, std::iter::once(&out[..]));
    assert_eq!(again.body, body);
    match again.end {
        // Line ends are longer when they are written than they may have been when they were read.
        Some(Err(ChunkError::TrailersTooLarge)) => {}
        Some(Ok(read)) => {
            assert_eq!(&read, trailers);
            assert!(again.left.is_empty());
        }
        other => panic!("what was encoded is not decoded: {other:?}"),
    }
}
