//! Encoding of a whole body by `br`, `zstd` or `gzip`, and the comparison of what came out.
//!
//! The same bytes, coding and level give the same encoding, as long as the libraries stay the same.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use millpond_semantics::accept_encoding::Coding;

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
}
