//! Ranges of good values, as plugins of Nagios write them.
//!
//! | text | good values |
//! |---|---|
//! | `10` | from 0 to 10 |
//! | `10:` | from 10 on |
//! | `~:10` | up to 10 |
//! | `10:20` | from 10 to 20 |
//! | `@10:20` | those below 10, and those above 20 |

/// A range of good values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Range {
    text: String,
    start: f64,
    end: f64,
    good: Good,
}

/// The side of a range on which good values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Good {
    Inside,
    Outside,
}

impl Range {
    /// The range of a text; none if it is not one.
    pub(super) fn parse(text: &str) -> Option<Range> {
        let (good, ends) = match text.strip_prefix('@') {
            Some(ends) => (Good::Outside, ends),
            None => (Good::Inside, text),
        };
        let (start, end) = match ends.split_once(':') {
            Some(("~", end)) => (f64::NEG_INFINITY, end),
            Some(("", end)) => (0.0, end),
            Some((start, end)) => (number(start)?, end),
            None => (0.0, Some(ends).filter(|ends| !ends.is_empty())?),
        };
        let end = if end.is_empty() {
            f64::INFINITY
        } else {
            number(end)?
        };
        (start <= end).then(|| Range {
            text: text.to_string(),
            start,
            end,
            good,
        })
    }

    /// True if a value is good.
    pub(super) fn has(&self, value: f64) -> bool {
        let is_inside = self.start <= value && value <= self.end;
        is_inside == (self.good == Good::Inside)
    }

    /// The range as it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_plugins_mean() {
        for (text, good, bad) in [
            ("10", &[0.0, 10.0][..], &[-0.1, 10.1][..]),
            ("10:", &[10.0, 1e12], &[9.9, -1.0]),
            ("~:10", &[-1e12, 10.0], &[10.1]),
            ("10:20", &[10.0, 20.0], &[9.9, 20.1]),
            ("@10:20", &[9.9, 20.1], &[10.0, 15.0, 20.0]),
            (":5", &[0.0, 5.0], &[-1.0, 6.0]),
            ("0.5:1.5", &[1.0], &[0.4, 1.6]),
            ("-5:-1", &[-2.0], &[0.0]),
        ] {
            let range = Range::parse(text).unwrap();
            assert!(good.iter().all(|value| range.has(*value)), "{text}");
            assert!(!bad.iter().any(|value| range.has(*value)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_ranges() {
        for text in ["", "x", "10:x", "20:10", "~", "@", "inf", "nan:", "1:2:3"] {
            assert_eq!(Range::parse(text), None, "{text}");
        }
    }
}
