//! Limits of figures: `ttfb.p99 > 5ms` fails a run whose 99th percentile is above.

use std::str::FromStr;

use super::Report;
use super::figure::{self, Figure};
use crate::unit;

/// Side of a bound that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

/// A condition under which a run fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    text: String,
    name: String,
    side: Side,
    bound: f64,
}

impl Limit {
    /// Reason why a run fails by the limit; none if it does not.
    pub fn broken(&self, report: &Report) -> Option<String> {
        let Some(figure) = report.figure(&self.name) else {
            return Some(format!("{}: this run has no such figure", self.text));
        };
        let is_broken = match self.side {
            Side::Above => figure > self.bound,
            Side::Below => figure < self.bound,
        };
        is_broken.then(|| format!("{}: it is {figure:.3}", self.text))
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (side, at) = match (text.find('>'), text.find('<')) {
            (Some(at), None) => (Side::Above, at),
            (None, Some(at)) => (Side::Below, at),
            _ => return Err(format!("{text}: wanted NAME > NUMBER or NAME < NUMBER")),
        };
        let name = text[..at].trim().to_owned();
        let Some(found) = figure::find(&name) else {
            return Err(format!(
                "{name}: no such figure; there are {}",
                figure::names()
            ));
        };
        let value = text[at + 1..].trim();
        let bound = match found {
            Figure::Time(..) => micros(value),
            Figure::Plain(..) => plain_number(value),
        };
        Ok(Self {
            text: text.trim().to_owned(),
            name,
            side,
            bound: bound.ok_or_else(|| format!("{value}: no such amount"))?,
        })
    }
}

/// A time in microseconds.
fn micros(text: &str) -> Option<f64> {
    let (number, factor) = unit::split(text, &[("us", 1.0), ("ms", 1e3), ("s", 1e6)])?;
    let number: f64 = number.parse().ok()?;
    Some(number * factor).filter(|micros| micros.is_finite())
}

/// A number, perhaps with k, m or g for powers of 1024, or % for a hundredth.
fn plain_number(text: &str) -> Option<f64> {
    let units = [
        ("%", 0.01),
        ("k", 1024.0),
        ("m", 1024.0 * 1024.0),
        ("g", 1024.0 * 1024.0 * 1024.0),
    ];
    let (number, factor) = unit::split(text, &units).unwrap_or((text, 1.0));
    let number: f64 = number.parse().ok()?;
    Some(number * factor).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_understood_with_their_units() {
        for (text, name, side, bound) in [
            ("ttfb.p99 > 5ms", "ttfb.p99", Side::Above, 5000.0),
            ("total.p99.9>1s", "total.p99.9", Side::Above, 1e6),
            ("hit_ratio < 90%", "hit_ratio", Side::Below, 0.9),
            ("origin.bytes > 1.5k", "origin.bytes", Side::Above, 1536.0),
            ("faults > 0", "faults", Side::Above, 0.0),
        ] {
            let limit: Limit = text.parse().expect(text);
            assert_eq!((limit.name.as_str(), limit.side), (name, side), "{text}");
            assert!(
                (limit.bound - bound).abs() < 1e-6,
                "{text}: {}",
                limit.bound
            );
        }
    }

    #[test]
    fn what_is_no_limit_is_told() {
        for text in [
            "",
            "ttfb.p99",
            "ttfb.p98 > 1ms",
            "ttfb.p99 > 5",
            "speed > 1",
            "rate > x",
        ] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
    }
}
