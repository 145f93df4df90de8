//! Room on the disk for a run of all tests.
//!
//! A full disk looks like many faults of other kinds, so a run that has too little room ends before
//! it begins, and says how much it wants.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Bytes of the target directory after a whole run, with what the run has in temporary folders.
/// Measured from nothing, rounded up.
const WANTED: u64 = 24 << 30;

/// Fails where what is free beside what an earlier run has left is less than a run takes.
pub(crate) fn check() -> Result<()> {
    let target = workspace::target();
    let mut above = target.ancestors();
    let nearest = above
        .find(|dir| dir.exists())
        .context("no folder above the target directory exists")?;
    let free = number_of(
        Command::new("df")
            .args(["--output=avail", "-B1"])
            .arg(nearest),
    )?;
    let held = if target.exists() { held(&target)? } else { 0 };
    println!("== room: {} free, {} in target", gib(free), gib(held));
    if free.saturating_add(held) < WANTED {
        bail!(
            "{} are free on the disk of {}, which holds {}; a run of all tests takes {} there",
            gib(free),
            target.display(),
            gib(held),
            gib(WANTED)
        );
    }
    Ok(())
}

fn held(target: &Path) -> Result<u64> {
    number_of(Command::new("du").args(["-s", "-B1"]).arg(target))
}

/// The number that begins the last line of what a command prints.
fn number_of(command: &mut Command) -> Result<u64> {
    let output = command.output().context("df or du does not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    last_number(&text).with_context(|| format!("{command:?} prints no number: {text}"))
}

fn last_number(text: &str) -> Option<u64> {
    text.lines().last()?.split_whitespace().next()?.parse().ok()
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_that_of_the_last_line() {
        assert_eq!(
            last_number("      Avail\n84825448448\n"),
            Some(84_825_448_448)
        );
        assert_eq!(last_number("4096\t/a folder/target\n"), Some(4096));
        assert_eq!(last_number("df: no such file\n"), None);
        assert_eq!(gib(84_825_448_448), "79.0 GiB");
    }
}
