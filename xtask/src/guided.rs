//! `cargo xtask release`: a release build that is guided by a profile of the program at work.
//!
//! ```text
//! build with counters ──► training (bench/training.rs) ──► millpond.profdata ──► build
//! ```
//!
//! The compiler sees by the profile which code runs for each request, keeps it together, and keeps
//! the rest out of the processor's instruction cache, which a hot hit does not fit into otherwise
//! (docs/performance.md has the figures). Build scripts and macros run on this machine and are
//! built without counters, so a target is named in both builds.
//!
//! Everything is in `target/guided`. The profile belongs to one version of the sources and of the
//! compiler: it is not kept with the sources.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::training;
use crate::tally::Tally;
use crate::workspace;

/// `cargo xtask release [--counting BINARY]`.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let counting = match args {
        [] => None,
        [option, binary] if option == "--counting" => Some(PathBuf::from(binary)),
        [arg, ..] => bail!("`release` does not know {arg}"),
    };
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    println!("{}", binary(&flags, counting)?.display());
    Ok(Tally::default())
}

/// A binary that was built by a profile, with flags of the compiler; the one that counts is built
/// unless it is there.
pub(crate) fn binary(flags: &str, counting: Option<PathBuf>) -> Result<PathBuf> {
    let tool = profdata_tool()?;
    let folder = workspace::root().join("target/guided");
    let counts = folder.join("counts");
    if counts.exists() {
        fs::remove_dir_all(&counts)?;
    }
    fs::create_dir_all(&counts)?;
    let counting = match counting {
        Some(counting) => counting,
        None => build(
            &folder.join("counting"),
            &format!("{flags} -Cprofile-generate={}", counts.display()),
        )?,
    };
    eprintln!("release: training");
    training::run(&counting, &counts)?;
    let profile = folder.join("millpond.profdata");
    merge(&tool, &counts, &profile)?;
    build(
        &folder.join("build"),
        &format!("{flags} -Cprofile-use={}", profile.display()),
    )
}

/// Builds the program with flags of the compiler; its path.
fn build(target: &Path, flags: &str) -> Result<PathBuf> {
    let host = workspace::host()?;
    let mut command = workspace::cargo(&["build", "--release", "-p", "millpond"]);
    command
        .args(["--target", &host, "--target-dir"])
        .arg(target);
    command.env("RUSTFLAGS", flags);
    // Parts that are built again without the rest would have other names.
    command.env("CARGO_INCREMENTAL", "0");
    let status = command.status().context("cargo")?;
    ensure!(status.success(), "the binary does not build with {flags}");
    Ok(target.join(host).join("release/millpond"))
}

/// Puts the counts of all processes in one profile.
fn merge(tool: &Path, counts: &Path, profile: &Path) -> Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(counts)? {
        files.push(entry?.path());
    }
    ensure!(!files.is_empty(), "the training left no counts");
    let status = Command::new(tool)
        .args(["merge", "-o"])
        .arg(profile)
        .args(files)
        .status()?;
    ensure!(status.success(), "{} failed", tool.display());
    Ok(())
}

/// The program `llvm-profdata` of the compiler's LLVM: rustup's component, or Debian's package.
fn profdata_tool() -> Result<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .context("rustc does not run")?;
    let sysroot = String::from_utf8_lossy(&output.stdout);
    let host = workspace::host()?;
    let version = workspace::of_compiler("LLVM version: ")?;
    let major = version.split('.').next().unwrap_or_default();
    let name = "llvm-profdata";
    let places = [
        Path::new(sysroot.trim()).join(format!("lib/rustlib/{host}/bin/{name}")),
        PathBuf::from(format!("/usr/lib/llvm-{major}/bin/{name}")),
    ];
    let found = places.iter().find(|place| place.is_file());
    let wanted = || {
        format!(
            "{name} is missing: `rustup component add llvm-tools`, or the package llvm-{major} of \
             Debian or apt.llvm.org"
        )
    };
    Ok(found.with_context(wanted)?.clone())
}
