//! The command line of `millpond top`.
//!
//! `--once` alone is a screen as text, with `--json` one object. What nobody knows is a mistake.

use std::path::PathBuf;
use std::time::Duration;

use millpond_conf::value::parse_duration;

use super::view::{Pane, Sort};
use crate::options::{OfProcess, OptionError};

/// The shortest time between two looks; each costs the process well below a millisecond.
const SHORTEST: Duration = Duration::from_millis(100);

/// Shape in which figures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The figures are shown on the terminal, until told to end.
    Live,
    /// One screen as text.
    Text,
    /// An object a line.
    Json,
}

/// The arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) process: OfProcess,
    /// The control socket; that of the configuration without it.
    pub(super) socket: Option<PathBuf>,
    pub(super) every: Duration,
    pub(super) shape: Shape,
    /// True if one look with rates is enough.
    pub(super) is_once: bool,
    pub(super) pane: Pane,
    pub(super) sort: Sort,
}

/// Reads the words behind `top`.
pub(super) fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, OptionError> {
    let mut options = Options {
        process: OfProcess::default(),
        socket: None,
        every: Duration::from_secs(1),
        shape: Shape::Live,
        is_once: false,
        pane: Pane::Overview,
        sort: Sort::Requests,
    };
    while let Some(option) = words.next() {
        let mut value = || words.next().ok_or(OptionError::Missing(option.clone()));
        let wrong = |value: String, expected| OptionError::Value {
            option: option.clone(),
            value,
            expected,
        };
        match option.as_str() {
            _ if options.process.apply(&option, &mut value)? => {}
            "--socket" => options.socket = Some(PathBuf::from(value()?)),
            "--json" => options.shape = Shape::Json,
            "--once" => options.is_once = true,
            "--every" => {
                let value = value()?;
                let every = parse_duration(&value).filter(|every| *every >= SHORTEST);
                let expected = "write a time such as 1s or 500ms, at least 100ms";
                options.every = every.ok_or_else(|| wrong(value, expected))?;
            }
            "--pane" => {
                let value = value()?;
                let expected = "write overview, sites, zones or fills";
                options.pane = Pane::named(&value).ok_or_else(|| wrong(value, expected))?;
            }
            "--sort" => {
                let value = value()?;
                let expected = "write requests, hits, bytes, origin, held or site";
                options.sort = Sort::named(&value).ok_or_else(|| wrong(value, expected))?;
            }
            _ => return Err(OptionError::Invalid(option)),
        }
    }
    if options.is_once && options.shape == Shape::Live {
        options.shape = Shape::Text;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, OptionError> {
        parse(line.split_ascii_whitespace().map(str::to_string))
    }

    #[test]
    fn options_are_understood_or_refused() {
        let options = parsed("--once --every 500ms --pane sites --sort held -c f").unwrap();
        assert_eq!((options.shape, options.is_once), (Shape::Text, true));
        assert_eq!((options.pane, options.sort), (Pane::Sites, Sort::Held));
        assert_eq!(options.every, Duration::from_millis(500));
        assert_eq!(parsed("--json").unwrap().shape, Shape::Json);
        assert_eq!(parsed("").unwrap().shape, Shape::Live);
        for line in [
            "x",
            "--every 0",
            "--every 1ms",
            "--pane x",
            "--sort",
            "--sort x",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
