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
use millpond_server::source::ConfSource;
use millpond_server::source::salvage::salvage;
use millpond_system::log::error::{ErrorLog, Level};
use millpond_system::log::file::LogFile;

use crate::arguments::{PREFIX, conf_path};
use crate::terminal;
use report::Report;

const USAGE: &str = "usage: millpond check [--json] [-p PREFIX] [-c] FILE
It ends with 0 when everything works, 1 when something is refused, 2 when a file cannot be read.
";

/// Format of the report.
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
                // A file that is named without a letter is one that the shell has completed.
                _ => {
                    let here = std::env::current_dir().unwrap_or_default();
                    options.file = Some(here.join(word).display().to_string());
                }
            }
        }
        Ok(options)
    }
}

/// A configuration to look at, by the words of a command line.
pub(crate) fn source(file: Option<&str>, prefix: Option<&str>) -> ConfSource {
    ConfSource {
        path: conf_path(file, prefix),
        prefix: PathBuf::from(prefix.unwrap_or(PREFIX)),
        globals: None,
        files: Default::default(),
        error_log: ErrorLog::to(LogFile::stderr(), Level::Emerg),
    }
}

/// Checks a configuration and prints the report.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<ExitCode> {
    let options = match crate::options::read(words.collect(), USAGE, Options::parse) {
        Ok(options) => options,
        Err(code) => return Ok(code),
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
            let file = options.file.unwrap_or_default();
            assert!(Path::new(&file).ends_with("x.conf"), "{text}: {file}");
            let is_json = options.format == Format::Json;
            assert_eq!(is_json, text.contains("json"), "{text}");
        }
        for text in ["a b", "-x", "-c", "-p", "a -c b"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
