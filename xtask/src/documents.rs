//! `cargo xtask docs`: the documents that are written from the code.
//!
//! The binary knows its manual; it prints `docs/directives.md`, `docs/variables.md` and
//! `docs/metrics.md`. The task writes them, and `cargo xtask test` compares what is checked in with
//! what would be written.
//!
//! Does not build the binary when it only compares: the caller has.

use crate::tally::Tally;
use crate::{checks, workspace};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The documents, each `docs/NAME.md`.
const DOCUMENTS: [&str; 3] = ["directives", "variables", "metrics"];

/// Writes the documents.
pub(crate) fn run() -> Result<Tally> {
    if !checks::build_binary().status()?.success() {
        bail!("the binary does not build");
    }
    for name in DOCUMENTS {
        fs::write(path(name), text(name)?)?;
    }
    Ok(Tally::PASS)
}

/// Compares the documents with what would be written.
pub(crate) fn check() -> Result<Tally> {
    let mut tally = Tally::default();
    for name in DOCUMENTS {
        let is_same = fs::read_to_string(path(name)).unwrap_or_default() == text(name)?;
        if !is_same {
            println!("docs/{name}.md is not what the code says: run `cargo xtask docs`");
        }
        tally += match is_same {
            true => Tally::PASS,
            false => Tally::FAIL,
        };
    }
    Ok(tally)
}

fn path(name: &str) -> PathBuf {
    workspace::root().join("docs").join(format!("{name}.md"))
}

fn text(name: &str) -> Result<String> {
    let output = Command::new(workspace::binary())
        .args(["explain", "--reference", name])
        .output()
        .context("the binary does not run")?;
    if !output.status.success() {
        bail!("the binary does not print its manual");
    }
    String::from_utf8(output.stdout).context("the manual is no text")
}
