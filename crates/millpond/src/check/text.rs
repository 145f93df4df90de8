//! The report for people: what must change first, then what may be looked at, then what works.
//!
//! It fits into eighty columns. A finding is one line with its directive and its places, and what
//! there is to say below it.

use std::fmt::Write as _;
use std::path::Path;

use super::report::{Finding, Outcome, Place, Report};
use crate::terminal::{Paint, Role, WIDTH, wrapped};

/// Number of places of a finding that are named; the others are counted.
const PLACES: usize = 4;

/// Writes a report; the paths of files below `dir` are shown from there.
pub(super) fn write(report: &Report, dir: &Path, paint: Paint) -> String {
    let mut out = String::new();
    let files = counted(report.files, "file", "files");
    let statements = counted(report.statements, "directive", "directives");
    let title = paint.paint(Role::Title, &report.file.display().to_string());
    // Writing into a String never fails.
    let _ = writeln!(out, "{title}: {statements} in {files}");
    let sections = [
        (
            &report.refused,
            Role::Bad,
            "Refused: the configuration cannot be used with it",
        ),
        (
            &report.absent,
            Role::Doubtful,
            "Not on this machine: what could not be looked at",
        ),
        (
            &report.warnings,
            Role::Doubtful,
            "Worth a look: allowed, and seldom meant",
        ),
        (
            &report.idle,
            Role::Faint,
            "No effect: accepted, and no answer changes",
        ),
    ];
    for (findings, role, heading) in sections {
        if findings.is_empty() {
            continue;
        }
        let count: usize = findings
            .iter()
            .map(|finding| finding.places.len().max(1))
            .sum();
        let heading = format!("{heading} ({count})");
        let _ = writeln!(out, "\n{}", paint.paint(role, &heading));
        for finding in findings {
            push(&mut out, finding, dir, paint);
        }
    }
    push_works(&mut out, report, paint);
    let _ = writeln!(out, "\n{}", verdict(report, paint));
    out
}

/// Writes what a copy has otherwise: its comments, and the files that were changed and not written.
pub(super) fn changes(
    comments: &[(&Path, usize, String)],
    unwritten: &[&Path],
    dir: &Path,
) -> String {
    let mut out = String::new();
    // Writing into a String never fails.
    let _ = writeln!(out, "Changed ({})", comments.len());
    for (file, line, comment) in comments {
        let file = file.strip_prefix(dir).unwrap_or(file);
        let _ = writeln!(out, "  {}:{line}", file.display());
        out.push_str(&wrapped(comment, 6));
    }
    for file in unwritten {
        let text = format!(
            "{} lies outside of the folder and was not written: copy it, and change its include",
            file.display()
        );
        out.push_str(&wrapped(&text, 2));
    }
    out.push('\n');
    out
}

fn push(out: &mut String, finding: &Finding, dir: &Path, paint: Paint) {
    let places = places(&finding.places, dir);
    let name = if finding.name.is_empty() {
        "-"
    } else {
        &finding.name
    };
    let _ = if name.len() + places.len() + 6 > WIDTH {
        writeln!(out, "  {}\n      {places}", paint.paint(Role::Title, name))
    } else {
        writeln!(out, "  {}  {places}", paint.paint(Role::Title, name))
    };
    // The name says it already.
    let no_effect = format!("\"{name}\" has no effect: ");
    let unsupported = format!("directive \"{name}\" is not supported");
    let message = finding
        .message
        .strip_prefix(&no_effect)
        .unwrap_or(&finding.message);
    if message != unsupported || finding.help.is_none() {
        out.push_str(&wrapped(message, 6));
    }
    for line in finding.help.iter().flat_map(|help| help.lines()) {
        out.push_str(&wrapped(line, 6));
    }
    if let Some(code) = finding.code.filter(|code| *code != "no_effect") {
        let _ = writeln!(
            out,
            "      {}",
            paint.paint(Role::Faint, &format!("[{code}]"))
        );
    }
}

/// The first places, files by their paths from `dir`.
fn places(places: &[Place], dir: &Path) -> String {
    let shown = places.iter().take(PLACES).map(|place| {
        let file = place.file.strip_prefix(dir).unwrap_or(&place.file);
        format!("{}:{}", file.display(), place.line)
    });
    let mut shown: Vec<String> = shown.collect();
    if let Some(more) = places.len().checked_sub(PLACES).filter(|more| *more > 0) {
        shown.push(format!("{more} more"));
    }
    shown.join(", ")
}

fn push_works(out: &mut String, report: &Report, paint: Paint) {
    let count: usize = report.works.values().sum();
    let heading = paint.paint(Role::Good, &format!("Works ({count})"));
    let _ = writeln!(out, "\n{heading}");
    let names: Vec<String> = report
        .works
        .iter()
        .map(|(name, count)| match count {
            1 => name.clone(),
            // A line is not broken between a name and its count.
            _ => format!("{name}\u{a0}{count}"),
        })
        .collect();
    if !names.is_empty() {
        out.push_str(&without_hard_spaces(&wrapped(&names.join(", "), 2)));
    }
}

fn without_hard_spaces(text: &str) -> String {
    text.replace('\u{a0}', " ")
}

fn verdict(report: &Report, paint: Paint) -> String {
    let count: usize = report
        .refused
        .iter()
        .map(|finding| finding.places.len().max(1))
        .sum();
    match report.outcome() {
        Outcome::Works => paint.paint(Role::Good, "This configuration works as it is."),
        Outcome::Refused => {
            let places = counted(count, "place", "places");
            let text = format!("This configuration must change in {places} before it works.");
            paint.paint(Role::Bad, &text)
        }
        Outcome::Unreadable => paint.paint(
            Role::Bad,
            "This configuration could not be read as a whole.",
        ),
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
