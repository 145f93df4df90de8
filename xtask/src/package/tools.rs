//! The packagers: programs of crates.io at pinned versions, below `target/tools`.
//!
//! They are no dependencies of the workspace, since nothing but a package needs them.

use crate::pace::Pace;
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

/// Names of the packagers, for people.
pub(super) fn names() -> String {
    TOOLS.map(|(name, _)| name).join(", ")
}

/// Installs those that are missing, as their authors locked their dependencies.
///
/// They are compiled in a hurry: they pack a few files, and nobody keeps them.
pub(super) fn install(pace: Pace) -> Result<()> {
    for (name, version) in TOOLS {
        if path(name).is_file() {
            continue;
        }
        println!("package: {name} {version} is installed into target/tools");
        let mut cargo = workspace::cargo(&["install", name, "--locked", "--version", version]);
        cargo.arg("--root").arg(folder()).arg("--quiet");
        cargo.envs([
            ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
            ("CARGO_PROFILE_RELEASE_LTO", "off"),
            ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
        ]);
        ensure!(
            pace.of(cargo).status()?.success(),
            "{name} cannot be installed"
        );
    }
    Ok(())
}

/// A packager, to be run.
pub(super) fn command(name: &str) -> Command {
    Command::new(path(name))
}
