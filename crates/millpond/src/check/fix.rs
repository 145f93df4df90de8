//! `--fix`: a copy of a configuration with what is refused changed, as far as that can be done
//! without asking anybody.
//!
//! ```text
//! salvage ──► findings ──► changes of statements ──► texts ──► salvage … until none is left
//!                 └─ none for a person to decide: they stay, and the summary names them
//! ```
//!
//! 1. What a finding says to write instead is written; a directive that is not here is commented
//!    out with the reason. One that makes the answer of a location leaves `return 501` there, so
//!    that no files come out where a program answered.
//! 2. A directive that decides who may ask is never taken out: without it everybody may.
//! 3. Only texts that were read are changed, and each change has a comment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use millpond_conf::{
    Diagnostic, FileId, Files, Replacement, Seen, Severity, Source, SourceKind, Span, Tree,
    Written, written,
};
use millpond_server::source::ConfSource;
use millpond_server::source::bundled::Beside;
use millpond_server::source::salvage::{Salvage, salvage};

use super::edit::{Edit, Found, Kind, MARK, apply, find, one_line};

/// Times that a text is changed and read again. Mistakes that hide others are few deep.
const ROUNDS: usize = 12;

/// Begins of the names of directives that decide who may ask, or what is seen. INVARIANT 2.
const GUARDS: [&str; 20] = [
    "access_by_lua",
    "app_protect",
    "auth_",
    "BasicRule",
    "CheckRule",
    "js_access",
    "js_body_filter",
    "js_filter",
    "js_preread",
    "LearningMode",
    "MainRule",
    "modsecurity",
    "naxsi",
    "rewrite_by_lua",
    "SecRules",
    "security_",
    "shib_request",
    "testcookie",
    "ssl_certificate_by_lua",
    "waf",
];

/// Begins of the names of directives that make the answer of a location.
const HANDLERS: [&str; 11] = [
    "content_by_lua",
    "echo",
    "f4f",
    "hls",
    "js_content",
    "nchan_",
    "passenger_enabled",
    "perl",
    "push_stream_",
    "status",
    "vod",
];

/// Names of directives that make the answer of a location, beside others that begin like them.
const PAGES: [&str; 6] = [
    "check_status",
    "req_status_show",
    "rtmp_control",
    "rtmp_stat",
    "server_traffic_status_display",
    "vhost_traffic_status_display",
];

/// Answer of a location whose handler is not here (RFC 9110 §15.6.2).
const NOT_HERE: &str = "return 501;";

/// A configuration with its changes.
pub(super) struct Fixed {
    /// All files that were read, as they are now.
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
    /// Those that were changed.
    pub(super) changed: BTreeSet<PathBuf>,
    /// The configuration that is read of them.
    pub(super) salvage: Salvage,
}

impl Fixed {
    /// The comments of changes, with their places.
    pub(super) fn comments(&self) -> Vec<(&Path, usize, String)> {
        let mut all = Vec::new();
        for (path, text) in &self.files {
            if !self.changed.contains(path) {
                continue;
            }
            let text = String::from_utf8_lossy(text);
            let comment = |(at, line): (usize, &str)| {
                let why = line.trim().strip_prefix(MARK)?;
                Some((path.as_path(), at + 1, why.to_string()))
            };
            all.extend(text.lines().enumerate().filter_map(comment));
        }
        all
    }
}

/// Changes a configuration, until nothing can be changed any more.
pub(super) fn fix(source: &ConfSource) -> Fixed {
    let noted = Arc::new(Mutex::new(Seen::default()));
    let first = ConfSource {
        files: match &source.files {
            Files::Disk => Files::Noted(Arc::clone(&noted)),
            other => other.clone(),
        },
        // What a fleet gives is not this file's.
        beside: Beside::Nothing,
        ..source.clone()
    };
    let mut fixed = Fixed {
        salvage: salvage(&first),
        files: BTreeMap::new(),
        changed: BTreeSet::new(),
    };
    let mut seen = match &source.files {
        Files::Seen(seen) => Seen::clone(seen),
        _ => noted.lock().unwrap_or_else(PoisonError::into_inner).clone(),
    };
    for _ in 0..ROUNDS {
        fixed.files = texts(&fixed.salvage.tree);
        let edits = edits(&fixed.salvage);
        if edits.is_empty() {
            break;
        }
        for (path, edits) in edits {
            let text = fixed.files.get(&path).map_or(&[][..], Vec::as_slice);
            seen.note(path.clone(), apply(text, edits));
            fixed.changed.insert(path);
        }
        fixed.salvage = salvage(&ConfSource {
            files: Files::Seen(Arc::new(seen.clone())),
            beside: Beside::Nothing,
            ..source.clone()
        });
    }
    fixed.files = texts(&fixed.salvage.tree);
    fixed
}

/// The files of a tree.
fn texts(tree: &Tree) -> BTreeMap<PathBuf, Vec<u8>> {
    let of_files = |source: &&Source| source.kind() == SourceKind::File;
    let files = tree.sources.files().filter(of_files);
    files
        .map(|source| (source.path().to_owned(), source.bytes().to_vec()))
        .collect()
}

/// The changes of each file.
fn edits(salvage: &Salvage) -> BTreeMap<PathBuf, Vec<Edit>> {
    let sources = &salvage.tree.sources;
    let mut all: BTreeMap<FileId, Changes> = BTreeMap::new();
    for finding in salvage.diagnostics.iter() {
        let Some(span) = finding.span else {
            continue;
        };
        let Some(source) = sources.get(span.file) else {
            continue;
        };
        if source.kind() != SourceKind::File {
            continue;
        }
        let changes = all.entry(span.file).or_insert_with(|| Changes {
            statements: written(span.file, source.bytes()),
            edits: Vec::new(),
            added: BTreeSet::new(),
        });
        changes.take(finding);
    }
    let of_files = all.into_iter().filter_map(|(file, changes)| {
        let path = sources.get(file)?.path().to_owned();
        // A file that is included twice has the same findings twice.
        (!changes.edits.is_empty()).then_some((path, changes.edits))
    });
    of_files.collect()
}

/// Changes of one file, while they are gathered.
struct Changes {
    statements: Vec<Written>,
    edits: Vec<Edit>,
    /// Begins of the blocks that get a directive, with its name.
    added: BTreeSet<(u32, &'static str)>,
}

impl Changes {
    fn take(&mut self, finding: &Diagnostic) {
        // Changes of one finding belong together: with a part of them in another file it is left.
        let is_here = |it: &Replacement| find(&self.statements, it.span).is_some();
        if finding.severity == Severity::Note || !finding.replacements.iter().all(is_here) {
            return;
        }
        for replacement in &finding.replacements {
            let found = find(&self.statements, replacement.span);
            let Some(Found { statement, .. }) = found else {
                continue;
            };
            let (extent, name) = (statement.extent, statement.name());
            let is_whole = replacement.span == statement.head && replacement.text.is_empty();
            if is_whole && begins(name, &GUARDS) {
                continue;
            }
            let kind = if is_whole {
                self.without(replacement.span)
            } else {
                self.with_words(extent, replacement)
            };
            let why = reason(finding);
            self.push(Edit { extent, kind, why });
        }
    }

    /// The change that takes a statement out.
    fn without(&mut self, span: Span) -> Kind {
        let Some(Found {
            statement, around, ..
        }) = find(&self.statements, span)
        else {
            return Kind::Out;
        };
        let name = statement.name();
        let is_handler =
            begins(name, &HANDLERS) || PAGES.contains(&name) || name.ends_with("_pass");
        let answers = is_handler && ["location", "if"].contains(&around);
        // Of several in one location the first one leaves its answer.
        if answers && self.is_first_of_block(span) {
            Kind::Instead(NOT_HERE)
        } else {
            Kind::Out
        }
    }

    /// The change of words of a statement, with the directive that goes with it.
    fn with_words(&mut self, extent: Span, replacement: &Replacement) -> Kind {
        let mut words = vec![(replacement.span, replacement.text.clone())];
        let block = find(&self.statements, replacement.span).map_or(&[][..], |it| it.block);
        let begin = block.first().map_or(0, |first| first.extent.start);
        let added = replacement.adds.filter(|(name, _)| {
            !block.iter().any(|it| it.name() == *name) && self.added.insert((begin, name))
        });
        if let Some((_, line)) = added {
            let end = Span {
                start: extent.end,
                ..extent
            };
            words.push((end, format!(" {line}")));
        }
        Kind::Words(words)
    }

    /// True for the first handler of a block that is taken out.
    fn is_first_of_block(&mut self, span: Span) -> bool {
        let Some(Found { block, .. }) = find(&self.statements, span) else {
            return false;
        };
        let begin = block.first().map_or(0, |first| first.extent.start);
        let has_own = block.iter().any(|it| it.name() == "return");
        !has_own && self.added.insert((begin, "return"))
    }

    /// Adds a change; words of one statement are changed together.
    fn push(&mut self, edit: Edit) {
        let known = self.edits.iter_mut().find(|it| it.extent == edit.extent);
        match (known, edit.kind) {
            (None, kind) => self.edits.push(Edit { kind, ..edit }),
            (Some(known), Kind::Words(more)) => {
                if let Kind::Words(words) = &mut known.kind {
                    let is_new = |it: &(Span, String)| !words.contains(it);
                    let new: Vec<_> = more.into_iter().filter(is_new).collect();
                    if !new.is_empty() && !known.why.contains(&edit.why) {
                        known.why = format!("{}; {}", known.why, edit.why);
                    }
                    words.extend(new);
                }
            }
            (Some(_), Kind::Out | Kind::Instead(_)) => {}
        }
    }
}

fn begins(name: &str, begins: &[&str]) -> bool {
    begins.iter().any(|begin| name.starts_with(begin))
}

/// The reason of a change, in one line.
fn reason(finding: &Diagnostic) -> String {
    let text = match &finding.help {
        Some(help) => format!("{}; {help}", finding.message),
        None => finding.message.clone(),
    };
    one_line(text.as_bytes())
}
