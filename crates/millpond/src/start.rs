//! From a configuration to a serving process.
//!
//! ```text
//! inherited sockets ─► error log ─► configuration ─► background ─► logs ─► sockets ─► user
//!                   ─► signals caught ─► caches and workers ─► pid file
//! ```
//!
//! Whatever fails before the pid file is written is printed and ends the process with status 1.
//!
//! Invariants:
//! 1. When the pid file exists, the sockets listen and signals are caught.
//! 2. The pid file is removed at the end, unless another process has put its own id there.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use millpond_proxy::control::Wanted;
use millpond_proxy::log::error::{self, ErrorLog, Level};
use millpond_proxy::log::file;
use millpond_proxy::pid::PidFile;
use millpond_proxy::reload::{ConfSource, Reading};
use millpond_proxy::scope::Conf;
use millpond_proxy::server::predecessor::Predecessor;
use millpond_proxy::server::sockets::{BindError, Inherited};
use millpond_proxy::server::successor::{self, Program};
use millpond_proxy::server::{Process, Server, Standing};
use millpond_proxy::shutdown::Signals;

use crate::arguments::Arguments;
use crate::identity::{self, Sources};
use crate::{daemon, test};

/// Reads the configuration and serves until a signal ends the process.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    run_then(arguments, |_| Ok(()))
}

/// As [`run`], and calls `started` once it serves; an error of that ends it.
pub(crate) fn run_then(
    arguments: &Arguments,
    started: impl FnOnce(&Server) -> Result<()>,
) -> Result<ExitCode> {
    let program = daemon::program();
    let (predecessor, inherited) = inherit();
    let source = arguments.conf_source(open_error_log(arguments));
    let Some(conf) = read(&source, arguments) else {
        return Ok(ExitCode::FAILURE);
    };
    let is_in_background = arguments.is_daemon_child || predecessor.is_there();
    if conf.main.process.daemon && !is_in_background {
        return daemon::start();
    }
    error::set_process_logs(source.process_logs(&conf));
    if !file::open_all() {
        return Ok(ExitCode::FAILURE);
    }
    log_panics();
    let Some(server) = logged(Server::take_over(conf, predecessor, inherited)) else {
        return Ok(ExitCode::FAILURE);
    };
    let standing = match is_in_background {
        true => Standing::Background,
        false => Standing::Foreground,
    };
    serve(arguments, server, &source, (program, standing), started)
}

/// What the process left that this one is to take over from, if there is one.
fn inherit() -> (Predecessor, Vec<Inherited>) {
    let Ok(sockets) = std::env::var(successor::SOCKETS) else {
        return (Predecessor::default(), Vec::new());
    };
    let channel = std::env::var(successor::CHANNEL).ok();
    let control = std::env::var(successor::CONTROL).ok();
    Predecessor::inherit(&sockets, (channel.as_deref(), control.as_deref()))
}

/// Opens the log of `-e`; without it, errors go to the standard error stream.
pub(crate) fn open_error_log(arguments: &Arguments) -> ErrorLog {
    let mut log = arguments.error_log();
    if let Err(failure) = log.open() {
        let message = format_args!("could not open error log file: {failure}");
        error::process(Level::Alert, message);
        log = ErrorLog::to(file::LogFile::stderr(), log.level);
    }
    error::set_process_logs(vec![log.clone()]);
    log
}

fn read(source: &ConfSource, arguments: &Arguments) -> Option<Conf> {
    let reading = source.read();
    let Reading {
        conf,
        sources,
        diagnostics,
        ..
    } = &reading;
    test::report(diagnostics, sources, arguments);
    if conf.is_none() || !diagnostics.is_empty() {
        error::to_logs_only(|| reading.log());
    }
    reading.conf
}

fn logged(bound: Result<Server, Vec<BindError>>) -> Option<Server> {
    match bound {
        Ok(server) => Some(server),
        Err(failures) => {
            for failure in failures {
                error::process(Level::Emerg, format_args!("{failure}"));
            }
            None
        }
    }
}

fn serve(
    arguments: &Arguments,
    mut server: Server,
    source: &ConfSource,
    (program, standing): (Program, Standing),
    started: impl FnOnce(&Server) -> Result<()>,
) -> Result<ExitCode> {
    let process = server.conf().main.process.clone();
    if let Some(count) = process.open_files {
        identity::limit_open_files(count);
    }
    let wanted = Wanted::of(server.conf(), &source.prefix);
    server
        .open_control(&wanted)
        .context("opening the control socket")?;
    if let Some(names) = &process.user {
        become_user(names, &server, &source.prefix.join(&process.pid))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the event loop")?;
    runtime.block_on(async {
        let signals = Signals::new().context("catching signals")?;
        server.start().context("starting the workers")?;
        let pid_file = PidFile::write(&source.prefix.join(&process.pid))?;
        let mut process = Process {
            program,
            pid_file,
            standing,
        };
        error::leave_stderr();
        if arguments.is_daemon_child {
            daemon::ready()?;
        }
        let outcome = started(&server);
        if outcome.is_ok() {
            server.run(signals, source, &mut process).await;
        }
        process.pid_file.remove();
        outcome.map(|()| ExitCode::SUCCESS)
    })
}

/// Changes to the user, after making what only root can make.
fn become_user(names: &[String], server: &Server, pid_path: &Path) -> Result<()> {
    let logs = file::paths();
    let declared = &server.conf().declared.zones;
    let zones = declared.iter().flat_map(|zone| zone.paths());
    let zones: Vec<&Path> = zones.map(PathBuf::as_path).collect();
    if rustix::process::geteuid().is_root() {
        for zone in declared {
            let what = || format!("mkdir() \"{}\"", zone.path.display());
            let made = std::fs::create_dir_all(&zone.path).with_context(what);
            // A zone on several disks starts without those that cannot be had.
            if zone.disks.is_empty() {
                made?;
            }
            for disk in &zone.disks {
                let _ = std::fs::create_dir(&disk.path);
            }
        }
        // Whoever cannot write it later is told so when it is written.
        let _ = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(pid_path);
    }
    let mut paths: Vec<&Path> = logs.iter().map(PathBuf::as_path).collect();
    paths.extend(zones);
    paths.push(pid_path);
    paths.extend(server.control_path());
    let sources = match server.conf().uses_foreign_sources {
        true => Sources::Foreign,
        false => Sources::Own,
    };
    identity::change_to(names, &paths, sources)
}

/// A panic ends one request; it is logged and counted, and the process goes on.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("no message");
        error::panicked(format_args!("panic at {place}: {message}"));
    }));
}
