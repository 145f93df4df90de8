//! Figures of two servers, their ratio and its spread.

use std::fmt::{self, Write as _};

use crate::report::{Report, ServerUse, bytes, time};

/// Figures of one server in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// Requests a second.
    pub(super) rate: f64,
    /// Microseconds to the first byte: median and 99th percentile.
    pub(super) ttfb_us: (f64, f64),
    /// Bytes that the origin sent.
    pub(super) origin: f64,
    /// Resources that the server's processes used.
    pub(super) used: ServerUse,
}

impl Figures {
    /// Figures of a report.
    pub(super) fn new(report: &Report) -> Self {
        Self {
            rate: report.requests as f64 / report.seconds.max(1e-9),
            ttfb_us: (report.ttfb.p50 as f64, report.ttfb.p99 as f64),
            origin: report.origin.map_or(0.0, |origin| origin.body_bytes as f64),
            used: report.server.unwrap_or_default(),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of CPU a request, {:.0} requests a second, first byte {}, memory {}",
            time(self.used.cpu_us),
            self.rate,
            time(self.ttfb_us.0),
            bytes(self.used.memory as f64)
        )
    }
}

/// One line of the table.
struct Row {
    name: &'static str,
    pick: fn(&Figures) -> f64,
    show: fn(f64) -> String,
}

fn plain(value: f64) -> String {
    format!("{value:.1}")
}

const ROWS: &[Row] = &[
    Row {
        name: "CPU a request",
        pick: |figures| figures.used.cpu_us,
        show: time,
    },
    Row {
        name: "requests a second",
        pick: |figures| figures.rate,
        show: plain,
    },
    Row {
        name: "first byte, p50",
        pick: |figures| figures.ttfb_us.0,
        show: time,
    },
    Row {
        name: "first byte, p99",
        pick: |figures| figures.ttfb_us.1,
        show: time,
    },
    Row {
        name: "read and write calls a request",
        pick: |figures| figures.used.calls,
        show: plain,
    },
    Row {
        name: "memory, the most",
        pick: |figures| figures.used.memory as f64,
        show: bytes,
    },
    Row {
        name: "written to disks",
        pick: |figures| figures.used.written as f64,
        show: bytes,
    },
    Row {
        name: "disk, the most",
        pick: |figures| figures.used.disk as f64,
        show: bytes,
    },
    Row {
        name: "sent by the origin",
        pick: |figures| figures.origin,
        show: bytes,
    },
];

/// Medians of both, the ratio a / b of each round's pair, and whether it tells anything.
pub(super) fn table(rounds: &[(Figures, Figures)]) -> String {
    let mut out = format!(
        "{:<32}{:>12}{:>12}{:>8}   {}\n",
        "median", "a", "b", "a / b", "in rounds"
    );
    for row in ROWS {
        let a = middle(rounds.iter().map(|(a, _)| (row.pick)(a)));
        let b = middle(rounds.iter().map(|(_, b)| (row.pick)(b)));
        let pairs = rounds.iter().map(|(a, b)| (row.pick)(a) / (row.pick)(b));
        let ratios: Vec<f64> = pairs.filter(|ratio| ratio.is_finite()).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<32}{:>12}{:>12}{}",
            row.name,
            (row.show)(a),
            (row.show)(b),
            spread(&ratios)
        );
    }
    out
}

fn spread(ratios: &[f64]) -> String {
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if ratios.is_empty() {
        return format!("{:>8}", "-");
    }
    let told = match ratios.len() {
        1 => "one round tells nothing about noise",
        _ if low <= 1.0 && 1.0 <= high => "within noise",
        _ => "",
    };
    let middle = middle(ratios.iter().copied());
    format!("{middle:>8.2}   {low:.2} to {high:.2} {told}")
        .trim_end()
        .to_owned()
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(cpu_us: f64) -> Figures {
        Figures {
            used: ServerUse {
                cpu_us,
                ..ServerUse::default()
            },
            ..Figures::default()
        }
    }

    #[test]
    fn a_difference_that_rounds_do_not_agree_about_is_noise() {
        let line = |rounds: &[(Figures, Figures)]| {
            let table = table(rounds);
            table.lines().nth(1).expect("a line").to_owned()
        };
        let agreed = line(&[
            (cpu(20.0), cpu(10.0)),
            (cpu(22.0), cpu(10.0)),
            (cpu(21.0), cpu(10.0)),
        ]);
        assert!(
            agreed.contains("2.10   2.00 to 2.20") && !agreed.contains("noise"),
            "{agreed}"
        );
        let noise = line(&[(cpu(20.0), cpu(10.0)), (cpu(9.0), cpu(10.0))]);
        assert!(noise.contains("within noise"), "{noise}");
    }
}
