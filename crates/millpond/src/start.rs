//! Start of the process: the way from a configuration to serving.
//!
//! ```text
//! inherited sockets ─► error log ─► configuration ─► background ─► logs ─► sockets
//!                   ─► signals caught ─► [root with user: root helper, pid file ─► user]
//!                   ─► [landlock] ─► caches and workers ─► pid file, unless it is there
//! ```
//!
//! Whatever fails before the process serves is printed and ends it with status 1.
//!
//! Invariants:
//! 1. When the pid file exists, the sockets listen and signals are caught.
//! 2. The pid file is removed at the end, unless another process has put its own id there.
//! 3. A pid file that root made stays root's: `-s` sends what root sends to the id in it.
//! 4. Paths are absolute before anything is read: `working_directory` changes what others mean.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use millpond_exchange::descriptors::segment_files;
use millpond_exchange::settings::Conf;
use millpond_exchange::stats::ledger;
use millpond_proxy::cache::zones;
use millpond_proxy::cache::zones::Registry;
use millpond_server::control::Wanted;
use millpond_server::pid::{PidFile, PidHolder};
use millpond_server::server::predecessor::Predecessor;
use millpond_server::server::{Inherit, Process, Server, Standing};
use millpond_server::sockets::activation;
use millpond_server::sockets::{BindError, Inherited};
use millpond_server::source::{ConfSource, Reading, bundled};
use millpond_system::heritage::{self, Program};
use millpond_system::log::error::{self, ErrorLog, Level};
use millpond_system::log::{file, journal};
use millpond_system::reserve::RESERVE;
use millpond_system::root_helper;
use millpond_system::shutdown::Signals;
use millpond_system::supervisor::{Listener, Supervisor};

use crate::arguments::Arguments;
use crate::identity::{Given, Identity, Sources};
use crate::{daemon, descriptors, test};

/// Reads the configuration and serves until a signal ends the process.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    run_then(arguments, |_| Ok(()))
}

/// Runs like [`run`], and calls `started` once it serves; an error of that ends it.
pub(crate) fn run_then(
    arguments: &Arguments,
    started: impl FnOnce(&Server) -> Result<()>,
) -> Result<ExitCode> {
    let program = daemon::program();
    if let Ok(stream) = std::env::var("JOURNAL_STREAM") {
        journal::take_stderr(&stream);
    }
    let (predecessor, inherited) = inherit();
    let activated = inherited_from_manager();
    let mut arguments = arguments.clone();
    arguments.make_absolute();
    let arguments = &arguments;
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
    activation::warn_of_unused(&activated, &conf);
    let inherited = inherited.into_iter().chain(activated).collect();
    let Some(server) = logged(Server::take_over(conf, predecessor, inherited)) else {
        return Ok(ExitCode::FAILURE);
    };
    let standing = if is_in_background {
        Standing::Background
    } else {
        Standing::Foreground
    };
    serve(arguments, server, &source, (program, standing), started)
}

/// Predecessor that this process is to take over from, with what it left, if there is one.
fn inherit() -> (Predecessor, Vec<Inherited>) {
    let Ok(sockets) = std::env::var(heritage::SOCKETS) else {
        return (Predecessor::default(), Vec::new());
    };
    let channel = std::env::var(heritage::CHANNEL).ok();
    let control = std::env::var(heritage::CONTROL).ok();
    Predecessor::inherit(&sockets, (channel.as_deref(), control.as_deref()))
}

/// The sockets that a service manager opened for this process (sd_listen_fds(3)).
fn inherited_from_manager() -> Vec<Inherited> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").and_then(|count| count.try_into().ok());
    activation::take(count.unwrap_or(0))
}

/// The rules of the kernel that this process was started under.
fn inherited_rules() -> Inherit {
    match std::env::var_os(heritage::CONFINED) {
        Some(_) => Inherit::Rules,
        None => Inherit::Nothing,
    }
}

/// The service manager, if one listens.
fn supervisor() -> Supervisor {
    Supervisor::new(match std::env::var_os("NOTIFY_SOCKET") {
        Some(_) => Listener::There,
        None => Listener::Missing,
    })
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
    descriptors::limit(process.open_files);
    let count = descriptors::count();
    if let Some(message) = descriptors::shortage(server.conf(), count) {
        error::process(Level::Warn, format_args!("{message}"));
    }
    let zones = &Registry::of(server.shared());
    zones.limit_open_files(segment_files(count));
    server.shared().descriptors.set(count);
    RESERVE.hold(count);
    zones.ask_for_descriptors(|| RESERVE.give());
    let wanted = Wanted::of(server.conf(), &source.prefix);
    server
        .open_control(&wanted)
        .context("opening the control socket")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the event loop")?;
    runtime.block_on(async {
        let signals = Signals::new().context("catching signals")?;
        let pid_path = source.prefix.join(&process.pid);
        let early = match &process.user {
            // Before any other thread is started: the change concerns this one.
            Some(names) => become_user(names, &server, &program, &pid_path)?,
            None => None,
        };
        let begun = server
            .confine(inherited_rules())
            .map_err(anyhow::Error::from)
            .and_then(|is_confined| begin(&mut server).map(|()| is_confined));
        let is_confined = match begun {
            Ok(is_confined) => is_confined,
            Err(failure) => {
                early.into_iter().for_each(PidHolder::remove);
                return Err(failure);
            }
        };
        let pid_file = match early {
            Some(written) => written,
            None => PidHolder::Process(PidFile::write(&pid_path)?),
        };
        let mut process = Process {
            program: Program {
                is_confined,
                ..program
            },
            pid_file,
            standing,
            supervisor: supervisor(),
        };
        server.conf().main.cores.obey(&mut process.program);
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

/// Starts to serve, as the user that the process has become.
fn begin(server: &mut Server) -> Result<()> {
    server.conf().declared.temp_folders.check()?;
    server.conf().main.cores.check()?;
    server.start().context("starting the workers")
}

/// Changes to the user, after making what only root can make: the folders of zones and temporary
/// files, and the root helper, which writes the pid file (INVARIANT 3).
fn become_user(
    names: &[String],
    server: &Server,
    program: &Program,
    pid_path: &Path,
) -> Result<Option<PidHolder>> {
    let Some(identity) = Identity::find(names)? else {
        return Ok(None);
    };
    let declared = &server.conf().declared;
    zones::make_folders(&declared.zones).map_err(anyhow::Error::msg)?;
    declared.temp_folders.make()?;
    bundled::make_folder(declared).map_err(anyhow::Error::msg)?;
    let folders = declared.zones.iter().flat_map(|zone| zone.paths());
    let folders = folders
        .chain(bundled::folder(declared))
        .chain(declared.temp_folders.paths());
    folders.for_each(|path| identity.give(path, Given::WithGroup));
    declared
        .zones
        .iter()
        .flat_map(|zone| zone.paths())
        .chain(bundled::folder(declared))
        .for_each(|path| identity.give_content(path));
    let counters = ledger::place(server.conf());
    let single = server.control_path().into_iter().chain(counters.as_deref());
    single.for_each(|path| identity.give(path, Given::WithGroup));
    let logs = file::paths();
    logs.iter()
        .for_each(|(path, _)| identity.give(path, Given::UserOnly));
    let pid_file = if identity.is_root() {
        PidHolder::Process(PidFile::write(pid_path)?)
    } else {
        root_helper::start(program, &identity.owner()).context("starting the root helper")?;
        PidHolder::write_by_helper(pid_path)?
    };
    let sources = if server.conf().uses_foreign_sources {
        Sources::Foreign
    } else {
        Sources::Own
    };
    match identity.take(sources) {
        Ok(()) => Ok(Some(pid_file)),
        Err(failure) => {
            pid_file.remove();
            Err(failure)
        }
    }
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
