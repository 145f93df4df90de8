//! The manifest that cargo-deb and cargo-generate-rpm read: one crate of no code, beside what was
//! staged, with the list of files in the form of each.

use super::files::{FILES, Kind, UNITS, sources};
use super::stage::{Stage, write as write_file};
use anyhow::Result;
use std::fs;

const SUMMARY: &str = "Caching HTTP reverse proxy that runs nginx configurations";
const MAINTAINER: &str = "Millpond developers <millpond@users.noreply.github.com>";
const ABOUT: &str = "Millpond stands in front of a web site or of origins of a CDN. It is configured \
     in nginx's language and has a cache engine of its own: the origin is asked once for what is \
     missing, a range waits only for its own bytes, the size is a hard limit, and a crash leaves \
     the cache warm.";

const SYMBOLS: &str = "Names and lines of the source for perf, gdb and the traces of a panic, which \
     find them by the build id of the program.";

/// Writes the manifest, and the changelog that Debian wants, whose last line has a date (RFC 5322).
pub(super) fn write(stage: &Stage, date: &str) -> Result<()> {
    let folder = &stage.folder;
    write_file(&folder.join("src/lib.rs"), "//! No code.\n")?;
    let changelog = format!(
        "millpond ({}-1) unstable; urgency=medium\n\n  * What is new stands in CHANGELOG.md of the \
         sources.\n\n -- {MAINTAINER}  {date}\n",
        stage.version
    );
    write_file(&folder.join("debian.changelog"), &changelog)?;
    let mit = fs::read_to_string(folder.join("LICENSE-MIT"))?;
    write_file(&folder.join("license"), &format!("{APACHE}{mit}"))?;
    let text = [package(&stage.version), deb(), rpm(stage)?].concat();
    write_file(&folder.join("Cargo.toml"), &text)
}

/// Writes the manifest of the packages with symbols: one file, and where it goes.
pub(super) fn write_symbols(stage: &Stage, file: &str, place: &str) -> Result<()> {
    write_file(&stage.folder.join("src/lib.rs"), "//! No code.\n")?;
    let version = &stage.version;
    let text = format!(
        "{}\n[package.metadata.deb]\nname = \"millpond-dbg\"\nmaintainer = \"{MAINTAINER}\"\n\
         section = \"debug\"\npriority = \"optional\"\ndepends = \"millpond (= {version}-1)\"\n\
         license-file = [\"license\", \"0\"]\nchangelog = \"debian.changelog\"\n\
         extended-description = \"\"\"{SYMBOLS}\"\"\"\n\
         assets = [[\"{file}\", \"{place}\", \"644\"]]\n\n\
         [package.metadata.generate-rpm]\nname = \"millpond-debuginfo\"\n\
         assets = [{{ source = \"{file}\", dest = \"/{place}\", mode = \"644\" }}]\n\n\
         [package.metadata.generate-rpm.requires]\nmillpond = \"= {version}\"\n",
        package(version).replace(SUMMARY, "Debug symbols of the caching proxy Millpond")
    );
    write_file(&stage.folder.join("Cargo.toml"), &text)
}

/// The words on the license of which every Debian system has the text.
const APACHE: &str = "\
Either the Apache License, Version 2.0, which is in /usr/share/common-licenses/Apache-2.0 on
Debian systems, or the MIT license:

";

fn package(version: &str) -> String {
    format!(
        "[package]\nname = \"millpond\"\nversion = \"{version}\"\nedition = \"2024\"\n\
         license = \"Apache-2.0 OR MIT\"\ndescription = \"{SUMMARY}\"\n\
         authors = [\"{MAINTAINER}\"]\n\
         repository = \"https://github.com/millpond/millpond\"\n\n[workspace]\n"
    )
}

fn deb() -> String {
    let mut out = format!(
        "\n[package.metadata.deb]\nmaintainer = \"{MAINTAINER}\"\nsection = \"httpd\"\n\
         priority = \"optional\"\n\
         depends = \"$auto, systemd | systemd-standalone-sysusers | systemd-sysusers\"\n\
         recommends = \"logrotate\"\nprovides = \"httpd\"\nlicense-file = [\"license\", \"0\"]\n\
         changelog = \"debian.changelog\"\nmaintainer-scripts = \"debian\"\n\
         extended-description = \"\"\"{ABOUT}\"\"\"\nassets = [\n"
    );
    for (from, to, kind) in FILES.iter().filter(|(_, _, kind)| *kind != Kind::Unit) {
        let line = format!("    [\"{from}\", \"{to}\", \"{:o}\"],\n", kind.mode());
        out.push_str(&line);
    }
    out.push_str("]\n\n[package.metadata.deb.systemd-units]\n");
    out.push_str(&format!(
        "unit-scripts = \"{UNITS}\"\nunit-name = \"millpond\"\n"
    ));
    // The script of the package lets a new binary take over from the one that runs.
    out.push_str("enable = true\nstart = true\nrestart-after-upgrade = false\n");
    out.push_str("stop-on-upgrade = false\n");
    out
}

fn rpm(stage: &Stage) -> Result<String> {
    let mut out = String::from(
        "\n[package.metadata.generate-rpm]\npost_install_script = \"rpm/post_install.sh\"\n\
         pre_uninstall_script = \"rpm/pre_uninstall.sh\"\n\
         post_uninstall_script = \"rpm/post_uninstall.sh\"\nassets = [\n",
    );
    for (from, to, kind) in FILES {
        // Zsh of these systems looks elsewhere.
        let to = to.replace("zsh/vendor-completions", "zsh/site-functions");
        let config = match kind {
            Kind::Configuration => ", config = \"noreplace\"",
            _ => "",
        };
        for source in sources(&stage.folder, from)? {
            let source = source.strip_prefix(&stage.folder).unwrap_or(&source);
            out.push_str(&format!(
                "    {{ source = \"{}\", dest = \"/{to}\", mode = \"{:o}\"{config} }},\n",
                source.display(),
                kind.mode()
            ));
        }
    }
    out.push_str("]\n\n[package.metadata.generate-rpm.requires]\nsystemd = \"*\"\n");
    Ok(out)
}
