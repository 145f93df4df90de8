//! The document: each experiment with its source's figures beside ours.

use std::fmt::Write as _;

use super::{Experiment, Row};

/// Servers of a row, and what they are called.
const SIDES: [(&str, &str); 2] = [("a", "nginx"), ("b", "Millpond")];

const BEGINNING: &str = include_str!("beginning.md");

/// The whole document.
pub(super) fn page(experiments: &[Experiment], machine: &str) -> String {
    let mut out = format!(
        "{BEGINNING}\nMeasured on a virtual machine over loopback, one worker each ({machine}).\n\
         Servers, origin and clients share the cores with whatever else runs, so times are to be\n\
         compared within a table only.\n"
    );
    for experiment in experiments {
        out += "\n";
        out += &section(experiment);
    }
    out
}

/// One experiment.
pub(super) fn section(experiment: &Experiment) -> String {
    let note = |name: &str| experiment.plan.note(name).unwrap_or_default().trim();
    format!(
        "## {}\n\n*{}*\n\n{}\n\nThe source found:\n\n{}\n\nHere:\n\n{}\n**It concluded:** {}\n\n**What holds for Millpond:** {}\n",
        note("title"),
        note("source"),
        note("setup"),
        note("theirs"),
        table(experiment),
        note("concluded"),
        note("here"),
    )
}

/// The outcome of a plan.
pub(super) fn table(experiment: &Experiment) -> String {
    let note = experiment.plan.note("columns").unwrap_or_default();
    let columns: Vec<&str> = note.split_whitespace().collect();
    let mut out = String::from("| case | server |");
    // Writing to a string cannot fail.
    for column in &columns {
        let _ = write!(out, " {} |", title(column));
    }
    out += "\n|---|---|";
    out += &"---|".repeat(columns.len());
    out += "\n";
    for row in &experiment.rows {
        rows(&mut out, row, &columns);
    }
    out
}

fn rows(out: &mut String, row: &Row, columns: &[&str]) {
    let comparison = match &row.outcome {
        Ok(comparison) => comparison,
        Err(error) => {
            let first = error.lines().next().unwrap_or_default();
            let _ = writeln!(out, "| {} | not measured: {first} |", row.case);
            return;
        }
    };
    for (side, name) in SIDES {
        if comparison.of(side).next().is_none() {
            continue;
        }
        let _ = write!(out, "| {} | {name} |", row.case);
        for column in columns {
            let shown = comparison.shown(side, column);
            let _ = write!(out, " {} |", shown.as_deref().unwrap_or("-"));
        }
        out.push('\n');
    }
}

/// The name of a figure in a table.
fn title(figure: &str) -> String {
    let (name, part) = figure.split_once('.').unwrap_or((figure, ""));
    let part = match part {
        "p50" => "50 %",
        "p95" => "95 %",
        "p99" => "99 %",
        part => part,
    };
    match (name, part) {
        ("ttfb", part) => format!("first byte, {part}"),
        ("total", part) => format!("last byte, {part}"),
        ("rate", _) => "requests a second".to_owned(),
        ("fetched", _) => "from the origin".to_owned(),
        ("throughput", _) => "bytes a second".to_owned(),
        ("origin", "requests") => "requests to the origin".to_owned(),
        ("origin", "bytes") => "from the origin".to_owned(),
        ("origin", "most_asked") => "to the origin for one".to_owned(),
        ("server", "cpu_us") => "CPU a request".to_owned(),
        ("server", "written") => "written".to_owned(),
        ("server", "disk") => "disk, at most".to_owned(),
        ("server", "memory") => "memory, at most".to_owned(),
        (name, "max") => name.to_owned(),
        (name, part) => format!("{name}, {part}"),
    }
}
