//! The files that a configuration names, for `landlock`: which words of it are paths, and what is
//! done with what they name.
//!
//! | kind | of a name with variables counts |
//! |---|---|
//! | a folder (`root`, `alias`) | the folder before the first variable |
//! | a file that is read or written | the folder that it stands in, since files are replaced by others |
//!
//! Folders of caches, temporary files, counters and sockets are taken from what was built of the
//! configuration.

use std::path::{Path, PathBuf};

use millpond_cache::tier_path::Scheme;
use millpond_conf::source::{Source, Sources};
use millpond_conf::tree::{Statement, Tree};
use millpond_exchange::settings::Conf;
use millpond_exchange::stats::ledger;
#[cfg(feature = "script")]
use millpond_proxy::script::shared;
use millpond_system::confinement::{Reach, Right};
use millpond_system::log::error::ErrorLog;
use millpond_system::log::file::LogFile;

use crate::control::Wanted;

/// The use of a word that names a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// A folder whose files are read, from the prefix on.
    Root,
    /// A file that is read, from the folder of the configuration on.
    Read,
    /// A folder whose files are read, from the folder of the configuration on.
    Modules,
    /// A file that is written, from the prefix on.
    Written,
    /// A folder that is written to, from the prefix on.
    Work,
}

/// The endings of directives that name a file which is read.
const READ: [&str; 12] = [
    "_certificate",
    "_certificate_key",
    "_client_certificate",
    "_creds",
    "_crl",
    "_host_key",
    "_key_file",
    "_password_file",
    "_stapling_file",
    "_ticket_key",
    "_user_file",
    "account_key",
];

fn use_of(directive: &str) -> Option<Use> {
    match directive {
        "root" | "alias" => Some(Use::Root),
        "cache_events_log" | "cache_site_info" => Some(Use::Written),
        "access_log" | "error_log" | "upstream_log" => Some(Use::Written),
        "quic_qlog" | "working_directory" => Some(Use::Work),
        name if name.ends_with("ssl_key_log") => Some(Use::Written),
        name if name.ends_with("_store") => Some(Use::Written),
        "trusted_certificate" | "peer_secret" | "geoip2" | "js_import" | "js_preload_object" => {
            Some(Use::Read)
        }
        "js_path" => Some(Use::Modules),
        name if READ.iter().any(|ending| name.ends_with(ending)) => Some(Use::Read),
        _ => None,
    }
}

/// The places that paths of a configuration start at, and the log that is used where it names none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) file: &'a Path,
    pub(crate) prefix: &'a Path,
    pub(crate) error_log: &'a ErrorLog,
}

/// The paths that a configuration names, each with the directive that does.
pub(crate) fn of(conf: &Conf, tree: &Tree, start: Start<'_>) -> Vec<Reach> {
    let mut reaches = Reaches {
        start,
        found: Vec::new(),
    };
    reaches.add_sources(&tree.sources);
    reaches.walk(&tree.statements);
    reaches.settle_roots();
    reaches.add_built(conf);
    let policy = &conf.main.confinement;
    for path in &policy.read {
        reaches.add(path.clone(), Right::Read, "landlock_read");
    }
    for path in &policy.written {
        reaches.add(path.clone(), Right::Write, "landlock_write");
    }
    reaches.found
}

struct Reaches<'a> {
    start: Start<'a>,
    found: Vec<Reach>,
}

impl Reaches<'_> {
    fn add(&mut self, path: PathBuf, right: Right, directive: &str) {
        let reach = Reach {
            path,
            right,
            directive: directive.to_owned(),
        };
        if !self.found.contains(&reach) {
            self.found.push(reach);
        }
    }

    /// Adds the folder that a file stands in.
    fn add_file(&mut self, path: &Path, right: Right, directive: &str) {
        let folder = if has_variable(path) {
            known_folder(path)
        } else {
            path.parent().unwrap_or(path).to_owned()
        };
        self.add(folder, right, directive);
    }

    /// Adds the folders of the configuration's own files, and of the program, which is started
    /// again when the binary is changed.
    fn add_sources(&mut self, sources: &Sources) {
        for path in sources.files().map(Source::path).chain([self.start.file]) {
            self.add_file(path, Right::Read, "include");
        }
        if let Ok(program) = std::env::current_exe() {
            self.add_file(&program, Right::Read, "landlock");
        }
    }

    fn walk(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.add_words(statement);
            self.walk(statement.body.as_deref().unwrap_or_default());
        }
    }

    fn add_words(&mut self, statement: &Statement) {
        let Start { file, prefix, .. } = self.start;
        let conf_dir = file.parent().unwrap_or(Path::new(""));
        let name = statement.name.text.as_str();
        let mut words = statement.args.iter().map(|word| word.text.as_str());
        let inside = match name {
            "listen" => Some(("unix:", prefix, Right::Write)),
            "proxy_aws_sign" => Some(("credentials=", conf_dir, Right::Read)),
            "config" => Some(("trusted_key=", conf_dir, Right::Read)),
            _ => None,
        };
        if let Some((before, start, right)) = inside {
            for path in words.filter_map(|word| word.strip_prefix(before)) {
                self.add_file(&start.join(path), right, name);
            }
            return;
        }
        // A module or a value may be given a name before its file.
        let named = match name {
            "js_import" | "js_preload_object" => words.next_back(),
            _ => words.next(),
        };
        let Some((kind, word)) = use_of(name).zip(named.filter(|word| is_path(word))) else {
            return;
        };
        let from_prefix = prefix.join(word);
        match kind {
            Use::Root => self.add(known_folder(&from_prefix), Right::Read, name),
            Use::Work => self.add(from_prefix, Right::Write, name),
            Use::Read => self.add_file(&conf_dir.join(word), Right::Read, name),
            Use::Modules => self.add(conf_dir.join(word), Right::Read, name),
            // `on` writes below the root.
            Use::Written if word == "on" => self.add(PathBuf::new(), Right::Write, name),
            Use::Written => self.add_file(&from_prefix, Right::Write, name),
        }
    }

    /// Makes roots writable if something is stored there.
    fn settle_roots(&mut self) {
        let count = self.found.len();
        self.found.retain(|it| !it.path.as_os_str().is_empty());
        if self.found.len() == count {
            return;
        }
        let is_root = |it: &&mut Reach| use_of(&it.directive) == Some(Use::Root);
        self.found
            .iter_mut()
            .filter(is_root)
            .for_each(|it| it.right = Right::Write);
    }

    /// Adds what was built of the configuration.
    fn add_built(&mut self, conf: &Conf) {
        let Start {
            prefix, error_log, ..
        } = self.start;
        let declared = &conf.declared;
        let zones = declared.zones.iter().flat_map(|zone| zone.paths());
        zones.for_each(|path| self.add(path.to_owned(), Right::Write, "proxy_cache_path"));
        let tiers = declared.zones.iter().filter_map(|zone| zone.tier.as_ref());
        for tier in tiers.filter(|tier| tier.scheme == Scheme::File) {
            let folder = PathBuf::from(&tier.bucket);
            self.add(folder, Right::Write, "proxy_cache_path");
        }
        let configs = declared.fleets.iter().filter_map(|it| it.config.as_ref());
        for config in configs {
            self.add(config.folder.clone(), Right::Write, "fleet");
        }
        for path in declared.temp_folders.paths() {
            self.add(path.clone(), Right::Write, "client_body_temp_path");
        }
        if let Some(path) = ledger::place(conf) {
            self.add_file(&path, Right::Write, "cache_site_counters");
        }
        #[cfg(feature = "script")]
        for path in shared::files(conf) {
            self.add_file(path, Right::Write, "js_shared_dict_zone");
        }
        let pid = prefix.join(&conf.main.process.pid);
        self.add_file(&pid, Right::Write, "pid");
        if let Some(path) = Wanted::of(conf, prefix).path() {
            self.add_file(path, Right::Write, "control");
        }
        if let Some(path) = error_log.file().and_then(LogFile::path) {
            self.add_file(path, Right::Write, "error_log");
        }
    }
}

/// The argument of a statement that names a file or a folder which is only read, without variables
/// in it.
pub(crate) fn file_argument(statement: &Statement) -> Option<usize> {
    let name = statement.name.text.as_str();
    let at = match name {
        "js_import" | "js_preload_object" => statement.args.len().checked_sub(1)?,
        _ => 0,
    };
    let word = statement.args.get(at)?;
    let kind = use_of(name)?;
    let is_read = matches!(kind, Use::Root | Use::Read | Use::Modules);
    (is_read && is_path(&word.text) && !word.text.contains('$')).then_some(at)
}

/// True for a word that is a path, and neither a place elsewhere nor a word of the language. What
/// begins with a variable may be anywhere, so that `landlock_read` has to say where.
fn is_path(word: &str) -> bool {
    let schemes = [
        "$",
        "syslog:",
        "journald:",
        "memory:",
        "data:",
        "engine:",
        "store:",
    ];
    !schemes.iter().any(|scheme| word.starts_with(scheme)) && !matches!(word, "off" | "stderr" | "")
}

fn has_variable(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b'$')
}

/// The folder before the first name with a variable in it; the path itself without one.
fn known_folder(path: &Path) -> PathBuf {
    let known = path.components();
    known
        .take_while(|part| !part.as_os_str().as_encoded_bytes().contains(&b'$'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directives;

    /// Directives that take files, and are no paths of their own: names in a request, lines of a
    /// block, folders that are taken from what was built.
    const OTHERS: [&str; 24] = [
        "acme_issuer",
        "cache_site_counters",
        "client_body_temp_path",
        "control",
        "fastcgi_cache_path",
        "fastcgi_temp_path",
        "fleet",
        "include",
        "index",
        "js_shared_dict_zone",
        "landlock_read",
        "landlock_write",
        "listen",
        "location",
        "otel_exporter",
        "proxy_aws_sign",
        "proxy_cache_path",
        "proxy_temp_path",
        "scgi_cache_path",
        "scgi_temp_path",
        "sticky",
        "try_files",
        "uwsgi_cache_path",
        "uwsgi_temp_path",
    ];

    #[test]
    fn directives_that_take_files_are_known() {
        for entry in directives::manual::directives() {
            let words = ["file", "path", "folder", "directory"];
            let arguments = entry.syntax.strip_prefix(&entry.name).unwrap_or_default();
            let parts = arguments.split(|c: char| !c.is_ascii_lowercase());
            let speaks = parts.into_iter().any(|part| words.contains(&part));
            let is_known = use_of(&entry.name).is_some() || OTHERS.contains(&&*entry.name);
            assert!(!speaks || is_known, "{}: {}", entry.name, entry.syntax);
        }
    }

    /// Lines of blocks take files, too, which no row of their own tells of.
    #[test]
    fn lines_of_blocks_that_take_files_are_known() {
        let mut files = 0;
        for entry in directives::manual::directives() {
            let Some((_, lines)) = entry.syntax.split_once('{') else {
                continue;
            };
            for line in lines.split(';').map(str::trim) {
                let Some(before) = line.strip_suffix(" file") else {
                    continue;
                };
                if let Some(name) = before.split(' ').next() {
                    assert!(use_of(name).is_some(), "{name}: {}", entry.syntax);
                    files += 1;
                }
            }
        }
        assert!(files >= 8, "those of a fleet: {files}");
    }

    #[test]
    fn names_with_variables_stand_in_the_folder_before() {
        for (path, folder) in [
            ("/srv/$host/html", "/srv"),
            ("/srv/a$host", "/srv"),
            ("/srv/html", "/srv/html"),
            ("/$host", "/"),
        ] {
            assert_eq!(known_folder(Path::new(path)), Path::new(folder), "{path}");
        }
    }
}
