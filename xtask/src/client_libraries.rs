//! Clients of `tests/clients` that take more than an interpreter, below `target/tools`: the
//! programs in Go, built into `bin`, and the libraries of Python, in `python`.
//!
//! 1. They are installed where packages are: unasked on machines of continuous integration only,
//!    else by `cargo xtask setup`. Without them, or without Go or pip, their tests are skipped.
//! 2. What is there is that of the sources: Go builds again what has changed, and the libraries of
//!    Python are installed again when the list of them is another one.

use crate::packages::{self, MayInstall};
use crate::workspace;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Their names, for people.
pub(crate) const NAMES: &str = "the clients of tests/clients in Go and Python";

fn tools() -> PathBuf {
    workspace::root().join("target/tools")
}

fn sources() -> PathBuf {
    workspace::root().join("tests/clients")
}

/// Installs them, where that is allowed and can be done; says why not otherwise.
pub(crate) fn ensure(may_install: MayInstall) {
    let pip = ["-m", "pip", "--version"];
    for (name, is_there, has_tool, install) in [
        (
            "clients in Go",
            has_go(),
            packages::runs("go", &["version"]),
            build_go as fn() -> bool,
        ),
        (
            "libraries of Python",
            has_python(),
            packages::runs("python3", &pip),
            install_python,
        ),
    ] {
        let reason = match may_install {
            MayInstall::Never if is_there => continue,
            MayInstall::Never => "`cargo xtask setup` installs them",
            MayInstall::Unasked if !has_tool => "there is no Go, or no pip",
            MayInstall::Unasked if install() => continue,
            MayInstall::Unasked => "they cannot be installed",
        };
        println!("{name}: {reason}; what needs them is skipped");
    }
}

/// True if every folder of sources has its program.
fn has_go() -> bool {
    let bin = tools().join("bin");
    let folders = fs::read_dir(sources().join("go"));
    folders.is_ok_and(|folders| {
        let mut folders = folders.flatten().filter(|it| it.path().is_dir());
        folders.all(|it| bin.join(it.file_name()).is_file())
    })
}

/// True if the programs were built.
fn build_go() -> bool {
    let folder = tools().join("bin");
    let mut command = Command::new("go");
    command.args(["install", "./..."]).env("GOBIN", folder);
    let built = command.current_dir(sources().join("go")).status();
    built.is_ok_and(|status| status.success())
}

/// The list that the libraries were installed by, beside them.
fn installed_list() -> PathBuf {
    tools().join("python/requirements.txt")
}

fn list() -> PathBuf {
    sources().join("requirements.txt")
}

/// True if the libraries are those of the list.
fn has_python() -> bool {
    let installed = fs::read(installed_list());
    installed.is_ok_and(|installed| fs::read(list()).is_ok_and(|list| list == installed))
}

/// True if the libraries are there now.
fn install_python() -> bool {
    if has_python() {
        return true;
    }
    println!("libraries of Python: those of tests/clients are installed into target/tools");
    let folder = tools().join("python");
    // pip leaves what is there.
    if folder.exists() && fs::remove_dir_all(&folder).is_err() {
        return false;
    }
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]);
    command.args(["--root-user-action", "ignore", "--target"]);
    command.arg(&folder).arg("-r").arg(list());
    let installed = command.status().is_ok_and(|status| status.success());
    installed && fs::copy(list(), installed_list()).is_ok()
}
