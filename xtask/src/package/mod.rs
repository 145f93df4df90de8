//! `cargo xtask package`: Debian and RPM packages, a tarball, and their checksums.
//!
//! ```text
//! binary ──strip──────────────────┐
//! --help ──► pages, completions ──┼──► stage ──► cargo-deb, cargo-generate-rpm, tar ──► checksums
//! packaging/, conf/, docs/ ───────┘
//! ```
//!
//! What is packed stands once, in `files.rs`; the manifests of the packagers are written from that.
//! Times are those of the commit (SOURCE_DATE_EPOCH), so that the same binary gives the same bytes.
//!
//! The packagers are programs that `cargo install` builds into `target/tools` at a pinned version,
//! when somebody packs, and not for tests. `check.rs` is what `cargo xtask test` does of all this.
//!
//! Does not sign anything, and makes no repository.

mod boot;
mod check;
mod commands;
mod completions;
mod files;
mod manifest;
mod manual;
mod roff;
mod stage;
mod tools;

use crate::tally::Tally;
use crate::{checks, packages, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use check::run as check;

/// Build of the program that is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    /// With optimisation, for users.
    Release,
    /// The quick one, for tests of the packages.
    Quick,
}

/// Effort that goes into small packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Full,
    Fast,
}

/// The folder for everything that is made on the way and in the end.
fn target() -> PathBuf {
    workspace::root().join("target/package")
}

/// Builds the packages; with `--debug`, of the quick build. With `--check` it checks them, as
/// `cargo xtask test` does.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let build = match args {
        [] => Build::Release,
        [arg] if arg == "--debug" => Build::Quick,
        [arg] if arg == "--check" => {
            binary(Build::Quick)?;
            return check();
        }
        [arg] if arg == "--boot" => return boot::run(),
        _ => bail!(
            "`package` takes `--debug`, `--check` or `--boot`, not {}",
            args.join(" ")
        ),
    };
    let out = target().join("out");
    let compression = match build {
        Build::Release => Compression::Full,
        Build::Quick => Compression::Fast,
    };
    tools::install()?;
    let staged = stage::make(&binary(build)?, &target())?;
    pack(&staged, &out, compression)?;
    println!("{}", out.display());
    for line in fs::read_to_string(out.join(SUMS))?.lines() {
        println!("  {line}");
    }
    Ok(Tally::PASS)
}

/// Builds the program, and gives its path.
fn binary(build: Build) -> Result<PathBuf> {
    let mut command = checks::build_quick_binary();
    let folder = match build {
        Build::Release => {
            command.arg("--release").env("RUSTFLAGS", release_flags());
            "release"
        }
        Build::Quick => "debug",
    };
    ensure!(command.status()?.success(), "the binary does not build");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let path = workspace::root().join(target).join(folder);
    Ok(path.join("millpond"))
}

/// Flags that keep the places of this machine out of the binary.
fn release_flags() -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let cargo = std::env::var("CARGO_HOME").unwrap_or(format!("{home}/.cargo"));
    let root = workspace::root();
    format!(
        "--remap-path-prefix={}=/millpond --remap-path-prefix={cargo}=/cargo",
        root.display()
    )
}

/// Name of the file with checksums.
const SUMS: &str = "SHA256SUMS";

/// Makes all packages of what was staged in an empty folder.
fn pack(staged: &stage::Stage, out: &Path, compression: Compression) -> Result<()> {
    fs::remove_dir_all(out).or_else(ignore_missing)?;
    fs::create_dir_all(out)?;
    deb(staged, out, compression)?;
    rpm(staged, out, compression)?;
    tarball(staged, out)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(out)? {
        names.push(entry?.file_name());
    }
    names.sort();
    let sums = Command::new("sha256sum")
        .args(&names)
        .current_dir(out)
        .output()?;
    ensure!(sums.status.success(), "sha256sum failed");
    fs::write(out.join(SUMS), sums.stdout)?;
    Ok(())
}

fn deb(staged: &stage::Stage, out: &Path, compression: Compression) -> Result<()> {
    let mut command = tools::command("cargo-deb");
    command
        .args(["--no-build", "--no-strip", "--quiet", "--manifest-path"])
        .arg(staged.folder.join("Cargo.toml"))
        .arg("--output")
        .arg(out);
    if compression == Compression::Fast {
        command.arg("--fast");
    }
    finish(staged.packer(command), "cargo-deb")
}

fn rpm(staged: &stage::Stage, out: &Path, compression: Compression) -> Result<()> {
    let mut command = tools::command("cargo-generate-rpm");
    command
        .arg("--output")
        .arg(out)
        .args(["--auto-req", "builtin"]);
    if compression == Compression::Fast {
        command.args(["--payload-compress", "gzip"]);
    }
    finish(staged.packer(command), "cargo-generate-rpm")
}

fn tarball(staged: &stage::Stage, out: &Path) -> Result<()> {
    let machine = std::env::consts::ARCH;
    let name = format!("millpond-{}-linux-{machine}", staged.version);
    let tree = staged.folder.join(&name);
    fs::remove_dir_all(&tree).or_else(ignore_missing)?;
    files::copy(&staged.folder, &tree)?;
    let mut command = Command::new("tar");
    command
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", staged.epoch))
        .args(["--use-compress-program=gzip -n9", "-cf"])
        .arg(out.join(format!("{name}.tar.gz")))
        .arg(&name);
    finish(staged.packer(command), "tar")
}

fn finish(mut command: Command, name: &str) -> Result<()> {
    let status = command.status().with_context(|| name.to_string())?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}

fn ignore_missing(error: std::io::Error) -> std::io::Result<()> {
    match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// True if a program is there.
fn has(program: &str) -> bool {
    packages::runs(program, &["--version"])
}
