//! QPACK: instructions and blocks of strangers keep their bounds; what is encoded is decoded alike;
//! acknowledgements of strangers do no harm to an encoder.
//!
//! ```text
//! how │ instructions … │ block │ acknowledgements …     cut into thirds
//! ```

use bytes::{Bytes, BytesMut};
use millpond_wire::header::{Field, Fields};
use millpond_wire::http2::hpack::decode::{Bounds, Decoded};
use millpond_wire::http2::hpack::name::Class;
use millpond_wire::http3::qpack::decode::Decoder;
use millpond_wire::http3::qpack::encode::Encoder;

use crate::pieces;

const BOUNDS: Bounds = Bounds {
    text: 1000,
    list: 3000,
};
/// The largest table.
const TABLE: usize = 1024;

/// A field that was read: its class, name, value, and if the value is good.
type Read = (Class, Vec<u8>, Vec<u8>, bool);

/// Reads a block that needs no more insertions than there are.
fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<Vec<Read>> {
    let prefix = decoder.prefix(block).ok()?;
    if prefix.required > decoder.insertions() {
        return None;
    }
    let mut fields: Vec<Read> = Vec::new();
    let mut sink = |field: Decoded<'_>| {
        fields.push((
            field.class,
            field.name.to_vec(),
            field.value.to_vec(),
            field.is_good,
        ));
    };
    decoder.decode(block, (&prefix, BOUNDS), &mut sink).ok()?;
    let lens = fields.iter().map(|field| field.1.len() + field.2.len());
    assert!(lens.sum::<usize>() <= BOUNDS.list);
    Some(fields)
}

/// Reads instructions and a block, writes its fields again, and hears what is told of them.
pub fn run(data: &[u8]) {
    let Some((how, bytes)) = pieces::split(data) else {
        return;
    };
    let (instructions, rest) = bytes.split_at(bytes.len() / 3);
    let (block, words) = rest.split_at(rest.len() / 2);
    let (mut decoder, mut cut) = (Decoder::new(TABLE), Decoder::new(TABLE));
    let whole = decoder.obey(instructions, || true);
    let by_pieces = pieces::cut(how, instructions).try_for_each(|it| cut.obey(it, || true));
    assert_eq!(whole, by_pieces, "pieces decide what is obeyed");
    if whole.is_err() {
        return;
    }
    assert_eq!(decoder.insertions(), cut.insertions());
    let fields = decode(&mut decoder, block);
    assert_eq!(fields, decode(&mut cut, block));
    write_again(how, &fields.unwrap_or_default(), words);
}

/// Writes fields several times, with a table that is used as soon as its entries are acknowledged.
fn write_again(how: u8, fields: &[Read], words: &[u8]) {
    let is_plain = |field: &&Read| matches!(field.0, Class::Field(_)) && field.3;
    let list: Fields = fields
        .iter()
        .filter(is_plain)
        .map(|(_, name, value, _)| {
            Field::new(Bytes::copy_from_slice(name), Bytes::copy_from_slice(value))
        })
        .collect();
    let size = u64::from(how) * 8;
    let mut encoder = Encoder::new();
    encoder.set_max_size(size);
    let mut reader = Decoder::new(size as usize);
    let mut first = None;
    for stream in [0, 4, 8] {
        encoder.begin();
        encoder.write_fields(&list);
        let mut frame = BytesMut::new();
        let len = encoder.end(stream, &mut frame);
        let block = frame.split_off(frame.len() - len);
        let instructions = encoder.take_instructions();
        reader
            .obey(&instructions, || true)
            .expect("what was written is obeyed");
        let read = decode(&mut reader, &block).expect("what was encoded is decoded");
        assert_eq!(*first.get_or_insert_with(|| read.clone()), read);
        let increment = reader.take_increment();
        if (1..64).contains(&increment) {
            let told = encoder.heed(&[increment as u8], || true);
            told.expect("insertions are what was inserted");
        }
    }
    let _ = encoder.heed(words, || true);
    encoder.begin();
    encoder.write_fields(&list);
    encoder.end(12, &mut BytesMut::new());
}
