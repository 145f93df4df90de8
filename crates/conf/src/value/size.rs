//! Sizes: `4096`, `8k`, `1m`, and `10g` where files are meant.
//!
//! nginx has two grammars: sizes of memory, which know `k` and `m` ([`ByteSize`]), and offsets in
//! files, which also know `g` ([`Offset`]). The case of the unit does not matter. Where a size may
//! have variables, it is a [`SizeTemplate`].

use crate::context::ParseContext;
use crate::tree::Word;
use crate::value::number::digits;
use crate::value::{FromWord, Template, WordError};

/// nginx keeps both in signed words of 64 bits; larger ones are refused.
const LIMIT: u64 = i64::MAX as u64;

/// A size in memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// The size for indexing memory; the largest one there is on a machine with smaller words.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromWord for ByteSize {
    const SYNTAX: &'static str = "size";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<ByteSize, WordError> {
        let units = [('k', 10), ('m', 20)];
        scaled(&word.text, &units).map(ByteSize)
    }
}

/// A size or an offset in a file, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Offset(pub u64);

impl FromWord for Offset {
    const SYNTAX: &'static str = "size";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<Offset, WordError> {
        let units = [('k', 10), ('m', 20), ('g', 30)];
        scaled(&word.text, &units).map(Offset)
    }
}

/// A size in memory that may be made of variables. Without them it is checked when it is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizeTemplate(pub Template);

impl FromWord for SizeTemplate {
    const SYNTAX: &'static str = "size";

    fn from_word(word: &Word, cx: &mut ParseContext) -> Result<SizeTemplate, WordError> {
        let template = Template::from_word(word, cx)?;
        if template.as_literal().is_some() {
            ByteSize::from_word(word, cx)?;
        }
        Ok(SizeTemplate(template))
    }
}

/// Reads an offset as a directive would (`10k`, `1g`), for values made while requests run.
pub fn parse_offset(text: &str) -> Option<u64> {
    scaled(text, &[('k', 10), ('m', 20), ('g', 30)]).ok()
}

/// The number before one of the units, shifted by its bits.
fn scaled(text: &str, units: &[(char, u32)]) -> Result<u64, WordError> {
    let unit = text.chars().last().map(|char| char.to_ascii_lowercase());
    let unit = units.iter().find(|(name, _)| Some(*name) == unit);
    let (number, shift) = match unit {
        Some((_, shift)) => (text.get(..text.len() - 1).unwrap_or_default(), *shift),
        None => (text, 0),
    };
    let number = digits(number).ok_or(WordError::Invalid)?;
    if number <= LIMIT >> shift {
        Ok(number << shift)
    } else {
        Err(WordError::Invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::read;

    #[test]
    fn sizes_have_small_units() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("8k", 8192), ("1M", 1 << 20)] {
            assert_eq!(read(text), Ok(ByteSize(bytes)), "{text}");
            assert_eq!(read(text), Ok(Offset(bytes)), "{text}");
        }
        assert_eq!(read("80G"), Ok(Offset(80 << 30)));
        assert_eq!(read("8589934591g"), Ok(Offset(8_589_934_591 << 30)));
    }

    #[test]
    fn sizes_may_be_made_of_variables() {
        for text in ["0", "8k", "$rate", "${rate}k"] {
            let size: Result<SizeTemplate, _> = read(text);
            assert!(size.is_ok(), "{text}");
        }
        for text in ["\"\"", "string", "1y", "1g", "-1"] {
            let size: Result<SizeTemplate, _> = read(text);
            assert_eq!(size, Err(WordError::Invalid.at(0)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_sizes() {
        for text in [
            "\"\"",
            "k",
            "1kb",
            "-1",
            "1.5k",
            "1t",
            "9223372036854775808",
            "9g9",
        ] {
            assert_eq!(
                read::<Offset>(text),
                Err(WordError::Invalid.at(0)),
                "{text}"
            );
        }
        assert_eq!(read::<ByteSize>("1g"), Err(WordError::Invalid.at(0)));
        assert_eq!(read::<Offset>("8589934592g"), Err(WordError::Invalid.at(0)));
    }
}
