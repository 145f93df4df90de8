//! The stage: a folder with everything that is packed, under names of its own.
//!
//! Files of the repository are copied, man pages and completions are written, the binary is
//! divided into program and symbols (`symbols.rs`), and the manifest for the packagers is put
//! beside them.

use super::build::{Built, Machine};
use super::check::said;
use super::{
    commands, completions, files, ignore_missing, inventory, manifest, manual, symbols, vim,
};
use crate::workspace;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that was staged, and what its files have in common.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) folder: PathBuf,
    pub(super) version: String,
    /// The triple of the machines that it is for.
    pub(super) triple: String,
    /// Seconds since 1970 that every file's time is.
    pub(super) epoch: u64,
}

impl Stage {
    /// The kind of processor, as kernel and RPM call it.
    pub(super) fn processor(&self) -> &str {
        self.triple.split('-').next().unwrap_or_default()
    }

    /// A packer that works on it, with its time.
    pub(super) fn packer(&self, mut command: Command) -> Command {
        command
            .current_dir(&self.folder)
            .env("SOURCE_DATE_EPOCH", self.epoch.to_string())
            // The stage is a workspace of its own, whatever it lies in.
            .env_remove("CARGO_TARGET_DIR");
        command
    }
}

/// Copies of files: source in the repository, name in the stage.
const COPIES: &[(&str, &str)] = &[
    ("packaging/change-binary", "change-binary"),
    ("packaging/millpond.sysusers", "millpond.sysusers"),
    ("packaging/millpond.tmpfiles", "millpond.tmpfiles"),
    ("packaging/millpond.logrotate", "millpond.logrotate"),
    ("packaging/millpond.conf", "etc/millpond.conf"),
    ("packaging/welcome/index.html", "welcome/index.html"),
    ("conf/mime.types", "etc/mime.types"),
    ("conf/fastcgi.conf", "etc/fastcgi.conf"),
    ("conf/fastcgi_params", "etc/fastcgi_params"),
    ("conf/scgi_params", "etc/scgi_params"),
    ("conf/uwsgi_params", "etc/uwsgi_params"),
    ("README.md", "doc/README.md"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
    ("LICENSE-MIT", "LICENSE-MIT"),
];

/// Folders that are copied whole.
const FOLDERS: &[(&str, &str)] = &[
    ("packaging/debian", "debian"),
    ("packaging/rpm", "rpm"),
    ("conf/examples", "doc/examples"),
    ("contrib/grafana", "doc/grafana"),
    ("contrib/icinga2", "doc/icinga2"),
    ("contrib/nagios", "doc/nagios"),
    ("contrib/prometheus", "doc/prometheus"),
    ("contrib/sudoers", "doc/sudoers"),
    ("contrib/zabbix", "doc/zabbix"),
];

/// Everything that is packed of one build.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    /// The program and all else.
    pub(super) program: Stage,
    pub(super) symbols: Stage,
    /// The list of its crates, in the form of CycloneDX.
    pub(super) bom: String,
}

/// Stages a program that was built, and all else, in a folder of its own below `target`.
pub(super) fn make(built: &Built, target: &Path) -> Result<Staged> {
    let program = Stage {
        triple: built.triple.clone(),
        ..make_texts((&built.path, built.machine), target)?
    };
    let inventory = inventory::Inventory::of(&built.triple)?;
    let symbols = symbols::split(built, &program)?;
    add_section(built.machine, &program.folder, &inventory.section()?)?;
    let bom = inventory.cyclonedx(&date(program.epoch, "+%Y-%m-%dT%H:%M:%SZ")?)?;
    Ok(Staged {
        program,
        symbols,
        bom,
    })
}

/// Puts the list of crates into the program of a stage.
fn add_section(machine: Machine, folder: &Path, bytes: &[u8]) -> Result<()> {
    let list = folder.join("dep-v0");
    fs::write(&list, bytes)?;
    let mut add = machine.tool("objcopy");
    add.arg(format!("--add-section=.dep-v0={}", list.display()));
    add.arg("--set-section-flags=.dep-v0=noload,readonly");
    said(add.arg(folder.join("millpond")))?;
    Ok(())
}

/// Stages all but the binary, which is asked for its help.
pub(super) fn make_texts(program: (&Path, Machine), target: &Path) -> Result<Stage> {
    let stage = Stage {
        folder: target.join("stage"),
        version: env!("CARGO_PKG_VERSION").to_string(),
        triple: workspace::host()?,
        epoch: epoch()?,
    };
    let folder = &stage.folder;
    fs::remove_dir_all(folder).or_else(ignore_missing)?;
    for (from, to) in COPIES {
        copy(&workspace::root().join(from), &folder.join(to))?;
    }
    for (from, to) in FOLDERS {
        for entry in fs::read_dir(workspace::root().join(from))? {
            let path = entry?.path();
            copy(
                &path,
                &folder.join(to).join(path.file_name().unwrap_or_default()),
            )?;
        }
    }
    let unit = fs::read_to_string(workspace::root().join("contrib/millpond.service"))?;
    write(
        &folder.join(files::UNITS).join("millpond.service"),
        &of_package(&unit),
    )?;
    let all = commands::all(program)?;
    for (name, text) in manual::pages(&all, &date(stage.epoch, "+%Y-%m-%d")?)? {
        write(&folder.join("man").join(name), &text)?;
    }
    for (name, text) in completions::all(&all)? {
        write(&folder.join("completions").join(name), &text)?;
    }
    vim::stage(&stage)?;
    manifest::write(&stage, &date(stage.epoch, "-R")?)?;
    Ok(stage)
}

/// The unit with the program where a package puts it, and without how to do that by hand.
fn of_package(unit: &str) -> String {
    let is_by_hand = |line: &&str| line.starts_with("#   ");
    let lines: Vec<&str> = unit.lines().filter(|line| !is_by_hand(line)).collect();
    lines.join("\n").replace("/usr/local/bin/", "/usr/bin/") + "\n"
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// The time of the commit, unless SOURCE_DATE_EPOCH names another.
fn epoch() -> Result<u64> {
    if let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") {
        return text.parse().context("SOURCE_DATE_EPOCH is no number");
    }
    let output = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(workspace::root())
        .output();
    let said = output
        .context("git, or SOURCE_DATE_EPOCH, must say the time")?
        .stdout;
    let text = String::from_utf8(said)?;
    text.trim().parse().context("the commit has no time")
}

/// A time in a format of `date`.
fn date(epoch: u64, format: &str) -> Result<String> {
    let output = Command::new("date")
        .args(["-u", "-d", &format!("@{epoch}"), format])
        .env("LC_ALL", "C")
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_string())
}
