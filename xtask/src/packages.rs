//! The Debian packages that checks and tests need, and `cargo xtask setup`, which installs them.
//!
//! `setup` names what is missing, with what needs it and how it is taken away again, and installs
//! it after a yes, or with `--yes`. `test` names what is missing and goes on without: suites that
//! need it are skipped. Only where `CI=true` says that the machine is for this does it install
//! unasked.
//!
//! Does not start the services of what it installs, and does nothing where there is no `dpkg`.

use crate::pace::Pace;
use crate::tally::Tally;
use crate::{client_libraries, go_programs, package};
use anyhow::{Result, bail, ensure};
use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

/// Package and what needs it.
const PACKAGES: &[(&str, &str)] = &[
    ("gcc", "building C parts of dependencies"),
    ("make", "building OpenSSL"),
    ("g++", "building libFuzzer, for the fuzz targets"),
    ("brotli", "tests of dictionaries, from version 1.1 on"),
    ("zstd", "tests of dictionaries"),
    ("curl", "tests of clients; checks by hand and in examples"),
    ("libssl-dev", "the fuzz targets"),
    ("pkg-config", "the fuzz targets"),
    ("sqlite3", "the test of exported databases"),
    ("gnutls-bin", "tests of clients"),
    ("libcurl3-gnutls", "tests of clients"),
    ("nagios4-core", "tests of monitors"),
    ("nghttp2-client", "tests of clients"),
    ("nginx-extras", "differential tests"),
    ("libnginx-mod-http-brotli-filter", "differential tests"),
    ("libnginx-mod-http-brotli-static", "differential tests"),
    ("libnginx-mod-http-set-misc", "differential tests"),
    ("chromium", "the dashboard's tests; tests of clients"),
    ("ffmpeg", "the foreign suite; tests of clients"),
    ("memcached", "the foreign suite"),
    ("ansible-core", "checks of the role for roll-outs"),
    ("apt-utils", "checks of the repositories of packages"),
    ("createrepo-c", "checks of the repositories of packages"),
    ("dnf", "checks of the repositories of packages"),
    ("gpg", "checks of the repositories of packages"),
    ("icinga2-bin", "tests of monitors"),
    ("lintian", "checks of the package"),
    ("mandoc", "checks of man pages"),
    (
        "mmdebstrap",
        "checks of the package on a machine that boots",
    ),
    ("musl-tools", "packages that need no C library"),
    ("perl", "building OpenSSL; the foreign suite"),
    ("libio-socket-ssl-perl", "the foreign suite"),
    ("libnet-ssleay-perl", "the foreign suite"),
    ("libcryptx-perl", "the foreign suite"),
    ("libcache-memcached-fast-perl", "the foreign suite"),
    ("libcache-memcached-perl", "the foreign suite"),
    ("libfcgi-perl", "the foreign suite"),
    ("libprotocol-websocket-perl", "the foreign suite"),
    ("libscgi-perl", "the foreign suite"),
    ("prometheus", "tests of metrics, alerts and the dashboard"),
    ("python3-yaml", "tests of monitors"),
    ("rpm", "checks of the package"),
    ("shellcheck", "checks of the package's scripts"),
    (
        "systemd-container",
        "checks of the package on a machine that boots",
    ),
    ("uwsgi-core", "the foreign suite"),
    ("uwsgi-plugin-python3", "the foreign suite"),
    ("valgrind", "the guard of what a hit costs"),
];

/// The permission to install missing packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayInstall {
    /// The machine is for this.
    Unasked,
    /// Missing packages are only named.
    Never,
}

impl MayInstall {
    /// The permission that the environment gives: on machines of continuous integration only.
    pub(crate) fn of_environment() -> Self {
        match std::env::var("CI") {
            Ok(value) if value == "true" => MayInstall::Unasked,
            _ => MayInstall::Never,
        }
    }
}

/// Names what is missing, and installs it where that is allowed.
pub(crate) fn ensure(may_install: MayInstall) -> Result<()> {
    let missing = missing();
    let reason = match may_install {
        _ if missing.is_empty() => return Ok(()),
        MayInstall::Unasked if is_root() => return install(&missing),
        MayInstall::Unasked => "this is not root",
        MayInstall::Never => "`cargo xtask setup` installs them",
    };
    println!("packages: {reason}; what needs them is skipped");
    Ok(())
}

/// `cargo xtask setup`: says what it will do, asks, and does it.
pub(crate) fn setup(args: &[String]) -> Result<Tally> {
    let is_agreed = match args {
        [] => false,
        [arg] if arg == "--yes" => true,
        _ => bail!("`setup` takes `--yes` only, not {}", args.join(" ")),
    };
    let missing = missing();
    if missing.is_empty() {
        println!("packages: nothing is missing");
        ensure_tools();
        return Ok(Tally::PASS);
    }
    let names = missing.join(" ");
    println!("\nThis will run, as root:\n\n  apt-get update");
    println!("  apt-get install --no-install-recommends {names}\n");
    println!(
        "and, where there is Go, {}, and {}, and {}, into target/tools.",
        go_programs::names(),
        client_libraries::NAMES,
        package::prepared()
    );
    println!("No service of them is started. `apt-get remove {names}` takes them away again.");
    ensure!(
        is_root(),
        "this is not root: run these commands, or `setup` as root"
    );
    if !is_agreed && !asks()? {
        println!("packages: the answer was no, so nothing is installed");
        return Ok(Tally::SKIP);
    }
    install(&missing)?;
    ensure_tools();
    Ok(Tally::PASS)
}

/// Installs what is no package.
fn ensure_tools() {
    go_programs::ensure(MayInstall::Unasked);
    client_libraries::ensure(MayInstall::Unasked);
    package::prepare(Pace::Full);
}

/// The packages that are missing, which are named with what needs them.
fn missing() -> Vec<&'static str> {
    if !runs("dpkg-query", &["--version"]) {
        println!("packages: this is not a Debian system; what is not there is skipped");
        return Vec::new();
    }
    let missing = PACKAGES.iter().filter(|(name, _)| !is_installed(name));
    missing
        .inspect(|(name, need)| println!("packages: {name} is missing ({need})"))
        .map(|(name, _)| *name)
        .collect()
}

/// Asks who sits before the terminal; nobody else can be asked.
fn asks() -> Result<bool> {
    ensure!(
        std::io::stdin().is_terminal(),
        "nobody can be asked here: `cargo xtask setup --yes` needs no answer"
    );
    print!("Go on? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

/// True if an answer says yes: nothing else does, nor an empty line.
fn is_yes(answer: &str) -> bool {
    matches!(answer.trim(), "y" | "Y" | "yes")
}

/// True if a package is installed.
fn is_installed(name: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${Status}", name])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout.ends_with(b"ok installed"))
}

/// True if this process may install packages.
pub(crate) fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn install(names: &[&str]) -> Result<()> {
    let mut update = apt();
    update.args(["update", "-q"]);
    let mut install = apt();
    install.args(["install", "-q", "-y", "--no-install-recommends"]);
    install.args(names);
    for command in [&mut update, &mut install] {
        if !command.status()?.success() {
            bail!(
                "apt-get ended with an error; install by hand: {}",
                names.join(" ")
            );
        }
    }
    Ok(())
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command
        .stdin(Stdio::null())
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Keeps invoke-rc.d from starting what was installed (nginx would take port 80).
        .env("RUNLEVEL", "1");
    command
}

/// True if a program is there and runs.
pub(crate) fn runs(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_a_yes_installs() {
        for (answer, expected) in [
            ("\n", false),
            ("y\n", true),
            ("Y\n", true),
            ("yes\n", true),
            ("", false),
            ("n\n", false),
            ("what?\n", false),
        ] {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }
}
