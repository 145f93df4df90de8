//! `cargo xtask package --boot [--release] [--upgrades N]`: the Debian package on a machine of its
//! own, a container that boots with systemd.
//!
//! ```text
//! mmdebstrap ──► root ──systemd-nspawn──► install, reload, upgrade under load, sockets, purge,
//!                                        install from a repository
//! ```
//!
//! It takes a minute or two and the network the first time. Its root is kept below
//! `target/package/boot`. `cargo xtask test` makes the same steps where a machine can be booted:
//! nothing else shows that the service lives within the bounds of its unit. The container has no
//! network but its own loopback.

use super::check::package;
use super::nspawn::{self, LOAD, Machine, Root, Step};
use super::repository::publish;
use super::repository_check::Made;
use super::{Build, Compression, build, ignore_missing, pack, stage, target, tools};
use crate::pace::Pace;
use crate::tally::Tally;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

/// Upgrades under load, unless more are asked for.
const UPGRADES: usize = 5;

/// The machine, and how it is tried.
struct Bed {
    machine: Machine,
    upgrades: usize,
}

/// Runs the steps, each of which is a check.
pub(super) fn run(args: &[String]) -> Result<Tally> {
    let (mut build, mut upgrades) = (Build::Quick, UPGRADES);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--release" => build = Build::Release,
            "--upgrades" => {
                let count = args.next().context("--upgrades wants a number")?;
                upgrades = count.parse().context("--upgrades wants a number")?;
            }
            _ => bail!("`package --boot` does not know {arg}"),
        }
    }
    nspawn::missing().met("package --boot")?;
    tools::install(Pace::Full)?;
    let folder = target().join("boot");
    let staged = stage::make(&build::dynamic(&build)?, &folder)?;
    let out = folder.join("out");
    pack(&staged, &out, Compression::Fast)?;
    prepare(Pace::Full)?;
    try_on(&out, Machine::boot(&root(), Root::Kept)?, upgrades)
}

/// Makes the root of the machine, if there is none.
pub(super) fn prepare(pace: Pace) -> Result<()> {
    nspawn::missing().met("a machine that boots")?;
    nspawn::bootstrap(&root(), PACKAGES, pace)
}

/// Packages of the machine, beside those that boot it.
const PACKAGES: &str = "openssl,curl,logrotate,procps";

fn root() -> PathBuf {
    target().join("boot/root")
}

/// Users on kept connections who compare every byte, until they are told to end; the requests, and
/// how many rounds found a fault, which is told.
const GAUGE: &str = "bad=0; ok=0; while [ ! -e /root/stop ]; do \
     if told=$(millpond gauge run given --url http://127.0.0.1 --path / --users 4 --time 2s 2>&1); \
     then ok=$((ok+$(echo \"$told\" | sed -n 's/.* users, \\([0-9]*\\) requests.*/\\1/p'))); \
     else bad=$((bad+1)); echo \"$told\" >&2; fi; done; \
     echo $ok answered, $bad failed";

/// Upgrades in `cargo xtask test`.
const FEW_UPGRADES: usize = 2;

/// Tries packages that were made, where a machine was made for that and can be booted.
pub(super) fn check(out: &Path) -> Result<Tally> {
    let made = (!root().exists()).then(|| "`cargo xtask setup`".to_string());
    let lacks = nspawn::missing().and(made).told();
    let booted = match lacks {
        Some(what) => Err(what),
        None => Machine::boot(&root(), Root::Kept)
            .map_err(|error| format!("a machine that may boot another ({error:#})")),
    };
    match booted {
        Ok(machine) => try_on(out, machine, FEW_UPGRADES),
        Err(what) => {
            println!("package: booted machine: skipped, it needs {what}");
            Ok(Tally::SKIP)
        }
    }
}

/// Makes the steps on a machine with the packages of a folder.
fn try_on(out: &Path, machine: Machine, upgrades: usize) -> Result<Tally> {
    let root = root();
    fs::copy(package(out, "millpond_", ".deb")?, root.join("root/a.deb"))?;
    let repository = root.join("root/repository");
    fs::remove_dir_all(&repository).or_else(ignore_missing)?;
    publish(out, &repository, &Made::new("boot")?.signer)?;
    let bed = Bed { machine, upgrades };
    Ok(nspawn::make_steps("boot", &bed, &STEPS))
}

const STEPS: [Step<Bed>; 7] = [
    ("install", install),
    ("hardening", hardening),
    ("reload", reload),
    ("upgrade", upgrade),
    ("sockets", sockets),
    ("purge", purge),
    ("repository", repository),
];

const STATUS: &str = "curl -si http://127.0.0.1/ | grep -i '^x-cache'";

/// The worst exposure that `systemd-analyze security` may find, in tenths.
const EXPOSURE: u32 = 16;

/// The service runs when it is installed, and serves from the cache.
fn install(Bed { machine, .. }: &Bed) -> Result<()> {
    machine.run("dpkg -P millpond; rm -f /root/stop")?;
    let start = Instant::now();
    machine.run("apt-get install -q -y --no-install-recommends /root/a.deb")?;
    ensure!(machine.run(STATUS)?.contains("MISS"), "no first answer");
    ensure!(machine.run(STATUS)?.contains("HIT"), "no hit");
    let seconds = start.elapsed().as_secs_f64();
    println!("package --boot: {seconds:.1} s from apt to the first hit");
    let state = machine.run("systemctl show -P Type -P ActiveState -P StatusText millpond")?;
    ensure!(
        state.contains("notify") && state.contains("active"),
        "{state}"
    );
    machine.run("millpond sensor health && millpond sensor process")?;
    machine.run("logrotate -f /etc/logrotate.d/millpond")?;
    Ok(())
}

/// The installed unit is as hard as it is said to be.
fn hardening(Bed { machine, .. }: &Bed) -> Result<()> {
    let ask =
        format!("systemd-analyze security --no-pager --threshold={EXPOSURE} millpond.service");
    let judged = machine.run(&ask)?;
    println!(
        "package --boot: {}",
        judged.lines().last().unwrap_or_default().trim()
    );
    Ok(())
}

/// apt takes the package from a repository that the operator named, and it serves; the packages of
/// the system stay out of it, since the machine has no network.
fn repository(bed: &Bed) -> Result<()> {
    let machine = &bed.machine;
    let line = "deb [signed-by=/usr/share/keyrings/millpond.asc] file:///root/repository/apt \
                stable main";
    let only = "-o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::sourcelist=/root/millpond.list";
    machine.run(&format!(
        "cp /root/repository/millpond.asc /usr/share/keyrings/; echo '{line}' > /root/millpond.list; \
         chmod -R a+rX /root; apt-get {only} update -q; \
         apt-get {only} install -q -y --no-install-recommends millpond"
    ))?;
    let known = machine.run(&format!("apt-cache {only} policy millpond"))?;
    ensure!(known.contains("file:/root/repository/apt"), "{known}");
    ensure!(machine.run(STATUS)?.contains("X-Cache"), "nobody serves");
    purge(bed)
}

/// A configuration with a mistake is refused, and one without is taken.
fn reload(Bed { machine, .. }: &Bed) -> Result<()> {
    let conf = "/etc/millpond/millpond.conf";
    machine.run(&format!("cp {conf} /root/conf; echo 'tpyo on;' >> {conf}"))?;
    let refused = machine.run("systemctl reload millpond").is_err();
    machine.run(&format!("cp /root/conf {conf}; systemctl reload millpond"))?;
    ensure!(refused, "a mistake was taken");
    Ok(())
}

/// A package that is installed over the one before changes the process and fails no request.
fn upgrade(Bed { machine, upgrades }: &Bed) -> Result<()> {
    let load = |script: &str| machine.command(script).stdout(Stdio::piped()).spawn();
    let loads = [load(LOAD)?, load(GAUGE)?];
    let mut ids = vec![machine.run("systemctl show -P MainPID millpond")?];
    let upgraded: Result<()> = (0..*upgrades).try_for_each(|_| {
        machine.run("dpkg -i /root/a.deb")?;
        ids.push(machine.run("systemctl show -P MainPID millpond")?);
        Ok(())
    });
    machine.run("touch /root/stop")?;
    let outputs = loads.map(|load| load.wait_with_output());
    upgraded?;
    for (name, output) in ["curl", "gauge"].iter().zip(outputs) {
        let told = String::from_utf8_lossy(&output?.stdout).trim().to_string();
        println!("package --boot: {upgrades} upgrades, {name}: {told}");
        ensure!(
            told.ends_with(" 0 failed") && !told.starts_with("0 "),
            "{name}: {told}"
        );
    }
    let count = ids.len();
    ids.dedup();
    ensure!(ids.len() == count, "the process stayed: {ids:?}");
    let restarts = machine.run("systemctl show -P NRestarts millpond")?;
    ensure!(restarts == "0", "{restarts} restarts");
    Ok(())
}

/// Root's socket starts the service, which shares it among its workers.
fn sockets(Bed { machine, .. }: &Bed) -> Result<()> {
    let unit = "/run/systemd/system/millpond.socket";
    machine.run(&format!(
        "printf '[Socket]\\nListenStream=0.0.0.0:80\\n' > {unit}; systemctl daemon-reload; \
         systemctl stop millpond; systemctl start millpond.socket"
    ))?;
    let activated = machine.run(STATUS);
    let state = machine.run("systemctl is-active millpond");
    machine.run(&format!(
        "systemctl stop millpond.socket millpond; rm {unit}; systemctl daemon-reload"
    ))?;
    ensure!(
        activated?.contains("X-Cache") && state? == "active",
        "not activated"
    );
    Ok(())
}

/// Nothing is left but the user.
fn purge(Bed { machine, .. }: &Bed) -> Result<()> {
    machine.run("dpkg -P millpond")?;
    for path in [
        "/etc/millpond",
        "/var/cache/millpond",
        "/var/lib/millpond",
        "/var/log/millpond",
        "/run/millpond",
    ] {
        machine.run(&format!("test ! -e {path}")).context(path)?;
    }
    Ok(())
}
