//! Times: `30`, `500ms`, `1h 30m` (quoted, as one word).
//!
//! A time is a sequence of numbers with the units `y M w d h m s ms` in falling order, each at most
//! once, with spaces between if you like. A number without a unit means seconds; a month has 30
//! days and a year 365.
//!
//! In nginx some directives take `y` and `M` and others `ms`. Here all take both.

use std::time::Duration;

use crate::context::ParseContext;
use crate::tree::Word;
use crate::value::{FromWord, WordError};

/// The units from the largest to the smallest, in milliseconds.
const UNITS: [(&str, u64); 8] = [
    ("y", 365 * 24 * 3_600_000),
    ("M", 30 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// nginx counts milliseconds in a signed word of 64 bits; longer times are refused.
const LIMIT_MS: u64 = i64::MAX as u64;

impl FromWord for Duration {
    const SYNTAX: &'static str = "time";

    fn from_word(word: &Word, _: &mut ParseContext) -> Result<Duration, WordError> {
        parse_duration(&word.text).ok_or(WordError::Invalid)
    }
}

/// The time that a text stands for.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total: u64 = 0;
    // The units that may still come.
    let mut units = UNITS.as_slice();
    let mut any_digit = false;
    while !rest.is_empty() {
        let behind_number = rest.trim_start_matches(|char: char| char.is_ascii_digit());
        let number = rest.strip_suffix(behind_number).unwrap_or_default();
        any_digit |= !number.is_empty();
        let (scale, behind) = match behind_number {
            "" => (1000, ""),
            unit => take_unit(unit, &mut units)?,
        };
        let value = match number {
            "" => 0,
            number => number.parse::<u64>().ok()?,
        };
        total = total.checked_add(value.checked_mul(scale)?)?;
        rest = behind.trim_start_matches(' ');
    }
    (any_digit && total <= LIMIT_MS).then(|| Duration::from_millis(total))
}

/// The scale of the unit at the start, and what follows it. Only smaller ones may come after it.
fn take_unit<'a>(text: &'a str, units: &mut &[(&str, u64)]) -> Option<(u64, &'a str)> {
    if let Some(behind) = text.strip_prefix(' ') {
        // nginx: a number with a space behind it means seconds, and no unit may follow.
        units.iter().find(|(name, _)| *name == "s")?;
        *units = &[];
        return Some((1000, behind));
    }
    let len = if text.starts_with("ms") { 2 } else { 1 };
    let (unit, behind) = text.split_at_checked(len)?;
    let index = units.iter().position(|(name, _)| *name == unit)?;
    let (_, scale) = *units.get(index)?;
    *units = units.get(index + 1..)?;
    Some((scale, behind))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::value::{ArgError, WordError, read};

    #[test]
    fn times_are_sums_of_units_in_falling_order() {
        for (text, ms) in [
            ("0", 0),
            ("30", 30_000),
            ("30s", 30_000),
            ("500ms", 500),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("\"1h 30m\"", 5_400_000),
            ("\"1d  2h 3\"", 93_603_000),
            ("1s500ms", 1500),
            ("2w", 1_209_600_000),
            ("1M", 2_592_000_000),
            ("1y", 31_536_000_000),
            ("1s5", 6000),
            ("1hm", 3_600_000),
        ] {
            assert_eq!(read(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "\"\"",
            "s",
            "1x",
            "1m1h",
            "1m1m",
            "-1",
            "1.5s",
            "1ü",
            "\"1s 5 \"",
            "\"30 5s\"",
            "99999999999999999999",
            "9223372036854775807y",
            "1 s",
        ] {
            let error = match text {
                "1 s" => ArgError::Count,
                _ => WordError::Invalid.at(0),
            };
            assert_eq!(read::<Duration>(text), Err(error), "{text}");
        }
    }
}
