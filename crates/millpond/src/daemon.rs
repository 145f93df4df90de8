//! `daemon`: going to the background.
//!
//! The program starts itself again, in a new session, and waits until that process says that it
//! serves. So every fault of the start is seen by whoever started it, and no thread or descriptor
//! is carried over a fork.
//!
//! ```text
//! parent: read the configuration ─► start child ─► wait for a line on its output ─► exit 0 | 1
//! child:  new session ─► read, bind, pid file ─► "ready" ─► standard streams to /dev/null
//! ```

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use millpond_system::heritage::Program;
use millpond_system::log::file::LogFile;

use crate::arguments::DAEMON_CHILD;

/// Word that the child writes when it serves.
const READY: &str = "ready";

/// Starts the background process and waits until it serves or fails.
pub(crate) fn start() -> Result<ExitCode> {
    let program = program();
    let mut child = Command::new(program.path)
        .arg(DAEMON_CHILD)
        .args(program.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the background process")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    Ok(match line.trim() {
        READY => ExitCode::SUCCESS,
        // It has said why.
        _ => ExitCode::FAILURE,
    })
}

/// Program that is started again to change the binary: by the name that this one was started with,
/// so that a link that points elsewhere by then is followed.
pub(crate) fn program() -> Program {
    let name = std::env::args_os().next().unwrap_or_default();
    let has_folder = Path::new(&name).components().nth(1).is_some();
    let known = if has_folder {
        std::path::absolute(&name).ok()
    } else {
        // The shell found it in one of its folders.
        std::env::current_exe().ok()
    };
    let words = std::env::args_os().skip(1);
    Program {
        path: known.unwrap_or_else(|| name.into()),
        arguments: words.filter(|word| word != DAEMON_CHILD).collect(),
        folder: None,
        is_confined: false,
    }
}

/// Leaves the session of whoever started us; called before anything else in the child.
pub(crate) fn detach() {
    // Fails only for the leader of a process group, which has no terminal to leave then.
    let _ = rustix::process::setsid();
    rustix::process::umask(rustix::fs::Mode::empty());
}

/// Reports to the parent that we serve, and leaves the standard streams.
pub(crate) fn ready() -> Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush())?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    // The log holds a descriptor of its own.
    LogFile::stderr().reopen()?;
    Ok(())
}
