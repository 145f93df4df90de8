//! The part of a configuration that a node has from its fleet.
//!
//! ```text
//! file of the node ── http { fleet { config on … } … } ──► bundle that has held last, or is tried
//!        │                                                     │ http { … } stream { … }
//!        └──────────────── one tree ◄──────────────────────────┘ go on with the node's own blocks
//! ```
//!
//! 1. What a bundle says comes from bytes whose signature is right, not from its files on disk.
//! 2. A bundle has `http` and `stream` blocks and nothing outside of them, and no `fleet`: what
//!    belongs to the machine, and the way to the fleet, cannot come from the fleet.
//! 3. Names of files in a bundle mean files of the bundle where it has them, and else what they
//!    mean in the file of the node. What it includes, it has.
//! 4. What is kept for a start and cannot be used keeps no node from starting: its own file counts
//!    alone, with a warning, and the fleet brings the rest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millpond_conf::source::Span;
use millpond_conf::tree::{Statement, Tree};
use millpond_conf::{Diagnostics, Files, Seen, load_beside};
use millpond_exchange::settings::declared::Declared;
use millpond_fleet::config::bundle::Bundle;
use millpond_fleet::config::folder::{Folder, Held};
use millpond_fleet::config::order::{PublicKey, Signed, public_keys};
use millpond_proxy::cache::fleet_config::ConfigLine;
use millpond_proxy::tls::objects;

use super::ConfSource;
use crate::reaches;

/// Bundle that is read beside the file of the node.
#[derive(Clone, Debug, Default)]
pub enum Beside {
    /// The one that has held last, if the file says that there is one.
    #[default]
    Good,
    /// None.
    Nothing,
    /// This one, which runs or is tried.
    Held(Arc<Held>),
    /// Files that are to be pushed, and are not signed yet, with the folder that they are in.
    Draft(Arc<Bundle>, PathBuf),
}

/// The line `config on` of a tree, with the name of its fleet.
struct Found {
    fleet: String,
    span: Span,
    line: ConfigLine,
}

fn find(statements: &[Statement]) -> Option<Found> {
    let bodies = |name: &'static str| {
        move |it: &Statement| (it.name.text == name).then(|| it.body.clone()).flatten()
    };
    let http = statements.iter().filter_map(bodies("http")).flatten();
    let fleets = http.filter(|it| it.name.text == "fleet");
    let mut lines = fleets.flat_map(|fleet| {
        let name = fleet.args.first().map_or("", |it| &it.text).to_owned();
        let body = fleet.body.unwrap_or_default().into_iter();
        let lines = body.filter(|it| it.name.text == "config");
        lines
            .map(move |line| (name.clone(), line))
            .collect::<Vec<_>>()
    });
    // What is wrong with a line is told when it is obeyed.
    lines.find_map(|(fleet, statement)| {
        let words: Vec<&str> = statement.args.iter().map(|it| it.text.as_str()).collect();
        let line = ConfigLine::read(&words).ok().flatten()?;
        let span = statement.span;
        Some(Found { fleet, span, line })
    })
}

/// Part of a configuration that was read beside the file of a node.
#[derive(Default)]
pub(super) struct Added {
    /// The bundle, if it is signed.
    pub(super) held: Option<Arc<Held>>,
    /// Its files.
    pub(super) files: Option<Arc<Seen>>,
}

/// Adds the bundle of a source to its tree.
pub(super) fn add(source: &ConfSource, tree: &mut Tree, diagnostics: &mut Diagnostics) -> Added {
    let Some(found) = find(&tree.statements) else {
        return Added::default();
    };
    let chosen = match choose(source, &found) {
        Ok(Some(chosen)) => chosen,
        Ok(None) => return Added::default(),
        Err(trouble) => {
            let of = format!("the configuration of fleet \"{}\"", found.fleet);
            match trouble {
                Trouble::Wrong(why) => {
                    diagnostics.push_error(found.span, format!("{of}: {why}"));
                }
                // INVARIANT 4.
                Trouble::Unusable(why) => {
                    let message = format!(
                        "{of} that is kept here cannot be used, and this file counts alone until \
                         the fleet brings it again: {why}"
                    );
                    diagnostics.push_warning(found.span, message);
                }
            }
            return Added::default();
        }
    };
    let (bundle, root) = match &chosen {
        Chosen::Held(held) => (&held.bundle, held.root.as_path()),
        Chosen::Draft(bundle, root) => (&**bundle, *root),
    };
    let files = Arc::new(seen(bundle, root));
    let own = Files::Seen(Arc::clone(&files));
    let main = root.join(bundle.main());
    let mut statements = load_beside(&main, &own, &mut tree.sources, diagnostics);
    check(&statements, diagnostics);
    let names = |name: &str| bundle.has(name).then(|| root.join(name));
    statements.iter_mut().for_each(|it| place(it, &names));
    merge(&mut tree.statements, statements);
    Added {
        held: match chosen {
            Chosen::Held(held) => Some(held),
            Chosen::Draft(..) => None,
        },
        files: Some(files),
    }
}

enum Chosen<'a> {
    Held(Arc<Held>),
    Draft(&'a Bundle, &'a Path),
}

/// The reason why there is no bundle.
enum Trouble {
    /// The configuration or the bundle is wrong.
    Wrong(String),
    /// The bundle that is kept for a start cannot be used.
    Unusable(String),
}

fn choose<'a>(source: &'a ConfSource, found: &Found) -> Result<Option<Chosen<'a>>, Trouble> {
    let keys = || -> Result<Vec<PublicKey>, Trouble> {
        let path = source.conf_dir().join(&found.line.trusted_key);
        let read = source.files.read_with(&path, objects::read);
        let wrong = |why| Trouble::Wrong(format!("\"{}\": {why}", path.display()));
        public_keys(&String::from_utf8_lossy(&read.map_err(wrong)?)).map_err(Trouble::Wrong)
    };
    match &source.beside {
        Beside::Nothing => Ok(None),
        Beside::Draft(bundle, root) => Ok(Some(Chosen::Draft(bundle, root))),
        // INVARIANT 1. A key may be trusted no more.
        Beside::Held(held) => {
            let order = &held.signed;
            let read = Signed::read(&order.bytes, &keys()?, &found.fleet);
            read.map_err(|why| Trouble::Wrong(why.to_owned()))?;
            Ok(Some(Chosen::Held(Arc::clone(held))))
        }
        Beside::Good => {
            let folder = Folder::new(&source.prefix.join(&found.line.folder));
            let good = folder.good(&keys()?, &found.fleet);
            let held = good.map_err(Trouble::Unusable)?;
            Ok(held.map(|held| Chosen::Held(Arc::new(held))))
        }
    }
}

fn seen(bundle: &Bundle, root: &Path) -> Seen {
    let mut seen = Seen::default();
    for (path, content) in bundle.paths(root) {
        seen.note(path, content.to_vec());
    }
    seen
}

/// Refuses what a bundle may not say. INVARIANT 2.
fn check(statements: &[Statement], diagnostics: &mut Diagnostics) {
    let inside = |it: &Statement| matches!(it.name.text.as_str(), "http" | "stream");
    let outside = statements.iter().filter(|it| !inside(it));
    let http = statements.iter().filter(|it| it.name.text == "http");
    let in_http = http.flat_map(|it| it.body.iter().flatten());
    let fleets = in_http.filter(|it| it.name.text == "fleet");
    for statement in outside.chain(fleets) {
        let name = &statement.name.text;
        let message = format!(
            "\"{name}\" cannot come from the fleet, only from the node's own file: what is pushed \
             has \"http\" and \"stream\" blocks"
        );
        diagnostics.push_error(statement.span, message);
    }
}

/// Has names of files mean those of the bundle. INVARIANT 3.
fn place(statement: &mut Statement, names: &impl Fn(&str) -> Option<PathBuf>) {
    let argument = reaches::file_argument(statement);
    if let Some(word) = argument.and_then(|at| statement.args.get_mut(at))
        && let Some(path) = names(&word.text)
        && let Some(path) = path.to_str()
    {
        path.clone_into(&mut word.text);
    }
    for inner in statement.body.iter_mut().flatten() {
        place(inner, names);
    }
}

/// Puts the blocks of a bundle behind what the node's own have.
fn merge(own: &mut Vec<Statement>, added: Vec<Statement>) {
    for statement in added {
        let same = own
            .iter_mut()
            .find(|it| it.name.text == statement.name.text);
        match same.and_then(|it| it.body.as_mut()) {
            Some(body) => body.extend(statement.body.into_iter().flatten()),
            None => own.push(statement),
        }
    }
}

/// The folder for what a fleet gives, if one gives configuration.
pub fn folder(declared: &Declared) -> Option<&PathBuf> {
    let mut configs = declared.fleets.iter().filter_map(|it| it.config.as_ref());
    configs.next().map(|config| &config.folder)
}

/// Makes the folder for what a fleet gives, where it is not there.
pub fn make_folder(declared: &Declared) -> Result<(), String> {
    match folder(declared) {
        Some(path) => Folder::new(path).prepare(),
        None => Ok(()),
    }
}

/// Reads a main file that is to be pushed, with what it includes; with the names of other files in
/// it, which it does not include.
pub fn pack(main: &Path) -> (Tree, Vec<String>, Diagnostics) {
    let (mut tree, mut diagnostics) = (Tree::default(), Diagnostics::new());
    let sources = &mut tree.sources;
    tree.statements = load_beside(main, &Files::Disk, sources, &mut diagnostics);
    check(&tree.statements, &mut diagnostics);
    let mut named = Vec::new();
    collect(&tree.statements, &mut named);
    named.sort_unstable();
    named.dedup();
    (tree, named, diagnostics)
}

fn collect(statements: &[Statement], named: &mut Vec<String>) {
    for statement in statements {
        let argument = reaches::file_argument(statement);
        let word = argument.and_then(|at| statement.args.get(at));
        named.extend(word.map(|it| it.text.clone()));
        collect(statement.body.as_deref().unwrap_or_default(), named);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use millpond_system::log::error::{ErrorLog, Level};
    use millpond_system::log::file::LogFile;

    use super::*;
    use crate::source::Reading;

    const OWN: &str = "events {} http { fleet edge { nats nats://127.0.0.1:1; node n1; \
                       config on folder=fleet trusted_key=key; } \
                       server { listen 127.0.0.1:8001; } }";

    /// Reads the file of a node with a bundle of these files beside it.
    fn read(files: &[(&str, &str)]) -> (Reading, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("millpond.conf");
        std::fs::write(&path, OWN).unwrap();
        let key = "ed25519 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29";
        std::fs::write(dir.path().join("key"), key).unwrap();
        let files = files.iter().map(|(name, text)| {
            let text = Bytes::copy_from_slice(text.as_bytes());
            ((*name).to_owned(), text)
        });
        let bundle = Bundle::new("main.conf", BTreeMap::from_iter(files)).unwrap();
        let source = ConfSource {
            path,
            prefix: dir.path().to_owned(),
            globals: None,
            files: Files::Disk,
            error_log: ErrorLog::to(LogFile::stderr(), Level::Emerg),
            beside: Beside::Draft(Arc::new(bundle), dir.path().join("draft")),
        };
        (source.read(), dir)
    }

    #[test]
    fn blocks_of_a_bundle_go_on_with_those_of_the_node() {
        let files = [
            ("main.conf", "http { include sites/*.conf; } stream { }"),
            (
                "sites/a.conf",
                "server { listen 127.0.0.1:8002; auth_basic x; auth_basic_user_file users; }",
            ),
            ("users", "a:b"),
        ];
        let (reading, dir) = read(&files);
        let told: Vec<&str> = reading
            .diagnostics
            .iter()
            .map(|it| it.message.as_str())
            .collect();
        let conf = reading.conf.unwrap_or_else(|| panic!("{told:?}"));
        assert_eq!(conf.sockets().len(), 2);
        assert!(conf.stream.is_some());
        let users = dir.path().join("draft/users");
        let named = format!("{:?}", reading.statements);
        assert!(named.contains(users.to_str().unwrap()), "{named}");
    }

    #[test]
    fn what_belongs_to_the_machine_is_refused_by_its_name() {
        for (text, name) in [
            ("user nobody; http {}", "user"),
            ("pid x; http {}", "pid"),
            ("error_log x; http {}", "error_log"),
            ("events {} http {}", "events"),
            ("http { fleet core { nats nats://a; } }", "fleet"),
            ("http { include other.conf; }", "fleet"),
        ] {
            let files = [
                ("main.conf", text),
                ("other.conf", "fleet core { nats nats://a; }"),
            ];
            let (reading, _dir) = read(&files);
            assert!(reading.conf.is_none(), "{text}");
            let expected = format!("\"{name}\" cannot come from the fleet");
            let mut all = reading.diagnostics.iter();
            assert!(all.any(|it| it.message.starts_with(&expected)), "{text}");
        }
    }

    #[test]
    fn what_a_bundle_includes_it_has_itself() {
        let outside = tempfile::tempdir().unwrap();
        let path = outside.path().join("a.conf");
        std::fs::write(&path, "server { listen 127.0.0.1:8003; }").unwrap();
        for text in [
            format!("http {{ include {}; }}", path.display()),
            "http { include ../millpond.conf; }".to_owned(),
            "http { include missing.conf; }".to_owned(),
        ] {
            let (reading, _dir) = read(&[("main.conf", text.as_str())]);
            assert!(reading.conf.is_none(), "{text}");
        }
        // A pattern finds nothing there.
        let text = format!("http {{ include {}/*.conf; }}", outside.path().display());
        let (reading, _dir) = read(&[("main.conf", text.as_str())]);
        assert_eq!(reading.conf.unwrap().sockets().len(), 1);
    }
}
