//! The report for programs: one JSON object.
//!
//! ```text
//! {"file", "files", "directives", "outcome": "works" | "refused" | "unreadable",
//!  "works": {NAME: COUNT, …},
//!  "refused", "absent", "warnings", "no_effect":
//!      [{"directive", "code", "message", "help", "places": [{"file", "line", "column"}, …]}, …]}
//! ```
//!
//! `code` and `help` are null when there is none. A path that is not UTF-8 is written as far as it
//! is.

use std::fmt::Write as _;

use super::report::{Finding, Outcome, Place, Report};

/// Writes a report.
pub(super) fn write(report: &Report) -> String {
    let outcome = match report.outcome() {
        Outcome::Works => "works",
        Outcome::Refused => "refused",
        Outcome::Unreadable => "unreadable",
    };
    let works = report.works.iter();
    let works: Vec<String> = works
        .map(|(name, count)| format!("{}:{count}", text(name)))
        .collect();
    let mut out = String::new();
    // Writing into a String never fails.
    let _ = writeln!(
        out,
        "{{\"file\":{},\"files\":{},\"directives\":{},\"outcome\":\"{outcome}\",\n\"works\":{{{}}},",
        text(&report.file.to_string_lossy()),
        report.files,
        report.statements,
        works.join(",")
    );
    let lists = [
        ("refused", &report.refused),
        ("absent", &report.absent),
        ("warnings", &report.warnings),
        ("no_effect", &report.idle),
    ];
    let lists = lists.map(|(name, findings)| {
        let findings: Vec<String> = findings.iter().map(finding).collect();
        format!("\"{name}\":[{}]", findings.join(",\n"))
    });
    let _ = writeln!(out, "{}}}", lists.join(",\n"));
    out
}

fn finding(finding: &Finding) -> String {
    let optional = |value: Option<&str>| value.map_or("null".to_string(), text);
    let places: Vec<String> = finding.places.iter().map(place).collect();
    format!(
        "{{\"directive\":{},\"code\":{},\"message\":{},\"help\":{},\"places\":[{}]}}",
        text(&finding.name),
        optional(finding.code),
        text(&finding.message),
        optional(finding.help.as_deref()),
        places.join(",")
    )
}

fn place(place: &Place) -> String {
    let file = text(&place.file.to_string_lossy());
    format!(
        "{{\"file\":{file},\"line\":{},\"column\":{}}}",
        place.line, place.column
    )
}

/// A JSON string.
fn text(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for char in value.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            char if char.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            }
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(text("a\"b\\c\nd\u{1}é"), "\"a\\\"b\\\\c\\nd\\u0001é\"");
    }
}
