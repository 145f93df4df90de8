//! The command line of `millpond fleet config`.
//!
//! An option that a command has no use for is a mistake, like one that nobody knows.

use std::path::PathBuf;
use std::time::Duration;

use millpond_conf::value::parse_duration;
use millpond_proxy::cache::fleet_config::percent;

use crate::options::{OfProcess, OptionError};

const NO_COMMAND: &str = "a command is needed: key, push, status, promote or rollback";
const NO_FILE: &str = "a file is needed";
const NO_KEY: &str = "orders are signed: --key FILE is needed";
const BOTH: &str = "either all nodes have it at once (--all), or some try it first";
const PERCENT: &str = "write a percentage such as 5% or 0.5%";
const TIME: &str = "write a time such as 90s, 10m or 2h";
const NUMBER: &str = "write the number of a revision";

/// Command that is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Key(PathBuf),
    Push(PathBuf),
    Status,
    Promote,
    Rollback(Option<u64>),
}

/// The arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) command: Command,
    /// Configuration whose fleet is meant.
    pub(super) process: OfProcess,
    pub(super) key: Option<PathBuf>,
    /// Files and folders that are packed beside what is included.
    pub(super) with: Vec<PathBuf>,
    /// All nodes at once.
    pub(super) is_for_all: bool,
    /// Part of the nodes that try first, in thousandths.
    pub(super) canary: Option<u16>,
    pub(super) watch: Option<Duration>,
    pub(super) is_tested: bool,
    pub(super) is_dry: bool,
    pub(super) is_json: bool,
}

fn wrong(option: &str, value: String, expected: &'static str) -> OptionError {
    OptionError::Value {
        option: option.to_owned(),
        value,
        expected,
    }
}

/// Reads the words behind `config`.
pub(super) fn parse(words: impl Iterator<Item = String>) -> Result<Options, OptionError> {
    let mut words = words.peekable();
    let command = words.next();
    let mut subject = || words.next_if(|word| !word.starts_with('-'));
    let mut file = || {
        subject()
            .map(PathBuf::from)
            .ok_or(OptionError::Nothing(NO_FILE))
    };
    let command = match command.as_deref() {
        Some("key") => Command::Key(file()?),
        Some("push") => Command::Push(file()?),
        Some("status") => Command::Status,
        Some("promote") => Command::Promote,
        Some("rollback") => Command::Rollback(match subject() {
            Some(word) => match word.parse() {
                Ok(number) => Some(number),
                Err(_) => return Err(wrong("rollback", word, NUMBER)),
            },
            None => None,
        }),
        _ => return Err(OptionError::Nothing(NO_COMMAND)),
    };
    let mut options = Options {
        command,
        process: OfProcess::default(),
        key: None,
        with: Vec::new(),
        is_for_all: false,
        canary: None,
        watch: None,
        is_tested: true,
        is_dry: false,
        is_json: false,
    };
    while let Some(word) = words.next() {
        options.apply(&word, &mut words)?;
    }
    options.check()
}

impl Options {
    fn apply(
        &mut self,
        option: &str,
        words: &mut impl Iterator<Item = String>,
    ) -> Result<(), OptionError> {
        let mut value = || words.next().ok_or(OptionError::Missing(option.to_owned()));
        let is_push = matches!(self.command, Command::Push(_));
        let gives = is_push || matches!(self.command, Command::Promote | Command::Rollback(_));
        let asks = !matches!(self.command, Command::Key(_));
        match option {
            _ if asks && self.process.apply(option, &mut value)? => {}
            "--key" if gives && self.key.is_none() => self.key = Some(value()?.into()),
            "--with" if is_push => self.with.push(value()?.into()),
            "--all" if is_push => self.is_for_all = true,
            "--no-test" if is_push => self.is_tested = false,
            "--dry-run" if is_push => self.is_dry = true,
            "--canary" if is_push => {
                let text = value()?;
                let part = percent(&text).filter(|part| *part > 0);
                self.canary = Some(part.ok_or_else(|| wrong(option, text, PERCENT))?);
            }
            "--watch" if is_push => {
                let text = value()?;
                let time = parse_duration(&text).filter(|time| !time.is_zero());
                self.watch = Some(time.ok_or_else(|| wrong(option, text, TIME))?);
            }
            "--json" if self.command == Command::Status => self.is_json = true,
            _ => return Err(OptionError::Invalid(option.to_owned())),
        }
        Ok(())
    }

    fn check(self) -> Result<Options, OptionError> {
        let is_signed = !matches!(self.command, Command::Key(_) | Command::Status);
        if is_signed && self.key.is_none() && !self.is_dry {
            return Err(OptionError::Nothing(NO_KEY));
        }
        if self.is_for_all && (self.canary.is_some() || self.watch.is_some()) {
            return Err(OptionError::Nothing(BOTH));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_for_their_command() {
        let read = |text: &str| parse(text.split(' ').map(str::to_owned));
        for text in [
            "key k",
            "push d --key k",
            "push d --key k --with a --with b --canary 5% --watch 90s",
            "push d --key k --all --no-test",
            "push d --dry-run",
            "status --json -c x",
            "promote --key k -p /",
            "rollback --key k",
            "rollback 7 --key k",
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "other",
            "key",
            "key k -c x",
            "push",
            "push --key k",
            "push d",
            "push d --key",
            "push d --key k --key l",
            "push d --key k --canary 0%",
            "push d --key k --canary 5",
            "push d --key k --all --canary 5%",
            "push d --key k --watch x",
            "push d e --key k",
            "status --key k",
            "status x",
            "promote",
            "promote --key k --all",
            "rollback",
            "rollback x --key k",
            "rollback 7 8 --key k",
            "promote --key k --with a",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(
            read("rollback 7 --key k").unwrap().command,
            Command::Rollback(Some(7))
        );
    }
}
