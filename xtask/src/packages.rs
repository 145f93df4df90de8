//! The Debian packages that checks and tests need, and how missing ones are installed.
//!
//! As root the missing ones are installed through `apt-get`; otherwise they are named and the run
//! goes on, and suites that need one of them say that they are skipped.
//!
//! Does not start the services of what it installs, and does nothing where there is no `dpkg`.

use anyhow::{Result, bail};
use std::process::{Command, Stdio};

/// Package and what needs it.
const PACKAGES: &[(&str, &str)] = &[
    ("gcc", "building C parts of dependencies"),
    ("g++", "building libFuzzer, for the fuzz targets"),
    ("curl", "checks by hand and in examples"),
    ("sqlite3", "the test of exported databases"),
    ("nginx-extras", "differential tests"),
    ("chromium", "the dashboard's tests"),
    ("ffmpeg", "the foreign suite"),
    ("memcached", "the foreign suite"),
    ("perl", "the foreign suite"),
    ("libio-socket-ssl-perl", "the foreign suite"),
    ("libnet-ssleay-perl", "the foreign suite"),
    ("libcryptx-perl", "the foreign suite"),
    ("libcache-memcached-fast-perl", "the foreign suite"),
    ("libcache-memcached-perl", "the foreign suite"),
    ("libfcgi-perl", "the foreign suite"),
    ("libprotocol-websocket-perl", "the foreign suite"),
    ("libscgi-perl", "the foreign suite"),
    ("prometheus", "tests of metrics, alerts and the dashboard"),
    ("uwsgi-core", "the foreign suite"),
    ("uwsgi-plugin-python3", "the foreign suite"),
    ("valgrind", "the guard of what a hit costs"),
];

/// Installs what is missing when it may, else names it.
pub(crate) fn ensure() -> Result<()> {
    if !runs("dpkg-query", &["--version"]) {
        println!("packages: this is not a Debian system; suites skip what is not there");
        return Ok(());
    }
    let missing: Vec<&(&str, &str)> = PACKAGES
        .iter()
        .filter(|(name, _)| !is_installed(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    for (name, need) in &missing {
        println!("packages: {name} is missing ({need})");
    }
    if !is_root() {
        println!("packages: not root, so nothing is installed; suites skip what is not there");
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    install(&names)
}

/// Whether a package is installed.
fn is_installed(name: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${Status}", name])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout.ends_with(b"ok installed"))
}

/// Whether this process may install packages.
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

/// Whether a program is there and runs.
pub(crate) fn runs(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
