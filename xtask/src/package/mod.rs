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
//! The packagers are programs that `cargo install` builds into `target/tools` at a pinned version.
//! `check.rs` is what `cargo xtask test` does of all this.
//!
//! `--repository` makes repositories of them, with signed indexes (`repository.rs`).

mod arm64;
mod boot;
mod build;
mod chart;
mod check;
mod commands;
mod completions;
mod files;
mod glibc;
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

use crate::guided::Profile;
use crate::needs::Needs;
use crate::pace::Pace;
use crate::tally::Tally;
use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use check::run as check;

use build::{Build, Machine};
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
#[derive(Debug, PartialEq, Eq)]
struct Order {
    build: Build,
    /// The machines that it is for.
    machine: Machine,
    /// True if a tarball without wishes for libraries is wanted, too.
    has_static: bool,
    kind: Kind,
    repository: Option<PathBuf>,
    /// The key that signs the repository.
    key: Option<String>,
}

/// The thing that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Packages for machines like this one.
    Here,
    /// A container image, and nothing else.
    Image,
}

impl Order {
    fn read(args: &[String]) -> Result<Order> {
        let mut order = Order {
            build: Build::Release,
            machine: Machine::Here,
            has_static: false,
            kind: Kind::Here,
            repository: None,
            key: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} wants a value"));
            match arg.as_str() {
                "--debug" => order.set_build(Build::Quick)?,
                "--guided" => order.set_build(Build::Guided(Profile::Work { counting: None }))?,
                "--profile" => {
                    let file = PathBuf::from(value()?);
                    order.set_build(Build::Guided(Profile::Kept(file)))?;
                }
                "--static" => order.has_static = true,
                "--arm64" => order.machine = Machine::Arm64,
                "--image" => order.kind = Kind::Image,
                "--repository" => order.repository = Some(PathBuf::from(value()?)),
                "--key" => order.key = Some(value()?.clone()),
                task if TASKS.contains(&task) => bail!("{task} stands alone: it has no other word"),
                _ => bail!("`package` does not know {arg}; `cargo xtask` lists what it takes"),
            }
        }
        ensure!(
            order.repository.is_some() == order.key.is_some(),
            "--repository DIR and --key KEY go together: indexes are signed"
        );
        let is_guided = matches!(order.build, Build::Guided(_));
        ensure!(
            order.machine == Machine::Here || !(is_guided || order.has_static),
            "--arm64 is another machine: no profile of it can be had here, and no musl"
        );
        Ok(order)
    }

    fn set_build(&mut self, build: Build) -> Result<()> {
        ensure!(
            self.build == Build::Release,
            "one of --debug, --guided and --profile FILE: there is one program in a package"
        );
        self.build = build;
        Ok(())
    }

    /// The things that are missing to make it, which are better known before the builds.
    fn needs(&self) -> Needs {
        let mut needs = Needs::of(&["objcopy", "strip", "readelf", "tar", "gzip"]);
        if self.machine == Machine::Arm64 {
            needs = needs.and_those(arm64::missing());
        }
        if self.has_static {
            needs = needs.and_those(build::missing_for_static());
        }
        if self.repository.is_some() {
            needs = needs.and_those(Needs::of(&repository::PROGRAMS));
        }
        needs
    }
}

/// The tasks that check something, and take no other option.
const TASKS: [&str; 5] = [
    "--check",
    "--chart",
    "--rollout",
    "--container",
    "--container-arm64",
];

/// Names of what [`prepare`] makes, for people.
pub(crate) fn prepared() -> String {
    format!("the packagers ({})", tools::names())
}

/// Makes what the checks of packages need beside the binary: the packagers, and the root of the
/// machine that boots. What cannot be made is named, and the checks that need it are skipped.
pub(crate) fn prepare(pace: Pace) {
    for (name, made) in [
        ("packagers", tools::install(pace)),
        ("booted machine", boot::prepare(pace)),
    ] {
        if let Err(error) = made {
            println!("package: {name}: {error:#}; what needs it is skipped");
        }
    }
}

/// Builds the packages; with `--check` it checks them, as `cargo xtask test` does.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    match args {
        [first, rest @ ..] if first == "--boot" => boot::run(rest),
        [one] if TASKS.contains(&one.as_str()) => check_one(one),
        _ => make(&Order::read(args)?),
    }
}

fn check_one(task: &str) -> Result<Tally> {
    match task {
        "--rollout" => rollout::run(),
        "--container" => image::check(Machine::Here),
        "--container-arm64" => image::check(Machine::Arm64),
        "--chart" => match chart::missing() {
            Some(what) => bail!("package --chart needs {what}"),
            None => check::chart(),
        },
        _ => {
            tools::install(Pace::Full)?;
            build::dynamic(&Build::Quick)?;
            check()
        }
    }
}

/// Makes what was ordered.
fn make(order: &Order) -> Result<Tally> {
    if order.kind == Kind::Image {
        image::make(order.machine, &order.build)?;
        return Ok(Tally::PASS);
    }
    order.needs().met("package")?;
    let built = match order.machine {
        Machine::Here => build::dynamic(&order.build)?,
        Machine::Arm64 => arm64::build(&order.build)?,
    };
    glibc::tell(&built, &order.build)?;
    let out = target().join("out");
    let compression = match order.build {
        Build::Release | Build::Guided(_) => Compression::Full,
        Build::Quick => Compression::Fast,
    };
    tools::install(Pace::Full)?;
    let staged = stage::make(&built, &target())?;
    pack(&staged, &out, compression)?;
    if let Some(profile) = &built.profile {
        let name = format!("millpond-{}.profdata", staged.program.version);
        fs::copy(profile, out.join(name))?;
    }
    if order.has_static {
        let built = build::with_all_inside(&order.build)?;
        let staged = stage::make(&built, &target().join("static"))?;
        tarball(&staged.program, "-static", &out)?;
    }
    sums(&out)?;
    if let Some((folder, key)) = order.repository.as_ref().zip(order.key.clone()) {
        repository::publish(&out, folder, &Signer { key, home: None })?;
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
        .arg(out)
        // Debian has another name for the kind of machine.
        .args(["--target", &staged.triple]);
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
        .args(["--auto-req", requires, "--arch", staged.processor()]);
    if compression == Compression::Fast {
        command.args(["--payload-compress", "gzip"]);
    }
    finish(staged.packer(command), "cargo-generate-rpm")
}

/// Makes a tarball, whose name has a word at its end.
fn tarball(staged: &stage::Stage, word: &str, out: &Path) -> Result<()> {
    let name = format!(
        "millpond-{}-linux-{}{word}",
        staged.version,
        staged.processor()
    );
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

#[cfg(test)]
mod tests {
    use super::*;

    fn order(words: &str) -> Result<Order> {
        let args: Vec<String> = words.split_whitespace().map(ToString::to_string).collect();
        Order::read(&args)
    }

    #[test]
    fn a_package_has_one_program() {
        let kept = Build::Guided(Profile::Kept(PathBuf::from("a.profdata")));
        let work = Build::Guided(Profile::Work { counting: None });
        for (words, expected) in [
            ("", Build::Release),
            ("--debug", Build::Quick),
            ("--guided --static", work),
            ("--profile a.profdata", kept),
            ("--arm64 --debug", Build::Quick),
        ] {
            assert_eq!(order(words).unwrap().build, expected, "{words}");
        }
        for words in [
            "--guided --profile a",
            "--debug --guided",
            "--profile a --debug",
        ] {
            let error = order(words).unwrap_err().to_string();
            assert!(error.contains("one of"), "{words}: {error}");
        }
    }

    #[test]
    fn words_that_do_not_fit_are_refused() {
        for (words, expected) in [
            ("--profile", "--profile wants a value"),
            ("--check --debug", "--check stands alone"),
            ("--debug --check", "--check stands alone"),
            ("--repository r", "go together"),
            ("--fast", "does not know --fast"),
            ("--arm64 --guided", "another machine"),
            ("--arm64 --static", "another machine"),
        ] {
            let error = order(words).unwrap_err().to_string();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
