//! The source of the configuration: what is read, at the start and on HUP, and what is said of it.
//!
//! ```text
//! ConfSource ──read──► Reading ── mistakes, lint ──► reports and the log
//!                         └─ conf ──► the process
//! ```
//!
//! Invariants:
//! 1. All mistakes of a configuration are told, not only the first.
//! 2. Reading opens nothing but the files of the configuration.

pub mod bundled;
pub mod salvage;

use std::path::{Path, PathBuf};

use millpond_conf::code as conf_code;
use millpond_conf::source::{Sources, Span};
use millpond_conf::tree::{Statement, Tree};
use millpond_conf::{Diagnostics, Files, LoadOptions, ParseContext, Severity, one_line};
use millpond_exchange::settings::Conf;
use millpond_exchange::stats::attempts::Reasons;
use millpond_proxy::tls::check;
use millpond_system::clock;
use millpond_system::log::error::{self, ErrorLog, Level};

use bundled::{Added, Beside};

use crate::{directives, lint, reaches};

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
    /// The bundle of a fleet that is read beside the file.
    pub beside: Beside,
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
        let (tree, added) = self.load_whole(&mut cx.diagnostics);
        if let Some(files) = added.files {
            let below = Box::new(std::mem::take(&mut cx.files));
            cx.files = Files::Over(files, below);
        }
        require_events(&tree, &mut cx.diagnostics);
        let (mut conf, cx) = directives::build(&tree, cx);
        if let Some(conf) = &mut conf {
            let start = reaches::Start {
                file: &self.path,
                prefix: &self.prefix,
                error_log: &self.error_log,
            };
            conf.declared.reaches = reaches::of(conf, &tree, start);
            conf.declared.bundle = added.held;
        }
        Reading {
            conf,
            sources: tree.sources,
            statements: tree.statements,
            diagnostics: cx.diagnostics,
        }
    }

    /// Reads the files.
    pub(crate) fn load(&self, diagnostics: &mut Diagnostics) -> Tree {
        self.load_whole(diagnostics).0
    }

    /// Reads the files of this configuration, and what its fleet gives beside them.
    fn load_whole(&self, diagnostics: &mut Diagnostics) -> (Tree, Added) {
        let options = LoadOptions {
            conf_dir: Some(self.conf_dir()),
            globals: self.globals.clone(),
            files: self.files.clone(),
        };
        let mut tree = millpond_conf::load(&self.path, &options, diagnostics);
        let added = bundled::add(self, &mut tree, diagnostics);
        (tree, added)
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
    pub fn mistakes(&self) -> Reasons {
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
