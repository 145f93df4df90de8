//! Figures for people: sizes, times, and texts that somebody else wrote.
//!
//! Sizes and times are cut to what fits a column; who calculates with them asks for JSON. Cache
//! keys and fields come from clients and origins, so nothing of them reaches a terminal as it is.

/// A size in four letters or so: `999`, `1.5K`, `20M`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64;
    let mut unit = ' ';
    for next in UNITS {
        value /= 1024.0;
        unit = next;
        // What would round to 1024 is one of the next unit.
        if value < 1023.5 {
            break;
        }
    }
    // 9.95 and more would round to two digits before the point.
    if value < 9.95 {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

/// A size in three digits, so that what reads the same differs by one in a hundred at most: `999`,
/// `1.50K`, `10.4M`.
pub(crate) fn exact_size(bytes: u64) -> String {
    const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    let mut value = bytes as f64;
    let mut unit = None;
    for next in UNITS {
        // What would round to 1000 is one of the next unit: three digits are enough then.
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = Some(next);
    }
    match unit {
        None => bytes.to_string(),
        Some(unit) if value < 9.995 => format!("{value:.2}{unit}"),
        Some(unit) if value < 99.95 => format!("{value:.1}{unit}"),
        Some(unit) => format!("{value:.0}{unit}"),
    }
}

/// A time in seconds in its largest unit: `59s`, `3m`, `26h`, `4d`; with a minus if it is over.
pub(crate) fn time(seconds: i64) -> String {
    let length = seconds.unsigned_abs();
    let text = match length {
        0..=99 => format!("{length}s"),
        100..=5_999 => format!("{}m", length / 60),
        6_000..=359_999 => format!("{}h", length / 3600),
        _ => format!("{}d", length / 86_400),
    };
    if seconds < 0 {
        format!("-{text}")
    } else {
        text
    }
}

/// A part of a whole in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_string(),
        _ => format!("{:.1}%", part as f64 * 100.0 / whole as f64),
    }
}

/// A text that clients or origins wrote, so that it does nothing to a terminal, and reads in the
/// order in which it is written.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || turns(letter) {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    out
}

/// True for what changes the direction of the text around it (Unicode Standard Annex #9, §2).
fn turns(letter: char) -> bool {
    matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// A number with its thing, one or more.
pub(crate) fn count(number: u64, one: &str, more: &str) -> String {
    let thing = if number == 1 { one } else { more };
    format!("{number} {thing}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_read_the_same_are_nearly_the_same() {
        for (bytes, expected) in [
            (0, "0"),
            (999, "999"),
            (1000, "0.98K"),
            (1536, "1.50K"),
            (10 << 20, "10.0M"),
            (9_856_614, "9.40M"),
            (10_905_190, "10.4M"),
            (100 << 20, "100M"),
            (u64::MAX, "16.0E"),
        ] {
            assert_eq!(exact_size(bytes), expected, "{bytes}");
        }
        for percent in 1..=98 {
            let whole = 10 << 20;
            assert_ne!(exact_size(whole * percent / 100), exact_size(whole));
        }
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, expected) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1536, "1.5K"),
            (10_188, "9.9K"),
            (10_240, "10K"),
            (1_048_575, "1.0M"),
            (5 << 30, "5.0G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(size(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn times_have_one_unit() {
        for (seconds, expected) in [
            (0, "0s"),
            (99, "99s"),
            (100, "1m"),
            (7200, "2h"),
            (360_000, "4d"),
            (-180, "-3m"),
            (i64::MIN, "-106751991167300d"),
        ] {
            assert_eq!(time(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn texts_of_others_do_nothing_to_a_terminal() {
        assert_eq!(plain("/a\u{1b}[2J\u{9b}é\n"), "/a\\u{1b}[2J\\u{9b}é\\n");
    }

    #[test]
    fn parts_are_of_something() {
        assert_eq!(percent(1, 3), "33.3%");
        assert_eq!(percent(1, 0), "-");
        assert_eq!(count(1, "entry", "entries"), "1 entry");
        assert_eq!(count(0, "entry", "entries"), "0 entries");
    }
}
