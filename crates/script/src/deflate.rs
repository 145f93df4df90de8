//! The module `zlib` of scripts, below the language: bytes that are made smaller and back.
//!
//! A few bytes may stand for very many, so that what comes out is bounded, and the time is looked
//! at between its pieces.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::files::Bounds;

/// Bytes that are made between two looks at the time.
const STEP: usize = 64 << 10;

/// The form of what is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrap {
    /// RFC 1950.
    Zlib,
    /// RFC 1951.
    Raw,
}

/// The way in which bytes are packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing<'a> {
    pub(crate) wrap: Wrap,
    /// The bits of the window; made one of 9 to 15.
    pub(crate) window: u8,
    /// The bytes that are known on both sides.
    pub(crate) dictionary: Option<&'a [u8]>,
}

impl Packing<'_> {
    fn window(&self) -> u8 {
        self.window.clamp(9, 15)
    }
}

/// Makes bytes smaller, at a level of 0 to 9. The error is for the script.
pub(crate) fn pack(
    bytes: &[u8],
    packing: Packing<'_>,
    level: u32,
    bounds: &Bounds<'_>,
) -> Result<Vec<u8>, String> {
    let has_header = packing.wrap == Wrap::Zlib;
    let level = Compression::new(level.min(9));
    let mut state = Compress::new_with_window_bits(level, has_header, packing.window());
    if let Some(dictionary) = packing.dictionary {
        let set = state.set_dictionary(dictionary);
        set.map_err(|_| "deflateSetDictionary() failed".to_string())?;
    }
    let mut out = Vec::new();
    // Ends with the input: each turn makes a step of what comes out.
    loop {
        check(&out, bounds)?;
        out.reserve(STEP);
        let rest = rest_of(bytes, state.total_in());
        let status = state.compress_vec(rest, &mut out, FlushCompress::Finish);
        match status.map_err(|error| format!("failed to deflate the data: {error}"))? {
            Status::StreamEnd => return Ok(out),
            Status::Ok | Status::BufError => {}
        }
    }
}

/// The bytes that were made smaller. The error is for the script.
pub(crate) fn unpack(
    bytes: &[u8],
    packing: Packing<'_>,
    bounds: &Bounds<'_>,
) -> Result<Vec<u8>, String> {
    let has_header = packing.wrap == Wrap::Zlib;
    let mut state = Decompress::new_with_window_bits(has_header, packing.window());
    let mut dictionary = packing.dictionary;
    let set = |state: &mut Decompress, dictionary: &[u8]| {
        let set = state.set_dictionary(dictionary);
        set.map_err(|_| "inflateSetDictionary() failed".to_string())
    };
    if packing.wrap == Wrap::Raw
        && let Some(dictionary) = dictionary.take()
    {
        set(&mut state, dictionary)?;
    }
    let mut out = Vec::new();
    // Ends with the input, or at the bound of what comes out.
    loop {
        check(&out, bounds)?;
        out.reserve(STEP);
        let before = (state.total_in(), state.total_out());
        let rest = rest_of(bytes, state.total_in());
        match state.decompress_vec(rest, &mut out, FlushDecompress::None) {
            Ok(Status::StreamEnd) => return Ok(out),
            Ok(_) if (state.total_in(), state.total_out()) == before => {
                return Err("failed to inflate the data: unexpected end".to_string());
            }
            Ok(_) => {}
            Err(error) if error.needs_dictionary().is_some() => {
                let Some(dictionary) = dictionary.take() else {
                    return Err("failed to inflate, dictionary is required".to_string());
                };
                set(&mut state, dictionary)?;
            }
            Err(error) => return Err(format!("failed to inflate the data: {error}")),
        }
    }
}

fn rest_of(bytes: &[u8], taken: u64) -> &[u8] {
    let taken = usize::try_from(taken).unwrap_or(usize::MAX);
    bytes.get(taken..).unwrap_or_default()
}

fn check(out: &[u8], bounds: &Bounds<'_>) -> Result<(), String> {
    if out.len() > bounds.bytes {
        return Err("the data is longer than \"js_memory_limit\"".to_string());
    }
    if (bounds.is_late)() {
        return Err("the time of the script is over".to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds<'_> = Bounds {
        bytes: 1 << 20,
        is_late: &|| false,
    };

    fn packing(wrap: Wrap, dictionary: Option<&'static [u8]>) -> Packing<'static> {
        Packing {
            wrap,
            window: 15,
            dictionary,
        }
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let text = b"abcabcabd".repeat(20_000);
        for wrap in [Wrap::Zlib, Wrap::Raw] {
            for dictionary in [None, Some(&b"abcabc"[..])] {
                let packing = packing(wrap, dictionary);
                for level in [0, 1, 6, 9] {
                    let small = pack(&text, packing, level, &BOUNDS).unwrap();
                    assert!(level == 0 || small.len() < text.len() / 20, "{level}");
                    assert_eq!(unpack(&small, packing, &BOUNDS).unwrap(), text);
                }
            }
        }
    }

    #[test]
    fn what_is_broken_or_endless_is_told() {
        let bomb = pack(&vec![0; 1 << 20], packing(Wrap::Zlib, None), 9, &BOUNDS).unwrap();
        let plain = packing(Wrap::Zlib, None);
        let small = Bounds {
            bytes: 1000,
            ..BOUNDS
        };
        assert!(
            unpack(&bomb, plain, &small)
                .unwrap_err()
                .contains("js_memory_limit")
        );
        let late = Bounds {
            is_late: &|| true,
            ..BOUNDS
        };
        assert!(unpack(&bomb, plain, &late).unwrap_err().contains("time"));
        let half = &bomb[..bomb.len() / 2];
        assert!(
            unpack(half, plain, &BOUNDS)
                .unwrap_err()
                .contains("unexpected end")
        );
        assert!(unpack(b"xyz", plain, &BOUNDS).is_err());
        assert!(unpack(b"", plain, &BOUNDS).is_err());
        let with = pack(b"WAKA", packing(Wrap::Zlib, Some(b"WAKA")), 6, &BOUNDS).unwrap();
        let why = unpack(&with, plain, &BOUNDS).unwrap_err();
        assert_eq!(why, "failed to inflate, dictionary is required");
    }
}
