//! The Huffman code of HPACK (RFC 7541 §5.2, appendix B).
//!
//! The code is canonical: the lengths of the codes say them all, so the tables are computed from
//! `LENGTHS`. Most texts are read two symbols at a time, by the twelve bits that come next:
//!
//! ```text
//! PAIRS[next 12 bits] = first symbol | second | bits of the first | bits of both | count
//! ```
//!
//! 1. Padding is the begin of EOS and shorter than a byte; EOS itself is never a symbol.
//! 2. A text has at most [`most_decoded`] bytes when it is decoded.

use bytes::BytesMut;

/// Bits of each symbol's code; the last is EOS.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// Symbols, EOS included.
const SYMBOLS: usize = LENGTHS.len();
/// The symbol that ends no text.
const EOS: u16 = 256;
/// Bits of the longest code.
const LONGEST: usize = 30;
/// Bits that [`PAIRS`] is asked by: two of the most frequent symbols have as many.
const PEEK: u32 = 12;

/// The codes in the order of their numbers: by length, then by symbol.
struct Canonical {
    /// The code of each symbol.
    codes: [u32; SYMBOLS],
    /// The first code of each length.
    first: [u32; LONGEST + 1],
    /// The place in `symbols` of each length's first code.
    place: [u16; LONGEST + 1],
    /// The count of codes of each length.
    count: [u16; LONGEST + 1],
    symbols: [u16; SYMBOLS],
}

static CANONICAL: Canonical = canonical();

const fn canonical() -> Canonical {
    let mut made = Canonical {
        codes: [0; SYMBOLS],
        first: [0; LONGEST + 1],
        place: [0; LONGEST + 1],
        count: [0; LONGEST + 1],
        symbols: [0; SYMBOLS],
    };
    let (mut code, mut at, mut length) = (0_u32, 0, 1);
    while length <= LONGEST {
        code <<= 1;
        made.first[length] = code;
        made.place[length] = at as u16;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                made.codes[symbol] = code;
                made.symbols[at] = symbol as u16;
                made.count[length] += 1;
                at += 1;
                code += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    made
}

/// The symbols that some bits begin with.
#[derive(Clone, Copy)]
struct Pair {
    symbols: [u8; 2],
    /// Bits of the first symbol's code; zero if it is longer than what was looked at.
    first: u8,
    /// Bits of both; those of the first if the second is not there as a whole.
    both: u8,
}

static PAIRS: [Pair; 1 << PEEK] = pairs();

const fn pairs() -> [Pair; 1 << PEEK] {
    let none = Pair {
        symbols: [0; 2],
        first: 0,
        both: 0,
    };
    let codes = canonical();
    let mut table = [none; 1 << PEEK];
    let mut bits = 0;
    while bits < table.len() {
        let (symbol, first) = leading(&codes, bits as u32, PEEK);
        if first > 0 {
            let (second, length) = leading(&codes, bits as u32, PEEK - first);
            table[bits] = Pair {
                symbols: [symbol, second],
                first: first as u8,
                both: (first + length) as u8,
            };
        }
        bits += 1;
    }
    table
}

/// The symbol that the last `have` of some bits begin with, and its length; zero if it is longer.
const fn leading(codes: &Canonical, bits: u32, have: u32) -> (u8, u32) {
    let mut length = 5;
    while length <= have {
        let code = (bits & ((1 << have) - 1)) >> (have - length);
        let at = code.wrapping_sub(codes.first[length as usize]);
        if code >= codes.first[length as usize] && at < codes.count[length as usize] as u32 {
            let place = codes.place[length as usize] as usize + at as usize;
            // Codes that are looked at are short, and short ones are those of bytes.
            return (codes.symbols[place] as u8, length);
        }
        length += 1;
    }
    (0, 0)
}

/// A text that is no Huffman code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCode;

/// Most bytes that a coded text of so many bytes has.
#[must_use]
pub fn most_decoded(len: usize) -> usize {
    // No code is shorter than five bits.
    len * 8 / 5
}

/// The bits of a text, the next ones highest.
struct Bits<'a> {
    next: u64,
    have: u32,
    rest: &'a [u8],
}

impl Bits<'_> {
    /// Takes more of the text, so that there are 56 bits at least, or all that are left.
    #[inline]
    fn fill(&mut self) {
        if let Some(chunk) = self.rest.first_chunk::<8>() {
            let bytes = (63 - self.have) / 8;
            self.next |= u64::from_be_bytes(*chunk) >> self.have;
            self.have += bytes * 8;
            // At most seven of the eight.
            self.rest = self.rest.get(bytes as usize..).unwrap_or_default();
            // The bits behind are those of a byte that was not taken; they come again as they are.
            return;
        }
        while self.have <= 56
            && let Some((byte, rest)) = self.rest.split_first()
        {
            self.next |= u64::from(*byte) << (56 - self.have);
            self.have += 8;
            self.rest = rest;
        }
    }

    #[inline]
    fn take(&mut self, count: u32) {
        self.next <<= count;
        self.have -= count;
    }

    /// The next symbol, whatever its length.
    fn symbol(&mut self) -> Result<u8, BadCode> {
        for length in 5..=LONGEST.min(self.have as usize) {
            let code = (self.next >> (64 - length)) as u32;
            let at = code.wrapping_sub(CANONICAL.first[length]);
            if at < u32::from(CANONICAL.count[length]) {
                let place = usize::from(CANONICAL.place[length]) + at as usize;
                let symbol = CANONICAL.symbols.get(place).copied().unwrap_or(EOS);
                self.take(length as u32);
                // RFC 7541 §5.2: EOS within a text is an error.
                return u8::try_from(symbol).map_err(|_| BadCode);
            }
        }
        Err(BadCode)
    }

    /// RFC 7541 §5.2: padding is less than a byte, and the begin of EOS. nginx bears a whole byte
    /// behind a text that ends with one, or is empty.
    fn is_padding(&self) -> bool {
        self.have <= 8 && (self.have == 0 || self.next >> (64 - self.have) == (1 << self.have) - 1)
    }
}

/// Appends a text that is decoded; says if it is one.
///
/// # Errors
/// EOS in the text, or padding that is no begin of EOS or more than a byte (RFC 7541 §5.2).
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> Result<(), BadCode> {
    let start = out.len();
    // One more than is needed, since symbols are written by twos.
    out.resize(start + most_decoded(text.len()) + 1, 0);
    let mut at = start;
    let mut bits = Bits {
        next: 0,
        have: 0,
        rest: text,
    };
    let outcome = loop {
        if bits.have < 2 * PEEK {
            bits.fill();
            if bits.have < PEEK {
                break decode_end(&mut bits, out, &mut at);
            }
        }
        let pair = PAIRS[(bits.next >> (64 - PEEK)) as usize];
        if pair.first == 0 {
            bits.fill();
            match bits.symbol() {
                Ok(symbol) => put(out, at, [symbol, 0]),
                Err(bad) => break Err(bad),
            }
            at += 1;
            continue;
        }
        put(out, at, pair.symbols);
        bits.take(u32::from(pair.both));
        at += 1 + usize::from(pair.both > pair.first);
    };
    out.truncate(at);
    outcome
}

/// The last symbols, whose bits are too few to be looked at by twos.
#[cold]
fn decode_end(bits: &mut Bits<'_>, out: &mut [u8], at: &mut usize) -> Result<(), BadCode> {
    while !bits.is_padding() {
        let symbol = bits.symbol()?;
        put(out, *at, [symbol, 0]);
        *at += 1;
    }
    Ok(())
}

/// Writes two symbols, the second of which may be written over.
#[inline]
fn put(out: &mut [u8], at: usize, symbols: [u8; 2]) {
    if let Some(place) = out.get_mut(at..at + 2) {
        place.copy_from_slice(&symbols);
    } else if let Some(place) = out.get_mut(at) {
        *place = symbols[0];
    }
}

/// Bytes that a text has when it is coded.
#[must_use]
pub fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text
        .iter()
        .map(|byte| usize::from(LENGTHS[usize::from(*byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Appends a text that is coded; `len` is what [`encoded_len`] says of it.
pub fn encode(text: &[u8], len: usize, out: &mut BytesMut) {
    let start = out.len();
    out.resize(start + len, 0);
    let mut room = out.get_mut(start..).unwrap_or_default();
    let (mut bits, mut have) = (0_u64, 0);
    for byte in text {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(CANONICAL.codes[usize::from(*byte)]);
        have += length;
        if have >= 32 {
            have -= 32;
            let Some((place, rest)) = room.split_first_chunk_mut::<4>() else {
                return;
            };
            *place = ((bits >> have) as u32).to_be_bytes();
            room = rest;
        }
    }
    // Padded by ones: less than 32 bits, and as many bytes as are left.
    let padded = bits << (32 - have) | ((1_u64 << (32 - have)) - 1);
    let last = (padded as u32).to_be_bytes();
    let count = room.len().min(last.len());
    if let (Some(place), Some(bytes)) = (room.get_mut(..count), last.get(..count)) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(text: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        encode(text, encoded_len(text), &mut out);
        out
    }

    fn decoded(bytes: &[u8]) -> Result<Vec<u8>, BadCode> {
        let mut out = Vec::new();
        decode(bytes, &mut out).map(|()| out)
    }

    /// RFC 7541 appendix B: some of the codes, of each kind of length.
    #[test]
    fn codes_are_those_of_the_rfc() {
        for (symbol, code, length) in [
            (b'0' as usize, 0x0, 5),
            (b'a' as usize, 0x3, 5),
            (b' ' as usize, 0x14, 6),
            (b':' as usize, 0x5c, 7),
            (b'&' as usize, 0xf8, 8),
            (b'!' as usize, 0x3f8, 10),
            (b'\\' as usize, 0x7fff0, 19),
            (0, 0x1ff8, 13),
            (1, 0x7f_ffd8, 23),
            (249, 0xfff_fffe, 28),
            (10, 0x3fff_fffc, 30),
            (22, 0x3fff_fffe, 30),
            (256, 0x3fff_ffff, 30),
        ] {
            assert_eq!(CANONICAL.codes[symbol], code, "{symbol}");
            assert_eq!(LENGTHS[symbol], length, "{symbol}");
        }
    }

    /// RFC 7541 appendix C.4 and C.6.
    #[test]
    fn texts_of_the_examples_are_coded_as_there() {
        for (text, bytes) in [
            (
                "www.example.com",
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ][..],
            ),
            ("no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            ("302", &[0x64, 0x02]),
            ("", &[]),
        ] {
            assert_eq!(coded(text.as_bytes()), bytes, "{text}");
            assert_eq!(decoded(bytes).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn all_bytes_beside_all_others_are_decoded_as_they_were() {
        for one in 0..=255 {
            for other in 0..=255 {
                let text = [b'a', one, other, b'/', one];
                let bytes = coded(&text);
                assert_eq!(bytes.len(), encoded_len(&text));
                assert_eq!(decoded(&bytes).unwrap(), text, "{one} {other}");
            }
        }
    }

    #[test]
    fn texts_of_all_lengths_are_decoded_as_they_were() {
        for len in 0..300_usize {
            let text: Vec<u8> = (0..len).map(|at| (at * 7 % 96 + 32) as u8).collect();
            assert_eq!(decoded(&coded(&text)).unwrap(), text, "{len}");
        }
    }

    /// RFC 7541 §5.2: padding of more than a byte, padding that is not the begin of EOS, and EOS
    /// itself are errors.
    #[test]
    fn wrong_padding_and_eos_are_refused() {
        for bytes in [
            // 'a' is 00011: padded by zeros, by a byte too many.
            &[0b0001_1000][..],
            &[0b0001_1110],
            &[0b0001_1111, 0xff],
            &[0xff, 0xff, 0xff],
            // EOS, and EOS between others.
            &[0xff, 0xff, 0xff, 0xff],
            &[0b0001_1111, 0xff, 0xff, 0xff, 0xf8, 0xff],
            &[0x64, 0x02, 0xff, 0xff, 0xff, 0xff, 0x64, 0x02, 0x64, 0x02],
        ] {
            assert_eq!(decoded(bytes), Err(BadCode), "{bytes:x?}");
        }
        assert_eq!(decoded(&[0b0001_1111]).unwrap(), b"a");
        // '&' has eight bits: nginx bears a whole byte behind it, and behind nothing.
        assert_eq!(decoded(&[0xff]).unwrap(), b"");
        assert_eq!(decoded(&[0b1111_1000, 0xff]).unwrap(), b"&");
        assert_eq!(decoded(&[0b1111_1000, 0xff, 0xff]), Err(BadCode));
    }

    #[test]
    fn what_is_decoded_is_coded_as_it_was_and_never_too_long() {
        let mut state = 1_u32;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..state % 12)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            state = state.wrapping_add(1);
            if let Ok(text) = decoded(&bytes) {
                assert!(text.len() <= most_decoded(bytes.len()));
                let mut again = coded(&text);
                if again.len() < bytes.len() {
                    again.extend_from_slice(&[0xff]);
                }
                assert_eq!(again, bytes);
            }
        }
    }
}
