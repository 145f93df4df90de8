//! A folder of files as a bundle: the main file, what it includes, and what was asked for.
//!
//! 1. What is not below the folder is not packed, and a mistake.
//! 2. Certificates, keys and all other files that are named are not packed unless asked for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use millpond_conf::{Severity, one_line};
use millpond_fleet::config::bundle::{BUNDLE_MAX, Bundle, FILES_MAX};
use millpond_server::source::bundled;

/// Names of main files, where a folder is named.
const MAIN: [&str; 2] = ["millpond.conf", "nginx.conf"];
/// Folders inside of each other, at most (arbitrary; as deep as names in bundles are).
const DEPTH_MAX: usize = 16;

/// Files that are to be pushed.
pub(super) struct Draft {
    pub(super) root: PathBuf,
    pub(super) bundle: Bundle,
    pub(super) bytes: Bytes,
    /// Files that it names, and that nodes must have.
    pub(super) elsewhere: Vec<String>,
}

fn main_file(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if !path.is_dir() {
        return Ok(path);
    }
    let mut possible = MAIN.iter().map(|name| path.join(name));
    let found = possible.find(|path| path.is_file());
    found.with_context(|| format!("no {} in \"{}\"", MAIN.join(" or "), path.display()))
}

/// Packs a main file, or that of a folder.
pub(super) fn pack(path: &Path, with: &[PathBuf]) -> Result<Draft> {
    let main = main_file(path)?;
    let root = main.parent().unwrap_or(Path::new("/")).to_owned();
    let (tree, named, diagnostics) = bundled::pack(&main);
    let errors = diagnostics
        .iter()
        .filter(|it| it.severity == Severity::Error);
    let mistakes: Vec<String> = errors.map(|it| one_line(it, &tree.sources)).collect();
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n          "));
    let mut files = BTreeMap::new();
    for source in tree.sources.files() {
        let content = Bytes::copy_from_slice(source.bytes());
        files.insert(name(&root, source.path())?, content);
    }
    for path in with {
        // A name that is relative may be meant from here or from the folder.
        let here = std::path::absolute(path)?;
        let path = if here.starts_with(&root) {
            here
        } else {
            root.join(path)
        };
        add(&root, &path, &mut files, 0)?;
    }
    let bundle = Bundle::new(&name(&root, &main)?, files).map_err(anyhow::Error::msg)?;
    let Some(bytes) = bundle.encode() else {
        bail!("the files have more than {BUNDLE_MAX} bytes together");
    };
    let elsewhere = named.into_iter().filter(|name| !bundle.has(name)).collect();
    Ok(Draft {
        root,
        bundle,
        bytes,
        elsewhere,
    })
}

/// Name of a file in the bundle. INVARIANT 1.
fn name(root: &Path, path: &Path) -> Result<String> {
    let outside = || {
        let (path, root) = (path.display(), root.display());
        format!("\"{path}\" is not below \"{root}\", or its name is no text")
    };
    let below = path.strip_prefix(root).ok().with_context(outside)?;
    // Without parts that mean nothing.
    let name: PathBuf = below.components().collect();
    Ok(name.to_str().with_context(outside)?.to_owned())
}

fn add(root: &Path, path: &Path, files: &mut BTreeMap<String, Bytes>, depth: usize) -> Result<()> {
    let shown = || format!("\"{}\"", path.display());
    let kind = fs::metadata(path).with_context(shown)?;
    if kind.is_dir() && depth < DEPTH_MAX {
        for entry in fs::read_dir(path).with_context(shown)? {
            add(root, &entry?.path(), files, depth + 1)?;
        }
        return Ok(());
    }
    ensure!(kind.is_file(), "{} is no file", shown());
    ensure!(
        files.len() < FILES_MAX,
        "there are more than {FILES_MAX} files"
    );
    ensure!(
        kind.len() <= BUNDLE_MAX as u64,
        "{} has more than {BUNDLE_MAX} bytes",
        shown()
    );
    let content = fs::read(path).with_context(shown)?;
    files.insert(name(root, path)?, content.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_included_and_asked_for_is_packed_and_the_rest_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("conf");
        for (name, text) in [
            ("nginx.conf", "http { include sites/*.conf; }"),
            (
                "sites/a.conf",
                "server { ssl_certificate tls/a.pem; ssl_certificate_key tls/a.key; }",
            ),
            ("sites/b.txt", "no"),
            ("tls/a.pem", "certificate"),
            ("tls/a.key", "key"),
            ("secret", "no"),
        ] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let names = |draft: &Draft| draft.bundle.files().keys().cloned().collect::<Vec<_>>();
        let draft = pack(&root, &[]).unwrap();
        assert_eq!(names(&draft), ["nginx.conf", "sites/a.conf"]);
        assert_eq!(draft.elsewhere, ["tls/a.key", "tls/a.pem"]);
        let draft = pack(&root.join("nginx.conf"), &["tls/a.pem".into()]).unwrap();
        assert_eq!(names(&draft), ["nginx.conf", "sites/a.conf", "tls/a.pem"]);
        assert_eq!(draft.elsewhere, ["tls/a.key"]);
        assert!(pack(&root, &["missing".into()]).is_err());
        assert!(pack(&root, &["../outside".into()]).is_err());

        let outside = dir.path().join("outside");
        fs::write(&outside, "server { }").unwrap();
        for text in [
            "http { include ../outside; }".to_owned(),
            format!("http {{ include {}; }}", outside.display()),
        ] {
            fs::write(root.join("nginx.conf"), text).unwrap();
            assert!(pack(&root, &[]).is_err());
        }
        fs::write(root.join("nginx.conf"), "user x; http { }").unwrap();
        let failure = pack(&root, &[]).err().unwrap().to_string();
        assert!(
            failure.contains("\"user\" cannot come from the fleet"),
            "{failure}"
        );
    }
}
