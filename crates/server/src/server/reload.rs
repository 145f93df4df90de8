//! Reading the configuration again, on HUP.
//!
//! A reload reads and checks everything, opens the logs and sockets that are new, and only then
//! hands over. Whatever goes wrong before that is logged, and the process goes on as it was.
//!
//! ```text
//! read ──► check ──► open logs ──► bind what is new ──► hand over; the old generation drains
//!   └────────┴───────────┴──────────────┴──► logged; nothing changes
//! ```
//!
//! Invariants:
//! 1. After a failed reload the same configuration, logs and sockets are in force as before.
//! 2. A reload that changes nothing is counted as such; metrics tell it.

use std::sync::Arc;

use millpond_conf::Files;
use millpond_exchange::stats::attempts::Reasons;
use millpond_system::log::error::{self, Level};
use millpond_system::log::file;
use millpond_system::root_helper;

use super::{Process, Server};
use crate::control::Wanted;
use crate::source::ConfSource;
use crate::source::bundled::Beside;

/// Reads the configuration again and puts it into force, if there is nothing wrong with it.
///
/// `beside` is what a fleet gives; the error is the reasons why it is not taken.
pub(super) fn reload(
    server: &mut Server,
    (source, beside): (&ConfSource, Beside),
    process: &mut Process,
) -> Result<(), Reasons> {
    error::process(Level::Notice, format_args!("reconfiguring"));
    let shared = Arc::clone(server.shared());
    shared.attempts.begin();
    let source = ConfSource {
        beside,
        ..source.clone()
    };
    let outcome = take(server, &source, process);
    if outcome.is_err() {
        server.note_failed_load();
    }
    shared.attempts.end(outcome.clone());
    outcome
}

/// Takes the configuration, or says, in the log, too, why not.
fn take(server: &mut Server, source: &ConfSource, process: &mut Process) -> Result<(), Reasons> {
    let source = &read_by_root(source);
    let reading = source.read();
    reading.log();
    let mistakes = reading.mistakes();
    let Some(conf) = reading.conf else {
        return Err(mistakes);
    };
    let outside = server.outside(&conf);
    if !outside.is_empty() {
        return Err(outside.into_iter().flat_map(refused).collect());
    }
    if !file::open_all() {
        return Err(vec![
            "a log cannot be opened; the error log says why".into(),
        ]);
    }
    conf.declared.temp_folders.check().map_err(refused)?;
    let logs = source.process_logs(&conf);
    let pid_path = source.prefix.join(&conf.main.process.pid);
    let wanted = Wanted::of(&conf, &source.prefix);
    let control = server.prepare_control(&wanted).map_err(refused)?;
    let cores = conf.main.cores.clone();
    cores.check().map_err(refused)?;
    if let Err(errors) = server.change(conf) {
        return Err(errors.into_iter().flat_map(refused).collect());
    }
    cores.obey(&mut process.program);
    server.adopt_control(control);
    server.serve_control();
    error::set_process_logs(logs);
    // nginx: a new configuration writes to the files that have the names now.
    file::reopen_all();
    if let Err(failure) = process.pid_file.move_to(&pid_path) {
        error::process(Level::Alert, format_args!("{failure}"));
    }
    Ok(())
}

/// Logs why a configuration is not taken, and keeps it for whoever waits.
fn refused(failure: impl std::fmt::Display) -> Reasons {
    error::process(Level::Emerg, format_args!("{failure}"));
    vec![failure.to_string()]
}

/// Lets the root helper, if there is one, read the files and make what they name; then they are
/// read as it has read them, since others than root may not be able to.
fn read_by_root(source: &ConfSource) -> ConfSource {
    let mut source = source.clone();
    if let Some(Ok(seen)) = root_helper::read_again() {
        source.files = Files::Seen(Arc::new(seen));
    }
    source
}
