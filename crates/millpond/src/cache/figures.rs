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
    match value < 9.95 {
        true => format!("{value:.1}{unit}"),
        false => format!("{value:.0}{unit}"),
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
    match seconds < 0 {
        true => format!("-{text}"),
        false => text,
    }
}

/// A part of a whole in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_string(),
        _ => format!("{:.1}%", part as f64 * 100.0 / whole as f64),
    }
}

/// A text that clients or origins wrote, so that it does nothing to a terminal.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_control() {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
    out
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
