//! `include`: replaced by the statements of the files that it names.
//!
//! A file is parsed, then each `include FILE;` or `include PATTERN;` in it is replaced, in any
//! block, and what comes instead is searched in turn. Relative paths start at the directory of the
//! main file. A pattern that matches nothing is no mistake; a plain file that is missing is one.
//!
//! Invariants:
//!
//! 1. A file is read once, however often it is included, and kept in the order of first reading.
//! 2. A file that includes itself, directly or not, is reported and not read again.
//! 3. At most [`INCLUDES`] files are included, counted with repetition, so that a few files that
//!    include each other many times cannot grow without bound; nor can their statements
//!    ([`STATEMENTS`](crate::parse::STATEMENTS)). Blocks stay within [`DEPTH`] over all files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::code;
use crate::diagnostic::Diagnostics;
use crate::files::Files;
use crate::glob;
use crate::parse::{Budget, DEPTH, parse_within};
use crate::source::{FileId, SourceKind, Sources, Span};
use crate::tree::Statement;

/// Number of inclusions that a configuration may have. Hosts with ten thousand sites have one file
/// for each.
pub(crate) const INCLUDES: usize = 100_000;

/// Depth to which files may include each other. Arbitrary; nobody needs more than five.
pub(crate) const INCLUDE_DEPTH: usize = 64;

/// Collects the files of a configuration while it replaces what includes them.
pub(crate) struct Includer<'a> {
    conf_dir: PathBuf,
    files: Files,
    sources: Sources,
    /// The ids of the files that were read, by path.
    known: HashMap<PathBuf, FileId>,
    /// The files that are being included, from the main file to the innermost.
    trail: Vec<FileId>,
    includes: usize,
    budget: Budget,
    diagnostics: &'a mut Diagnostics,
}

impl<'a> Includer<'a> {
    /// An includer that has read nothing. Relative paths start at `conf_dir`.
    pub(crate) fn new(
        conf_dir: PathBuf,
        files: Files,
        diagnostics: &'a mut Diagnostics,
    ) -> Includer<'a> {
        Includer {
            conf_dir,
            files,
            sources: Sources::new(),
            known: HashMap::new(),
            trail: Vec::new(),
            includes: 0,
            budget: Budget::default(),
            diagnostics,
        }
    }

    /// Adds what is read to texts that were read before.
    pub(crate) fn go_on_with(&mut self, sources: Sources) {
        self.sources = sources;
    }

    /// The statements of a text, with includes replaced.
    pub(crate) fn statements(
        &mut self,
        path: PathBuf,
        bytes: Vec<u8>,
        kind: SourceKind,
    ) -> Vec<Statement> {
        let file = self.sources.add(path.clone(), bytes, kind);
        if kind == SourceKind::File {
            self.known.insert(path, file);
        }
        self.parse(file, 0)
    }

    /// All that was read.
    pub(crate) fn into_sources(self) -> Sources {
        self.sources
    }

    /// The statements of a file that has been read, with includes replaced.
    fn parse(&mut self, file: FileId, depth: usize) -> Vec<Statement> {
        let Some(source) = self.sources.get(file) else {
            return Vec::new();
        };
        let (kind, bytes) = (source.kind(), source.bytes());
        let parsed = parse_within(file, kind, bytes, &mut self.budget, self.diagnostics);
        self.trail.push(file);
        let expanded = self.expand(parsed, depth);
        self.trail.pop();
        expanded
    }

    fn expand(&mut self, statements: Vec<Statement>, depth: usize) -> Vec<Statement> {
        let mut out = Vec::with_capacity(statements.len());
        for mut statement in statements {
            if statement.name.text == "include" {
                self.include(&statement, depth, &mut out);
                continue;
            }
            if let Some(body) = statement.body.take() {
                if depth >= DEPTH {
                    let message = format!("blocks are nested more than {DEPTH} deep");
                    let error = self.diagnostics.push_error(statement.span, message);
                    error.code(code::TOO_MUCH);
                    continue;
                }
                statement.body = Some(self.expand(body, depth + 1));
            }
            out.push(statement);
        }
        out
    }

    fn include(&mut self, statement: &Statement, depth: usize, out: &mut Vec<Statement>) {
        if statement.body.is_some() {
            let message = "directive \"include\" is not terminated by \";\"";
            let error = self.diagnostics.push_error(statement.span, message);
            error.code(code::BLOCK_EXPECTED);
            return;
        }
        let [word] = statement.args.as_slice() else {
            let message = "invalid number of arguments in \"include\" directive";
            self.diagnostics
                .push_error(statement.span, message)
                .code(code::ARGUMENT_COUNT)
                .help("syntax: include file | pattern;");
            return;
        };
        if glob::is_pattern(&word.text) {
            for path in self.matching(&word.text) {
                self.include_file(&path, word.span, depth, out);
            }
        } else {
            let path = self.conf_dir.join(&word.text);
            self.include_file(&path, word.span, depth, out);
        }
    }

    fn include_file(&mut self, path: &Path, span: Span, depth: usize, out: &mut Vec<Statement>) {
        if self.budget.is_spent() {
            return;
        }
        self.includes += 1;
        if self.includes > INCLUDES {
            if self.includes == INCLUDES + 1 {
                let message = format!("more than {INCLUDES} files are included");
                let error = self.diagnostics.push_error(span, message);
                error.code(code::TOO_MUCH);
            }
            return;
        }
        let Some(file) = self.read(path, span) else {
            return;
        };
        if self.trail.contains(&file) {
            let message = format!("\"{}\" includes itself", path.display());
            let error = self.diagnostics.push_error(span, message);
            error.code(code::INCLUDE_CYCLE);
        } else if self.trail.len() >= INCLUDE_DEPTH {
            let message = format!("files include each other more than {INCLUDE_DEPTH} deep");
            let error = self.diagnostics.push_error(span, message);
            error.code(code::TOO_MUCH);
        } else {
            let statements = self.parse(file, depth);
            out.extend(statements);
        }
    }

    fn read(&mut self, path: &Path, span: Span) -> Option<FileId> {
        if let Some(file) = self.known.get(path) {
            return Some(*file);
        }
        match self.files.read(path) {
            Ok(bytes) => {
                let file = self.sources.add(path.to_owned(), bytes, SourceKind::File);
                self.known.insert(path.to_owned(), file);
                Some(file)
            }
            Err(message) => {
                let error = self.diagnostics.push_error(span, message);
                error.code(code::MISSING_FILE);
                None
            }
        }
    }

    /// The paths that match a pattern, sorted component by component.
    fn matching(&self, pattern: &str) -> Vec<PathBuf> {
        let mut paths = vec![if pattern.starts_with('/') {
            PathBuf::from("/")
        } else {
            self.conf_dir.clone()
        }];
        for component in pattern.split('/').filter(|component| !component.is_empty()) {
            paths = paths
                .iter()
                .flat_map(|dir| children(&self.files, dir, component))
                .take(INCLUDES + 1)
                .collect();
        }
        paths
    }
}

/// The paths in a directory that a component of a pattern names.
fn children(files: &Files, dir: &Path, component: &str) -> Vec<PathBuf> {
    if !glob::is_pattern(component) {
        let path = dir.join(glob::unescape(component));
        return Vec::from_iter(files.exists(&path).then_some(path));
    }
    let here = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    let names = files.names_in(here).into_iter();
    let names = names.filter(|name| glob::matches(component, name));
    names.map(|name| dir.join(name)).collect()
}

#[cfg(test)]
mod tests;
