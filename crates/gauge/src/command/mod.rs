//! The command line.
//!
//! - `arguments` – words to what is wanted
//! - `single` – `gauge run`: one server that runs already
//! - `progress` – the bar
//!
//! The exit status is 0 if everything was right and within its limits, 1 if not, 2 if it could not
//! be done.

mod arguments;
mod progress;
mod single;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

pub(crate) use self::arguments::CompareArguments;
use self::arguments::{Arguments, Task};
pub(crate) use self::progress::watch;
pub(crate) use self::single::{judge, measure, print, write_files};
use crate::compare;

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything was right.
    Right,
    /// Something was wrong, and was told.
    Wrong,
}

/// Does what the words say; the first is the program's name.
pub fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help is no failure. Nobody reads what cannot be printed.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let done = match &arguments.task {
        Task::Run(wanted) => single::run(wanted),
        Task::Origin(wanted) => single::serve(wanted),
        Task::Compare(wanted) => compare::run(wanted),
    };
    match done {
        Ok(Verdict::Right) => ExitCode::SUCCESS,
        Ok(Verdict::Wrong) => ExitCode::from(1),
        Err(error) => {
            eprintln!("gauge: {error:#}");
            ExitCode::from(2)
        }
    }
}
