//! `millpond check [--fix …] [-c] FILE | FOLDER | -`: how a configuration fares, before anything is
//! switched over. A folder stands for the `nginx.conf` in it, `-` for what `nginx -T` has printed.
//!
//! ```text
//! salvage ──► report ──► text, or JSON with --json
//! ```
//!
//! Every line is counted once: it works, has no effect, or is refused. What is wrong in one place
//! keeps nothing else from being looked at: blocks of modules that are not there are passed over,
//! files that are missing are named, names that cannot be resolved here are stood in for.
//!
//! With `--fix` a changed copy is written, and the report is that of the copy (`fix`, `copy`).
//!
//! The exit status is 0 when everything works, 1 when something is refused, and 2 when the file, or
//! one that it includes, cannot be read.

mod copy;
mod edit;
mod fix;
mod json;
mod report;
mod text;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use millpond_conf::{Files, read_dump};
use millpond_server::source::ConfSource;
use millpond_server::source::bundled::Beside;
use millpond_server::source::salvage::salvage;
use millpond_system::log::error::{ErrorLog, Level};
use millpond_system::log::file::LogFile;

use crate::arguments::{PREFIX, conf_path};
use crate::printed;
use crate::terminal;
use copy::{From, To};
use report::{Outcome, Report};

const USAGE: &str = "usage: millpond check [--json] [--fix TO | --fix --in-place] [-p PREFIX] [-c] FILE | FOLDER | -

A folder, such as /etc/nginx, stands for the nginx.conf in it. With - the output of nginx -T is read
from the standard input, here or on another machine: ssh HOST nginx -T | millpond check -
With --fix a copy is written to TO, a file or an empty folder, in which what is refused is changed
or commented out, with a comment at each change; the report is that of the copy. With --in-place
the files themselves are changed. What decides who may ask is left to you.
It ends with 0 when everything works, 1 when something is refused, 2 when a file cannot be read.
";

/// The main file of a folder of nginx.
const MAIN_FILE: &str = "nginx.conf";
/// The most bytes that are read of a printed configuration (arbitrary: more than anybody has).
const MAX_DUMP: u64 = 256 << 20;

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
    fix: Option<To>,
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
                "--fix" => {
                    let to = value()?;
                    options.fix = Some(match to.as_str() {
                        "--in-place" => To::InPlace,
                        to if to.starts_with('-') => {
                            return Err("option \"--fix\" requires a file or a folder".to_string());
                        }
                        to => To::Copy(std::env::current_dir().unwrap_or_default().join(to)),
                    });
                }
                "-p" => options.prefix = Some(value()?),
                "-c" if options.file.is_none() => options.file = Some(value()?),
                "-" if options.file.is_none() => options.file = Some(word),
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
        beside: Default::default(),
    }
}

/// The main file of a folder, where a folder is named.
fn whole(mut source: ConfSource) -> ConfSource {
    if source.path.is_dir() {
        source.path.push(MAIN_FILE);
    }
    source
}

/// The configuration that `nginx -T` has printed, from the standard input.
fn dumped(prefix: Option<&str>) -> Result<Option<ConfSource>> {
    let mut text = Vec::new();
    io::stdin().lock().take(MAX_DUMP).read_to_end(&mut text)?;
    Ok(read_dump(&text).map(|(path, seen)| ConfSource {
        path,
        files: Files::Seen(Arc::new(seen)),
        // What is printed has it already.
        beside: Beside::Nothing,
        ..source(None, prefix)
    }))
}

/// Checks a configuration and prints the report.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<ExitCode> {
    let options = match crate::options::read(words.collect(), USAGE, Options::parse) {
        Ok(options) => options,
        Err(code) => return Ok(code),
    };
    let from = match options.file.as_deref() {
        Some("-") => From::Text,
        _ => From::Disk,
    };
    if (&options.fix, from) == (&Some(To::InPlace), From::Text) {
        eprintln!("millpond: what is read from the standard input has no files to change");
        return Ok(ExitCode::from(Outcome::Unreadable.status()));
    }
    let source = match options.file.as_deref() {
        Some("-") => match dumped(options.prefix.as_deref())? {
            Some(source) => source,
            None => {
                eprintln!(
                    "millpond: no configuration in the standard input: it has no line \"# configuration file PATH:\""
                );
                return Ok(ExitCode::from(Outcome::Unreadable.status()));
            }
        },
        file => whole(source(file, options.prefix.as_deref())),
    };
    let dir = source.path.parent().unwrap_or(Path::new(""));
    let report = match &options.fix {
        None => Report::of(salvage(&source), &source.path),
        Some(to) => {
            let fixed = fix::fix(&source);
            let unwritten = copy::write(&fixed, (&source.path, from), to)?;
            if options.format == Format::Text {
                printed::text(text::changes(&fixed.comments(), &unwritten, dir))?;
            }
            Report::of(fixed.salvage, &source.path)
        }
    };
    match options.format {
        Format::Json => printed::text(json::write(&report))?,
        Format::Text => printed::text(text::write(&report, dir, terminal::stdout_paint()))?,
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
        let printed = parse("--json -").unwrap();
        assert_eq!(printed.file.as_deref(), Some("-"));
        for text in ["a b", "-x", "-c", "-p", "a -c b", "a -", "- -"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
