//! Encoding of a whole body by `br`, `zstd` or `gzip`, or by `dcb` or `dcz` with a dictionary, and
//! the comparison of what came out.
//!
//! A body by a dictionary begins with a magic number and the dictionary's hash (RFC 9842 §4, §5).
//! Its window has room for dictionary and body together, as far as readers must have room.
//!
//! The same bytes, coding and level give the same encoding, as long as the libraries stay the same.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use millpond_semantics::accept_encoding::Coding;
use millpond_semantics::dictionary::{DictionaryCoding, Hash};

/// The largest window that readers of brotli must have room for, as a power of two (RFC 7932 §9.1).
const BROTLI_WINDOW_BITS: i32 = 24;
/// The largest window that readers of the content coding zstd must have room for (RFC 9659 §3).
const ZSTD_WINDOW_BITS: u32 = 23;
/// Bytes that are compared at once (arbitrary).
const STEP: usize = 64 << 10;

/// A body in a coding.
pub(super) fn encode(coding: Coding, level: u32, body: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Brotli => {
            let params = brotli::enc::BrotliEncoderParams {
                quality: level.cast_signed(),
                lgwin: window_bits(body.len()),
                size_hint: body.len(),
                ..Default::default()
            };
            let mut out = Vec::new();
            brotli::BrotliCompress(&mut &*body, &mut out, &params)?;
            Ok(out)
        }
        Coding::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level.cast_signed())?;
            encoder.set_pledged_src_size(Some(body.len() as u64))?;
            encoder.window_log(ZSTD_WINDOW_BITS.min(window_bits(body.len()).cast_unsigned()))?;
            encoder.write_all(body)?;
            encoder.finish()
        }
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
            encoder.write_all(body)?;
            encoder.finish()
        }
    }
}

/// A body in a coding by a dictionary.
pub(super) fn encode_by(
    (coding, hash): (DictionaryCoding, &Hash),
    level: u32,
    (dictionary, body): (&[u8], &[u8]),
) -> io::Result<Vec<u8>> {
    let mut out = coding.magic().to_vec();
    out.extend_from_slice(hash);
    let bits = window_bits(dictionary.len() + body.len());
    match coding {
        DictionaryCoding::Brotli => {
            let params = brotli::enc::BrotliEncoderParams {
                quality: level.cast_signed(),
                lgwin: bits,
                size_hint: body.len(),
                ..Default::default()
            };
            brotli::enc::BrotliCompressCustomIoCustomDict(
                &mut brotli::IoReaderWrapper(&mut &*body),
                &mut brotli::IoWriterWrapper(&mut out),
                &mut [0; 4096],
                &mut [0; 4096],
                &params,
                brotli::enc::StandardAlloc::default(),
                &mut |_, _, _, _| (),
                dictionary,
                io::ErrorKind::UnexpectedEof.into(),
            )?;
            Ok(out)
        }
        DictionaryCoding::Zstd => {
            let level = level.cast_signed();
            let mut encoder =
                zstd::stream::write::Encoder::with_ref_prefix(out, level, dictionary)?;
            encoder.set_pledged_src_size(Some(body.len() as u64))?;
            encoder.window_log(bits.cast_unsigned().min(zstd_bits(dictionary.len())))?;
            encoder.long_distance_matching(true)?;
            encoder.write_all(body)?;
            encoder.finish()
        }
    }
}

/// The largest window that readers of dcz must have room for: 8 MB, or 1.25 times the dictionary
/// (RFC 9842 §5).
fn zstd_bits(dictionary: usize) -> u32 {
    let most = (dictionary + dictionary / 4).max(1 << ZSTD_WINDOW_BITS);
    most.ilog2()
}

/// True if an encoding by a dictionary is that of a body.
pub(super) fn decodes_by(
    (coding, hash): (DictionaryCoding, &Hash),
    encoded: &[u8],
    (dictionary, body): (&[u8], &[u8]),
) -> bool {
    let stream = encoded
        .strip_prefix(coding.magic())
        .and_then(|rest| rest.strip_prefix(&hash[..]));
    match (stream, coding) {
        (None, _) => false,
        (Some(stream), DictionaryCoding::Brotli) => {
            let dictionary = dictionary.to_vec().into();
            let decoder = brotli::Decompressor::new_with_custom_dict(stream, 4096, dictionary);
            is_same(decoder, body)
        }
        (Some(stream), DictionaryCoding::Zstd) => {
            zstd::stream::read::Decoder::with_ref_prefix(stream, dictionary)
                .is_ok_and(|decoder| is_same(decoder, body))
        }
    }
}

/// A window that has room for the whole body, if there may be such a large one.
fn window_bits(len: usize) -> i32 {
    // The last 16 bytes of a window of brotli are not used.
    let bits = usize::BITS - (len + 16).leading_zeros();
    bits.cast_signed().clamp(10, BROTLI_WINDOW_BITS)
}

/// True if an encoding is that of a body.
pub(super) fn decodes_to(coding: Coding, encoded: &[u8], body: &[u8]) -> bool {
    match coding {
        Coding::Brotli => is_same(brotli::Decompressor::new(encoded, 4096), body),
        Coding::Gzip => is_same(GzDecoder::new(encoded), body),
        Coding::Zstd => {
            zstd::stream::read::Decoder::new(encoded).is_ok_and(|decoder| is_same(decoder, body))
        }
    }
}

fn is_same(mut decoder: impl Read, body: &[u8]) -> bool {
    let mut rest = body;
    let mut step = vec![0; STEP];
    loop {
        let Ok(len) = decoder.read(&mut step) else {
            return false;
        };
        let read = step.get(..len).unwrap_or_default();
        match rest.strip_prefix(read) {
            Some(_) if len == 0 => return rest.is_empty(),
            Some(left) => rest = left,
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_decodes_to_the_same_and_to_nothing_else() {
        let mut seed = 1u32;
        let bytes = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        });
        let noise: Vec<u8> = bytes.take(100_000).collect();
        let text = b"the mill stands still, ".repeat(10_000);
        for coding in [Coding::Brotli, Coding::Zstd, Coding::Gzip] {
            for (body, level) in [(&noise, 1), (&text, 9), (&Vec::new(), 5)] {
                let encoded = encode(coding, level, body).unwrap();
                assert_eq!(encoded, encode(coding, level, body).unwrap());
                assert!(decodes_to(coding, &encoded, body), "{coding:?}");
                let longer = [&body[..], b"x"].concat();
                assert!(!decodes_to(coding, &encoded, &longer), "{coding:?}");
                let cut = &encoded[..encoded.len() - 1];
                assert!(!decodes_to(coding, cut, body), "{coding:?}");
                if let Some((_, shorter)) = body.split_last() {
                    assert!(!decodes_to(coding, &encoded, shorter), "{coding:?}");
                }
            }
        }
    }
    /// RFC 9842 §4, §5.
    #[test]
    fn what_is_encoded_by_a_dictionary_begins_with_its_hash_and_decodes_with_it_alone() {
        let body = b"the mill stands still, and the pond freezes over. ".repeat(40);
        let dictionary = [&body[..900], b"something else", &body[70..]].concat();
        let hash = [7; 32];
        for coding in [DictionaryCoding::Brotli, DictionaryCoding::Zstd] {
            for text in [&body[..], b"", b"x"] {
                let encoded = encode_by((coding, &hash), 9, (&dictionary, text)).unwrap();
                let begin = [coding.magic(), &hash].concat();
                assert!(encoded.starts_with(&begin));
                assert_eq!(
                    begin.len(),
                    36 + 4 * usize::from(coding == DictionaryCoding::Zstd)
                );
                let is = |hash, dictionary: &[u8]| {
                    decodes_by((coding, hash), &encoded, (dictionary, text))
                };
                assert!(is(&hash, &dictionary), "{coding:?}");
                assert!(!is(&[8; 32], &dictionary), "{coding:?}");
                assert!(
                    text.len() < 2 || !is(&hash, &dictionary[..dictionary.len() - 1]),
                    "{coding:?}"
                );
            }
        }
        assert_eq!(
            (zstd_bits(0), zstd_bits(1 << 23), zstd_bits(14 << 20)),
            (23, 23, 24)
        );
    }
}
