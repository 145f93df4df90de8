//! The files of the packages: where each comes from, where it goes, and whose it is then.
//!
//! Sources are relative to the folder that was staged (`stage.rs`). A source with a star stands for
//! all files of a folder with that ending.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The part that a file has in an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A program or script.
    Program,
    /// A file that belongs to the package.
    Data,
    /// A file that belongs to the operator once it is there.
    Configuration,
    /// The unit, which Debian's packager finds by itself.
    Unit,
}

impl Kind {
    pub(super) fn mode(self) -> u32 {
        match self {
            Kind::Program => 0o755,
            Kind::Data | Kind::Configuration | Kind::Unit => 0o644,
        }
    }
}

/// Source, destination (a folder if it ends with a slash), kind.
pub(super) type Line = (&'static str, &'static str, Kind);

/// Folder of the unit, in the stage.
pub(super) const UNITS: &str = "units";

pub(super) const FILES: &[Line] = &[
    ("millpond", "usr/bin/", Kind::Program),
    ("change-binary", "usr/lib/millpond/", Kind::Program),
    (
        "units/millpond.service",
        "usr/lib/systemd/system/",
        Kind::Unit,
    ),
    (
        "millpond.sysusers",
        "usr/lib/sysusers.d/millpond.conf",
        Kind::Data,
    ),
    (
        "millpond.tmpfiles",
        "usr/lib/tmpfiles.d/millpond.conf",
        Kind::Data,
    ),
    (
        "millpond.logrotate",
        "etc/logrotate.d/millpond",
        Kind::Configuration,
    ),
    ("etc/millpond.conf", "etc/millpond/", Kind::Configuration),
    ("etc/mime.types", "etc/millpond/", Kind::Configuration),
    ("etc/fastcgi.conf", "etc/millpond/", Kind::Configuration),
    ("etc/fastcgi_params", "etc/millpond/", Kind::Configuration),
    ("etc/scgi_params", "etc/millpond/", Kind::Configuration),
    ("etc/uwsgi_params", "etc/millpond/", Kind::Configuration),
    ("welcome/*.html", "usr/share/millpond/welcome/", Kind::Data),
    ("man/*.8", "usr/share/man/man8/", Kind::Data),
    ("man/*.5", "usr/share/man/man5/", Kind::Data),
    (
        "completions/millpond",
        "usr/share/bash-completion/completions/",
        Kind::Data,
    ),
    (
        "completions/_millpond",
        "usr/share/zsh/vendor-completions/",
        Kind::Data,
    ),
    (
        "completions/millpond.fish",
        "usr/share/fish/vendor_completions.d/",
        Kind::Data,
    ),
    (
        "vim/syntax/millpond.vim",
        "usr/share/vim/vimfiles/syntax/",
        Kind::Data,
    ),
    (
        "vim/ftdetect/millpond.vim",
        "usr/share/vim/vimfiles/ftdetect/",
        Kind::Data,
    ),
    (
        "vim/ftplugin/millpond.vim",
        "usr/share/vim/vimfiles/ftplugin/",
        Kind::Data,
    ),
    ("doc/README.md", "usr/share/doc/millpond/", Kind::Data),
    (
        "doc/examples/*.conf",
        "usr/share/doc/millpond/examples/",
        Kind::Data,
    ),
    (
        "doc/grafana/*.json",
        "usr/share/doc/millpond/grafana/",
        Kind::Data,
    ),
    (
        "doc/icinga2/*.conf",
        "usr/share/doc/millpond/icinga2/",
        Kind::Data,
    ),
    (
        "doc/nagios/*.cfg",
        "usr/share/doc/millpond/nagios/",
        Kind::Data,
    ),
    (
        "doc/prometheus/*.yml",
        "usr/share/doc/millpond/prometheus/",
        Kind::Data,
    ),
    (
        "doc/sudoers/*",
        "usr/share/doc/millpond/sudoers/",
        Kind::Data,
    ),
    ("doc/zabbix/*", "usr/share/doc/millpond/zabbix/", Kind::Data),
];

/// Copies the files to where they go below a folder.
pub(super) fn copy(stage: &Path, to: &Path) -> Result<()> {
    for (from, place, kind) in FILES {
        for source in sources(stage, from)? {
            let target = if place.ends_with('/') {
                to.join(place).join(source.file_name().unwrap_or_default())
            } else {
                to.join(place)
            };
            let folder = target.parent().unwrap_or(to);
            fs::create_dir_all(folder)?;
            fs::copy(&source, &target).with_context(|| source.display().to_string())?;
            fs::set_permissions(&target, fs::Permissions::from_mode(kind.mode()))?;
        }
    }
    Ok(())
}

/// The files that a source stands for, by name.
pub(super) fn sources(stage: &Path, from: &str) -> Result<Vec<std::path::PathBuf>> {
    let Some((folder, ending)) = from.split_once('*') else {
        return Ok(vec![stage.join(from)]);
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(stage.join(folder)).with_context(|| from.to_string())? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
