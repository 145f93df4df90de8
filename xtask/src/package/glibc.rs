//! The C library that packages want: glibc 2.34, as RHEL 9 and its like have it, where they are
//! built on Debian 12.
//!
//! ```text
//! packaging/glibc.c ──cc──► object ──► linker, --wrap=NAME ──► NAME@GLIBC_2.2.5, not 2.35
//! ```
//!
//! 1. A symbol of the program that is newer than the bound is one of `WRAPPED`: whatever brings
//!    another fails the check, by its name.
//!
//! The quick build is linked as cargo does it, since it stays on the machine that made it.

use super::build::{Build, Built, Machine};
use super::check::{Checked, said};
use super::target;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The newest version of glibc that packages may want.
const NEWEST: Version = (2, 34);

/// Functions of packaging/glibc.c.
const WRAPPED: [&str; 1] = ["hypot"];

type Version = (u32, u32);

/// Flags of the compiler for a program that wants no newer C library.
pub(super) fn flags(machine: Machine) -> Result<String> {
    let object = object(machine)?;
    let wrap = WRAPPED.map(|name| format!(" -Clink-arg=-Wl,--wrap={name}"));
    Ok(format!(" -Clink-arg={object}{}", wrap.concat()))
}

/// Compiles the functions, and gives the path.
fn object(machine: Machine) -> Result<String> {
    let object = target().join(match machine {
        Machine::Here => "glibc.o",
        Machine::Arm64 => "glibc-arm64.o",
    });
    fs::create_dir_all(target())?;
    let mut compile = machine.tool("gcc");
    compile.args(["-O2", "-fPIC", "-c", "-o"]).arg(&object);
    said(compile.arg(workspace::root().join("packaging/glibc.c")))?;
    Ok(object.display().to_string())
}

/// Says what a program that is packed wants, and fails if that is more than was promised; the quick
/// build promises nothing.
pub(super) fn tell(built: &Built, build: &Build) -> Result<()> {
    let symbols = symbols(&built.path)?;
    let newest = symbols.iter().map(|(_, version)| *version).max();
    let (major, minor) = newest.context("the program wants no C library")?;
    println!("package: the program wants glibc {major}.{minor} or a newer one");
    let more = newer(&symbols, &WRAPPED[..0]);
    let is_bound = *build != Build::Quick && is_debian_12();
    ensure!(!is_bound || more.is_empty(), "because of {more:?}");
    Ok(())
}

/// The program wants nothing that is newer than the bound but what is wrapped, and wrapping helps.
pub(super) fn check(program: &Path) -> Result<Checked> {
    if !is_debian_12() {
        return Ok(Checked::No(
            "Debian 12, where packages are built".to_string(),
        ));
    }
    let more = newer(&symbols(program)?, &WRAPPED);
    ensure!(
        more.is_empty(),
        "{more:?} would keep packages from machines with glibc {NEWEST:?}: wrap them in \
         packaging/glibc.c"
    );
    let source = target().join("hypot.c");
    let text = "double hypot(double, double);\n\
                int main(int count, char **words) {\n\
                    return hypot(3.0 * count, 4.0 * count) != 5.0 * count;\n}\n";
    fs::write(&source, text)?;
    let small = target().join("hypot");
    let wrap = WRAPPED.map(|name| format!("-Wl,--wrap={name}"));
    for (args, expected) in [(&[][..], 1), (&wrap[..], 0)] {
        let mut link = Command::new("cc");
        link.arg("-fno-builtin")
            .arg(&source)
            .arg(object(Machine::Here)?);
        said(link.args(args).args(["-lm", "-o"]).arg(&small))?;
        let found = newer(&symbols(&small)?, &[]);
        ensure!(found.len() == expected, "linked with {args:?}: {found:?}");
        said(&mut Command::new(&small))?;
    }
    Ok(Checked::Yes)
}

fn is_debian_12() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let has = |wanted: &str| release.lines().any(|line| line == wanted);
    has("ID=debian") && has("VERSION_ID=\"12\"")
}

/// Names of symbols that are newer than the bound, without those that are known.
fn newer(symbols: &[(String, Version)], known: &[&str]) -> Vec<String> {
    let found = symbols
        .iter()
        .filter(|(name, version)| *version > NEWEST && !known.contains(&name.as_str()));
    found.map(|(name, _)| name.clone()).collect()
}

/// Symbols of glibc that a program wants, with their versions.
fn symbols(program: &Path) -> Result<Vec<(String, Version)>> {
    let table = said(
        Command::new("readelf")
            .args(["-W", "--dyn-syms"])
            .arg(program),
    )?;
    Ok(table.lines().filter_map(symbol).collect())
}

/// The symbol in a line of the table, if it is one of glibc.
fn symbol(line: &str) -> Option<(String, Version)> {
    let word = line
        .split_whitespace()
        .find(|word| word.contains("@GLIBC_"))?;
    let (name, version) = word.split_once("@GLIBC_")?;
    let mut parts = version.split('.').map(str::parse);
    let (major, minor) = (parts.next()?.ok()?, parts.next()?.ok()?);
    Some((name.to_string(), (major, minor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_the_c_library_have_versions() {
        let of = |name: &str| {
            format!("   158: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND {name} (31)")
        };
        for (name, expected) in [
            ("hypot@GLIBC_2.35", Some(("hypot", (2, 35)))),
            ("open@GLIBC_2.2.5", Some(("open", (2, 2)))),
            ("secret@GLIBC_PRIVATE", None),
            ("_Unwind_Resume@GCC_3.0", None),
            ("main", None),
        ] {
            let read = symbol(&of(name));
            let found = read
                .as_ref()
                .map(|(name, version)| (name.as_str(), *version));
            assert_eq!(found, expected);
        }
        let table = [("hypot", (2, 35)), ("dlsym", (2, 34)), ("fmod", (2, 38))];
        let all = table.map(|(name, version)| (name.to_string(), version));
        assert_eq!(newer(&all, &[]), ["hypot", "fmod"]);
        assert_eq!(newer(&all, &["hypot"]), ["fmod"]);
    }
}
