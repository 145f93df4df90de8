//! The command line.
//!
//! - `arguments` – words to what is wanted
//! - `planned` – a plan's words before those of the command line
//! - `single` – `gauge run`: one server that runs already
//! - `progress` – the bar
//!
//! The exit status is 0 if everything was right and within its limits, 1 if not, 2 if it could not
//! be done.

mod arguments;
mod planned;
mod progress;
mod single;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser};

use self::arguments::{Arguments, Task};
pub(crate) use self::arguments::{CompareArguments, Sides};
pub(crate) use self::progress::watch;
pub(crate) use self::single::{broken_limits, measure, print, write_files};
use crate::compare::{self, Comparison};

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything was right.
    Right,
    /// Something was wrong, and was told.
    Wrong,
}

/// All flags of a task, to check those of a plan.
pub(crate) fn flags(task: &str) -> Vec<clap::Arg> {
    let all = Arguments::command();
    let task = all.find_subcommand(task);
    task.map(|task| task.get_arguments().cloned().collect())
        .unwrap_or_default()
}

/// Does what the words say; the first is the program's name.
pub fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.collect();
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help is no failure. Nobody reads what cannot be printed.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match done(&words, arguments) {
        Ok(Verdict::Right) => ExitCode::SUCCESS,
        Ok(Verdict::Wrong) => ExitCode::from(1),
        Err(error) => {
            eprintln!("gauge: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn done(words: &[OsString], arguments: Arguments) -> Result<Verdict> {
    let mut verdict = Verdict::Right;
    for (name, arguments) in planned::cases(words, arguments)? {
        if !name.is_empty() {
            eprintln!("== {name}");
        }
        let one = match &arguments.task {
            Task::Run(wanted) => single::run(wanted)?,
            Task::Origin(wanted) => single::serve(wanted)?,
            Task::Compare(wanted) => compare::run(wanted)?,
        };
        if one == Verdict::Wrong {
            verdict = one;
        }
    }
    Ok(verdict)
}

/// What `gauge compare` finds, case by case, without a word: for programs. The words are those
/// behind `compare`.
pub fn compare(words: &[OsString]) -> Result<Vec<(String, Comparison)>> {
    let program = ["gauge", "compare"].map(OsString::from);
    let words: Vec<OsString> = program.into_iter().chain(words.iter().cloned()).collect();
    let arguments = Arguments::try_parse_from(&words)?;
    let mut all = Vec::new();
    for (name, arguments) in planned::cases(&words, arguments)? {
        let Task::Compare(mut wanted) = arguments.task else {
            bail!("another task than compare");
        };
        wanted.output.is_mute = true;
        wanted.output.quiet = true;
        all.push((name, compare::take(&wanted)?));
    }
    Ok(all)
}
