//! `-t`, `-T`: testing a configuration, and printing it.
//!
//! A test reads the configuration, opens its logs, looks for the user of the process and for the
//! folders that a start would make, and tries to bind its addresses; an address that is in use is
//! no fault, because the running process has it. It fails where a start would. A test also warns of
//! what a configuration says and seldom means (`millpond_server::lint`).

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use millpond_conf::source::Sources;
use millpond_conf::{Diagnostics, Severity};
use millpond_exchange::settings::Conf;
use millpond_server::server::Server;
use millpond_server::source::Reading;
use millpond_system::log::error::{self, Level};
use millpond_system::log::file;

use crate::arguments::Arguments;
use crate::terminal;
use crate::{descriptors, folders, identity};

/// Tests the configuration.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let error_log = crate::start::open_error_log(arguments);
    let source = arguments.conf_source(error_log);
    let path = source.path.display().to_string();
    let mut reading = source.read();
    reading.lint();
    let Reading {
        conf,
        sources,
        diagnostics,
        ..
    } = reading;
    report(&diagnostics, &sources, arguments);
    let failed = || {
        eprintln!("millpond: configuration file {path} test failed");
        Ok(ExitCode::FAILURE)
    };
    let Some(conf) = conf else { return failed() };
    if !arguments.quiet {
        eprintln!("millpond: the configuration file {path} syntax is ok");
    }
    if !opens(conf, &source.prefix) {
        return failed();
    }
    if !arguments.quiet {
        eprintln!("millpond: configuration file {path} test is successful");
    }
    if arguments.dump {
        dump(&sources)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the findings; notes only when somebody tests and wants to read.
pub(crate) fn report(diagnostics: &Diagnostics, sources: &Sources, arguments: &Arguments) {
    let wants_notes = arguments.action == crate::arguments::Action::Test && !arguments.quiet;
    let mut shown = Diagnostics::new();
    for diagnostic in diagnostics.iter() {
        if diagnostic.severity != Severity::Note || wants_notes {
            shown.push_copy(diagnostic.clone());
        }
    }
    eprint!("{}", shown.render(sources, terminal::stderr_style()));
}

/// Opens the logs, looks at folders and binds the addresses of the configuration.
fn opens(conf: Conf, prefix: &Path) -> bool {
    let mut is_good = file::open_all();
    if let Some(names) = &conf.main.process.user
        && let Err(failure) = identity::check(names)
    {
        error::process(Level::Emerg, format_args!("{failure}"));
        is_good = false;
    }
    for fault in folders::faults(&conf, prefix) {
        error::process(Level::Emerg, format_args!("{fault}"));
        is_good = false;
    }
    if let Some(message) = descriptors::shortage(&conf, descriptors::count_with(&conf)) {
        error::process(Level::Warn, format_args!("{message}"));
    }
    let failures = match Server::bind(conf) {
        Ok(_) => return is_good,
        Err(failures) => failures,
    };
    for failure in failures {
        if failure.source.kind() != std::io::ErrorKind::AddrInUse {
            error::process(Level::Emerg, format_args!("{failure}"));
            is_good = false;
        }
    }
    is_good
}

/// Prints all files, in the order in which they were read.
fn dump(sources: &Sources) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for file in sources.files() {
        writeln!(out, "# configuration file {}:", file.path().display())?;
        out.write_all(file.bytes())?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
