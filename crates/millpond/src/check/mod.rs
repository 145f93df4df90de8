//! `millpond check [-c] FILE`: how a configuration fares, before anything is switched over.
//!
//! ```text
//! salvage ──► report ──► text, or JSON with --json
//! ```
//!
//! Every line is counted once: it works, has no effect, or is refused. What is wrong in one place
//! keeps nothing else from being looked at: blocks of modules that are not there are passed over,
//! files that are missing are named, names that cannot be resolved here are stood in for.
//!
//! The exit status is 0 when everything works, 1 when something is refused, and 2 when the file, or
//! one that it includes, cannot be read.

mod json;
mod report;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use millpond_proxy::log::error::{ErrorLog, Level};
use millpond_proxy::log::file::LogFile;
use millpond_proxy::reload::ConfSource;
use millpond_proxy::scope::salvage::salvage;

use crate::arguments::{CONF_PATH, PREFIX};
use crate::terminal;
use report::Report;

const USAGE: &str = "usage: millpond check [--json] [-p PREFIX] [-c] FILE\n";

/// How the report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    #[default]
    Text,
    Json,
}

/// The arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    file: Option<String>,
    prefix: Option<String>,
    format: Format,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or(format!("option \"{word}\" requires a value"))
            };
            match word.as_str() {
                "--json" => options.format = Format::Json,
                "-p" => options.prefix = Some(value()?),
                "-c" if options.file.is_none() => options.file = Some(value()?),
                other if other.starts_with('-') || options.file.is_some() => {
                    return Err(format!("invalid option: \"{word}\""));
                }
                _ => options.file = Some(word),
            }
        }
        Ok(options)
    }
}

/// A configuration to look at, by the words of a command line; relative to where it was typed.
pub(crate) fn source(file: Option<&str>, prefix: Option<&str>) -> ConfSource {
    let here = std::env::current_dir().unwrap_or_default();
    ConfSource {
        path: here.join(file.unwrap_or(CONF_PATH)),
        prefix: prefix.map_or(PathBuf::from(PREFIX), |prefix| here.join(prefix)),
        globals: None,
        error_log: ErrorLog::to(LogFile::stderr(), Level::Emerg),
    }
}

/// Checks a configuration and prints the report.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<ExitCode> {
    let options = match Options::parse(words) {
        Ok(options) => options,
        Err(error) => {
            eprint!("millpond: {error}\n{USAGE}");
            return Ok(ExitCode::from(2));
        }
    };
    let source = source(options.file.as_deref(), options.prefix.as_deref());
    let report = Report::of(salvage(&source), &source.path);
    match options.format {
        Format::Json => print!("{}", json::write(&report)),
        Format::Text => {
            let dir = source.path.parent().unwrap_or(Path::new(""));
            print!("{}", text::write(&report, dir, terminal::stdout_paint()));
        }
    }
    Ok(ExitCode::from(report.outcome().status()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_named_with_or_without_its_letter() {
        let parse = |text: &str| Options::parse(text.split_ascii_whitespace().map(str::to_string));
        for text in [
            "x.conf",
            "-c x.conf",
            "--json -p /p x.conf",
            "x.conf --json",
        ] {
            let options = parse(text).unwrap();
            assert_eq!(options.file.as_deref(), Some("x.conf"), "{text}");
            let is_json = options.format == Format::Json;
            assert_eq!(is_json, text.contains("json"), "{text}");
        }
        for text in ["a b", "-x", "-c", "-p", "a -c b"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
