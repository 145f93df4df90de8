//! The examples of RFC 9204 appendix B, the errors of its sections, and both ends against each
//! other.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::decode::{BadBlock, BadInstruction, Decoder};
use super::encode::{BadAcknowledgement, Encoder};
use crate::header::{Field, Fields, Known};
use crate::http2::hpack::decode::{Bounds, Decoded};
use crate::http3::frame;

const BOUNDS: Bounds = Bounds {
    text: 8192,
    list: 32_768,
};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter_map(|byte| char::from(byte).to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect()
}

fn obey(decoder: &mut Decoder, hex: &str) -> Result<(), BadInstruction> {
    decoder.obey(&bytes(hex), || true)
}

/// The fields of a block, as "name: value" lines.
fn read(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, BadBlock> {
    let prefix = decoder.prefix(block)?;
    assert!(prefix.required <= decoder.insertions(), "it waits");
    let mut lines = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut sink = |field: Decoded<'_>| {
        lines.push(format!("{}: {}", text(field.name), text(field.value)));
    };
    decoder.decode(block, (&prefix, BOUNDS), &mut sink)?;
    Ok(lines)
}

/// RFC 9204 appendix B, one example after the other.
#[test]
fn the_examples_of_the_rfc_are_read() {
    let mut decoder = Decoder::new(220);
    // B.1
    let block = bytes("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    assert_eq!(read(&mut decoder, &block).unwrap(), [":path: /index.html"]);
    // B.2
    let block = bytes("0381 10 11");
    assert_eq!(decoder.prefix(&block).unwrap().required, 2, "it waits");
    obey(&mut decoder, "3fbd01").unwrap();
    obey(&mut decoder, "c00f 7777 772e 6578 616d 706c 652e 636f 6d").unwrap();
    obey(&mut decoder, "c10c 2f73 616d 706c 652f 7061 7468").unwrap();
    let lines = [":authority: www.example.com", ":path: /sample/path"];
    assert_eq!(read(&mut decoder, &block).unwrap(), lines);
    let prefix = decoder.prefix(&block).unwrap();
    decoder.note_acknowledged(&prefix);
    assert_eq!(decoder.take_increment(), 0, "the acknowledgement says it");
    // B.3
    let insert = "4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565";
    obey(&mut decoder, insert).unwrap();
    assert_eq!(decoder.take_increment(), 1);
    // B.4
    obey(&mut decoder, "02").unwrap();
    let lines = [
        ":authority: www.example.com",
        ":path: /",
        "custom-key: custom-value",
    ];
    let block = bytes("0500 80 c1 81");
    assert_eq!(read(&mut decoder, &block).unwrap(), lines);
    // B.5
    obey(&mut decoder, "810d 6375 7374 6f6d 2d76 616c 7565 32").unwrap();
    assert_eq!(decoder.insertions(), 5);
    // The oldest entry is gone: it was the first :authority.
    let block = bytes("0600 80 83");
    let lines = ["custom-key: custom-value2", ":path: /sample/path"];
    assert_eq!(read(&mut decoder, &block).unwrap(), lines);
    let block = bytes("0600 84");
    assert_eq!(read(&mut decoder, &block), Err(BadBlock::BadIndex));
}

/// RFC 9204 §4.3, cut at every byte.
#[test]
fn instructions_are_obeyed_however_they_are_cut() {
    let all = bytes(
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468 \
         4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565 02",
    );
    for step in 1..all.len() {
        let mut decoder = Decoder::new(220);
        for piece in all.chunks(step) {
            decoder.obey(piece, || true).unwrap();
        }
        assert_eq!(decoder.insertions(), 4);
        let lines = read(&mut decoder, &bytes("0500 80 81")).unwrap();
        assert_eq!(
            lines,
            [":authority: www.example.com", "custom-key: custom-value"]
        );
    }
}

/// RFC 9204 §3.2.2, §3.2.3, §4.3.
#[test]
fn instructions_that_cannot_be_obeyed_are_refused() {
    for (instructions, why) in [
        ("3fbe01", "a size beyond the setting"),
        ("c001 61", "an entry without a table"),
        ("3f01 c0", "no error: it is not whole"),
        ("3f01 c07f 01", "a value longer than the table"),
        ("3fbd01 ff25 0161", "a row that there is not (§3.1)"),
        ("3fbd01 80 0161", "a name of an entry that there is not"),
        ("3fbd01 00", "a duplicate of an entry that there is not"),
        ("3f02 c001 61", "an entry larger than the table"),
        ("3fbd01 c081 00", "a text that is no code"),
    ] {
        let mut decoder = Decoder::new(220);
        let expected = match why {
            "no error: it is not whole" => Ok(()),
            _ => Err(BadInstruction::Invalid),
        };
        assert_eq!(obey(&mut decoder, instructions), expected, "{why}");
    }
    let mut decoder = Decoder::new(220);
    let paid = Cell::new(0);
    let outcome = decoder.obey(&bytes("3fbd01 c001 61 00 00 00"), || {
        paid.set(paid.get() + 1);
        paid.get() < 4
    });
    assert_eq!(outcome, Err(BadInstruction::TooMany));
}

/// RFC 9204 §7.4: a text that is longer than what can be decoded is an error of the connection.
#[test]
fn entries_have_no_longer_texts_than_blocks() {
    for (instruction, expected) in [
        ("c0 03 616161", Ok(())),
        ("c0 04 61616161", Err(BadInstruction::Invalid)),
        ("c0 83 18c63f", Err(BadInstruction::Invalid)),
        ("43 616161 01 61", Ok(())),
        ("44 61616161 01 61", Err(BadInstruction::Invalid)),
    ] {
        let mut decoder = Decoder::new(220).with_longest(3);
        let outcome = obey(&mut decoder, &format!("3fbd01 {instruction}"));
        assert_eq!(outcome, expected, "{instruction}");
        let mut roomy = Decoder::new(220);
        assert_eq!(obey(&mut roomy, &format!("3fbd01 {instruction}")), Ok(()));
    }
}

/// RFC 9204 §2.2.3, §3.1, §4.5.1.
#[test]
fn blocks_that_cannot_be_read_are_refused() {
    for (block, why) in [
        ("", BadBlock::Truncated),
        ("00", BadBlock::Truncated),
        // No insertion can be needed where there is no table as large; one that has wrapped.
        ("0e00", BadBlock::BadPrefix),
        ("ff7f00", BadBlock::BadPrefix),
        // A base below zero.
        ("0382", BadBlock::BadPrefix),
        // Rows and entries that there are not.
        ("0000 ff24", BadBlock::BadIndex),
        ("0000 80", BadBlock::BadIndex),
        ("0000 10", BadBlock::BadIndex),
        // Beyond what the prefix says: it needs one insertion, and refers to the second.
        ("0201 80", BadBlock::BadIndex),
        ("0200 10", BadBlock::BadIndex),
        ("0000 5f54 0161", BadBlock::BadIndex),
        ("0000 40 0161", BadBlock::BadIndex),
        // Cut.
        ("0000 51", BadBlock::Truncated),
        ("0000 510b 2f", BadBlock::Truncated),
        ("0000 23 61", BadBlock::Truncated),
        ("0000 5181 00", BadBlock::BadText),
        ("0000 51ff ffff ffff ffff ffff ff7f", BadBlock::LongInteger),
        ("0000 517f ffff 03", BadBlock::LongText),
    ] {
        let mut decoder = Decoder::new(220);
        obey(&mut decoder, "3fbd01 c001 61 c001 62").unwrap();
        assert_eq!(read(&mut decoder, &bytes(block)), Err(why), "{block}");
    }
}

/// RFC 9204 §4.5.1.1: with 100 bytes, three entries, the sixth value of a circle of six.
#[test]
fn the_count_of_insertions_goes_round() {
    let mut decoder = Decoder::new(100);
    obey(&mut decoder, "3f45").unwrap();
    for number in 0..10 {
        obey(&mut decoder, &format!("4161 01{:02x}", b'0' + number)).unwrap();
    }
    assert_eq!(decoder.prefix(&bytes("0400")).unwrap().required, 9);
    for coded in 1..=6_u8 {
        let required = decoder.prefix(&[coded, 0]).unwrap().required;
        assert!((8..=13).contains(&required) && required % 6 + 1 == u32::from(coded));
    }
    assert_eq!(decoder.prefix(&[7, 0]), Err(BadBlock::BadPrefix));
}

#[test]
fn lists_that_are_too_long_are_refused() {
    let mut decoder = Decoder::new(0);
    let block = bytes("0000 c1 c1 c1");
    let prefix = decoder.prefix(&block).unwrap();
    let bounds = Bounds { text: 10, list: 15 };
    let outcome = decoder.decode(&block, (&prefix, bounds), &mut |_: Decoded<'_>| {});
    assert_eq!(outcome, Err(BadBlock::LongList));
    assert!(BadBlock::LongList.is_long() && !BadBlock::Truncated.is_long());
}

/// An encoder, and the decoder that it writes for.
struct Ends {
    encoder: Encoder,
    decoder: Decoder,
}

impl Ends {
    fn new(size: u64) -> Self {
        let mut encoder = Encoder::new();
        encoder.set_max_size(size);
        Ends {
            encoder,
            decoder: Decoder::new(size as usize),
        }
    }

    /// Writes a block; gives its bytes without the frame's head.
    fn write(&mut self, stream: u64, fields: &Fields) -> Vec<u8> {
        self.encoder.begin();
        self.encoder.write_fields(fields);
        let mut out = BytesMut::new();
        let len = self.encoder.end(stream, &mut out);
        let mut rest = &out[..];
        assert_eq!(frame::read_head(&mut rest).unwrap().len, len as u64);
        rest.to_vec()
    }

    fn carry(&mut self) {
        let instructions = self.encoder.take_instructions();
        self.decoder.obey(&instructions, || true).unwrap();
    }

    fn tell(&mut self, word: &[u8]) -> Result<(), BadAcknowledgement> {
        self.encoder.heed(word, || true)
    }
}

fn fields(list: &[(&str, &str)]) -> Fields {
    let own = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let field = |(name, value): &(&str, &str)| Field::new(own(name), own(value));
    list.iter().map(field).collect()
}

/// RFC 9204 §2.1: what was acknowledged stands as an index, and only that.
#[test]
fn a_field_that_repeats_becomes_an_index_once_it_is_acknowledged() {
    let mut ends = Ends::new(4096);
    let list = fields(&[("Server", "millpond"), ("X-A", "1")]);
    let first = ends.write(0, &list);
    assert_eq!(first[..2], [0, 0], "no block waits");
    assert_eq!(ends.write(4, &list)[..2], [0, 0]);
    ends.carry();
    assert_eq!(ends.decoder.insertions(), 2, "X-A came twice");
    assert_eq!(ends.write(8, &list)[..2], [0, 0]);
    ends.tell(&[0x02]).unwrap();
    let short = ends.write(12, &list);
    assert_eq!(short, [3, 0, 0x81, 0x80]);
    let lines = ["server: millpond", "x-a: 1"];
    assert_eq!(read(&mut ends.decoder, &short).unwrap(), lines);
    assert_eq!(read(&mut ends.decoder, &first).unwrap(), lines);
}

/// RFC 9204 §2.1.1: nothing goes that may be referred to.
#[test]
fn entries_stay_until_their_blocks_are_acknowledged() {
    let mut ends = Ends::new(2 * (32 + 6 + 1) as u64);
    let of = |value: &str| fields(&[("server", value)]);
    for value in ["1", "2", "3"] {
        ends.write(0, &of(value));
    }
    ends.carry();
    assert_eq!(
        ends.decoder.insertions(),
        2,
        "none goes that was not told of"
    );
    ends.tell(&[0x02]).unwrap();
    assert_eq!(ends.write(4, &of("1")).len(), 3, "an index");
    ends.write(8, &of("3"));
    ends.carry();
    assert_eq!(ends.decoder.insertions(), 2, "the first is referred to");
    ends.tell(&[0x84]).unwrap();
    ends.write(8, &of("3"));
    ends.carry();
    assert_eq!(ends.decoder.insertions(), 3);
    // A stream that was cancelled refers to nothing.
    ends.tell(&[0x01]).unwrap();
    ends.write(12, &of("2"));
    ends.write(16, &of("4"));
    ends.carry();
    assert_eq!(ends.decoder.insertions(), 3);
    ends.tell(&[0x40 | 12]).unwrap();
    ends.write(16, &of("4"));
    ends.carry();
    assert_eq!(ends.decoder.insertions(), 4);
}

/// RFC 9204 §4.4.
#[test]
fn acknowledgements_of_what_was_not_sent_are_refused() {
    for word in [&[0x80][..], &[0x00], &[0x02], &[0x84]] {
        let mut ends = Ends::new(4096);
        ends.write(0, &fields(&[("server", "a")]));
        let outcome = ends.tell(word);
        assert_eq!(outcome, Err(BadAcknowledgement::Invalid), "{word:x?}");
    }
    let mut ends = Ends::new(4096);
    assert_eq!(ends.tell(&[0x44]), Ok(()), "a cancellation may be of any");
    assert_eq!(ends.tell(&[0x7f]), Ok(()), "cut");
    assert_eq!(ends.tell(&[0x80]), Ok(()));
    assert_eq!(ends.tell(&[0x01]), Ok(()));
    let outcome = ends.encoder.heed(&[0x44, 0x44], || false);
    assert_eq!(outcome, Err(BadAcknowledgement::TooMany));
}

/// RFC 9204 §7.1.3.
#[test]
fn secrets_are_literals_that_nobody_may_index() {
    let mut ends = Ends::new(4096);
    let list = fields(&[("Authorization", "a"), ("Set-Cookie", "b=c")]);
    for _ in 0..3 {
        let block = ends.write(0, &list);
        // Row 84 by name with N, row 14 without.
        assert_eq!(block[2..6], [0x7f, 84 - 15, 1, b'a']);
        assert_eq!(block[6], 0x5e);
        assert!(ends.encoder.take_instructions().len() <= 3);
    }
    let mut ends = Ends::new(0);
    ends.encoder.begin();
    ends.encoder.write_known(Known::ContentLength, b"0");
    ends.encoder.write_status(200);
    let mut out = BytesMut::new();
    ends.encoder.end(0, &mut out);
    assert_eq!(out[..], [1, 4, 0, 0, 0xc0 | 4, 0xc0 | 25]);
}

#[test]
fn what_would_end_a_line_is_no_part_of_a_value() {
    let mut ends = Ends::new(4096);
    let list = fields(&[("X-\nA", " b\r\n c\0"), ("Connection", "close"), ("", "x")]);
    let block = ends.write(0, &list);
    assert_eq!(read(&mut ends.decoder, &block).unwrap(), ["x-a: b   c"]);
}

#[derive(Clone, Debug)]
enum Step {
    /// A block with fields of these numbers.
    Write(Vec<(u8, u8)>),
    /// Bytes of the instructions, so many.
    Instruct(usize),
    /// The oldest block that can be read is read and acknowledged, or cancelled.
    Read(bool),
    /// The insertions are told of.
    Tell,
}

fn step() -> impl Strategy<Value = Step> {
    let field = (0..12_u8, 0..5_u8);
    prop_oneof![
        4 => prop::collection::vec(field, 1..8).prop_map(Step::Write),
        4 => (1..80_usize).prop_map(Step::Instruct),
        4 => any::<bool>().prop_map(Step::Read),
        2 => Just(Step::Tell),
    ]
}

const NAMES: [&str; 12] = [
    "server",
    "date",
    "content-type",
    "cache-control",
    "vary",
    "x-a",
    "x-b",
    "etag",
    "via",
    "x-forwarded-for",
    "user-agent",
    "set-cookie",
];

proptest! {
    /// Instructions and blocks go by ways of their own, as slowly as may be.
    #[test]
    fn fields_arrive_as_they_were_written(
        size in prop_oneof![Just(0_u64), 60..500_u64, Just(4096), Just(100_000)],
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut ends = Ends::new(size);
        let mut pipe = BytesMut::new();
        let mut blocks = Vec::new();
        let mut stream = 0;
        for step in steps {
            pipe.unsplit(ends.encoder.take_instructions());
            match step {
                Step::Write(numbers) => {
                    let value = |number: u8| "v".repeat(1 + usize::from(number) * 9);
                    let list = numbers.iter().map(|(name, number)| {
                        Field::new(NAMES[usize::from(*name)].into(), Bytes::from(value(*number)))
                    });
                    let list: Fields = list.collect();
                    let block = ends.write(stream, &list);
                    blocks.push((stream, block, list));
                    stream += 4;
                }
                Step::Instruct(len) => {
                    let part = pipe.split_to(len.min(pipe.len()));
                    ends.decoder.obey(&part, || true).unwrap();
                }
                Step::Read(is_cancelled) if !blocks.is_empty() => {
                    let (stream, block, list) = blocks.remove(0);
                    let prefix = ends.decoder.prefix(&block).unwrap();
                    let mut word = BytesMut::new();
                    if is_cancelled {
                        super::integer::write(&mut word, 0x40, 6, stream);
                    } else {
                        prop_assert!(prefix.required <= ends.decoder.insertions());
                        let lines = read(&mut ends.decoder, &block).unwrap();
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        let expected: Vec<_> = list
                            .iter()
                            .map(|it| format!("{}: {}", text(&it.name).to_lowercase(), text(&it.value)))
                            .collect();
                        prop_assert_eq!(lines, expected);
                        if prefix.required > 0 {
                            ends.decoder.note_acknowledged(&prefix);
                            super::integer::write(&mut word, 0x80, 7, stream);
                        }
                    }
                    ends.tell(&word).unwrap();
                }
                Step::Tell => {
                    let increment = ends.decoder.take_increment();
                    if increment > 0 {
                        let mut word = BytesMut::new();
                        super::integer::write(&mut word, 0, 6, u64::from(increment));
                        ends.tell(&word).unwrap();
                    }
                }
                Step::Read(_) => {}
            }
        }
    }
}
