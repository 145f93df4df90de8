//! The builds of the program that are packed: with optimisation or quick, with the C library of
//! the machine or with one of its own.
//!
//! A program without wishes for libraries is linked against musl, which `rustup` and Debian's
//! `musl-tools` have. It has OpenSSL inside, whatever `OPENSSL_NO_VENDOR` says.

use super::{check::said, has};
use crate::{checks, guided, workspace};
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// Effort that goes into the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Build {
    /// With optimisation, for users.
    Release,
    /// The same, by a profile of the program at work.
    Guided,
    /// The quick one, for tests of the packages.
    Quick,
}

/// A program that was built.
#[derive(Clone, Debug)]
pub(super) struct Built {
    pub(super) path: PathBuf,
    /// The kind of machine.
    pub(super) triple: String,
}

/// Builds the program for this machine and those like it.
pub(super) fn dynamic(build: Build) -> Result<Built> {
    if build == Build::Guided {
        return Ok(Built {
            path: guided::binary(&release_flags(), None)?,
            triple: workspace::host()?,
        });
    }
    run(build, checks::build_quick_binary(), "")?;
    Ok(Built {
        path: folder("", build),
        triple: workspace::host()?,
    })
}

/// The name of what is wanted for a program without libraries, if it is not there.
pub(super) fn missing_for_static() -> Option<&'static str> {
    // It knows no `--version`.
    let is_there = Command::new("musl-gcc").arg("-dumpversion").output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        return Some("musl-gcc");
    }
    (!has("rustup") && !has_target().unwrap_or(false)).then_some("rustup")
}

/// Builds the program with everything inside.
pub(super) fn with_all_inside(build: Build) -> Result<Built> {
    let triple = triple();
    if !has_target()? {
        println!("package: the standard library for {triple} is added by rustup");
        said(Command::new("rustup").args(["target", "add", &triple]))?;
    }
    let mut command = checks::build_quick_binary();
    command.args(["--target", &triple]);
    command.env(format!("CC_{}", triple.replace('-', "_")), "musl-gcc");
    command.env("OPENSSL_NO_VENDOR", "0");
    run(build, command, &triple)?;
    Ok(Built {
        path: folder(&triple, build),
        triple,
    })
}

fn run(build: Build, mut command: Command, triple: &str) -> Result<()> {
    if build != Build::Quick {
        command.arg("--release").env("RUSTFLAGS", release_flags());
    }
    let status = command.status().context("cargo")?;
    ensure!(status.success(), "the binary does not build {triple}");
    Ok(())
}

fn triple() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// True if the compiler has what it needs for musl.
fn has_target() -> Result<bool> {
    let mut ask = Command::new("rustc");
    ask.args(["--print", "target-libdir", "--target", &triple()]);
    Ok(PathBuf::from(said(&mut ask)?.trim()).is_dir())
}

fn folder(triple: &str, build: Build) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let profile = match build {
        Build::Release | Build::Guided => "release",
        Build::Quick => "debug",
    };
    let root = workspace::root().join(target);
    root.join(triple).join(profile).join("millpond")
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
