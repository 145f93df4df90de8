//! Imports among crates and modules: those of the code, those that the table `xtask/arrows.txt`
//! allows, and the picture of both in `docs/images`.
//!
//! `read` finds the arrows among modules in the code, `manifest` those among crates in their
//! manifests, and `table` holds what is allowed. `draw` draws them, and `map` looks for a line for
//! each module in `docs/architecture.md`.

pub(crate) mod draw;
mod manifest;
pub(crate) mod map;
pub(crate) mod read;
pub(crate) mod table;

use crate::tidy::Finding;
use crate::tidy::source::{self, SourceFile};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use table::{Code, Table};

/// The crates and modules that the code has.
pub(crate) fn code(root: &Path, files: &[SourceFile]) -> Result<Code> {
    Ok(Code {
        crates: manifest::read(root)?,
        modules: read::read(files),
    })
}

/// The table that is checked in.
pub(crate) fn table(root: &Path) -> Result<Table> {
    let text = fs::read_to_string(root.join(table::PATH)).context(table::PATH)?;
    Table::parse(&text)
}

/// Compares the table with the code.
pub(crate) fn check(root: &Path, files: &[SourceFile], findings: &mut Vec<Finding>) -> Result<()> {
    let text = fs::read_to_string(root.join(table::PATH)).context(table::PATH)?;
    let table = Table::parse(&text)?;
    if text != table.to_string() {
        let message = "not sorted, or not as `cargo xtask tidy --arrows` writes it".to_owned();
        findings.push(table::finding(&(table::PATH.into(), 1), message));
    }
    let code = code(root, files)?;
    table.check(&code, findings);
    map::check(&map::text(root)?, &code.modules, findings);
    Ok(())
}

/// Writes the table as the code is: without what is gone, and with new modules where they fit. A
/// table with more arrows than before is not written.
pub(crate) fn renew(root: &Path, files: &[SourceFile]) -> Result<()> {
    let before = table(root)?;
    let renewed = before.renewed(&code(root, files)?);
    let (was, is) = (before.back_count(), renewed.back_count());
    if is > was {
        bail!("{is} arrows run back, {was} did: turn one round, or add its line by hand");
    }
    fs::write(root.join(table::PATH), renewed.to_string())?;
    Ok(())
}

/// Draws the arrows.
pub(crate) fn picture(root: &Path) -> Result<String> {
    let code = code(root, &source::read_all(root)?)?;
    Ok(draw::draw(&code, &table(root)?.layered))
}

/// Prints the arrows of a crate that run against its layers, the rarest first, and the places where
/// they stand.
pub(crate) fn print_crate(root: &Path, files: &[SourceFile], name: &str) -> Result<()> {
    let code = code(root, files)?;
    let krate = code.modules.get(name).context("there is no such crate")?;
    let renewed = table(root)?.renewed(&code);
    let Some(layers) = renewed.layered.get(name) else {
        println!("no arrows run back in {name}");
        return Ok(());
    };
    let mut back: Vec<_> = layers.back(krate).collect();
    back.sort_by_key(|(_, places)| places.len());
    for ((from, to), places) in back {
        println!("{from} -> {to}");
        for (path, line) in places {
            println!("    {}:{line}", path.display());
        }
    }
    Ok(())
}
