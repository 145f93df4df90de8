//! h2spec, the suite of RFC 9113 and RFC 7541: a program of the Go module proxy at a pinned
//! version, below `target/tools`.
//!
//! 1. It is installed where packages are: unasked on machines of continuous integration only, else
//!    by `cargo xtask setup`. Without it, or without Go, its tests are skipped.

use crate::packages::{self, MayInstall};
use crate::workspace;
use std::path::PathBuf;
use std::process::Command;

/// The program and its version.
const MODULE: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

fn folder() -> PathBuf {
    workspace::root().join("target/tools/bin")
}

/// Installs it where that is allowed and can be done; says why not otherwise.
pub(crate) fn ensure(may_install: MayInstall) {
    if folder().join("h2spec").is_file() {
        return;
    }
    let reason = match may_install {
        MayInstall::Never => "`cargo xtask setup` installs it",
        MayInstall::Unasked if !packages::runs("go", &["version"]) => "there is no Go",
        MayInstall::Unasked if install() => return,
        MayInstall::Unasked => "it cannot be installed",
    };
    println!("h2spec: {reason}; what needs it is skipped");
}

/// True if it was installed.
fn install() -> bool {
    println!("h2spec: {MODULE} is installed into target/tools");
    let mut command = Command::new("go");
    command.args(["install", MODULE]).env("GOBIN", folder());
    command.status().is_ok_and(|status| status.success())
}
