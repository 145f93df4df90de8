//! Blocks of fields against the examples of RFC 7541, and against each other.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::decode::{BadBlock, Bounds, Decoded, Decoder};
use super::encode::Encoder;
use crate::header::{Field, Fields, Known};

const BOUNDS: Bounds = Bounds {
    text: 8192,
    list: 32768,
};

type Pairs = Vec<(String, String)>;

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8], bounds: Bounds) -> Result<Pairs, BadBlock> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut sink = |field: Decoded<'_>| fields.push((text(field.name), text(field.value)));
    decoder.decode(block, bounds, &mut sink)?;
    Ok(fields)
}

fn pairs(list: &[(&str, &str)]) -> Pairs {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    list.iter().map(own).collect()
}

/// RFC 7541 §C.2.
#[test]
fn single_representations_are_read() {
    for (hex, name, value) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            "custom-key",
            "custom-header",
        ),
        (
            "040c 2f73 616d 706c 652f 7061 7468",
            ":path",
            "/sample/path",
        ),
        (
            "1008 7061 7373 776f 7264 0673 6563 7265 74",
            "password",
            "secret",
        ),
        ("82", ":method", "GET"),
    ] {
        let fields = decode(&mut Decoder::new(), &bytes_of(hex), BOUNDS).unwrap();
        assert_eq!(fields, pairs(&[(name, value)]));
    }
}

/// Requests of RFC 7541 §C.3 and §C.4, on one table each.
#[test]
fn requests_of_the_examples_are_read() {
    let fields: [&[(&str, &str)]; 3] = [
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
            ("cache-control", "no-cache"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ],
    ];
    for blocks in [
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ] {
        let mut decoder = Decoder::new();
        for (hex, fields) in blocks.iter().zip(fields) {
            let read = decode(&mut decoder, &bytes_of(hex), BOUNDS).unwrap();
            assert_eq!(read, pairs(fields));
        }
    }
}

/// Answers of RFC 7541 §C.5 and §C.6: a table of 256 bytes, from which entries go.
#[test]
fn answers_of_the_examples_are_read() {
    let location = ("location", "https://www.example.com");
    let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
    let private = ("cache-control", "private");
    let fields: [&[(&str, &str)]; 3] = [
        &[(":status", "302"), private, date, location],
        &[(":status", "307"), private, date, location],
        &[
            (":status", "200"),
            private,
            ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
            location,
            ("content-encoding", "gzip"),
            (
                "set-cookie",
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ),
        ],
    ];
    for blocks in [
        [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 \
             2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 \
             6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d \
             54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 \
             5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e \
             3d31",
        ],
        [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
             2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab \
             77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f \
             9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ],
    ] {
        let mut decoder = Decoder::new();
        // The size of the examples: an update of 256 before the first block.
        let mut size = vec![0x3f, 0xe1, 0x01];
        for (hex, fields) in blocks.iter().zip(fields) {
            size.extend(bytes_of(hex));
            let read = decode(&mut decoder, &std::mem::take(&mut size), BOUNDS).unwrap();
            assert_eq!(read, pairs(fields));
        }
    }
}

/// RFC 7541 §2.3.3, §4.2, §5.1, §5.2, §6.1, §6.3: what is a decoding error.
#[test]
fn blocks_that_are_none_are_refused() {
    for (hex, why) in [
        ("80", BadBlock::BadIndex),
        ("be", BadBlock::BadIndex),
        ("7e 01 61", BadBlock::BadIndex),
        ("ff", BadBlock::Truncated),
        ("42 ff", BadBlock::Truncated),
        ("42", BadBlock::Truncated),
        ("42 02 61", BadBlock::Truncated),
        ("ffff ffff ffff", BadBlock::LongInteger),
        ("42ff ffff ffff", BadBlock::LongInteger),
        ("40 00 01 61", BadBlock::NoName),
        ("42 82 ffff", BadBlock::BadText),
        ("42 81 18", BadBlock::BadText),
        ("42 84 ffff ffff", BadBlock::BadText),
        // 4097.
        ("3fe2 1f", BadBlock::BadSizeUpdate),
        ("82 20", BadBlock::BadSizeUpdate),
        ("42 7f 8240", BadBlock::LongText),
    ] {
        assert_eq!(
            decode(&mut Decoder::new(), &bytes_of(hex), BOUNDS),
            Err(why),
            "{hex}"
        );
    }
}

#[test]
fn fields_are_as_long_together_as_the_bounds_allow() {
    let bounds = |list| Bounds { text: 20, list };
    let block = bytes_of("82 86 0401 2f");
    let len = ":methodGET:schemehttp:path/".len();
    assert!(decode(&mut Decoder::new(), &block, bounds(len)).is_ok());
    for list in 0..len {
        let outcome = decode(&mut Decoder::new(), &block, bounds(list));
        assert_eq!(outcome, Err(BadBlock::LongList), "{list}");
    }
}

/// A coded text has more bytes than stand in the block; they count.
#[test]
fn a_small_block_that_names_a_long_field_often_is_refused() {
    let mut block = bytes_of("40 01 78 7f 8118");
    block.resize(block.len() + 3200, b'y');
    block.resize(block.len() + 1000, 0xbe);
    let outcome = decode(&mut Decoder::new(), &block, BOUNDS);
    assert_eq!(outcome, Err(BadBlock::LongList));
}

/// A block of an answer with these fields.
fn encode(encoder: &mut Encoder, fields: &Fields) -> BytesMut {
    let mut out = BytesMut::new();
    encoder.begin(&mut out);
    encoder.write_fields(&mut out, fields);
    out
}

fn fields(list: &[(&str, &str)]) -> Fields {
    list.iter()
        .map(|(name, value)| {
            let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
            Field::new(bytes(name), bytes(value))
        })
        .collect()
}

#[test]
fn fields_that_repeat_are_an_index_each_the_next_time() {
    let repeating = fields(&[
        ("Server", "millpond"),
        ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("Content-Type", "text/html"),
        ("Cache-Control", "max-age=60"),
    ]);
    let other = fields(&[("X-Frame-Options", "deny")]);
    let mut encoder = Encoder::new();
    let first = encode(&mut encoder, &repeating).len();
    assert!(first > 50, "{first}");
    assert_eq!(encode(&mut encoder, &repeating).len(), 4);
    let lens: Vec<usize> = (0..3).map(|_| encode(&mut encoder, &other).len()).collect();
    assert!(lens[0] > 10 && lens[1] > 10);
    assert_eq!(lens[2], 1, "it has come twice");
}

#[test]
fn several_values_of_a_name_are_remembered() {
    let kinds = ["text/html", "text/css", "image/png", "image/jpeg"];
    let mut encoder = Encoder::new();
    for round in 0..3 {
        for kind in kinds {
            let block = encode(&mut encoder, &fields(&[("Content-Type", kind)]));
            assert_eq!(block.len() == 1, round > 0, "{kind}");
        }
    }
}

/// RFC 7541 §7.1.3.
#[test]
fn secrets_are_in_no_table() {
    let mut encoder = Encoder::new();
    for (name, first) in [
        ("Authorization", 0x1f),
        ("Set-Cookie", 0x0f),
        ("Cookie", 0x0f),
    ] {
        for _ in 0..3 {
            let block = encode(&mut encoder, &fields(&[(name, "abc")]));
            assert_eq!(block[0], first, "{name}");
        }
    }
}

/// RFC 9113 §8.2.1, §8.2.2: names in small letters, no fields of connections, no line ends.
#[test]
fn fields_go_out_as_http2_wants_them() {
    let list = fields(&[
        ("X-UPPER", " a\r\nb "),
        ("Connection", "close"),
        ("Keep-Alive", "1"),
        ("x y:z", "1"),
        (":", "1"),
        ("Upgrade", "h2c"),
        ("ETag", "\0"),
        ("vary", "*"),
    ]);
    let block = encode(&mut Encoder::new(), &list);
    let read = decode(&mut Decoder::new(), &block, BOUNDS).unwrap();
    let expected = pairs(&[
        ("x-upper", "a  b"),
        ("xyz", "1"),
        ("etag", ""),
        ("vary", "*"),
    ]);
    assert_eq!(read, expected);
}

/// RFC 7541 §4.2: the smallest size that was set, and the last one, are told at the begin.
#[test]
fn sizes_of_the_table_are_told_at_the_begin_of_the_next_block() {
    let server = fields(&[("Server", "millpond")]);
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new();
    let mut block = |encoder: &mut Encoder| {
        let block = encode(encoder, &server);
        assert_eq!(
            decode(&mut decoder, &block, BOUNDS).unwrap(),
            pairs(&[("server", "millpond")])
        );
        block
    };
    block(&mut encoder);
    encoder.set_max_size(100_000);
    assert_eq!(block(&mut encoder).len(), 1, "the default is enough");
    encoder.set_max_size(0);
    encoder.set_max_size(100);
    let told = block(&mut encoder);
    assert_eq!(told[..4], [0x20, 0x3f, 69, 0x76]);
    assert_eq!(block(&mut encoder).len(), 1);
    encoder.set_max_size(0);
    assert_eq!(block(&mut encoder)[..2], [0x20, 0x76]);
    assert!(block(&mut encoder).len() > 5, "nothing is kept");
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_as_it_was(
        messages in prop::collection::vec(
            prop::collection::vec((0..90_usize, 0..12_u32, 0..400_usize), 0..12), 0..60),
        sizes in prop::collection::vec(0..5000_usize, 60),
    ) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        for (message, size) in messages.into_iter().zip(sizes) {
            let list: Pairs = message
                .into_iter()
                .map(|(name, value, len)| {
                    let known = Known::ALL.get(name).copied();
                    let known = known.filter(|it| !super::encode::OF_CONNECTIONS.contains(*it));
                    let name = known.map_or(format!("x-{name}"), |it| it.lower().to_owned());
                    (name, value.to_string().repeat(len / 7))
                })
                .collect();
            if size % 5 == 0 {
                encoder.set_max_size(size);
            }
            let borrowed: Vec<(&str, &str)> = list.iter().map(|(a, b)| (&**a, &**b)).collect();
            let block = encode(&mut encoder, &fields(&borrowed));
            prop_assert_eq!(decode(&mut decoder, &block, BOUNDS).unwrap(), list);
        }
    }

    #[test]
    fn no_block_panics(block in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::new();
        let bounds = Bounds { text: 50, list: 200 };
        if let Ok(fields) = decode(&mut decoder, &block, bounds) {
            let len: usize = fields.iter().map(|(name, _)| name.len()).sum();
            prop_assert!(len <= 3 * 200);
        }
    }
}
