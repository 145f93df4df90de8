//! `cargo xtask package`: Debian and RPM packages, a tarball, and their checksums.
//!
//! ```text
//! binary ──► program, symbols ────┐
//! --help ──► pages, completions ──┼──► stage ──► cargo-deb, cargo-generate-rpm, tar ──► checksums
//! packaging/, conf/, docs/ ───────┤
//! cargo metadata ──► inventory ───┘
//! ```
//!
//! What is packed stands once, in `files.rs`; the manifests of the packagers are written from that.
//! Times are those of the commit (SOURCE_DATE_EPOCH), so that the same binary gives the same bytes.
//!
//! The packagers are programs that `cargo install` builds into `target/tools` at a pinned version,
//! when somebody packs, and not for tests. `check.rs` is what `cargo xtask test` does of all this.
//!
//! `--repository` makes repositories of them, with signed indexes (`repository.rs`).

mod boot;
mod build;
mod chart;
mod check;
mod commands;
mod completions;
mod files;
mod image;
mod inventory;
mod manifest;
mod manual;
mod nspawn;
mod repository;
mod repository_check;
mod roff;
mod rollout;
mod stage;
mod symbols;
mod tools;
mod vim;

use crate::tally::Tally;
use crate::{packages, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use check::run as check;

use build::Build;
use repository::Signer;

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

/// The packages that are wanted.
struct Order {
    build: Build,
    /// True if a tarball without wishes for libraries is wanted, too.
    has_static: bool,
    /// True if a container image is wanted, and nothing else.
    is_image: bool,
    repository: Option<PathBuf>,
    /// The key that signs the repository.
    key: Option<String>,
}

impl Order {
    fn read(args: &[String]) -> Result<Order> {
        let mut order = Order {
            build: Build::Release,
            has_static: false,
            is_image: false,
            repository: None,
            key: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} wants a value"));
            match arg.as_str() {
                "--debug" => order.build = Build::Quick,
                "--guided" => order.build = Build::Guided,
                "--static" => order.has_static = true,
                "--image" => order.is_image = true,
                "--repository" => order.repository = Some(PathBuf::from(value()?)),
                "--key" => order.key = Some(value()?.clone()),
                _ => bail!("`package` does not know {arg}; `cargo xtask` lists what it takes"),
            }
        }
        ensure!(
            order.repository.is_some() == order.key.is_some(),
            "--repository DIR and --key KEY go together: indexes are signed"
        );
        Ok(order)
    }
}

/// Builds the packages; with `--check` it checks them, as `cargo xtask test` does.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    if let [first, rest @ ..] = args
        && first == "--boot"
    {
        return boot::run(rest);
    }
    if let [arg] = args {
        match arg.as_str() {
            "--check" => {
                build::dynamic(Build::Quick)?;
                return check();
            }
            "--rollout" => return rollout::run(),
            "--chart" => return check::chart(),
            "--container" => return image::check(),
            _ => {}
        }
    }
    let order = Order::read(args)?;
    let has_static = order.has_static || order.is_image;
    if let Some(program) = build::missing_for_static().filter(|_| has_static) {
        bail!("a program with everything inside needs {program}");
    }
    if order.is_image {
        image::make(order.build)?;
        return Ok(Tally::PASS);
    }
    let out = target().join("out");
    let compression = match order.build {
        Build::Release | Build::Guided => Compression::Full,
        Build::Quick => Compression::Fast,
    };
    tools::install()?;
    let staged = stage::make(&build::dynamic(order.build)?, &target())?;
    pack(&staged, &out, compression)?;
    if order.has_static {
        let built = build::with_all_inside(order.build)?;
        let staged = stage::make(&built, &target().join("static"))?;
        tarball(&staged.program, "-static", &out)?;
        sums(&out)?;
    }
    if let Some((folder, key)) = order.repository.zip(order.key) {
        repository::publish(&out, &folder, &Signer { key, home: None })?;
        println!("{}", folder.display());
    }
    println!("{}", out.display());
    for line in fs::read_to_string(out.join(SUMS))?.lines() {
        println!("  {line}");
    }
    Ok(Tally::PASS)
}

/// Name of the file with checksums.
const SUMS: &str = "SHA256SUMS";

/// Makes all packages of what was staged in an empty folder.
fn pack(staged: &stage::Staged, out: &Path, compression: Compression) -> Result<()> {
    fs::remove_dir_all(out).or_else(ignore_missing)?;
    fs::create_dir_all(out)?;
    for stage in [&staged.program, &staged.symbols] {
        deb(stage, out, compression)?;
    }
    rpm(&staged.program, "builtin", out, compression)?;
    rpm(&staged.symbols, "disabled", out, compression)?;
    tarball(&staged.program, "", out)?;
    let bom = format!("millpond-{}.cdx.json", staged.program.version);
    fs::write(out.join(bom), &staged.bom)?;
    sums(out)
}

/// Writes the checksums of everything in a folder.
fn sums(out: &Path) -> Result<()> {
    fs::remove_file(out.join(SUMS)).or_else(ignore_missing)?;
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

/// Makes an RPM; `requires` is how the packager finds the libraries that are wanted.
fn rpm(staged: &stage::Stage, requires: &str, out: &Path, compression: Compression) -> Result<()> {
    let mut command = tools::command("cargo-generate-rpm");
    command
        .arg("--output")
        .arg(out)
        .args(["--auto-req", requires]);
    if compression == Compression::Fast {
        command.args(["--payload-compress", "gzip"]);
    }
    finish(staged.packer(command), "cargo-generate-rpm")
}

/// Makes a tarball, whose name has a word at its end.
fn tarball(staged: &stage::Stage, word: &str, out: &Path) -> Result<()> {
    let machine = std::env::consts::ARCH;
    let name = format!("millpond-{}-linux-{machine}{word}", staged.version);
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
