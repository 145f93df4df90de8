//! Loading: a configuration file, or a text, with all that it includes, to a [`Tree`].
//!
//! This is the way in, and the one place of this crate that touches the file system. Files are
//! bounded by [`FILE_BYTES`], also special ones that never end. Errors are worded as nginx words
//! them: the call that went wrong, the path, the number and the text of the error.
//!
//! What it does not do: it does not resolve the path of the main file against a prefix; the
//! command line does.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::code;
use crate::diagnostic::Diagnostics;
use crate::files::Files;
use crate::include::Includer;
use crate::source::{SourceKind, Sources};
use crate::tree::{Statement, Tree};

/// The largest file that is read. Address lists of tens of megabytes exist.
pub const FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Options for loading.
#[derive(Clone, Default, Debug)]
pub struct LoadOptions {
    /// Directory that relative includes start at; the directory of the main file if none is given.
    pub conf_dir: Option<PathBuf>,
    /// The directives of the `-g` option. Their statements come first in the tree.
    pub globals: Option<String>,
    /// Source of the files.
    pub files: Files,
}

/// Reads a configuration file and all that it includes.
///
/// There is always a tree; whether it may be used is for `diagnostics` to say.
pub fn load(path: &Path, options: &LoadOptions, diagnostics: &mut Diagnostics) -> Tree {
    match options.files.read(path) {
        Ok(bytes) => assemble(path, bytes, options, diagnostics),
        Err(message) => {
            diagnostics
                .push_error(None, message)
                .code(code::MISSING_FILE);
            Tree::default()
        }
    }
}

/// Reads a configuration from a text. Its name stands for the path of the main file.
pub fn load_text(
    name: &str,
    text: impl Into<Vec<u8>>,
    options: &LoadOptions,
    diagnostics: &mut Diagnostics,
) -> Tree {
    assemble(Path::new(name), text.into(), options, diagnostics)
}

/// Reads the main file of another configuration, with files of its own, beside those of a tree; the
/// statements are for the caller to put somewhere.
pub fn load_beside(
    path: &Path,
    files: &Files,
    sources: &mut Sources,
    diagnostics: &mut Diagnostics,
) -> Vec<Statement> {
    let bytes = match files.read(path) {
        Ok(bytes) => bytes,
        Err(message) => {
            let error = diagnostics.push_error(None, message);
            error.code(code::MISSING_FILE);
            return Vec::new();
        }
    };
    let conf_dir = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut includer = Includer::new(conf_dir, files.clone(), diagnostics);
    includer.go_on_with(std::mem::take(sources));
    let statements = includer.statements(path.to_owned(), bytes, SourceKind::File);
    *sources = includer.into_sources();
    statements
}

fn assemble(
    path: &Path,
    bytes: Vec<u8>,
    options: &LoadOptions,
    diagnostics: &mut Diagnostics,
) -> Tree {
    let parent = || path.parent().unwrap_or(Path::new("")).to_owned();
    let conf_dir = options.conf_dir.clone().unwrap_or_else(parent);
    let mut includer = Includer::new(conf_dir, options.files.clone(), diagnostics);
    let mut statements = Vec::new();
    if let Some(globals) = &options.globals {
        let name = PathBuf::from("command line");
        let bytes = globals.clone().into_bytes();
        statements = includer.statements(name, bytes, SourceKind::CommandLine);
    }
    statements.extend(includer.statements(path.to_owned(), bytes, SourceKind::File));
    Tree {
        statements,
        sources: includer.into_sources(),
    }
}

/// The whole file, or nginx's message about why not.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| failed("open()", path, &error))?;
    let mut bytes = Vec::new();
    let count = file.take(FILE_BYTES + 1).read_to_end(&mut bytes);
    let count = count.map_err(|error| failed("read()", path, &error))?;
    if count as u64 > FILE_BYTES {
        let path = path.display();
        return Err(format!("\"{path}\" is larger than {FILE_BYTES} bytes"));
    }
    Ok(bytes)
}

/// The names in a directory, sorted by their bytes; none if it cannot be read, as for `glob`.
pub(crate) fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

/// True if something has this path.
pub(crate) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn failed(call: &str, path: &Path, error: &io::Error) -> String {
    let path = path.display();
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => {
            let text = text.split(" (os error").next().unwrap_or(&text);
            format!("{call} \"{path}\" failed ({code}: {text})")
        }
        None => format!("{call} \"{path}\" failed ({text})"),
    }
}
