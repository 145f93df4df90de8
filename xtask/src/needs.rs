//! The programs that packing and its checks run, and what installs those that are missing.
//!
//! A task that was asked for by name and lacks a program fails, and says what to install. What
//! `cargo xtask test` makes of the same is skipped and counted as that (`check.rs`).

use crate::packages;
use anyhow::{Result, bail};
use std::env;
use std::path::Path;

/// Programs, and Debian's package of each.
const PACKAGES: &[(&str, &str)] = &[
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("ansible-playbook", "ansible-core"),
    ("apt-ftparchive", "apt-utils"),
    ("apt-get", "apt"),
    ("createrepo_c", "createrepo-c"),
    ("dnf", "dnf"),
    ("dpkg", "dpkg"),
    ("dpkg-deb", "dpkg"),
    ("gpg", "gpg"),
    ("h2load", "nghttp2-client"),
    ("lintian", "lintian"),
    ("mmdebstrap", "mmdebstrap"),
    ("musl-gcc", "musl-tools"),
    ("nsenter", "util-linux"),
    ("objcopy", "binutils"),
    ("openssl", "openssl"),
    ("podman", "podman"),
    ("qemu-aarch64-static", "qemu-user-static"),
    ("readelf", "binutils"),
    ("rpm", "rpm"),
    ("rpmsign", "rpm"),
    ("runc", "runc"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("strip", "binutils"),
    ("systemd-nspawn", "systemd-container"),
    ("wrk", "wrk"),
];

/// The things that a task cannot do without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Programs that are not there.
    programs: Vec<&'static str>,
    /// Other things, each with what helps.
    others: Vec<String>,
}

impl Needs {
    /// The programs of a list that are not there.
    pub(crate) fn of(programs: &[&'static str]) -> Needs {
        let missing = programs.iter().filter(|it| !has(it));
        Needs {
            programs: missing.copied().collect(),
            others: Vec::new(),
        }
    }

    /// Adds root, if this is another user.
    pub(crate) fn and_root(mut self) -> Needs {
        if !packages::is_root() {
            self.others.push("root (this is another user)".to_string());
        }
        self
    }

    /// Adds a thing that is missing.
    pub(crate) fn and(mut self, other: Option<String>) -> Needs {
        self.others.extend(other);
        self
    }

    /// Adds what another task needs.
    pub(crate) fn and_those(mut self, more: Needs) -> Needs {
        self.programs.extend(more.programs);
        self.others.extend(more.others);
        self
    }

    /// Fails for a task that cannot run, with what to install.
    pub(crate) fn met(&self, task: &str) -> Result<()> {
        match self.told() {
            Some(told) => bail!("{task} needs {told}"),
            None => Ok(()),
        }
    }

    /// The things that are missing and what installs them; nothing, if nothing is missing.
    pub(crate) fn told(&self) -> Option<String> {
        let names = self.programs.iter().map(ToString::to_string);
        let all: Vec<String> = names.chain(self.others.iter().cloned()).collect();
        if all.is_empty() {
            return None;
        }
        let mut told = all.join(", ");
        let mut install: Vec<&str> = self.programs.iter().map(|it| package(it)).collect();
        install.sort_unstable();
        install.dedup();
        if !install.is_empty() {
            told += &format!(": apt-get install {}", install.join(" "));
        }
        Some(told)
    }
}

/// Debian's package of a program; one that the table lacks is called like it.
fn package(program: &'static str) -> &'static str {
    let known = PACKAGES.iter().find(|(name, _)| *name == program);
    known.map_or(program, |(_, package)| package)
}

/// True if a program is in a folder of PATH.
pub(crate) fn has(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // Debian keeps programs of root where others do not look.
    let more = ["/usr/sbin", "/sbin"].map(Path::new);
    let mut folders = env::split_paths(&path).chain(more.map(Path::to_path_buf));
    folders.any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_installs_it() {
        let missing = |programs: &[&'static str]| Needs {
            programs: programs.to_vec(),
            others: Vec::new(),
        };
        for (needs, expected) in [
            (missing(&[]), None),
            (
                missing(&["systemd-nspawn", "mmdebstrap"]),
                Some("systemd-nspawn, mmdebstrap: apt-get install mmdebstrap systemd-container"),
            ),
            (
                missing(&["ssh", "ssh-keygen"]),
                Some("ssh, ssh-keygen: apt-get install openssh-client"),
            ),
            (
                missing(&["musl-gcc"]).and(Some("root".to_string())),
                Some("musl-gcc, root: apt-get install musl-tools"),
            ),
            (missing(&[]).and(Some("rustup".to_string())), Some("rustup")),
        ] {
            assert_eq!(needs.told().as_deref(), expected);
        }
    }

    #[test]
    fn only_what_path_has_is_there() {
        assert!(has("sh") && !has("no-such-program"));
        let needs = Needs::of(&["sh", "no-such-program"]);
        let error = needs.met("package --boot").unwrap_err().to_string();
        assert_eq!(
            error,
            "package --boot needs no-such-program: apt-get install no-such-program"
        );
        assert!(Needs::of(&["sh"]).met("package --boot").is_ok());
    }
}
