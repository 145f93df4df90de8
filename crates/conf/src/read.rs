//! Reading configuration files: the one place of this crate that touches the file system.
//!
//! Files are bounded by [`FILE_BYTES`], also special ones that never end. Errors are worded as
//! nginx words them: the call that went wrong, the path, the number and text of the error.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The largest file that is read. Address lists of tens of megabytes exist.
pub(crate) const FILE_BYTES: u64 = 256 * 1024 * 1024;

/// The whole file, or nginx's message about why not.
pub(crate) fn file(path: &Path) -> Result<Vec<u8>, String> {
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
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

/// Whether something has this path.
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
