//! Places of the workspace: its root, its target directory and its binary; and the machine's
//! triple.
//!
//! The root is found from this crate's own manifest, so tasks run from any directory. The target
//! directory follows `CARGO_TARGET_DIR`.
//!
//! Does not read cargo's configuration files: a `build.target-dir` set there is not seen.

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// The binary that tests of behaviour drive, after `build_binary` in `checks`.
pub(crate) fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("MILLPOND_BIN") {
        return PathBuf::from(path);
    }
    target().join(profile_dir()).join("millpond")
}

/// The target directory.
pub(crate) fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root().join(named.unwrap_or_else(|| PathBuf::from("target")))
}

/// `release` when `MILLPOND_PROFILE=release` is set, else the quick build `debug`.
fn profile_dir() -> &'static str {
    if is_release() { "release" } else { "debug" }
}

/// True if the binary under test is built with optimisation.
pub(crate) fn is_release() -> bool {
    std::env::var_os("MILLPOND_PROFILE").is_some_and(|profile| profile == "release")
}

/// A `cargo` command that runs in the root, with the same cargo that runs this task.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root()).args(args);
    command
}

/// The triple of this machine.
pub(crate) fn host() -> Result<String> {
    of_compiler("host: ")
}

/// A line of what `rustc -vV` says, by its beginning, without that.
pub(crate) fn of_compiler(beginning: &str) -> Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .context("rustc does not run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(line_of(&text, beginning)
        .with_context(|| format!("rustc has no line \"{beginning}\""))?
        .to_owned())
}

fn line_of<'a>(text: &'a str, beginning: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_llvm_is_the_compilers() {
        let said = "rustc 1.95.0\nhost: x86_64-unknown-linux-gnu\nLLVM version: 22.1.2\n";
        let version = line_of(said, "LLVM version: ");
        assert_eq!(version.and_then(|it| it.split('.').next()), Some("22"));
        assert_eq!(line_of("rustc 1.95.0\n", "LLVM version: "), None);
    }
}
