//! Text for the standard output, where nobody may read it any more, or nothing may have room.
//!
//! A reader that stops (`| head`) wants no more, which is no failure: what a command found out
//! stays its status. Whatever else goes wrong is an error, and never a panic.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;

/// Writes text to the standard output.
pub(crate) fn text(text: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("the standard output cannot be written"),
    }
}

/// Writes a line to the standard output.
pub(crate) fn line(line: impl Display) -> anyhow::Result<()> {
    text(format_args!("{line}\n"))
}

/// Writes text that was asked for with two dashes, and gives the status of that.
pub(crate) fn answer(asked_for: impl Display) -> ExitCode {
    match text(asked_for) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millpond: {error:#}");
            ExitCode::FAILURE
        }
    }
}
