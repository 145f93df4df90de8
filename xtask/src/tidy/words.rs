//! Words that are forbidden outside their one place.
//!
//! The clock, the file system, the environment and waiting are arguments in this code, so their
//! names may stand only in the files that provide them; `PLACES` is the list. Words are matched as
//! tokens, so comments and strings never match; `use` trees are unfolded first, so `use
//! std::{fs, io}` is seen. Comments are searched for notes that were left behind.
//!
//! 1. Test code may read clocks, files and the environment, but never waits by sleeping.
//!
//! Does not resolve names: `use std::time::Instant as I; I::now()` goes unseen.

use super::Finding;
use super::source::{Kind, SourceFile};
use proc_macro2::{TokenStream, TokenTree};
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Code that may use a word besides the files that are listed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Support {
    May,
    MayNot,
}

struct Word {
    /// The word as a run of tokens, separated by spaces.
    tokens: &'static str,
    name: &'static str,
    support: Support,
    /// Path prefixes or ends of the files that provide it.
    places: &'static [&'static str],
    instead: &'static str,
}

const CLOCKS: &[&str] = &["/clock.rs"];
const DISKS: &[&str] = &[
    "crates/store/src/disk/io.rs",
    // The same, for who only looks.
    "crates/store/src/disk/still.rs",
    "crates/conf/src/source.rs",
    "crates/conf/src/load.rs",
    "crates/millpond/src/",
    "crates/proxy/src/content/",
    "crates/proxy/src/handler/",
    // Modules of scripts, while a configuration is read.
    "crates/proxy/src/script/read.rs",
    // Files that scripts ask for.
    "crates/script/src/files.rs",
    // The files of dictionaries of scripts.
    "crates/script/src/dict/keeper.rs",
    // Keys of AWS.
    "crates/proxy/src/upstream/aws_sign/credentials.rs",
    // Databases of addresses.
    "crates/proxy/src/map/geoip2/database.rs",
    "crates/system/src/log/",
    "crates/proxy/src/downstream/listener.rs",
    "crates/server/src/pid.rs",
    // Certificates that were ordered, with their keys.
    "crates/acme/src/state.rs",
    // Certificates and keys, while a configuration is read.
    "crates/proxy/src/tls/objects.rs",
    // Logs, sockets and counters in folders of root's.
    "crates/system/src/root_helper/",
    "crates/server/src/root_process.rs",
    // The mode of a socket, and its end.
    "crates/server/src/control/socket.rs",
    // Bodies that are sent from files.
    "crates/system/src/body.rs",
    "crates/exchange/src/client/body.rs",
    // Counters that outlive the process.
    "crates/exchange/src/stats/ledger.rs",
    // Connections that are written down.
    "crates/proxy/src/downstream/quic/qlog/mod.rs",
    // A file that describes sites.
    "crates/exchange/src/stats/site_info.rs",
    // Configuration that a fleet has given.
    "crates/fleet/src/config/folder.rs",
    // What the kernel tells of the process.
    "crates/server/src/metrics/process.rs",
    // Request bodies that do not fit into memory, and answers that are kept as files.
    "crates/system/src/temp_file.rs",
    // The folder above a zone's, before the store opens it.
    "crates/proxy/src/cache/zones.rs",
];

const PLACES: &[Word] = &[
    Word {
        tokens: "SystemTime : : now",
        name: "SystemTime::now",
        support: Support::May,
        places: CLOCKS,
        instead: "take a clock as an argument",
    },
    Word {
        tokens: "Instant : : now",
        name: "Instant::now",
        support: Support::May,
        places: CLOCKS,
        instead: "take a clock as an argument",
    },
    Word {
        tokens: "Key : : of",
        name: "Key::of",
        support: Support::May,
        places: &[],
        instead: "take the zone's keys, which have a secret: `Zone::keys`",
    },
    Word {
        tokens: "Keys : : for_tests",
        name: "Keys::for_tests",
        support: Support::May,
        places: &[],
        instead: "take the zone's keys, which have a secret: `Zone::keys`",
    },
    Word {
        tokens: "sleep (",
        name: "sleep",
        support: Support::MayNot,
        places: &[
            "/clock.rs",
            "crates/testkit/src/deadline.rs",
            "crates/gauge/",
        ],
        instead: "wait for the event, with a deadline",
    },
    Word {
        tokens: "std : : fs",
        name: "std::fs",
        support: Support::May,
        places: DISKS,
        instead: "go through store::disk::io, or list the file in xtask/src/tidy/words.rs",
    },
    Word {
        tokens: "tokio : : fs",
        name: "tokio::fs",
        support: Support::MayNot,
        places: &[],
        instead: "go through store::disk::io",
    },
    Word {
        tokens: "env : : var",
        name: "std::env::var",
        support: Support::May,
        places: &[
            "crates/millpond/src/",
            // The variables that `env` names.
            "crates/proxy/src/script/environment.rs",
        ],
        instead: "make it a directive or an argument",
    },
    Word {
        tokens: "env : : var_os",
        name: "std::env::var",
        support: Support::May,
        places: &["crates/millpond/src/"],
        instead: "make it a directive or an argument",
    },
    Word {
        tokens: "unsafe",
        name: "unsafe",
        support: Support::MayNot,
        // Registers a descriptor that outlives its registration, and fills spare capacity.
        // Takes descriptors that another process left open.
        places: &[
            "crates/system/src/socket.rs",
            "crates/server/src/sockets/inherited.rs",
        ],
        instead: "use what rustix or std offer",
    },
];

/// Checks the words of one file.
pub(crate) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    let mut tokens = Vec::new();
    if let Ok(stream) = file.text.parse::<TokenStream>() {
        flatten(stream, &mut tokens);
    }
    let mut uses = Uses::default();
    uses.visit_file(&file.syntax);
    for word in PLACES {
        let pattern: Vec<&str> = word.tokens.split(' ').collect();
        let mut lines: Vec<usize> = matches(&tokens, &pattern).collect();
        for path in &uses.paths {
            lines.extend(matches(path, &pattern));
        }
        lines.sort_unstable();
        lines.dedup();
        for line in lines {
            if !word.is_allowed(&file.path, file.kind_at(line)) {
                findings.push(finding(file, line, word));
            }
        }
    }
    check_comments(file, findings);
}

impl Word {
    fn is_allowed(&self, path: &Path, kind: Kind) -> bool {
        let path = path.to_string_lossy();
        (kind == Kind::Support && self.support == Support::May)
            || self
                .places
                .iter()
                .any(|place| path.starts_with(place) || path.ends_with(place))
    }
}

fn finding(file: &SourceFile, line: usize, word: &Word) -> Finding {
    Finding {
        rule: "word",
        path: file.path.clone(),
        line,
        item: word.name.to_string(),
        measure: 1,
        message: format!("`{}` is not for here: {}", word.name, word.instead),
    }
}

/// A token as text, and its line.
type Token = (String, usize);

/// All tokens in order, groups unfolded with their opening bracket only.
fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                // A doc comment is an attribute that holds a literal, which never matches.
                if group.delimiter() == proc_macro2::Delimiter::Parenthesis {
                    tokens.push(("(".to_string(), line));
                } else {
                    tokens.push((String::new(), line));
                }
                flatten(group.stream(), tokens);
            }
            TokenTree::Literal(_) => tokens.push((String::new(), line)),
            other => tokens.push((other.to_string(), line)),
        }
    }
}

fn matches<'a>(tokens: &'a [Token], pattern: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
    tokens
        .windows(pattern.len())
        .filter(move |window| {
            window
                .iter()
                .zip(pattern)
                .all(|(token, word)| token.0 == *word)
        })
        .filter_map(|window| window.first().map(|token| token.1))
}

/// The paths of all `use` items, each as tokens.
#[derive(Default)]
struct Uses {
    paths: Vec<Vec<Token>>,
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.unfold(&item.tree, &mut Vec::new());
    }
}

impl Uses {
    fn unfold(&mut self, tree: &syn::UseTree, prefix: &mut Vec<Token>) {
        let len = prefix.len();
        let line = tree.span().start().line;
        match tree {
            syn::UseTree::Path(path) => {
                push_segment(prefix, path.ident.to_string(), line);
                self.unfold(&path.tree, prefix);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.unfold(tree, prefix);
                }
            }
            syn::UseTree::Name(name) => {
                push_segment(prefix, name.ident.to_string(), line);
                self.paths.push(prefix.clone());
            }
            syn::UseTree::Rename(rename) => {
                push_segment(prefix, rename.ident.to_string(), line);
                self.paths.push(prefix.clone());
            }
            _ => self.paths.push(prefix.clone()),
        }
        prefix.truncate(len);
    }
}

fn push_segment(prefix: &mut Vec<Token>, segment: String, line: usize) {
    if !prefix.is_empty() {
        prefix.push((":".to_string(), line));
        prefix.push((":".to_string(), line));
    }
    prefix.push((segment, line));
}

/// Notes that were left behind: one without an id, or one that must not reach main at all.
fn check_comments(file: &SourceFile, findings: &mut Vec<Finding>) {
    for (index, line) in file.text.lines().enumerate() {
        let Some((code, comment)) = line.split_once("// ") else {
            continue;
        };
        // An odd number of quotes: the slashes stand in a string.
        if code.matches('"').count() % 2 == 1 {
            continue;
        }
        let mut words = comment.split_whitespace();
        let note = words.find(|word| word.starts_with("TODO") || word.starts_with("FIXME"));
        let Some(note) = note else { continue };
        if note.starts_with("TODO(") && !note.starts_with("TODO()") {
            continue;
        }
        findings.push(Finding {
            rule: "note",
            path: file.path.clone(),
            line: index + 1,
            item: note.trim_end_matches(':').to_string(),
            measure: 1,
            message: format!("`{note}`: do it, or file it and write its id in brackets"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(path: &str, text: &str) -> Vec<String> {
        let file = SourceFile::parse(Path::new(path), text.to_string()).unwrap();
        let mut findings = Vec::new();
        check(&file, &mut findings);
        findings.into_iter().map(|finding| finding.item).collect()
    }

    #[test]
    fn forbidden_words_are_found_in_code_only() {
        let zone = "crates/store/src/zone.rs";
        for (path, text, expected) in [
            (
                zone,
                "fn a() { std::time::Instant::now(); }",
                "Instant::now",
            ),
            (zone, "use std::{fs, io};", "std::fs"),
            (zone, "use std::fs::File;", "std::fs"),
            (zone, "fn a() { m!(std::fs::read(b)); }", "std::fs"),
            (zone, "fn a() { tokio::time::sleep(b); }", "sleep"),
            (zone, "fn a() { std::env::var(\"X\"); }", "std::env::var"),
            (zone, "fn a() { unsafe { b() } }", "unsafe"),
            (zone, "// TODO: later\n", "TODO"),
            (zone, "// FIXME later\n", "FIXME"),
            (zone, "// TODO(#12): later\n", ""),
            (
                zone,
                "/// Instant::now() and unsafe\nfn a() { b(\"std::fs\") }",
                "",
            ),
            (zone, "#[cfg(test)]\nmod tests { use std::fs; }", ""),
            (
                zone,
                "#[cfg(test)]\nmod tests { fn a() { sleep(b); } }",
                "sleep",
            ),
            (
                "crates/system/src/clock.rs",
                "fn a() { Instant::now(); }",
                "",
            ),
            ("crates/store/src/disk/io.rs", "use std::fs;", ""),
        ] {
            let expected: Vec<&str> = expected.split_whitespace().collect();
            assert_eq!(items(path, text), expected, "{path} {text}");
        }
    }
}
