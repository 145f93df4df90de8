//! The report: every statement of a configuration in one of a few kinds.
//!
//! A statement that a mistake is about is refused; one that a note is about has no effect; all
//! others work. Blocks that the reader of the configuration looks into are looked into here; of
//! others, such as `map` or `types`, the lines belong to the block. Mistakes about what stands on
//! this machine (files, names of hosts) are kept apart: they say nothing of the configuration.
//!
//! Invariant: each statement is counted once, and each finding is shown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use millpond_conf::code::{self, Code};
use millpond_conf::source::{Sources, Span};
use millpond_conf::tree::Statement;
use millpond_conf::{Diagnostic, Diagnostics, Severity};
use millpond_exchange::scope::code::UNRESOLVED_HOST;
use millpond_proxy::tls::check;
use millpond_server::lint;
use millpond_server::source::salvage::Salvage;
use millpond_system::clock;

/// Place of a finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    /// Line, from 1.
    pub(super) line: usize,
    /// Column in characters, from 1.
    pub(super) column: usize,
}

/// Findings that say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) code: Option<&'static str>,
    /// Directive that the finding is about; empty if it is about none.
    pub(super) name: String,
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(super) places: Vec<Place>,
}

/// Report on a configuration: the statements that work, and those that do not.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The main file.
    pub(super) file: PathBuf,
    /// Number of files that were read.
    pub(super) files: usize,
    /// Number of statements that were looked at.
    pub(super) statements: usize,
    /// Number of times that each directive works.
    pub(super) works: BTreeMap<String, usize>,
    /// Statements that are accepted and do nothing.
    pub(super) idle: Vec<Finding>,
    /// Findings that keep the configuration from being used.
    pub(super) refused: Vec<Finding>,
    /// Files and hosts that are not there.
    pub(super) absent: Vec<Finding>,
    /// Statements that are allowed and seldom meant.
    pub(super) warnings: Vec<Finding>,
    is_unreadable: bool,
}

/// Outcome of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Everything works.
    Works,
    /// Something is refused.
    Refused,
    /// Something could not be read.
    Unreadable,
}

impl Outcome {
    /// The exit status.
    pub(super) fn status(self) -> u8 {
        match self {
            Outcome::Works => 0,
            Outcome::Refused => 1,
            Outcome::Unreadable => 2,
        }
    }
}

/// Mark that a mistake or a note gives to the statement that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Idle,
    Refused,
}

/// A finding's place in the text, and what it makes of the statement there.
struct Marked {
    span: Span,
    mark: Mark,
    /// True if the statement's block was not looked into.
    is_closed: bool,
}

impl Report {
    /// The report of what was read.
    pub(super) fn of(salvage: Salvage, file: &Path) -> Report {
        let is_unreadable = salvage.is_unreadable();
        let Salvage {
            tree,
            right,
            conf,
            mut diagnostics,
        } = salvage;
        if let Some(conf) = &conf {
            lint::run(&right, &tree.sources, &mut diagnostics);
            let now_s = clock::now_ms().div_euclid(1000);
            check::certificates(conf, now_s, &mut diagnostics);
        }
        let mut report = Report {
            file: file.to_owned(),
            files: tree.sources.files().count(),
            is_unreadable,
            ..Report::default()
        };
        let mut marks: Vec<Marked> = diagnostics.iter().filter_map(marked).collect();
        marks.sort_by_key(|marked| marked.span);
        report.count(&tree.statements, &marks);
        report.collect(&tree.statements, &diagnostics, &tree.sources);
        report
    }

    /// Outcome of the report.
    pub(super) fn outcome(&self) -> Outcome {
        let is_code = |finding: &Finding, code: Code| finding.code == Some(code.name);
        let cannot_be_cut = |finding: &Finding| {
            is_code(finding, code::SYNTAX) || is_code(finding, code::UNEXPECTED_END)
        };
        let is_refused = self.refused.iter().any(|finding| !cannot_be_cut(finding));
        match (is_refused, self.is_unreadable) {
            (true, _) => Outcome::Refused,
            (false, true) => Outcome::Unreadable,
            (false, false) => Outcome::Works,
        }
    }

    /// Counts statements, and those of the blocks that are looked into; depth is bounded by the
    /// reader of the language.
    fn count(&mut self, statements: &[Statement], marks: &[Marked]) {
        for statement in statements {
            self.statements += 1;
            let extent = if is_looked_into(statement) {
                statement.span
            } else {
                extent(statement)
            };
            let of_statement = marks_in(marks, extent);
            let mark = of_statement.iter().map(|marked| marked.mark).max();
            if mark.is_none() {
                let name = statement.name.text.clone();
                *self.works.entry(name).or_default() += 1;
            }
            if is_looked_into(statement) && !of_statement.iter().any(|marked| marked.is_closed) {
                self.count(statement.body.as_deref().unwrap_or_default(), marks);
            }
        }
    }

    fn collect(&mut self, statements: &[Statement], all: &Diagnostics, sources: &Sources) {
        let names = Names::of(statements);
        for diagnostic in all.iter() {
            let span = diagnostic.span;
            let finding = Finding {
                code: diagnostic.code.map(|code| code.name),
                name: name_of(diagnostic, &names),
                message: diagnostic.message.clone(),
                help: diagnostic.help.clone(),
                places: span
                    .and_then(|span| place(sources, span))
                    .into_iter()
                    .collect(),
            };
            let list = match diagnostic.severity {
                Severity::Error if is_absence(diagnostic) => &mut self.absent,
                Severity::Error => &mut self.refused,
                Severity::Warning => &mut self.warnings,
                Severity::Note => &mut self.idle,
            };
            let is_same = |other: &&mut Finding| {
                (&other.name, &other.message, &other.help)
                    == (&finding.name, &finding.message, &finding.help)
            };
            match list.iter_mut().find(is_same) {
                Some(same) => same.places.extend(finding.places),
                None => list.push(finding),
            }
        }
        for list in [
            &mut self.absent,
            &mut self.refused,
            &mut self.warnings,
            &mut self.idle,
        ] {
            list.iter_mut().for_each(|finding| finding.places.sort());
            list.sort_by(|a, b| a.places.first().cmp(&b.places.first()));
        }
    }
}

/// The directive that a finding is about.
fn name_of(diagnostic: &Diagnostic, names: &Names<'_>) -> String {
    let name = diagnostic.span.map_or("", |span| names.find(span));
    match name {
        // What includes is replaced by what is included.
        "" if diagnostic.code == Some(code::MISSING_FILE) => "include".to_string(),
        name => name.to_string(),
    }
}

/// True if a mistake is about this machine rather than about the configuration.
fn is_absence(diagnostic: &Diagnostic) -> bool {
    let kinds = [code::MISSING_FILE, UNRESOLVED_HOST];
    diagnostic.code.is_some_and(|code| kinds.contains(&code))
}

fn marked(diagnostic: &Diagnostic) -> Option<Marked> {
    let mark = match diagnostic.severity {
        Severity::Error if !is_absence(diagnostic) => Mark::Refused,
        Severity::Note => Mark::Idle,
        Severity::Error | Severity::Warning => return None,
    };
    let closing = [
        code::UNKNOWN_DIRECTIVE,
        code::UNSUPPORTED_DIRECTIVE,
        code::MISPLACED_DIRECTIVE,
        code::BLOCK_EXPECTED,
    ];
    Some(Marked {
        span: diagnostic.span?,
        mark,
        is_closed: diagnostic.code.is_some_and(|code| closing.contains(&code)),
    })
}

/// The marks that begin in a range; they are sorted.
fn marks_in(marks: &[Marked], extent: Span) -> &[Marked] {
    let from = (extent.file, extent.start);
    let to = (extent.file, extent.end.max(extent.start.saturating_add(1)));
    let begin = |marked: &Marked| (marked.span.file, marked.span.start);
    let first = marks.partition_point(|marked| begin(marked) < from);
    let last = marks.partition_point(|marked| begin(marked) < to);
    marks.get(first..last).unwrap_or_default()
}

/// True if the lines of a block are statements of their own.
fn is_looked_into(statement: &Statement) -> bool {
    let blocks = [
        "events",
        "http",
        "server",
        "location",
        "upstream",
        "if",
        "limit_except",
    ];
    statement.body.is_some() && blocks.contains(&&*statement.name.text)
}

/// A statement with all that stands in its block, in the same file.
fn extent(statement: &Statement) -> Span {
    let body = statement.body.iter().flatten();
    let inner = body.filter(|inner| inner.span.file == statement.span.file);
    inner.fold(statement.span, |whole, inner| whole.to(extent(inner)))
}

/// The statements of a configuration by their places.
struct Names<'a> {
    /// Heads of statements with the name of the directive, sorted.
    heads: Vec<(Span, &'a str)>,
}

impl<'a> Names<'a> {
    fn of(statements: &'a [Statement]) -> Names<'a> {
        let mut names = Names { heads: Vec::new() };
        names.add(statements, None);
        names.heads.sort_unstable();
        names
    }

    /// The lines of a block with a grammar of its own have the name of the block.
    fn add(&mut self, statements: &'a [Statement], block: Option<&'a str>) {
        for statement in statements {
            let name = block.unwrap_or(&statement.name.text);
            self.heads.push((statement.span, name));
            let is_open = is_looked_into(statement) || block.is_some();
            let block = if is_open { block } else { Some(name) };
            self.add(statement.body.as_deref().unwrap_or_default(), block);
        }
    }

    /// The directive that a place lies in; empty for none.
    fn find(&self, span: Span) -> &'a str {
        let is_before =
            |(head, _): &(Span, &str)| (head.file, head.start) <= (span.file, span.start);
        let index = self.heads.partition_point(is_before).checked_sub(1);
        let found = index.and_then(|index| self.heads.get(index));
        let is_inside = |head: Span| {
            head.file == span.file && span.start < head.end.max(head.start.saturating_add(1))
        };
        found.map_or("", |(head, name)| if is_inside(*head) { name } else { "" })
    }
}

fn place(sources: &Sources, span: Span) -> Option<Place> {
    let place = sources.place(span)?;
    Some(Place {
        file: place.path.to_owned(),
        line: place.line,
        column: place.column,
    })
}
