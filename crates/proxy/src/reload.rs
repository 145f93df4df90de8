//! Reading the configuration, at the start and again on HUP.
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
//! 2. All mistakes of a configuration are logged, not only the first.
//! 3. A reload that changes nothing is counted as such; metrics tell it.

pub mod salvage;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millpond_conf::code as conf_code;
use millpond_conf::source::{Sources, Span};
use millpond_conf::tree::{Statement, Tree};
use millpond_conf::{Diagnostics, Files, LoadOptions, ParseContext, Severity, one_line};
use millpond_system::clock;
use millpond_system::log::error::{self, ErrorLog, Level};
use millpond_system::log::file;
use millpond_system::root_helper;

use crate::control::Wanted;
use crate::directives;
use crate::lint;
use crate::server::{Process, Server};
use crate::settings::Conf;
use crate::stats::attempts::Reasons;
use crate::tls::check;

/// The source of the configuration.
#[derive(Clone, Debug)]
pub struct ConfSource {
    /// The main file.
    pub path: PathBuf,
    /// The folder that relative paths of directives start at.
    pub prefix: PathBuf,
    /// The directives of `-g`.
    pub globals: Option<String>,
    /// The source of the files' text: the disk, or another process that has read them.
    pub files: Files,
    /// The log that is used where the configuration names none.
    pub error_log: ErrorLog,
}

/// The result of reading a configuration.
#[derive(Debug)]
pub struct Reading {
    /// The configuration; none when it has mistakes.
    pub conf: Option<Conf>,
    /// The files.
    pub sources: Sources,
    /// The statements that are written in the files.
    pub statements: Vec<Statement>,
    /// Mistakes, warnings and notes.
    pub diagnostics: Diagnostics,
}

impl ConfSource {
    /// Reads and checks the configuration; opens nothing else.
    pub fn read(&self) -> Reading {
        let mut cx = self.context();
        let tree = self.load(&mut cx.diagnostics);
        require_events(&tree, &mut cx.diagnostics);
        let (conf, cx) = directives::build(&tree, cx);
        Reading {
            conf,
            sources: tree.sources,
            statements: tree.statements,
            diagnostics: cx.diagnostics,
        }
    }

    /// Reads the files.
    pub(crate) fn load(&self, diagnostics: &mut Diagnostics) -> Tree {
        let options = LoadOptions {
            conf_dir: Some(self.conf_dir()),
            globals: self.globals.clone(),
            files: self.files.clone(),
        };
        millpond_conf::load(&self.path, &options, diagnostics)
    }

    /// The context that arguments are read against.
    pub(crate) fn context(&self) -> ParseContext {
        let mut cx = ParseContext::new(&self.prefix, self.conf_dir());
        cx.files = self.files.clone();
        cx
    }

    fn conf_dir(&self) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).to_owned()
    }

    /// The logs of the process under a configuration.
    pub fn process_logs(&self, conf: &Conf) -> Vec<ErrorLog> {
        if conf.main.log.logs.is_empty() {
            vec![self.error_log.clone()]
        } else {
            conf.main.log.logs.clone()
        }
    }
}

/// Reports a configuration without `events`, as nginx does: an empty file is a mistake, and must
/// not close every listener of the process that reads it anew.
fn require_events(tree: &Tree, diagnostics: &mut Diagnostics) {
    let has_events = tree.statements.iter().any(|it| it.name.text == "events");
    // A file that could not be read to its end may have one behind the mistake.
    if has_events || diagnostics.has_errors() {
        return;
    }
    let message = "no \"events\" section in configuration";
    diagnostics
        .push_error(Span::NONE, message)
        .code(conf_code::MISSING_BLOCK)
        .help("an empty one is enough: events {}");
}

impl Reading {
    /// Warns of what a configuration without mistakes says and seldom means.
    pub fn lint(&mut self) {
        if let Some(conf) = &self.conf {
            lint::run(&self.statements, &self.sources, &mut self.diagnostics);
            let now_s = clock::now_ms().div_euclid(1000);
            check::certificates(conf, now_s, &mut self.diagnostics);
        }
    }

    /// The mistakes, one line each.
    fn mistakes(&self) -> Reasons {
        let all = self.diagnostics.iter();
        let mistakes = all.filter(|it| it.severity == Severity::Error);
        mistakes.map(|it| one_line(it, &self.sources)).collect()
    }

    /// Logs the findings, one line each.
    pub fn log(&self) {
        for diagnostic in self.diagnostics.iter() {
            let level = match diagnostic.severity {
                Severity::Error => Level::Emerg,
                Severity::Warning => Level::Warn,
                Severity::Note => continue,
            };
            let line = one_line(diagnostic, &self.sources);
            error::process(level, format_args!("{line}"));
        }
    }
}

/// Reads the configuration again and puts it into force, if there is nothing wrong with it.
pub fn reload(server: &mut Server, source: &ConfSource, process: &mut Process) {
    error::process(Level::Notice, format_args!("reconfiguring"));
    let shared = Arc::clone(server.shared());
    shared.attempts.begin();
    let outcome = take(server, source, process);
    if outcome.is_err() {
        server.note_failed_load();
    }
    shared.attempts.end(outcome);
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
