//! The packagers: programs of crates.io at pinned versions, below `target/tools`.
//!
//! They are no dependencies of the workspace, since nothing but a package needs them.

use crate::workspace;
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// Names and versions.
const TOOLS: [(&str, &str); 3] = [
    ("cargo-deb", "3.8.0"),
    ("cargo-generate-rpm", "0.21.1"),
    // Reads the list of crates in a program, for the checks.
    ("rust-audit-info", "0.5.4"),
];

fn folder() -> PathBuf {
    workspace::root().join("target/tools")
}

fn path(name: &str) -> PathBuf {
    folder().join("bin").join(name)
}

/// True if the packagers are there.
pub(super) fn are_there() -> bool {
    TOOLS.iter().all(|(name, _)| path(name).is_file())
}

/// Installs those that are missing, as their authors locked their dependencies.
pub(super) fn install() -> Result<()> {
    for (name, version) in TOOLS {
        if path(name).is_file() {
            continue;
        }
        println!("package: {name} {version} is installed into target/tools");
        let mut command = workspace::cargo(&["install", name, "--locked", "--version", version]);
        command.arg("--root").arg(folder());
        ensure!(command.status()?.success(), "{name} cannot be installed");
    }
    Ok(())
}

/// A packager, to be run.
pub(super) fn command(name: &str) -> Command {
    Command::new(path(name))
}
