//! `-s`: signals to the process that a pid file names.
//!
//! To send a signal, the configuration is read, because it says where the file is. Who writes the
//! file is `millpond_server::pid`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use millpond_system::log::error::{self, Level, os_error};
use rustix::process::{Pid, Signal, kill_process};

use crate::arguments::{Arguments, SignalName};

/// The id in a pid file.
fn read(path: &Path) -> Result<Option<Pid>> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        anyhow::anyhow!(
            "open() \"{}\" failed ({})",
            path.display(),
            os_error(&error)
        )
    })?;
    let number = text.trim().parse().ok();
    match number.and_then(Pid::from_raw) {
        Some(pid) => Ok(Some(pid)),
        None => bail!(
            "invalid PID number \"{}\" in \"{}\"",
            text.trim(),
            path.display()
        ),
    }
}

/// Sends a signal to the process that the configuration's pid file names.
pub(crate) fn send(arguments: &Arguments, name: SignalName) -> Result<ExitCode> {
    let source = arguments.conf_source(crate::start::open_error_log(arguments));
    let reading = source.read();
    crate::test::report(&reading.diagnostics, &reading.sources, arguments);
    let Some(conf) = reading.conf else {
        return Ok(ExitCode::FAILURE);
    };
    let path = source.prefix.join(&conf.main.process.pid);
    let signal = match name {
        SignalName::Stop => Signal::TERM,
        SignalName::Quit => Signal::QUIT,
        SignalName::Reopen => Signal::USR1,
        SignalName::Reload => Signal::HUP,
    };
    let pid = match read(&path) {
        Ok(pid) => pid.context("no process id")?,
        Err(failure) => {
            error::process(Level::Error, format_args!("{failure}"));
            return Ok(ExitCode::FAILURE);
        }
    };
    if let Err(errno) = kill_process(pid, signal) {
        let reason = os_error(&errno.into());
        let (pid, signal) = (pid.as_raw_nonzero(), signal.as_raw());
        error::process(
            Level::Alert,
            format_args!("kill({pid}, {signal}) failed ({reason})"),
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
