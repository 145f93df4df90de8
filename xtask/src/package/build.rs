//! The builds of the program that are packed: with optimisation or quick, with the C library of
//! the machine or with one of its own.
//!
//! A program without wishes for libraries is linked against musl, which `rustup` and Debian's
//! `musl-tools` have. It has OpenSSL inside, whatever `OPENSSL_NO_VENDOR` says.

use super::{arm64, check::said, glibc};
use crate::guided::{self, Profile};
use crate::needs::{Needs, has};
use crate::place::Place;
use crate::{checks, workspace};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Effort that goes into the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Build {
    /// With optimisation, for users.
    Release,
    /// The same, by a profile of the program at work.
    Guided(Profile),
    /// The quick one, for tests of the packages.
    Quick,
}

/// The kind of machine that a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    /// One like this.
    Here,
    Arm64,
}

impl Machine {
    /// A program of the linker's or the compiler's for such machines.
    pub(super) fn tool(self, name: &str) -> Command {
        match self {
            Machine::Here => Command::new(name),
            Machine::Arm64 => Command::new(format!("{}{name}", arm64::PREFIX)),
        }
    }

    /// A program for such machines, to be run on this one.
    pub(super) fn run(self, program: &Path) -> Command {
        match self {
            Machine::Here => Command::new(program),
            Machine::Arm64 => arm64::run(program),
        }
    }
}

/// A program that was built.
#[derive(Clone, Debug)]
pub(super) struct Built {
    pub(super) path: PathBuf,
    /// The kind of machine.
    pub(super) triple: String,
    /// The profile that it was built by.
    pub(super) profile: Option<PathBuf>,
    pub(super) machine: Machine,
}

impl Built {
    /// A program for machines like this one.
    pub(super) fn here(path: PathBuf, triple: String) -> Built {
        Built {
            path,
            triple,
            profile: None,
            machine: Machine::Here,
        }
    }
}

/// Builds the program for this machine and those like it.
pub(super) fn dynamic(build: &Build) -> Result<Built> {
    let triple = workspace::host()?;
    if let Build::Guided(profile) = build {
        let flags = release_flags() + &glibc::flags(Machine::Here)?;
        let made = guided::make(&flags, profile, &Place::for_packages()?)?;
        return Ok(Built {
            profile: Some(made.profile),
            ..Built::here(made.binary, triple)
        });
    }
    run(build, checks::build_quick_binary(), "")?;
    Ok(Built::here(folder("", build), triple))
}

/// The things that are missing for a program without libraries.
pub(super) fn missing_for_static() -> Needs {
    Needs::of(&["musl-gcc"]).and(missing_std(&triple()))
}

/// The standard library of a kind of machine, if it is not there and nobody can add it.
fn missing_std(triple: &str) -> Option<String> {
    let is_there = has("rustup") || has_std(triple).unwrap_or(false);
    (!is_there).then(|| {
        format!("the standard library of Rust for {triple} (`rustup target add`, or the system's)")
    })
}

/// Has rustup add the standard library of a kind of machine, unless it is there.
fn add_std(triple: &str) -> Result<()> {
    if !has_std(triple)? {
        println!("package: the standard library for {triple} is added by rustup");
        said(Command::new("rustup").args(["target", "add", triple]))?;
    }
    Ok(())
}

/// Builds the program with everything inside.
pub(super) fn with_all_inside(build: &Build) -> Result<Built> {
    let triple = triple();
    add_std(&triple)?;
    let mut command = checks::build_quick_binary();
    command.args(["--target", &triple]);
    command.env(format!("CC_{}", triple.replace('-', "_")), "musl-gcc");
    command.env("OPENSSL_NO_VENDOR", "0");
    run(build, command, &triple)?;
    Ok(Built::here(folder(&triple, build), triple))
}

fn run(build: &Build, mut command: Command, triple: &str) -> Result<()> {
    if *build != Build::Quick {
        let more = match triple {
            "" => glibc::flags(Machine::Here)?,
            _ => String::new(),
        };
        command
            .arg("--release")
            .env("RUSTFLAGS", release_flags() + &more);
        command = Place::for_packages()?.command(command);
    }
    let status = command.status().context("cargo")?;
    ensure!(status.success(), "the binary does not build {triple}");
    Ok(())
}

fn triple() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// True if the compiler has the standard library of a kind of machine.
fn has_std(triple: &str) -> Result<bool> {
    let mut ask = Command::new("rustc");
    ask.args(["--print", "target-libdir", "--target", triple]);
    Ok(Path::new(said(&mut ask)?.trim()).is_dir())
}

fn folder(triple: &str, build: &Build) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let profile = match build {
        Build::Release | Build::Guided(_) => "release",
        Build::Quick => "debug",
    };
    let root = workspace::root().join(target);
    root.join(triple).join(profile).join("millpond")
}

/// Flags that keep the places of this machine out of the binary.
pub(super) fn release_flags() -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let cargo = std::env::var("CARGO_HOME").unwrap_or(format!("{home}/.cargo"));
    let root = workspace::root();
    format!(
        "--remap-path-prefix={}=/millpond --remap-path-prefix={cargo}=/cargo",
        root.display()
    )
}
