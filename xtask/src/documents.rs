//! `cargo xtask docs`: the documents that are written from the code.
//!
//! The binary knows its manual; it prints `docs/directives.md`, `docs/variables.md` and
//! `docs/metrics.md`. The picture of crates and layers is drawn from the code. The task writes
//! them; with `--check`, and in `cargo xtask test`, what is checked in is compared with what would
//! be written.
//!
//! The tables of the error log's lines are written by hand and compared with the code
//! (`log_lines`).
//!
//! Does not build the binary when it only compares: the caller has.

use crate::tally::Tally;
use crate::{arrows, checks, log_lines, workspace};
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::Command;

/// The documents of the binary, each `docs/NAME.md`.
const MANUALS: [&str; 3] = ["directives", "variables", "metrics"];

/// Writes the documents, or compares them.
pub(crate) fn run(args: &[String]) -> Result<Tally> {
    let is_check = match args {
        [] => false,
        [arg] if arg == "--check" => true,
        _ => bail!("`docs` takes `--check` only, not {}", args.join(" ")),
    };
    if !checks::build_binary().status()?.success() {
        bail!("the binary does not build");
    }
    if is_check {
        return check();
    }
    for (path, text) in documents()? {
        fs::write(workspace::root().join(path), text)?;
    }
    log_lines::check()
}

/// Compares the documents with what would be written.
pub(crate) fn check() -> Result<Tally> {
    let mut tally = log_lines::check()?;
    for (path, text) in documents()? {
        let checked_in = fs::read_to_string(workspace::root().join(&path));
        let is_same = checked_in.is_ok_and(|checked_in| checked_in == text);
        if !is_same {
            println!("{path} is not what the code says: run `cargo xtask docs`");
        }
        tally += Tally::from(is_same);
    }
    Ok(tally)
}

/// Path and text of each document.
fn documents() -> Result<Vec<(String, String)>> {
    let manuals = MANUALS.map(|name| Ok((format!("docs/{name}.md"), text(name)?)));
    let picture =
        arrows::picture(&workspace::root()).map(|picture| (arrows::draw::PATH.to_owned(), picture));
    manuals.into_iter().chain([picture]).collect()
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
