//! The binary that cargo put beside the tests, refused when it is older than what it is made of.
//!
//! `cargo test -p millpond-tests` builds the tests and not the binary that they run. Cargo writes
//! beside the binary which files it was made of (`millpond.d`), so a glance at their times tells
//! whether the tests would judge the code that is there. It is taken once a process.
//!
//! Does not see changed manifests: cargo goes by their content there, and `cargo xtask quick` and
//! `cargo xtask test` build before they run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// `target/PROFILE/millpond`, seen from `target/PROFILE/deps/TEST`, if it is there.
///
/// # Panics
///
/// If it is older than one of its sources: a result would be that of another program.
pub(super) fn beside_test_binary() -> Option<PathBuf> {
    static BINARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    BINARY.get_or_init(find).clone()
}

fn find() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let binary = test.parent()?.parent()?.join("millpond");
    if let Some(source) = newer_source(&binary) {
        panic!(
            "{} is older than {}: build it (`cargo build -p millpond`), or run the tests with \
             `cargo xtask quick`",
            binary.display(),
            source.display()
        );
    }
    Some(binary)
}

/// A source of the binary that was changed or removed after it was built. Without the list of
/// sources, or without the binary, there is none.
fn newer_source(binary: &Path) -> Option<PathBuf> {
    let built = modified(binary)?;
    let list = fs::read_to_string(binary.with_extension("d")).ok()?;
    sources(&list)
        .into_iter()
        .find(|source| modified(source).is_none_or(|changed| changed > built))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// The files behind the colon of a rule of make; a space in a name stands behind a backslash.
fn sources(list: &str) -> Vec<PathBuf> {
    let rule = list.lines().next().unwrap_or_default();
    let files = rule.split_once(": ").map_or("", |(_, files)| files);
    let mut names = vec![String::new()];
    let mut letters = files.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, names.last_mut()) {
            (' ', _) => names.push(String::new()),
            ('\\', Some(name)) if letters.next_if_eq(&' ').is_some() => name.push(' '),
            (_, Some(name)) => name.push(letter),
            (_, None) => {}
        }
    }
    let is_name = |name: &String| !name.is_empty();
    names
        .into_iter()
        .filter(is_name)
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Writes a file that was changed so many seconds after a time long ago.
    fn write(path: &Path, text: &str, second: u64) {
        fs::write(path, text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + second);
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    }

    #[test]
    fn binary_that_is_older_than_a_source_is_refused_by_the_sources_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (binary, a, b) = (path("millpond"), path("a.rs"), path("b.rs"));
        let list = format!("{}: {} {}\n", binary.display(), a.display(), b.display());
        fs::write(path("millpond.d"), list).unwrap();
        write(&a, "", 1);
        write(&b, "", 2);
        assert_eq!(newer_source(&binary), None, "there is no binary");
        write(&binary, "", 2);
        assert_eq!(newer_source(&binary), None, "built after both");
        write(&b, "", 3);
        assert_eq!(newer_source(&binary), Some(b.clone()), "changed since");
        write(&binary, "", 4);
        assert_eq!(newer_source(&binary), None, "built again");
        fs::remove_file(&a).unwrap();
        assert_eq!(newer_source(&binary), Some(a), "removed since");
        fs::remove_file(path("millpond.d")).unwrap();
        assert_eq!(newer_source(&binary), None, "nobody knows its sources");
    }

    #[test]
    fn names_with_spaces_are_read() {
        let files = ["/a/b.rs", "/a b/c\\d.rs"].map(PathBuf::from);
        assert_eq!(sources("/x: /a/b.rs /a\\ b/c\\d.rs\n\n/y: /e\n"), files);
        assert!(sources("").is_empty());
    }
}
