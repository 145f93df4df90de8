//! Numbers: decimal digits, up to the largest signed one of 64 bits, as in nginx.
//!
//! nginx knows neither signs nor other bases; only `i64` takes a minus sign here. A number that is
//! too large for its type stands for the largest one: it means "no limit" wherever it is a limit.
//! `u16` is for what is no limit, such as a status; there it is a mistake.

use crate::context::ParseContext;
use crate::tree::Word;
use crate::value::{FromWord, WordError};

/// The number that the digits stand for; none if anything else is in the text, or nothing.
pub(crate) fn digits(text: &str) -> Option<u64> {
    let only_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    only_digits.then(|| text.parse().ok()).flatten()
}

macro_rules! unsigned {
    ($($number:ty),*) => {$(
        impl FromWord for $number {
            const SYNTAX: &'static str = "number";

            fn from_word(word: &Word, _: &mut ParseContext) -> Result<$number, WordError> {
                let number = number(word)?;
                Ok(<$number>::try_from(number).unwrap_or(<$number>::MAX))
            }
        }
    )*};
}

unsigned!(u32, u64, usize);

impl FromWord for u16 {
    const SYNTAX: &'static str = "number";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<u16, WordError> {
        u16::try_from(number(word)?).map_err(|_| WordError::Number)
    }
}

fn number(word: &Word) -> Result<u64, WordError> {
    let number = digits(&word.text).filter(|number| i64::try_from(*number).is_ok());
    number.ok_or(WordError::Number)
}

impl FromWord for i64 {
    const SYNTAX: &'static str = "number";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<i64, WordError> {
        let text = word.text.strip_prefix('-').unwrap_or(&word.text);
        digits(text).ok_or(WordError::Number)?;
        word.text.parse().map_err(|_| WordError::Number)
    }
}

#[cfg(test)]
mod tests {
    use crate::value::{WordError, read};

    #[test]
    fn numbers_are_digits_within_the_range() {
        for text in ["4294967295", "4294967296", "9223372036854775807"] {
            assert_eq!(read::<u32>(text), Ok(u32::MAX), "{text}");
        }
        assert_eq!(read::<u16>("65535"), Ok(u16::MAX));
        assert_eq!(read::<u16>("65536"), Err(WordError::Number.at(0)));
        assert_eq!(read::<u64>("007"), Ok(7));
        assert_eq!(read::<i64>("-5"), Ok(-5));
        for text in [
            "9223372036854775808",
            "+1",
            "-1",
            "1.5",
            "0x10",
            "1k",
            "\"\"",
            "\" 1\"",
            "٣",
        ] {
            assert_eq!(read::<u32>(text), Err(WordError::Number.at(0)), "{text}");
        }
        for text in ["--1", "-", "9223372036854775808"] {
            assert_eq!(read::<i64>(text), Err(WordError::Number.at(0)), "{text}");
        }
    }
}
