//! A line of the table of `cargo xtask bench`, in Markdown.

use std::fmt;

use super::sorted;
use crate::tally::Tally;

/// A figure of both servers, and what is wanted of it.
pub(crate) struct Line {
    pub(crate) row: String,
    /// The unit of the servers' columns.
    pub(crate) unit: &'static str,
    /// nginx's figure, where it was measured.
    pub(crate) nginx: Option<f64>,
    pub(crate) millpond: f64,
    pub(crate) wanted: Wanted,
}

/// The bound that is wanted.
pub(crate) enum Wanted {
    /// nginx's figure over Millpond's, of each round; and of each round by the gauge, if it was
    /// asked.
    AtLeast {
        bound: f64,
        ratios: Vec<f64>,
        by_gauge: Option<Vec<f64>>,
    },
    /// Millpond's own figure.
    AtMost(f64),
    /// Millpond's own figure, too.
    OwnAtLeast(f64),
    /// Nothing: the figure is told.
    Nothing,
}

impl Line {
    /// The line of rounds, each with what a request cost nginx and Millpond.
    pub(crate) fn of_rounds(
        row: &str,
        unit: &'static str,
        bound: f64,
        rounds: &[(f64, f64)],
    ) -> Self {
        Line {
            row: row.to_owned(),
            unit,
            nginx: Some(middle(&sorted(rounds.iter().map(|round| round.0)))),
            millpond: middle(&sorted(rounds.iter().map(|round| round.1))),
            wanted: Wanted::AtLeast {
                bound,
                ratios: ratios(rounds),
                by_gauge: None,
            },
        }
    }

    /// The heading of the lines, with the name of the other server.
    pub(crate) fn heading(other: &str) -> String {
        format!(
            "| row | in | {other} | Millpond | ratio | rounds | by gauge | wanted | met |\n\
             |---|---|---|---|---|---|---|---|---|"
        )
    }

    /// True if the figure is as wanted.
    pub(crate) fn is_met(&self) -> bool {
        match &self.wanted {
            Wanted::AtLeast { bound, ratios, .. } => middle(ratios) >= *bound,
            Wanted::AtMost(bound) => self.millpond <= *bound,
            Wanted::OwnAtLeast(bound) => self.millpond >= *bound,
            Wanted::Nothing => true,
        }
    }

    /// Prints it; one that is not met counts as failed.
    pub(crate) fn print(&self) -> Tally {
        println!("{self}");
        match self.wanted {
            Wanted::Nothing => Tally::default(),
            _ => Tally::from(self.is_met()),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nginx = self.nginx.map_or("-".to_owned(), |it| format!("{it:.2}"));
        let (row, unit, millpond) = (&self.row, self.unit, self.millpond);
        write!(f, "| {row} | {unit} | {nginx} | {millpond:.2} | ")?;
        match &self.wanted {
            Wanted::AtLeast {
                bound,
                ratios,
                by_gauge,
            } => {
                let (least, most) = (ratios.first(), ratios.last());
                let gauge = by_gauge.as_ref().map(|ratios| middle(ratios));
                write!(
                    f,
                    "{:.2} | {:.2} to {:.2} | {} | at least {bound}",
                    middle(ratios),
                    least.unwrap_or(&f64::NAN),
                    most.unwrap_or(&f64::NAN),
                    gauge.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
                )?;
            }
            Wanted::AtMost(bound) => write!(f, "- | - | - | at most {bound}")?,
            Wanted::OwnAtLeast(bound) => write!(f, "- | - | - | at least {bound}")?,
            Wanted::Nothing => return write!(f, "- | - | - | - | - |"),
        }
        write!(f, " | {} |", if self.is_met() { "yes" } else { "no" })
    }
}

/// nginx's figure over Millpond's, in rising order.
pub(crate) fn ratios(rounds: &[(f64, f64)]) -> Vec<f64> {
    sorted(rounds.iter().map(|(nginx, millpond)| nginx / millpond))
}

/// The value in the middle; there is one.
pub(crate) fn middle(values: &[f64]) -> f64 {
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_by_how_much_and_whether_that_is_enough() {
        let rounds = [(20.0, 10.0), (21.0, 10.0), (30.0, 10.0)];
        let line = Line::of_rounds("hits", "us", 2.2, &rounds);
        let told = "| hits | us | 21.00 | 10.00 | 2.10 | 2.00 to 3.00 | - | at least 2.2 | no |";
        assert_eq!(line.to_string(), told);
        let line = Line {
            row: "waiters".to_owned(),
            unit: "ms",
            nginx: None,
            millpond: 0.5,
            wanted: Wanted::AtMost(2.0),
        };
        let told = "| waiters | ms | - | 0.50 | - | - | - | at most 2 | yes |";
        assert_eq!(line.to_string(), told);
    }
}
