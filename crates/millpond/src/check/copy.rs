//! The places of changed configurations: a folder, a file, or where they came from.
//!
//! A folder gets all that stands beside the main file, so that relative paths hold, and lines of
//! `include` that name the old folder name the new one. Nothing that is there is overwritten, but
//! in place, where each file is replaced as a whole and keeps its rights.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use millpond_conf::{FileId, Written, written};

use super::edit::{Edit, Kind, apply};
use super::fix::Fixed;

/// Files that are copied at most (arbitrary: far more than configurations have).
const FILES: usize = 100_000;
/// Folders within folders at most (arbitrary).
const DEPTH: usize = 64;

/// Place that a changed configuration is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// A folder or a file of its own.
    Copy(PathBuf),
    /// The files that were read.
    InPlace,
}

/// Origin of what was checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Disk,
    /// The text of `nginx -T`: there are no other files than those that were read.
    Text,
}

/// Writes a configuration; the files that were changed and do not stand where they could be
/// written.
pub(super) fn write<'f>(
    fixed: &'f Fixed,
    (main, from): (&Path, From),
    to: &To,
) -> Result<Vec<&'f Path>> {
    let base = main.parent().unwrap_or(Path::new(""));
    match to {
        To::InPlace => in_place(fixed).map(|()| Vec::new()),
        To::Copy(to) if fixed.files.len() == 1 && !to.is_dir() => {
            let text = fixed.files.get(main).map_or(&[][..], Vec::as_slice);
            create(to, text)?;
            Ok(Vec::new())
        }
        To::Copy(to) => {
            let is_free = fs::read_dir(to).map_or(true, |mut names| names.next().is_none());
            if !is_free {
                bail!("\"{}\" is not empty", to.display());
            }
            if from == From::Disk {
                let mut left = FILES;
                copy_folder((base, to), fixed, (&mut left, DEPTH))?;
            }
            for (path, text) in &fixed.files {
                if let Ok(name) = path.strip_prefix(base) {
                    create(&to.join(name), &moved(text, base))?;
                }
            }
            let outside = fixed.changed.iter().map(PathBuf::as_path);
            Ok(outside.filter(|path| !path.starts_with(base)).collect())
        }
    }
}

fn in_place(fixed: &Fixed) -> Result<()> {
    for path in &fixed.changed {
        let text = fixed.files.get(path).map_or(&[][..], Vec::as_slice);
        // A link stays one.
        let path = fs::canonicalize(path).with_context(|| shown("cannot find", path))?;
        let beside = path.with_extension("millpond-fix");
        create(&beside, text)?;
        let rights = fs::metadata(&path)?.permissions();
        fs::set_permissions(&beside, rights)?;
        fs::rename(&beside, &path).with_context(|| shown("cannot replace", &path))?;
    }
    Ok(())
}

fn shown(what: &str, path: &Path) -> String {
    format!("{what} \"{}\"", path.display())
}

/// Writes a file that is not there yet, with the folders around it.
fn create(path: &Path, text: &[u8]) -> Result<()> {
    let make = || -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)?;
        file.write_all(text)
    };
    make().with_context(|| shown("cannot write", path))
}

/// Copies what stands in a folder and is no part of the configuration's text.
fn copy_folder(
    (from, to): (&Path, &Path),
    fixed: &Fixed,
    (left, depth): (&mut usize, usize),
) -> Result<()> {
    if depth == 0 {
        bail!("{}", shown("too many folders within folders at", from));
    }
    // Listed before anything is made: the copy may lie inside.
    let read = fs::read_dir(from).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let listed = read.with_context(|| shown("cannot read", from))?;
    fs::create_dir_all(to).with_context(|| shown("cannot make", to))?;
    let own = fs::canonicalize(to).ok();
    for entry in listed {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if fixed.files.contains_key(&path) || fs::canonicalize(&path).ok() == own {
            continue;
        }
        let Some(rest) = left.checked_sub(1) else {
            bail!("more than {FILES} files are in the folder");
        };
        *left = rest;
        let copy = to.join(entry.file_name());
        if kind.is_dir() {
            copy_folder((&path, &copy), fixed, (left, depth - 1))?;
        } else if kind.is_symlink() && !path.is_file() {
            let target = fs::read_link(&path)?;
            std::os::unix::fs::symlink(target, &copy)?;
        } else if path.is_file() {
            fs::copy(&path, &copy).with_context(|| shown("cannot copy", &path))?;
        }
    }
    Ok(())
}

/// A text whose lines of `include` name files of the copy.
fn moved(text: &[u8], base: &Path) -> Vec<u8> {
    let base = format!("{}/", base.display());
    let mut edits = Vec::new();
    gather(&written(FileId(0), text), &base, &mut edits);
    apply(text, edits)
}

/// The changes of the lines that include; depth is bounded by the reader of statements.
fn gather(statements: &[Written], base: &str, edits: &mut Vec<Edit>) {
    for statement in statements {
        let [name, file] = statement.words.as_slice() else {
            gather(&statement.inside, base, edits);
            continue;
        };
        if let Some(name) = file
            .text
            .strip_prefix(base)
            .filter(|_| name.text == "include")
        {
            edits.push(Edit {
                extent: statement.extent,
                kind: Kind::Words(vec![(file.span, format!("\"{name}\""))]),
                why: "the copy includes its own files".to_string(),
            });
        }
        gather(&statement.inside, base, edits);
    }
}
