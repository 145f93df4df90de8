//! Machines for checks: containers that boot with systemd, by `systemd-nspawn`.
//!
//! A machine has no network but its own loopback. Its root is a folder that is made once.

use super::check::said;
use super::ignore_missing;
use crate::needs::Needs;
use crate::pace::Pace;
use crate::tally::Tally;
use anyhow::{Context, Result};
use millpond_testkit::Deadline;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The longest that a boot, or an end, may take.
const WAIT: Duration = Duration::from_secs(60);

/// Asks for the page until it is told to end, and tells how often that failed.
pub(super) const LOAD: &str = "bad=0; ok=0; while [ ! -e /root/stop ]; do \
     if curl -sf -o /dev/null http://127.0.0.1/; then ok=$((ok+1)); else bad=$((bad+1)); fi; done; \
     echo $ok answered, $bad failed";

/// A check by its name, which begins where the one before ended.
pub(super) type Step<T> = (&'static str, fn(&T) -> Result<()>);

/// Makes the checks of a task in their order; those that fail are named.
pub(super) fn make_steps<T>(task: &str, subject: &T, steps: &[Step<T>]) -> Tally {
    let mut tally = Tally::default();
    for (name, step) in steps {
        let outcome = step(subject);
        if let Err(error) = &outcome {
            println!("package --{task}: {name}: {error:#}");
        }
        tally += Tally::from(outcome.is_ok());
    }
    tally
}

/// The fate of what a machine changes in its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Changes stay in the folder.
    Kept,
    /// Changes go with the machine, so that several have one root.
    Forgotten,
}

/// The things that are missing to boot a machine.
pub(super) fn missing() -> Needs {
    Needs::of(&["systemd-nspawn", "mmdebstrap", "nsenter"]).and_root()
}

/// Makes the root of a machine with some packages, once.
pub(super) fn bootstrap(root: &Path, packages: &str, pace: Pace) -> Result<()> {
    if root.exists() {
        return Ok(());
    }
    let release = fs::read_to_string("/etc/os-release")?;
    let names = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let new = root.with_extension("new");
    fs::remove_dir_all(&new).or_else(ignore_missing)?;
    fs::create_dir_all(new.parent().context("a root of a machine has a place")?)?;
    println!("package: a machine is made (a minute)");
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=minbase"]);
    command.arg(format!("--include=systemd,systemd-sysv,dbus,{packages}"));
    command.arg(names.unwrap_or("stable")).arg(&new);
    said(&mut pace.of(command))?;
    Ok(fs::rename(new, root)?)
}

/// A machine that runs; it is switched off when dropped.
pub(super) struct Machine {
    container: Child,
    /// The process that is the machine's first, as this machine numbers it.
    pub(super) leader: String,
}

impl Machine {
    pub(super) fn boot(root: &Path, changes: Root) -> Result<Machine> {
        let mut command = Command::new("systemd-nspawn");
        command.args([
            "-q",
            "--register=no",
            "--keep-unit",
            "--private-network",
            "--boot",
        ]);
        if changes == Root::Forgotten {
            command.arg("--volatile=overlay");
        }
        let container = command
            .arg("-D")
            .arg(root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let children = format!("/proc/{0}/task/{0}/children", container.id());
        let mut machine = Machine {
            container,
            leader: String::new(),
        };
        // The first child is another one for a moment.
        let is_up = || {
            let text = fs::read_to_string(&children).ok()?;
            machine.leader = text.split_whitespace().next()?.to_string();
            let state = machine
                .command("systemctl is-system-running")
                .output()
                .ok()?;
            let word = String::from_utf8_lossy(&state.stdout).trim().to_string();
            ["running", "degraded"]
                .contains(&word.as_str())
                .then_some(())
        };
        Deadline::after(WAIT)
            .poll(is_up)
            .context("it does not boot")?;
        Ok(machine)
    }

    /// A script to be run on the machine.
    pub(super) fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "-t",
            &self.leader,
            "-m",
            "-u",
            "-i",
            "-n",
            "-p",
            "sh",
            "-ec",
            script,
        ]);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null());
        command
    }

    pub(super) fn run(&self, script: &str) -> Result<String> {
        Ok(said(&mut self.command(script))?.trim().to_string())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Whatever is left of it is killed.
        let _ = self.command("systemctl poweroff").output();
        let ended = || self.container.try_wait().ok().flatten();
        if Deadline::after(WAIT).poll(ended).is_none() {
            let _ = self.container.kill();
            let _ = self.container.wait();
        }
    }
}
