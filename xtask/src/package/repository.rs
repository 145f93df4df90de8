//! Repositories for apt and dnf, in a folder that any web server can serve, with signed indexes.
//!
//! ```text
//! DIR/millpond.asc                              the public key
//! DIR/apt/pool/*.deb                            packages, those of earlier calls, too
//! DIR/apt/dists/stable/{InRelease,Release,Release.gpg,main/binary-ARCH/Packages{,.gz}}
//! DIR/yum/*.rpm                                 packages, each signed
//! DIR/yum/repodata/repomd.xml{,.asc}
//! ```
//!
//! 1. What is signed comes last: until then clients find the index before, or a mistake, and never
//!    an index that names what is not there.
//! 2. A package that is there is never replaced by another of the same name.

use super::check::{files, said};
use super::ignore_missing;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that make and sign them.
pub(super) const PROGRAMS: [&str; 5] = ["gpg", "apt-ftparchive", "createrepo_c", "rpm", "rpmsign"];

/// The key that signs, as gpg knows it.
#[derive(Clone, Debug)]
pub(super) struct Signer {
    /// Fingerprint or name.
    pub(super) key: String,
    /// The folder of gpg, if it is not the user's own.
    pub(super) home: Option<PathBuf>,
}

impl Signer {
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        if let Some(home) = &self.home {
            command.env("GNUPGHOME", home);
        }
        command
    }

    fn gpg(&self, args: &[&str]) -> Command {
        let mut command = self.command("gpg");
        command.args(["--batch", "--yes", "--quiet", "--local-user", &self.key]);
        command.args(args);
        command
    }
}

/// Adds the packages of a folder to the repositories in another.
pub(super) fn publish(packages: &Path, folder: &Path, signer: &Signer) -> Result<()> {
    fs::create_dir_all(folder)?;
    let public = signer
        .gpg(&["--armor", "--export", &signer.key])
        .output()?
        .stdout;
    ensure!(!public.is_empty(), "gpg has no key {}", signer.key);
    fs::write(folder.join("millpond.asc"), public)?;
    apt(packages, &folder.join("apt"), signer)?;
    yum(packages, &folder.join("yum"), signer)
}

fn apt(packages: &Path, folder: &Path, signer: &Signer) -> Result<()> {
    let pool = folder.join("pool");
    for package in of_ending(packages, ".deb")? {
        add(&package, &pool)?;
    }
    let names = of_ending(&pool, ".deb")?;
    let kind = |path: &PathBuf| {
        let stem = path.file_stem()?.to_string_lossy().into_owned();
        Some(stem.rsplit_once('_')?.1.to_string())
    };
    let kinds: BTreeSet<String> = names.iter().filter_map(kind).collect();
    let dists = folder.join("dists/stable");
    for kind in &kinds {
        let index = dists.join(format!("main/binary-{kind}/Packages"));
        fs::create_dir_all(index.parent().context("a folder")?)?;
        let args = ["--arch", kind.as_str(), "packages", "pool"];
        let listed = archive(folder, &args)?;
        ensure!(!listed.is_empty(), "apt-ftparchive lists no package");
        fs::write(&index, listed)?;
        said(Command::new("gzip").args(["-9nfk"]).arg(&index))?;
    }
    sign_release(folder, &Vec::from_iter(kinds).join(" "), signer)
}

/// Writes what names the indexes, in both of its signed forms.
fn sign_release(folder: &Path, kinds: &str, signer: &Signer) -> Result<()> {
    let dists = folder.join("dists/stable");
    for name in ["Release", "InRelease", "Release.gpg"] {
        fs::remove_file(dists.join(name)).or_else(ignore_missing)?;
    }
    let kinds = format!("Architectures={kinds}");
    let fields = [
        "Origin=Millpond",
        "Label=Millpond",
        "Suite=stable",
        "Codename=stable",
    ];
    let mut args = Vec::new();
    for field in fields.into_iter().chain(["Components=main", &kinds]) {
        args.extend([
            "-o".to_string(),
            format!("APT::FTPArchive::Release::{field}"),
        ]);
    }
    args.extend(["release", "dists/stable"].map(String::from));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let release = dists.join("Release");
    fs::write(&release, archive(folder, &args)?)?;
    for (mode, name) in [
        ("--detach-sign", "Release.gpg"),
        ("--clearsign", "InRelease"),
    ] {
        let mut sign = signer.gpg(&["--armor", mode, "--output"]);
        said(sign.arg(dists.join(name)).arg(&release))?;
    }
    Ok(())
}

fn archive(folder: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new("apt-ftparchive");
    command.args(args).current_dir(folder);
    let output = command.output().context("apt-ftparchive (apt-utils)")?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "apt-ftparchive: {told}");
    Ok(output.stdout)
}

fn yum(packages: &Path, folder: &Path, signer: &Signer) -> Result<()> {
    // rpm looks for gpg under a name that not every system has.
    let gpg = said(Command::new("sh").args(["-c", "command -v gpg"]))?;
    for package in of_ending(packages, ".rpm")? {
        if let Some(copy) = add(&package, folder)? {
            let mut sign = signer.command("rpmsign");
            for define in [
                format!("_gpg_name {}", signer.key),
                format!("__gpg {}", gpg.trim()),
            ] {
                sign.args(["--define", &define]);
            }
            said(sign.arg("--addsign").arg(copy))?;
        }
    }
    let index = folder.join("repodata/repomd.xml");
    let signature = folder.join("repodata/repomd.xml.asc");
    fs::remove_file(&signature).or_else(ignore_missing)?;
    said(Command::new("createrepo_c").arg("--quiet").arg(folder))?;
    let mut sign = signer.gpg(&["--armor", "--detach-sign", "--output"]);
    said(sign.arg(&signature).arg(&index))?;
    Ok(())
}

/// Copies a package, and gives the copy, unless it is there.
fn add(package: &Path, folder: &Path) -> Result<Option<PathBuf>> {
    fs::create_dir_all(folder)?;
    let copy = folder.join(package.file_name().context("a name")?);
    if copy.exists() {
        println!("package: {} is in the repository and stays", copy.display());
        return Ok(None);
    }
    fs::copy(package, &copy)?;
    Ok(Some(copy))
}

fn of_ending(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut all = files(folder)?;
    all.retain(|path| path.to_string_lossy().ends_with(ending));
    Ok(all)
}
