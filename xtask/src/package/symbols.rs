//! Debug symbols: the program without them, and a package that brings them back.
//!
//! ```text
//! binary ──► millpond                        with a build id and the name of the file below
//!        └─► symbols/ID.debug, manifest ──►  /usr/lib/debug/.build-id/XX/REST.debug
//! ```
//!
//! Debuggers, `perf` and `addr2line` find the file by the build id, or by the name and the checksum
//! in the program. The package with symbols wants that very version of the program.

use super::build::Built;
use super::stage::{Stage, write};
use super::{check::said, manifest};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Folder of what is packed of it, in the stage.
const FOLDER: &str = "symbols";

/// Puts the program without its symbols into the stage, and gives the stage of the symbols.
pub(super) fn split(built: &Built, staged: &Stage) -> Result<Stage> {
    let binary = &built.path;
    let id = build_id(binary)?;
    let (first, rest) = id.split_at_checked(2).context("a short build id")?;
    let symbols = Stage {
        folder: staged.folder.join(FOLDER),
        ..staged.clone()
    };
    let name = format!("{rest}.debug");
    let file = symbols.folder.join(&name);
    fs::create_dir_all(&symbols.folder)?;
    let mut keep = built.machine.tool("objcopy");
    keep.args(["--only-keep-debug", "--compress-debug-sections=zlib"]);
    said(keep.arg(binary).arg(&file))?;
    let stripped = staged.folder.join("millpond");
    let mut strip = built.machine.tool("strip");
    said(
        strip
            .args(["--strip-unneeded", "-o"])
            .args([&stripped, binary]),
    )?;
    let mut link = built.machine.tool("objcopy");
    link.arg(format!("--add-gnu-debuglink={}", file.display()));
    said(link.arg(&stripped))?;
    for text in ["license", "debian.changelog"] {
        let words = fs::read_to_string(staged.folder.join(text))?;
        write(
            &symbols.folder.join(text),
            &words.replace("millpond (", "millpond-dbg ("),
        )?;
    }
    let place = format!("usr/lib/debug/.build-id/{first}/");
    manifest::write_symbols(&symbols, &name, &place)?;
    Ok(symbols)
}

/// The build id of a program, in hexadecimal digits.
pub(super) fn build_id(program: &Path) -> Result<String> {
    let notes = said(Command::new("readelf").arg("-n").arg(program))?;
    let found = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    let id = found.with_context(|| format!("{} has no build id", program.display()))?;
    ensure!(
        id.len() > 2 && id.bytes().all(|b| b.is_ascii_hexdigit()),
        "{id}"
    );
    Ok(id.to_string())
}
