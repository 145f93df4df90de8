//! Blocks of HPACK: bounds are kept; what is decoded and encoded again is decoded alike; texts of
//! the Huffman code are coded as they were.

use bytes::{Bytes, BytesMut};
use millpond_wire::header::{Field, Fields};
use millpond_wire::http2::hpack::decode::{Bounds, Decoded, Decoder};
use millpond_wire::http2::hpack::encode::Encoder;
use millpond_wire::http2::hpack::huffman;
use millpond_wire::http2::hpack::name::Class;

use crate::pieces;

const BOUNDS: Bounds = Bounds {
    text: 1000,
    list: 3000,
};

/// A field that was read: its class, name, value, and if the value is good.
type Read = (Class, Vec<u8>, Vec<u8>, bool);

fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<Vec<Read>> {
    let mut fields: Vec<Read> = Vec::new();
    let mut sink = |field: Decoded<'_>| {
        fields.push((
            field.class,
            field.name.to_vec(),
            field.value.to_vec(),
            field.is_good,
        ));
    };
    decoder.decode(block, BOUNDS, &mut sink).ok()?;
    let len: usize = fields
        .iter()
        .map(|(_, name, value, _)| name.len() + value.len())
        .sum();
    assert!(len <= BOUNDS.list);
    Some(fields)
}

/// Decodes the blocks of a connection, one after the other, and encodes their fields again.
pub fn run(data: &[u8]) {
    let Some((how, bytes)) = pieces::split(data) else {
        return;
    };
    check_code(bytes);
    let (mut decoder, mut again) = (Decoder::new(), Decoder::new());
    let mut encoder = Encoder::new();
    for block in pieces::cut(how, bytes) {
        let Some(fields) = decode(&mut decoder, block) else {
            return;
        };
        let is_plain =
            |(class, _, _, is_good): &&Read| matches!(class, Class::Field(_)) && *is_good;
        let plain: Vec<_> = fields.iter().filter(is_plain).collect();
        let list: Fields = plain
            .iter()
            .map(|(_, name, value, _)| {
                Field::new(Bytes::copy_from_slice(name), Bytes::copy_from_slice(value))
            })
            .collect();
        let mut out = BytesMut::new();
        encoder.set_max_size(usize::from(how) * 32);
        encoder.begin(&mut out);
        encoder.write_fields(&mut out, &list);
        let read = decode(&mut again, &out).expect("what was encoded is decoded");
        let is_of_connection = |name: &[u8]| {
            let names: [&[u8]; 5] = [
                b"connection",
                b"keep-alive",
                b"proxy-connection",
                b"transfer-encoding",
                b"upgrade",
            ];
            names.contains(&name)
        };
        let expected = plain
            .into_iter()
            .filter(|(_, name, _, _)| !is_of_connection(name));
        assert!(read.iter().eq(expected), "fields change on their way");
    }
}

fn check_code(text: &[u8]) {
    let len = huffman::encoded_len(text);
    let mut coded = BytesMut::new();
    huffman::encode(text, len, &mut coded);
    assert_eq!(coded.len(), len);
    let mut decoded = Vec::new();
    huffman::decode(&coded, &mut decoded).expect("what was coded is decoded");
    assert_eq!(decoded, text);
    decoded.clear();
    if huffman::decode(text, &mut decoded).is_ok() {
        assert!(decoded.len() <= huffman::most_decoded(text.len()));
        let mut again = BytesMut::new();
        huffman::encode(&decoded, huffman::encoded_len(&decoded), &mut again);
        if again.len() < text.len() {
            // A whole byte of padding is borne.
            again.extend_from_slice(&[0xff]);
        }
        assert_eq!(again, text, "one text has one code");
    }
}
