//! A report for a terminal.

use std::fmt::Write as _;

use super::{Report, Times};
use crate::load::Connections;

/// A time of so many microseconds, in three digits.
pub fn time(micros: f64) -> String {
    let (value, unit) = match micros {
        micros if micros < 1e3 => (micros, "us"),
        micros if micros < 1e6 => (micros / 1e3, "ms"),
        micros => (micros / 1e6, "s"),
    };
    let digits = match value {
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// A number of bytes, in three digits and powers of 1024.
pub fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

/// A report as lines of text.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut out, report);
    out
}

fn write_table(out: &mut String, report: &Report) -> std::fmt::Result {
    let figure = |name: &str| report.figure(name).unwrap_or(0.0);
    writeln!(
        out,
        "{}: {} users, {} requests in {:.2} s: {:.0} a second, {} a second",
        report.module,
        report.users,
        report.requests,
        report.seconds,
        figure("rate"),
        bytes(figure("throughput")),
    )?;
    writeln!(out, "every byte compared: {}", bytes(report.bytes as f64))?;
    writeln!(
        out,
        "\n{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "mean", "p50", "p90", "p99", "p99.9", "max"
    )?;
    row(out, "first byte", &report.ttfb)?;
    row(out, "last byte", &report.total)?;
    if let Some(behind) = &report.behind {
        row(out, "behind", behind)?;
    }
    for (name, times) in &report.phases {
        row(out, name, times)?;
    }
    writeln!(out)?;
    let counted = |counts: Vec<String>| counts.join(", ");
    let statuses = report.statuses.iter();
    let statuses = statuses.map(|(status, count)| format!("{status} {count}"));
    writeln!(out, "status        {}", counted(statuses.collect()))?;
    let statuses = report.cache_statuses.iter();
    let statuses = statuses.map(|(status, count)| format!("{status} {count}"));
    writeln!(out, "cache status  {}", counted(statuses.collect()))?;
    writeln!(out, "connections   {}", connections(&report.connections))?;
    if let Some(origin) = &report.origin {
        writeln!(
            out,
            "origin        {} requests ({} unchanged), {}, at most {} at once, {} connections",
            origin.requests,
            origin.not_modified,
            bytes(origin.body_bytes as f64),
            origin.most_at_once,
            origin.connections,
        )?;
    }
    for (name, amount) in &report.amounts {
        writeln!(out, "{name:<13} {amount}")?;
    }
    for claim in &report.claims {
        let word = if claim.is_kept { "kept  " } else { "BROKEN" };
        writeln!(out, "{word}        {} (found {})", claim.text, claim.found)?;
    }
    for (kind, faults) in &report.faults {
        writeln!(out, "FAULT         {kind}: {}", faults.count)?;
        for example in &faults.examples {
            writeln!(out, "              {example}")?;
        }
    }
    Ok(())
}

/// Connections, with what there was of handshakes and repetitions.
fn connections(it: &Connections) -> String {
    let mut text = format!("{} opened", it.opened);
    if it.full + it.resumed > 0 {
        text += &format!(", handshakes: {} full, {} resumed", it.full, it.resumed);
    }
    if it.repeated > 0 {
        text += &format!(", requests sent again: {}", it.repeated);
    }
    text
}

fn row(out: &mut String, name: &str, times: &Times) -> std::fmt::Result {
    write!(out, "{name:<12}{:>10}", time(times.mean))?;
    for micros in [times.p50, times.p90, times.p99, times.p999, times.max] {
        write!(out, "{:>10}", time(micros as f64))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits() {
        for (micros, text) in [
            (0.5, "0.50 us"),
            (12.34, "12.3 us"),
            (999.0, "999 us"),
            (1500.0, "1.50 ms"),
            (2_000_000.0, "2.00 s"),
        ] {
            assert_eq!(time(micros), text);
        }
        for (count, text) in [
            (10.0, "10 B"),
            (1024.0, "1.00 KiB"),
            (1_048_576.0, "1.00 MiB"),
            (5e9, "4.66 GiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
