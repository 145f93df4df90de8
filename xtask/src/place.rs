//! One place for builds that others repeat, wherever the sources are.
//!
//! ```text
//! the checkout ───┐                      /usr/src/millpond ──┐
//!                 ├─ unshare, mount ──►                      ├──► cargo
//! cargo's home ───┘                      /usr/src/cargo    ──┘
//! ```
//!
//! Compilers write the places of sources into programs: Rust's takes other words for them, C code
//! has them in its assertions, and OpenSSL in the folder that it looks for engines in. Here all of
//! them see the same folders, which are mounted where nobody but the build sees them, so that the
//! bytes are the same for whoever builds a commit by the same compilers.
//!
//! Whoever may not mount builds where the sources are, and is told that the bytes are of there.

use crate::{packages, workspace};
use anyhow::{Context, Result, ensure};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the sources, as the build sees it.
const SOURCES: &str = "/usr/src/millpond";

/// The folder of the sources of crates, as the build sees it.
const CRATES: &str = "/usr/src/cargo";

/// Mounts two folders and becomes the program that follows. A file descriptor leads to each of
/// them, since they may be below the place that is mounted upon.
const SCRIPT: &str = r#"
set -e
exec 8< "$1" 9< "$2"
mount -t tmpfs millpond /usr/src
mkdir /usr/src/millpond /usr/src/cargo
mount --no-canonicalize --rbind /proc/self/fd/8 /usr/src/millpond
mount --no-canonicalize --rbind /proc/self/fd/9 /usr/src/cargo
exec 8<&- 9<&-
shift 2
cd /usr/src/millpond
exec "$@"
"#;

/// The time that C code is told as that of its build (seconds since 1970): what was compiled for an
/// earlier commit is the same for the next.
const TIME: &str = "0";

/// A place that programs are built at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The one where the sources are.
    Here,
    /// The one that is the same for all.
    Fixed(Folders),
}

/// The folders that have another name at the fixed place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folders {
    sources: PathBuf,
    crates: PathBuf,
}

impl Place {
    /// The fixed place of the workspace, if folders can be mounted; says so otherwise.
    pub(crate) fn for_packages() -> Result<Place> {
        let folders = Folders {
            sources: workspace::root(),
            crates: crates()?,
        };
        fs::create_dir_all(&folders.crates)?;
        if let Err(error) = folders.try_out() {
            println!(
                "package: the program is built here, and its bytes are of this place: {error:#}"
            );
            return Ok(Place::Here);
        }
        Ok(Place::Fixed(folders))
    }

    /// The same command, run at the place; names of folders in its words are those of there.
    pub(crate) fn command(&self, command: Command) -> Command {
        match self {
            Place::Here => command,
            Place::Fixed(folders) => folders.command(&command),
        }
    }
}

impl Folders {
    /// Fails if nothing can be mounted.
    fn try_out(&self) -> Result<()> {
        let output = self
            .command(&Command::new("true"))
            .output()
            .context("unshare")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}", said.trim());
        Ok(())
    }

    fn command(&self, inner: &Command) -> Command {
        let mut outer = Command::new("unshare");
        outer.arg("--mount");
        // Others than the system's administrator are one in a namespace of their own.
        if !packages::is_root() {
            outer.arg("--map-root-user");
        }
        outer.args(["--", "sh", "-c", SCRIPT, "sh"]);
        outer.arg(&self.sources).arg(&self.crates);
        outer.arg(inner.get_program());
        outer.args(inner.get_args().map(|arg| self.there(arg)));
        outer.env("CARGO_HOME", CRATES);
        outer.env("SOURCE_DATE_EPOCH", TIME);
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => outer.env(name, self.there(value)),
                None => outer.env_remove(name),
            };
        }
        outer
    }

    /// The words with the names that folders have at the fixed place.
    fn there(&self, words: &OsStr) -> OsString {
        let words = replace(words.as_bytes(), &self.sources, SOURCES);
        OsString::from_vec(replace(&words, &self.crates, CRATES))
    }
}

/// Builds a small C program in two folders below one, at the fixed place: fails unless they are
/// the same, and name the fixed place.
pub(crate) fn check(root: &Path) -> Result<()> {
    let first = small_program(&root.join("one"))?;
    let second = small_program(&root.join("another"))?;
    ensure!(fs::read(&first)? == fs::read(second)?, "bytes differ");
    let output = Command::new(first).output()?;
    let said = String::from_utf8(output.stdout)?;
    ensure!(
        said == "/usr/src/millpond/place.c /usr/src/cargo Jan  1 1970\n",
        "it names {said}"
    );
    Ok(())
}

/// A program that says what its compiler told it of places and the time.
fn small_program(root: &Path) -> Result<PathBuf> {
    let folders = Folders {
        sources: root.join("sources"),
        crates: root.join("crates"),
    };
    for folder in [&folders.sources, &folders.crates] {
        fs::create_dir_all(folder)?;
    }
    let source = folders.sources.join("place.c");
    let text = "#include <stdio.h>\n\
                int main(void) { puts(__FILE__ \" \" CRATES \" \" __DATE__); }\n";
    fs::write(&source, text)?;
    let program = folders.sources.join("place");
    let mut compile = Command::new("cc");
    compile.args(["-g", "-o"]).arg(&program).arg(&source);
    compile.arg(format!("-DCRATES=\"{}\"", folders.crates.display()));
    let status = folders.command(&compile).status()?;
    ensure!(status.success(), "cc ended with {status}");
    Ok(program)
}

/// Bytes in which a folder has another name.
fn replace(bytes: &[u8], folder: &Path, name: &str) -> Vec<u8> {
    let folder = folder.as_os_str().as_bytes();
    let mut made = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, others)) = rest.split_first() {
        match rest.strip_prefix(folder) {
            Some(after) => {
                made.extend_from_slice(name.as_bytes());
                rest = after;
            }
            None => {
                made.push(*first);
                rest = others;
            }
        }
    }
    made
}

/// Cargo's home.
fn crates() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(PathBuf::from(home));
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(Path::new(&home).join(".cargo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_the_folders_of_the_place() {
        let folders = Folders {
            sources: "/home/me/pond".into(),
            crates: "/home/me/.cargo".into(),
        };
        let words = "--remap-path-prefix=/home/me/pond=/millpond -Clink-arg=/home/me/pond/x.o \
                     /home/me/.cargo/bin /home/me/other";
        assert_eq!(
            folders.there(OsStr::new(words)),
            "--remap-path-prefix=/usr/src/millpond=/millpond -Clink-arg=/usr/src/millpond/x.o \
             /usr/src/cargo/bin /home/me/other"
        );
    }
}
