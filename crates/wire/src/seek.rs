//! Searches for the end of a run of bytes, eight bytes at a time.
//!
//! The runs of a head are short: a search that is made for long ones (and begins with a call and a
//! choice among instruction sets) costs more than it saves.
//!
//! ```text
//! word         47 45 54 20 …        one byte of the text in each byte
//! word - 21…   26 24 33 ff …        a byte below 21 borrows, so that its high bit is set
//! & !word & 80…                     but not the high bits that were there before
//! ```
//!
//! 1. The lowest mark of a word is right; those above it may be wrong, since a borrow goes up.
//! 2. No byte behind the end that is found is looked at again by the same call.

const ONES: u64 = u64::from_le_bytes([1; 8]);
/// Bytes of long values that are looked at together.
const BLOCK: usize = 16;
const HIGH_BITS: u64 = u64::from_le_bytes([0x80; 8]);

/// Marks the bytes of a word that are below `limit`, which is at most 0x80. INVARIANT 1.
const fn marks_below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * limit as u64) & !word & HIGH_BITS
}

/// Marks the bytes of a word that are `byte`, which is below 0x80. INVARIANT 1.
const fn marks_equal(word: u64, byte: u8) -> u64 {
    marks_below(word ^ (ONES * byte as u64), 1)
}

/// The index of the first marked byte, else the length; `marks` marks, `is_wanted` says it of one
/// byte.
#[inline]
fn find(text: &[u8], marks: impl Fn(u64) -> u64, is_wanted: impl Fn(u8) -> bool) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = marks(u64::from_le_bytes(*word));
        if found != 0 {
            return index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let before = words.len() * 8;
    match rest.iter().position(|byte| is_wanted(*byte)) {
        Some(at) => before + at,
        None => text.len(),
    }
}

/// The index of the first NUL, CR or LF, else the length: the end of a value.
#[inline]
pub(crate) fn end_of_value(text: &[u8]) -> usize {
    let mut at = low_byte(text);
    // Up to CR there are few other bytes, and none but the tab is usual in a value.
    while let Some((byte, rest)) = text.get(at..).and_then(<[u8]>::split_first)
        && !matches!(byte, b'\0' | b'\r' | b'\n')
    {
        at += 1 + low_byte(rest);
    }
    at
}

/// Bytes of a value that are looked at word by word before they are looked at in blocks: most
/// values end there.
const SHORT: usize = 32;

/// The index of the first byte that is no greater than CR, else the length.
#[inline]
fn low_byte(text: &[u8]) -> usize {
    let marks = |word| marks_below(word, b'\r' + 1);
    let mut at = 0;
    if let Some((short, long)) = text.split_first_chunk::<SHORT>() {
        let (words, _) = short.as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            let found = marks(u64::from_le_bytes(*word));
            if found != 0 {
                return index * 8 + found.trailing_zeros() as usize / 8;
            }
        }
        at = SHORT + whole_blocks(long);
    }
    at + find(text.get(at..).unwrap_or_default(), marks, |byte| {
        byte <= b'\r'
    })
}

/// Bytes of the blocks before the first that has a byte which may end a value.
fn whole_blocks(text: &[u8]) -> usize {
    // Compilers make a few instructions of this fold, whatever the machine.
    let is_low = |block: &[u8; BLOCK]| block.iter().fold(false, |has, byte| has | (*byte <= b'\r'));
    let (blocks, _) = text.as_chunks::<BLOCK>();
    let whole = blocks.iter().position(is_low).unwrap_or(blocks.len());
    whole * BLOCK
}

/// True if there is neither NUL nor CR nor LF.
#[inline]
pub(crate) fn is_one_line(text: &[u8]) -> bool {
    // Words such as those that tell of a cache are shorter than what can be looked at together.
    if text.len() <= 8 {
        !text
            .iter()
            .any(|byte| matches!(byte, b'\0' | b'\r' | b'\n'))
    } else {
        end_of_value(text) == text.len()
    }
}

/// The index of the first colon, else the length.
#[inline]
pub(crate) fn colon(text: &[u8]) -> usize {
    find(text, |word| marks_equal(word, b':'), |byte| byte == b':')
}

/// The index of the first space, control or DEL, else the length: the end of a request's target.
#[inline]
pub(crate) fn end_of_target(text: &[u8]) -> usize {
    find(
        text,
        |word| marks_below(word, b' ' + 1) | marks_equal(word, 0x7f),
        |byte| byte <= b' ' || byte == 0x7f,
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_byte_at_each_place_ends_what_it_should() {
        // More than what is looked at word by word, and a block.
        const LONG: usize = SHORT + BLOCK + 5;
        for byte in 0..=255u8 {
            for place in 0..LONG {
                let mut text = [b'a'; LONG];
                text[place] = byte;
                let is_end = matches!(byte, b'\0' | b'\r' | b'\n');
                let expected = if is_end { place } else { LONG };
                assert_eq!(end_of_value(&text), expected, "{byte} at {place}");
            }
            for place in 0..20 {
                let mut text = [b'a'; 20];
                text[place] = byte;
                let is_end = byte <= b' ' || byte == 0x7f;
                let expected = if is_end { place } else { 20 };
                assert_eq!(end_of_target(&text), expected, "{byte} at {place}");
                let expected = if byte == b':' { place } else { 20 };
                assert_eq!(colon(&text), expected, "{byte} at {place}");
            }
        }
        assert_eq!((end_of_value(b""), end_of_target(b"")), (0, 0));
    }

    fn bytes() -> impl Strategy<Value = u8> {
        let edges = prop_oneof![Just(0x7f), Just(0x80), Just(b' '), Just(b'\t')];
        prop_oneof![edges, 0u8..16, any::<u8>(), Just(b'a')]
    }

    proptest! {
        #[test]
        fn ends_are_those_that_a_look_at_each_byte_finds(
            text in prop::collection::vec(bytes(), 0..100)
        ) {
            let plain = text.iter().position(|byte| matches!(byte, b'\0' | b'\r' | b'\n'));
            prop_assert_eq!(end_of_value(&text), plain.unwrap_or(text.len()));
            prop_assert_eq!(is_one_line(&text), plain.is_none());
            let plain = text.iter().position(|byte| *byte <= b' ' || *byte == 0x7f);
            prop_assert_eq!(end_of_target(&text), plain.unwrap_or(text.len()));
        }
    }
}
