//! Programs for arm64, made on a machine of another kind.
//!
//! ```text
//! Debian's rustc-web, its standard library for both kinds ──► target/tools/arm64
//!                              │
//! sources ──cargo──► program ──┴─ aarch64-linux-gnu-gcc links it against glibc
//! ```
//!
//! A standard library of Rust belongs to one compiler, and `rustup` is not everywhere; Debian has
//! both, for all its kinds of machine, in packages that can be unpacked beside everything else. The
//! compiler is not that of this machine, so its results stand in a folder of their own.
//!
//! qemu runs a program for arm64 where one has to be run: to ask it for its help, and to check it.

use super::build::{self, Build, Built, Machine};
use super::check::said;
use super::{glibc, target};
use crate::needs::Needs;
use crate::place::Place;
use crate::{checks, workspace};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TRIPLE: &str = "aarch64-unknown-linux-gnu";

/// Begin of the names of the compiler's and the linker's programs.
pub(super) const PREFIX: &str = "aarch64-linux-gnu-";

/// The folder of arm64's C library on machines of another kind.
const C_LIBRARY: &str = "/usr/aarch64-linux-gnu";

/// The program that runs those for arm64, in any root.
const QEMU: &str = "qemu-aarch64-static";

/// The packages of the compiler; those that they want follow ([`wanted`]).
const COMPILER: [&str; 3] = [
    "rustc-web",
    "libstd-rust-web-dev",
    "libstd-rust-web-dev:arm64",
];

/// Begins of the names of packages that the compiler wants and that nothing else on a machine has.
const OWN_LIBRARIES: [&str; 2] = ["libstd-rust-web-", "libllvm"];

/// The things that are missing.
pub(super) fn missing() -> Needs {
    Needs::of(&["aarch64-linux-gnu-gcc", QEMU, "apt-get", "dpkg-deb"])
}

/// Builds the program.
pub(super) fn build(build: &Build) -> Result<Built> {
    let compiler = compiler()?;
    let folder = target().join("arm64");
    let mut command = checks::build_quick_binary();
    command
        .args(["--target", TRIPLE])
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTC", compiler.join("usr/bin/rustc"))
        .env("LD_LIBRARY_PATH", libraries_of(&compiler)?)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", tool("gcc"))
        .env("CC_aarch64_unknown_linux_gnu", tool("gcc"))
        .env("AR_aarch64_unknown_linux_gnu", tool("ar"))
        .env("OPENSSL_NO_VENDOR", "0");
    let profile = match build {
        Build::Quick => "debug",
        Build::Release | Build::Guided(_) => {
            let flags = build::release_flags() + &glibc::flags(Machine::Arm64)?;
            command.arg("--release").env("RUSTFLAGS", flags);
            command = Place::for_packages()?.command(command);
            "release"
        }
    };
    let status = command.status().context("cargo")?;
    ensure!(status.success(), "the program does not build for arm64");
    Ok(Built {
        path: folder.join(TRIPLE).join(profile).join("millpond"),
        triple: TRIPLE.to_string(),
        profile: None,
        machine: Machine::Arm64,
    })
}

fn tool(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// A program for arm64, to be run here.
pub(super) fn run(program: &Path) -> Command {
    let mut command = Command::new(QEMU);
    command.args(["-L", C_LIBRARY]).arg(program);
    command
}

/// The kernel's order to run programs for arm64 by qemu (`binfmt_misc`); it is taken back when
/// dropped.
pub(super) struct Runner(Option<PathBuf>);

/// Orders to the kernel about programs of other kinds.
const ORDERS: &str = "/proc/sys/fs/binfmt_misc";

/// The name of the order.
const ORDER: &str = "millpond-arm64";

/// The begin of an ELF file for arm64, and the bits of it that count.
const MAGIC: (&str, &str) = (
    "\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00",
    "\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff",
);

impl Runner {
    /// Gives the order, unless another one does the same already.
    pub(super) fn register() -> Result<Runner> {
        if std::env::consts::ARCH == "aarch64" || Path::new(ORDERS).join("qemu-aarch64").exists() {
            return Ok(Runner(None));
        }
        let register = Path::new(ORDERS).join("register");
        if !register.exists() {
            let mut mount = Command::new("mount");
            said(mount.args(["-t", "binfmt_misc", "binfmt_misc", ORDERS]))
                .context("the kernel runs no programs of another kind")?;
        }
        let qemu = said(Command::new("sh").args(["-c", "command -v \"$0\"", QEMU]))?;
        // F: opened now, so that it need not be in the container.
        let (magic, mask) = MAGIC;
        let order = format!(":{ORDER}:M::{magic}:{mask}:{}:F", qemu.trim());
        fs::write(register, order).context("the order about arm64")?;
        Ok(Runner(Some(Path::new(ORDERS).join(ORDER))))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(order) = &self.0 {
            let _ = fs::write(order, "-1");
        }
    }
}

/// The loader and the libraries that a program wants, each with its place below the root of an
/// image.
pub(super) fn libraries(program: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let loader = "ld-linux-aarch64.so.1".to_string();
    let mut found = BTreeSet::from([loader.clone()]);
    let mut left = vec![program.to_path_buf(), library(&loader)];
    while let Some(file) = left.pop() {
        let told = said(Command::new("readelf").args(["-W", "-d"]).arg(&file))?;
        for name in told.lines().filter_map(wanted_library) {
            if found.insert(name.to_string()) {
                left.push(library(name));
            }
        }
    }
    let names = found.iter();
    Ok(names
        .map(|name| (library(name), Path::new("lib").join(name)))
        .collect())
}

fn library(name: &str) -> PathBuf {
    Path::new(C_LIBRARY).join("lib").join(name)
}

/// The library in a line of a program's dynamic section.
fn wanted_library(line: &str) -> Option<&str> {
    let rest = line.split_once("(NEEDED)")?.1;
    rest.split_once('[')?.1.split_once(']').map(|it| it.0)
}

/// The folder that the compiler was unpacked into, as a root; it is brought if it is not there.
fn compiler() -> Result<PathBuf> {
    let root = workspace::root().join("target/tools/arm64");
    if root.is_dir() {
        return Ok(root);
    }
    println!("package: Debian's rustc-web is unpacked into target/tools/arm64");
    let folder = target().join("arm64-apt");
    for name in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(name))?;
    }
    // Lists of their own: the machine's need not have packages for arm64.
    let host = said(Command::new("dpkg").arg("--print-architecture"))?;
    let text = format!(
        "APT::Architectures {{ \"{}\"; \"arm64\"; }};\nDir::State \"{at}/state\";\n\
         Dir::Cache \"{at}/cache\";\nDir::State::status \"/var/lib/dpkg/status\";\n",
        host.trim(),
        at = folder.display()
    );
    fs::write(folder.join("apt.conf"), text)?;
    let apt = |program: &str| {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", folder.join("apt.conf"));
        command.current_dir(&folder);
        command
    };
    said(apt("apt-get").args(["-qq", "update"]))?;
    let mut names: BTreeSet<String> = COMPILER.map(str::to_string).into();
    names.extend(wanted(&said(apt("apt-cache").args([
        "depends",
        "--recurse",
        "--no-recommends",
        "--no-suggests",
        "--no-enhances",
        "--no-conflicts",
        "--no-breaks",
        "--no-replaces",
        COMPILER[0],
    ]))?));
    said(apt("apt-get").args(["-qq", "download"]).args(&names))?;
    let half = root.with_extension("half");
    for entry in fs::read_dir(&folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|it| it == "deb") {
            said(Command::new("dpkg-deb").arg("-x").args([&file, &half]))?;
        }
    }
    fs::rename(&half, &root)?;
    Ok(root)
}

/// The libraries among the packages that a list of apt-cache names.
fn wanted(list: &str) -> impl Iterator<Item = String> {
    let is_own = |line: &&str| OWN_LIBRARIES.iter().any(|it| line.starts_with(it));
    list.lines().filter(is_own).map(ToString::to_string)
}

/// The folders of the compiler's own libraries.
fn libraries_of(compiler: &Path) -> Result<String> {
    let lib = compiler.join("usr/lib");
    let mut folders = vec![lib.clone()];
    for entry in fs::read_dir(&lib)? {
        let path = entry?.path();
        // Debian has one for each kind of machine, and each LLVM has its own.
        folders.extend(
            [path.join("lib"), path]
                .into_iter()
                .filter(|it| it.is_dir()),
        );
    }
    let folders: Vec<String> = folders.iter().map(|it| it.display().to_string()).collect();
    Ok(folders.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_stand_in_the_dynamic_section() {
        let line = " 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]";
        assert_eq!(wanted_library(line), Some("libc.so.6"));
        assert_eq!(
            wanted_library(" 0x01d (RUNPATH)  Library runpath: [/x]"),
            None
        );
    }

    #[test]
    fn the_compiler_brings_its_own_libraries() {
        let list = "rustc-web\n  Depends: libllvm22\nlibc6\nlibllvm22\nlibstd-rust-web-1.96\n";
        let names: Vec<String> = wanted(list).collect();
        assert_eq!(names, ["libllvm22", "libstd-rust-web-1.96"]);
    }
}
