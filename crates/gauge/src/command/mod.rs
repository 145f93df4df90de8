//! The command line.
//!
//! - `about` – what a page says of how its figures came about
//! - `arguments` – words to what is wanted
//! - `planned` – a plan's words before those of the command line
//! - `single` – `gauge run`: one server that runs already
//! - `protocol` – words about the protocol that servers are asked in
//! - `progress` – the bar
//!
//! The exit status is 0 if everything was right and within its limits, 1 if not, 2 if it could not
//! be done.

mod about;
mod arguments;
mod planned;
mod progress;
mod protocol;
mod single;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser};

use self::arguments::{Arguments, OutputArguments, Task};
pub(crate) use self::arguments::{CompareArguments, Sides};
pub(crate) use self::progress::{is_interrupted, watch};
pub(crate) use self::protocol::Scheme;
use self::single::write_files;
pub(crate) use self::single::{broken_limits, measure, print};
use crate::compare::{self, Comparison};
use crate::report::{About, Report};

/// Verdict on a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything was right.
    Right,
    /// Something was wrong, and was told.
    Wrong,
}

/// Result of one case.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    /// Text that a page begins with.
    pub(crate) summary: String,
    /// Reports with their names.
    pub(crate) reports: Vec<(String, Report)>,
}

/// All flags of a task, to check those of a plan.
pub(crate) fn flags(task: &str) -> Vec<clap::Arg> {
    let all = Arguments::command();
    let task = all.find_subcommand(task);
    task.map(|task| task.get_arguments().cloned().collect())
        .unwrap_or_default()
}

/// Runs the command that the words say; the first is the program's name.
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
    if let Task::Origin(wanted) = &arguments.task {
        return single::serve(wanted);
    }
    let mut all = All {
        about: about::about(words, &arguments, SystemTime::now()),
        ..All::default()
    };
    for (name, arguments) in planned::cases(words, arguments)? {
        if !name.is_empty() {
            eprintln!("== {name}");
        }
        let (output, outcome) = match &arguments.task {
            Task::Origin(_) => continue,
            Task::Run(wanted) => (&wanted.output, single::run(wanted)),
            Task::Compare(wanted) => (&wanted.output, compare::run(wanted)),
        };
        match outcome {
            Ok(outcome) => all.add(&name, output, outcome),
            Err(error) => {
                all.write()?;
                return Err(error);
            }
        }
        if is_interrupted() {
            break;
        }
    }
    all.write()?;
    Ok(all.verdict())
}

/// Results of all cases, for one report.
#[derive(Default)]
struct All {
    /// Destination of the report, as the first case says.
    output: Option<OutputArguments>,
    is_wrong: bool,
    /// Facts that the report's page begins with.
    about: About,
    reports: Vec<(String, Report)>,
}

impl All {
    fn add(&mut self, name: &str, output: &OutputArguments, outcome: Outcome) {
        self.output.get_or_insert_with(|| output.clone());
        self.is_wrong |= outcome.verdict == Verdict::Wrong;
        let has_name = !name.is_empty();
        if !outcome.summary.is_empty() {
            let above = if has_name {
                format!("{name}\n")
            } else {
                String::new()
            };
            self.about.summary += &format!("{above}{}\n", outcome.summary);
        }
        for (report_name, report) in outcome.reports {
            let report_name = if has_name {
                format!("{name}: {report_name}")
            } else {
                report_name
            };
            self.reports.push((report_name, report));
        }
    }

    fn write(&self) -> Result<()> {
        match &self.output {
            Some(output) => write_files(output, &self.about, &self.reports),
            None => Ok(()),
        }
    }

    fn verdict(&self) -> Verdict {
        if self.is_wrong {
            Verdict::Wrong
        } else {
            Verdict::Right
        }
    }
}

/// Measures what `gauge compare` measures, case by case, without a word: for programs. The words
/// are those behind `compare`.
pub fn compare(words: &[OsString]) -> Result<Vec<(String, Comparison)>> {
    let program = ["gauge", "compare"].map(OsString::from);
    let words: Vec<OsString> = program.into_iter().chain(words.iter().cloned()).collect();
    let arguments = Arguments::try_parse_from(&words)?;
    let mut all = Vec::new();
    for (name, arguments) in planned::cases(&words, arguments)? {
        let Task::Compare(mut wanted) = arguments.task else {
            bail!("another task than compare");
        };
        if is_interrupted() {
            bail!("interrupted");
        }
        wanted.output.is_mute = true;
        wanted.output.quiet = true;
        all.push((name, compare::take(&wanted)?));
    }
    Ok(all)
}
