//! `cargo xtask release`: a release build that is guided by a profile of the program at work.
//!
//! ```text
//! build with counters ──► training (bench/training.rs) ──► profile ──► build
//!                                           --profile FILE ──┘
//! ```
//!
//! The compiler sees by the profile which code runs for each request, keeps it together, and keeps
//! the rest out of the processor's instruction cache, which a hot hit does not fit into otherwise
//! (docs/performance.md has the figures). Build scripts and macros run on this machine and are
//! built without counters, so a target is named in both builds.
//!
//! Everything is in `target/guided`. The profile belongs to one version of the sources and of the
//! compiler: it is not kept with the sources, but beside the packages that were built by it. No two
//! trainings count the same, so that only who has the profile can make the same bytes again.
//!
//! 1. A profile is read from a file that is named after its bytes: cargo takes a crate for built as
//!    long as the flags of the compiler are the same, and would mix the code of two profiles.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::training;
use crate::needs::Needs;
use crate::place::Place;
use crate::tally::Tally;
use crate::workspace;

/// The origin of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Work now, with a binary that counts, which is built unless it is there.
    Work { counting: Option<PathBuf> },
    /// A file that an earlier build left.
    Kept(PathBuf),
}

/// A program, and the profile that it was built by.
#[derive(Clone, Debug)]
pub(crate) struct Guided {
    pub(crate) binary: PathBuf,
    pub(crate) profile: PathBuf,
}

/// `cargo xtask release [--counting BINARY | --profile FILE]`.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let profile = match args {
        [] => Profile::Work { counting: None },
        [option, binary] if option == "--counting" => Profile::Work {
            counting: Some(PathBuf::from(binary)),
        },
        [option, file] if option == "--profile" => Profile::Kept(PathBuf::from(file)),
        [arg, ..] => bail!("`release` takes --counting BINARY or --profile FILE, not {arg}"),
    };
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let made = make(&flags, &profile, &Place::Here)?;
    eprintln!("release: by the profile {}", made.profile.display());
    println!("{}", made.binary.display());
    Ok(Tally::default())
}

/// Builds the program by a profile, with flags of the compiler, at a place.
pub(crate) fn make(flags: &str, profile: &Profile, place: &Place) -> Result<Guided> {
    let folder = folder();
    let profile = match profile {
        Profile::Kept(file) => keep(file, &folder)?,
        Profile::Work { counting } => keep(&work(flags, counting.clone(), place)?, &folder)?,
    };
    let flags = format!("{flags} -Cprofile-use={}", profile.display());
    let binary = build(&folder.join("build"), &flags, place)?;
    Ok(Guided { binary, profile })
}

fn folder() -> PathBuf {
    workspace::root().join("target/guided")
}

/// Lets a binary that counts work; the profile of that.
fn work(flags: &str, counting: Option<PathBuf>, place: &Place) -> Result<PathBuf> {
    // Known before two builds, and not after the first.
    Needs::of(&["wrk", "h2load", "openssl"]).met("a profile of the program at work")?;
    let tool = profdata_tool()?;
    let folder = folder();
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
            place,
        )?,
    };
    eprintln!("release: training");
    training::run(&counting, &counts)?;
    let profile = folder.join("millpond.profdata");
    merge(&tool, &counts, &profile)?;
    Ok(profile)
}

/// The first bytes of a profile that `llvm-profdata merge` wrote.
const MAGIC: [u8; 8] = *b"\xfflprofi\x81";

/// Copies a profile to where builds read it from, by the name of its bytes (INVARIANT 1).
fn keep(file: &Path, folder: &Path) -> Result<PathBuf> {
    let bytes = fs::read(file).with_context(|| format!("the profile {}", file.display()))?;
    ensure!(
        bytes.starts_with(&MAGIC),
        "{} is no profile that `llvm-profdata merge` wrote",
        file.display()
    );
    let output = Command::new("sha256sum").arg(file).output();
    let text = String::from_utf8(output.context("sha256sum")?.stdout)?;
    let sum = text.get(..16).context("sha256sum says nothing")?;
    let kept = folder.join(format!("{sum}.profdata"));
    match fs::read(&kept) {
        // Its time stays, so that nothing is built again.
        Ok(known) if known == bytes => {}
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {
            fs::create_dir_all(folder)?;
            fs::write(&kept, bytes)?;
        }
    }
    Ok(kept)
}

/// Builds the program with flags of the compiler; its path.
fn build(target: &Path, flags: &str, place: &Place) -> Result<PathBuf> {
    let host = workspace::host()?;
    let mut command = workspace::cargo(&["build", "--release", "-p", "millpond"]);
    command
        .args(["--target", &host, "--target-dir"])
        .arg(target);
    command.env("RUSTFLAGS", flags);
    // Parts that are built again without the rest would have other names.
    command.env("CARGO_INCREMENTAL", "0");
    let status = place.command(command).status().context("cargo")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_kept_by_their_bytes() {
        let folder = std::env::temp_dir().join(format!("millpond-profile-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("given");
        let kept_of = |bytes: &[u8]| {
            fs::write(&file, [&MAGIC[..], bytes].concat()).unwrap();
            keep(&file, &folder.join("guided"))
        };
        let (one, other) = (kept_of(b"1").unwrap(), kept_of(b"2").unwrap());
        assert_ne!(one, other);
        let time = || fs::metadata(&one).unwrap().modified().unwrap();
        let before = time();
        assert_eq!(kept_of(b"1").unwrap(), one);
        assert_eq!(time(), before, "a known profile was written again");
        assert!(fs::read(&one).unwrap().ends_with(b"1"));
        // A profile that was cut off is written again.
        fs::write(&one, MAGIC).unwrap();
        kept_of(b"1").unwrap();
        assert!(fs::read(&one).unwrap().ends_with(b"1"));
        fs::write(&file, "no profile").unwrap();
        let error = keep(&file, &folder).unwrap_err().to_string();
        assert!(error.contains("is no profile"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
        assert!(keep(&file, &folder).is_err(), "a file that is not there");
    }
}
