//! Files of modules, read with the configuration.
//!
//! A process that may not read them gets them from the one that may, as all that is read then.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use millpond_conf::Files;

/// The longest module (arbitrary: bundles of whole frameworks are shorter).
const MAX_MODULE: u64 = 8 << 20;

/// The bytes of a module's file.
pub(super) fn module(files: &Files, path: &Path) -> io::Result<Vec<u8>> {
    let read = files.read_with(path, |path| read_now(path).map(Arc::from));
    read.map(|bytes| bytes.to_vec())
}

fn read_now(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    file.take(MAX_MODULE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_MODULE {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(text)
}
