//! From a configuration to a serving process.
//!
//! ```text
//! error log ─► configuration ─► background ─► logs ─► sockets ─► user ─► signals caught
//!           ─► caches and workers ─► pid file
//! ```
//!
//! Whatever fails before the pid file is written is printed and ends the process with status 1.
//!
//! Invariants:
//! 1. When the pid file exists, the sockets listen and signals are caught.
//! 2. The pid file is removed at the end, unless another process has put its own id there.

use std::process::ExitCode;

use anyhow::{Context, Result};
use millpond_proxy::log::error::{self, ErrorLog, Level};
use millpond_proxy::log::file;
use millpond_proxy::reload::{ConfSource, Reading};
use millpond_proxy::scope::Conf;
use millpond_proxy::server::Server;
use millpond_proxy::shutdown::Signals;

use crate::arguments::Arguments;
use crate::pid::PidFile;
use crate::{daemon, identity, test};

/// Reads the configuration and serves until a signal ends the process.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    run_then(arguments, |_| Ok(()))
}

/// As [`run`], and calls `started` once it serves; an error of that ends it.
pub(crate) fn run_then(
    arguments: &Arguments,
    started: impl FnOnce(&Server) -> Result<()>,
) -> Result<ExitCode> {
    let source = arguments.conf_source(open_error_log(arguments));
    let Some(conf) = read(&source, arguments) else {
        return Ok(ExitCode::FAILURE);
    };
    if conf.main.process.daemon && !arguments.is_daemon_child {
        return daemon::start();
    }
    error::set_process_logs(source.process_logs(&conf));
    if !file::open_all() {
        return Ok(ExitCode::FAILURE);
    }
    log_panics();
    let Some(server) = bind(conf) else {
        return Ok(ExitCode::FAILURE);
    };
    serve(arguments, server, &source, started)
}

/// Opens the log of `-e`; without it, errors go to the standard error stream.
pub(crate) fn open_error_log(arguments: &Arguments) -> ErrorLog {
    let mut log = arguments.error_log();
    if let Err(failure) = log.file.open() {
        let message = format_args!("could not open error log file: {failure}");
        error::process(Level::Alert, message);
        log.file = millpond_proxy::log::file::LogFile::stderr();
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

fn bind(conf: Conf) -> Option<Server> {
    match Server::bind(conf) {
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
    started: impl FnOnce(&Server) -> Result<()>,
) -> Result<ExitCode> {
    let process = server.conf().main.process.clone();
    if let Some(count) = process.open_files {
        identity::limit_open_files(count);
    }
    if let Some(names) = &process.user {
        identity::change_to(names)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the event loop")?;
    runtime.block_on(async {
        let signals = Signals::new().context("catching signals")?;
        server.start().context("starting the workers")?;
        let pid_file = PidFile::write(&source.prefix.join(&process.pid))?;
        error::leave_stderr();
        if arguments.is_daemon_child {
            daemon::ready()?;
        }
        let outcome = started(&server);
        if outcome.is_ok() {
            server.run(signals, source).await;
        }
        pid_file.remove();
        outcome.map(|()| ExitCode::SUCCESS)
    })
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
